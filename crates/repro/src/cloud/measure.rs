//! Measurements of one index: recall and counters of all queries at the speed of memory, then speeds through
//! the emulated network.

use std::time::Instant;

use bathyal_console::{Console, Failure};
use bathyal_index::cost::demand::Demand;
use bathyal_index::cost::store::StorePrediction;
use bathyal_index::families::spann::SpannEntry;
use bathyal_index::format::manifest::Manifest;
use bathyal_index::{Index, SearchResult};
use bathyal_object::Shaping;
use bathyal_tier::Control;
use bathyal_vectors::groundtruth::recall;
use bathyal_vectors::progress::Progress;
use serde::Serialize;

use super::arguments::CloudArguments;
use super::effort::{FINAL_RECALL, SweepEffort};
use super::plan::PlannedIndex;
use super::points::{CloudPoint, LoadPoint, Measurements, Size, compute_ns, per_query, phase_ns};
use super::sets::{CloudSet, rows_of};
use super::store::{Emulation, StoredIndex};
use super::subjects::CloudSubject;
use crate::doorbells::Doorbells;
use crate::sets::SetFacts;

/// Queries in flight per thread while recall and counters are measured.
const FAST_IN_FLIGHT: usize = 8;
/// Queries for which waits are counted.
const WAVE_QUERIES: usize = 16;
/// Fewest queries of a speed, as a multiple of the concurrency.
const LEAST_ROUNDS: usize = 4;
/// Most queries of a speed: the larger of a multiple of the concurrency and a fixed number.
const MOST_ROUNDS: (usize, usize) = (20, 60);
/// Most bytes in flight: more would not fit into the machine's memory.
const MOST_BYTES_IN_FLIGHT: f64 = 3e9;

/// Arguments and environment of all measurements.
pub(super) struct CloudExperiment<'a> {
    pub arguments: &'a CloudArguments,
    pub emulation: Emulation,
    pub console: &'a Console,
    pub control: Control<'a>,
    pub cores: usize,
}

/// Number of search threads, and queries in flight on each.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Parallelism {
    threads: usize,
    in_flight: usize,
}

impl Parallelism {
    /// Divides `concurrency` queries among two threads if there are eight or more queries and two or more
    /// cores.
    fn of(concurrency: usize, cores: usize) -> Parallelism {
        match concurrency {
            8.. if cores >= 2 => Parallelism { threads: 2, in_flight: concurrency / 2 },
            _ => Parallelism { threads: 1, in_flight: concurrency.max(1) },
        }
    }
}

/// Details in the line about the run.
#[derive(Debug, Serialize)]
pub(super) struct CloudDetails<'a> {
    sets: Vec<SetFacts<'a>>,
    metric: &'static str,
    k: u32,
    hedge: bool,
    store: EmulatedStore,
}

/// The emulated store, in the line about the run.
#[derive(Debug, Serialize)]
struct EmulatedStore {
    name: &'static str,
    first_byte_ms: f64,
    spread: f64,
    requests_per_s: f64,
    bytes_per_s: f64,
}

