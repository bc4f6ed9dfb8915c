//! An open index. Opening it checks all data that stays in memory. Searches run on worker threads, each with
//! an engine of its own.

mod blocks;
mod caller;
mod card_fallback;
mod change;
mod compact;
mod convert_stripes;
mod copy;
mod explain;
mod fill;
mod in_flight;
mod inspect;
mod known_places;
mod many;
mod numa;
mod options;
mod params;
mod plan_within;
mod planning;
mod pool;
mod probing;
mod queries;
mod range;
mod request;
mod result;
mod salvage;
mod scan;
mod searching;
mod sets;
mod stats;
mod tier;
mod vectors;
mod verify;
mod warm;
mod within;

pub use blocks::DEFAULT_BLOCK_QUERIES;
pub use change::{ChangeCounts, MOST_CHANGED_BYTES};
pub use compact::{CompactOptions, Compaction, compact, compact_in};
pub use convert_stripes::{StripeConversion, StripeConversionOptions, convert_stripes, convert_stripes_in};
pub use copy::{CopyOptions, CopyReport, copy};
pub use explain::{Explanation, MemoryPart, PhaseTime, Predicted, StoreShare};
pub use fill::{FillOptions, FillReport, fill};
pub use inspect::{InspectReport, PartReport, inspect, inspect_in};
pub use many::{ManyResult, Place, search_many};
pub use numa::Numa;
pub use options::{OpenOptions, WrapTier};
pub use probing::probe_store;
pub use range::{RangeOptions, RangeResult};
pub use request::{
    DEFAULT_K, DEFAULT_RECALL, DEFAULT_WITHIN, Effort, MAX_BEAM_WIDTH, MAX_MULTI_PROBE, MAX_SEARCH_LIST,
    NamedEfforts, SearchOptions, SearchRequest,
};
pub use result::SearchResult;
pub use salvage::{SalvageReport, is_loss, salvage_vectors};
pub use searching::Searching;
pub use stats::{CacheStats, CardStats, IndexStats, LatencyBar, PartStats};
pub use tier::TierChoice;
pub use vectors::StoredVectors;
pub use verify::{verify, verify_in};
pub use warm::WarmReport;

use crate::cost::processor::Processor;
use crate::error::IndexError;
use crate::families;
use crate::family::{Arrival, Buffers, CardChoice, Knob, Loading, MemorySplit, Opened, Stored};
use crate::form::Form;
use crate::format::ids::load_ids;
use crate::format::manifest::Manifest;
use crate::locate::find;
use crate::query::changes::Changes;
use crate::query::{Counter, ENGINE_DEPTH, SearchParams, beam_width_on};
use bathyal_kernels::{Element, Metric};
use bathyal_object::GAP_BYTES;
use bathyal_store::{CacheUse, Generation, Requests, StoreError, Traffic};
use bathyal_tier::lanes::Lanes;
use bathyal_tier::layer::cache::{CacheCounters, CacheTier};
use bathyal_tier::numa::Nodes;
use bathyal_tier::{Control, EngineOptions, Tier, TierProfile};
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::{Progress, Silent};
use caller::Waiting;
use card_fallback::{CardTrouble, Reopening};
use change::{Changing, FoundLog};
use in_flight::engine_depth;
use known_places::KnownPlaces;
use planning::{Planning, SearchNeeds};
pub use pool::SearchMemory;
use pool::{Job, JobContext, PoolClient, RawQueries, cores, process};
use result::collect;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tier::{OpenParts, Pages, arrives, card_profile, check_card, open_tier};

/// About the bytes of a connection to a store: its read buffer and its TLS state.
const CONNECTION_BYTES: u64 = 48 << 10;
/// The most requests in flight, unless a store option allows more.
const MOST_REQUESTS: u64 = 512;
/// The time between two checks whether all data has been loaded.
const ARRIVAL_CHECK: Duration = Duration::from_millis(2);

