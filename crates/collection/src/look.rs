//! Looking at a collection: samples of its rows, one search in detail, and its calibrations.

use crate::collection::Collection;
use crate::error::CollectionError;
use crate::filter::Filter;
use crate::search::{ExplainedSearch, SearchRequest, SegmentCurves};
use crate::snapshot::{Projection, SampledRows};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;

impl Collection {
    /// Returns up to `count` of the rows that match `filter`, drawn at random, in no particular order. The
    /// same seed draws the same rows of the same content.
    ///
    /// # Errors
    /// As [`Snapshot::count`](crate::Snapshot::count).
    pub fn sample(
        &self,
        filter: Option<&Filter>,
        what: &Projection,
        (count, seed): (usize, u64),
        control: Control<'_>,
    ) -> Result<SampledRows, CollectionError> {
        self.read_current(|now| now.sample(filter, what, (count, seed), control))
    }

    /// Answers the first of `queries` in each segment alone, on the calling thread, and reports times, counts
    /// and memory beside the prediction of the cost model. With a filter, there is no prediction. A search
    /// reads the segments at the same time, and so takes less time than the sum.
    ///
    /// # Errors
    /// As [`Collection::search`].
    pub fn explain(
        &self,
        queries: &VectorFile,
        request: &SearchRequest,
        control: Control<'_>,
    ) -> Result<ExplainedSearch, CollectionError> {
        self.read_current(|now| now.state().explain(queries, request, control))
    }

    /// Returns recall against effort for searches of `k` neighbours in each segment; `field` may be left out
    /// if there is only one.
    ///
    /// # Errors
    /// [`CollectionError::Parameter`] for an unknown field; damage and errors of the store.
    pub fn recall_curves(
        &self,
        field: Option<&str>,
        k: usize,
    ) -> Result<Vec<SegmentCurves>, CollectionError> {
        self.read_current(|now| now.state().recall_curves(field, k))
    }
}
