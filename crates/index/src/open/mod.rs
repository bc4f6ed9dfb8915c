//! An open index: what users hold. Opening checks everything that stays in memory; searching runs on worker
//! threads, each with an engine of its own.

mod blocks;
mod caller;
mod change;
mod compact;
mod convert_stripes;
mod copy;
mod explain;
mod fill;
mod going_on;
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
mod range;
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
pub use copy::{Copied, CopyOptions, copy};
pub use explain::{Explanation, MemoryPart, PhaseTime, Predicted, StoreShare};
pub use fill::{FillOptions, Filled, fill};
pub use inspect::{InspectReport, PartReport, inspect, inspect_in};
pub use many::{ManyResult, Place, search_many};
pub use numa::Numa;
pub use options::{
    Effort, MAX_BEAM_WIDTH, MAX_MULTI_PROBE, MAX_SEARCH_LIST, OpenOptions, SearchOptions, WrapTier,
};
pub use probing::probe_store;
pub use range::{RangeOptions, RangeResult};
pub use result::SearchResult;
pub use salvage::{Salvaged, is_loss, salvage_vectors};
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
use change::{Changing, FoundLog};
use going_on::{CardTrouble, Reopening};
use in_flight::engine_depth;
use known_places::KnownPlaces;
use planning::{Planning, Wanted};
pub use pool::SearchMemory;
use pool::{Job, Known, RawQueries, Tenant, cores, process};
use result::collect;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tier::{OpenParts, Pages, arrives, card_profile, check_card, open_tier};

/// Bytes of a connection to a store, about: what it reads into, and its TLS.
const CONNECTION_BYTES: u64 = 48 << 10;
/// Requests in flight at most, unless a store option says more.
const MOST_REQUESTS: u64 = 512;
/// How often it is looked whether all is there that is waited for.
const LOOK: Duration = Duration::from_millis(2);

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
    /// The parts of a striped index, where they are read.
    parts: Option<OpenParts>,
    /// What the store is asked, if that is elsewhere.
    traffic: Option<Arc<Traffic>>,
    /// What it was asked to open the index.
    opening: Requests,
    /// What was changed since it was built; `None` of a family whose indexes do not change.
    changing: Option<Changing>,
    /// Bytes of the buffers of a search thread, and of answers on their way into them.
    thread_bytes: u64,
    /// The name of the graphics card that searches.
    card: Option<String>,
    /// What goes on without it.
    trouble: CardTrouble,
    split: MemorySplit,
    /// How that was divided.
    planning: Planning,
    engine: EngineOptions,
    /// What the pool of search threads knows of this index.
    tenant: Arc<Tenant>,
    /// What jobs refer to.
    known: Lanes<Arc<Known>>,
    /// The NUMA nodes that its threads are spread over, where there are several.
    nodes: Option<Arc<Nodes>>,
    /// The process that opened it.
    process: u32,
    /// What is known of where vectors lie, and the codes of sets.
    known_places: KnownPlaces,
}

/// What an open index keeps in memory, or one copy of it.
struct Loaded {
    tier: Arc<dyn Tier>,
    opened: Arc<dyn Opened>,
    profile: TierProfile,
    /// Of a thread that searches.
    engine: EngineOptions,
    cache: Option<CacheTier>,
    parts: Option<OpenParts>,
    pages: Option<tier::Loaded>,
}

impl Loaded {
    /// Loads what the index's family keeps besides `pages`.
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
            // What is loaded into memory was checked on its way there.
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

/// What searches may take, where there is a budget: memory that others share, or what is left of the budget.
fn search_memory(split: &MemorySplit, options: &OpenOptions) -> Option<SearchMemory> {
    let own = split.budget.map(|budget| SearchMemory::new(budget.saturating_sub(split.fixed())));
    options.search_memory.clone().filter(|_| own.is_some()).or(own)
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
        let directory = || find(&path, &options.stripe, &options.store);
        match Index::open_or_go_on(&directory()?, options, progress) {
            // Once more: this moment is over.
            Err(IndexError::Store(StoreError::Replaced { .. })) => {
                Index::open_or_go_on(&directory()?, options, progress)
            }
            opened => opened,
        }
    }

