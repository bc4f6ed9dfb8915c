//! How memory is divided, by one function: for opening an index, and for saying how much would be enough for what was refused.

use super::going_on::plan_with_standby;
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

/// The part of a budget of memory that is kept for inserts, where there is as much to spare.
pub(super) const ROOM_SHARE: u64 = 16;
/// Budgets that are tried at most to find one that is enough. Each is what the last one leaves short; three quarters of what a
/// budget grows by go to caches and codes at most, so that a hundred steps cover any factor.
const MOST_TRIES: usize = 200;

/// All that the division of a budget follows from, besides the index itself.
pub(super) struct Planning {
    place: Place,
    far: bool,
    lines: bool,
    card: Option<Arc<dyn Card>>,
    whole: bool,
    searches: Option<u64>,
    placement: Placement,
    /// What is set aside for a processor that goes on without its card.
    pub(super) standby: Option<u64>,
    /// Bytes of changes and of their log, of an index that changes.
    logged: Option<u64>,
}

/// What a search takes besides the index, of which there is a plan already.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    pub(super) threads: u64,
    /// Bytes of all running queries of a thread.
    pub(super) queries: u64,
    /// Bytes that the open index has noted since.
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

    /// Where threads run and copies lie.
    pub(super) fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Divides `budget`; the second is what it lacks for a processor that goes on without its card.
    fn divide(
        &self,
        manifest: &Manifest,
        stored: &dyn Stored,
        budget: Option<u64>,
    ) -> Result<(MemorySplit, Option<u64>), IndexError> {
        let Planning { place, far, lines, ref card, whole, searches, .. } = *self;
        let from = Origin { place, far, lines, card: card.as_deref(), whole, searches };
        let plan = |budget| MemorySplit::plan(manifest, stored, from, budget);
        let placed = |budget| self.placement.plan(budget, stored.keeps(), plan);
        let changed = |budget| with_changes(self.logged, budget, placed);
        let (split, lacking) = plan_with_standby(budget, self.standby, changed)?;
        Ok((searches.map_or(split, |bytes| split.sharing(bytes)), lacking))
    }

    /// Divides `budget`, or says how much would be enough.
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

    /// The least budget from `needed` on that can be divided, and has room for what is `wanted` besides.
    pub(super) fn enough(
        &self,
        manifest: &Manifest,
        stored: &dyn Stored,
        needed: u64,
        wanted: Option<Wanted>,
    ) -> u64 {
        // Shared memory is another number than the budget, and does not change how that is divided.
        if self.searches.is_some() {
            return needed;
        }
        let mut budget = needed;
        for _ in 0..MOST_TRIES {
            let more = match (self.divide(manifest, stored, Some(budget)), wanted) {
                (Ok((split, _)), Some(wanted)) => {
                    let buffers = stored.buffers();
                    let with_codes = split.codes_on_tier > 0 || self.far;
                    let thread = buffers.thread_bytes(with_codes, self.far) + wanted.queries;
                    split.fixed() + wanted.noted + wanted.threads * thread
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

/// Divides the memory `given` to an index by `plan`, with room for what was inserted, of so many bytes with the log, and, where there is some, for what will be.
fn with_changes(
    logged: Option<u64>,
    given: Option<u64>,
    plan: impl Fn(Option<u64>) -> Result<MemorySplit, IndexError>,
) -> Result<MemorySplit, IndexError> {
    let (Some(taken), Some(given)) = (logged, given) else { return plan(given) };
    let room = given / ROOM_SHARE;
    let with = |changes: u64| {
        let split = plan(Some(given.saturating_sub(changes)))?;
        Ok(MemorySplit { budget: Some(given), changes, ..split })
    };
    let roomy = if room > taken { with(room).ok() } else { None };
    roomy.map_or_else(|| with(taken), Ok).map_err(|error| match error {
        IndexError::Memory { what, needed, advice, .. } => {
            IndexError::Memory { what, needed: needed + taken, given, advice }
        }
        other => other,
    })
}
