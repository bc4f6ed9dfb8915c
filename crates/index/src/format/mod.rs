//! The files of an index: the manifest, and the layouts of pages, records, lists and tables.
//!
//! Every field is specified in `docs/format/`.

pub(crate) mod appender;
pub mod changes;
pub mod csr;
pub mod groups;
pub mod identity;
pub mod ids;
mod json;
pub mod links;
pub(crate) mod loading;
pub mod local;
pub mod manifest;
pub mod offsets;
pub mod packed;
pub mod packing;
pub mod pages;
pub mod places;
pub mod positions;
pub mod postings;
pub mod runs;
pub(crate) mod seal;
pub mod stored;

pub mod striped;
pub mod tables;
mod version1;
pub(crate) mod walk;
