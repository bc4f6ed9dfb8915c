//! The queries of a job: their rows, and the rounds of a range search.

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
    /// Returns the bytes of one query.
    pub(in crate::open) fn row_bytes(&self) -> usize {
        self.bytes.len() / self.count.max(1)
    }
}

impl RawQueries {
    /// Copies a range of rows.
    pub(in crate::open) fn from_range(queries: &VectorFile, rows: Range<usize>) -> RawQueries {
        let count = rows.len();
        let mut bytes = Vec::with_capacity(count * queries.row_bytes());
        rows.for_each(|row| bytes.extend_from_slice(queries.row(row)));
        RawQueries { bytes, count }
    }

    /// Copies the rows with these numbers.
    pub(in crate::open) fn from_rows(queries: &VectorFile, rows: &[usize]) -> RawQueries {
        let mut bytes = Vec::with_capacity(rows.len() * queries.row_bytes());
        rows.iter().for_each(|row| bytes.extend_from_slice(queries.row(*row)));
        RawQueries { bytes, count: rows.len() }
    }

    /// Returns one query.
    pub(in crate::open) fn row(&self, row: usize) -> &[u8] {
        &self.bytes[row * self.row_bytes()..][..self.row_bytes()]
    }
}

/// The rounds of a range search.
pub(in crate::open) struct RangePlan {
    pub(in crate::open) radius: f32,
    pub(in crate::open) limit: usize,
    /// For each round, the number of neighbours for which it is calibrated, and its parameters.
    pub(in crate::open) rounds: Vec<(usize, SearchParams)>,
}

impl RangePlan {
    /// Returns the number of neighbours of the last round. A query that finds as many may have more.
    pub(in crate::open) fn most(&self) -> usize {
        self.rounds.last().map_or(0, |(k, _)| *k)
    }

    /// Answers one query. Its neighbours are appended to `within`, which is empty.
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
