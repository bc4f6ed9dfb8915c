//! The measurements of one search, as `search` and `bench` print them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use bathyal_console::process_memory::peak_rss_bytes;
use bathyal_console::{Console, Failure};
use bathyal_index::open::{CardStats, PartStats, WrapTier};
use bathyal_index::{
    CacheUse, Effort, Index, IndexError, MemorySplit, OpenOptions, Requests, SearchOptions, SearchRequest,
    SearchResult, SearchTotals, StoreOptions,
};
use bathyal_tier::Tier;
use bathyal_tier::layer::delay::{DelayProfile, DelayTier};
use serde::Serialize;

use super::exact::Quality;
use super::memory_node::is_address;
use super::neighbors::QueryNeighbors;
use super::not_counted::NotCounted;
use crate::arguments::{ModeName, SearchSettings};

/// A note on results of emulated devices.
const EMULATION: &str = "latency and bandwidth are injected, see docs/emulated-devices.md";

/// Microseconds from the start of a query to its answer, over all queries.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct LatencySummary {
    pub mean: f64,
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
}

impl LatencySummary {
    /// Percentiles by nearest rank; all zero without queries.
    pub(super) fn of(latencies_ns: &[u64]) -> LatencySummary {
        let mut sorted = latencies_ns.to_vec();
        sorted.sort_unstable();
        let microseconds = |ns: u64| ns as f64 / 1e3;
        let percentile = |share: f64| {
            let rank = (share * sorted.len() as f64).ceil() as usize;
            sorted.get(rank.saturating_sub(1)).copied().map_or(0.0, microseconds)
        };
        let mean = microseconds(sorted.iter().sum()) / sorted.len().max(1) as f64;
        LatencySummary { mean, p50: percentile(0.50), p95: percentile(0.95), p99: percentile(0.99) }
    }
}

/// The measurements of a batch of queries. The names of the fields are the keys of `--json`: they are stable.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Measurement {
    #[serde(flatten)]
    pub quality: Quality,
    /// The target recall; `None` if the effort was given in another way.
    pub recall_target: Option<f32>,
    /// The target overall ratio; `None` if the effort was given in another way.
    pub ratio_target: Option<f32>,
    pub queries: usize,
    pub k: usize,
    pub threads: usize,
    pub search_list: u32,
    /// Groups, posting lists or blocks of each hash table; `None` for families without them.
    pub probes: Option<u32>,
    /// Additional buckets of each hash table; `None` if the option was not given.
    pub multi_probe: Option<u32>,
    pub beam_width: Option<u32>,
    pub mode: &'static str,
    pub tier: String,
    /// The emulated device, if any: its latency and bandwidth are not those of this machine.
    pub emulated: Option<String>,
    /// How the tier reaches its bytes.
    pub method: String,
    pub metric: &'static str,
    pub seconds: f64,
    pub qps: f64,
    pub latency_us: LatencySummary,
    /// Seconds that opening the index took.
    pub open_seconds: f64,
    /// Processor time of all threads, per query.
    pub processor_us_per_query: f64,
    /// Time of a query by phase: wall-clock time for `read`, processor time for the other phases; `None`
    /// without `--phases`. Queries in flight wait at the same time.
    pub phase_us_per_query: Option<BTreeMap<&'static str, f64>>,
    pub reads_per_query: f64,
    pub bytes_per_query: f64,
    pub hops_per_query: f64,
    /// Distances estimated from codes and distances computed from full vectors, together.
    pub distance_computations_per_query: f64,
    pub code_distances_per_query: f64,
    pub full_distances_per_query: f64,
    /// Counters that only the index's family has, each as `NAME_per_query`.
    #[serde(flatten)]
    pub own_per_query: BTreeMap<String, f64>,
    /// Computed bytes of memory of the open index during this search.
    pub dram_bytes: u64,
    /// Computed most bytes of memory of a query in flight.
    pub query_state_bytes: u64,
    /// The parts of `dram_bytes`.
    pub memory_split: MemorySplit,
    /// Memory of the process that `--memory` does not limit.
    pub not_counted: NotCounted,
    /// Share of the pages that were in the cache; `None` without a cache.
    pub cache_hit_rate: Option<f64>,
    pub peak_rss_bytes: Option<u64>,
    pub index_bytes: u64,
    pub data_bytes: u64,
    /// `index_bytes / data_bytes`.
    pub amplification: f64,
    /// The graphics card that searched, and its counters; absent in JSON if only the processor searched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub card: Option<CardStats>,
    /// The reason for which the processor searched in place of the card; absent in JSON otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub card_trouble: Option<String>,
    /// Requests to the store for all queries together; absent in JSON for an index on this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<Requests>,
    /// Requests to the store while the index was opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opening_requests: Option<Requests>,
    /// Counters of the cache in front of the store since the index was opened, by kind of object; absent in
    /// JSON without a cache.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub store_cache: BTreeMap<String, CacheUse>,
    /// The same counters for reads of searches, by dependent round: the first 12 one by one, then all later
    /// ones together.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub store_cache_rounds: Vec<CacheUse>,
    /// The reason for which that cache does not use its disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store_cache_trouble: Option<String>,
    /// Counters of each part of a striped index since it was opened; absent in JSON for other indexes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartStats>,
    /// The neighbours of the first queries; absent in JSON if none are shown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub first_neighbors: Vec<QueryNeighbors>,
    /// Notes for the user about the answer.
    pub notes: Vec<String>,
}

