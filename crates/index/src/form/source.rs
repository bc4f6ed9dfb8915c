//! The vectors of a build, as its index will hold them.

use super::Form;
use super::loss::MeasuredLoss;
use crate::format::ids::IdRuns;
use bathyal_kernels::Element;
use bathyal_vectors::VectorFile;

/// Vectors that are given in one form and stored in that of an index: rows are converted as they are read.
#[derive(Debug, Clone)]
pub(crate) struct Source<'a> {
    given: &'a VectorFile,
    form: Form,
    loss: Option<MeasuredLoss>,
    ids: Option<&'a IdRuns>,
}

impl<'a> Source<'a> {
    pub(crate) fn new(given: &'a VectorFile, form: Form, loss: Option<MeasuredLoss>) -> Source<'a> {
        Source { given, form, loss, ids: None }
    }

    /// The same vectors, which have other ids than their places.
    pub(crate) fn with_ids(self, ids: Option<&'a IdRuns>) -> Source<'a> {
        Source { ids, ..self }
    }

    /// The ids of the vectors, where these are not their places.
    pub(crate) fn ids(&self) -> Option<&'a IdRuns> {
        self.ids
    }

    /// The vectors as they were given: what is true is found by them.
    pub(crate) fn given(&self) -> &'a VectorFile {
        self.given
    }

    /// What becomes of them.
    pub(crate) fn form(&self) -> Form {
        self.form
    }

    /// What their form loses, where that was measured.
    pub(crate) fn loss(&self) -> Option<&MeasuredLoss> {
        self.loss.as_ref()
    }

    /// Number of vectors.
    pub(crate) fn count(&self) -> usize {
        self.given.count()
    }

    /// Components of a vector.
    pub(crate) fn dim(&self) -> usize {
        self.given.dim()
    }

    /// Type of the components in the index.
    pub(crate) fn element(&self) -> Element {
        self.form.stored()
    }

    /// Bytes of a vector in the index.
    pub(crate) fn row_bytes(&self) -> usize {
        self.element().row_bytes(self.dim())
    }

    /// Bytes of a vector as it was given.
    pub(crate) fn given_row_bytes(&self) -> usize {
        self.given.row_bytes()
    }
}
