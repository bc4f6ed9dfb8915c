//! Pilots: small indexes of a candidate, built and measured with the index's own searches.

use crate::candidates::AdvisedOptions;
use crate::pilot_counters::PilotCounters;
use crate::pilot_filters::PilotFilter;
use crate::pilot_place::OpenPilot;
use crate::request::AdviceRequest;
use crate::sample::DataSample;
use crate::statistics::of_truth;
use bathyal_index::{
    BuildReport, Effort, Index, IndexError, MemorySplit, SearchMode, SearchOptions, SearchResult,
    SearchTotals, build,
};
use bathyal_tier::{Control, process_ns};
use bathyal_vectors::groundtruth::{GroundTruthError, OverallRatio};
use bathyal_vectors::progress::{CancelOnly, Progress};
use bathyal_vectors::{IdFile, VectorFile, groundtruth};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Times that the queries are searched to measure the processor time. The least of them counts, since other
/// work on the machine only adds time.
const REPEATS: usize = 4;
/// The most queries that are searched to measure latencies, at each number of queries in flight.
const LATENCY_QUERIES: usize = 512;
/// Queries of a pilot that compares all vectors: their counters are all the same, and each takes long.
const SCAN_QUERIES: usize = 16;
/// The most seconds of one search that measures the processor time, unless fewer queries than
/// [`SCAN_QUERIES`] take longer.
const TIMED_SECONDS: f64 = 0.25;
/// Queries that one search answers before the next check whether the work is to end.
const QUERIES_A_SEARCH: usize = 100;

/// The part of the memory of an open index that has its pages.
const PAGES: &str = "pages";

/// A pilot index with its measurements.
#[derive(Debug, Clone)]
pub struct PilotIndex {
    /// Number of vectors.
    pub vectors: usize,
    /// Its files: name and bytes.
    pub files: Vec<PilotFile>,
    /// Seconds of each stage of the build.
    pub stages: Vec<(String, f64)>,
    /// Its searches: for each device of the request, one for each recall.
    pub searches: Vec<PilotSearch>,
}

/// A file of a pilot.
#[derive(Debug, Clone)]
pub struct PilotFile {
    /// Its name.
    pub name: String,
    /// Its bytes.
    pub bytes: u64,
}

/// The searches of a pilot for the recall of the request, on one device.
#[derive(Debug, Clone)]
pub struct PilotSearch {
    /// The recall that was found.
    pub recall: f64,
    /// The overall ratio of the answers, if the request names one.
    pub ratio: Option<f64>,
    /// The counters.
    pub counters: PilotCounters,
    /// The searches under each filter of the request.
    pub filters: Vec<PilotFilter>,
    /// Latencies by queries in flight: measured in memory, with the largest pilot.
    pub latencies: Vec<LatencyShape>,
    /// Parts of the memory of the open index: name and bytes.
    pub memory: Vec<(&'static str, u64)>,
    /// Bytes of a search thread with its share of the request's queries in flight.
    pub thread_bytes: u64,
    /// Bytes of such a thread if every query uses all of its read buffers.
    pub full_thread_bytes: u64,
    /// The most bytes of such a thread, if its queries fill all of its read buffers, as a scan of a large
    /// index does.
    pub most_thread_bytes: u64,
    /// The part of these that is not read buffers: lists of candidates, which grow with the index.
    pub query_state_bytes: u64,
}

/// Says if a search of a pilot measures the processor time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timing {
    Timed,
    Untimed,
}

/// The distribution of latencies at a number of queries in flight. Quantiles are multiples of the mean that
/// follows from the throughput by Little's law.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LatencyShape {
    /// Queries in flight on all threads.
    pub concurrency: u32,
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
}

/// The inputs of the pilots of all candidates.
pub struct PilotInputs<'a> {
    /// The sample.
    pub sample: &'a DataSample,
    /// The exact neighbours of the queries in the first rows, one for each of the sample's sizes.
    pub truths: Vec<IdFile>,
    /// The request.
    pub request: &'a AdviceRequest,
    /// Where pilots are built.
    pub folder: &'a Path,
    /// Reports progress, and ends the work.
    pub progress: &'a dyn Progress,
}

