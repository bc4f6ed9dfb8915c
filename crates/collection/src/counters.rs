//! Counters of the searches of an open collection.

use crate::error::CollectionError;
use crate::search::FoundRows;
use serde::Serialize;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Searches of a collection since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct SearchCounts {
    /// Batches of queries answered.
    pub searches: u64,
    /// Queries answered.
    pub queries: u64,
    /// Batches of queries that failed.
    pub errors: u64,
    /// Reads of segments from the tier.
    pub reads: u64,
    /// Bytes of these reads.
    pub read_bytes: u64,
    /// Distances in segments that were estimated from codes.
    pub code_distances: u64,
    /// Distances in segments that were computed from full vectors.
    pub full_distances: u64,
    /// The sum of the times of all batches in seconds.
    pub search_seconds: f64,
}

/// The counters of the searches of a handle.
#[derive(Debug, Default)]
pub(crate) struct SearchCounters(Mutex<SearchCounts>);

impl SearchCounters {
    fn counts(&self) -> MutexGuard<'_, SearchCounts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a batch of `queries` queries.
    pub(crate) fn count(&self, queries: usize, outcome: &Result<FoundRows, CollectionError>) {
        let mut counts = self.counts();
        let Ok(found) = outcome else {
            counts.errors += 1;
            return;
        };
        counts.searches += 1;
        counts.queries += queries as u64;
        counts.reads += found.totals.reads;
        counts.read_bytes += found.totals.bytes;
        counts.code_distances += found.totals.code_distances;
        counts.full_distances += found.totals.full_distances;
        counts.search_seconds += found.seconds;
    }

    /// Returns the counts until now.
    pub(crate) fn now(&self) -> SearchCounts {
        *self.counts()
    }
}
