//! Options and report of a repair.

use crate::ids::Id;
use crate::version::IdEntry;
use serde::Serialize;
use std::path::PathBuf;

/// Options of a repair.
#[derive(Debug, Clone, Default)]
pub struct RepairOptions {
    /// Keep rows that may have been deleted or replaced: rows of a segment whose list of deleted rows is
    /// lost; rows of segments that only unreadable versions name; and, if no version can be read, the rows of
    /// all segments. If false, they are left out.
    pub keep_uncertain: bool,
    /// File for the ids of the lost rows, as far as they are known: JSON lines, `{"id": ...}` on each.
    pub lost_ids: Option<PathBuf>,
}

/// Report of a repair.
#[derive(Debug, Clone, Default, Serialize)]
pub struct RepairReport {
    /// True if nothing is lost.
    pub complete: bool,
    /// Rows of the new collection.
    pub rows: u64,
    /// Rows that are lost. This is an upper bound if ids are unknown, or if segments were left out.
    pub lost_rows: u64,
    /// Those of them with unknown ids.
    pub unknown_rows: u64,
    /// Rows of the new collection that may have been deleted or replaced before.
    pub uncertain_rows: u64,
    /// Number of the version that was used; `None` if none could be read.
    pub version: Option<u64>,
    /// Later versions that could not be read.
    pub unreadable_versions: Vec<u64>,
    /// The outcome for each segment.
    pub segments: Vec<RepairedSegment>,
    /// Batches that were read from the logs.
    pub batches: u64,
    /// Ranges of batches in the logs that are lost.
    pub lost_batches: Vec<LostBatches>,
    /// True if the last log is missing; then the number of its batches is unknown.
    pub lost_log: bool,
    /// The first lost ids.
    pub lost_ids: Vec<LostId>,
    /// The first gaps: places with lost rows of unknown ids.
    pub gaps: Vec<Gap>,
    /// The first faults, in sentences.
    pub faults: Vec<String>,
    /// Number of all faults.
    pub fault_count: u64,
    /// Further notes for the user.
    pub notes: Vec<String>,
}

/// Outcome for a segment.
#[derive(Debug, Clone, Serialize)]
pub struct RepairedSegment {
    /// Its name.
    pub name: String,
    /// Its rows without deleted ones.
    pub rows: u64,
    /// Rows that were copied to the new collection. Later rows with the same ids may replace them there.
    pub kept: u64,
    /// `copied` byte by byte, `written` as a new segment from the undamaged rows, or `left out`.
    pub outcome: &'static str,
}

/// A range of lost batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LostBatches {
    /// Sequence number of the first.
    pub first: u64,
    /// Sequence number of the last.
    pub last: u64,
}

/// Id of a lost row; in JSON a number or a string.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct LostId(IdEntry);

impl LostId {
    /// Returns the id.
    pub fn id(&self) -> Id {
        self.0.clone().into()
    }
}

impl From<Id> for LostId {
    fn from(id: Id) -> LostId {
        LostId(id.into())
    }
}

/// Lost rows with unknown ids.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Gap {
    /// The segment.
    pub segment: String,
    /// Number of rows.
    pub rows: u64,
    /// Their ids are above this one; `None` for the first rows of the segment.
    pub after: Option<LostId>,
    /// Their ids are below this one; `None` for the last rows of the segment.
    pub before: Option<LostId>,
}
