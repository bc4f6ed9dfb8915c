//! The share of the cases that a usual test run covers. `BATHYAL_WHOLE` (`make soak`) runs all of them.
//!
//! Many tests run over a product of metrics, elements, layouts and tiers. A usual run takes one case in some.

use bathyal_index::{BuildOptions, FamilyOptions, MOST_CALIBRATION_QUERIES};

/// Environment variable that makes the tests run all cases.
const ALL_CASES: &str = "BATHYAL_WHOLE";

/// Calibration queries of a build that is quick.
const QUICK_CALIBRATION_QUERIES: usize = 100;

/// Returns true if all cases run.
pub fn all_cases_run() -> bool {
    std::env::var_os(ALL_CASES).is_some()
}

/// Returns true if case `number` of a product runs: one case in `stride`, or all cases.
///
/// If `stride` has no common divisor with the numbers of values that are multiplied, each value runs with
/// several values of the other factors.
pub fn case_runs(number: usize, stride: usize) -> bool {
    all_cases_run() || number.is_multiple_of(stride)
}

/// Selects the cases of a loop that run: the first of every `stride` cases, or all cases.
pub struct CaseSelection {
    stride: usize,
    next: usize,
}

impl CaseSelection {
    pub fn one_in(stride: usize) -> CaseSelection {
        CaseSelection { stride, next: 0 }
    }

    /// Counts a case, and returns true if it runs.
    pub fn next_runs(&mut self) -> bool {
        let number = self.next;
        self.next += 1;
        case_runs(number, self.stride)
    }
}

/// Returns `full` if all cases run, and otherwise `quick`.
pub fn full_or_quick<T>(full: T, quick: T) -> T {
    if all_cases_run() { full } else { quick }
}

/// Returns the default options of a build of `family`, with few calibration queries unless all cases run.
///
/// It is for tests that do not check how well the effort for a recall was measured.
pub fn quick_build(family: impl Into<FamilyOptions>) -> BuildOptions {
    let calibration_queries = full_or_quick(MOST_CALIBRATION_QUERIES, QUICK_CALIBRATION_QUERIES);
    BuildOptions { calibration_queries, ..BuildOptions::of(family) }
}