impl CloudExperiment<'_> {
    /// Returns the sets and the conditions of the measurements for the line about the run.
    pub(super) fn details<'a>(&self, sets: &'a [CloudSet]) -> CloudDetails<'a> {
        let Shaping { first_byte_ms, spread, requests_per_s, bytes_per_s } = self.emulation.shaping;
        CloudDetails {
            sets: sets.iter().map(CloudSet::facts).collect(),
            metric: self.arguments.metric.name(),
            k: self.arguments.k,
            hedge: self.arguments.hedge,
            store: EmulatedStore {
                name: self.emulation.name,
                first_byte_ms,
                spread,
                requests_per_s,
                bytes_per_s,
            },
        }
    }

    /// Builds or finds an index, copies it into the store, measures it as planned, and removes it from the
    /// store.
    pub(super) fn measure(
        &self,
        set: &CloudSet,
        planned: &PlannedIndex,
        progress: &dyn Progress,
        measured: &mut Measurements,
    ) -> Result<(), Failure> {
        let subject = planned.subject;
        let (path, manifest) = subject.find_or_build(set, self.arguments.metric, self.console)?;
        let stored = StoredIndex::copy(&path, (set, subject), self.emulation, self.console)?;
        let waves = Doorbells::default();
        let fast = stored.open_fast(Some(waves.wrap(|tier| tier, None)))?;
        let mut points = Vec::new();
        for sweep in &planned.sweeps {
            for (at, effort) in sweep.efforts.iter().enumerate() {
                if points.iter().any(|(point, _): &(CloudPoint, _)| point.effort == *effort) {
                    continue;
                }
                let point = self.measure_counters(set, subject, (&fast, &waves), *effort)?;
                let enough = point.recall >= FINAL_RECALL;
                let loads =
                    if at % sweep.every == 0 || enough { sweep.concurrencies.clone() } else { Vec::new() };
                points.push((point, loads));
                if enough {
                    break;
                }
            }
        }
        drop(fast);
        if points.iter().all(|(point, _)| point.requests == 0.0) {
            measured.note(&format!(
                "{} of `{}` is so small that the record read at opening contains all of it: searches send no \
                 requests to the store",
                subject.name(),
                set.name
            ))?;
        }
        let began = Instant::now();
        let slow = stored.open_emulated()?;
        measured.size(&size(set, subject, (&manifest, &slow), began.elapsed().as_secs_f64()))?;
        let steps = points.iter().map(|(_, loads)| loads.len()).sum::<usize>();
        progress.stage(&format!("{}: {}", set.name, subject.name()), steps as u64);
        let mut done = 0;
        for (point, concurrencies) in &mut points {
            for concurrency in concurrencies.iter() {
                match self.measure_load(set, &slow, point, *concurrency)? {
                    Some(load) => point.loads.push(load),
                    None => measured.note(&format!(
                        "{} of `{}` with {}, {concurrency} queries at once: not measured, because more than \
                         {:.0} GB would be in flight at once",
                        point.index,
                        set.name,
                        point.effort.words(),
                        MOST_BYTES_IN_FLIGHT / 1e9
                    ))?,
                }
                done += 1;
                progress.advance(done);
            }
        }
        points.into_iter().try_for_each(|(point, _)| measured.point(point))
    }

    /// Measures recall and counters with all queries.
    pub(super) fn measure_counters(
        &self,
        set: &CloudSet,
        subject: CloudSubject,
        (index, waves): (&Index, &Doorbells),
        effort: SweepEffort,
    ) -> Result<CloudPoint, Failure> {
        let query_set = &set.query_set;
        let options = effort.options(self.arguments.k, self.cores.min(2), FAST_IN_FLIGHT);
        let result = index.search(&query_set.queries, &options, self.control)?;
        let mean = |total: u64| per_query(&result, total);
        let some = rows_of(&query_set.queries, WAVE_QUERIES)?;
        let before = waves.counts().doorbells;
        let alone = index.search(&some, &effort.options(self.arguments.k, 1, 1), self.control)?;
        let waves_per_round = (waves.counts().doorbells - before) as f64 / alone.totals.hops.max(1) as f64;
        Ok(CloudPoint {
            set: set.name.clone(),
            vectors: set.base.count(),
            dim: set.base.dim(),
            element: set.base.element().name(),
            index: subject.name(),
            effort,
            recall: recall(&query_set.exact, &result.ids, result.k, query_set.queries.count())?,
            rounds: mean(result.totals.hops),
            waves: waves_per_round * mean(result.totals.hops),
            reads: mean(result.totals.reads),
            requests: mean(result.requests.map_or(0, |requests| requests.requests)),
            bytes: mean(result.totals.bytes),
            compute_us: mean(compute_ns(&result)) / 1e3,
            loads: Vec::new(),
        })
    }

    /// Measures speeds with `concurrency` of the first queries at once; `None` if they would take too much
    /// memory.
    fn measure_load(
        &self,
        set: &CloudSet,
        index: &Index,
        point: &CloudPoint,
        concurrency: usize,
    ) -> Result<Option<LoadPoint>, Failure> {
        if point.bytes * concurrency as f64 > MOST_BYTES_IN_FLIGHT {
            return Ok(None);
        }
        let (store, cores) = (self.emulation.times(), self.cores as f64);
        let demand = Demand {
            rounds: point.rounds,
            reads: point.requests,
            moved_bytes: point.bytes,
            compute_ns: point.compute_us * 1e3,
        };
        let prediction = store.predict(&demand, point.waves, concurrency as f64, cores);
        let fitting = (prediction.qps * self.arguments.cell_seconds()) as usize;
        let most = (concurrency * MOST_ROUNDS.0).max(MOST_ROUNDS.1);
        let queries = rows_of(&set.query_set.queries, fitting.clamp(concurrency * LEAST_ROUNDS, most))?;
        let parallelism = Parallelism::of(concurrency, self.cores);
        let options = point.effort.options(self.arguments.k, parallelism.threads, parallelism.in_flight);
        let result = index.search(&queries, &options, self.control)?;
        let sent = result.requests.unwrap_or_default();
        let mean = |total: u64| per_query(&result, total);
        let demand = Demand {
            rounds: mean(result.totals.hops),
            reads: mean(sent.requests),
            moved_bytes: mean(sent.received_bytes),
            compute_ns: mean(compute_ns(&result)),
        };
        // The buffers of a thread limit a wave, so the waves of a round are about the same for other queries.
        let waves = point.waves / point.rounds.max(1e-9) * demand.rounds;
        let prediction = store.predict(&demand, waves, concurrency as f64, cores);
        Ok(Some(load(&result, (parallelism, concurrency), &demand, prediction)))
    }
}

