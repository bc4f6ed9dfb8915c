//! Searches of a collection, which are answered in batches.

use crate::batches::{BatchKey, BatchSearch};
use crate::entries::OpenCollection;
use crate::failure::Refusal;
use bathyal_collection::{FoundRows, SearchRequest};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use std::ops::Range;
use std::sync::Arc;

/// Searches of a collection with the same options.
pub(crate) struct CollectionSearch {
    pub(crate) collection: Arc<OpenCollection>,
    pub(crate) request: SearchRequest,
}

impl BatchSearch for CollectionSearch {
    type Answer = FoundRows;

    fn answer(
        &self,
        queries: &VectorFile,
        parts: &[Range<usize>],
        control: Control<'_>,
    ) -> Result<Vec<FoundRows>, Refusal> {
        let found = self.collection.search(queries, &self.request, control)?;
        if parts.len() == 1 {
            return Ok(vec![found]);
        }
        Ok(parts.iter().map(|part| found.of_queries(part.clone(), self.request.effort)).collect())
    }
}

/// Returns the kind of a search.
pub(crate) fn key_of(collection: &Arc<OpenCollection>, request: &SearchRequest) -> BatchKey {
    let SearchRequest { field, k, effort, calibration, filter, columns, vectors, .. } = request;
    let filter = filter.as_ref().map(ToString::to_string);
    let options = format!("{field:?} {k} {effort:?} {calibration:?} {filter:?} {columns:?} {vectors}");
    BatchKey { handle: Arc::as_ptr(collection) as usize, options }
}
