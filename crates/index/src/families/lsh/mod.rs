//! Locality-sensitive hashing with a stated probability: E2LSH on a tier (e2lsh-on-storage).
//!
//! Near vectors are likely to share a bucket in at least one of many hash tables. A query reads its bucket of
//! each table and compares the vectors that it finds there. The probability of success follows from the
//! numbers of tables and of hashes, and from the distance of the nearest vector: there is a finest and a
//! widest bucket. It does not depend on anything else about the data.
//!
//! One set of tables serves all radii: its entries are sorted by keys whose first bits are the buckets of
//! large radii ([`bathyal_kernels::lsh`]). A query reads a run of blocks around its own key from each table,
//! in one round: the buckets of small radii first, then as much of larger buckets as its effort allows. Codes
//! in memory then select the candidates that are read.

mod build;
mod calibrate;
mod cost;
mod inspect;
#[cfg(test)]
mod kept;
mod multi_probe;
mod open;
mod options;
mod promise;
mod promised;
mod runs;
mod search;
mod section;
mod sizes;
mod stated;
mod tables;
mod verify;

pub use options::LshOptions;
pub use promise::{Promise, Promises, Radii, Tables};
pub use section::LshEntry;

use crate::family::{Capability, Family};
use crate::query::Counter;

/// The family, for the registry.
pub static FAMILY: Family = Family {
    name: section::NAME,
    about: "locality-sensitive hash tables (E2LSH): near vectors are found with a known probability",
    options: options::DOCS,
    counters: &[
        Counter { name: "table_reads", about: "reads of hash tables" },
        Counter { name: "entries", about: "entries of hash tables that were scored" },
    ],
    capabilities: &[Capability::Changes, Capability::Ratio],
    striped: section::STRIPED,
    defaults: || LshOptions::default().into(),
    parse: options::parse,
    read: |manifest| Ok(Box::new(open::StoredLsh::read(manifest)?)),
};