/// Returns the record of a search through the emulated network.
fn load(
    result: &SearchResult,
    (parallelism, concurrency): (Parallelism, usize),
    demand: &Demand,
    prediction: StorePrediction,
) -> LoadPoint {
    let sent = result.requests.unwrap_or_default();
    let mut latencies = result.latencies_ns.clone();
    latencies.sort_unstable();
    let percentile = |share: f64| {
        let last = latencies.len().saturating_sub(1);
        latencies.get((last as f64 * share).round() as usize).map_or(0.0, |ns| *ns as f64 / 1e6)
    };
    let all_ns = latencies.iter().sum::<u64>();
    let share = |name: &str| phase_ns(result, name) as f64 / all_ns.max(1) as f64;
    let queries = latencies.len();
    let qps = queries as f64 / result.seconds.max(1e-9);
    let mean_ms = all_ns as f64 / 1e6 / queries.max(1) as f64;
    let (plain_ms, predicted_ms) = (prediction.plain_ns / 1e6, prediction.latency_ns / 1e6);
    LoadPoint {
        emulated: true,
        concurrency,
        threads: parallelism.threads,
        in_flight: parallelism.in_flight,
        queries,
        qps,
        mean_ms,
        p50_ms: percentile(0.5),
        p99_ms: percentile(0.99),
        round_ms: phase_ns(result, "read") as f64 / 1e6 / result.totals.hops.max(1) as f64,
        requests: demand.reads,
        retries: sent.retries,
        hedges: sent.hedges,
        throttled: sent.throttled,
        bytes_per_s: sent.received_bytes as f64 / result.seconds.max(1e-9),
        read_share: share("read"),
        navigate_share: share("navigate"),
        scan_share: share("scan"),
        rerank_share: share("rerank"),
        plain_ms,
        predicted_ms,
        predicted_qps: prediction.qps,
        bound: prediction.bound.name(),
        plain_error: (concurrency == 1).then(|| plain_ms / mean_ms.max(1e-9) - 1.0),
        latency_error: predicted_ms / mean_ms.max(1e-9) - 1.0,
        qps_error: prediction.qps / qps.max(1e-9) - 1.0,
    }
}

fn size(
    set: &CloudSet,
    subject: CloudSubject,
    (manifest, index): (&Manifest, &Index),
    opening_s: f64,
) -> Size {
    let lists = SpannEntry::read(manifest).ok();
    let opening = index.opening_requests().unwrap_or_default();
    Size {
        set: set.name.clone(),
        index: subject.name(),
        index_bytes: manifest.index_bytes(),
        paged_bytes: manifest.paged_file().bytes,
        memory_bytes: index.memory_split().fixed(),
        lists: lists.as_ref().map(|lists| lists.list_count),
        list_bytes: lists.as_ref().map(SpannEntry::list_bytes),
        opening_requests: opening.requests,
        opening_bytes: opening.received_bytes,
        opening_s,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_times_queries_in_flight_is_the_concurrency() {
        for (concurrency, threads) in [(1, 1), (4, 1), (16, 2), (64, 2)] {
            let parallelism = Parallelism::of(concurrency, 2);
            assert_eq!(
                (parallelism.threads, parallelism.threads * parallelism.in_flight),
                (threads, concurrency)
            );
            assert_eq!(Parallelism::of(concurrency, 1), Parallelism { threads: 1, in_flight: concurrency });
        }
    }
}
