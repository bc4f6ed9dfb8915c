//! One search, measured: the figures that `search` prints and that `bench` sweeps.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use bathyal_console::process_memory::peak_rss_bytes;
use bathyal_console::{Console, Failure};
use bathyal_index::open::{CardStats, PartStats, WrapTier};
use bathyal_index::{
    CacheUse, Effort, Index, IndexError, MemorySplit, OpenOptions, Requests, SearchOptions, SearchResult,
    SearchTotals,
};
use bathyal_tier::Tier;
use bathyal_tier::layer::delay::{DelayProfile, DelayTier};
use serde::Serialize;

use super::exact::Quality;
use super::neighbors::Found;
use super::not_counted::NotCounted;
use crate::arguments::{ModeName, SearchSettings};

/// What whoever reads a result must know about an emulated device.
const EMULATION: &str = "latency and bandwidth are injected, see docs/emulated-devices.md";

/// Microseconds from the start of a query to its answer, over all queries.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Latency {
    pub mean: f64,
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
}

impl Latency {
    /// Percentiles by nearest rank; all zero without queries.
    pub(super) fn of(latencies_ns: &[u64]) -> Latency {
        let mut sorted = latencies_ns.to_vec();
        sorted.sort_unstable();
        let microseconds = |ns: u64| ns as f64 / 1e3;
        let percentile = |share: f64| {
            let rank = (share * sorted.len() as f64).ceil() as usize;
            sorted.get(rank.saturating_sub(1)).copied().map_or(0.0, microseconds)
        };
        let mean = microseconds(sorted.iter().sum()) / sorted.len().max(1) as f64;
        Latency { mean, p50: percentile(0.50), p95: percentile(0.95), p99: percentile(0.99) }
    }
}

/// What a batch of queries came to. The names of the fields are the keys of `--json`: they are stable.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Measurement {
    #[serde(flatten)]
    pub quality: Quality,
    /// The recall asked for; `None` if something else was.
    pub recall_target: Option<f32>,
    /// The overall ratio asked for; `None` if something else was.
    pub ratio_target: Option<f32>,
    pub queries: usize,
    pub k: usize,
    pub threads: usize,
    pub search_list: u32,
    /// Groups, posting lists or blocks of each hash table; `None` of a family without.
    pub probes: Option<u32>,
    /// Further places of each hash table; `None` if none were asked for.
    pub multi_probe: Option<u32>,
    pub beam_width: Option<u32>,
    pub mode: &'static str,
    pub tier: String,
    /// The device that is emulated, if any: its latency and bandwidth are not those of this machine.
    pub emulated: Option<String>,
    /// How the tier reaches its bytes.
    pub method: String,
    pub metric: &'static str,
    pub seconds: f64,
    pub qps: f64,
    pub latency_us: Latency,
    /// Seconds that the index took to open.
    pub open_seconds: f64,
    /// Processor time of all threads, by queries; `None` where the system does not say.
    pub processor_us_per_query: Option<f64>,
    /// Where the time of a query went, of `read` on the wall's clock and of the others of the processor; `None` unless that
    /// was asked for. Queries that are in flight at once wait at the same time.
    pub phase_us_per_query: Option<BTreeMap<&'static str, f64>>,
    pub reads_per_query: f64,
    pub bytes_per_query: f64,
    pub hops_per_query: f64,
    /// Estimated from codes and computed from full vectors together.
    pub distance_computations_per_query: f64,
    pub code_distances_per_query: f64,
    pub full_distances_per_query: f64,
    /// What only the index's family counts, each as `NAME_per_query`.
    #[serde(flatten)]
    pub own_per_query: BTreeMap<String, f64>,
    /// What the open index is computed to hold while it is searched like this.
    pub dram_bytes: u64,
    /// What a query that is under way is computed to hold at most.
    pub query_state_bytes: u64,
    /// What `dram_bytes` is made of.
    pub memory_split: MemorySplit,
    /// What the process holds besides, which `--memory` does not limit.
    pub not_counted: NotCounted,
    /// Share of the pages that the cache answered; `None` without a cache.
    pub cache_hit_rate: Option<f64>,
    pub peak_rss_bytes: Option<u64>,
    pub index_bytes: u64,
    pub data_bytes: u64,
    /// `index_bytes / data_bytes`.
    pub amplification: f64,
    /// The graphics card that searched, and what it did; absent in JSON where the processor searched alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub card: Option<CardStats>,
    /// Why the processor searched although a graphics card was wanted; absent in JSON where it did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub card_trouble: Option<String>,
    /// What the store was asked for all queries together; absent in JSON of an index that is here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<Requests>,
    /// What the store was asked to open the index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opening_requests: Option<Requests>,
    /// What the cache in front of the store did since the index was opened, by kind of object; absent in JSON without a cache.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub store_cache: BTreeMap<String, CacheUse>,
    /// The same of what searches read, by dependent round: the first 12 one by one, then all later ones together.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub store_cache_rounds: Vec<CacheUse>,
    /// Why that cache does without its disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store_cache_trouble: Option<String>,
    /// What each part of a striped index has served since it was opened; absent in JSON of others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartStats>,
    /// What the first queries have found; absent in JSON where none was to be shown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub first_neighbors: Vec<Found>,
    /// What the user should know about the answer.
    pub notes: Vec<String>,
}

