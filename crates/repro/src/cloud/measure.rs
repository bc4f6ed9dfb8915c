//! Measuring one index: recall and counters of all queries at memory's speed, then speeds behind the emulated network.

use std::time::Instant;

use bathyal_console::{Console, Failure};
use bathyal_index::families::spann::SpannEntry;
use bathyal_index::format::manifest::Manifest;
use bathyal_index::{Index, SearchResult};
use bathyal_object::Shaping;
use bathyal_tier::Control;
use bathyal_vectors::groundtruth::recall;
use bathyal_vectors::progress::Progress;
use serde::Serialize;

use super::arguments::CloudArguments;
use super::effort::{ENOUGH, Effort};
use super::model::{Asked, expect};
use super::plan::Planned;
use super::points::{Load, Measured, Point, Size, compute_ns, per_query, phase_ns};
use super::sets::{Set, rows_of};
use super::store::{Emulation, Stored};
use super::subjects::Subject;
use crate::doorbells::Doorbells;
use crate::sets::SetFacts;

/// Queries at once while recall and counters are measured, on each thread.
const FAST_IN_FLIGHT: usize = 8;
/// Queries of which it is counted how often they wait.
const WAVE_QUERIES: usize = 16;
/// Queries that a speed is of, at least and at most, in units of the concurrency; at most no fewer than of the second number.
const LEAST_ROUNDS: usize = 4;
const MOST_ROUNDS: (usize, usize) = (20, 60);
/// Bytes that are on their way at once, at most: more would take the machine's memory.
const MOST_BYTES_IN_FLIGHT: f64 = 3e9;

/// Where everything is measured.
pub(super) struct Lab<'a> {
    pub arguments: &'a CloudArguments,
    pub emulation: Emulation,
    pub console: &'a Console,
    pub control: Control<'a>,
    pub cores: usize,
}

/// How many queries are answered at once, and by how many threads.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Width {
    threads: usize,
    in_flight: usize,
}

impl Width {
    /// So many at once; of more than a few on two threads.
    fn of(concurrency: usize, cores: usize) -> Width {
        match concurrency {
            8.. if cores >= 2 => Width { threads: 2, in_flight: concurrency / 2 },
            _ => Width { threads: 1, in_flight: concurrency.max(1) },
        }
    }
}

/// What the line about the run says.
#[derive(Debug, Serialize)]
pub(super) struct Details<'a> {
    sets: Vec<SetFacts<'a>>,
    metric: &'static str,
    k: u32,
    hedge: bool,
    store: Store,
}

/// The store that is emulated.
#[derive(Debug, Serialize)]
struct Store {
    name: &'static str,
    first_byte_ms: f64,
    spread: f64,
    requests_per_s: f64,
    bytes_per_s: f64,
}