impl<'a> PilotInputs<'a> {
    /// Computes the exact neighbours of the sample's queries for each size: `k` of them, and `neighbors` for
    /// the whole sample.
    ///
    /// # Errors
    /// Those of exact search, and cancellation.
    pub fn new(
        sample: &'a DataSample,
        request: &'a AdviceRequest,
        folder: &'a Path,
        neighbors: usize,
        progress: &'a dyn Progress,
    ) -> Result<PilotInputs<'a>, IndexError> {
        let options = request.options();
        let threads = std::num::NonZeroUsize::new(request.threads());
        let silent = CancelOnly(progress);
        let mut truths = Vec::new();
        progress.stage("exact neighbours of the sample", sample.sizes.len() as u64);
        for (done, size) in sample.sizes.iter().enumerate() {
            let base = sample.first(*size)?;
            let k = options.k.max(neighbors).min(base.count());
            let found =
                groundtruth::exact_neighbors(&base, &sample.queries, options.metric, k, threads, &silent);
            truths.push(found.map_err(of_truth)?);
            progress.advance(done as u64 + 1);
        }
        Ok(PilotInputs { sample, truths, request, folder, progress })
    }

    /// Builds and measures the pilots of a candidate, smallest first.
    ///
    /// # Errors
    /// Those of builds and searches, and cancellation.
    pub fn pilots(
        &self,
        candidate: &AdvisedOptions,
        done: &dyn Fn(usize),
    ) -> Result<Vec<PilotIndex>, IndexError> {
        let mut pilots = Vec::new();
        for (at, (size, truth)) in self.sample.sizes.iter().zip(&self.truths).enumerate() {
            if self.progress.cancelled() {
                return Err(IndexError::Cancelled);
            }
            pilots.push(self.pilot(candidate, *size, truth)?);
            done(at + 1);
        }
        Ok(pilots)
    }

    fn pilot(
        &self,
        candidate: &AdvisedOptions,
        size: usize,
        truth: &IdFile,
    ) -> Result<PilotIndex, IndexError> {
        // The next pilot replaces this one, and the last goes with the folder.
        let path = self.folder.join("pilot");
        let options = bathyal_index::BuildOptions {
            overwrite: true,
            memory_bytes: None,
            ..candidate.build_options(self.request)?
        };
        let base = self.sample.first(size)?;
        let report: BuildReport = build(&base, &path, &options, &CancelOnly(self.progress))?;
        let mut searches = Vec::new();
        let mut files = Vec::new();
        for tier in &self.request.options().tiers {
            let pilot = OpenPilot::open(&path, tier, self.progress)?;
            // Pages in memory of their own do not count as DRAM.
            let counts_pages = tier.pages_in_dram;
            files = pilot
                .index
                .manifest()
                .files
                .iter()
                .map(|file| PilotFile { name: file.name.clone(), bytes: file.bytes })
                .collect();
            let largest = self.sample.sizes.last() == Some(&size);
            for recall in self.request.recalls() {
                let timing = if largest { Timing::Timed } else { Timing::Untimed };
                let options = SearchOptions { effort: Effort::Recall(recall), ..self.alone() };
                let timed = match &pilot.in_memory {
                    Some(in_memory) if largest => {
                        let counted = self.search(&pilot.index, truth, &options, Timing::Untimed)?;
                        let timed = self.search(in_memory, truth, &options, Timing::Timed)?;
                        PilotSearch { counters: counted.counters.timed_as(&timed.counters), ..counted }
                    }
                    _ => self.search(&pilot.index, truth, &options, timing)?,
                };
                let has_latencies = largest && tier.answers_in_place();
                let latencies =
                    if has_latencies { self.latencies(&pilot.index, recall)? } else { Vec::new() };
                let filters = self.filters(&pilot, &options, timing)?;
                let mut search = PilotSearch { latencies, filters, ..timed };
                search.memory.retain(|(part, _)| counts_pages || *part != PAGES);
                searches.push(search);
            }
        }
        Ok(PilotIndex { vectors: size, files, stages: report.stage_seconds, searches })
    }

    fn search(
        &self,
        index: &Index,
        truth: &IdFile,
        search: &SearchOptions,
        timing: Timing,
    ) -> Result<PilotSearch, IndexError> {
        let options = self.request.options();
        let counted = SearchOptions { in_flight: Some(1), ..*search };
        let all = &self.sample.queries;
        let few = rows_of(all, 0..SCAN_QUERIES.min(all.count()))?;
        let found = self.answers(index, &few, &counted)?;
        // Queries of a batch share the reads of a scan. The prediction is for queries that come one by one.
        let scans_all = found.totals.full_distances >= (index.len() * few.count()) as u64;
        let (queries, found) =
            if scans_all { (&few, found) } else { (all, self.answers(index, all, &counted)?) };
        let (recall, ratio) = match scans_all {
            // A scan finds all nearest vectors.
            true => (1.0, options.ratio.map(|_| 1.0)),
            false => (
                groundtruth::recall(truth, &found.ids, found.k, all.count()).map_err(of_truth)?,
                found_ratio(self.request, truth, &found, all.count()).map_err(of_truth)?,
            ),
        };
        let compute_ns = match timing {
            Timing::Untimed => 0.0,
            Timing::Timed => {
                let timed = rows_of(queries, 0..affordable(queries.count(), found.seconds))?;
                self.processor_ns(index, &timed, if scans_all { &counted } else { search })?
            }
        };
        let rounds_of = |mode: &SearchOptions| Ok(self.answers(index, queries, mode)?.totals);
        let rounds = rounds(index, &counted, &found, rounds_of)? as f64 / queries.count().max(1) as f64;
        let split = index.memory_split();
        let fixed = split.fixed();
        let in_flight = self.request.execution(options.concurrency).in_flight as usize;
        let state_bytes = in_flight as u64 * index.query_bytes(search)?;
        let together = SearchOptions { in_flight: Some(in_flight), ..*search };
        let thread_bytes = index.dram_bytes_of(&found, &together).saturating_sub(fixed);
        Ok(PilotSearch {
            recall,
            ratio,
            counters: PilotCounters { rounds, compute_ns, ..PilotCounters::of(&found, queries.count()) },
            filters: Vec::new(),
            latencies: Vec::new(),
            memory: memory_parts(split),
            thread_bytes,
            full_thread_bytes: index.dram_bytes(1, in_flight, found.search_list).saturating_sub(fixed),
            most_thread_bytes: index.buffer_bytes() + state_bytes,
            query_state_bytes: state_bytes,
        })
    }

    /// Returns the options of a search on one thread.
    fn alone(&self) -> SearchOptions {
        SearchOptions { k: self.request.options().k, threads: 1, ..SearchOptions::default() }
    }

    /// Returns some of the queries.
    pub(crate) fn queries(&self, rows: std::ops::Range<usize>) -> Result<VectorFile, IndexError> {
        rows_of(&self.sample.queries, rows)
    }

    /// Returns the processor time of a query in nanoseconds: the least over several searches.
    fn processor_ns(
        &self,
        index: &Index,
        queries: &VectorFile,
        search: &SearchOptions,
    ) -> Result<f64, IndexError> {
        let mut least = f64::INFINITY;
        for _ in 0..REPEATS {
            let before = process_ns();
            let mut elapsed = 0.0;
            for first in (0..queries.count()).step_by(QUERIES_A_SEARCH) {
                let some = rows_of(queries, first..(first + QUERIES_A_SEARCH).min(queries.count()))?;
                elapsed += self.answers(index, &some, search)?.seconds;
            }
            let used = process_ns().saturating_sub(before) as f64;
            let spent = if used > 0.0 { used } else { elapsed * 1e9 };
            least = least.min(spent / queries.count().max(1) as f64);
        }
        Ok(least)
    }

    /// Measures the latencies of an index whose reads are loads: one thread searches as many queries at once
    /// as each thread of the request does. Queries whose reads take no time need not wait for each other, so
    /// that their median is below that of Little's law.
    fn latencies(&self, index: &Index, recall: f32) -> Result<Vec<LatencyShape>, IndexError> {
        let options = self.request.options();
        let count = self.sample.queries.count().min(LATENCY_QUERIES);
        let queries = rows_of(&self.sample.queries, 0..count)?;
        let mut shapes = Vec::new();
        for concurrency in self.request.concurrencies() {
            let in_flight = self.request.execution(concurrency).in_flight as usize;
            let search = SearchOptions {
                k: options.k,
                effort: Effort::Recall(recall),
                threads: 1,
                in_flight: Some(in_flight),
                ..SearchOptions::default()
            };
            let mut found = self.answers(index, &queries, &search)?;
            found.latencies_ns.sort_unstable();
            let mean = found.seconds * 1e9 / count.max(1) as f64 * in_flight.min(count) as f64;
            let quantile = |share: f64| {
                let at = (found.latencies_ns.len() as f64 * share) as usize;
                let at = at.min(found.latencies_ns.len().saturating_sub(1));
                found.latencies_ns.get(at).map_or(1.0, |ns| *ns as f64 / mean.max(1.0))
            };
            shapes.push(LatencyShape { concurrency, p50: quantile(0.5), p99: quantile(0.99) });
        }
        Ok(shapes)
    }

    /// Searches until the end, or until the caller wants the work to end.
    fn answers(
        &self,
        index: &Index,
        queries: &VectorFile,
        search: &SearchOptions,
    ) -> Result<SearchResult, IndexError> {
        let cancel = AtomicBool::new(self.progress.cancelled());
        let watch = || cancel.store(self.progress.cancelled(), Ordering::Relaxed);
        index.search_attended(queries, search, Control { cancel: Some(&cancel), deadline: None }, &watch)
    }
}

