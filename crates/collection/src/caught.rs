//! The libraries of Arrow and Parquet panic at some damaged bytes, where they should say what is wrong.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// What `read` reads by such a library; `None` if it panics. What a panic leaves behind is not to be used again.
pub(crate) fn caught<T>(read: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(read)).ok()
}
