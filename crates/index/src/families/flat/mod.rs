//! Exact search: all vectors of an index are read in one pass and compared.
//!
//! For small sets, for exact answers, and beside the other families to see what they miss. With codes in memory a search
//! compares the vectors whose codes are nearest first, and stops as soon as the codes say that no other vector can be among
//! the nearest (the error bound of RaBitQ, SIGMOD'24, section 4): few reads, and answers that are no longer certain.

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
    striped: section::STRIPED,
    parse: options::parse,
    read: |manifest| Ok(Box::new(open::StoredFlat::read(manifest)?)),
};
