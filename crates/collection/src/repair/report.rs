//! What a repair is told, and what it says.

use crate::ids::Id;
use crate::version::IdEntry;
use serde::Serialize;
use std::path::PathBuf;

/// How a collection is repaired.
#[derive(Debug, Clone, Default)]
pub struct RepairOptions {
    /// Keep rows of which it is not known whether they were deleted or replaced: those of a segment of which
    /// the list of deleted rows is lost, those of segments that only versions name which cannot be read, and
    /// those of all segments where no version can be read. Without, they are left out.
    pub keep_uncertain: bool,
    /// A file that takes the ids of the rows that are lost, as far as they are known: JSON lines, `{"id":
    /// ...}` on each.
    pub lost_ids: Option<PathBuf>,
}

/// What a repair came to.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Repaired {
    /// Whether nothing is lost.
    pub complete: bool,
    /// Rows that the new collection holds.
    pub rows: u64,
    /// Rows that were there and are lost; at most so many where their ids are not known, or where segments
    /// were left out.
    pub lost_rows: u64,
    /// Those of them whose ids are not known.
    pub unknown_rows: u64,
    /// Rows that are there and may have been deleted or replaced before.
    pub uncertain_rows: u64,
    /// The version that was read; `None` if none could be.
    pub version: Option<u64>,
    /// Versions that could not be read, later than that one.
    pub unreadable_versions: Vec<u64>,
    /// What became of each segment.
    pub segments: Vec<RepairedSegment>,
    /// Batches that were read from the log.
    pub batches: u64,
    /// Batches that were in the log and are lost, by their numbers.
    pub lost_batches: Vec<LostBatches>,
    /// Whether the log that was appended to last is missing, so that nobody knows how many batches it had.
    pub lost_log: bool,
    /// The first of the ids that are lost.
    pub lost_ids: Vec<LostId>,
    /// Where rows are lost whose ids are not known: the first of these places.
    pub gaps: Vec<Gap>,
    /// What is damaged, in sentences: the first of them.
    pub faults: Vec<String>,
    /// How many there are.
    pub fault_count: u64,
    /// What the user should know besides.
    pub notes: Vec<String>,
}

/// What became of a segment.
#[derive(Debug, Clone, Serialize)]
pub struct RepairedSegment {
    /// Its name.
    pub name: String,
    /// Rows of it that were not deleted.
    pub rows: u64,
    /// Those of them that were brought into the new collection, where later ones with the same ids may take
    /// their place.
    pub kept: u64,
    /// What was done: `copied` byte for byte, `written` anew from what is whole, or `left out`.
    pub outcome: &'static str,
}

/// Batches that are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LostBatches {
    /// Number of the first.
    pub first: u64,
    /// Number of the last.
    pub last: u64,
}

/// An id of a row that is lost; in JSON a number or a string.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct LostId(IdEntry);

impl LostId {
    /// The id.
    pub fn id(&self) -> Id {
        self.0.clone().into()
    }
}

impl From<Id> for LostId {
    fn from(id: Id) -> LostId {
        LostId(id.into())
    }
}

/// Rows that are lost and whose ids are not known.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Gap {
    /// The segment.
    pub segment: String,
    /// How many rows.
    pub rows: u64,
    /// Their ids are above this one; `None` of the first rows of the segment.
    pub after: Option<LostId>,
    /// Their ids are below this one; `None` of the last rows of the segment.
    pub before: Option<LostId>,
}
