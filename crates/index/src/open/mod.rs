//! An open index: what users hold. Opening checks everything that stays in memory; searching runs on worker
//! threads, each with an engine of its own.

mod blocks;
mod caller;
mod explain;
mod in_flight;
mod inspect;
mod many;
mod pool;
mod range;
mod searching;
mod stats;
mod tier;
mod verify;
mod warm;

pub use blocks::DEFAULT_BLOCK_QUERIES;
pub use explain::{Explanation, MemoryPart, PhaseTime, Predicted};
pub use inspect::{InspectReport, inspect, inspect_in};
pub use many::{ManyResult, Place, search_many};
pub use range::{RangeOptions, RangeResult};
pub use searching::Searching;
pub use stats::{CacheStats, IndexStats, LatencyBar};
pub use tier::TierChoice;
pub use verify::{verify, verify_in};
pub use warm::WarmReport;

use crate::cost::processor::Processor;
use crate::error::IndexError;
use crate::extent;
use crate::families;
use crate::family::{Buffers, Knob, Loading, MemorySplit, Opened, Stored};
use crate::format::manifest::{MANIFEST_NAME, Manifest};
use crate::query::{
    self, Counter, DEFAULT_BEAM_WIDTH, ENGINE_DEPTH, OwnCosts, QueryStats, SearchMode, SearchParams,
    SearchTotals,
};
use bathyal_kernels::{Element, Metric};
use bathyal_store::local::LocalStore;
use bathyal_store::{Generation, StoreError};
use bathyal_tier::backend::file::Method;
use bathyal_tier::layer::cache::{CacheCounters, CacheTier};
use bathyal_tier::{Control, EngineOptions, Tier, TierError, TierProfile};
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::{Progress, Silent};
use caller::{Spare, Waiting};
use pool::{Answers, Counters, Job, RawQueries, Tenant, cores, process};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use tier::{Pages, open_tier};

/// Widest beam; an SSD serves no more at once.
pub const MAX_BEAM_WIDTH: u32 = 128;
/// Largest candidate list.
pub const MAX_SEARCH_LIST: u32 = 1 << 20;

/// How to open an index.
#[derive(Clone, Default)]
pub struct OpenOptions {
    /// Where pages of vectors and links are read from.
    pub tier: TierChoice,
    /// Which system interface reads files.
    pub method: Method,
    /// Whether to read through the page cache. Off by default: the index then takes no memory but its own.
    pub page_cache: bool,
    /// Memory that the open index may take, in bytes. `None` means no limit.
    pub memory_bytes: Option<u64>,
    /// What was measured of the device that pages are read from, by a probe: efforts, gaps between reads and queries in flight
    /// follow it. Its numbers take the place of those that the tier knows of itself. `None` means no more than these.
    pub profile: Option<TierProfile>,
    /// What the processor takes for the parts of a search; `None` measures it at the first need and keeps that in the user's
    /// cache folder (`$XDG_CACHE_HOME/bathyal`, `~/.cache/bathyal`), unless the environment variable `BATHYAL_PROCESSOR` says
    /// `reference` ([`Processor::REFERENCE`]) or `measured` (measured and not kept). The effort for a recall may depend on
    /// it, the recall does not.
    pub processor: Option<Processor>,
    /// A layer or backend to put in place of the tier that was opened (tracing, delays, simulation).
    pub wrap: Option<WrapTier>,
}

/// Replaces a tier by another one over the same bytes. See [`OpenOptions::wrap`].
pub type WrapTier = Arc<dyn Fn(Arc<dyn Tier>) -> Result<Arc<dyn Tier>, TierError> + Send + Sync>;

/// How hard to search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Effort {
    /// As hard as this recall@k takes, by the index's calibration.
    Recall(f32),
    /// With a candidate list of this size (L in DiskANN).
    SearchList(u32),
}

/// How to search. What a family has no use for is refused, not ignored.
#[derive(Debug, Clone, Copy)]
pub struct SearchOptions {
    /// Neighbours wanted.
    pub k: usize,
    /// How hard to search.
    pub effort: Effort,
    /// Groups scanned by a cluster index, or posting lists at most; `None` chooses by the calibration.
    pub probes: Option<u32>,
    /// Posting lists more than `1 + prune` times as far as the nearest are left out, and none at 0 (SPANN, section
    /// 3.3); `None` chooses by the calibration.
    pub prune: Option<f32>,
    /// Reads of one hop (W in DiskANN), of a graph; `None` is [`DEFAULT_BEAM_WIDTH`].
    pub beam_width: Option<u32>,
    /// Threads; 0 means all cores.
    pub threads: usize,
    /// Hop by hop, or as reads arrive; `None` is hop by hop.
    pub mode: Option<SearchMode>,
    /// Queries interleaved on each thread; `None` suits the tier.
    pub in_flight: Option<usize>,
}

