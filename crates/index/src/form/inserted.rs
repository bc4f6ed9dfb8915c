//! The form of vectors that are inserted after the build. They stay in memory until the index is compacted.
//!
//! If the index has a smaller stored form, inserted vectors are floats, in the units of the stored vectors:
//! the scale of the index fits the vectors of the build, and inserted ones may be longer.

use super::Form;
use bathyal_kernels::{Element, from_f32, to_f32};

/// An inserted vector, in the element that [`Form::inserted`] returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InsertedRow<'a>(pub(crate) &'a [u8]);

/// A vector of an index: in its files, or inserted after these were written.
#[derive(Debug, Clone, Copy)]
pub(crate) enum IndexRow<'a> {
    /// In the stored form of the index.
    Stored(&'a [u8]),
    Inserted(InsertedRow<'a>),
}

impl Form {
    /// Returns the element of inserted vectors.
    pub(crate) fn inserted(&self) -> Element {
        if self.is_smaller() { Element::F32 } else { self.stored }
    }

    /// Converts a row of the data to an inserted row: in the stored form, or as the floats that the stored
    /// form would be rounded from. Returns false for a row without a direction if the metric needs one.
    pub(crate) fn take_inserted(&self, row: &[u8], out: &mut [u8]) -> bool {
        if !self.is_smaller() {
            return self.take(row, out);
        }
        let mut values = vec![0.0; self.given.components_in(row.len())];
        let sound = self.floats(row, &mut values);
        from_f32(Element::F32, &values, out);
        sound
    }

    /// Converts an inserted row to floats in the units of the data.
    pub(super) fn decode_inserted(&self, inserted: InsertedRow<'_>, out: &mut [f32]) {
        to_f32(Element::F32, inserted.0, out);
        if self.scale != 1.0 {
            let scale = f64::from(self.scale);
            out.iter_mut().for_each(|value| *value = (f64::from(*value) * scale) as f32);
        }
    }
}
