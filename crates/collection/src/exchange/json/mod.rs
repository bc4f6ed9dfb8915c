//! Rows as JSON, an object on each line.

mod lines;
mod read;
mod write;

pub(super) use lines::LineReader;
pub use write::{JsonRow, JsonRows};

/// The names of numbers that JSON has none for.
const NOT_FINITE: [(&str, f64); 3] =
    [("NaN", f64::NAN), ("Infinity", f64::INFINITY), ("-Infinity", f64::NEG_INFINITY)];
