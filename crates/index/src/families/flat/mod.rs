//! Exact search: all vectors of an index are read in one pass and compared.
//!
//! Flat indexes serve small sets, exact answers, and the measurement of the recall of other families. With
//! codes in memory, a search compares the vectors whose codes are nearest first. It stops as soon as the
//! codes rule out that another vector is among the nearest (the error bound of RaBitQ, SIGMOD'24, section 4).
//! Such a search takes few reads, but its answers are no longer certain.

mod build;
mod calibrate;
mod codes;
mod cost;
mod effort;
mod inspect;
mod open;
mod options;
mod search;
mod section;
mod sizes;

pub use options::FlatOptions;
pub use section::{FlatCodes, FlatEntry};

use crate::family::Family;

/// The family, for the registry.
pub static FAMILY: Family = Family {
    name: section::NAME,
    about: "no index: every query is compared with every vector; exact, for small sets and as a reference",
    options: options::DOCS,
    counters: &[],
    capabilities: &[],
    striped: section::STRIPED,
    defaults: || FlatOptions::default().into(),
    parse: options::parse,
    read: |manifest| Ok(Box::new(open::StoredFlat::read(manifest)?)),
};
