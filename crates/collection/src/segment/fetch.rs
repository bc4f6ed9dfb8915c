//! Reads ranges of an object of a segment.

use crate::error::CollectionError;
use bathyal_index::ranges::{self, Run};
use bathyal_store::{Object, StoreError};
use std::ops::Range;

/// Reads all `wanted` ranges ([`ranges::read_runs`]).
///
/// # Errors
/// [`CollectionError::Damaged`] if the object is too short, [`CollectionError::Store`].
pub(super) fn read_runs(
    object: &dyn Object,
    wanted: impl IntoIterator<Item = Range<u64>>,
    remote: bool,
) -> Result<Vec<Run>, CollectionError> {
    ranges::read_runs(object, wanted, remote).map_err(|error| match error {
        StoreError::Short { path, offset, wanted, len } => CollectionError::damaged(
            path,
            format!("byte {offset}"),
            format!("{wanted} bytes were expected from there, but the file has only {len} bytes"),
        ),
        error => error.into(),
    })
}
