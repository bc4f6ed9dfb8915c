//! The form of vectors in an index: the element of the data, or f32 stored as f16 or as bytes. All
//! conversions between the two are here; all other code sees vectors of the stored element.
//!
//! A stored component is `given / scale`, rounded. For l2 and ip one scale serves all vectors, so that their
//! order is kept. For bytes, the scale maps the largest value to 127. Halves keep the values unless these are
//! so large or so small that a half would lose digits; the scale is then a power of two. Under cosine only
//! directions count: halves store vectors of length 1, and each vector of bytes has a scale of its own, which
//! is not stored.
//!
//! Vectors that an index or a segment has stored before are rounded again in a compaction or a merge. The new
//! scale of bytes is the old one times a power of two. Such scales are nested: rounding again at the same
//! scale changes nothing, and each coarser scale at least doubles the step. So all roundings together move a
//! value by less than one step of the last scale.

pub(crate) mod inserted;
pub(crate) mod loss;
pub(crate) mod source;

use crate::error::IndexError;
use crate::extent::has_direction;
use crate::format::manifest::Manifest;
use crate::format::stored::{Loss, StoreAs, StoredBefore, StoredEntry};
use bathyal_kernels::{Element, Metric, from_f32, normalize_f32, to_f32};
use half::f16;
use inserted::{IndexRow, InsertedRow};

/// The largest component of a vector of bytes.
const LARGEST_BYTE: f32 = 127.0;
/// Halves keep data unscaled if its largest value is in this range, which is as far from overflow as from the
/// values that lose digits.
const HALVES: std::ops::RangeInclusive<f32> = 0.015_625..=LARGEST_HALF;
/// Largest value of scaled data of halves. Data with larger values is scaled down no further than to this, so
/// that vectors beside a much longer one keep their digits.
const LARGEST_HALF: f32 = 4096.0;
/// Factor by which values may exceed those of the first segment of a collection before the scale doubles.
const HEADROOM: f32 = 1.125;
/// Share of a step by which the largest value may exceed the scale's range: the error of the division, which
/// rounding removes.
const SLACK: f32 = 1e-4;

/// The conversion of vectors to the form of an index, and of queries to match.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Form {
    given: Element,
    stored: Element,
    metric: Metric,
    /// The value of a stored component of 1; 1 under cosine, where it may differ from vector to vector.
    scale: f32,
}

impl Form {
    /// Returns the form that keeps the element of the data. Vectors of f32 under cosine are normalised.
    pub(crate) fn as_given(element: Element, metric: Metric) -> Form {
        Form { given: element, stored: element, metric, scale: 1.0 }
    }

    /// Returns the smaller form of vectors of f32 whose largest value is `largest`. `before` describes
    /// earlier roundings if the vectors were stored before, or will be stored again.
    pub(crate) fn smaller(
        store_as: StoreAs,
        metric: Metric,
        largest: f32,
        before: Option<&StoredBefore>,
    ) -> Form {
        let before = before.map(|before| before.scale);
        let scale = match (store_as, before) {
            _ if metric == Metric::Cosine || largest <= 0.0 => 1.0,
            (StoreAs::I8, None) => largest / LARGEST_BYTE,
            (StoreAs::I8, Some(None)) => HEADROOM * largest / LARGEST_BYTE,
            (StoreAs::I8, Some(Some(before))) => {
                let steps = f64::from(largest / LARGEST_BYTE) / f64::from(before);
                let doublings = (steps / f64::from(1.0 + SLACK)).log2().ceil();
                (f64::from(before) * doublings.exp2()) as f32
            }
            (StoreAs::F16, _) if HALVES.contains(&largest) => 1.0,
            (StoreAs::F16, _) if largest > LARGEST_HALF => (largest / LARGEST_HALF).log2().ceil().exp2(),
            (StoreAs::F16, _) => largest.log2().floor().exp2(),
        };
        Form { given: Element::F32, stored: store_as.element(), metric, scale }
    }

    /// Returns the largest value that is stored with an error of at most half a step; `None` if there is no
    /// limit.
    pub(crate) fn largest(&self) -> Option<f32> {
        match self.stored {
            _ if !self.is_smaller() || self.metric == Metric::Cosine => None,
            Element::F16 => Some(f16::MAX.to_f32() * self.scale),
            _ => Some(LARGEST_BYTE * (1.0 + SLACK) * self.scale),
        }
    }

    /// Returns the form of an index.
    ///
    /// # Errors
    /// A sentence if the manifest names an unknown element or metric.
    pub(crate) fn from_manifest(manifest: &Manifest) -> Result<Form, String> {
        let (given, stored) = (manifest.element()?, manifest.stored_element()?);
        Ok(Form { given, stored, metric: manifest.metric()?, scale: manifest.stored_scale() })
    }

