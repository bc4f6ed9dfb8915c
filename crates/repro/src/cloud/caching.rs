//! What a cache in front of the store would hold (figures 5, 6 and 20 to 25): the reads of queries are written down, with their
//! rounds, and run through exact simulations of two policies. No cache is built, and nothing of it is emulated: hit rates are
//! exact for this order of queries, and what they save is computed by the equations.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bathyal_console::Failure;
use bathyal_index::COUNTED_ROUNDS;
use bathyal_tier::Tier;
use bathyal_tier::layer::trace::{Trace, TraceRecord, TraceTier};
use serde::Serialize;

use super::effort::{BEAM, Effort};
use super::measure::Lab;
use super::model::{Asked, expect};
use super::points::{Measured, Point, compute_ns, per_query};
use super::policy::{Policy, S3Fifo, SegmentedLru};
use super::sets::Set;
use super::store::Stored;
use super::subjects::{FEWER_REPLICAS, GRAPH, SHARE, SPANN, Subject};

/// Bytes of a block that is cached of a graph (section 5.1).
const BLOCK_BYTES: u64 = 4096;
/// Sizes of the cache, in parts of the index.
const PARTS: [u64; 4] = [16, 8, 4, 2];
/// Recall that the traced searches reach, or come as near to as they do (figures 23 to 25 have 0.97 to 0.995).
const RECALL: f64 = 0.95;
/// W that is compared (figure 25).
const BEAMS: [u32; 3] = [4, BEAM, 64];
/// Reads that are written down, at most: 48 bytes each.
const MOST_READS: usize = 1 << 24;
/// How long the last reads are waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// Queries at once for which it is computed what a cache gains.
const CONCURRENCIES: [usize; 2] = [4, 64];

/// The policies.
const POLICIES: [&str; 2] = ["slru", "s3-fifo"];

/// A cache of one size and policy in front of one search.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Cached {
    pub index: String,
    pub effort: Effort,
    pub recall: f64,
    pub policy: &'static str,
    pub cache_bytes: u64,
    /// In parts of the index that it is compared by.
    pub part: u64,
    /// Of blocks or lists, and of their bytes.
    pub hit_rate: f64,
    pub byte_hit_rate: f64,
    /// Waves of requests a query, and those of them that need none any more.
    pub waves: f64,
    pub saved_waves: f64,
    /// The hit rate of the first waves, and of all that come after.
    pub by_wave: Vec<f64>,
    /// Queries a second by the equations with 4 and 64 at once, without the cache and with it.
    pub computed_qps: Vec<(usize, f64, f64)>,
}

/// The blocks or lists of one query, by wave: requests that are sent at once.
type Waves = Vec<Vec<(u64, u64)>>;

/// A traced search.
struct Traced {
    index: String,
    effort: Effort,
    recall: f64,
    asked: Asked,
    queries: Vec<Waves>,
}

/// Traces the searches of the first set and runs them through caches; `measured` says which efforts reach the recall.
pub(super) fn measure(lab: &Lab<'_>, set: &Set, measured: &mut Measured) -> Result<(), Failure> {
    let fewer = FEWER_REPLICAS.map(|replicas| Subject::Spann { centroid_share: SHARE, replicas });
    let mut of_lists = 0;
    for subject in [GRAPH, SPANN].into_iter().chain(fewer) {
        let (path, manifest) = subject.find_or_build(set, lab.arguments.metric, lab.console)?;
        let stored = Stored::copy(&path, (set, subject), lab.emulation, lab.console)?;
        let index_bytes = manifest.paged_file().bytes;
        // Lists of fewer copies are compared in as many bytes.
        of_lists = if subject == SPANN { index_bytes } else { of_lists };
        let compared = if matches!(subject, Subject::Spann { .. }) { of_lists } else { index_bytes };
        let beams: Vec<Option<u32>> = if subject == GRAPH { BEAMS.map(Some).to_vec() } else { vec![None] };
        for beam in beams {
            let Some(point) = reaching(&measured.points, set, subject, beam) else { continue };
            let (effort, recall) = (point.effort, point.recall);
            let Some(traced) = traced(lab, set, &stored, (subject, effort, recall))? else {
                measured.note(&format!(
                    "caches in front of {}, {}: left out, since the trace does not have the reads that were counted",
                    subject.name(),
                    effort.words()
                ))?;
                continue;
            };
            for part in PARTS {
                for policy in POLICIES {
                    measured.cached(&replay(lab, &traced, policy, (compared / part, part)))?;
                }
            }
        }
    }
    Ok(())
}

/// The least effort of a sweep that reaches the recall, or its highest.
fn reaching<'p>(points: &'p [Point], set: &Set, subject: Subject, beam: Option<u32>) -> Option<&'p Point> {
    let name = subject.name();
    let of = || {
        points
            .iter()
            .filter(|point| point.set == set.name && point.index == name && point.effort.beam_width() == beam)
    };
    of().find(|point| point.recall >= RECALL).or_else(|| of().max_by(|a, b| a.recall.total_cmp(&b.recall)))
}

