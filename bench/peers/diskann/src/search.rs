//! `peer-diskann search`.

use crate::METRIC;
use crate::files::{Element, FromBytes, GroundTruth, IndexFiles, Matrix, peak_rss_bytes, rss_bytes, vectors};
use anyhow::{Context, Result, ensure};
use diskann::utils::VectorRepr;
use diskann_disk::data_model::{AdHoc, CachingStrategy};
use diskann_disk::disk_index_build_parameter::DISK_SECTOR_LEN;
use diskann_disk::search::provider::disk_provider::DiskIndexSearcher;
use diskann_disk::search::provider::disk_vertex_provider_factory::DiskVertexProviderFactory;
use diskann_disk::search::search_mode::SearchMode;
use diskann_disk::storage::disk_index_reader::DiskIndexReader;
use diskann_providers::storage::FileStorageProvider;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Queries per batch of a thread; few, so that all threads end at about the same time.
const QUERIES_PER_BATCH: usize = 16;
/// Unmeasured queries before the others, since each thread opens its file and ring at its first query.
const WARMING_QUERIES: usize = 64;

#[derive(Debug, clap::Args)]
pub(crate) struct SearchArguments {
    /// Folder of the index
    index: PathBuf,
    /// Queries: .fbin, .u8bin or .i8bin
    queries: PathBuf,
    #[arg(short, default_value_t = 10)]
    k: usize,
    /// Efforts: sizes of the candidate list
    #[arg(long, value_delimiter = ',', required = true)]
    search_list: Vec<u32>,
    #[arg(long, default_value_t = 4)]
    beam_width: usize,
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Exact neighbours with distances, at least k per query
    #[arg(long)]
    groundtruth: PathBuf,
}

#[derive(Serialize)]
struct Latency {
    mean: f64,
    p50: f64,
    p95: f64,
    p99: f64,
}

#[derive(Serialize)]
struct Report {
    system: &'static str,
    recall: f64,
    queries: usize,
    k: usize,
    threads: usize,
    search_list: u32,
    beam_width: usize,
    seconds: f64,
    qps: f64,
    latency_us: Latency,
    reads_per_query: f64,
    bytes_per_query: f64,
    /// Expanded vectors, which DiskANN counts as hops.
    expansions_per_query: f64,
    distance_computations_per_query: f64,
    io_us_per_query: f64,
    dram_bytes: u64,
    /// Resident memory before the index is opened, with queries and ground truth in memory.
    start_rss_bytes: u64,
    peak_rss_bytes: u64,
    index_bytes: u64,
}

/// The result and the cost of one query.
#[derive(Clone, Default)]
struct Answer {
    ids: Vec<u32>,
    latency_ns: u64,
    reads: u32,
    expansions: u32,
    comparisons: u32,
    io_us: u64,
}

pub(crate) fn run(arguments: &SearchArguments) -> Result<()> {
    match Element::of(&arguments.queries)? {
        Element::F32 => search::<f32>(arguments),
        Element::U8 => search::<u8>(arguments),
        Element::I8 => search::<i8>(arguments),
    }
}

type Searcher<T> = DiskIndexSearcher<AdHoc<T>>;

fn open<T: VectorRepr>(files: &IndexFiles, arguments: &SearchArguments) -> Result<Searcher<T>> {
    let reader = DiskIndexReader::new(files.pivots(), files.codes(), &FileStorageProvider)?;
    let factory = DiskVertexProviderFactory::from_disk_index_path(files.graph(), CachingStrategy::None)?;
    Ok(DiskIndexSearcher::new(arguments.threads, usize::MAX, &reader, factory, METRIC, None)?)
}

