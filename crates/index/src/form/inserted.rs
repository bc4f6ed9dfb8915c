//! The form of vectors that are inserted after the build, and kept in memory until the index is compacted.
//!
//! Of an index that stores something smaller than it is given they are floats, in the units of the stored vectors. The scale of
//! the index fits the vectors that it was built with, and others may be longer.

use super::Form;
use bathyal_kernels::{Element, from_f32, to_f32};

/// An inserted vector, of the element that [`Form::inserted`] names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InsertedRow<'a>(pub(crate) &'a [u8]);

/// A vector of an index: in its files, or inserted since these were written.
#[derive(Debug, Clone, Copy)]
pub(crate) enum IndexRow<'a> {
    /// As the index stores vectors.
    Stored(&'a [u8]),
    Inserted(InsertedRow<'a>),
}

impl Form {
    /// Type of the components of inserted vectors.
    pub(crate) fn inserted(&self) -> Element {
        if self.is_smaller() { Element::F32 } else { self.stored }
    }

    /// Makes a row of the data an inserted one: as it is stored, or the floats that it would be rounded from.
    pub(crate) fn take_inserted(&self, row: &[u8], out: &mut [u8]) -> bool {
        if !self.is_smaller() {
            return self.take(row, out);
        }
        let mut values = vec![0.0; self.given.components_in(row.len())];
        let sound = self.floats(row, &mut values);
        from_f32(Element::F32, &values, out);
        sound
    }

    /// An inserted row in the units of the data.
    pub(super) fn decode_inserted(&self, inserted: InsertedRow<'_>, out: &mut [f32]) {
        to_f32(Element::F32, inserted.0, out);
        if self.scale != 1.0 {
            let scale = f64::from(self.scale);
            out.iter_mut().for_each(|value| *value = (f64::from(*value) * scale) as f32);
        }
    }
}
