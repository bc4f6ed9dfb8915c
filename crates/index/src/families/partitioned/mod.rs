//! Partitions that are read whole (d-HNSW): a small HNSW over some vectors of the set, the meta index, stays in memory; each
//! of its vectors stands for a partition, which has an HNSW of its own and comes in one read.
//!
//! For memory that is elsewhere: few and large reads, none of which depends on another. `shelf` keeps the partitions that were
//! read last, and has each read once however many queries want it (d-HNSW, section 3.3); `subindex` is what a partition
//! looks like, byte for byte; the meta index is one, too.

mod assign;
mod balance;
mod build;
mod calibrate;
mod cost;
mod growth;
mod inserts;
mod inspect;
mod meta;
mod open;
mod plan;
mod rows;
mod search;
mod section;
mod sizes;
mod sub_index_cache;
mod subindex;
mod verify;
mod verify_groups;

pub use growth::entry::GrowthEntry;
pub use section::PartitionedEntry;
pub use subindex::options::{
    DEFAULT_CONSTRUCTION_LIST, DEFAULT_LINKS, DEFAULT_PARTITION_VECTORS, DEFAULT_PROBES, DEFAULT_REPLICAS,
    PartitionedOptions, Pivots,
};

use crate::families::graph::walk::Walk;
use crate::family::Family;
use crate::format::identity::Identity;

/// The family, for the registry.
pub static FAMILY: Family = Family {
    name: section::NAME,
    about: "partitions with a graph each, read whole and kept for the next queries (d-HNSW): for memory of another machine",
    options: subindex::options::DOCS,
    counters: search::COUNTERS,
    striped: section::STRIPED,
    parse: subindex::options::parse,
    read: |manifest| Ok(Box::new(open::StoredPartitions::read(manifest)?)),
};

/// Reads the bytes of a sub-index over vectors of `row_bytes` bytes as a search does, whose ids are below `ids_end`, and says
/// what is wrong with them.
///
/// # Errors
/// A sentence.
pub fn check_subindex(bytes: &[u8], row_bytes: usize, ids_end: u32) -> Result<(), String> {
    let index = subindex::SubIndex::read(bytes, row_bytes)?;
    index.check(ids_end)?;
    // What is sound can be walked.
    index.search(&mut Walk::new(0, 0), 10, |_, scores| scores.fill(1.0));
    Ok(())
}

/// Reads the bytes of a table of partitions as opening an index does, whose sub-indexes are in a file of `file_bytes` bytes,
/// and says what is wrong with them.
///
/// # Errors
/// A sentence.
pub fn check_table(bytes: &[u8], file_bytes: u64) -> Result<(), String> {
    subindex::table::Table::from_bytes(bytes).map_err(|unread| unread.to_string())?.check(file_bytes)
}

/// Reads the bytes of the first group of partitions that take inserts, of vectors of `row_bytes` bytes, as a search and a writer do,
/// and says what is wrong with them.
///
/// # Errors
/// A sentence.
pub fn check_group(bytes: &[u8], row_bytes: usize, slots: u32, identity: Identity) -> Result<(), String> {
    growth::group_reader::check_group(bytes, row_bytes, slots, identity)
}