/// An open index. Threads may share it.
pub struct Index {
    directory: PathBuf,
    manifest: Manifest,
    element: Element,
    metric: Metric,
    /// The counters that only the index's family has.
    own_counters: &'static [Counter],
    stored: Box<dyn Stored>,
    opened: Arc<dyn Opened>,
    tier: Arc<dyn Tier>,
    /// The tier's profile, with measured values if there are any.
    profile: TierProfile,
    processor: Option<Processor>,
    cache: Option<CacheTier>,
    /// The parts of a striped index, if they are read.
    parts: Option<OpenParts>,
    /// The counters of requests, if the index is in a remote store.
    traffic: Option<Arc<Traffic>>,
    /// The requests that opened the index.
    opening: Requests,
    /// The changes since the build; `None` if the index does not take changes.
    changing: Option<Changing>,
    /// Bytes of the buffers of a search thread, and of responses that are being received into them.
    thread_bytes: u64,
    /// The name of the graphics card that searches.
    card: Option<String>,
    /// The failures of the card, and its replacement by the processor.
    trouble: CardTrouble,
    split: MemorySplit,
    /// The input of the division `split`.
    planning: Planning,
    engine: EngineOptions,
    /// The registration with the pool of search threads.
    pool_client: Arc<PoolClient>,
    /// The state to which jobs refer, one for each lane of threads.
    known: Lanes<Arc<JobContext>>,
    /// The NUMA nodes over which its threads are spread, if there are several.
    nodes: Option<Arc<Nodes>>,
    /// The process that opened it.
    process: u32,
    /// The positions of vectors, and of the codes of row sets, that were found so far.
    known_places: KnownPlaces,
}

/// The loaded part of an index, or one copy of it.
struct Loaded {
    tier: Arc<dyn Tier>,
    opened: Arc<dyn Opened>,
    profile: TierProfile,
    /// Options of the engine of a search thread.
    engine: EngineOptions,
    cache: Option<CacheTier>,
    parts: Option<OpenParts>,
    pages: Option<tier::LoadedPages>,
}

impl Loaded {
    /// Loads the data that the index's family keeps in memory besides `pages`.
    fn new(
        directory: &dyn Generation,
        manifest: &Manifest,
        stored: &dyn Stored,
        split: &MemorySplit,
        options: &OpenOptions,
        arriving: bool,
        pages: Pages,
    ) -> Result<Loaded, IndexError> {
        let Pages { tier, loaded, cache, parts } = pages;
        let resident = options.tier == TierChoice::Card;
        let own = if resident { &card_profile() } else { tier.profile() };
        let devices = parts.as_ref().map_or(1, |parts| parts.paths.len() as u32);
        let measured = options.profile.as_ref().map(|saved| own.measured_as(&saved.of_devices(devices)));
        let profile = measured.unwrap_or_else(|| own.clone());
        let buffers = stored.buffers();
        let frame_bytes = buffers.bytes(split.codes_on_tier > 0 || arriving);
        let joins = directory.traffic().is_some();
        let depth = engine_depth(&profile, options.memory_bytes, joins, (&buffers, frame_bytes));
        let frames = buffers.frames * (depth / ENGINE_DEPTH);
        let buffer_budget_bytes = u64::from(frames) * frame_bytes as u64;
        let engine = EngineOptions { depth, frame_bytes, buffer_budget_bytes, ..EngineOptions::default() };
        let loading = Loading {
            directory,
            manifest,
            split,
            buffers,
            frames,
            profile: &profile,
            pages: loaded.as_ref().map(|loaded| loaded.bytes()),
            // Pages in memory were checked when they were loaded.
            checked: split.pages > 0 || matches!(options.tier, TierChoice::Mapped(_)),
            arriving,
            shared: tier.is_shared(),
            card: options.card.as_deref().map(|card| CardChoice {
                card,
                mini_batch: options.mini_batch,
                resident,
            }),
        };
        let opened = stored.open(&loading)?;
        Ok(Loaded { tier, opened, profile, engine, cache, parts, pages: loaded })
    }
}

/// Returns the memory for searches if there is a budget: the shared memory of the options, or the rest of the
/// budget.
fn search_memory(split: &MemorySplit, options: &OpenOptions) -> Option<SearchMemory> {
    let own = split.budget.map(|budget| SearchMemory::new(budget.saturating_sub(split.fixed())));
    options.search_memory.clone().filter(|_| own.is_some()).or(own)
}