/// Searches one query after the other and takes their reads apart; `None` where they are not those that were counted.
fn traced(
    lab: &Lab<'_>,
    set: &Set,
    stored: &Stored,
    (subject, effort, recall): (Subject, Effort, f64),
) -> Result<Option<Traced>, Failure> {
    let trace = Trace::in_memory(MOST_READS);
    let into = trace.clone();
    let wrap = move |tier: Arc<dyn Tier>| Ok(Arc::new(TraceTier::new(tier, into.clone())) as Arc<dyn Tier>);
    let index = stored.open_fast(Some(Arc::new(wrap)))?;
    let options = effort.options(lab.arguments.k, 1, 1);
    let result = index.search(&set.asked.queries, &options, lab.control)?;
    // Queues hand over their last records when they are closed, which search threads do in their own time.
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
    let each = |total: u64| per_query(&result, total);
    let asked = Asked {
        rounds: each(result.totals.hops),
        waves: records_waves(&records) / result.latencies_ns.len().max(1) as f64,
        requests: each(result.requests.map_or(0, |requests| requests.requests)),
        bytes: each(result.totals.bytes),
        compute_ns: each(compute_ns(&result)),
    };
    let graph = matches!(subject, Subject::Graph { .. });
    let mut left = records.as_slice();
    let queries = result.per_query.iter().map(|query| {
        let (own, others) = left.split_at((query.reads as usize).min(left.len()));
        left = others;
        own.chunk_by(|a, b| a.submitted_ns == b.submitted_ns).map(|wave| wanted(wave, graph)).collect()
    });
    let queries = queries.collect();
    Ok(Some(Traced { index: subject.name(), effort, recall, asked, queries }))
}

/// Submissions; each is of one query.
fn records_waves(records: &[TraceRecord]) -> f64 {
    records.chunk_by(|a, b| a.submitted_ns == b.submitted_ns).count() as f64
}

/// What a wave wants: blocks of a graph, each once; whole reads, which are lists, of others.
fn wanted(wave: &[TraceRecord], blocks: bool) -> Vec<(u64, u64)> {
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

/// Runs all queries through an empty cache.
fn replay(lab: &Lab<'_>, traced: &Traced, policy: &'static str, (cache_bytes, part): (u64, u64)) -> Cached {
    let mut cache: Box<dyn Policy> = match policy {
        "slru" => Box::new(SegmentedLru::new(cache_bytes)),
        _ => Box::new(S3Fifo::new(cache_bytes)),
    };
    let (mut all, mut hits, mut all_bytes, mut hit_bytes, mut waves, mut saved) = (0_u64, 0, 0, 0, 0, 0);
    let mut by_wave = [(0_u64, 0_u64); COUNTED_ROUNDS + 1];
    for wave in traced.queries.iter().flat_map(|query| query.iter().enumerate()) {
        let (number, wanted) = wave;
        let told = &mut by_wave[number.min(COUNTED_ROUNDS)];
        let mut missed = false;
        for (key, bytes) in wanted {
            let hit = cache.touch(*key, *bytes);
            (all, all_bytes, told.0) = (all + 1, all_bytes + bytes, told.0 + 1);
            if hit {
                (hits, hit_bytes, told.1) = (hits + 1, hit_bytes + bytes, told.1 + 1);
            }
            missed |= !hit;
        }
        (waves, saved) = (waves + 1, saved + u64::from(!missed));
    }
    let share = |of: u64, all: u64| of as f64 / all.max(1) as f64;
    let (hit_rate, byte_hit_rate) = (share(hits, all), share(hit_bytes, all_bytes));
    let queries = traced.queries.len() as u64;
    let left = 1.0 - share(saved, waves);
    let asked = traced.asked;
    let with = Asked {
        rounds: asked.rounds * left,
        waves: asked.waves * left,
        requests: asked.requests * (1.0 - hit_rate),
        bytes: asked.bytes * (1.0 - byte_hit_rate),
        ..asked
    };
    let computed = |concurrency: usize| {
        let qps = |asked| expect(asked, &lab.emulation.shaping, concurrency as f64, lab.cores as f64).qps;
        (concurrency, qps(&asked), qps(&with))
    };
    Cached {
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
    fn reads_become_blocks_or_stay_lists() {
        let read = |offset, len| TraceRecord {
            submitted_ns: 1,
            latency_ns: 0,
            offset,
            len,
            queue: 0,
            result: i64::from(len),
        };
        let wave = [read(4096, 4096), read(6000, 4096), read(0, 1)];
        assert_eq!(wanted(&wave, true), [(0, 4096), (1, 4096), (2, 4096)]);
        assert_eq!(wanted(&wave, false), [(0, 1), (4096, 4096), (6000, 4096)]);
    }
}
