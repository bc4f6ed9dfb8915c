//! The paper's schemes and ours: the parameters of a search.

use std::num::NonZeroU32;

use super::arguments::DhnswArguments;
use super::node::Residency;

/// Candidate lists in a sub-index (efSearch), from 1 to 48 as in figure 6.
const SEARCH_LISTS: [u32; 8] = [1, 2, 4, 8, 16, 24, 32, 48];
/// Candidate lists of a quick run, which only shows that everything works.
const QUICK_LISTS: [u32; 2] = [10, 48];
/// Compared sizes of batches, doorbells and caches.
const BATCHES: [usize; 7] = [1, 10, 100, 500, 1000, 2000, 5000];
const DOORBELLS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
const SHARES: [f64; 5] = [0.02, 0.05, 0.1, 0.2, 0.4];
/// Queries per batch in the comparison of caches. A large batch reads each sub-index once, whatever the cache
/// holds, and a small budget has no memory for many queries.
const CACHE_BATCH: usize = 64;

/// A scheme of reading sub-indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    /// One query at a time, one round trip per sub-index, almost no cache.
    Naive,
    /// Batches that read each sub-index once, with one round trip each.
    WithoutDoorbell,
    /// As before, with several reads per round trip.
    DHnsw,
    /// As before, with all ready reads in one round trip.
    Ours,
}

/// All schemes, in the order of tables and plots.
pub(super) const SCHEMES: [Scheme; 4] = [Scheme::Naive, Scheme::WithoutDoorbell, Scheme::DHnsw, Scheme::Ours];

impl Scheme {
    /// Returns the name in records.
    pub(super) fn name(self) -> &'static str {
        match self {
            Scheme::Naive => "naive",
            Scheme::WithoutDoorbell => "without-doorbell",
            Scheme::DHnsw => "d-hnsw",
            Scheme::Ours => "ours",
        }
    }

    /// Returns the scheme with the parameters of the command line.
    pub(super) fn setup(self, arguments: &DhnswArguments) -> Setup {
        let doorbell = match self {
            Scheme::Naive | Scheme::WithoutDoorbell => Some(NonZeroU32::MIN),
            Scheme::DHnsw => Some(arguments.doorbell),
            Scheme::Ours => None,
        };
        let (batch, residency) = match self {
            Scheme::Naive => (1, Residency::Least),
            _ => (arguments.batch_queries(), Residency::Share(arguments.cache_share)),
        };
        Setup { scheme: self, batch, doorbell, residency }
    }
}

/// A scheme with its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Setup {
    pub scheme: Scheme,
    /// Queries in flight.
    pub batch: usize,
    pub doorbell: Option<NonZeroU32>,
    pub residency: Residency,
}

/// Returns the candidate lists of figure 6 that are no shorter than `k`: shorter ones are refused.
pub(super) fn search_lists(k: u32, quick: bool) -> Vec<u32> {
    let all: &[u32] = if quick { &QUICK_LISTS } else { &SEARCH_LISTS };
    let mut lists: Vec<u32> =
        std::iter::once(k).chain(all.iter().copied()).filter(|list| *list >= k).collect();
    lists.sort_unstable();
    lists.dedup();
    lists
}

/// Returns the variations of the d-HNSW scheme, each with the name of the varied parameter.
pub(super) fn variations(arguments: &DhnswArguments, queries: usize) -> Vec<(&'static str, Setup)> {
    let usual = Scheme::DHnsw.setup(arguments);
    let step = if arguments.quick { 2 } else { 1 };
    let batches = BATCHES.into_iter().filter(|batch| *batch <= queries).step_by(step);
    let mut all: Vec<(&'static str, Setup)> =
        batches.map(|batch| ("batch", Setup { batch, ..usual })).collect();
    let doorbells = DOORBELLS.into_iter().step_by(step).filter_map(NonZeroU32::new);
    all.extend(doorbells.map(|reads| ("doorbell", Setup { doorbell: Some(reads), ..usual })));
    let batch = usual.batch.min(CACHE_BATCH);
    let residencies = SHARES.into_iter().step_by(step).map(Residency::Share);
    all.extend(residencies.map(|residency| ("cache", Setup { residency, batch, ..usual })));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_lists_are_at_least_k() {
        assert_eq!(search_lists(1, false), SEARCH_LISTS);
        assert_eq!(search_lists(10, false), [10, 16, 24, 32, 48]);
        assert_eq!((search_lists(1, true), search_lists(100, false)), (vec![1, 10, 48], vec![100]));
    }
}
