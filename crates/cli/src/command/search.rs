//! `bathyal search`.

use std::fmt::Write;
use std::num::NonZeroUsize;
use std::time::Instant;

use bathyal_console::{Console, Failure, Kind, byte_size};
use bathyal_index::{CacheUse, Index, NamedEfforts, SearchOptions, SearchResult, round_name};
use bathyal_tier::{Control, process_ns};
use bathyal_vectors::{IdFormat, IdWriter};

use super::exact::{self, Judge, Quality};
use super::layout_note::in_command;
use super::measurement::{self, Measurement, Spent, emulation_note, open, own_counters};
use super::neighbors::{FirstNeighbors, table};
use super::not_counted::NotCounted;
use super::stripes::lines;
use crate::arguments::SearchArguments;

pub(super) fn run(arguments: &SearchArguments, console: &Console) -> Result<(), Failure> {
    if arguments.radius.is_some() {
        return super::range::run(arguments, console);
    }
    if arguments.limit.is_some() {
        // The parser does not check `requires` of an option that conflicts with another one.
        return Err(Failure::usage("--limit requires --radius; give both, or leave --limit out"));
    }
    if arguments.explain.is_some() {
        return super::explain::run(arguments, console);
    }
    if let Some(output) = &arguments.output {
        // Refuse a wrong extension before the work.
        IdFormat::from_path(output)?;
    }
    if !arguments.also.is_empty() {
        return super::many::run(arguments, console);
    }
    let settings = &arguments.settings;
    let options = search_options(arguments)?;
    let began = Instant::now();
    let index = open(&arguments.index, settings, &[options], console)?;
    let options = calibrated(arguments, &index, options)?;
    let open_seconds = began.elapsed().as_secs_f64();
    let queries = console.open_vectors(&arguments.queries)?;
    let k = (settings.k as usize).min(index.len());
    let exact = arguments.groundtruth.as_ref();
    let exact = exact.map(|path| exact::open(path, &index, k, queries.count())).transpose()?;
    let control = Control { cancel: Some(console.interrupt().flag()), deadline: None };
    warm(arguments, &index, &options, control)?;
    let mut output = arguments.output.as_ref().map(|path| IdWriter::create(path, k)).transpose()?;
    let before = process_ns();
    let mut all: Option<SearchResult> = None;
    let mut first = FirstNeighbors::of(arguments.show);
    let mut judge = exact.as_ref().map(|exact| Judge::new(exact, index.metric()));
    let block = NonZeroUsize::new(arguments.block as usize).unwrap_or(NonZeroUsize::MIN);
    index.search_blocks(&queries, block, &options, control, |rows, found| -> Result<(), Failure> {
        if let Some(judge) = &mut judge {
            judge.add(rows.clone(), &found.ids, &found.distances, found.k)?;
        }
        if let Some(output) = &mut output {
            output.push(&found.ids, &found.distances)?;
        }
        first.take(rows, &found.ids, &found.distances, |query| found.k * query..found.k * (query + 1));
        add_block(&mut all, found);
        Ok(())
    })?;
    let spent = Spent { open_seconds, processor_ns: process_ns().saturating_sub(before) };
    let Some(found) = all else { return Err(Failure::of(Kind::InvalidData, "there are no queries")) };
    if let Some(output) = output {
        output.finish()?;
    }
    let quality = judge.as_ref().map_or_else(Quality::default, Judge::quality);
    let (tier, shape) = (&settings.tier, (k, found.threads));
    let not_counted = NotCounted::of(&index, tier, &queries, block.get(), shape, exact.as_ref());
    let measured = Measurement {
        first_neighbors: first.into_found(),
        ..Measurement::of(&index, settings, &options, &found, quality, spent, not_counted)
    };
    for note in &measured.notes {
        console.note(&format!("note: {}", in_command(note, &arguments.index)));
    }
    console.detail(&parameters_line(&measured));
    let shown = table(&measured.first_neighbors, measured.queries, arguments.output.is_some());
    console.answer(&measured, &(text(&measured) + &shown))
}

/// Returns a line with the parameters that the search used.
fn parameters_line(measured: &Measurement) -> String {
    let Measurement { search_list, threads, mode, tier, method, .. } = measured;
    let probes = measured.probes.map_or(String::new(), |probes| format!(", probes {probes}"));
    format!(
        "searched with search_list {search_list}{probes}, {mode}, on {threads} threads, {tier} tier \
         ({method})"
    )
}

/// Returns the search options of `arguments`. Options that no index accepts are refused.
pub(super) fn search_options(arguments: &SearchArguments) -> Result<SearchOptions, Failure> {
    let SearchArguments { recall, search_list, ratio, probability, within, phases, .. } = *arguments;
    let named = NamedEfforts { recall, search_list, ratio, probability, within };
    let effort = named.effort().map_err(Failure::refused)?;
    let options = measurement::search_options(&arguments.settings, effort)?;
    Ok(SearchOptions { timed: phases, ..options })
}

