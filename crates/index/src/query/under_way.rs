//! A query that is under way: what searchers of all families keep of it.

use super::changes::Changes;
use super::set::VectorSet;
use super::within::Among;
use super::{Clock, QueryStats, SearchParams};
use bathyal_kernels::TopK;
use bathyal_tier::Span;
use std::sync::Arc;

/// A query, what it has found so far and what it has cost; its memory is reused by the next.
pub(crate) struct Query {
    /// The query as stored vectors are compared with it: [`Form::query`](crate::form::Form::query).
    pub(crate) bytes: Vec<u8>,
    /// The same as floats.
    pub(crate) floats: Vec<f32>,
    pub(crate) found: TopK,
    pub(crate) stats: QueryStats,
    pub(crate) clock: Clock,
    /// What was changed since the index was built; set before it begins.
    pub(crate) changes: Option<Arc<Changes>>,
    /// The rows that may be found, where not all may; set before it begins.
    pub(crate) within: Option<Among>,
}

impl Query {
    /// None yet.
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

    /// Begins with `query`, a vector as the set's were given.
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

    /// Offers a vector whose distance was computed exactly; one that was deleted, or may not be found, is not taken.
    #[inline]
    pub(crate) fn offer(&mut self, id: u32, distance: f32) {
        self.stats.full_distances += 1;
        // A page brings along what nobody asked for.
        if self.changes.as_ref().is_some_and(|changes| changes.is_deleted(id)) {
            return;
        }
        if self.within.as_ref().is_some_and(|among| !among.has(id)) {
            return;
        }
        self.found.push(id, distance);
    }
}
