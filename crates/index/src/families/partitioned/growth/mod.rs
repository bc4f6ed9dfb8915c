//! Inserts into partitions that lie in memory which several machines reach (d-HNSW, section 3.2).
//!
//! `entry` is what the manifest says; `layout` and `overflow` are the bytes, which `laying` writes for the first time; `reading` is
//! what a search does, `writer` what whoever changes something does, with `regroup` for a group that is full and `units` for where
//! that then lies. `memory` carries their operations out.

pub(super) mod entry;
pub(super) mod group_file;
pub(super) mod group_reader;
pub(super) mod layout;
pub(super) mod memory;
pub(super) mod overflow;
pub(super) mod regroup;
#[cfg(test)]
mod tests;
pub(super) mod units;
pub(super) mod writer;
