//! `bathyal search`.

use bathyal_index::vectors::{IdFile, IdFormat, VectorFile, write_ids};
use bathyal_index::{Effort, Index};
use bathyal_tier::Control;

use super::measurement::{Measurement, open_options, search_options};
use super::recall;
use crate::arguments::{DEFAULT_RECALL, SearchArguments};
use crate::byte_size;
use crate::console::Console;
use crate::failure::Failure;

pub(super) fn run(arguments: &SearchArguments, console: &Console) -> Result<(), Failure> {
    let settings = &arguments.settings;
    if let Some(output) = &arguments.output {
        // A wrong extension is better said before the work than after it.
        IdFormat::of(output)?;
    }
    let index = Index::open(&arguments.index, &open_options(settings))?;
    let queries = VectorFile::open(&arguments.queries)?;
    let k = (settings.k as usize).min(index.len());
    let exact = arguments.groundtruth.as_ref();
    let exact = exact.map(|path| recall::open(path, &index, k, queries.count())).transpose()?;
    let effort = match arguments.search_list {
        Some(search_list) => Effort::SearchList(search_list),
        None => Effort::Recall(arguments.recall.unwrap_or(DEFAULT_RECALL)),
    };
    let control = Control { cancel: Some(console.interrupt().flag()), deadline: None };
    let found = index.search(&queries, &search_options(settings, effort), control)?;
    let recall =
        exact.map(|exact| recall::recall(&exact, &found.ids, found.k, queries.count())).transpose()?;
    let measured = Measurement::of(&index, settings, effort, &found, recall);
    if let Some(output) = &arguments.output {
        write_ids(output, &IdFile::from_parts(found.k, found.ids, Some(found.distances))?)?;
    }
    for note in &measured.notes {
        console.remark(&format!("note: {note}"));
    }
    console.answer(&measured, &text(&measured))
}

/// What the memory is made of, in words: parts of no bytes are left out.
fn split(measured: &Measurement) -> String {
    let split = &measured.memory_split;
    let parts = [
        ("codes", split.codes),
        ("centroids", split.centroids),
        ("codec", split.codec),
        ("pages", split.pages),
        ("cache", split.cache),
        ("searches", split.searches),
    ];
    let mut words: Vec<String> = parts
        .iter()
        .filter(|(_, bytes)| *bytes > 0)
        .map(|(name, bytes)| format!("{name} {}", byte_size::format(*bytes)))
        .collect();
    if split.codes_on_tier > 0 {
        words.push(format!("{} of codes read from the tier", byte_size::format(split.codes_on_tier)));
    }
    if let Some(rate) = measured.cache_hit_rate {
        words.push(format!("{:.1}% of pages from the cache", 100.0 * rate));
    }
    format!(" ({})", words.join(", "))
}

fn text(measured: &Measurement) -> String {
    let target = measured.recall_target.map_or(String::new(), |recall| format!(", asked for {recall}"));
    let recall = match measured.recall {
        Some(recall) => format!("{recall:.4}{target}"),
        None => format!("unknown without --groundtruth{target}"),
    };
    let latency = &measured.latency_us;
    let peak = measured.peak_rss_bytes.map_or("unknown".to_owned(), byte_size::format);
    format!(
        "{} queries, k {}, {} threads, {} tier ({}), {}\n\
         recall@{}        {recall}\n\
         search_list      {}\n\
         throughput       {:.0} queries/s\n\
         latency          mean {:.0}, p50 {:.0}, p95 {:.0}, p99 {:.0} us\n\
         a query          {:.1} reads, {}, {:.1} hops, {:.0} distances\n\
         memory           {} for the open index{}, peak of the process {peak}\n\
         on disk          index {}, data {}, amplification {:.2}",
        measured.queries,
        measured.k,
        measured.threads,
        measured.tier,
        measured.method,
        measured.mode,
        measured.k,
        measured.search_list,
        measured.qps,
        latency.mean,
        latency.p50,
        latency.p95,
        latency.p99,
        measured.reads_per_query,
        byte_size::format(measured.bytes_per_query as u64),
        measured.hops_per_query,
        measured.distance_computations_per_query,
        byte_size::format(measured.dram_bytes),
        split(measured),
        byte_size::format(measured.index_bytes),
        byte_size::format(measured.data_bytes),
        measured.amplification,
    )
}