impl Default for SearchOptions {
    fn default() -> Self {
        SearchOptions {
            k: 10,
            effort: Effort::Recall(0.95),
            probes: None,
            prune: None,
            beam_width: None,
            threads: 0,
            mode: None,
            in_flight: None,
        }
    }
}

/// The answers to a batch of queries.
#[derive(Debug, Clone)]
pub struct SearchResult {
    /// Neighbours a query: what was asked for, or all that the index holds.
    pub k: usize,
    /// `queries x k`, nearest first.
    pub ids: Vec<u32>,
    /// `queries x k`: squared L2, negative inner product, or 1 - cosine.
    pub distances: Vec<f32>,
    /// Nanoseconds each query took from its start to its answer.
    pub latencies_ns: Vec<u64>,
    /// What each query cost.
    pub per_query: Vec<QueryStats>,
    /// What each query cost by counters that only the index's family has.
    pub own: OwnCosts,
    /// What all cost together.
    pub totals: SearchTotals,
    /// Seconds from the first query's start to the last one's end.
    pub seconds: f64,
    /// The candidate list that was used.
    pub search_list: u32,
    /// Threads used.
    pub threads: usize,
    /// What the user should know: fewer neighbours than asked for, a recall beyond the calibration.
    pub notes: Vec<String>,
}

/// An open index. Shared freely between threads.
pub struct Index {
    directory: PathBuf,
    manifest: Manifest,
    element: Element,
    metric: Metric,
    /// What searches of the index's family count besides what all do.
    own_counters: &'static [Counter],
    stored: Box<dyn Stored>,
    opened: Arc<dyn Opened>,
    tier: Arc<dyn Tier>,
    /// The tier's profile, with what was measured of it.
    profile: TierProfile,
    processor: Option<Processor>,
    cache: Option<CacheTier>,
    buffers: Buffers,
    split: MemorySplit,
    engine: EngineOptions,
    counters: Arc<Counters>,
    /// What the pool of search threads knows of this index.
    tenant: Arc<Tenant>,
    spare: Spare,
    /// The process that opened it.
    process: u32,
}

/// The threads that a caller means: 0 is all cores.
fn thread_count(threads: usize) -> usize {
    match threads {
        0 => cores(),
        n => n,
    }
}

impl Index {
    /// Opens the index at `path`.
    ///
    /// # Errors
    /// [`IndexError`]: no index there, a later version, damage in anything that is loaded, too small a budget.
    pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Index, IndexError> {
        Index::open_attended(path, options, &Silent)
    }

    /// The same, with `progress` told how loading the pages into memory goes where [`OpenOptions::tier`] asks for it;
    /// it may cancel that.
    ///
    /// # Errors
    /// As [`Index::open`], and [`IndexError::Cancelled`].
    pub fn open_attended(
        path: impl AsRef<Path>,
        options: &OpenOptions,
        progress: &dyn Progress,
    ) -> Result<Index, IndexError> {
        let directory = || LocalStore::open_at(path.as_ref(), MANIFEST_NAME);
        match Index::open_in(directory()?.as_ref(), options, progress) {
            // Once more: this moment is over.
            Err(IndexError::Store(StoreError::Replaced { .. })) => {
                Index::open_in(directory()?.as_ref(), options, progress)
            }
            opened => opened,
        }
    }

