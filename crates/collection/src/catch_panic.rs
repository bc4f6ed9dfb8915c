//! Turns panics of the Arrow and Parquet libraries into `None`: they panic on some damaged bytes instead of
//! returning an error.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `read`; returns `None` if it panics. State that `read` has touched must not be used after a panic.
pub(crate) fn catch_panic<T>(read: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(read)).ok()
}