impl Measurement {
    /// Collects the measurements of `found`, the answers of `index` under `settings` and `options`.
    pub(super) fn of(
        index: &Index,
        settings: &SearchSettings,
        options: &SearchOptions,
        found: &SearchResult,
        quality: Quality,
        spent: Spent,
        not_counted: NotCounted,
    ) -> Measurement {
        let queries = found.latencies_ns.len();
        let mean = |total: u64| total as f64 / queries.max(1) as f64;
        let totals = &found.totals;
        let manifest = index.manifest();
        let index_bytes = manifest.index_bytes() + index.changed().log_bytes;
        Measurement {
            quality,
            recall_target: if let Effort::Recall(recall) = options.effort { Some(recall) } else { None },
            ratio_target: if let Effort::Ratio(ratio) = options.effort { Some(ratio) } else { None },
            queries,
            k: found.k,
            threads: found.threads,
            search_list: found.search_list,
            probes: found.probes,
            multi_probe: options.multi_probe,
            beam_width: options.beam_width,
            mode: settings.mode.unwrap_or_else(|| index.default_mode().into()).name(),
            tier: settings.tier_name(index.tier_kind()),
            emulated: settings.emulated(),
            method: index.tier().profile().method.clone(),
            metric: index.metric().name_over(index.element()),
            seconds: found.seconds,
            qps: if found.seconds > 0.0 { queries as f64 / found.seconds } else { 0.0 },
            latency_us: LatencySummary::of(&found.latencies_ns),
            open_seconds: spent.open_seconds,
            processor_us_per_query: spent.processor_ns as f64 / 1e3 / queries.max(1) as f64,
            phase_us_per_query: phases(found, queries),
            reads_per_query: mean(totals.reads),
            bytes_per_query: mean(totals.bytes),
            hops_per_query: mean(totals.hops),
            distance_computations_per_query: mean(totals.code_distances + totals.full_distances),
            code_distances_per_query: mean(totals.code_distances),
            full_distances_per_query: mean(totals.full_distances),
            own_per_query: own_per_query(totals, queries),
            dram_bytes: index.dram_bytes_of(found, options),
            query_state_bytes: index.query_bytes(options).unwrap_or_default(),
            memory_split: *index.memory_split(),
            not_counted,
            cache_hit_rate: index.cache_counters().map(|counters| counters.hit_rate()),
            peak_rss_bytes: peak_rss_bytes(),
            index_bytes,
            data_bytes: manifest.data_bytes,
            amplification: index_bytes as f64 / manifest.data_bytes.max(1) as f64,
            card: index.card(),
            card_trouble: index.card_trouble(),
            requests: found.requests,
            opening_requests: index.opening_requests(),
            store_cache: index.cache_use(),
            store_cache_rounds: index.cache_rounds(),
            store_cache_trouble: index.cache_trouble().map(str::to_owned),
            parts: index.stats().parts,
            first_neighbors: Vec::new(),
            notes: found.notes.clone(),
        }
    }
}

/// Times of a search that its result does not hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spent {
    /// Seconds that opening the index took.
    pub open_seconds: f64,
    /// Processor time of all threads while queries were answered.
    pub processor_ns: u64,
}

/// Returns mean microseconds per query by phase.
fn phases(found: &SearchResult, queries: usize) -> Option<BTreeMap<&'static str, f64>> {
    let mean = |ns: u64| ns as f64 / 1e3 / queries.max(1) as f64;
    let phases = found.phases.iter().map(|phase| (phase.phase, mean(phase.ns)));
    (!found.phases.is_empty()).then(|| phases.collect())
}

/// Returns the means of the counters that only some families have, each as `NAME_per_query`.
pub(super) fn own_per_query(totals: &SearchTotals, queries: usize) -> BTreeMap<String, f64> {
    let mean = |total: u64| total as f64 / queries.max(1) as f64;
    totals.own.iter().map(|(counter, total)| (format!("{}_per_query", counter.name), mean(total))).collect()
}

