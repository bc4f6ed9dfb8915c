//! Runs queries over the paper's hash tables on a tier. The engine interleaves many of them on each thread.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use bathyal_console::Failure;
use bathyal_kernels::{Metric, Neighbor};
use bathyal_tier::{Control, Engine, EngineOptions, RunError, Tier, process_ns};
use bathyal_vectors::groundtruth::ratio_of_query;
use serde::Serialize;

use super::search::{SearchParameters, Searcher, TableCounters, TableScratch};
use crate::workload::QuerySet;

/// Bytes of read buffers of a thread.
const BUFFER_BYTES: u64 = 64 << 20;

/// Numbers of threads, queries and reads at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parallelism {
    pub threads: usize,
    /// Queries interleaved on each thread.
    pub in_flight: usize,
    /// Most reads in flight on each thread; 1 makes reads synchronous.
    pub depth: u32,
}

/// Result of a run over all queries.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Outcome {
    /// Mean over queries of their overall ratio.
    pub ratio: f64,
    /// Share of queries that found a vector within c^2 times the nearest distance.
    pub within: f64,
    pub counters: TableCounters,
    /// Queries per second of elapsed time.
    pub qps: f64,
    /// Processor nanoseconds per query, summed over all threads.
    pub processor_ns: f64,
    /// Mean time of a query from its start to its end, in nanoseconds.
    pub latency_ns: f64,
}

/// Result of one query.
#[derive(Clone)]
struct QueryResult {
    /// Number of the query.
    query: usize,
    found: Vec<Neighbor>,
    cost: TableCounters,
    ns: u64,
}

/// Answers all queries once on `tier`.
///
/// # Errors
/// A search that failed; a cancellation.
pub(super) fn run(
    searcher: &Searcher<'_>,
    tier: &Arc<dyn Tier>,
    query_set: &QuerySet,
    parameters: SearchParameters,
    parallelism: Parallelism,
    control: Control<'_>,
) -> Result<Outcome, Failure> {
    let (began, before) = (Instant::now(), process_ns());
    let count = query_set.queries.count();
    let part = count.div_ceil(parallelism.threads.max(1)).max(1);
    let parts: Vec<_> = (0..count).step_by(part).map(|first| first..count.min(first + part)).collect();
    let outcomes = std::thread::scope(|scope| {
        let start = |rows| {
            let tier = tier.clone();
            scope.spawn(move || {
                search_rows(searcher, tier, query_set, parameters, (rows, parallelism), control)
            })
        };
        let threads: Vec<_> = parts.into_iter().map(start).collect();
        let panicked = |_| Err(Failure::new("a searching thread panicked"));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect::<Vec<_>>()
    });
    let seconds = began.elapsed().as_secs_f64();
    let processor_ns = process_ns().saturating_sub(before);
    let (mut counters, mut latency, mut ratios, mut within) =
        (TableCounters::default(), 0, Vec::new(), 0_u64);
    let nearest = searcher.built.hashes.ladder().ratio.powi(2);
    // Sort by query, so that sums do not depend on the order of completion.
    let mut results = outcomes.into_iter().collect::<Result<Vec<_>, _>>()?.concat();
    results.sort_unstable_by_key(|result| result.query);
    for QueryResult { query, found, cost, ns } in results {
        counters.add(&cost);
        latency += ns;
        let exact = query_set.exact.distances(query).unwrap_or_default();
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
        processor_ns: per_query(processor_ns as f64),
        latency_ns: per_query(latency as f64),
    })
}

/// Answers the queries `rows` on this thread.
fn search_rows(
    searcher: &Searcher<'_>,
    tier: Arc<dyn Tier>,
    query_set: &QuerySet,
    parameters: SearchParameters,
    (mut rows, parallelism): (std::ops::Range<usize>, Parallelism),
    control: Control<'_>,
) -> Result<Vec<QueryResult>, Failure> {
    let block = searcher.built.plan.layout.block_bytes as usize;
    let options = EngineOptions {
        depth: parallelism.depth,
        frame_bytes: block.max(4096),
        buffer_budget_bytes: BUFFER_BYTES,
        ..EngineOptions::default()
    };
    let mut engine = Engine::new(tier, options)?;
    let free: Rc<RefCell<Vec<TableScratch>>> = Rc::default();
    let mut results = Vec::with_capacity(rows.len());
    let mut failure = None;
    let outcome = engine.run(
        parallelism.in_flight,
        |cx| {
            let (row, cx, free) = (rows.next()?, cx.clone(), free.clone());
            Some(async move {
                let mut scratch = free.borrow_mut().pop().unwrap_or_default();
                let began = Instant::now();
                let found = searcher.search(cx, query_set.queries.row(row), parameters, &mut scratch).await;
                free.borrow_mut().push(scratch);
                let ns = began.elapsed().as_nanos() as u64;
                found.map(|(found, cost)| QueryResult { query: row, found, cost, ns })
            })
        },
        |result| match result {
            Ok(result) => results.push(result),
            Err(error) => failure = failure.take().or(Some(error)),
        },
        control,
    );
    match (outcome, failure) {
        (Err(RunError::Cancelled), _) => Err(Failure::cancelled()),
        (Err(error), _) => Err(Failure::new(error.to_string())),
        (_, Some(failure)) => Err(failure),
        _ => Ok(results),
    }
}
