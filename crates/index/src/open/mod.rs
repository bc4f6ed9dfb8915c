//! An open index. Opening it checks all data that stays in memory. Searches run on worker threads, each with
//! an engine of its own.

mod audit;
mod blocks;
mod calibrations;
mod caller;
mod card_fallback;
mod change;
mod change_log;
mod compact;
mod control;
mod convert_stripes;
mod copy;
mod curve;
mod explain;
mod explain_batch;
mod fill;
mod in_flight;
mod inspect;
mod known_places;
mod live_audit;
mod loaded;
mod many;
mod memory_plan;
mod memory_use;
mod numa;
mod opening;
mod options;
mod params;
mod parts;
mod plan_within;
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
mod store_traffic;
mod stored;
mod tier;
mod truth;
mod vectors;
mod verify;
mod warm;
mod within;

pub use audit::{
    AuditReport, AuditRequest, AuditedRecall, ExactAnswers, MOST_AUDITED, few_audited, sample_of,
};
pub use blocks::DEFAULT_BLOCK_QUERIES;
pub use calibrations::{
    CalibrateOptions, CalibrateReport, CopiedCalibrations, MOST_QUERIES, RecallBefore,
    copy_calibrations_named, few_measured,
};
pub(crate) use change_log::summary as change_counts;
pub use change_log::{ChangeCounts, MOST_CHANGED_BYTES};
pub use compact::{CompactOptions, Compaction, compact, compact_in};
pub use control::with_control;
pub use convert_stripes::{StripeConversion, StripeConversionOptions, convert_stripes, convert_stripes_in};
pub use copy::{CopyOptions, CopyReport, copy};
pub use curve::{CurvePoint, RecallCurve};
pub use explain::{Explanation, MemoryPart, Predicted, StoreShare};
pub use explain_batch::{BatchExplanation, TierShare};
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
pub use result::{MergedAnswers, PhaseTime, SearchResult};
pub use salvage::{SalvageReport, is_loss, salvage_vectors};
pub use searching::Searching;
pub use stats::{CacheStats, CardStats, IndexStats, LatencyBar, PartStats};
pub use tier::TierChoice;
pub use vectors::StoredVectors;
pub use verify::{verify, verify_in};
pub use warm::WarmReport;

use crate::error::IndexError;
use crate::family::{Arrival, Opened};
use crate::format::manifest::Manifest;
use crate::query::SearchParams;
use crate::query::changes::Changes;
use bathyal_kernels::{Element, Metric};
use bathyal_store::{CacheUse, Requests};
use bathyal_tier::layer::cache::CacheCounters;
use bathyal_tier::{Control, Tier};
use bathyal_vectors::VectorFile;
use control::{Waiting, check_control};
use live_audit::LiveAudit;
use parts::IndexParts;
pub use pool::SearchMemory;
use pool::{Job, RawQueries, cores};
use result::collect;
use std::collections::BTreeMap;
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store_traffic::StoreTraffic;

/// The time between two checks whether all data has been loaded.
const ARRIVAL_CHECK: Duration = Duration::from_millis(2);

/// An open index. Threads may share it.
pub struct Index {
    /// The audit of its searches. It is dropped first, because its thread has a handle of the same parts.
    audit: Option<Arc<LiveAudit>>,
    parts: Arc<IndexParts>,
}

impl Deref for Index {
    type Target = IndexParts;

    fn deref(&self) -> &IndexParts {
        &self.parts
    }
}

/// Returns the number of threads for the value of an option: 0 means all cores.
fn thread_count(threads: usize) -> usize {
    match threads {
        0 => cores(),
        n => n,
    }
}

impl Index {
    /// Returns the current searcher: the one that was opened, or the processor in place of a lost card.
    fn searcher(&self) -> &Arc<dyn Opened> {
        self.trouble.searcher().unwrap_or(self.loaded.opened())
    }

    /// Returns the directory or the address of the index.
    pub fn path(&self) -> &Path {
        self.stored.path()
    }

    /// Returns the manifest of the index.
    pub fn manifest(&self) -> &Manifest {
        self.stored.manifest()
    }

    /// Returns the tier from which pages are read.
    pub fn tier(&self) -> &Arc<dyn Tier> {
        self.loaded.tier()
    }

    /// Returns the kind of tier of searches. For an index whose vectors are in a graphics card's memory that
    /// is `gpu`, although no tier is read.
    pub fn tier_kind(&self) -> &str {
        match self.trouble.searcher() {
            Some(_) => &self.loaded.tier().profile().kind,
            None => &self.loaded.profile().kind,
        }
    }

    /// Returns the numbers of the NUMA nodes over which its search threads are spread; empty if the system
    /// places the threads, as on a machine with one node.
    pub fn numa_nodes(&self) -> Vec<u32> {
        self.plan.nodes().map_or_else(Vec::new, |nodes| nodes.numbers())
    }

    /// Returns the number of vectors that are not deleted.
    pub fn len(&self) -> usize {
        let in_place = || self.loaded.opened().in_place().map(|placed| placed.counts().0);
        let fixed = || in_place().unwrap_or(self.stored.vectors());
        self.changing.as_ref().map_or_else(fixed, |changing| changing.now().vectors()) as usize
    }

    /// Returns the number of vectors with these changes. If other machines may change the index at any time,
    /// returns the largest possible number.
    fn vectors_with(&self, changes: Option<&Arc<Changes>>) -> usize {
        let in_place = || self.loaded.opened().in_place().map(|placed| placed.most());
        let fixed = || in_place().unwrap_or(self.stored.vectors());
        changes.map_or_else(fixed, |changes| changes.vectors()) as usize
    }

