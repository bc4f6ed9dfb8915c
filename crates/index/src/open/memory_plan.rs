//! The plan of an open index's memory: the division of a budget, and the threads and queries that the rest
//! of it is enough for. It is computed from options and from numbers that the index states, without opening
//! it. The same functions divide a budget when an index is opened, and find the smallest sufficient one for
//! an error.

use super::numa::Placement;
use super::options::OpenOptions;
use super::pool::SearchMemory;
use super::stored::StoredIndex;
use super::tier::{TierChoice, moves_lines};
use crate::error::IndexError;
use crate::family::{MemorySplit, Origin, Place};
use bathyal_gpu::Card;
use bathyal_store::Generation;
use bathyal_tier::numa::Nodes;
use std::sync::Arc;

/// This fraction (1/16) of a memory budget is kept for inserts, if the budget is large enough.
pub(super) const INSERTS_SHARE: u64 = 16;
/// The most budgets that are tried to find a sufficient one. Each is the memory that the division of the last
/// one needs. At most three quarters of an increase go to caches and codes, so that a hundred steps cover any
/// factor.
const MOST_TRIES: usize = 200;

/// The facts on which the division of a budget depends, besides the index itself.
pub(super) struct Planning {
    place: Place,
    /// True if the index is in a remote store.
    far: bool,
    /// True if the tier reads as little as a cache line at once, as the memory of another machine does.
    lines: bool,
    card: Option<Arc<dyn Card>>,
    /// True if the vectors are in the card's memory, too.
    whole: bool,
    /// Bytes of the memory for searches that several indexes share, if there is any.
    searches: Option<u64>,
    placement: Placement,
    /// Bytes reserved for a processor that replaces its card.
    standby: Option<u64>,
    /// Bytes of changes and of their log; `None` if the index does not take changes.
    logged: Option<u64>,
    /// The longest candidate list of the searches, as far as it is known.
    planned_list: usize,
    /// True if searches may begin before all codes have arrived from a remote store.
    may_arrive: bool,
    /// True if searches read pages in memory where they are, without a copy.
    in_place: bool,
}

/// The memory of a search, besides that of the open index.
#[derive(Debug, Clone, Copy)]
pub(super) struct SearchNeeds {
    pub(super) threads: usize,
    /// Bytes of a running query.
    pub(super) query_bytes: u64,
    /// Bytes of the positions that the open index has found since.
    pub(super) noted: u64,
}

impl Planning {
    /// Collects the facts about the index in `directory`. `logged` is the memory of its changes and of their
    /// log; `None` if it does not take changes.
    pub(super) fn new(
        directory: &dyn Generation,
        stored: &StoredIndex,
        options: &OpenOptions,
        logged: Option<u64>,
    ) -> Result<Planning, IndexError> {
        let far = directory.traffic().is_some();
        let lines = !far && moves_lines(directory, stored.manifest(), options)?;
        let searches = options.search_memory.as_ref().filter(|_| options.memory_bytes.is_some());
        let place = options.tier.place();
        let goes_on = options.processor_goes_on && options.card.is_some();
        let standby = || MemorySplit::standby_bytes(stored.manifest(), stored.family(), place);
        Ok(Planning {
            place,
            far,
            lines,
            card: options.card.clone(),
            whole: options.tier == TierChoice::Card,
            searches: searches.map(SearchMemory::bytes),
            placement: Placement::of(options)?,
            standby: goes_on.then(standby),
            logged,
            planned_list: options.planned_list,
            may_arrive: far && !options.wait,
            in_place: options.wrap.is_none() && options.card.is_none(),
        })
    }

    /// Returns the NUMA placement of threads and copies.
    pub(super) fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Returns true if the index is in a remote store.
    pub(super) fn is_far(&self) -> bool {
        self.far
    }

    /// Returns the bytes reserved for a processor that replaces its card.
    pub(super) fn standby_bytes(&self) -> u64 {
        self.standby.unwrap_or(0)
    }

    /// Divides `budget`.
    fn divide(&self, stored: &StoredIndex, budget: Option<u64>) -> Result<Division, IndexError> {
        let Planning { place, far, lines, ref card, whole, searches, planned_list: list, .. } = *self;
        let from = Origin { place, far, lines, card: card.as_deref(), whole, searches, list };
        let (manifest, family) = (stored.manifest(), stored.family());
        self.divide_by(budget, family.keeps(), |budget| MemorySplit::plan(manifest, family, from, budget))
    }

