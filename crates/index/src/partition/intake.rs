//! The conversion of vectors of the data to vectors of an index, and to the points by which they are placed.

use crate::form::Form;
use bathyal_kernels::{Element, Metric, normalize_f32, to_f32};

/// The conversion of each vector.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Intake {
    pub(crate) form: Form,
    /// The element of the vectors in the index.
    pub(crate) element: Element,
    pub(crate) metric: Metric,
    pub(crate) dim: usize,
    /// Inner product only: the largest squared length of a vector. The extra coordinate of each point makes
    /// up the difference to it.
    pub(crate) longest: Option<f32>,
}

impl Intake {
    /// Returns the number of coordinates of a point.
    pub(crate) fn point_dim(&self) -> usize {
        self.dim + usize::from(self.longest.is_some())
    }

    /// Converts a row of the data to a stored row. Returns false for a vector without a direction if the
    /// metric needs one.
    pub(crate) fn take(&self, row: &[u8], out: &mut [u8]) -> bool {
        self.form.take(row, out)
    }

    /// Converts a stored row to the `dim` floats that codes are trained on.
    pub(crate) fn floats(&self, stored: &[u8], out: &mut [f32]) {
        to_f32(self.element, stored, out);
        if self.metric == Metric::Cosine && !self.element.has_unit_vectors() {
            normalize_f32(out);
        }
    }

    /// Converts a stored row to the [`Intake::point_dim`] coordinates of the point by which it is placed.
    pub(crate) fn point(&self, stored: &[u8], out: &mut [f32]) {
        self.floats(stored, &mut out[..self.dim]);
        if let Some(longest) = self.longest {
            let length: f32 = out[..self.dim].iter().map(|v| v * v).sum();
            out[self.dim] = (longest - length).max(0.0).sqrt();
        }
    }
}