    /// Returns the id of the next inserted vector. The ids of all vectors are below it.
    pub fn next_id(&self) -> u32 {
        let in_place = || self.loaded.opened().in_place().map(|placed| placed.counts().1);
        let fixed = || in_place().unwrap_or(self.stored.vectors() as u32);
        self.changing.as_ref().map_or_else(fixed, |changing| changing.now().next())
    }

    /// Returns true if all vectors were deleted.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the dimensions.
    pub fn dim(&self) -> usize {
        self.stored.dim()
    }

    /// Returns the element of the given vectors and of queries. [`Manifest::stored`] has the stored form, if
    /// it differs.
    pub fn element(&self) -> Element {
        self.stored.element()
    }

    /// Returns the metric.
    pub fn metric(&self) -> Metric {
        self.stored.metric()
    }

    /// Returns the counters of the page cache, or of the sub-index cache of a `partitioned` index (its pages
    /// are then sub-indexes); `None` without one.
    pub fn cache_counters(&self) -> Option<CacheCounters> {
        self.loaded.cache_counters()
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
        let watched = self.watched(request);
        let chosen = self.choose(&watched, queries, rows.clone());
        let mut result = self.search_unwatched(queries, rows, &watched.request, waiting)?;
        result.notes.extend(watched.note);
        chosen.add(&result, None);
        Ok(result)
    }

    /// Answers the queries `rows` without an audit.
    fn search_unwatched<'a>(
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
        let fewer_threads = self.fewer_threads(options.threads, raw.count, &params);
        let lengths = self.lengths(&raw);
        let mut result = self.search_raw(raw, params, (threads, options.in_flight), changes, waiting)?;
        result.notes = notes;
        result.notes.extend(fewer_threads);
        result.notes.extend(self.trouble.note());
        result.note_short(self.loaded.opened().in_place().is_some());
        result.note_unlike(&self.chosen_reach(options.calibration), &lengths, options.effort);
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
        let (count, used) = (queries.count, self.stored.used(&params, threads));
        let job = self.job(queries, params, (threads, in_flight), waiting.control.deadline, changes)?;
        let answers = self.answers(&job, threads, waiting)?;
        let seconds = started.elapsed().as_secs_f64();
        let mut result = collect(answers, (count, self.stored.own_counters()), used, seconds)?;
        result.requests = self.requests().zip(before).map(|(now, before)| now.since(&before));
        Ok(result)
    }

    /// Returns the requests to a remote store since the index was opened; `None` for a local index.
    pub fn requests(&self) -> Option<Requests> {
        self.traffic.as_ref().map(StoreTraffic::since_open)
    }

    /// Returns how much of the data that is kept in memory has been loaded from a remote store; `None` if the
    /// open waited for all of it.
    pub fn arrival(&self) -> Option<Arrival> {
        self.loaded.opened().arrival()
    }

    /// Waits until all data that is kept in memory is loaded, or has failed to load ([`Index::arrival`] has
    /// the reason).
    ///
    /// # Errors
    /// Cancellation and deadline of `control`.
    pub fn wait(&self, control: Control<'_>) -> Result<(), IndexError> {
        while self.arrival().is_some_and(|arrival| arrival.here < arrival.all && arrival.failed.is_none()) {
            check_control(control)?;
            std::thread::sleep(ARRIVAL_CHECK);
        }
        Ok(())
    }

    /// Returns the counters of the cache in front of the store since the index was opened, including the
    /// open, by kind of object (`codes`, `centroids`, `vectors`, ...); empty without a cache.
    pub fn cache_use(&self) -> BTreeMap<String, CacheUse> {
        self.traffic.as_ref().map(StoreTraffic::cache_use).unwrap_or_default()
    }

    /// Returns the counters of that cache for the reads of searches, by dependent round: the first 12 rounds
    /// one by one, then all later ones together, up to the last round with reads. Reads for which no search
    /// waits, such as those that load codes, have no round.
    pub fn cache_rounds(&self) -> Vec<CacheUse> {
        self.traffic.as_ref().map(StoreTraffic::cache_rounds).unwrap_or_default()
    }

    /// Returns why the cache in front of the store does not use its disk, although one was configured.
    pub fn cache_trouble(&self) -> Option<&str> {
        self.traffic.as_ref()?.cache_trouble()
    }

    /// Returns the most bytes of memory of the cache in front of the store, which no budget of the index
    /// limits, since all indexes of the store share it; 0 without a cache.
    pub fn store_cache_bytes(&self) -> u64 {
        self.traffic.as_ref().map_or(0, StoreTraffic::cache_memory_bytes)
    }

    /// Returns the requests to a remote store that opened the index; `None` for a local index.
    pub fn opening_requests(&self) -> Option<Requests> {
        self.traffic.as_ref().map(StoreTraffic::opening)
    }

    /// Returns the job of a search on `threads` workers.
    fn job(
        &self,
        queries: RawQueries,
        params: SearchParams,
        (threads, given): (usize, Option<usize>),
        deadline: Option<Instant>,
        changes: Option<Arc<Changes>>,
    ) -> Result<Arc<Job>, IndexError> {
        let (family, context) = (self.stored.family(), self.contexts.here().clone());
        let planned = family.planned_list(&params);
        let wanted = given.unwrap_or_else(|| self.suited_in_flight(&params)).max(1);
        let in_flight = self.affordable_in_flight(wanted, threads, planned)?;
        let passes = self.passes(&params, queries.count, (threads, given));
        let job = Job::new(context, queries, params, (threads, in_flight), deadline);
        let job = job.with_query_bytes(family.query_bytes(planned)).with_passes(passes);
        Ok(Arc::new(job.with_changes(changes)))
    }
}
