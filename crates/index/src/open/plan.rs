//! The division of a memory budget. The same function divides it when an index is opened, and finds the
//! smallest sufficient budget for an error.

use super::card_fallback::plan_with_standby;
use super::numa::Placement;
use super::options::OpenOptions;
use super::pool::SearchMemory;
use super::tier::{TierChoice, moves_lines};
use crate::error::IndexError;
use crate::family::{MemorySplit, Origin, Place, Stored};
use crate::format::manifest::Manifest;
use bathyal_gpu::Card;
use bathyal_store::Generation;
use std::sync::Arc;

/// This fraction (1/16) of a memory budget is kept for inserts, if the budget is large enough.
pub(super) const INSERTS_SHARE: u64 = 16;
/// The most budgets that are tried to find a sufficient one. Each is the memory that the division of the last
/// one needs. At most three quarters of an increase go to caches and codes, so that a hundred steps cover any
/// factor.
const MOST_TRIES: usize = 200;

/// The input of the division of a budget, besides the index itself.
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
    pub(super) standby: Option<u64>,
    /// Bytes of changes and of their log; `None` if the index does not take changes.
    logged: Option<u64>,
}

/// The memory of a search, besides that of the open index.
#[derive(Debug, Clone, Copy)]
pub(super) struct SearchNeeds {
    pub(super) threads: u64,
    /// Bytes of all running queries of a thread.
    pub(super) queries: u64,
    /// Bytes of the positions that the open index has found since.
    pub(super) noted: u64,
}

impl Planning {
    pub(super) fn new(
        directory: &dyn Generation,
        (manifest, stored): (&Manifest, &dyn Stored),
        options: &OpenOptions,
        logged: Option<u64>,
    ) -> Result<Planning, IndexError> {
        let far = directory.traffic().is_some();
        let lines = !far && moves_lines(directory, manifest, options)?;
        let searches = options.search_memory.as_ref().filter(|_| options.memory_bytes.is_some());
        let place = options.tier.place();
        let goes_on = options.processor_goes_on && options.card.is_some();
        Ok(Planning {
            place,
            far,
            lines,
            card: options.card.clone(),
            whole: options.tier == TierChoice::Card,
            searches: searches.map(SearchMemory::bytes),
            placement: Placement::of(options)?,
            standby: goes_on.then(|| MemorySplit::standby_bytes(manifest, stored, place)),
            logged,
        })
    }

    /// Returns the NUMA placement of threads and copies.
    pub(super) fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Divides `budget`. If it is too small for the standby, the second value is the budget that would be
    /// enough.
    fn divide(
        &self,
        manifest: &Manifest,
        stored: &dyn Stored,
        budget: Option<u64>,
    ) -> Result<(MemorySplit, Option<u64>), IndexError> {
        let Planning { place, far, lines, ref card, whole, searches, .. } = *self;
        let from = Origin { place, far, lines, card: card.as_deref(), whole, searches };
        let plan = |budget| MemorySplit::plan(manifest, stored, from, budget);
        let with_copies = |budget| self.placement.plan(budget, stored.keeps(), plan);
        let with_changes = |budget| plan_with_changes(self.logged, budget, with_copies);
        let (split, lacking) = plan_with_standby(budget, self.standby, with_changes)?;
        Ok((searches.map_or(split, |bytes| split.sharing(bytes)), lacking))
    }

    /// Divides `budget`. If it is too small, the error names a sufficient one.
    pub(super) fn split(
        &self,
        manifest: &Manifest,
        stored: &dyn Stored,
        budget: Option<u64>,
    ) -> Result<(MemorySplit, Option<u64>), IndexError> {
        self.divide(manifest, stored, budget).map_err(|error| match error {
            IndexError::Memory { what, needed, given, advice } => {
                let needed = self.enough(manifest, stored, needed, None);
                IndexError::Memory { what, needed, given, advice }
            }
            other => other,
        })
    }

    /// Returns the least budget from `needed` on that can be divided, and has space for `search`.
    pub(super) fn enough(
        &self,
        manifest: &Manifest,
        stored: &dyn Stored,
        needed: u64,
        search: Option<SearchNeeds>,
    ) -> u64 {
        // Shared search memory is not part of the budget, and does not change its division.
        if self.searches.is_some() {
            return needed;
        }
        let mut budget = needed;
        for _ in 0..MOST_TRIES {
            let more = match (self.divide(manifest, stored, Some(budget)), search) {
                (Ok((split, _)), Some(search)) => {
                    let buffers = stored.buffers();
                    let with_codes = split.codes_on_tier > 0 || self.far;
                    let thread = buffers.thread_bytes(with_codes, self.far) + search.queries;
                    split.fixed() + search.noted + search.threads * thread
                }
                (Err(IndexError::Memory { needed, .. }), _) => needed.max(budget + 1),
                _ => return budget,
            };
            if more <= budget {
                return budget;
            }
            budget = more;
        }
        budget
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
