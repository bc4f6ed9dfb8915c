//! `bathyal search --also`: a search over several indexes with merged answers.

use std::collections::BTreeMap;
use std::path::Path;

use bathyal_console::{Console, Failure, Kind, byte_size};
use bathyal_index::{Index, ManyResult, search_many};
use bathyal_tier::Control;
use bathyal_vectors::groundtruth::check_exact;
use bathyal_vectors::{IdFile, NO_ID, write_ids};
use serde::Serialize;

use super::exact::{Judge, Quality, check_named};
use super::measurement::{LatencySummary, indexes, open_one_of, own_counters, own_per_query};
use super::neighbors::{FirstNeighbors, QueryNeighbors, table};
use super::search::{search_options, warm};
use crate::arguments::SearchArguments;

/// The output of a search over several indexes; the names are the keys of `--json`.
#[derive(Serialize)]
struct ManyOutput<'a> {
    indexes: Vec<String>,
    first_ids: &'a [u64],
    emulated: Option<String>,
    #[serde(flatten)]
    quality: Quality,
    queries: usize,
    k: usize,
    threads: usize,
    search_list: u32,
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
    let options = search_options(arguments)?;
    let paths = indexes(&arguments.index, &arguments.also);
    let open = |path: &&Path| open_one_of(path, &paths, settings, &[options], console);
    let indexes: Vec<Index> = paths.iter().map(open).collect::<Result<_, _>>()?;
    let queries = console.open_vectors(&arguments.queries)?;
    let control = Control { cancel: Some(console.interrupt().flag()), deadline: None };
    for index in &indexes {
        warm(arguments, index, &options, control)?;
    }
    let found = search_many(&indexes.iter().collect::<Vec<_>>(), &queries, &options, control)?;
    // `NO_ID`, the last number of 32 bits, is not a valid id: it may only mark a missing neighbour.
    let ids = found.places.iter().map(|place| match u32::try_from(found.id(*place)) {
        Ok(NO_ID) if place.id != NO_ID => None,
        id => id.ok(),
    });
    let ids = ids.collect::<Option<Vec<u32>>>().ok_or_else(|| {
        Failure::of(
            Kind::InvalidArgument,
            "the indexes together hold more vectors than 32-bit ids can number; search fewer indexes at once",
        )
    })?;
    let quality = match &arguments.groundtruth {
        Some(path) => {
            let exact = IdFile::open(path)?;
            check_exact(&exact, found.k, queries.count())?;
            check_named(&exact, indexes.iter().map(Index::len).sum(), found.k)?;
            let mut judge = Judge::new(&exact, indexes[0].metric());
            judge.add(0..queries.count(), &ids, &found.distances, found.k)?;
            judge.quality()
        }
        None => Quality::default(),
    };
    let mut first = FirstNeighbors::of(arguments.show);
    let k = found.k;
    first.take(0..queries.count(), &ids, &found.distances, |query| k * query..k * (query + 1));
    if let Some(output) = &arguments.output {
        write_ids(output, &IdFile::from_parts(found.k, ids, Some(found.distances.clone()))?)?;
    }
    for note in &found.notes {
        console.note(&format!("note: {note}"));
    }
    let names = paths.iter().map(|path| path.display().to_string()).collect();
    let first_neighbors = first.into_found();
    let answer =
        ManyOutput { emulated: settings.emulated(), first_neighbors, ..answer(names, quality, &found) };
    let shown = table(&answer.first_neighbors, answer.queries, arguments.output.is_some());
    console.answer(&answer, &(text(&answer) + &shown))
}

fn answer(indexes: Vec<String>, quality: Quality, found: &ManyResult) -> ManyOutput<'_> {
    let queries = found.latencies_ns.len();
    let mean = |total: u64| total as f64 / queries.max(1) as f64;
    let totals = &found.totals;
    ManyOutput {
        indexes,
        first_ids: &found.first_ids,
        emulated: None,
        quality,
        queries,
        k: found.k,
        threads: found.threads,
        search_list: found.search_list,
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

fn text(answer: &ManyOutput<'_>) -> String {
    let latency = &answer.latency_us;
    let left_out = answer.quality.left_out_text();
    let recall = answer
        .quality
        .recall
        .map_or("unknown without --groundtruth".to_owned(), |recall| format!("{recall:.4}{left_out}"));
    let mut text = format!(
        "{} queries, k {}, {} threads, {} indexes\n\
         recall@{}        {recall}{}\n\
         search_list      {}\n\
         throughput       {:.0} queries/s\n\
         latency          mean {:.0}, p50 {:.0}, p95 {:.0}, p99 {:.0} us\n\
         a query          {:.1} reads, {}, {:.1} hops, {:.0} distances{}",
        answer.queries,
        answer.k,
        answer.threads,
        answer.indexes.len(),
        answer.k,
        answer.quality.ratio_line(answer.k),
        answer.search_list,
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
    );
    text += &super::measurement::emulation_note(answer.emulated.as_deref());
    for (index, first) in answer.indexes.iter().zip(answer.first_ids) {
        text += &format!("\nids from {first:<8} {index}");
    }
    text
}
