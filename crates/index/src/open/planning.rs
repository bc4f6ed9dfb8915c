//! How memory is divided, by one function: for opening an index, and for saying how much would be enough for what was refused.

use super::change::{self, FoundLog};
use super::numa::Placement;
use super::tier::moves_lines;
use super::{
    Index, OpenOptions, SearchMemory, SearchOptions, SearchResult, TierChoice, going_on, thread_count,
};
use crate::error::IndexError;
use crate::family::{Buffers, Knob, MemorySplit, Origin, Place, Stored};
use crate::format::manifest::Manifest;
use crate::query::{SearchParams, beam_width_on};
use bathyal_gpu::Card;
use bathyal_store::Generation;
use std::sync::Arc;

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
struct Wanted {
    threads: u64,
    /// Bytes of all running queries of a thread.
    queries: u64,
    /// Bytes that the open index has noted since.
    noted: u64,
}

impl Planning {
    pub(super) fn new(
        directory: &dyn Generation,
        (manifest, stored): (&Manifest, &dyn Stored),
        options: &OpenOptions,
        log: Option<&FoundLog>,
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
            logged: log.map(FoundLog::taken_bytes),
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
        let changed = |budget| change::plan(self.logged, budget, placed);
        let (split, lacking) = going_on::plan(budget, self.standby, changed)?;
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
    fn enough(&self, manifest: &Manifest, stored: &dyn Stored, needed: u64, wanted: Option<Wanted>) -> u64 {
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

impl Index {
    /// Bytes that searches of so many threads and queries take, with the index itself.
    pub(super) fn needed_bytes(&self, threads: usize, in_flight: usize, search_list: u32) -> u64 {
        self.split.fixed()
            + self.known_places.bytes()
            + threads as u64 * self.thread_memory(in_flight, search_list as usize)
    }

    /// Bytes that a thread takes with so many queries.
    pub(super) fn thread_memory(&self, in_flight: usize, search_list: usize) -> u64 {
        self.thread_bytes + in_flight as u64 * self.stored.query_bytes(search_list)
    }

    /// Bytes of memory that the open index holds while `threads` threads search with a candidate list of
    /// `search_list`, `in_flight` queries each, or as many as the budget allows.
    pub fn dram_bytes(&self, threads: usize, in_flight: usize, search_list: u32) -> u64 {
        let in_flight =
            self.affordable_in_flight(in_flight, threads, search_list as usize).unwrap_or(in_flight.min(1));
        let changes = self.changed_bytes() - self.split.changes;
        let changes = changes + self.trouble.taken_bytes().saturating_sub(self.split.standby);
        let queries = in_flight as u64 * self.stored.query_bytes(search_list as usize);
        let thread = self.used_buffers(in_flight as u64) + queries;
        self.needed_bytes(0, 0, 0) + threads as u64 * thread + changes
    }

    /// The same of a search that has been: its threads had no more queries in flight than it had.
    pub fn dram_bytes_of(&self, found: &SearchResult, options: &SearchOptions) -> u64 {
        let each = found.latencies_ns.len().div_ceil(found.threads.max(1));
        let in_flight = options.in_flight.unwrap_or_else(|| self.default_in_flight(found.search_list));
        self.dram_bytes(found.threads, in_flight.min(each.max(1)), found.search_list)
    }

    /// Bytes of the read buffers of a thread that are used while it has so many queries in flight. The others are reserved, and
    /// take no memory: with vectors of 65,536 dimensions that is nearly all of them.
    pub(super) fn used_buffers(&self, in_flight: u64) -> u64 {
        let frame = self.engine.frame_bytes as u64;
        // A query asks for no part of the file twice at once; a graph's, for as many records as its beam is wide.
        let file = self.manifest.paged_file().bytes.next_multiple_of(frame) + frame;
        let a_query = match self.stored.knobs().contains(&Knob::BeamWidth) {
            true => file.min(u64::from(beam_width_on(&self.profile)) * frame),
            false => file,
        };
        self.thread_bytes.min(Buffers::held_bytes(in_flight * a_query, self.traffic.is_some()))
    }

    /// A budget that is enough for `threads` threads with one query each whose list is `search_list` long.
    pub(super) fn enough_for(&self, threads: usize, search_list: usize) -> u64 {
        self.enough_with(threads, self.stored.query_bytes(search_list))
    }

    /// A budget that is enough for `threads` threads whose queries take so many bytes each.
    pub(super) fn enough_with(&self, threads: usize, queries: u64) -> u64 {
        let wanted = Wanted { threads: threads as u64, queries, noted: self.known_places.bytes() };
        let needed = self.needed_bytes(threads, 0, 0) + threads as u64 * queries;
        self.planning.enough(&self.manifest, &*self.stored, needed, Some(wanted))
    }

    /// The threads for a search of `queries` queries where a caller `asked` for so many: where all cores are meant (0), as many of them
    /// as the budget has room for.
    pub(super) fn suited_threads(&self, asked: usize, queries: usize, params: &SearchParams) -> usize {
        let threads = thread_count(asked).clamp(1, queries.max(1));
        if asked > 0 { threads } else { self.fitting_threads(threads, self.stored.planned_list(params)) }
    }

    /// As many of `threads` as a budget of memory leaves room for with such a list; one at least.
    pub(super) fn fitting_threads(&self, threads: usize, list: usize) -> usize {
        let fits = |threads: &usize| self.affordable_in_flight(1, *threads, list).is_ok();
        (1..=threads).rev().find(fits).unwrap_or(1)
    }

    /// The number of interleaved queries that the memory budget allows, up to `wanted`.
    pub(super) fn affordable_in_flight(
        &self,
        wanted: usize,
        threads: usize,
        search_list: usize,
    ) -> Result<usize, IndexError> {
        let Some(given) = self.split.budget else { return Ok(wanted) };
        let need = |in_flight| self.needed_bytes(threads, in_flight, search_list as u32);
        (1..=wanted).rev().find(|in_flight| need(*in_flight) <= given).ok_or_else(|| IndexError::Memory {
            what: "this search",
            needed: self.enough_for(threads, search_list),
            given,
            advice: "allow at least that much, or use fewer threads or a smaller search_list".into(),
        })
    }
}
