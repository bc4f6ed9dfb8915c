//! The memory of an open index: how much it takes, and how many threads and queries its budget allows.

use super::memory_plan::SearchNeeds;
use super::pool::Passes;
use super::{Effort, Index, OpenOptions, SearchOptions, SearchRequest, SearchResult, thread_count};
use crate::error::IndexError;
use crate::family::{Buffers, Knob, MemorySplit};
use crate::query::pass::PassPart;
use crate::query::{SearchParams, beam_width_on};
use bathyal_object::GAP_BYTES;
use bathyal_store::size::at_least;

/// About the bytes of a connection to a store: its read buffer and its TLS state.
const CONNECTION_BYTES: u64 = 48 << 10;
/// The most bytes of the threads of a pass, if there is no budget.
const PASS_BYTES: u64 = 256 << 20;
/// From so many queries on, a pass takes much longer to compare vectors than to read them.
const ENOUGH_QUERIES: usize = 1024;
/// The fewest vectors for which a further thread takes part in a pass: preparing the queries for it takes
/// longer than comparing fewer.
const LEAST_VECTORS: usize = 1024;
/// The most requests in flight, unless a store option allows more.
const MOST_REQUESTS: u64 = 512;

impl OpenOptions {
    /// Makes a memory budget leave space for a query of a search with these options, too, so that a budget
    /// that is too small for it is refused when the index is opened.
    pub fn for_search(self, search: &SearchOptions) -> OpenOptions {
        let list = if let Effort::SearchList(list) = search.effort { list as usize } else { 0 };
        let probes = search.probes.unwrap_or(0) as usize;
        OpenOptions { planned_list: self.planned_list.max(list).max(probes).max(search.k), ..self }
    }
}

/// The passes of a search whose queries share what is read.
struct PassPlan {
    /// Queries of a pass.
    queries: usize,
    /// Threads of a pass.
    parts: usize,
    /// Bytes of memory of each thread.
    part_bytes: u64,
}

impl Index {
    /// Returns the division of the memory budget.
    pub fn memory_split(&self) -> &MemorySplit {
        self.plan.split()
    }

    /// Returns about the most bytes of memory of a running query with these options, besides the buffers of
    /// its thread.
    ///
    /// # Errors
    /// [`IndexError::Parameter`] for options that do not fit the index.
    pub fn query_bytes(&self, options: &SearchOptions) -> Result<u64, IndexError> {
        let request = SearchRequest::new(options)?;
        let (params, _) = self.params(&request, self.changes().as_ref())?;
        let family = self.stored.family();
        Ok(family.query_bytes(family.planned_list(&params)))
    }

    /// Returns about the most bytes of memory that a search on `threads` threads takes for a remote store, in
    /// addition to any budget: for connections, and for bytes between the requested ranges. 0 for a local
    /// index.
    pub fn connection_bytes(&self, threads: usize) -> u64 {
        let requests = threads as u64 * u64::from(self.loaded.engine().depth);
        if self.traffic.is_some() { requests.min(MOST_REQUESTS) * (CONNECTION_BYTES + GAP_BYTES) } else { 0 }
    }

    /// Returns the bytes of all read buffers of a search thread.
    pub fn buffer_bytes(&self) -> u64 {
        self.plan.thread_bytes()
    }

    /// Returns the bytes of memory of the open index while `threads` threads search with a candidate list of
    /// `search_list`, and `in_flight` queries each or as many as the budget allows.
    pub fn dram_bytes(&self, threads: usize, in_flight: usize, search_list: u32) -> u64 {
        self.searching_bytes(in_flight, &self.needs(threads, search_list as usize), u64::MAX)
    }