/// Returns the number of threads for the value of an option: 0 means all cores.
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
    /// [`IndexError`]: no index there, a later version, damage in anything that is loaded, too small a
    /// budget.
    pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Index, IndexError> {
        Index::open_attended(path, options, &Silent)
    }

    /// Opens the index at `path`. If [`OpenOptions::tier`] loads the pages into memory, `progress` reports
    /// that, and may cancel it.
    ///
    /// # Errors
    /// As [`Index::open`], and [`IndexError::Cancelled`].
    pub fn open_attended(
        path: impl AsRef<Path>,
        options: &OpenOptions,
        progress: &dyn Progress,
    ) -> Result<Index, IndexError> {
        let directory = || find(&path, &options.stripe, &options.store);
        match Index::open_or_go_on(&directory()?, options, progress) {
            // The index was replaced while it was opened: open the new one.
            Err(IndexError::Store(StoreError::Replaced { .. })) => {
                Index::open_or_go_on(&directory()?, options, progress)
            }
            opened => opened,
        }
    }

    /// Opens an index in any store. The store finds the parts of a striped index.
    ///
    /// # Errors
    /// As [`Index::open_attended`]; [`IndexError::Parameter`] for [`OpenOptions::stripe`] and
    /// [`OpenOptions::processor_goes_on`].
    pub fn open_in(
        directory: &dyn Generation,
        options: &OpenOptions,
        progress: &dyn Progress,
    ) -> Result<Index, IndexError> {
        if !options.stripe.is_empty() {
            let what = "pass the folders of the parts of a striped index to `find`, not to `open_in`";
            return Err(IndexError::Parameter(what.into()));
        }
        if options.processor_goes_on {
            let what = "processor_goes_on is an option of `open`, not of `open_in`, which cannot open the index again";
            return Err(IndexError::Parameter(what.into()));
        }
        Index::open_found(directory, None, options, progress)
    }

    /// Opens the index, without the card if that is missing and the options allow it.
    fn open_or_go_on(
        directory: &Arc<dyn Generation>,
        options: &OpenOptions,
        progress: &dyn Progress,
    ) -> Result<Index, IndexError> {
        // If the card is missing, vectors that were to be in its memory are read from the file.
        let has_tier =
            options.tier != TierChoice::Card || options.card.is_some() || options.card_missing.is_none();
        let from_file = (!has_tier).then(|| OpenOptions { tier: TierChoice::File, ..options.clone() });
        let options = from_file.as_ref().unwrap_or(options);
        let opened = Index::open_found(&**directory, Some(directory), options, progress);
        match (opened, &options.card_missing) {
            (Err(IndexError::Gpu(missing)), _) if options.processor_goes_on => {
                let without = OpenOptions { card: None, card_missing: Some(missing), ..options.clone() };
                Index::open_or_go_on(directory, &without, progress)
            }
            (Err(source @ (IndexError::Memory { .. } | IndexError::NoMemory { .. })), Some(missing)) => {
                Err(IndexError::WithoutCard { card: missing.to_string(), source: Arc::new(source) })
            }
            (opened, _) => opened,
        }
    }

    fn open_found(
        directory: &dyn Generation,
        kept: Option<&Arc<dyn Generation>>,
        options: &OpenOptions,
        progress: &dyn Progress,
    ) -> Result<Index, IndexError> {
        options.check_mini_batch()?;
        let manifest = Manifest::load(directory)?;
        let address = directory.address();
        let wrong = |reason| IndexError::damaged(address, "the manifest", reason);
        let (element, metric) = (manifest.element().map_err(wrong)?, manifest.metric().map_err(wrong)?);
        let stored = families::stored(address, &manifest)?;
        check_card(options)?;
        if options.card.is_some() {
            stored.check_card(&manifest)?;
        }
        let log = FoundLog::read(directory, &manifest, &*stored)?;
        let traffic = directory.traffic();
        let planning = Planning::new(
            directory,
            (&manifest, &*stored),
            options,
            log.as_ref().map(FoundLog::taken_bytes),
        )?;
        let (split, lacking) = planning.split(&manifest, &*stored, options.memory_bytes)?;
        let placement = planning.placement();
        let arriving = arrives(directory, &manifest, &*stored, &split, options)?;
        let mut of_first = None;
        let copies = placement.load(|_| {
            // Pages that are not in memory have no copies: all copies use the tier of the first.
            let tier_of_first = of_first.clone().filter(|_| split.pages == 0);
            let pages = tier_of_first.map_or_else(
                || open_tier(directory, &manifest, &*stored, &split, options, arriving, progress),
                |tier| Ok(Pages::of(tier)),
            )?;
            let copy = Loaded::new(directory, &manifest, &*stored, &split, options, arriving, pages)?;
            of_first.get_or_insert_with(|| copy.tier.clone());
            Ok(copy)
        })?;
        let tiers = copies.iter().map(|copy| copy.tier.clone()).collect();
        let all = copies.iter().map(|copy| copy.opened.clone()).collect();
        let Some(Loaded { tier, opened, profile, engine, cache, parts, pages }) = copies.into_iter().next()
        else {
            return Err(IndexError::Internal("an index without a copy".into()));
        };
        let changed = |log: FoundLog| {
            let (ids, form) =
                (load_ids(directory, &manifest)?, Form::from_manifest(&manifest).map_err(wrong)?);
            let changes = Changes::none(ids, form, manifest.dim as usize);
            log.apply(changes, &*opened)
        };
        let changing = log.map(changed).transpose()?;
        let thread_bytes = match tier.profile().addressable {
            true => engine.frame_bytes as u64,
            false => Buffers::held_bytes(engine.buffer_budget_bytes, traffic.is_some()),
        };
        let searches = search_memory(&split, options);
        let nodes = placement.nodes.clone();
        let client = PoolClient::new(tiers, nodes.clone(), engine, thread_bytes, searches);
        let pool_client = Arc::new(client);
        let trouble = kept.map_or_else(CardTrouble::default, |directory| {
            let read = if options.tier == TierChoice::Card { tier.profile() } else { &profile };
            let (directory, manifest, profile) = (directory.clone(), manifest.clone(), read.clone());
            let (tier, shared) = (options.tier.clone(), tier.is_shared());
            let bytes = planning.standby.unwrap_or(0);
            Reopening { directory, manifest, bytes, split, lacking, profile, tier, pages, shared }
                .trouble(options)
        });
        Ok(Index {
            directory: address.to_path_buf(),
            element,
            metric,
            own_counters: families::find(&manifest.family)?.counters,
            stored,
            known: JobContext::lanes(pool_client.clone(), all, trouble.standby.clone()),
            nodes,
            opened,
            pool_client,
            tier,
            profile,
            processor: options.processor,
            cache,
            parts,
            opening: traffic.as_ref().map_or_else(Requests::default, |traffic| traffic.now()),
            traffic,
            changing,
            thread_bytes,
            split,
            planning,
            engine,
            manifest,
            process: process(),
            known_places: KnownPlaces::default(),
            card: options.card.as_ref().map(|card| card.profile().name.clone()),
            trouble,
        })
    }

    /// Returns the current searcher: the one that was opened, or the processor in place of a lost card.
    fn searcher(&self) -> &Arc<dyn Opened> {
        self.trouble.searcher().unwrap_or(&self.opened)
    }

    /// Returns the directory or the address of the index.
    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// Returns the manifest of the index.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns the tier from which pages are read.
    pub fn tier(&self) -> &Arc<dyn Tier> {
        &self.tier
    }

    /// Returns the kind of tier of searches. For an index whose vectors are in a graphics card's memory that
    /// is `gpu`, although no tier is read.
    pub fn tier_kind(&self) -> &str {
        if self.trouble.searcher().is_some() { &self.tier.profile().kind } else { &self.profile.kind }
    }

    /// Returns the numbers of the NUMA nodes over which its search threads are spread; empty if the system
    /// places the threads, as on a machine with one node.
    pub fn numa_nodes(&self) -> Vec<u32> {
        self.nodes.as_ref().map_or_else(Vec::new, |nodes| nodes.numbers())
    }

    /// Returns the number of vectors that are not deleted.
    pub fn len(&self) -> usize {
        let fixed = || self.opened.in_place().map_or(self.manifest.vectors, |placed| placed.counts().0);
        self.changing.as_ref().map_or_else(fixed, |changing| changing.now().vectors()) as usize
    }

    /// Returns the number of vectors with these changes. If other machines may change the index at any time,
    /// returns the largest possible number.
    fn vectors_with(&self, changes: Option<&Arc<Changes>>) -> usize {
        let fixed = || self.opened.in_place().map_or(self.manifest.vectors, |placed| placed.most());
        changes.map_or_else(fixed, |changes| changes.vectors()) as usize
    }

    /// Returns the id of the next inserted vector. The ids of all vectors are below it.
    pub fn next_id(&self) -> u32 {
        let fixed =
            || self.opened.in_place().map_or(self.manifest.vectors as u32, |placed| placed.counts().1);
        self.changing.as_ref().map_or_else(fixed, |changing| changing.now().next())
    }

    /// Returns true if all vectors were deleted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the dimensions.
    pub fn dim(&self) -> usize {
        self.manifest.dim as usize
    }

    /// Returns the element of the given vectors and of queries. [`Manifest::stored`] has the stored form, if
    /// it differs.
    pub fn element(&self) -> Element {
        self.element
    }

    /// Returns the metric.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// Returns the bytes of memory for changes since the build.
    fn changed_bytes(&self) -> u64 {
        let now = self.changing.as_ref().map_or(0, |changing| changing.now().bytes());
        now.max(self.split.changes)
    }

    /// Returns about the most bytes of memory of a running query with these options, besides the buffers of
    /// its thread.
    ///
    /// # Errors
    /// [`IndexError::Parameter`] for options that do not fit the index.
    pub fn query_bytes(&self, options: &SearchOptions) -> Result<u64, IndexError> {
        let request = SearchRequest::new(options)?;
        let (params, _) = self.params(&request, self.changes().as_ref())?;
        Ok(self.stored.query_bytes(self.stored.planned_list(&params)))
    }

    /// Returns about the most bytes of memory that a search on `threads` threads takes for a remote store, in
    /// addition to any budget: for connections, and for bytes between the requested ranges. 0 for a local
    /// index.
    pub fn connection_bytes(&self, threads: usize) -> u64 {
        let requests = threads as u64 * u64::from(self.engine.depth);
        if self.traffic.is_some() { requests.min(MOST_REQUESTS) * (CONNECTION_BYTES + GAP_BYTES) } else { 0 }
    }

    /// Returns the division of the memory budget.
    pub fn memory_split(&self) -> &MemorySplit {
        &self.split
    }

    /// Returns the counters of the page cache, or of the sub-index cache of a `partitioned` index (its pages
    /// are then sub-indexes); `None` without one.
    pub fn cache_counters(&self) -> Option<CacheCounters> {
        self.cache.as_ref().map(CacheTier::counters).or_else(|| self.opened.kept())
    }

    /// Answers all `queries`.
    ///
    /// # Errors
    /// [`IndexError::Parameter`] for queries or options that do not fit the index; damage and device errors
    /// that any query meets; cancellation and deadline of `control`.
    pub fn search(
        &self,
        queries: &VectorFile,
        options: &SearchOptions,
        control: Control<'_>,
    ) -> Result<SearchResult, IndexError> {
        self.search_attended(queries, options, control, &|| ())
    }

    /// Answers the queries `rows`. The caller has checked them.
    fn search_rows<'a>(
        &self,
        queries: &VectorFile,
        rows: Range<usize>,
        request: &SearchRequest,
        waiting: impl Into<Waiting<'a>>,
    ) -> Result<SearchResult, IndexError> {
        let (changes, options) = (self.changes(), request.options());
        let (params, notes) = self.params(request, changes.as_ref())?;
        let raw = RawQueries::from_range(queries, rows);
        let threads = self.suited_threads(options.threads, raw.count, &params);
        let mut result = self.search_raw(raw, params, (threads, options.in_flight), changes, waiting)?;
        result.notes = notes;
        result.notes.extend(self.trouble.note());
        result.note_short(self.opened.in_place().is_some());
        result.note_unlike(self.stored.reach(), options.effort);
        Ok(result)
    }

    /// Answers `queries` with checked parameters, on `threads` threads with `in_flight` queries each.
    pub(crate) fn search_raw<'a>(
        &self,
        queries: RawQueries,
        params: SearchParams,
        (threads, in_flight): (usize, Option<usize>),
        changes: Option<Arc<Changes>>,
        waiting: impl Into<Waiting<'a>>,
    ) -> Result<SearchResult, IndexError> {
        let (started, waiting, before) = (Instant::now(), waiting.into(), self.requests());
        let threads = threads.clamp(1, queries.count.max(1));
        let (count, used) = (queries.count, self.used(&params, threads));
        let job = self.job(queries, params, (threads, in_flight), waiting.control.deadline, changes)?;
        let answers = self.answers(&job, threads, waiting)?;
        let seconds = started.elapsed().as_secs_f64();
        let mut result = collect(answers, (count, self.own_counters), used, seconds)?;
        result.requests = self.requests().zip(before).map(|(now, before)| now.since(&before));
        Ok(result)
    }

    /// Returns the requests to a remote store since the index was opened; `None` for a local index.
    pub fn requests(&self) -> Option<Requests> {
        self.traffic.as_ref().map(|traffic| traffic.now().since(&self.opening))
    }

    /// Returns how much of the data that is kept in memory has been loaded from a remote store; `None` if the
    /// open waited for all of it.
    pub fn arrival(&self) -> Option<Arrival> {
        self.opened.arrival()
    }

    /// Waits until all data that is kept in memory is loaded, or has failed to load ([`Index::arrival`] has
    /// the reason).
    ///
    /// # Errors
    /// Cancellation and deadline of `control`.
    pub fn wait(&self, control: Control<'_>) -> Result<(), IndexError> {
        while self.arrival().is_some_and(|arrival| arrival.here < arrival.all && arrival.failed.is_none()) {
            if control.cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed)) {
                return Err(IndexError::Cancelled);
            }
            if control.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(IndexError::Deadline);
            }
            std::thread::sleep(ARRIVAL_CHECK);
        }
        Ok(())
    }

    /// Returns the counters of the cache in front of the store since the index was opened, including the
    /// open, by kind of object (`codes`, `centroids`, `vectors`, ...); empty without a cache.
    pub fn cache_use(&self) -> BTreeMap<String, CacheUse> {
        self.traffic.as_ref().map(|traffic| traffic.cache_use()).unwrap_or_default()
    }

    /// Returns the counters of that cache for the reads of searches, by dependent round: the first 12 rounds
    /// one by one, then all later ones together, up to the last round with reads. Reads for which no search
    /// waits, such as those that load codes, have no round.
    pub fn cache_rounds(&self) -> Vec<CacheUse> {
        self.traffic.as_ref().map(|traffic| traffic.cache_rounds()).unwrap_or_default()
    }

    /// Returns why the cache in front of the store does not use its disk, although one was configured.
    pub fn cache_trouble(&self) -> Option<&str> {
        self.traffic.as_ref()?.cache_trouble()
    }

    /// Returns the requests to a remote store that opened the index; `None` for a local index.
    pub fn opening_requests(&self) -> Option<Requests> {
        self.traffic.as_ref().map(|_| self.opening)
    }

    /// Returns the job of a search on `threads` workers.
    fn job(
        &self,
        queries: RawQueries,
        params: SearchParams,
        (threads, in_flight): (usize, Option<usize>),
        deadline: Option<Instant>,
        changes: Option<Arc<Changes>>,
    ) -> Result<Arc<Job>, IndexError> {
        let planned = self.stored.planned_list(&params);
        let wanted = in_flight.unwrap_or_else(|| self.suited_in_flight(&params)).max(1);
        let in_flight = self.affordable_in_flight(wanted, threads, planned)?;
        let job = Job::new(self.known.here().clone(), queries, params, (threads, in_flight), deadline);
        Ok(Arc::new(job.with_query_bytes(self.stored.query_bytes(planned)).with_changes(changes)))
    }
}

