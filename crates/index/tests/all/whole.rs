//! Products of many cases: a share of them is taken each time, all of them in `make soak`.

use bathyal_index::{BuildOptions, FamilyOptions, MOST_CALIBRATION_QUERIES};

/// Takes all cases.
const WHOLE: &str = "BATHYAL_WHOLE";

/// Whether the case `number` of a product is taken: one of `of`. Where `of` shares no divisor with the lengths of what is multiplied,
/// each value of these is taken with several of the others.
pub fn taken(number: usize, of: usize) -> bool {
    is_whole() || number.is_multiple_of(of)
}

/// Whether all cases are taken.
pub fn is_whole() -> bool {
    std::env::var_os(WHOLE).is_some()
}

/// One of two numbers: `all` where all cases are taken, else `share`.
pub fn of_whole<T>(all: T, share: T) -> T {
    if is_whole() { all } else { share }
}

/// Queries of a calibration that is quick.
const FEW_QUERIES: usize = 100;

/// The defaults with the options of a family, and few queries to calibrate by. It is for tests that do not
/// ask how well the efforts of their index were measured.
pub fn quickly(family: impl Into<FamilyOptions>) -> BuildOptions {
    let calibration_queries = of_whole(MOST_CALIBRATION_QUERIES, FEW_QUERIES);
    BuildOptions { calibration_queries, ..BuildOptions::of(family) }
}
