//! Warm-up: work that would otherwise delay the first searches.

use super::SearchRequest;
use super::segments::effort_in;
use crate::error::CollectionError;
use crate::state::State;
use bathyal_index::{SearchOptions, WarmReport};
use bathyal_tier::Control;
use std::time::Instant;

impl State {
    /// Opens all segments, and answers queries that are made from them.
    pub(crate) fn warm(
        &self,
        request: &SearchRequest,
        control: Control<'_>,
    ) -> Result<WarmReport, CollectionError> {
        let started = Instant::now();
        let schema = self.schema();
        let fields = match &request.field {
            Some(name) => {
                let field = schema.field(Some(name))?;
                field..field + 1
            }
            None => 0..schema.vectors.len(),
        };
        let mut report = WarmReport { queries: 0, reads: 0, bytes: 0, seconds: 0.0 };
        for field in fields {
            for segment in &self.segments {
                let index = segment.segment.index_for_search(field)?;
                let (k, effort) = (request.k.min(index.len()), effort_in(&index, request.effort));
                let options = SearchOptions { k, effort, threads: request.threads, ..Default::default() };
                let warmed = index.warm(&options, control)?;
                report.queries += warmed.queries;
                report.reads += warmed.reads;
                report.bytes += warmed.bytes;
            }
        }
        Ok(WarmReport { seconds: started.elapsed().as_secs_f64(), ..report })
    }
}
