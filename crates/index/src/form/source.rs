//! The vectors of a build, in the form in which its index stores them.

use super::Form;
use super::loss::MeasuredLoss;
use crate::format::ids::IdRuns;
use bathyal_kernels::Element;
use bathyal_vectors::VectorFile;

/// Vectors in the element of the data, which are converted to the stored form as they are read.
#[derive(Debug, Clone)]
pub(crate) struct SourceVectors<'a> {
    given: &'a VectorFile,
    form: Form,
    loss: Option<MeasuredLoss>,
    ids: Option<&'a IdRuns>,
}

impl<'a> SourceVectors<'a> {
    pub(crate) fn new(given: &'a VectorFile, form: Form, loss: Option<MeasuredLoss>) -> SourceVectors<'a> {
        SourceVectors { given, form, loss, ids: None }
    }

    /// Sets the ids of the vectors, if they differ from the places.
    pub(crate) fn with_ids(self, ids: Option<&'a IdRuns>) -> SourceVectors<'a> {
        SourceVectors { ids, ..self }
    }

    /// Returns the ids of the vectors, if they differ from the places.
    pub(crate) fn ids(&self) -> Option<&'a IdRuns> {
        self.ids
    }

    /// Returns the vectors of the data, which ground truth is computed from.
    pub(crate) fn given(&self) -> &'a VectorFile {
        self.given
    }

    /// Returns the form in which the vectors are stored.
    pub(crate) fn form(&self) -> Form {
        self.form
    }

    /// Returns the loss of the stored form, if it was measured.
    pub(crate) fn loss(&self) -> Option<&MeasuredLoss> {
        self.loss.as_ref()
    }

    /// Returns the number of vectors.
    pub(crate) fn count(&self) -> usize {
        self.given.count()
    }

    /// Returns the number of components of a vector.
    pub(crate) fn dim(&self) -> usize {
        self.given.dim()
    }

    /// Returns the element of the stored vectors.
    pub(crate) fn element(&self) -> Element {
        self.form.stored()
    }

    /// Returns the bytes of a stored vector.
    pub(crate) fn row_bytes(&self) -> usize {
        self.element().row_bytes(self.dim())
    }

    /// Returns the bytes of a vector of the data.
    pub(crate) fn given_row_bytes(&self) -> usize {
        self.given.row_bytes()
    }
}
