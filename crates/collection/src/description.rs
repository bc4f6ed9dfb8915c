//! Description of a collection.

use crate::schema::Schema;
use crate::version::CalibrationEntry;
use crate::write::WrittenBytes;
use serde::Serialize;

/// Description of a collection: its schema, its size and its segments.
#[derive(Debug, Clone, Serialize)]
pub struct Description {
    /// The folder or the address.
    pub path: String,
    /// The schema.
    pub schema: Schema,
    /// The number of the latest version.
    pub version: u64,
    /// Sequence number of the last log record: the number of batches that were written.
    pub sequence: u64,
    /// Live rows (those that are not deleted).
    pub rows: u64,
    /// Live rows that are only in memory and in the log.
    pub rows_in_memory: u64,
    /// Bytes of memory that the rows in memory take.
    pub memory_bytes: u64,
    /// Bytes of memory that open segments hold.
    pub held_bytes: u64,
    /// Bytes of all segments.
    pub bytes: u64,
    /// Rows of segments, deleted or not, divided by the live rows of segments.
    pub space_amplification: f64,
    /// Bytes that this handle has written.
    pub written: WrittenBytes,
    /// The segments.
    pub segments: Vec<SegmentDescription>,
    /// The calibrations with given queries, in the order of their names; absent in JSON if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calibrations: Vec<CalibrationDescription>,
}

/// Description of a calibration with given queries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CalibrationDescription {
    /// Its name.
    pub name: String,
    /// The vector field.
    pub field: String,
    /// Number of queries.
    pub queries: u32,
    /// Seconds since 1970 (UTC) when it was measured.
    pub measured_at: u64,
    /// Segments that were measured with it. In the others, searches compare all rows, or the measurement
    /// failed.
    pub segments: usize,
}

impl CalibrationDescription {
    pub(crate) fn of(entry: &CalibrationEntry) -> CalibrationDescription {
        CalibrationDescription {
            name: entry.name.clone(),
            field: entry.field.clone(),
            queries: entry.queries,
            measured_at: entry.measured_at,
            segments: entry.segments.len(),
        }
    }
}

/// Description of a segment.
#[derive(Debug, Clone, Serialize)]
pub struct SegmentDescription {
    /// Its name.
    pub name: String,
    /// Its rows, deleted or not.
    pub rows: u32,
    /// Its deleted rows.
    pub deleted: u32,
    /// Bytes of its files.
    pub bytes: u64,
}
