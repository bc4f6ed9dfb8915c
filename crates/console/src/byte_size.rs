//! Parsing and formatting of sizes in bytes: see [`bathyal_store::size`].

pub use bathyal_store::size::{at_least, at_most, format, parse};