    /// Returns [`Index::dram_bytes`], if a query reads at most `read_bytes` bytes.
    fn searching_bytes(&self, in_flight: usize, search: &SearchNeeds, read_bytes: u64) -> u64 {
        let in_flight = self.plan.in_flight(in_flight, search).unwrap_or(in_flight.min(1));
        let split = self.plan.split();
        let changes = self.changed_bytes() - split.changes;
        let standby = self.trouble.taken_bytes().saturating_sub(split.standby);
        let buffers = self.used_buffers(in_flight as u64, read_bytes);
        let thread = buffers + in_flight as u64 * search.query_bytes;
        split.fixed() + search.noted + search.threads as u64 * thread + changes + standby
    }

    /// Returns the bytes of memory of the open index during a finished search.
    pub fn dram_bytes_of(&self, found: &SearchResult, options: &SearchOptions) -> u64 {
        // A thread has no more queries in flight than its share of the batch.
        let count = found.latencies_ns.len();
        let share = count.div_ceil(found.threads.max(1));
        let in_flight = options.in_flight.unwrap_or_else(|| self.default_in_flight(found.search_list));
        let search = self.needs(found.threads, found.search_list as usize);
        let read_bytes = found.totals.most_buffered;
        let params = |request: SearchRequest| self.params(&request, self.changes().as_ref());
        let params = SearchRequest::new(options).and_then(params);
        let concurrency = (found.threads, options.in_flight);
        let passes = params.ok().and_then(|(params, _)| self.plan_passes(&params, count, concurrency));
        if let Some(PassPlan { parts, part_bytes, .. }) = passes {
            let search = SearchNeeds { threads: parts, query_bytes: part_bytes, ..search };
            return self.searching_bytes(1, &search, read_bytes);
        }
        self.searching_bytes(in_flight.min(share.max(1)), &search, read_bytes)
    }

    /// Returns the passes of a search of `count` queries that share what is read, on up to `threads` threads,
    /// and the bytes of each thread. Returns nothing if a query does not compare all vectors, or if the
    /// memory budget has no space for two at once. A pass has as many queries as the budget allows, and no
    /// more than `in_flight` for each thread if that is given.
    pub(super) fn passes(
        &self,
        params: &SearchParams,
        count: usize,
        concurrency: (usize, Option<usize>),
    ) -> Option<(Passes, u64)> {
        let PassPlan { queries, parts, part_bytes } = self.plan_passes(params, count, concurrency)?;
        Some((Passes::new(count, queries, parts), part_bytes))
    }

    fn plan_passes(
        &self,
        params: &SearchParams,
        count: usize,
        (threads, in_flight): (usize, Option<usize>),
    ) -> Option<PassPlan> {
        let set = (count > 1).then(|| self.loaded.opened().passes(params))??.set();
        let most = in_flight.map_or(count, |in_flight| in_flight.saturating_mul(threads)).min(count);
        let threads = threads.min(set.vectors as usize / LEAST_VECTORS).max(1);
        let bytes = |queries: usize, parts: usize| PassPart::bytes(set, params.k, queries, parts);
        let fits = |queries: usize, parts: usize| match self.plan.budget() {
            None => parts as u64 * bytes(queries, parts) <= PASS_BYTES,
            Some(budget) => {
                let (query_bytes, noted) = (bytes(queries, parts), self.known_places.bytes());
                self.plan.needed_bytes(&SearchNeeds { threads: parts, query_bytes, noted }, 1) <= budget
            }
        };
        let fitting = |parts: usize| {
            let (mut fitting, mut above) = (0, most + 1);
            while above - fitting > 1 {
                let middle = fitting + (above - fitting) / 2;
                if fits(middle, parts) { fitting = middle } else { above = middle }
            }
            fitting
        };
        let enough = |parts: &usize| fits(most.min(ENOUGH_QUERIES), *parts);
        let parts = (1..=threads).rev().find(enough).unwrap_or(1);
        let fitting = fitting(parts);
        if fitting < 2 {
            return None;
        }
        let queries = count.div_ceil(count.div_ceil(fitting));
        Some(PassPlan { queries, parts, part_bytes: bytes(queries, parts) })
    }

