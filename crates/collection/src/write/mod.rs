//! Writing. All changes are transitions of one writer (`writer`). One thread appends the changes of all
//! waiting writes to the log and applies them to the memtable (`commit`). Memtables are later written as
//! segments (`flush`), and segments are merged when there are many (`merge`), both without the writer's lock.

mod background;
mod calibrate;
mod commit;
mod compact;
mod content;
mod copy;
mod flush;
mod large;
mod measured;
mod merge;
mod operation;
mod rank;
mod segments;
mod shared;
mod stopped;
mod target_segment;
#[cfg(test)]
mod tests;
mod traffic;
mod writer;
mod writers;

pub use calibrate::{CalibratedRecalls, CalibrationReport, CollectionCalibration};
pub use compact::{CompactOptions, CompactionReport};
pub use copy::CopiedCollection;
pub(crate) use copy::{copy_calibrations, copy_segment};
pub(crate) use operation::Operation;
pub use operation::Written;
pub(crate) use shared::Shared;
pub use traffic::WrittenBytes;