    /// Divides `budget` by `plan`, the division among the parts of one copy of an index without changes.
    /// `keeps`: the family caches its own reads within the page cache's budget.
    fn divide_by(
        &self,
        budget: Option<u64>,
        keeps: bool,
        plan: impl Fn(Option<u64>) -> Result<MemorySplit, IndexError>,
    ) -> Result<Division, IndexError> {
        let with_copies = |budget| self.placement.plan(budget, keeps, &plan);
        let with_changes = |budget| plan_with_changes(self.logged, budget, with_copies);
        let (split, lacking) = plan_with_standby(budget, self.standby, with_changes)?;
        let split = self.searches.map_or(split, |bytes| split.sharing(bytes));
        Ok(Division { split, lacking })
    }

    /// Divides `budget`. If it is too small, the error names a sufficient one.
    pub(super) fn split(&self, stored: &StoredIndex, budget: Option<u64>) -> Result<Division, IndexError> {
        self.divide(stored, budget).map_err(|error| match error {
            IndexError::Memory { what, needed, given, advice } => {
                let needed = match self.searches {
                    // Shared search memory is not part of the budget, and does not change its division.
                    Some(_) => needed,
                    None => least_budget(given, |budget| match self.divide(stored, Some(budget)) {
                        Err(IndexError::Memory { needed, .. }) => needed,
                        _ => budget,
                    }),
                };
                IndexError::Memory { what, needed, given, advice }
            }
            other => other,
        })
    }

    /// Returns the bytes of the buffers of a search thread if the memory is divided as `split`.
    fn thread_bytes(&self, stored: &StoredIndex, split: &MemorySplit) -> u64 {
        let buffers = stored.family().buffers();
        let with_codes = split.codes_on_tier > 0;
        match self.in_place && (self.place != Place::File || split.pages > 0) {
            true => buffers.bytes(with_codes) as u64,
            false => buffers.thread_bytes(with_codes || self.may_arrive, self.far),
        }
    }
}

/// The division of a budget.
#[derive(Debug, Clone, Copy)]
pub(super) struct Division {
    pub(super) split: MemorySplit,
    /// The budget that would also be enough for the standby, if the given one is too small for it.
    pub(super) lacking: Option<u64>,
}

/// Returns the least budget above `refused` that needs no more than itself. `needs` returns the need of an
/// index whose memory is divided by a budget. It may rise with the budget, since caches and codes take a part
/// of more, and fall where all pages fit. Only budgets between `refused` and the returned one may be smaller
/// and sufficient as well.
fn least_budget(refused: u64, needs: impl Fn(u64) -> u64) -> u64 {
    let is_enough = |budget: u64| needs(budget) <= budget;
    let mut enough = refused.saturating_add(1);
    for _ in 0..MOST_TRIES {
        let needed = needs(enough);
        if needed <= enough {
            break;
        }
        enough = needed;
    }
    // The need of a budget that was tried may be less at a smaller one.
    let mut too_little = refused;
    while enough - too_little > 1 {
        let middle = too_little + (enough - too_little) / 2;
        if is_enough(middle) { enough = middle } else { too_little = middle }
    }
    enough
}

/// The memory of an open index, and what is left of it for searches.
pub(super) struct SearchPlan {
    split: MemorySplit,
    /// The facts from which `split` was computed.
    planning: Planning,
    /// Bytes of the buffers of a search thread, and of responses that are being received into them.
    thread_bytes: u64,
}

impl SearchPlan {
    pub(super) fn new(split: MemorySplit, planning: Planning, thread_bytes: u64) -> SearchPlan {
        SearchPlan { split, planning, thread_bytes }
    }

    /// Returns the division of the memory.
    pub(super) fn split(&self) -> &MemorySplit {
        &self.split
    }

    /// Returns the budget, if there is one.
    pub(super) fn budget(&self) -> Option<u64> {
        self.split.budget
    }

    /// Returns the bytes of the buffers of a search thread.
    pub(super) fn thread_bytes(&self) -> u64 {
        self.thread_bytes
    }

    /// Returns true if several indexes share the memory for searches.
    pub(super) fn shares_search_memory(&self) -> bool {
        self.planning.searches.is_some()
    }

    /// Returns the NUMA nodes over which the search threads are spread, if there are several.
    pub(super) fn nodes(&self) -> Option<&Arc<Nodes>> {
        self.planning.placement.nodes.as_ref()
    }

    /// Returns the memory for searches if there is a budget: `shared`, or the rest of the budget.
    pub(super) fn search_memory(&self, shared: Option<&SearchMemory>) -> Option<SearchMemory> {
        let own = self.split.budget.map(|budget| budget.saturating_sub(self.split.fixed()));
        own.map(|bytes| shared.cloned().unwrap_or_else(|| SearchMemory::new(bytes)))
    }

    /// Returns the bytes of the open index while each thread of `search` interleaves `in_flight` queries.
    pub(super) fn needed_bytes(&self, search: &SearchNeeds, in_flight: usize) -> u64 {
        let thread = self.thread_bytes + in_flight as u64 * search.query_bytes;
        self.split.fixed() + search.noted + search.threads as u64 * thread
    }