impl Index {
    /// Returns the bytes of the open index with `threads` search threads and `in_flight` queries on each.
    pub(super) fn needed_bytes(&self, threads: usize, in_flight: usize, search_list: u32) -> u64 {
        self.split.fixed()
            + self.known_places.bytes()
            + threads as u64 * self.thread_memory(in_flight, search_list as usize)
    }

    /// Returns the bytes of a thread with `in_flight` queries.
    pub(super) fn thread_memory(&self, in_flight: usize, search_list: usize) -> u64 {
        self.thread_bytes + in_flight as u64 * self.stored.query_bytes(search_list)
    }

    /// Returns the bytes of memory of the open index while `threads` threads search with a candidate list of
    /// `search_list`, and `in_flight` queries each or as many as the budget allows.
    pub fn dram_bytes(&self, threads: usize, in_flight: usize, search_list: u32) -> u64 {
        let in_flight =
            self.affordable_in_flight(in_flight, threads, search_list as usize).unwrap_or(in_flight.min(1));
        let changes = self.changed_bytes() - self.split.changes;
        let changes = changes + self.trouble.taken_bytes().saturating_sub(self.split.standby);
        let queries = in_flight as u64 * self.stored.query_bytes(search_list as usize);
        let thread = self.used_buffers(in_flight as u64) + queries;
        self.needed_bytes(0, 0, 0) + threads as u64 * thread + changes
    }