    /// The same for an index in any store.
    ///
    /// # Errors
    /// As [`Index::open_attended`].
    pub fn open_in(
        directory: &dyn Generation,
        options: &OpenOptions,
        progress: &dyn Progress,
    ) -> Result<Index, IndexError> {
        let manifest = Manifest::load(directory)?;
        let address = directory.address();
        let wrong = |reason| IndexError::damaged(address, "the manifest", reason);
        let (element, metric) = (manifest.element().map_err(wrong)?, manifest.metric().map_err(wrong)?);
        let stored = families::stored(address, &manifest)?;
        let split = MemorySplit::plan(&manifest, &*stored, options.tier.place(), options.memory_bytes)?;
        let Pages { tier, loaded, cache } =
            open_tier(directory, &manifest, &*stored, &split, options, progress)?;
        let buffers = stored.buffers();
        let own = tier.profile();
        let profile = options.profile.as_ref().map_or_else(|| own.clone(), |saved| own.measured_as(saved));
        let loading = Loading {
            directory,
            manifest: &manifest,
            split: &split,
            buffers,
            profile: &profile,
            pages: loaded.as_ref().map(|loaded| loaded.bytes()),
            // What is loaded into memory was checked on its way there.
            checked: split.pages > 0 || matches!(options.tier, TierChoice::Mapped(_)),
        };
        let opened = stored.open(&loading)?;
        let frame_bytes = buffers.bytes(split.codes_on_tier > 0);
        let engine = EngineOptions {
            depth: ENGINE_DEPTH,
            frame_bytes,
            buffer_budget_bytes: u64::from(buffers.frames) * frame_bytes as u64,
            ..EngineOptions::default()
        };
        let thread_buffers = if tier.profile().addressable { 1 } else { u64::from(buffers.frames) };
        let thread_bytes = thread_buffers * frame_bytes as u64;
        let searches = split.budget.map(|budget| budget.saturating_sub(split.fixed()));
        let file = address.join(&manifest.paged_file().name);
        Ok(Index {
            directory: address.to_path_buf(),
            element,
            metric,
            own_counters: families::find(&manifest.family)?.counters,
            stored,
            opened,
            tenant: Arc::new(Tenant::new(file, tier.clone(), engine, thread_bytes, searches)),
            tier,
            profile,
            processor: options.processor,
            cache,
            buffers,
            split,
            engine,
            manifest,
            counters: Arc::default(),
            spare: Spare::default(),
            process: process(),
        })
    }

    /// The directory of the index.
    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// What the index says about itself.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The tier that pages are read from.
    pub fn tier(&self) -> &Arc<dyn Tier> {
        &self.tier
    }

    /// Number of vectors.
    pub fn len(&self) -> usize {
        self.manifest.vectors as usize
    }

    /// Whether the index holds no vector; none that opens does.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Dimensions.
    pub fn dim(&self) -> usize {
        self.manifest.dim as usize
    }

    /// Element type of the vectors as they were given, and of queries; [`Manifest::stored`] says whether they are stored so.
    pub fn element(&self) -> Element {
        self.element
    }

    /// The metric.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// Bytes of memory that the open index holds while `threads` threads search with a candidate list of
    /// `search_list`, `in_flight` queries each, or as many as the budget allows.
    pub fn dram_bytes(&self, threads: usize, in_flight: usize, search_list: u32) -> u64 {
        let in_flight =
            self.affordable_in_flight(in_flight, threads, search_list as usize).unwrap_or(in_flight.min(1));
        self.needed_bytes(threads, in_flight, search_list)
    }

    fn needed_bytes(&self, threads: usize, in_flight: usize, search_list: u32) -> u64 {
        self.split.fixed() + threads as u64 * self.thread_memory(in_flight, search_list as usize)
    }

    fn thread_memory(&self, in_flight: usize, search_list: usize) -> u64 {
        let frames = if self.tier.profile().addressable { 1 } else { u64::from(self.buffers.frames) };
        frames * self.buffers.bytes(self.split.codes_on_tier > 0) as u64
            + in_flight as u64 * self.stored.query_bytes(search_list)
    }

    /// How the memory budget is divided.
    pub fn memory_split(&self) -> &MemorySplit {
        &self.split
    }

    /// What the page cache has done so far; `None` where the budget left no room for one.
    pub fn cache_counters(&self) -> Option<CacheCounters> {
        self.cache.as_ref().map(CacheTier::counters)
    }

    /// Answers all `queries`.
    ///
    /// # Errors
    /// [`IndexError::Parameter`] for queries or options that do not fit the index; damage and device errors that
    /// any query meets; cancellation and deadline of `control`.
    pub fn search(
        &self,
        queries: &VectorFile,
        options: &SearchOptions,
        control: Control<'_>,
    ) -> Result<SearchResult, IndexError> {
        self.search_attended(queries, options, control, &|| ())
    }