impl Measurement {
    /// The figures of `found`, which `index` answered under `settings` and `effort`.
    pub(super) fn of(
        index: &Index,
        settings: &SearchSettings,
        effort: Effort,
        found: &SearchResult,
        quality: Quality,
        spent: Spent,
        not_counted: NotCounted,
    ) -> Measurement {
        let queries = found.latencies_ns.len();
        let mean = |total: u64| total as f64 / queries.max(1) as f64;
        let totals = &found.totals;
        let options = search_options(settings, effort);
        let manifest = index.manifest();
        let index_bytes = manifest.index_bytes() + index.changed().log_bytes;
        Measurement {
            quality,
            recall_target: if let Effort::Recall(recall) = effort { Some(recall) } else { None },
            ratio_target: if let Effort::Ratio(ratio) = effort { Some(ratio) } else { None },
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
            latency_us: Latency::of(&found.latencies_ns),
            open_seconds: spent.open_seconds,
            processor_us_per_query: spent.processor_seconds.map(|s| s * 1e6 / queries.max(1) as f64),
            phase_us_per_query: phases(found, queries),
            reads_per_query: mean(totals.reads),
            bytes_per_query: mean(totals.bytes),
            hops_per_query: mean(totals.hops),
            distance_computations_per_query: mean(totals.code_distances + totals.full_distances),
            code_distances_per_query: mean(totals.code_distances),
            full_distances_per_query: mean(totals.full_distances),
            own_per_query: own_per_query(totals, queries),
            dram_bytes: index.dram_bytes_of(found, &options),
            query_state_bytes: index.query_bytes(&options).unwrap_or_default(),
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

/// Time that a search took besides what its result says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spent {
    /// Seconds that the index took to open.
    pub open_seconds: f64,
    /// Processor time of all threads while queries were answered.
    pub processor_seconds: Option<f64>,
}

/// Mean microseconds by phase.
fn phases(found: &SearchResult, queries: usize) -> Option<BTreeMap<&'static str, f64>> {
    let mean = |ns: u64| ns as f64 / 1e3 / queries.max(1) as f64;
    let phases = found.phases.iter().map(|phase| (phase.phase, mean(phase.ns)));
    (!found.phases.is_empty()).then(|| phases.collect())
}

/// The means of what only some families count, each as `NAME_per_query`.
pub(super) fn own_per_query(totals: &SearchTotals, queries: usize) -> BTreeMap<String, f64> {
    let mean = |total: u64| total as f64 / queries.max(1) as f64;
    totals.own.iter().map(|(counter, total)| (format!("{}_per_query", counter.name), mean(total))).collect()
}

/// The same for people: the end of the line that says what a query cost.
pub(super) fn own_counters(per_query: &BTreeMap<String, f64>) -> String {
    let words = per_query.iter().map(|(name, mean)| {
        let name = name.trim_end_matches("_per_query").replace('_', " ");
        format!(", {mean:.1} {name}")
    });
    words.collect()
}

/// Opens the index at `path` as `settings` want it, showing how it is loaded where that takes time.
pub(super) fn open(path: &Path, settings: &SearchSettings, console: &Console) -> Result<Index, Failure> {
    let began = Instant::now();
    let index = Index::open_attended(path, &open_options(settings)?, &console.progress())?;
    tell_opened(path, &index, began, console);
    Ok(index)
}

/// Says what was opened, to those who want to know.
pub(super) fn tell_opened(path: &Path, index: &Index, began: Instant, console: &Console) {
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

/// How `settings` want the index opened.
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

/// Puts the emulation of `device` on top of a tier.
pub(super) fn emulating(device: DelayProfile) -> WrapTier {
    Arc::new(move |tier| Ok(Arc::new(DelayTier::new(tier, device.clone())) as Arc<dyn Tier>))
}

/// A line that says which device is emulated; empty where none is.
pub(super) fn remark_on_emulation(device: Option<&str>) -> String {
    device.map_or(String::new(), |device| format!("\nemulated         {device}: {EMULATION}"))
}

/// How `settings` and `effort` want it searched.
pub(super) fn search_options(settings: &SearchSettings, effort: Effort) -> SearchOptions {
    SearchOptions {
        k: settings.k as usize,
        effort,
        probes: settings.probes,
        prune: settings.prune,
        beam_width: settings.beam_width,
        multi_probe: settings.multi_probe,
        threads: settings.threads,
        mode: settings.mode.map(ModeName::mode),
        in_flight: settings.in_flight.map(|queries| queries as usize),
        timed: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_nearest_rank() {
        let latency = Latency::of(&(1..=100).map(|us| us * 1000).rev().collect::<Vec<u64>>());
        assert_eq!((latency.p50, latency.p95, latency.p99, latency.mean), (50.0, 95.0, 99.0, 50.5));
        let one = Latency::of(&[2500]);
        assert_eq!((one.p50, one.p99, one.mean), (2.5, 2.5, 2.5));
        assert_eq!(Latency::of(&[]).p99, 0.0);
    }
}