/// Returns the same counters as text: the end of the line with the costs of a query.
pub(super) fn own_counters(per_query: &BTreeMap<String, f64>) -> String {
    let words = per_query.iter().map(|(name, mean)| {
        let name = name.trim_end_matches("_per_query").replace('_', " ");
        format!(", {mean:.1} {name}")
    });
    words.collect()
}

/// Opens the index at `path` with `settings` for `searches`, and shows progress while it is loaded.
pub(super) fn open(
    path: &Path,
    settings: &SearchSettings,
    searches: &[SearchOptions],
    console: &Console,
) -> Result<Index, Failure> {
    open_one_of(path, &[path], settings, searches, console)
}

/// Returns the paths of a command that takes several indexes.
pub(super) fn indexes<'a>(first: &'a PathBuf, others: &'a [PathBuf]) -> Vec<&'a Path> {
    std::iter::once(first).chain(others).map(PathBuf::as_path).collect()
}

/// Opens the index at `path`, one of `all`, as [`open`] does. Options of a store are those of the addresses
/// among `all`: folders beside an address are opened without them.
pub(super) fn open_one_of(
    path: &Path,
    all: &[&Path],
    settings: &SearchSettings,
    searches: &[SearchOptions],
    console: &Console,
) -> Result<Index, Failure> {
    let began = Instant::now();
    let mut options = searches.iter().fold(open_options(settings)?, OpenOptions::for_search);
    if !is_address(path) && all.iter().any(|other| is_address(other)) {
        options.store = StoreOptions::default();
    }
    let index = Index::open_attended(path, &options, &console.progress())?;
    print_opened(path, &index, began, console);
    Ok(index)
}

/// Prints the opened index as a detail.
pub(super) fn print_opened(path: &Path, index: &Index, began: Instant, console: &Console) {
    let manifest = index.manifest();
    console.detail(&format!(
        "opened {}: {} index, {} vectors of {} {}, {}, in {:.2} s",
        path.display(),
        manifest.family,
        index.len(),
        manifest.dim,
        manifest.element,
        manifest.metric,
        began.elapsed().as_secs_f64()
    ));
}

/// Returns the options with which `settings` open an index.
fn open_options(settings: &SearchSettings) -> Result<OpenOptions, Failure> {
    let wrap = settings.delay.clone().map(emulating);
    let options = OpenOptions {
        tier: settings.tier.clone(),
        numa: settings.numa,
        stripe: settings.parts.stripe.clone(),
        memory_bytes: settings.memory,
        profile: settings.profile.clone(),
        store: settings.parts.store.options()?,
        mini_batch: settings.mini_batch,
        wrap,
        ..OpenOptions::default()
    };
    Ok(options.on(settings.device).map_err(IndexError::from)?)
}

/// Returns a function that wraps a tier in an emulation of `device`.
pub(super) fn emulating(device: DelayProfile) -> WrapTier {
    Arc::new(move |tier| Ok(Arc::new(DelayTier::new(tier, device.clone())) as Arc<dyn Tier>))
}

/// Returns a line that names the emulated device; empty without one.
pub(super) fn emulation_note(device: Option<&str>) -> String {
    device.map_or(String::new(), |device| format!("\nemulated         {device}: {EMULATION}"))
}

/// Returns the search options of `settings`, with `effort`. Options that no index accepts are refused,
/// before an index is opened.
pub(super) fn search_options(settings: &SearchSettings, effort: Effort) -> Result<SearchOptions, Failure> {
    let options = SearchOptions {
        k: settings.k as usize,
        effort,
        probes: settings.probes,
        prune: settings.prune,
        beam_width: settings.beam_width,
        multi_probe: settings.multi_probe,
        threads: settings.threads,
        mode: settings.mode.map(ModeName::mode),
        in_flight: settings.in_flight.map(|queries| queries as usize),
        ..SearchOptions::default()
    };
    SearchRequest::new(&options).map_err(Failure::refused)?;
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_use_the_nearest_rank() {
        let latency = LatencySummary::of(&(1..=100).map(|us| us * 1000).rev().collect::<Vec<u64>>());
        assert_eq!((latency.p50, latency.p95, latency.p99, latency.mean), (50.0, 95.0, 99.0, 50.5));
        let one = LatencySummary::of(&[2500]);
        assert_eq!((one.p50, one.p99, one.mean), (2.5, 2.5, 2.5));
        assert_eq!(LatencySummary::of(&[]).p99, 0.0);
    }
}