    /// Returns the bytes of memory for changes since the build.
    pub(super) fn changed_bytes(&self) -> u64 {
        let now = self.changing.as_ref().map_or(0, |changing| changing.now().bytes());
        now.max(self.plan.split().changes)
    }

    /// Returns the bytes of a thread's read buffers that are used while it has `in_flight` queries, each of
    /// which reads at most `read_bytes`. The others are reserved and take no memory: with
    /// vectors of 65,536 dimensions, nearly all of them.
    pub(super) fn used_buffers(&self, in_flight: u64, read_bytes: u64) -> u64 {
        let frame = self.loaded.engine().frame_bytes as u64;
        // A query reads no part of the file twice at once, and in a graph at most as many records as its beam
        // is wide.
        let file = self.stored.manifest().paged_file().bytes.next_multiple_of(frame) + frame;
        let a_query = match self.stored.family().knobs().contains(&Knob::BeamWidth) {
            true => file.min(u64::from(beam_width_on(self.loaded.profile())) * frame),
            false => file,
        };
        let a_query = a_query.min(read_bytes);
        self.plan.thread_bytes().min(Buffers::held_bytes(in_flight * a_query, self.traffic.is_some()))
    }

    /// Returns the memory of a search on `threads` threads with a candidate list of `list`.
    fn needs(&self, threads: usize, list: usize) -> SearchNeeds {
        let query_bytes = self.stored.family().query_bytes(list);
        SearchNeeds { threads, query_bytes, noted: self.known_places.bytes() }
    }

    /// Returns the threads for a search of `queries` queries if a caller `asked` for so many (0 is all
    /// cores): as many of them as the budget allows.
    pub(super) fn suited_threads(&self, asked: usize, queries: usize, params: &SearchParams) -> usize {
        let threads = thread_count(asked).clamp(1, queries.max(1));
        self.fitting_threads(threads, self.stored.family().planned_list(params))
    }

    /// Returns a note if a search of `queries` queries gets fewer than the `asked` threads, with the budget
    /// that is enough for all of them.
    pub(super) fn fewer_threads(
        &self,
        asked: usize,
        queries: usize,
        params: &SearchParams,
    ) -> Option<String> {
        let (wanted, list) = (asked.min(queries), self.stored.family().planned_list(params));
        let fitting = self.fitting_threads(wanted, list);
        if wanted <= fitting || self.plan.shares_search_memory() {
            return None;
        }
        let enough = self.plan.enough(&self.stored, &self.needs(wanted, list));
        Some(format!(
            "the memory budget has space for {fitting} of {wanted} search threads; a budget of {enough} \
             bytes ({}) is enough for all",
            at_least(enough)
        ))
    }

    /// Returns as many of `threads` as the memory budget allows with a candidate list of `list`, and at least
    /// one.
    pub(super) fn fitting_threads(&self, threads: usize, list: usize) -> usize {
        if self.plan.budget().is_none() {
            return threads.max(1);
        }
        self.plan.threads(&self.needs(threads, list))
    }

    /// Returns true if the memory budget allows one query on each of `threads`, with a candidate list of
    /// `list`.
    pub(super) fn affords(&self, threads: usize, list: usize) -> bool {
        self.plan.budget().is_none() || self.plan.in_flight(1, &self.needs(threads, list)).is_some()
    }

    /// Returns the number of interleaved queries that the memory budget allows, up to `wanted`.
    ///
    /// # Errors
    /// [`IndexError::Memory`] if it does not allow one.
    pub(super) fn affordable_in_flight(
        &self,
        wanted: usize,
        threads: usize,
        list: usize,
    ) -> Result<usize, IndexError> {
        if self.plan.budget().is_none() {
            return Ok(wanted);
        }
        let search = self.needs(threads, list);
        self.plan.in_flight(wanted, &search).ok_or_else(|| {
            let advice = "allow at least that much, or use a smaller search_list";
            self.plan.too_small(&self.stored, &search, advice)
        })
    }
}
