//! Searches one index on every tier, and compares ids, distances and counters.

use crate::sets::{SetArguments, every};
use bathyal_index::{Effort, Index, OpenOptions, SearchOptions, SearchResult, TierChoice};
use bathyal_tier::backend::file::Method;
use bathyal_tier::backend::sim::{LatencyDistribution, SimClock, SimOptions, SimTier};
use bathyal_tier::{Control, Tier};
use bathyal_vectors::VectorFile;
use bathyal_vectors::groundtruth::recall;
use std::error::Error;
use std::sync::Arc;

/// Compared efforts.
const SEARCH_LISTS: [u32; 3] = [10, 50, 150];
/// Calibration of the index, the same as in the calibration suite, so that both suites use one build.
const CALIBRATED_WITH: &str = "held-out";

#[derive(Debug, clap::Args)]
pub(crate) struct TierArguments {
    #[command(flatten)]
    sets: SetArguments,
    /// Queries: every n-th of the set
    #[arg(long, default_value_t = 10)]
    every: usize,
}

/// Options that open an index on a tier.
struct TierSetup {
    name: &'static str,
    open: OpenOptions,
    threads: usize,
}

fn setups() -> Vec<TierSetup> {
    let dram = || OpenOptions { tier: TierChoice::Dram, ..OpenOptions::default() };
    let file = |method, page_cache| OpenOptions { method, page_cache, ..OpenOptions::default() };
    let sim = |seed: u64| OpenOptions {
        wrap: Some(Arc::new(move |tier| {
            // Reads complete late, early and out of order, which must not change the results.
            let latency = LatencyDistribution::Uniform { low_ns: 1_000, high_ns: 900_000 };
            let clock = SimClock::virtual_time();
            let options =
                SimOptions { seed, clock, latency, iops: 50_000.0, depth: 16, ..SimOptions::default() };
            Ok(Arc::new(SimTier::over(tier, options)) as Arc<dyn Tier>)
        })),
        ..dram()
    };
    vec![
        TierSetup { name: "file, 1 thread", open: OpenOptions::default(), threads: 1 },
        TierSetup { name: "file, 2 threads", open: OpenOptions::default(), threads: 2 },
        TierSetup { name: "file, positioned reads", open: file(Method::Positioned, false), threads: 2 },
        TierSetup { name: "file, page cache", open: file(Method::Probe, true), threads: 2 },
        TierSetup { name: "dram", open: dram(), threads: 2 },
        TierSetup { name: "sim, seed 1", open: sim(1), threads: 1 },
        TierSetup { name: "sim, seed 2", open: sim(2), threads: 2 },
    ]
}

pub(crate) fn run(arguments: &TierArguments) -> Result<bool, Box<dyn Error>> {
    println!("| set | tier | method | search_list | recall | reads | answers and counters |");
    println!("|---|---|---|---:|---:|---:|---|");
    let mut passed = true;
    for set in arguments.sets.open()? {
        let part = every(&set, arguments.every.max(1), 0)?;
        let folder = arguments.sets.index(&set, CALIBRATED_WITH, None)?;
        let mut first: Vec<SearchResult> = Vec::new();
        for setup in setups() {
            let index = Index::open(&folder, &setup.open)?;
            for (position, search_list) in SEARCH_LISTS.into_iter().enumerate() {
                let found = search(&index, &part.queries, search_list, setup.threads)?;
                // If the pages of groups were verified at loading, candidates are read singly, not by page.
                let reads_candidates = index.memory_split().ids > 0 && index.tier().profile().addressable;
                let verdict = match first.get(position) {
                    _ if reads_candidates => Ok("not compared: candidates are read singly"),
                    Some(reference) => difference(reference, &found),
                    None => Ok("reference for the others"),
                };
                let reads = found.totals.reads as f64 / part.queries.count().max(1) as f64;
                println!(
                    "| {} | {} | {} | {search_list} | {:.4} | {reads:.1} | {} |",
                    set.name,
                    setup.name,
                    index.tier().profile().method,
                    recall(&part.exact, &found.ids, found.k, part.queries.count())?,
                    verdict.as_deref().unwrap_or_else(|different| different)
                );
                passed &= verdict.is_ok();
                if position == first.len() {
                    first.push(found);
                }
            }
        }
    }
    Ok(passed)
}

fn search(
    index: &Index,
    queries: &VectorFile,
    search_list: u32,
    threads: usize,
) -> Result<SearchResult, Box<dyn Error>> {
    let effort = Effort::SearchList(search_list);
    let options = SearchOptions { k: 10, effort, threads, ..SearchOptions::default() };
    Ok(index.search(queries, &options, Control::default())?)
}

/// Compares `found` with `reference`, distances bit by bit. Returns the first difference as an error.
fn difference(reference: &SearchResult, found: &SearchResult) -> Result<&'static str, String> {
    if let Some(at) = (0..reference.ids.len()).find(|&at| reference.ids.get(at) != found.ids.get(at)) {
        return Err(format!("DIFFERENT ids of query {}", at / reference.k.max(1)));
    }
    let bits = |distances: &[f32]| distances.iter().map(|d| d.to_bits()).collect::<Vec<_>>();
    if bits(&reference.distances) != bits(&found.distances) {
        return Err("DIFFERENT distances".into());
    }
    if reference.per_query != found.per_query {
        return Err("DIFFERENT counters".into());
    }
    Ok("identical")
}