    /// Returns how many queries each thread may interleave, up to `wanted`; `None` if the budget is too
    /// small for one.
    pub(super) fn in_flight(&self, wanted: usize, search: &SearchNeeds) -> Option<usize> {
        let Some(given) = self.split.budget else { return Some(wanted) };
        (1..=wanted).rev().find(|in_flight| self.needed_bytes(search, *in_flight) <= given)
    }

    /// Returns as many of the threads of `search` as the budget allows, with one query each, and at least
    /// one.
    pub(super) fn threads(&self, search: &SearchNeeds) -> usize {
        let fits =
            |threads: &usize| self.in_flight(1, &SearchNeeds { threads: *threads, ..*search }).is_some();
        (1..=search.threads).rev().find(fits).unwrap_or(1)
    }

    /// Returns true if the memory for searches has space for `bytes` more: at most one part in `share` of
    /// what is left beside `kept`.
    pub(super) fn can_spare(&self, bytes: u64, kept: u64, share: u64) -> bool {
        self.split.budget.is_none() || bytes <= self.split.searches.saturating_sub(kept) / share
    }

    /// Returns the least budget of the same index, above the given one, that has space for `search` with one
    /// query on each thread.
    pub(super) fn enough(&self, stored: &StoredIndex, search: &SearchNeeds) -> u64 {
        let (planning, now) = (&self.planning, &self.split);
        if self.shares_search_memory() {
            // Shared search memory is not part of the budget, and does not change its division.
            return self.needed_bytes(search, 1);
        }
        least_budget(now.budget.unwrap_or(0), |budget| match planning.divide(stored, Some(budget)) {
            Ok(Division { split, .. }) => {
                let as_now = |bytes: fn(&MemorySplit) -> u64| (bytes(&split) > 0) == (bytes(now) > 0);
                let thread = match as_now(|split| split.pages) && as_now(|split| split.codes_on_tier) {
                    true => self.thread_bytes,
                    false => planning.thread_bytes(stored, &split),
                };
                split.fixed() + search.noted + search.threads as u64 * (thread + search.query_bytes)
            }
            Err(IndexError::Memory { needed, .. }) => needed.max(budget + 1),
            Err(_) => budget,
        })
    }

    /// Returns the error for a budget that is too small for `search` with one query on each thread.
    pub(super) fn too_small(&self, stored: &StoredIndex, search: &SearchNeeds, advice: &str) -> IndexError {
        IndexError::Memory {
            what: "this search",
            needed: self.enough(stored, search),
            given: self.split.budget.unwrap_or(0),
            advice: advice.into(),
        }
    }
}

/// Divides a budget by `plan`, and reserves `standby` bytes in it for the standby. If the budget is too small
/// for these, they are left out, and the budget that would be enough is returned as the second value.
fn plan_with_standby(
    given: Option<u64>,
    standby: Option<u64>,
    plan: impl Fn(Option<u64>) -> Result<MemorySplit, IndexError>,
) -> Result<(MemorySplit, Option<u64>), IndexError> {
    let (Some(budget), Some(standby)) = (given, standby) else { return Ok((plan(given)?, None)) };
    match plan(Some(budget.saturating_sub(standby))) {
        Ok(split) => Ok((MemorySplit { budget: given, standby, ..split }, None)),
        Err(IndexError::Memory { needed, .. }) => Ok((plan(given)?, Some(needed + standby))),
        Err(error) => Err(error),
    }
}

