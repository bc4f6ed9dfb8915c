//! Hit rates of a cache in front of the store (figures 5, 6 and 20 to 25). The reads of queries are traced
//! with their rounds and replayed through exact simulations of two policies. No cache is built and nothing is
//! emulated: hit rates are exact for this order of queries, and the equations give the time that they save.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bathyal_console::Failure;
use bathyal_index::COUNTED_ROUNDS;
use bathyal_index::cost::demand::Demand;
use bathyal_tier::Tier;
use bathyal_tier::layer::trace::{Trace, TraceRecord, TraceTier};
use serde::Serialize;

use super::effort::{BEAM, SweepEffort};
use super::measure::CloudExperiment;
use super::points::{CloudPoint, Measurements, compute_ns, per_query};
use super::policy::{EvictionPolicy, S3Fifo, SegmentedLru};
use super::sets::CloudSet;
use super::store::StoredIndex;
use super::subjects::{CloudSubject, FEWER_REPLICAS, GRAPH, SHARE, SPANN};

/// Bytes of a cached block of a graph (section 5.1).
const BLOCK_BYTES: u64 = 4096;
/// Cache sizes, as divisors of the index size.
const PARTS: [u64; 4] = [16, 8, 4, 2];
/// Recall that the traced searches reach, or come closest to (figures 23 to 25 have 0.97 to 0.995).
const RECALL: f64 = 0.95;
/// The compared values of W (figure 25).
const BEAMS: [u32; 3] = [4, BEAM, 64];
/// Most traced reads, of 48 bytes each.
const MOST_READS: usize = 1 << 24;
/// Longest wait for the last traced reads.
const PATIENCE: Duration = Duration::from_secs(10);
/// Concurrent queries for which the gain of a cache is computed.
const CONCURRENCIES: [usize; 2] = [4, 64];

/// Names of the policies.
const POLICIES: [&str; 2] = ["slru", "s3-fifo"];

/// Result of a cache of one size and policy in front of one search.
#[derive(Clone, Debug, Serialize)]
pub(super) struct CacheResult {
    pub index: String,
    pub effort: SweepEffort,
    pub recall: f64,
    pub policy: &'static str,
    pub cache_bytes: u64,
    /// The cache has 1/`part` of the bytes of the index that it is compared with.
    pub part: u64,
    /// Share of requested blocks or lists that hit, and share of their bytes.
    pub hit_rate: f64,
    pub byte_hit_rate: f64,
    /// Waves of requests per query, and how many of them hit completely.
    pub waves: f64,
    pub saved_waves: f64,
    /// Hit rate of each of the first waves, and of all later ones together.
    pub by_wave: Vec<f64>,
    /// Concurrent queries, and queries per second by the equations without and with the cache, for 4 and 64
    /// concurrent queries.
    pub computed_qps: Vec<(usize, f64, f64)>,
}

/// Keys and bytes of the blocks or lists of one query, by wave. Requests of a wave are sent together.
type Waves = Vec<Vec<(u64, u64)>>;

/// A search and the reads of each of its queries.
struct TracedSearch {
    index: String,
    effort: SweepEffort,
    recall: f64,
    demand: Demand,
    /// Waits of a query for reads.
    waits: f64,
    queries: Vec<Waves>,
}