/// Returns the rounds of reads of a search that has `found` answers; `search` repeats it with other options.
///
/// A graph in a distant place is searched by reads that each go on when they arrive. Where pilots are, they
/// arrive one after the other, and nearly each of them counts as a round. In the distant place all reads of a
/// beam are under way before the first of them arrives, as in a search that reads whole beams.
pub(crate) fn rounds(
    index: &Index,
    options: &SearchOptions,
    found: &SearchResult,
    search: impl Fn(&SearchOptions) -> Result<SearchTotals, IndexError>,
) -> Result<u64, IndexError> {
    match index.default_mode() {
        SearchMode::Batched => Ok(found.totals.hops),
        SearchMode::Pipelined => {
            Ok(search(&SearchOptions { mode: Some(SearchMode::Batched), ..*options })?.hops)
        }
    }
}

/// Returns the parts of the memory of an open index, without its searches.
fn memory_parts(split: &MemorySplit) -> Vec<(&'static str, u64)> {
    vec![
        ("codes", split.codes),
        ("codec", split.codec),
        ("centroids", split.centroids),
        ("offsets", split.offsets),
        (PAGES, split.pages),
        ("ids", split.ids),
    ]
}

/// Returns the overall ratio of the answers to `queries` queries; `None` if the request names none, or if no
/// query has one.
fn found_ratio(
    request: &AdviceRequest,
    truth: &IdFile,
    found: &SearchResult,
    queries: usize,
) -> Result<Option<f64>, GroundTruthError> {
    let options = request.options();
    let wanted = options.ratio.and_then(|_| OverallRatio::new(options.metric, truth));
    let Some(mut ratio) = wanted else { return Ok(None) };
    ratio.add(truth, &found.ids, &found.distances, found.k, queries)?;
    Ok(ratio.mean())
}

/// Returns how many of `count` queries, which took `seconds` together, are searched to measure their
/// processor time.
fn affordable(count: usize, seconds: f64) -> usize {
    let share = (TIMED_SECONDS / seconds.max(TIMED_SECONDS)).min(1.0);
    ((count as f64 * share) as usize).clamp(SCAN_QUERIES.min(count), count)
}

/// Returns some of the queries.
fn rows_of(queries: &VectorFile, rows: std::ops::Range<usize>) -> Result<VectorFile, IndexError> {
    let bytes = queries.rows(rows).unwrap_or_default().to_vec();
    Ok(VectorFile::from_rows(queries.element(), queries.dim(), bytes)?)
}
