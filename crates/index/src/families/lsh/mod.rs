//! Locality-sensitive hashing with a stated probability: E2LSH on a tier (e2lsh-on-storage).
//!
//! Vectors that are near each other are likely to be in the same bucket of one of many hash tables; a query reads its bucket of each
//! and compares what it finds. How likely follows from the numbers of tables and of hashes alone, whatever the data.
//!
//! The tables of all radii are one: sorted by keys whose first bits are the buckets of large radii ([`bathyal_kernels::lsh`]). A
//! query reads a run of blocks around its own key from each table, the buckets of small radii first and as much of larger ones as
//! its effort allows, in one round. Codes in memory then say which of the candidates are read.

mod build;
mod calibrate;
mod cost;
mod further;
mod inspect;
mod open;
mod options;
mod promise;
mod runs;
mod search;
mod section;
mod sizes;
mod tables;
mod verify;

pub use options::LshOptions;
pub use promise::{Promise, Tables};
pub use section::LshEntry;

use crate::family::Family;
use crate::query::Counter;

/// The family, for the registry.
pub static FAMILY: Family = Family {
    name: section::NAME,
    about: "locality-sensitive hash tables (E2LSH): near vectors are found with a known probability",
    options: options::DOCS,
    counters: &[
        Counter { name: "table_reads", about: "reads of hash tables" },
        Counter { name: "entries", about: "entries of hash tables that were looked at" },
    ],
    striped: section::STRIPED,
    parse: options::parse,
    read: |manifest| Ok(Box::new(open::StoredLsh::read(manifest)?)),
};