fn search<T: VectorRepr + FromBytes>(arguments: &SearchArguments) -> Result<()> {
    let files = IndexFiles::new(&arguments.index)?;
    let queries = vectors::<T>(&arguments.queries)?;
    let exact = GroundTruth::read(&arguments.groundtruth)?;
    ensure!(exact.queries == queries.rows, "the ground truth has another number of queries");
    let start_rss_bytes = rss_bytes()?;
    let searcher = open::<T>(&files, arguments)?;
    let warming = queries.rows.min(WARMING_QUERIES);
    let first = arguments.search_list.first().copied().context("no search_list")?;
    answer_all(&searcher, &queries, warming, first, arguments)?;
    for &search_list in &arguments.search_list {
        let started = Instant::now();
        let answers = answer_all(&searcher, &queries, queries.rows, search_list, arguments)?;
        let seconds = started.elapsed().as_secs_f64();
        let found: Vec<u32> = answers.iter().flat_map(|answer| answer.ids.iter().copied()).collect();
        let mean =
            |field: fn(&Answer) -> f64| answers.iter().map(field).sum::<f64>() / answers.len().max(1) as f64;
        let reads = mean(|a| f64::from(a.reads));
        let report = Report {
            system: "diskann",
            recall: exact.recall(&found, arguments.k),
            queries: queries.rows,
            k: arguments.k,
            threads: arguments.threads,
            search_list,
            beam_width: arguments.beam_width,
            seconds,
            qps: queries.rows as f64 / seconds,
            latency_us: latency(&answers),
            reads_per_query: reads,
            // Records of the measured sizes fit in one sector.
            bytes_per_query: reads * DISK_SECTOR_LEN as f64,
            expansions_per_query: mean(|a| f64::from(a.expansions)),
            distance_computations_per_query: mean(|a| f64::from(a.comparisons)),
            io_us_per_query: mean(|a| a.io_us as f64),
            dram_bytes: files.resident_bytes()?,
            start_rss_bytes,
            peak_rss_bytes: peak_rss_bytes(),
            index_bytes: files.bytes()?,
        };
        println!("{}", serde_json::to_string(&report)?);
    }
    Ok(())
}

/// Answers the first `count` queries on all threads. Returns the answers in the order of the queries.
fn answer_all<T: VectorRepr>(
    searcher: &Searcher<T>,
    queries: &Matrix<T>,
    count: usize,
    search_list: u32,
    arguments: &SearchArguments,
) -> Result<Vec<Answer>> {
    let next = AtomicUsize::new(0);
    let work = || -> Result<Vec<(usize, Answer)>> {
        let mut mine = Vec::new();
        loop {
            let start = next.fetch_add(QUERIES_PER_BATCH, Ordering::Relaxed);
            if start >= count {
                return Ok(mine);
            }
            for row in start..count.min(start + QUERIES_PER_BATCH) {
                let query = &queries.values[row * queries.width..(row + 1) * queries.width];
                mine.push((row, answer(searcher, query, search_list, arguments)?));
            }
        }
    };
    let mut answers = vec![Answer::default(); count];
    std::thread::scope(|scope| -> Result<()> {
        let threads: Vec<_> = (0..arguments.threads).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            let done = thread.join().map_err(|_| anyhow::anyhow!("DiskANN panicked"))??;
            done.into_iter().for_each(|(row, answer)| answers[row] = answer);
        }
        Ok(())
    })?;
    Ok(answers)
}

fn answer<T: VectorRepr>(
    searcher: &Searcher<T>,
    query: &[T],
    search_list: u32,
    arguments: &SearchArguments,
) -> Result<Answer> {
    let started = Instant::now();
    let beam_width = Some(arguments.beam_width);
    let found = searcher.search(query, arguments.k as u32, search_list, beam_width, SearchMode::graph())?;
    let latency_ns = started.elapsed().as_nanos() as u64;
    let stats = &found.stats.query_statistics;
    Ok(Answer {
        ids: found.results.iter().map(|one| one.vertex_id).collect(),
        latency_ns,
        reads: stats.total_io_operations,
        expansions: stats.search_hops,
        comparisons: stats.total_comparisons,
        io_us: stats.io_time_us as u64,
    })
}

/// Returns the mean, and percentiles by nearest rank.
fn latency(answers: &[Answer]) -> Latency {
    let mut sorted: Vec<f64> = answers.iter().map(|answer| answer.latency_ns as f64 / 1e3).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let percentile = |share: f64| {
        let rank = (share * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
    };
    let mean = sorted.iter().sum::<f64>() / sorted.len().max(1) as f64;
    Latency { mean, p50: percentile(0.50), p95: percentile(0.95), p99: percentile(0.99) }
}
