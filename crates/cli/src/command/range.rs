//! `bathyal search --radius`: all vectors within a distance.

use std::collections::BTreeMap;

use bathyal_console::{Console, Failure, byte_size};
use bathyal_index::{DEFAULT_RECALL, Effort, RangeOptions, RangeResult};
use bathyal_tier::Control;
use bathyal_vectors::{check_range_path, write_ranges};
use serde::Serialize;

use super::measurement::{LatencySummary, emulation_note, open, own_counters, own_per_query, search_options};
use super::neighbors::{FirstNeighbors, QueryNeighbors, table};
use super::search::warm;
use crate::arguments::SearchArguments;

/// The output of a range search; the names are the keys of `--json`.
#[derive(Serialize)]
struct RangeOutput<'a> {
    radius: f32,
    recall_target: f32,
    emulated: Option<String>,
    queries: usize,
    threads: usize,
    neighbors: usize,
    neighbors_per_query: f64,
    most_neighbors: usize,
    queries_without: usize,
    seconds: f64,
    qps: f64,
    latency_us: LatencySummary,
    reads_per_query: f64,
    bytes_per_query: f64,
    hops_per_query: f64,
    distance_computations_per_query: f64,
    /// Counters that only some families have, each as `NAME_per_query`.
    #[serde(flatten)]
    own_per_query: BTreeMap<String, f64>,
    /// The neighbours of the first queries; absent in JSON if none are shown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    first_neighbors: Vec<QueryNeighbors>,
    notes: &'a [String],
}

pub(super) fn run(arguments: &SearchArguments, console: &Console) -> Result<(), Failure> {
    let settings = &arguments.settings;
    let (Some(radius), recall) = (arguments.radius, arguments.recall.unwrap_or(DEFAULT_RECALL)) else {
        return Err(Failure::usage("a range search requires --radius"));
    };
    if settings.multi_probe.is_some() {
        return Err(Failure::usage(
            "--multi-probe is not an option of a range search, which takes its effort from the recall; leave \
             it out",
        ));
    }
    if let Some(output) = &arguments.output {
        check_range_path(output)?;
    }
    let search = search_options(settings, Effort::Recall(recall))?;
    let index = open(&arguments.index, settings, &[search], console)?;
    let queries = console.open_vectors(&arguments.queries)?;
    let control = Control { cancel: Some(console.interrupt().flag()), deadline: None };
    warm(arguments, &index, &search, control)?;
    let options = RangeOptions {
        recall,
        limit: arguments.limit.map(|limit| limit as usize),
        beam_width: search.beam_width,
        threads: search.threads,
        mode: search.mode,
        in_flight: search.in_flight,
    };
    let found = index.range_search(&queries, radius, &options, control)?;
    if let Some(output) = &arguments.output {
        write_ranges(output, &found.offsets, &found.ids, &found.distances)?;
    }
    for note in &found.notes {
        console.note(&format!("note: {note}"));
    }
    let mut first = FirstNeighbors::of(arguments.show);
    first.take(0..queries.count(), &found.ids, &found.distances, |query| {
        found.offsets[query]..found.offsets[query + 1]
    });
    let answer = RangeOutput {
        emulated: settings.emulated(),
        first_neighbors: first.into_found(),
        ..answer(radius, recall, &found)
    };
    let shown = table(&answer.first_neighbors, answer.queries, arguments.output.is_some());
    console.answer(&answer, &(text(&answer) + &shown))
}

fn answer(radius: f32, recall_target: f32, found: &RangeResult) -> RangeOutput<'_> {
    let queries = found.latencies_ns.len();
    let mean = |total: u64| total as f64 / queries.max(1) as f64;
    let counts = || found.offsets.windows(2).map(|w| w[1] - w[0]);
    let totals = &found.totals;
    RangeOutput {
        radius,
        recall_target,
        emulated: None,
        queries,
        threads: found.threads,
        neighbors: found.ids.len(),
        neighbors_per_query: mean(found.ids.len() as u64),
        most_neighbors: counts().max().unwrap_or(0),
        queries_without: counts().filter(|count| *count == 0).count(),
        seconds: found.seconds,
        qps: if found.seconds > 0.0 { queries as f64 / found.seconds } else { 0.0 },
        latency_us: LatencySummary::of(&found.latencies_ns),
        reads_per_query: mean(totals.reads),
        bytes_per_query: mean(totals.bytes),
        hops_per_query: mean(totals.hops),
        distance_computations_per_query: mean(totals.code_distances + totals.full_distances),
        own_per_query: own_per_query(totals, queries),
        first_neighbors: Vec::new(),
        notes: &found.notes,
    }
}

fn text(answer: &RangeOutput<'_>) -> String {
    let latency = &answer.latency_us;
    format!(
        "{} queries, radius {}, {} threads, target recall {}\n\
         within           {} vectors, {:.1} a query, {} at most; {} queries have none\n\
         throughput       {:.0} queries/s\n\
         latency          mean {:.0}, p50 {:.0}, p95 {:.0}, p99 {:.0} us\n\
         a query          {:.1} reads, {}, {:.1} hops, {:.0} distances{}",
        answer.queries,
        answer.radius,
        answer.threads,
        answer.recall_target,
        answer.neighbors,
        answer.neighbors_per_query,
        answer.most_neighbors,
        answer.queries_without,
        answer.qps,
        latency.mean,
        latency.p50,
        latency.p95,
        latency.p99,
        answer.reads_per_query,
        byte_size::format(answer.bytes_per_query as u64),
        answer.hops_per_query,
        answer.distance_computations_per_query,
        own_counters(&answer.own_per_query),
    ) + &emulation_note(answer.emulated.as_deref())
}