    /// Returns the bytes of memory of the open index during a finished search.
    pub fn dram_bytes_of(&self, found: &SearchResult, options: &SearchOptions) -> u64 {
        // A thread has no more queries in flight than its share of the batch.
        let share = found.latencies_ns.len().div_ceil(found.threads.max(1));
        let in_flight = options.in_flight.unwrap_or_else(|| self.default_in_flight(found.search_list));
        self.dram_bytes(found.threads, in_flight.min(share.max(1)), found.search_list)
    }

    /// Returns the bytes of a thread's read buffers that are used while it has `in_flight` queries. The
    /// others are reserved and take no memory: with vectors of 65,536 dimensions, nearly all of them.
    pub(super) fn used_buffers(&self, in_flight: u64) -> u64 {
        let frame = self.engine.frame_bytes as u64;
        // A query reads no part of the file twice at once, and in a graph at most as many records as its beam
        // is wide.
        let file = self.manifest.paged_file().bytes.next_multiple_of(frame) + frame;
        let a_query = match self.stored.knobs().contains(&Knob::BeamWidth) {
            true => file.min(u64::from(beam_width_on(&self.profile)) * frame),
            false => file,
        };
        self.thread_bytes.min(Buffers::held_bytes(in_flight * a_query, self.traffic.is_some()))
    }

