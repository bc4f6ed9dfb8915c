//! What a job asks: rows of queries, and the rounds of those that want all vectors within a distance.

use crate::error::IndexError;
use crate::family::QueryState;
use crate::query::{QueryStats, SearchParams};
use bathyal_kernels::Neighbor;
use bathyal_tier::Cx;
use bathyal_vectors::VectorFile;
use std::ops::Range;

/// Query rows, one after the other.
pub(crate) struct RawQueries {
    pub(crate) bytes: Vec<u8>,
    pub(crate) count: usize,
}

impl RawQueries {
    /// Bytes of a query.
    pub(in crate::open) fn row_bytes(&self) -> usize {
        self.bytes.len() / self.count.max(1)
    }
}

impl RawQueries {
    /// A copy of some rows, one after the other.
    pub(in crate::open) fn of(queries: &VectorFile, rows: Range<usize>) -> RawQueries {
        let count = rows.len();
        let mut bytes = Vec::with_capacity(count * queries.row_bytes());
        rows.for_each(|row| bytes.extend_from_slice(queries.row(row)));
        RawQueries { bytes, count }
    }

    /// A copy of these rows, one after the other.
    pub(in crate::open) fn some(queries: &VectorFile, rows: &[usize]) -> RawQueries {
        let mut bytes = Vec::with_capacity(rows.len() * queries.row_bytes());
        rows.iter().for_each(|row| bytes.extend_from_slice(queries.row(*row)));
        RawQueries { bytes, count: rows.len() }
    }

    /// One of them.
    pub(in crate::open) fn row(&self, row: usize) -> &[u8] {
        &self.bytes[row * self.row_bytes()..][..self.row_bytes()]
    }
}

/// The rounds of a range query.
pub(in crate::open) struct RangePlan {
    pub(in crate::open) radius: f32,
    pub(in crate::open) limit: usize,
    /// Neighbours that each round is calibrated for, and its effort.
    pub(in crate::open) rounds: Vec<(usize, SearchParams)>,
}

impl RangePlan {
    /// Neighbours that the last round is for: where a query has as many, there may be more.
    pub(in crate::open) fn most(&self) -> usize {
        self.rounds.last().map_or(0, |(k, _)| *k)
    }

    /// Answers one query; what it finds is appended to `within`, which is empty.
    pub(super) async fn search(
        &self,
        cx: Cx,
        query: &[u8],
        state: &mut dyn QueryState,
        within: &mut Vec<Neighbor>,
    ) -> Result<QueryStats, IndexError> {
        let mut cost = QueryStats::default();
        for (k, params) in &self.rounds {
            state.search(cx.clone(), query, *params).await?;
            cost.add(&state.query().stats);
            within.clear();
            state.query_mut().found.drain_sorted(within);
            within.truncate(within.partition_point(|found| found.distance <= self.radius));
            if within.len() < *k {
                break;
            }
        }
        within.truncate(self.limit);
        Ok(cost)
    }
}