    /// Returns the form's entry in the manifest; `None` if vectors keep the element of the data.
    pub(crate) fn entry(&self, loss: Option<Loss>) -> Option<StoredEntry> {
        let store_as = match self.stored {
            Element::F16 => StoreAs::F16,
            _ => StoreAs::I8,
        };
        self.is_smaller().then_some(StoredEntry { element: store_as, scale: self.scale, loss })
    }

    /// Returns true if the stored element is smaller than the element of the data.
    pub(crate) fn is_smaller(&self) -> bool {
        self.given != self.stored
    }

    /// Returns the element of the data.
    pub(crate) fn given(&self) -> Element {
        self.given
    }

    /// Returns the stored element.
    pub(crate) fn stored(&self) -> Element {
        self.stored
    }

    /// Returns the metric.
    pub(crate) fn metric(&self) -> Metric {
        self.metric
    }

    /// Returns the factor from a distance in units of the stored vectors to one in units of the data: l2 is
    /// squared, and ip is a product of two vectors.
    pub(crate) fn distance_scale(&self) -> f32 {
        self.scale * self.scale
    }

    /// Converts a row of the data to a stored row. Returns false for a row without a direction if the metric
    /// needs one.
    pub(crate) fn take(&self, row: &[u8], out: &mut [u8]) -> bool {
        if !self.is_smaller() {
            out.copy_from_slice(row);
            return self.metric != Metric::Cosine || normalize(self.stored, out);
        }
        let mut values = vec![0.0; self.given.components_in(row.len())];
        let sound = self.floats(row, &mut values);
        if self.stored == Element::F16 {
            from_f32(Element::F16, &values, out);
            return sound;
        }
        if self.metric == Metric::Cosine {
            let largest = values.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
            let scale = if largest > 0.0 { LARGEST_BYTE / largest } else { 0.0 };
            values.iter_mut().for_each(|value| *value *= scale);
        }
        for (slot, value) in out.iter_mut().zip(&values) {
            // Rounding may slightly exceed the largest value.
            *slot = value.round_ties_even().clamp(-LARGEST_BYTE, LARGEST_BYTE) as i8 as u8;
        }
        sound
    }

    /// Converts a row of the data, or a query, to floats in the units of the stored vectors: normalised under
    /// cosine. Returns false for a row without a direction if the metric needs one.
    pub(crate) fn floats(&self, row: &[u8], out: &mut [f32]) -> bool {
        to_f32(self.given, row, out);
        if self.scale != 1.0 {
            let scale = f64::from(self.scale);
            out.iter_mut().for_each(|value| *value = (f64::from(*value) / scale) as f32);
        }
        self.metric != Metric::Cosine || normalize_f32(out)
    }

    /// Converts a query to the element that stored vectors are compared with: their own, or f32 if they have
    /// a smaller form. `floats` is the result of [`Form::floats`] for this query.
    pub(crate) fn query(&self, query: &[u8], floats: &[f32], out: &mut Vec<u8>) {
        out.clear();
        if self.is_smaller() {
            floats.iter().for_each(|value| out.extend_from_slice(&value.to_le_bytes()));
            return;
        }
        out.extend_from_slice(query);
        if self.metric == Metric::Cosine {
            normalize(self.stored, out);
        }
    }

    /// Converts a row to the element of the data: unchanged, or with the precision that a smaller form has
    /// left. `values` and `given` are scratch memory.
    pub(crate) fn given_row<'a>(
        &self,
        row: IndexRow<'a>,
        values: &mut Vec<f32>,
        given: &'a mut Vec<u8>,
    ) -> &'a [u8] {
        let (IndexRow::Stored(bytes) | IndexRow::Inserted(InsertedRow(bytes))) = row;
        if !self.is_smaller() {
            return bytes;
        }
        match row {
            IndexRow::Stored(stored) => {
                values.resize(self.stored.components_in(stored.len()), 0.0);
                self.decode(stored, values);
            }
            IndexRow::Inserted(inserted) => {
                values.resize(self.inserted().components_in(bytes.len()), 0.0);
                self.decode_inserted(inserted, values);
            }
        }
        given.clear();
        given.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        given
    }

    /// Converts a stored row to the floats that a search compares: in the units of the data, and of length 1
    /// under cosine.
    pub(crate) fn decode(&self, stored: &[u8], out: &mut [f32]) {
        to_f32(self.stored, stored, out);
        if self.metric == Metric::Cosine {
            normalize_f32(out);
        } else {
            out.iter_mut().for_each(|value| *value *= self.scale);
        }
    }
}

