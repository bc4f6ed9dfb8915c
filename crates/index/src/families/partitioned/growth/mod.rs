//! Inserts into partitions in memory that several machines reach (d-HNSW, section 3.2).
//!
//! `entry` is the manifest's description. `layout` and `overflow` define the bytes, and `group_file` writes
//! them in a build. `group_reader` reads partitions for searches. `writer` makes changes; it uses `regroup`
//! to rewrite a full group, and `units` to allocate space for it. `memory` executes their operations.

pub(super) mod entry;
pub(super) mod group_file;
pub(super) mod group_reader;
pub(super) mod layout;
pub(super) mod overflow;
pub(super) mod regroup;
pub(super) mod shared_memory;
#[cfg(test)]
mod tests;
pub(super) mod units;
pub(super) mod writer;