/// Adds the calibration of `arguments` to the options of a search.
pub(super) fn calibrated(
    arguments: &SearchArguments,
    index: &Index,
    options: SearchOptions,
) -> Result<SearchOptions, Failure> {
    let named = arguments.calibration.as_ref().map(|name| index.calibration(name)).transpose()?;
    Ok(SearchOptions { calibration: named.unwrap_or_default(), ..options })
}

/// Waits for `index` to arrive and warms it up, as `arguments` say.
pub(super) fn warm(
    arguments: &SearchArguments,
    index: &Index,
    options: &SearchOptions,
    control: Control<'_>,
) -> Result<(), Failure> {
    if arguments.wait {
        index.wait(control)?;
    }
    if arguments.warm {
        index.warm(options, control)?;
    }
    Ok(())
}

/// Adds the counters of a block to those of the blocks before. Its answers have been written and are dropped.
fn add_block(all: &mut Option<SearchResult>, block: SearchResult) {
    let block = SearchResult { ids: Vec::new(), distances: Vec::new(), per_query: Vec::new(), ..block };
    match all {
        None => *all = Some(block),
        Some(all) => {
            all.latencies_ns.extend_from_slice(&block.latencies_ns);
            all.totals.merge(&block.totals);
            all.phases.iter_mut().zip(&block.phases).for_each(|(sum, phase)| sum.ns += phase.ns);
            all.seconds += block.seconds;
            // Keep each note once.
            let new = block.notes.iter().filter(|note| !all.notes.contains(note)).cloned();
            let new: Vec<String> = new.collect();
            all.notes.extend(new);
            all.requests = all.requests.zip(block.requests).map(|(sum, block)| sum.and(&block));
        }
    }
}

/// Returns the parts of the memory in words, without empty parts.
fn memory_parts(measured: &Measurement) -> String {
    let split = &measured.memory_split;
    // Without a budget, nothing is set aside for searches: they have taken the rest.
    let taken = measured.dram_bytes.saturating_sub(split.fixed());
    let searches = if split.budget.is_some() { split.searches } else { taken };
    let parts = [
        ("codes", split.codes),
        ("centroids", split.centroids),
        ("offsets", split.offsets),
        ("codec", split.codec),
        ("pages", split.pages),
        ("ids", split.ids),
        ("copies on NUMA nodes", split.copies),
        ("cache", split.cache),
        ("inserted vectors", split.changes),
        ("reserved for codes on the card", split.standby),
        ("searches", searches),
    ];
    let mut words: Vec<String> = parts
        .iter()
        .filter(|(_, bytes)| *bytes > 0)
        .map(|(name, bytes)| format!("{name} {}", byte_size::format(*bytes)))
        .collect();
    if split.codes_left_out > 0 {
        let all = split.codes + split.codes_on_tier + split.codes_left_out;
        words.push(format!("codes shortened from {}", byte_size::format(all)));
    }
    if split.codes_on_card > 0 {
        words.push(format!("{} of codes on the card", byte_size::format(split.codes_on_card)));
    }
    if split.codes_on_tier > 0 {
        words.push(format!("{} of codes read from the tier", byte_size::format(split.codes_on_tier)));
    }
    if let Some(rate) = measured.cache_hit_rate {
        words.push(format!("{:.1}% of pages from the cache", 100.0 * rate));
    }
    format!(" ({})", words.join(", "))
}

/// Returns a line with the processor time of a query, and its time by phase if that is known.
fn time(measured: &Measurement) -> String {
    let processor = format!("processor {:.0} us", measured.processor_us_per_query);
    let phases =
        measured.phase_us_per_query.iter().flatten().map(|(phase, us)| format!("{phase} {us:.0} us"));
    let words: Vec<String> = std::iter::once(processor).chain(phases).collect();
    format!("\n                 {}", words.join(", "))
}

/// Returns a line with the counters of the graphics card; empty without one.
fn card(measured: &Measurement) -> String {
    measured.card.as_ref().map_or(String::new(), |card| {
        format!(
            "\nthe card         {}: {} launches, {:.1} answers each, {} sent, {} of its memory",
            card.name,
            card.launches,
            card.asked as f64 / card.launches.max(1) as f64,
            byte_size::format(card.sent_bytes),
            byte_size::format(card.resident_bytes),
        )
    })
}

/// Returns lines with the requests to the store; empty for an index on this machine.
fn requests(measured: &Measurement) -> String {
    let (Some(requests), Some(opening)) = (&measured.requests, &measured.opening_requests) else {
        return String::new();
    };
    let per_query = |count: u64| count as f64 / measured.queries.max(1) as f64;
    format!(
        "\nthe store        {:.2} requests and {} a query, ${:.2} a million queries; {} retries, {} second \
         requests ({} won), {} refusals\n\
         opening it       {} requests, {}",
        per_query(requests.requests),
        byte_size::format(per_query(requests.received_bytes) as u64),
        requests.dollars / measured.queries.max(1) as f64 * 1e6,
        requests.retries,
        requests.hedges,
        requests.hedges_won,
        requests.throttled,
        opening.requests,
        byte_size::format(opening.received_bytes),
    )
}