impl Lab<'_> {
    /// What the line about the run says of the sets and of how they are measured.
    pub(super) fn details<'a>(&self, sets: &'a [Set]) -> Details<'a> {
        let Shaping { first_byte_ms, spread, requests_per_s, bytes_per_s } = self.emulation.shaping;
        Details {
            sets: sets.iter().map(Set::facts).collect(),
            metric: self.arguments.metric.name(),
            k: self.arguments.k,
            hedge: self.arguments.hedge,
            store: Store { name: self.emulation.name, first_byte_ms, spread, requests_per_s, bytes_per_s },
        }
    }

    /// Builds an index or finds it, puts it into the store and measures it as planned; it is taken out of the store again.
    pub(super) fn measure(
        &self,
        set: &Set,
        planned: &Planned,
        progress: &dyn Progress,
        measured: &mut Measured,
    ) -> Result<(), Failure> {
        let subject = planned.subject;
        let (path, manifest) = subject.find_or_build(set, self.arguments.metric, self.console)?;
        let stored = Stored::copy(&path, (set, subject), self.emulation, self.console)?;
        let waves = Doorbells::default();
        let fast = stored.open_fast(Some(waves.wrap(|tier| tier, None)))?;
        let mut points = Vec::new();
        for sweep in &planned.sweeps {
            for (at, effort) in sweep.efforts.iter().enumerate() {
                if points.iter().any(|(point, _): &(Point, _)| point.effort == *effort) {
                    continue;
                }
                let point = self.counted(set, subject, (&fast, &waves), *effort)?;
                let enough = point.recall >= ENOUGH;
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
                "{} of `{}` is so small that it lies whole in the record that is read when it is opened: nothing is asked of the store",
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
                match self.loaded(set, &slow, point, *concurrency)? {
                    Some(load) => point.loads.push(load),
                    None => measured.note(&format!(
                        "{} of `{}` with {}, {concurrency} queries at once: not measured, since more than {:.0} GB would be on \
                         their way at once",
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

    /// Recall and counters of all queries.
    pub(super) fn counted(
        &self,
        set: &Set,
        subject: Subject,
        (index, waves): (&Index, &Doorbells),
        effort: Effort,
    ) -> Result<Point, Failure> {
        let asked = &set.asked;
        let options = effort.options(self.arguments.k, self.cores.min(2), FAST_IN_FLIGHT);
        let result = index.search(&asked.queries, &options, self.control)?;
        let each = |total: u64| per_query(&result, total);
        let some = rows_of(&asked.queries, WAVE_QUERIES)?;
        let before = waves.counts().doorbells;
        let alone = index.search(&some, &effort.options(self.arguments.k, 1, 1), self.control)?;
        let each_round = (waves.counts().doorbells - before) as f64 / alone.totals.hops.max(1) as f64;
        Ok(Point {
            set: set.name.clone(),
            vectors: set.base.count(),
            dim: set.base.dim(),
            element: set.base.element().name(),
            index: subject.name(),
            effort,
            recall: recall(&asked.exact, &result.ids, result.k, asked.queries.count())?,
            rounds: each(result.totals.hops),
            waves: each_round * each(result.totals.hops),
            reads: each(result.totals.reads),
            requests: each(result.requests.map_or(0, |requests| requests.requests)),
            bytes: each(result.totals.bytes),
            compute_us: each(compute_ns(&result)) / 1e3,
            loads: Vec::new(),
        })
    }

    /// Speeds of the first queries with so many at once; `None` where that would take too much memory.
    fn loaded(
        &self,
        set: &Set,
        index: &Index,
        point: &Point,
        concurrency: usize,
    ) -> Result<Option<Load>, Failure> {
        if point.bytes * concurrency as f64 > MOST_BYTES_IN_FLIGHT {
            return Ok(None);
        }
        let shaping = &self.emulation.shaping;
        let cores = self.cores as f64;
        let asked = Asked {
            rounds: point.rounds,
            waves: point.waves,
            requests: point.requests,
            bytes: point.bytes,
            compute_ns: point.compute_us * 1e3,
        };
        let expected = expect(&asked, shaping, concurrency as f64, cores);
        let fitting = (expected.qps * self.arguments.cell_seconds()) as usize;
        let most = (concurrency * MOST_ROUNDS.0).max(MOST_ROUNDS.1);
        let queries = rows_of(&set.asked.queries, fitting.clamp(concurrency * LEAST_ROUNDS, most))?;
        let width = Width::of(concurrency, self.cores);
        let options = point.effort.options(self.arguments.k, width.threads, width.in_flight);
        let result = index.search(&queries, &options, self.control)?;
        let sent = result.requests.unwrap_or_default();
        let each = |total: u64| per_query(&result, total);
        let asked = Asked {
            rounds: each(result.totals.hops),
            // A wave is of the reads that buffers hold, whoever the query is.
            waves: point.waves / point.rounds.max(1e-9) * each(result.totals.hops),
            requests: each(sent.requests),
            bytes: each(sent.received_bytes),
            compute_ns: each(compute_ns(&result)),
        };
        let expected = expect(&asked, shaping, concurrency as f64, cores);
        Ok(Some(load(&result, (width, concurrency), &asked, expected)))
    }
}

/// What a search behind the emulated network says.
fn load(
    result: &SearchResult,
    (width, concurrency): (Width, usize),
    asked: &Asked,
    expected: super::model::Expected,
) -> Load {
    let sent = result.requests.unwrap_or_default();
    let mut latencies = result.latencies_ns.clone();
    latencies.sort_unstable();
    let at = |share: f64| {
        let last = latencies.len().saturating_sub(1);
        latencies.get((last as f64 * share).round() as usize).map_or(0.0, |ns| *ns as f64 / 1e6)
    };
    let all_ns = latencies.iter().sum::<u64>();
    let share = |name: &str| phase_ns(result, name) as f64 / all_ns.max(1) as f64;
    let queries = latencies.len();
    let qps = queries as f64 / result.seconds.max(1e-9);
    let mean_ms = all_ns as f64 / 1e6 / queries.max(1) as f64;
    Load {
        emulated: true,
        concurrency,
        threads: width.threads,
        in_flight: width.in_flight,
        queries,
        qps,
        mean_ms,
        p50_ms: at(0.5),
        p99_ms: at(0.99),
        round_ms: phase_ns(result, "read") as f64 / 1e6 / result.totals.hops.max(1) as f64,
        requests: asked.requests,
        retries: sent.retries,
        hedges: sent.hedges,
        throttled: sent.throttled,
        bytes_per_s: sent.received_bytes as f64 / result.seconds.max(1e-9),
        read_share: share("read"),
        navigate_share: share("navigate"),
        scan_share: share("scan"),
        rerank_share: share("rerank"),
        plain_ms: expected.plain_ms,
        predicted_ms: expected.latency_ms,
        predicted_qps: expected.qps,
        bound: expected.bound,
        plain_error: (concurrency == 1).then(|| expected.plain_ms / mean_ms.max(1e-9) - 1.0),
        latency_error: expected.latency_ms / mean_ms.max(1e-9) - 1.0,
        qps_error: expected.qps / qps.max(1e-9) - 1.0,
    }
}

fn size(set: &Set, subject: Subject, (manifest, index): (&Manifest, &Index), opening_s: f64) -> Size {
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
    fn as_many_queries_run_as_were_asked_for() {
        for (concurrency, threads) in [(1, 1), (4, 1), (16, 2), (64, 2)] {
            let width = Width::of(concurrency, 2);
            assert_eq!((width.threads, width.threads * width.in_flight), (threads, concurrency));
            assert_eq!(Width::of(concurrency, 1), Width { threads: 1, in_flight: concurrency });
        }
    }
}