    /// Answers the queries `rows`, which have been checked.
    fn search_rows<'a>(
        &self,
        queries: &VectorFile,
        rows: Range<usize>,
        options: &SearchOptions,
        waiting: impl Into<Waiting<'a>>,
    ) -> Result<SearchResult, IndexError> {
        let (params, notes) = self.params(options)?;
        let raw = RawQueries::of(queries, rows);
        let threads = thread_count(options.threads);
        let mut result = self.search_raw(raw, params, threads, options.in_flight, waiting)?;
        result.notes = notes;
        Ok(result)
    }

    /// Refuses queries that do not fit the index, and those of `rows` that have no answer.
    fn check_queries(&self, queries: &VectorFile, rows: Range<usize>) -> Result<(), IndexError> {
        let refuse =
            |what: String| Err(IndexError::Parameter(format!("{}: {what}", queries.path().display())));
        if queries.dim() != self.dim() {
            return refuse(format!(
                "the queries have {} dimensions, the index has {}",
                queries.dim(),
                self.dim()
            ));
        }
        if queries.element() != self.element() {
            return refuse(format!(
                "the queries are {}, the index holds {}; convert them with `bathyal convert`",
                queries.element(),
                self.element()
            ));
        }
        if rows == (0..queries.count()) {
            queries.check_finite()?
        } else {
            queries.check_rows(rows.clone())?
        }
        extent::check_queries(queries, rows.clone(), self.metric(), self.manifest.stored_scale())?;
        if self.metric() == Metric::Cosine {
            let zero = |row: &usize| !extent::has_direction(self.element(), queries.row(*row));
            if let Some(row) = rows.clone().find(zero) {
                return refuse(format!(
                    "query {row} is all zeros, which has no direction and so no cosine distance"
                ));
            }
        }
        Ok(())
    }

    /// Turns what the user asked for into what the search needs.
    fn params(&self, options: &SearchOptions) -> Result<(SearchParams, Vec<String>), IndexError> {
        let refuse = |what: String| Err(IndexError::Parameter(what));
        let mut notes = Vec::new();
        if options.k == 0 {
            return refuse("k is 0; ask for at least one neighbour".into());
        }
        let beam_width = options.beam_width.unwrap_or(DEFAULT_BEAM_WIDTH);
        if beam_width == 0 || beam_width > MAX_BEAM_WIDTH {
            return refuse(format!("beam_width is {beam_width}; it must be between 1 and {MAX_BEAM_WIDTH}"));
        }
        if options.probes == Some(0) {
            return refuse("probes is 0; at least one group must be scanned".into());
        }
        if options.prune.is_some_and(|prune| !(prune >= 0.0 && prune.is_finite())) {
            return refuse(
                "prune must be 0 or above: how much farther than the nearest a list may be".into(),
            );
        }
        self.check_knobs(options)?;
        if options.in_flight == Some(0) {
            return refuse("in_flight is 0; at least one query must run a thread".into());
        }
        let k = options.k.min(self.len());
        if k < options.k {
            notes.push(format!("asked for {} neighbours, the index holds only {k} vectors", options.k));
        }
        let effort = match options.effort {
            Effort::SearchList(0) => return refuse("search_list is 0; it must be at least k".into()),
            Effort::SearchList(l) if l > MAX_SEARCH_LIST => {
                return refuse(format!("search_list is {l}; it must be at most {MAX_SEARCH_LIST}"));
            }
            Effort::SearchList(l) if (l as usize) < k => {
                return refuse(format!("search_list is {l}, which must be at least k = {k}"));
            }
            Effort::SearchList(l) => self.stored.effort_of(l),
            Effort::Recall(recall) => {
                if !(recall > 0.0 && recall <= 1.0) {
                    return refuse(format!("recall is {recall}; it must be above 0 and at most 1"));
                }
                self.effort_for(k, recall, &mut notes)
            }
        };
        let params = SearchParams {
            k,
            search_list: effort.search_list.max(k),
            probes: options.probes.map_or(effort.probes, |probes| probes as usize),
            prune: options.prune.unwrap_or(if options.probes.is_some() { 0.0 } else { effort.prune }),
            beam_width: beam_width as usize,
            mode: options.mode.unwrap_or_default(),
            timed: false,
        };
        Ok((params, notes))
    }

    /// Refuses efforts that the index's family has no use for.
    fn check_knobs(&self, options: &SearchOptions) -> Result<(), IndexError> {
        let known = self.stored.knobs();
        let given = [
            (Knob::SearchList, matches!(options.effort, Effort::SearchList(_))),
            (Knob::Probes, options.probes.is_some()),
            (Knob::Prune, options.prune.is_some()),
            (Knob::BeamWidth, options.beam_width.is_some()),
            (Knob::Mode, options.mode.is_some()),
        ];
        let Some((knob, _)) = given.into_iter().find(|(knob, given)| *given && !known.contains(knob)) else {
            return Ok(());
        };
        let known: Vec<&str> = known.iter().map(|knob| knob.name()).collect();
        Err(IndexError::Parameter(format!(
            "{}: a search of this {} index knows no {}; it knows {}",
            self.directory.display(),
            self.manifest.family,
            knob.name(),
            if known.is_empty() { "none".into() } else { known.join(", ") }
        )))
    }

    /// The effort for a recall.
    fn effort_for(&self, k: usize, recall: f32, notes: &mut Vec<String>) -> query::Effort {
        let solved = self.opened.effort(k, recall, &self.machine());
        if solved.is_none_or(|solved| !solved.reached) {
            notes.extend(self.manifest.stored.and_then(|stored| stored.falls_short(recall)));
        }
        let Some(solved) = solved else {
            // Too few vectors to calibrate: looking at all of them is exact and cheap.
            return query::Effort { search_list: self.len(), probes: self.len(), prune: 0.0 };
        };
        if !solved.reached {
            notes.push(format!(
                "the calibration of this index does not reach recall {recall}; searching with its largest effort, search_list {}",
                solved.effort.search_list
            ));
        }
        // A manifest may ask for no more than a caller.
        let search_list = solved.effort.search_list.min(MAX_SEARCH_LIST as usize);
        query::Effort { search_list, ..solved.effort }
    }

    pub(crate) fn search_raw<'a>(
        &self,
        queries: RawQueries,
        params: SearchParams,
        threads: usize,
        in_flight: Option<usize>,
        waiting: impl Into<Waiting<'a>>,
    ) -> Result<SearchResult, IndexError> {
        let (started, waiting) = (Instant::now(), waiting.into());
        let threads = threads.clamp(1, queries.count.max(1));
        let (count, search_list) = (queries.count, params.search_list as u32);
        let job = self.job(queries, params, threads, in_flight, waiting.control.deadline)?;
        let answers = self.answers(&job, threads, waiting)?;
        let seconds = started.elapsed().as_secs_f64();
        collect(answers, (count, self.own_counters), params.k, seconds, search_list, threads)
    }

    /// The job of a search, for `threads` workers.
    fn job(
        &self,
        queries: RawQueries,
        params: SearchParams,
        threads: usize,
        in_flight: Option<usize>,
        deadline: Option<Instant>,
    ) -> Result<Arc<Job>, IndexError> {
        let planned = self.stored.planned_list(&params);
        let wanted = in_flight.unwrap_or_else(|| self.suited_in_flight(&params)).max(1);
        let in_flight = self.affordable_in_flight(wanted, threads, planned)?;
        let job = Job::new(self.tenant.clone(), self.opened.clone(), queries, params, in_flight, deadline);
        let query_bytes = self.stored.query_bytes(planned);
        Ok(Arc::new(job.counted(self.counters.clone()).taking(query_bytes)))
    }

    /// The number of interleaved queries that the memory budget allows, up to `wanted`.
    fn affordable_in_flight(
        &self,
        wanted: usize,
        threads: usize,
        search_list: usize,
    ) -> Result<usize, IndexError> {
        let Some(given) = self.split.budget else { return Ok(wanted) };
        let need = |in_flight| self.needed_bytes(threads, in_flight, search_list as u32);
        (1..=wanted).rev().find(|in_flight| need(*in_flight) <= given).ok_or(IndexError::Memory {
            what: "this search",
            needed: need(1),
            given,
            advice: "allow at least that much, or use fewer threads or a smaller search_list".into(),
        })
    }
}