    /// The same for an index in any store, which knows by itself where parts are.
    ///
    /// # Errors
    /// As [`Index::open_attended`]; [`IndexError::Parameter`] for [`OpenOptions::stripe`] and [`OpenOptions::processor_goes_on`].
    pub fn open_in(
        directory: &dyn Generation,
        options: &OpenOptions,
        progress: &dyn Progress,
    ) -> Result<Index, IndexError> {
        if !options.stripe.is_empty() {
            let what = "where the parts of a striped index are is said where the index is found (find)";
            return Err(IndexError::Parameter(what.into()));
        }
        if options.processor_goes_on {
            let what =
                "an index that may be opened once more, without its card, is opened where it is found (open)";
            return Err(IndexError::Parameter(what.into()));
        }
        Index::open_found(directory, None, options, progress)
    }

    /// Opens what was found; without the card where the processor goes on.
    fn open_or_go_on(
        directory: &Arc<dyn Generation>,
        options: &OpenOptions,
        progress: &dyn Progress,
    ) -> Result<Index, IndexError> {
        // Vectors that were to be on the card stay where they are.
        let there =
            options.tier != TierChoice::Card || options.card.is_some() || options.card_missing.is_none();
        let read = (!there).then(|| OpenOptions { tier: TierChoice::File, ..options.clone() });
        let options = read.as_ref().unwrap_or(options);
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
            // Another copy of what is not in memory would be the same.
            let there = of_first.clone().filter(|_| split.pages == 0);
            let pages = there.map_or_else(
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
        let tenant = Arc::new(Tenant::new(tiers, nodes.clone(), engine, thread_bytes, searches));
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
            known: Known::lanes(tenant.clone(), all, trouble.standby.clone()),
            nodes,
            opened,
            tenant,
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

    /// What searches from here on: what was opened, or the processor in place of a card that is lost.
    fn searcher(&self) -> &Arc<dyn Opened> {
        self.trouble.searcher().unwrap_or(&self.opened)
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

    /// What kind of tier searches are answered from, which of an index that is on a graphics card is none that is read.
    pub fn tier_kind(&self) -> &str {
        if self.trouble.searcher().is_some() { &self.tier.profile().kind } else { &self.profile.kind }
    }

    /// The numbers of the NUMA nodes that its search threads are spread over; empty where that is left to the system, as it is
    /// on a machine of one node.
    pub fn numa_nodes(&self) -> Vec<u32> {
        self.nodes.as_ref().map_or_else(Vec::new, |nodes| nodes.numbers())
    }

    /// Number of vectors: those that are not deleted.
    pub fn len(&self) -> usize {
        let fixed = || self.opened.in_place().map_or(self.manifest.vectors, |placed| placed.counts().0);
        self.changing.as_ref().map_or_else(fixed, |changing| changing.now().vectors()) as usize
    }

    /// The same in a state of changes; where others change it at any time, as many as there may be.
    fn held(&self, changes: Option<&Arc<Changes>>) -> usize {
        let fixed = || self.opened.in_place().map_or(self.manifest.vectors, |placed| placed.most());
        changes.map_or_else(fixed, |changes| changes.vectors()) as usize
    }

    /// Ids of its vectors are below this one, which the next vector gets.
    pub fn next_id(&self) -> u32 {
        let fixed =
            || self.opened.in_place().map_or(self.manifest.vectors as u32, |placed| placed.counts().1);
        self.changing.as_ref().map_or_else(fixed, |changing| changing.now().next())
    }

    /// Whether the index holds no vector, since all were deleted.
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

    /// Bytes of memory for what was changed since it was built.
    fn changed_bytes(&self) -> u64 {
        let now = self.changing.as_ref().map_or(0, |changing| changing.now().bytes());
        now.max(self.split.changes)
    }

    /// Bytes that a query of such a search holds at most while it is under way, about, besides the buffers of its thread.
    ///
    /// # Errors
    /// [`IndexError::Parameter`] for options that do not fit the index.
    pub fn query_bytes(&self, options: &SearchOptions) -> Result<u64, IndexError> {
        let (params, _) = self.params(options, self.changes().as_ref())?;
        Ok(self.stored.query_bytes(self.stored.planned_list(&params)))
    }

    /// Bytes that a search of `threads` threads takes at most, about, to reach a store that is elsewhere, whatever it may take
    /// itself: its connections, and what comes between the ranges that were asked for. 0 of an index on this machine.
    pub fn connection_bytes(&self, threads: usize) -> u64 {
        let requests = threads as u64 * u64::from(self.engine.depth);
        if self.traffic.is_some() { requests.min(MOST_REQUESTS) * (CONNECTION_BYTES + GAP_BYTES) } else { 0 }
    }

    /// How the memory budget is divided.
    pub fn memory_split(&self) -> &MemorySplit {
        &self.split
    }

    /// What the cache of pages has done so far, or what searches of a family keep that keeps what it has read (its pages are
    /// sub-indexes); `None` where the budget left no room for one.
    pub fn cache_counters(&self) -> Option<CacheCounters> {
        self.cache.as_ref().map(CacheTier::counters).or_else(|| self.opened.kept())
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
        let changes = self.changes();
        let (params, notes) = self.params(options, changes.as_ref())?;
        let raw = RawQueries::of(queries, rows);
        let threads = self.suited_threads(options.threads, raw.count, &params);
        let mut result = self.search_raw(raw, params, (threads, options.in_flight), changes, waiting)?;
        result.notes = notes;
        result.notes.extend(self.trouble.note());
        result.note_short(self.opened.in_place().is_some());
        result.note_unlike(self.stored.reach(), options.effort);
        Ok(result)
    }

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

    /// What the store has been asked since the index was opened, if that is elsewhere.
    pub fn requests(&self) -> Option<Requests> {
        self.traffic.as_ref().map(|traffic| traffic.now().since(&self.opening))
    }

    /// How much has come of what is kept in memory, of an index in a store that is elsewhere; `None` where all was waited for.
    pub fn arrival(&self) -> Option<Arrival> {
        self.opened.arrival()
    }

    /// Waits until all is there that is kept in memory, or will not come ([`Index::arrival`] says why).
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
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// What the cache in front of the store did since the index was opened, opening included, by kind of object (`codes`,
    /// `centroids`, `vectors`, ...); none without a cache.
    pub fn cache_use(&self) -> BTreeMap<String, CacheUse> {
        self.traffic.as_ref().map(|traffic| traffic.cache_use()).unwrap_or_default()
    }

    /// The same of what searches read, by dependent round: the first 12 rounds one by one, then all later ones together, up to
    /// the last that asked for anything. What no search waits for, such as codes that are loaded on the side, has no round.
    pub fn cache_rounds(&self) -> Vec<CacheUse> {
        self.traffic.as_ref().map(|traffic| traffic.cache_rounds()).unwrap_or_default()
    }

    /// Why the cache in front of the store does without its disk, although one was wanted.
    pub fn cache_trouble(&self) -> Option<&str> {
        self.traffic.as_ref()?.cache_trouble()
    }

    /// What the store was asked to open the index, if that is elsewhere.
    pub fn opening_requests(&self) -> Option<Requests> {
        self.traffic.as_ref().map(|_| self.opening)
    }

    /// The job of a search, for `threads` workers.
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
        Ok(Arc::new(job.taking(self.stored.query_bytes(planned)).changed(changes)))
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