/// Traces the searches of the first set and replays them through caches. The points of `measured` give the
/// effort that reaches the recall.
pub(super) fn measure(
    experiment: &CloudExperiment<'_>,
    set: &CloudSet,
    measured: &mut Measurements,
) -> Result<(), Failure> {
    let fewer = FEWER_REPLICAS.map(|replicas| CloudSubject::Spann { centroid_share: SHARE, replicas });
    let mut list_index_bytes = 0;
    for subject in [GRAPH, SPANN].into_iter().chain(fewer) {
        let (path, manifest) = subject.find_or_build(set, experiment.arguments.metric, experiment.console)?;
        let stored = StoredIndex::copy(&path, (set, subject), experiment.emulation, experiment.console)?;
        let index_bytes = manifest.paged_file().bytes;
        // Lists with fewer replicas get caches of as many bytes as the lists of the paper.
        list_index_bytes = if subject == SPANN { index_bytes } else { list_index_bytes };
        let compared =
            if matches!(subject, CloudSubject::Spann { .. }) { list_index_bytes } else { index_bytes };
        let beams: Vec<Option<u32>> = if subject == GRAPH { BEAMS.map(Some).to_vec() } else { vec![None] };
        for beam in beams {
            let Some(point) = reaching(&measured.points, set, subject, beam) else { continue };
            let Some(traced) = trace_search(experiment, set, &stored, subject, point)? else {
                measured.note(&format!(
                    "caches in front of {}, {}: left out, because the trace does not have as many reads as \
                     were counted",
                    subject.name(),
                    point.effort.words()
                ))?;
                continue;
            };
            for part in PARTS {
                for policy in POLICIES {
                    measured.cached(&replay(experiment, &traced, policy, (compared / part, part)))?;
                }
            }
        }
    }
    Ok(())
}

/// Returns the point of the least effort that reaches the recall, or the point of the highest recall.
fn reaching<'p>(
    points: &'p [CloudPoint],
    set: &CloudSet,
    subject: CloudSubject,
    beam: Option<u32>,
) -> Option<&'p CloudPoint> {
    let name = subject.name();
    let candidates = || {
        points
            .iter()
            .filter(|point| point.set == set.name && point.index == name && point.effort.beam_width() == beam)
    };
    candidates()
        .find(|point| point.recall >= RECALL)
        .or_else(|| candidates().max_by(|a, b| a.recall.total_cmp(&b.recall)))
}

/// Searches one query after the other and splits the traced reads by query and wave; `None` if the trace does
/// not have as many reads as the search counted.
fn trace_search(
    experiment: &CloudExperiment<'_>,
    set: &CloudSet,
    stored: &StoredIndex,
    subject: CloudSubject,
    point: &CloudPoint,
) -> Result<Option<TracedSearch>, Failure> {
    let trace = Trace::in_memory(MOST_READS);
    let sink = trace.clone();
    let wrap = move |tier: Arc<dyn Tier>| Ok(Arc::new(TraceTier::new(tier, sink.clone())) as Arc<dyn Tier>);
    let index = stored.open_fast(Some(Arc::new(wrap)))?;
    let (effort, recall) = (point.effort, point.recall);
    let options = effort.options(experiment.arguments.k, 1, 1);
    let result = index.search(&set.query_set.queries, &options, experiment.control)?;
    // Queues deliver their last records when search threads close them, some time after the search.
    drop(index);
    let reads = result.totals.reads as usize;
    let began = Instant::now();
    while trace.records().len() < reads && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut records = trace.records();
    if records.len() != reads {
        return Ok(None);
    }
    records.sort_by_key(|record| record.submitted_ns);
    let mean = |total: u64| per_query(&result, total);
    let waits = count_waves(&records) / result.latencies_ns.len().max(1) as f64;
    let demand = Demand {
        rounds: mean(result.totals.hops),
        reads: mean(result.requests.map_or(0, |requests| requests.requests)),
        moved_bytes: mean(result.totals.bytes),
        compute_ns: mean(compute_ns(&result)),
    };
    let is_graph = matches!(subject, CloudSubject::Graph { .. });
    let mut rest = records.as_slice();
    let queries = result.per_query.iter().map(|query| {
        let (reads, others) = rest.split_at((query.reads as usize).min(rest.len()));
        rest = others;
        reads
            .chunk_by(|a, b| a.submitted_ns == b.submitted_ns)
            .map(|wave| requested(wave, is_graph))
            .collect()
    });
    let queries = queries.collect();
    Ok(Some(TracedSearch { index: subject.name(), effort, recall, demand, waits, queries }))
}

/// Counts the submissions; each belongs to one query.
fn count_waves(records: &[TraceRecord]) -> f64 {
    records.chunk_by(|a, b| a.submitted_ns == b.submitted_ns).count() as f64
}