/// Divides the budget `given` by `plan`, with `logged` bytes for the changes so far, or with the share for
/// inserts if that is larger and leaves enough for the index.
fn plan_with_changes(
    logged: Option<u64>,
    given: Option<u64>,
    plan: impl Fn(Option<u64>) -> Result<MemorySplit, IndexError>,
) -> Result<MemorySplit, IndexError> {
    let (Some(taken), Some(given)) = (logged, given) else { return plan(given) };
    let share = given / INSERTS_SHARE;
    let plan_for = |changes: u64| {
        let split = plan(Some(given.saturating_sub(changes)))?;
        Ok(MemorySplit { budget: Some(given), changes, ..split })
    };
    let with_share = if share > taken { plan_for(share).ok() } else { None };
    with_share.map_or_else(|| plan_for(taken), Ok).map_err(|error| match error {
        IndexError::Memory { what, needed, advice, .. } => {
            IndexError::Memory { what, needed: needed + taken, given, advice }
        }
        other => other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planning(standby: Option<u64>, logged: Option<u64>) -> Planning {
        Planning {
            place: Place::File,
            far: false,
            lines: false,
            card: None,
            whole: false,
            searches: None,
            placement: Placement::none(),
            standby,
            logged,
            planned_list: 0,
            may_arrive: false,
            in_place: true,
        }
    }

    /// Plans codes of half the budget, which must be at least 100 bytes.
    fn half(budget: Option<u64>) -> Result<MemorySplit, IndexError> {
        match budget {
            Some(given) if given < 100 => {
                Err(IndexError::Memory { what: "a test", needed: 100, given, advice: String::new() })
            }
            _ => Ok(MemorySplit { budget, codes: budget.unwrap_or(1000) / 2, ..MemorySplit::default() }),
        }
    }

    fn divided(
        standby: Option<u64>,
        logged: Option<u64>,
        budget: Option<u64>,
    ) -> Result<Division, IndexError> {
        planning(standby, logged).divide_by(budget, false, half)
    }

    #[test]
    fn changes_take_their_log_or_their_share() {
        let of = |logged, budget| divided(None, logged, Some(budget)).unwrap().split;
        assert_eq!((of(None, 1600).codes, of(None, 1600).changes), (800, 0));
        let share = of(Some(20), 1600);
        assert_eq!((share.codes, share.changes, share.budget), (750, 100, Some(1600)));
        // The log is larger than the share.
        assert_eq!(of(Some(300), 1600).changes, 300);
        // The share would leave too little for the index.
        assert_eq!(of(Some(1), 102).changes, 1);
        assert!(matches!(divided(None, Some(20), Some(110)), Err(IndexError::Memory { needed: 120, .. })));
    }

    #[test]
    fn the_standby_is_left_out_if_the_budget_is_too_small_for_it() {
        let of = |budget| divided(Some(400), None, budget).unwrap();
        let with = of(Some(1000));
        assert_eq!((with.split.codes, with.split.standby, with.lacking), (300, 400, None));
        let without = of(Some(450));
        assert_eq!((without.split.codes, without.split.standby, without.lacking), (225, 0, Some(500)));
        let unlimited = of(None);
        assert_eq!((unlimited.split.standby, unlimited.lacking), (0, None));
    }

    #[test]
    fn shared_search_memory_is_added_to_the_budget() {
        let shared = Planning { searches: Some(64), ..planning(None, None) };
        let split = shared.divide_by(Some(1000), false, half).unwrap().split;
        assert_eq!((split.codes, split.searches, split.budget), (500, 64, Some(564)));
    }

    #[test]
    fn the_least_budget_holds_what_it_needs() {
        // A quarter of a budget goes to codes: 300 bytes and a quarter of 399 are 399.
        assert_eq!(least_budget(10, |budget| 300 + budget / 4), 399);
        assert_eq!(least_budget(398, |budget| 300 + budget / 4), 399);
        assert_eq!(least_budget(10, |_| 200), 200);
        // From 500 bytes on, a part of the need is gone.
        assert_eq!(least_budget(10, |budget| if budget < 500 { 600 } else { 100 }), 500);
        // A need that rises with the budget for ever ends, too.
        assert!(least_budget(1, |budget| budget + 1) > MOST_TRIES as u64);
    }

    #[test]
    fn the_rest_of_the_budget_limits_threads_and_queries() {
        let split = MemorySplit { budget: Some(1000), codes: 500, searches: 500, ..MemorySplit::default() };
        let plan = SearchPlan::new(split, planning(None, None), 100);
        let search = |threads, query_bytes| SearchNeeds { threads, query_bytes, noted: 0 };
        assert_eq!(plan.needed_bytes(&search(2, 50), 3), 500 + 2 * (100 + 150));
        assert_eq!(plan.in_flight(8, &search(2, 50)), Some(3));
        assert_eq!(plan.in_flight(2, &search(2, 50)), Some(2));
        assert_eq!(plan.in_flight(8, &search(5, 50)), None);
        assert_eq!(plan.in_flight(8, &SearchNeeds { noted: 100, ..search(2, 50) }), Some(2));
        assert_eq!((plan.threads(&search(8, 50)), plan.threads(&search(2, 50))), (3, 2));
        assert_eq!(plan.threads(&search(8, 5000)), 1, "a search has at least one thread");
        assert!(plan.can_spare(100, 100, 4) && !plan.can_spare(101, 100, 4) && !plan.can_spare(1, 600, 4));
        assert_eq!(plan.search_memory(None).map(|memory| memory.bytes()), Some(500));
        assert_eq!(plan.search_memory(Some(&SearchMemory::new(7))).map(|memory| memory.bytes()), Some(7));
    }

    #[test]
    fn without_a_budget_everything_fits() {
        let plan = SearchPlan::new(MemorySplit::default(), planning(None, None), 100);
        let search = SearchNeeds { threads: 64, query_bytes: u64::MAX / 1000, noted: 0 };
        assert_eq!((plan.in_flight(500, &search), plan.threads(&search)), (Some(500), 64));
        assert!(plan.can_spare(u64::MAX, 0, 4) && plan.search_memory(None).is_none());
    }
}