/// Refuses a stored form that data of `element` cannot have.
///
/// # Errors
/// [`IndexError::Parameter`].
pub(crate) fn check(store_as: Option<StoreAs>, element: Element) -> Result<(), IndexError> {
    match store_as {
        Some(store_as) if element != Element::F32 => Err(IndexError::Parameter(format!(
            "store_as is {store_as}, but the data is {element}: only vectors of f32 can be stored in a \
             smaller form; leave the option out"
        ))),
        _ => Ok(()),
    }
}

/// Normalises a row in place if its element can represent the result. Returns false for a vector of zeros.
fn normalize(element: Element, row: &mut [u8]) -> bool {
    match element {
        Element::F32 => {
            let mut values = vec![0.0; element.components_in(row.len())];
            to_f32(element, row, &mut values);
            let sound = normalize_f32(&mut values);
            from_f32(element, &values, row);
            sound
        }
        Element::F16 | Element::Bf16 | Element::U8 | Element::I8 | Element::B1 => has_direction(element, row),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    fn round_trip(form: Form, values: &[f32]) -> Vec<f32> {
        let mut stored = vec![0; form.stored().row_bytes(values.len())];
        assert!(form.take(&bytes(values), &mut stored));
        let mut back = vec![0.0; values.len()];
        form.decode(&stored, &mut back);
        back
    }

    #[test]
    fn any_magnitude_is_stored_within_half_a_step() {
        for magnitude in [1e15_f32, 7e4, 1.0, 3e-6, 1e-12] {
            let values = [magnitude, -magnitude / 3.0, magnitude / 50.0, 0.0];
            for metric in [Metric::L2, Metric::InnerProduct] {
                let halves = round_trip(Form::smaller(StoreAs::F16, metric, magnitude, None), &values);
                let of_bytes = round_trip(Form::smaller(StoreAs::I8, metric, magnitude, None), &values);
                for ((value, half), byte) in values.iter().zip(halves).zip(of_bytes) {
                    assert!((value - half).abs() <= value.abs() / 2048.0, "{value}: {half}");
                    assert!((value - byte).abs() <= magnitude / 253.9, "{value}: {byte}");
                }
            }
        }
    }

    #[test]
    fn vectors_of_any_length_are_stored_alike_under_cosine() {
        for store_as in [StoreAs::F16, StoreAs::I8] {
            let form = Form::smaller(store_as, Metric::Cosine, 1e30, None);
            assert_eq!(form.scale, 1.0);
            let long = round_trip(form, &[3e19, -4e19, 0.0]);
            assert_eq!(long, round_trip(form, &[3e-30, -4e-30, 0.0]));
            assert!((long[0] - 0.6).abs() < 0.003 && (long[1] + 0.8).abs() < 0.003, "{long:?}");
            assert!(
                !form.take(&bytes(&[0.0, -0.0]), &mut vec![0; form.stored().row_bytes(2)]),
                "no direction"
            );
        }
    }

    #[test]
    fn scales_of_vectors_that_are_stored_again_are_nested() {
        let scale = |largest: f32, before: Option<f32>| {
            let before = StoredBefore { scale: before, component_error: 0.0 };
            Form::smaller(StoreAs::I8, Metric::L2, largest, Some(&before)).scale
        };
        assert_eq!(scale(127.0, None), 1.125);
        for first in [1.0, 0.3, 7e-15, 3e12] {
            // Values that were stored at a scale decode to at most 127 times the scale, and keep it.
            assert_eq!(scale(LARGEST_BYTE * first, Some(first)), first);
            assert_eq!(scale(LARGEST_BYTE * first * 1.01, Some(first)), 2.0 * first);
            assert_eq!(scale(LARGEST_BYTE * first * 0.4, Some(first)), first / 2.0);
            assert_eq!(scale(LARGEST_BYTE * first * 1000.0, Some(first)), 1024.0 * first);
        }
    }

    #[test]
    fn only_f32_has_a_smaller_form() {
        assert!(check(Some(StoreAs::I8), Element::F32).is_ok() && check(None, Element::U8).is_ok());
        let refused = check(Some(StoreAs::F16), Element::I8).expect_err("bytes").to_string();
        assert!(refused.contains("store_as is f16") && refused.contains("the data is i8"), "{refused}");
        assert_eq!("i8".parse(), Ok(StoreAs::I8));
        assert!("f32".parse::<StoreAs>().expect_err("as given").contains("f16 or i8"));
    }
}
