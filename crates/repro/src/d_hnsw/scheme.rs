//! The paper's schemes and ours: parameters of one search.

use std::num::NonZeroU32;

use super::arguments::DhnswArguments;
use super::node::Keep;

/// Candidates in a sub-index (efSearch): figure 6 goes from 1 to 48.
const SEARCH_LISTS: [u32; 8] = [1, 2, 4, 8, 16, 24, 32, 48];
/// Of a run that is only to show that everything works.
const QUICK_LISTS: [u32; 2] = [10, 48];
/// Sizes of batches, doorbells and caches that are compared.
const BATCHES: [usize; 7] = [1, 10, 100, 500, 1000, 2000, 5000];
const DOORBELLS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];
const SHARES: [f64; 5] = [0.02, 0.05, 0.1, 0.2, 0.4];
/// Queries of a batch where caches are compared: in a large one a sub-index is read once, whatever is kept, and a budget that
/// keeps little leaves no memory for many queries.
const CACHE_BATCH: usize = 64;

/// How sub-indexes come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    /// A query at a time, a round trip a sub-index, hardly anything kept.
    Naive,
    /// Batches that read each sub-index once, a round trip each.
    WithoutDoorbell,
    /// The same with some reads a round trip.
    DHnsw,
    /// The same with whatever is ready on its way at once.
    Ours,
}

/// The order of tables and plots.
pub(super) const SCHEMES: [Scheme; 4] = [Scheme::Naive, Scheme::WithoutDoorbell, Scheme::DHnsw, Scheme::Ours];

impl Scheme {
    /// Its name in records.
    pub(super) fn name(self) -> &'static str {
        match self {
            Scheme::Naive => "naive",
            Scheme::WithoutDoorbell => "without-doorbell",
            Scheme::DHnsw => "d-hnsw",
            Scheme::Ours => "ours",
        }
    }

    /// As it is asked for.
    pub(super) fn setup(self, arguments: &DhnswArguments) -> Setup {
        let doorbell = match self {
            Scheme::Naive | Scheme::WithoutDoorbell => Some(NonZeroU32::MIN),
            Scheme::DHnsw => Some(arguments.doorbell),
            Scheme::Ours => None,
        };
        let (batch, keep) = match self {
            Scheme::Naive => (1, Keep::Least),
            _ => (arguments.batch_queries(), Keep::Share(arguments.cache_share)),
        };
        Setup { scheme: self, batch, doorbell, keep }
    }
}

/// A scheme with its numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Setup {
    pub scheme: Scheme,
    /// Queries under way at once.
    pub batch: usize,
    pub doorbell: Option<NonZeroU32>,
    pub keep: Keep,
}

/// Efforts of figure 6 for so many neighbours: a list of candidates shorter than the answer is refused.
pub(super) fn search_lists(k: u32, quick: bool) -> Vec<u32> {
    let all: &[u32] = if quick { &QUICK_LISTS } else { &SEARCH_LISTS };
    let mut lists: Vec<u32> =
        std::iter::once(k).chain(all.iter().copied()).filter(|list| *list >= k).collect();
    lists.sort_unstable();
    lists.dedup();
    lists
}

/// What is varied beside the figure, from d-HNSW as it is asked for.
pub(super) fn variations(arguments: &DhnswArguments, queries: usize) -> Vec<(&'static str, Setup)> {
    let usual = Scheme::DHnsw.setup(arguments);
    let step = if arguments.quick { 2 } else { 1 };
    let batches = BATCHES.into_iter().filter(|batch| *batch <= queries).step_by(step);
    let mut all: Vec<(&'static str, Setup)> =
        batches.map(|batch| ("batch", Setup { batch, ..usual })).collect();
    let doorbells = DOORBELLS.into_iter().step_by(step).filter_map(NonZeroU32::new);
    all.extend(doorbells.map(|reads| ("doorbell", Setup { doorbell: Some(reads), ..usual })));
    let batch = usual.batch.min(CACHE_BATCH);
    let keeps = SHARES.into_iter().step_by(step).map(Keep::Share);
    all.extend(keeps.map(|keep| ("cache", Setup { keep, batch, ..usual })));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_hold_what_is_asked_for() {
        assert_eq!(search_lists(1, false), SEARCH_LISTS);
        assert_eq!(search_lists(10, false), [10, 16, 24, 32, 48]);
        assert_eq!((search_lists(1, true), search_lists(100, false)), (vec![1, 10, 48], vec![100]));
    }
}
