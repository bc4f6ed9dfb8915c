//! How vectors of the data become vectors of an index: normalised for cosine, and as the points that they are placed by.

use crate::form::Form;
use bathyal_kernels::{Element, Metric, normalize_f32, to_f32};

/// What is done to each vector.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Intake {
    pub(crate) form: Form,
    /// Of the vectors in the index.
    pub(crate) element: Element,
    pub(crate) metric: Metric,
    pub(crate) dim: usize,
    /// Inner product only: the longest squared length, to which the extra coordinate of each point reaches up.
    pub(crate) longest: Option<f32>,
}

impl Intake {
    /// Coordinates of a point.
    pub(crate) fn point_dim(&self) -> usize {
        self.dim + usize::from(self.longest.is_some())
    }

    /// Makes a row of the data what goes into the index; false for a vector that has no direction and needs one.
    pub(crate) fn take(&self, row: &[u8], out: &mut [u8]) -> bool {
        self.form.take(row, out)
    }

    /// A taken row as floats, as codes are trained on: `dim` values.
    pub(crate) fn floats(&self, taken: &[u8], out: &mut [f32]) {
        to_f32(self.element, taken, out);
        if self.metric == Metric::Cosine && !self.element.has_unit_vectors() {
            normalize_f32(out);
        }
    }

    /// A taken row as the point that it is placed by: [`Intake::point_dim`] values.
    pub(crate) fn point(&self, taken: &[u8], out: &mut [f32]) {
        self.floats(taken, &mut out[..self.dim]);
        if let Some(longest) = self.longest {
            let length: f32 = out[..self.dim].iter().map(|v| v * v).sum();
            out[self.dim] = (longest - length).max(0.0).sqrt();
        }
    }
}
