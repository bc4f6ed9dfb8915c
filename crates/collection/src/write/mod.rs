//! Writing. One thread appends the changes of all waiting writes to the log and applies them to the memtable.
//! Memtables are later written as segments, and segments are merged when there are many.

mod background;
mod commit;
mod compact;
mod content;
mod copy;
mod flush;
mod large;
mod merge;
mod new_segment;
mod operation;
mod rank;
mod segments;
mod shared;
mod stopped;
#[cfg(test)]
mod tests;
mod traffic;
mod writer;
mod writers;

pub use compact::{CompactOptions, CompactionReport};
pub use copy::CopiedCollection;
pub(crate) use copy::copy_segment;
pub(crate) use operation::Operation;
pub use operation::Written;
pub(crate) use shared::Shared;
pub use traffic::WrittenBytes;