/// Returns lines with the counters of the cache in front of the store; empty without one.
fn store_cache(measured: &Measurement) -> String {
    let (Some(requests), false) = (&measured.requests, measured.store_cache.is_empty()) else {
        return String::new();
    };
    let blocks = requests.cache.blocks() as f64 / measured.queries.max(1) as f64;
    let mut text = format!("\nthe cache         {blocks:.2} blocks a query: {}", shares(&requests.cache));
    for (kind, used) in measured.store_cache.iter().filter(|(_, used)| used.blocks() > 0) {
        let _ = write!(text, "\n                 {kind} since the index was opened: {}", shares(used));
    }
    text += &by_round(&measured.store_cache_rounds);
    if let Some(trouble) = &measured.store_cache_trouble {
        let _ = write!(text, "\n                 {trouble}");
    }
    text
}

/// Returns the names and counters of the rounds of a cache that looked up blocks.
pub(super) fn rounds(counts: &[CacheUse]) -> impl Iterator<Item = (String, &CacheUse)> {
    let rounds = counts.iter().enumerate().map(|(at, used)| (round_name(at), used));
    rounds.filter(|(_, used)| used.blocks() > 0)
}

/// Returns a line with the share of blocks of each round that were in the cache; empty without rounds.
fn by_round(counts: &[CacheUse]) -> String {
    let hits = |used: &CacheUse| 100.0 * (used.hits + used.disk_hits) as f64 / used.blocks() as f64;
    let shares: Vec<String> =
        rounds(counts).map(|(round, used)| format!("{round} {:.1}%", hits(used))).collect();
    if shares.is_empty() {
        return String::new();
    }
    format!(
        "\n                 by round since the index was opened, from memory or disk: {}",
        shares.join(", ")
    )
}

/// Returns the shares of blocks from memory, from disk and from the store.
pub(super) fn shares(used: &CacheUse) -> String {
    let share = |blocks: u64| 100.0 * blocks as f64 / used.blocks().max(1) as f64;
    let [hits, disk_hits, misses] = [used.hits, used.disk_hits, used.misses].map(share);
    format!("{hits:.1}% from memory, {disk_hits:.1}% from disk, {misses:.1}% from the store")
}

fn text(measured: &Measurement) -> String {
    let wanted = |target: Option<f32>| target.map_or(String::new(), |target| format!(", asked for {target}"));
    let target = wanted(measured.recall_target);
    let ratio = match measured.quality.ratio_line(measured.k) {
        line if line.is_empty() && measured.ratio_target.is_some() => {
            format!("\nratio@{:<11}unknown without --groundtruth", measured.k)
        }
        line => line,
    } + &wanted(measured.ratio_target);
    let parameter =
        |name: &str, count: Option<u32>| count.map_or(String::new(), |count| format!(", {name} {count}"));
    let probes = parameter("probes", measured.probes) + &parameter("multi_probe", measured.multi_probe);
    let recall = match measured.quality.recall {
        Some(recall) => format!("{recall:.4}{target}{}", measured.quality.left_out_text()),
        None => format!("unknown without --groundtruth{target}"),
    };
    let latency = &measured.latency_us;
    let peak = measured.peak_rss_bytes.map_or("unknown".to_owned(), byte_size::format);
    format!(
        "{} queries, k {}, {} threads, {} tier ({}), {}\n\
         recall@{}        {recall}{ratio}\n\
         search_list      {}{probes}\n\
         throughput       {:.0} queries/s\n\
         latency          mean {:.0}, p50 {:.0}, p95 {:.0}, p99 {:.0} us\n\
         opened in        {:.2} s\n\
         a query          {:.1} reads, {}, {:.1} hops, {:.0} distances{}{}\n\
         memory           {} for the open index{}, peak of the process {peak}\n\
         {}\n\
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
        measured.open_seconds,
        measured.reads_per_query,
        byte_size::format(measured.bytes_per_query as u64),
        measured.hops_per_query,
        measured.distance_computations_per_query,
        own_counters(&measured.own_per_query),
        time(measured),
        byte_size::format(measured.dram_bytes),
        memory_parts(measured),
        measured.not_counted.text(),
        byte_size::format(measured.index_bytes),
        byte_size::format(measured.data_bytes),
        measured.amplification,
    ) + &card(measured)
        + &requests(measured)
        + &store_cache(measured)
        + &lines(&measured.parts)
        + &emulation_note(measured.emulated.as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bathyal_index::COUNTED_ROUNDS;

    #[test]
    fn rounds_without_lookups_are_left_out_of_the_line() {
        let used = |hits, disk_hits, misses| CacheUse { hits, disk_hits, misses, ..CacheUse::default() };
        let mut counts = vec![used(3, 0, 1), CacheUse::default(), used(1, 1, 1)];
        let line = by_round(&counts);
        assert!(line.ends_with("from memory or disk: 1 75.0%, 3 66.7%"), "{line}");
        counts.resize(COUNTED_ROUNDS, CacheUse::default());
        counts.push(used(0, 0, 5));
        assert!(by_round(&counts).ends_with("3 66.7%, later 0.0%"));
        assert_eq!(by_round(&[]), "");
    }
}