/// Returns keys and bytes that a wave requests: each block once if `blocks`, as for graphs, else whole reads,
/// which are lists.
fn requested(wave: &[TraceRecord], blocks: bool) -> Vec<(u64, u64)> {
    let mut all: Vec<(u64, u64)> = match blocks {
        true => wave.iter().flat_map(blocks_of).map(|block| (block, BLOCK_BYTES)).collect(),
        false => wave.iter().map(|read| (read.offset, u64::from(read.len))).collect(),
    };
    all.sort_unstable();
    all.dedup();
    all
}

fn blocks_of(read: &TraceRecord) -> impl Iterator<Item = u64> + use<> {
    let end = read.offset + u64::from(read.len).max(1);
    read.offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES)
}

/// Replays all queries through a cache that is empty at first.
fn replay(
    experiment: &CloudExperiment<'_>,
    traced: &TracedSearch,
    policy: &'static str,
    (cache_bytes, part): (u64, u64),
) -> CacheResult {
    let mut cache: Box<dyn EvictionPolicy> = match policy {
        "slru" => Box::new(SegmentedLru::new(cache_bytes)),
        _ => Box::new(S3Fifo::new(cache_bytes)),
    };
    let (mut all, mut hits, mut all_bytes, mut hit_bytes, mut waves, mut saved) = (0_u64, 0, 0, 0, 0, 0);
    let mut by_wave = [(0_u64, 0_u64); COUNTED_ROUNDS + 1];
    for wave in traced.queries.iter().flat_map(|query| query.iter().enumerate()) {
        let (number, requests) = wave;
        let counts = &mut by_wave[number.min(COUNTED_ROUNDS)];
        let mut missed = false;
        for (key, bytes) in requests {
            let hit = cache.touch(*key, *bytes);
            (all, all_bytes, counts.0) = (all + 1, all_bytes + bytes, counts.0 + 1);
            if hit {
                (hits, hit_bytes, counts.1) = (hits + 1, hit_bytes + bytes, counts.1 + 1);
            }
            missed |= !hit;
        }
        (waves, saved) = (waves + 1, saved + u64::from(!missed));
    }
    let share = |part: u64, all: u64| part as f64 / all.max(1) as f64;
    let (hit_rate, byte_hit_rate) = (share(hits, all), share(hit_bytes, all_bytes));
    let queries = traced.queries.len() as u64;
    let missing_waves = 1.0 - share(saved, waves);
    let (uncached, store) = (traced.demand, experiment.emulation.times());
    let cached = Demand {
        rounds: uncached.rounds * missing_waves,
        reads: uncached.reads * (1.0 - hit_rate),
        moved_bytes: uncached.moved_bytes * (1.0 - byte_hit_rate),
        ..uncached
    };
    let computed = |concurrency: usize| {
        let qps =
            |demand, waits| store.predict(demand, waits, concurrency as f64, experiment.cores as f64).qps;
        (concurrency, qps(&uncached, traced.waits), qps(&cached, traced.waits * missing_waves))
    };
    CacheResult {
        index: traced.index.clone(),
        effort: traced.effort,
        recall: traced.recall,
        policy,
        cache_bytes,
        part,
        hit_rate,
        byte_hit_rate,
        waves: share(waves, queries),
        saved_waves: share(saved, queries),
        by_wave: by_wave.iter().filter(|(all, _)| *all > 0).map(|(all, hits)| share(*hits, *all)).collect(),
        computed_qps: CONCURRENCIES.map(computed).to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_blocks_of_graphs_or_whole_lists() {
        let read = |offset, len| TraceRecord {
            submitted_ns: 1,
            latency_ns: 0,
            offset,
            len,
            queue: 0,
            result: i64::from(len),
        };
        let wave = [read(4096, 4096), read(6000, 4096), read(0, 1)];
        assert_eq!(requested(&wave, true), [(0, 4096), (1, 4096), (2, 4096)]);
        assert_eq!(requested(&wave, false), [(0, 1), (4096, 4096), (6000, 4096)]);
    }
}
