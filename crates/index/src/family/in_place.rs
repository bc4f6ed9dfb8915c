//! Indexes that are changed in place.

use crate::error::IndexError;
use bathyal_vectors::VectorFile;
use std::ops::Range;

/// An index that is changed in place: its memory can be reached by several machines, and each of them may
/// change it at any time.
pub(crate) trait InPlace {
    /// Inserts vectors and returns the range of their ids.
    fn insert(&self, vectors: &VectorFile) -> Result<Range<u32>, IndexError>;

    /// Deletes the vectors of these ids and returns how many existed.
    fn delete(&self, ids: &[u32]) -> Result<u64, IndexError>;

    /// Reads the number of vectors again. Returns true if it has changed.
    fn refresh(&self) -> Result<bool, IndexError>;

    /// Returns the number of vectors and the next id, as last read.
    fn counts(&self) -> (u64, u32);

    /// Returns an upper bound of the number of vectors that holds despite changes by others.
    fn most(&self) -> u64;
}

/// While this value exists, nobody changes the index in place.
pub(crate) trait Paused {}