/// Puts the answers of all workers in the order of the queries.
fn collect(
    answers: Vec<Answers>,
    (count, counters): (usize, &'static [Counter]),
    k: usize,
    seconds: f64,
    search_list: u32,
    threads: usize,
) -> Result<SearchResult, IndexError> {
    let mut result = SearchResult {
        k,
        ids: vec![0; count * k],
        distances: vec![0.0; count * k],
        latencies_ns: vec![0; count],
        per_query: vec![QueryStats::default(); count],
        own: OwnCosts::new(counters, count),
        totals: SearchTotals::default(),
        seconds,
        search_list,
        threads,
        notes: Vec::new(),
    };
    let mut answered = 0;
    for part in answers {
        for (i, (query, latency_ns, stats)) in part.queries.iter().enumerate() {
            let at = *query as usize * k;
            for (j, neighbor) in part.neighbors[i * k..(i + 1) * k].iter().enumerate() {
                result.ids[at + j] = neighbor.id;
                result.distances[at + j] = neighbor.distance;
            }
            result.latencies_ns[*query as usize] = *latency_ns;
            result.per_query[*query as usize] = *stats;
            result.own.set(*query as usize, stats);
            answered += 1;
        }
    }
    if answered != count {
        return Err(IndexError::Internal(format!("{answered} of {count} queries were answered")));
    }
    result.totals = SearchTotals::of(&result.per_query, &result.own);
    Ok(result)
}
