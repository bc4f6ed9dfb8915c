//! Partitions that are read whole (d-HNSW). The meta index, a small HNSW over some vectors of the set, stays
//! in memory. Each of its vectors, a pivot, represents a partition. A partition has an HNSW of its own and is
//! fetched in one read.
//!
//! The family suits the memory of another machine: it issues few, large reads, and no read depends on
//! another. `sub_index_cache` keeps the partitions that were read last, and reads each partition once however
//! many queries request it (d-HNSW, section 3.3). `subindex` defines the bytes of a sub-index; the meta index
//! has the same format.

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

use crate::family::Family;
use crate::format::identity::Identity;
use crate::proximity::walk::Walk;

/// The family, for the registry.
pub static FAMILY: Family = Family {
    name: section::NAME,
    about: "partitions with a graph each, read whole and kept for later queries (d-HNSW): for the memory of \
            another machine",
    options: subindex::options::DOCS,
    counters: search::COUNTERS,
    capabilities: &[],
    striped: section::STRIPED,
    defaults: || PartitionedOptions::default().into(),
    parse: subindex::options::parse,
    read: |manifest| Ok(Box::new(open::StoredPartitions::read(manifest)?)),
};

/// Checks the bytes of a sub-index over vectors of `row_bytes` bytes in the way a search reads them. All ids
/// must be below `ids_end`.
///
/// # Errors
/// A description of the fault.
pub fn check_subindex(bytes: &[u8], row_bytes: usize, ids_end: u32) -> Result<(), String> {
    let index = subindex::SubIndex::read(bytes, row_bytes)?;
    index.check(ids_end)?;
    // A sound sub-index can be walked.
    index.search(&mut Walk::new(0, 0), 10, |_, scores| scores.fill(1.0));
    Ok(())
}

/// Checks the bytes of a table of partitions in the way that opening an index reads them. The sub-indexes are
/// in a file of `file_bytes` bytes.
///
/// # Errors
/// A description of the fault.
pub fn check_table(bytes: &[u8], file_bytes: u64) -> Result<(), String> {
    subindex::table::SubIndexTable::from_bytes(bytes).map_err(|error| error.to_string())?.check(file_bytes)
}

/// Checks the bytes of the first group of partitions that take inserts, in the way that searches and writers
/// read them. Vectors have `row_bytes` bytes, and the overflow has `slots` slots.
///
/// # Errors
/// A description of the fault.
pub fn check_group(bytes: &[u8], row_bytes: usize, slots: u32, identity: Identity) -> Result<(), String> {
    growth::group_reader::check_group(bytes, row_bytes, slots, identity)
}
