//! The state of a running query that the searchers of all families share.

use super::changes::Changes;
use super::set::VectorSet;
use super::within::RowFilter;
use super::{Clock, QueryStats, SearchParams};
use bathyal_kernels::TopK;
use bathyal_tier::Span;
use std::sync::Arc;

/// A query with its neighbours so far and its counters. The next query reuses its memory.
pub(crate) struct Query {
    /// The query in the form that is compared with stored vectors: [`Form::query`](crate::form::Form::query).
    pub(crate) bytes: Vec<u8>,
    /// The query as floats.
    pub(crate) floats: Vec<f32>,
    pub(crate) found: TopK,
    pub(crate) stats: QueryStats,
    pub(crate) clock: Clock,
    /// The changes since the index was built; set before the query begins.
    pub(crate) changes: Option<Arc<Changes>>,
    /// The rows that may be found; `None` for all. Set before the query begins.
    pub(crate) within: Option<RowFilter>,
}

impl Query {
    /// Creates an empty query.
    pub(crate) fn new() -> Query {
        Query {
            bytes: Vec::new(),
            floats: Vec::new(),
            found: TopK::new(0),
            stats: QueryStats::default(),
            clock: Clock::default(),
            changes: None,
            within: None,
        }
    }

    /// Begins with `query`, in the element of the given vectors of `set`.
    pub(crate) fn begin(&mut self, set: &VectorSet, query: &[u8], params: &SearchParams) {
        self.stats = QueryStats::default();
        self.clock = Clock::begin(params.timed);
        self.found.reset(params.k);
        self.floats.resize(set.dim, 0.0);
        set.form.floats(query, &mut self.floats);
        set.form.query(query, &self.floats, &mut self.bytes);
    }

    /// Counts a round of reads; the tier aligns each to `alignment` bytes.
    #[inline]
    pub(crate) fn count_round(&mut self, spans: &[Span], alignment: u32) {
        self.stats.hops += 1;
        self.stats.reads += spans.len() as u32;
        self.stats.bytes += spans.iter().map(|span| span.aligned_len(alignment)).sum::<u64>();
    }

    /// Adds a vector with its exact distance, unless it is deleted or may not be found.
    #[inline]
    pub(crate) fn offer(&mut self, id: u32, distance: f32) {
        self.stats.full_distances += 1;
        // A page also contains vectors that are no candidates.
        if self.changes.as_ref().is_some_and(|changes| changes.is_deleted(id)) {
            return;
        }
        if self.within.as_ref().is_some_and(|among| !among.has(id)) {
            return;
        }
        self.found.push(id, distance);
    }
}
