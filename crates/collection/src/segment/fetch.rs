//! Ranges of an object of a segment.

use crate::error::CollectionError;
use bathyal_index::ranges::{self, Run};
use bathyal_store::{Object, StoreError};
use std::ops::Range;

/// The bytes of all of `wanted` ([`ranges::read_runs`]).
///
/// # Errors
/// [`CollectionError::Damaged`] where the object is too short, [`CollectionError::Store`].
pub(super) fn read_runs(
    object: &dyn Object,
    wanted: impl IntoIterator<Item = Range<u64>>,
    far: bool,
) -> Result<Vec<Run>, CollectionError> {
    ranges::read_runs(object, wanted, far).map_err(|error| match error {
        StoreError::Short { path, offset, wanted, len } => CollectionError::damaged(
            path,
            format!("byte {offset}"),
            format!("{wanted} bytes were expected from there, it has {len} in all"),
        ),
        error => error.into(),
    })
}
