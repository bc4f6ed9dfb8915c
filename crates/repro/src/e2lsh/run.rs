//! Running queries over the paper's hash tables on a tier: by the engine, many interleaved on each thread.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use bathyal_console::Failure;
use bathyal_console::process_time::processor_seconds;
use bathyal_kernels::{Metric, Neighbor};
use bathyal_tier::{Control, Engine, EngineOptions, RunError, Tier};
use bathyal_vectors::groundtruth::ratio_of_query;
use serde::Serialize;

use super::search::{Ask, Counters, Scratch, Searched};
use crate::workload::Questions;

/// Bytes of read buffers of a thread.
const BUFFER_BYTES: u64 = 64 << 20;

/// How many at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Width {
    pub threads: usize,
    /// Queries interleaved on each thread.
    pub in_flight: usize,
    /// Reads in flight on each thread, at most: one makes them synchronous.
    pub depth: u32,
}

/// What a run over all queries came to.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Outcome {
    /// The mean over queries of their overall ratio.
    pub ratio: f64,
    /// The share of queries of which something within c^2 times the nearest distance was found.
    pub within: f64,
    pub counters: Counters,
    /// Queries a second of elapsed time.
    pub qps: f64,
    /// Nanoseconds of all threads' processor time a query.
    pub processor_ns: f64,
    /// Mean time of a query from its begin to its end, in nanoseconds.
    pub latency_ns: f64,
}

/// A query's number, what it found and cost, and how long it took.
type Answer = (usize, Vec<Neighbor>, Counters, u64);

/// Answers all `asked` once on `tier`.
///
/// # Errors
/// A search that failed; a cancellation.
pub(super) fn run(
    searched: &Searched<'_>,
    tier: &Arc<dyn Tier>,
    asked: &Questions,
    ask: Ask,
    width: Width,
    control: Control<'_>,
) -> Result<Outcome, Failure> {
    let (began, before) = (Instant::now(), processor_seconds());
    let count = asked.queries.count();
    let part = count.div_ceil(width.threads.max(1)).max(1);
    let parts: Vec<_> = (0..count).step_by(part).map(|first| first..count.min(first + part)).collect();
    let outcomes = std::thread::scope(|scope| {
        let start = |rows| {
            let tier = tier.clone();
            scope.spawn(move || one_thread(searched, tier, asked, ask, (rows, width), control))
        };
        let threads: Vec<_> = parts.into_iter().map(start).collect();
        let panicked = |_| Err(Failure::new("a searching thread panicked"));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect::<Vec<_>>()
    });
    let seconds = began.elapsed().as_secs_f64();
    let processor = before.zip(processor_seconds()).map_or(seconds, |(from, to)| to - from);
    let (mut counters, mut latency, mut ratios, mut within) = (Counters::default(), 0, Vec::new(), 0_u64);
    let nearest = searched.built.hashes.ladder().ratio.powi(2);
    // By query, so that sums do not depend on who was answered first.
    let mut answers = outcomes.into_iter().collect::<Result<Vec<_>, _>>()?.concat();
    answers.sort_unstable_by_key(|answer| answer.0);
    for (query, found, cost, ns) in answers {
        counters.add(&cost);
        latency += ns;
        let exact = asked.exact.distances(query).unwrap_or_default();
        let distances: Vec<f32> = found.iter().map(|found| found.distance).collect();
        ratios.extend(ratio_of_query(Metric::L2, &distances, exact));
        let least = |distances: &[f32]| distances.first().map_or(f64::INFINITY, |d| f64::from(*d).sqrt());
        within += u64::from(least(&distances) <= nearest * least(exact));
    }
    let per_query = |total: f64| total / count.max(1) as f64;
    Ok(Outcome {
        ratio: ratios.iter().sum::<f64>() / ratios.len().max(1) as f64,
        within: per_query(within as f64),
        counters,
        qps: count as f64 / seconds.max(1e-9),
        processor_ns: per_query(processor * 1e9),
        latency_ns: per_query(latency as f64),
    })
}

/// Answers some of the queries.
fn one_thread(
    searched: &Searched<'_>,
    tier: Arc<dyn Tier>,
    asked: &Questions,
    ask: Ask,
    (mut rows, width): (std::ops::Range<usize>, Width),
    control: Control<'_>,
) -> Result<Vec<Answer>, Failure> {
    let block = searched.built.plan.layout.block_bytes as usize;
    let options = EngineOptions {
        depth: width.depth,
        frame_bytes: block.max(4096),
        buffer_budget_bytes: BUFFER_BYTES,
        ..EngineOptions::default()
    };
    let mut engine = Engine::new(tier, options)?;
    let free: Rc<RefCell<Vec<Scratch>>> = Rc::default();
    let mut answers = Vec::with_capacity(rows.len());
    let mut failure = None;
    let outcome = engine.run(
        width.in_flight,
        |cx| {
            let (row, cx, free) = (rows.next()?, cx.clone(), free.clone());
            Some(async move {
                let mut scratch = free.borrow_mut().pop().unwrap_or_default();
                let began = Instant::now();
                let found = searched.search(cx, asked.queries.row(row), ask, &mut scratch).await;
                free.borrow_mut().push(scratch);
                found.map(|(found, cost)| (row, found, cost, began.elapsed().as_nanos() as u64))
            })
        },
        |answer| match answer {
            Ok(answer) => answers.push(answer),
            Err(error) => failure = failure.take().or(Some(error)),
        },
        control,
    );
    match (outcome, failure) {
        (Err(RunError::Cancelled), _) => Err(Failure::cancelled()),
        (Err(error), _) => Err(Failure::new(error.to_string())),
        (_, Some(failure)) => Err(failure),
        _ => Ok(answers),
    }
}