    /// Returns a budget that is enough for `threads` threads with one query each and a candidate list of
    /// `search_list`.
    pub(super) fn enough_for(&self, threads: usize, search_list: usize) -> u64 {
        self.enough_with(threads, self.stored.query_bytes(search_list))
    }

    /// Returns a budget that is enough for `threads` threads whose queries take `queries` bytes on each.
    pub(super) fn enough_with(&self, threads: usize, queries: u64) -> u64 {
        let search = SearchNeeds { threads: threads as u64, queries, noted: self.known_places.bytes() };
        let needed = self.needed_bytes(threads, 0, 0) + threads as u64 * queries;
        self.planning.enough(&self.manifest, &*self.stored, needed, Some(search))
    }

    /// Returns the threads for a search of `queries` queries if a caller `asked` for so many. If that is 0
    /// (all cores), returns as many of them as the budget allows.
    pub(super) fn suited_threads(&self, asked: usize, queries: usize, params: &SearchParams) -> usize {
        let threads = thread_count(asked).clamp(1, queries.max(1));
        if asked > 0 { threads } else { self.fitting_threads(threads, self.stored.planned_list(params)) }
    }

    /// Returns as many of `threads` as the memory budget allows with a candidate list of `list`, and at least
    /// one.
    pub(super) fn fitting_threads(&self, threads: usize, list: usize) -> usize {
        let fits = |threads: &usize| self.affordable_in_flight(1, *threads, list).is_ok();
        (1..=threads).rev().find(fits).unwrap_or(1)
    }

    /// Returns the number of interleaved queries that the memory budget allows, up to `wanted`.
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
