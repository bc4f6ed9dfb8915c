//! Building a graph index: vectors in memory, two passes, then pages, codes and calibration on disk.

use super::adjacency::Adjacency;
use super::calibrate;
use super::grow::Growth;
use super::options::{BuildOptions, BuildReport};
use super::repair;
use super::space::Space;
use super::write;
use crate::error::IndexError;
use crate::format::directory::BuildDirectory;
use crate::format::manifest::{
    Calibration, CodesEntry, FORMAT_VERSION, FileEntry, GraphEntry, MAX_DIM, MAX_VECTORS, Manifest,
};
use crate::format::pages::{PAGE_BYTES, PageLayout};
use crate::index::TierChoice;
use crate::progress::Progress;
use crate::vectors::VectorFile;
use std::path::Path;
use std::time::Instant;

/// Memory of a build besides what grows with the vectors: buffers, samples, code tables, thread stacks.
const FIXED_MEMORY: u64 = 96 << 20;
/// Memory of each thread: search state, read buffers, blocks of exact search.
const MEMORY_A_THREAD: u64 = 24 << 20;

/// Bytes that a build will take at its peak.
pub fn planned_memory(data: &VectorFile, options: &BuildOptions) -> u64 {
    let count = data.count() as u64;
    let codes = count * u64::from(write::code_bytes(options, data.dim()));
    let sample = write::sample_bytes(data.count(), data.dim());
    // A mapped file's pages count as resident while they are copied, and once more when calibration computes
    // its exact answers; in between they are given back.
    let mapped = data.data_bytes();
    let growing =
        Adjacency::planned_bytes(count, options.max_degree) + count * 4 + repair::planned_bytes(count);
    let space = Space::planned_bytes(data, options.metric) + growing;
    let peak = space + mapped.max(sample).max(codes);
    let threads = options.thread_count() as u64 * MEMORY_A_THREAD;
    peak + threads + FIXED_MEMORY
}

/// Builds an index over `data` at `target`.
///
/// Nothing appears at `target` before the index is complete; on any error, and on cancellation, what was
/// written is removed.
///
/// # Errors
/// [`IndexError`]: bad parameters, vectors that are not finite, all-zero vectors under cosine, too small a memory
/// budget (with the number needed), an existing target, a full disk, cancellation.
pub fn build(
    data: &VectorFile,
    target: &Path,
    options: &BuildOptions,
    progress: &dyn Progress,
) -> Result<BuildReport, IndexError> {
    let started = Instant::now();
    options.check()?;
    check_data(data, options)?;
    let planned = planned_memory(data, options);
    if let Some(given) = options.memory_bytes.filter(|given| *given < planned) {
        return Err(IndexError::Memory {
            what: "building this index",
            needed: planned,
            given,
            advice: "allow at least that much, or lower max_degree or code_bytes",
        });
    }
    let directory = BuildDirectory::create(target, options.overwrite)?;
    let threads = options.thread_count();
    let mut stages = Stages { started, last: started, seconds: Vec::new() };

    progress.stage("loading vectors", data.count() as u64);
    match data.check_finite_until(&|| progress.cancelled()) {
        Some(checked) => checked?,
        None => return Err(IndexError::Cancelled),
    }
    let space = Space::load(data, options.metric, threads, progress)?;
    data.release();
    stages.end("load");
    let entry = space.medoid(threads, progress)?;
    let held_out = calibrate::hold_out(data, entry, options);
    let graph = Adjacency::new(space.count(), options.max_degree);
    let growth = Growth { space: &space, graph, entry, options, threads, progress };
    let mut order = growth.passes(&held_out)?;
    growth.finish(&order)?;
    stages.end("grow graph");
    let layout = page_layout(data, options)?;
    let file = write::write_graph(directory.path(), &layout, &space, &growth.graph, progress)?;
    stages.end("write graph");
    let codes = write::write_codes(directory.path(), &space, options, threads, progress)?;
    stages.end("codes");

    let mut manifest = manifest(data, options, entry, file, codes);
    // Thousands of searches: from memory where the budget has room for the pages, else through the page cache.
    let graph_bytes = manifest.graph.file.bytes;
    let roomy = options.memory_bytes.is_none_or(|given| given >= planned + graph_bytes);
    let tier = if roomy { TierChoice::Dram } else { TierChoice::File };
    manifest.calibration =
        calibrate::calibrate(directory.path(), &manifest, data, &held_out, tier, options, progress)?;
    stages.end("calibrate");
    if !held_out.is_empty() {
        growth.insert("inserting held-out vectors", &held_out, options.alpha, options.search_list)?;
        order.extend(&held_out);
        growth.finish(&order)?;
        manifest.graph.file = write::write_graph(directory.path(), &layout, &space, &growth.graph, progress)?;
        stages.end("held-out vectors");
    }
    let links: u64 = (0..space.count() as u32).map(|id| growth.graph.degree(id) as u64).sum();
    let mean_degree = links as f64 / space.count() as f64;
    manifest.build_seconds = started.elapsed().as_secs_f64();
    manifest.write(directory.path())?;
    directory.publish()?;
    Ok(report(&manifest, options, threads, planned, mean_degree, stages))
}

/// The manifest of an index that has not been calibrated yet.
fn manifest(
    data: &VectorFile,
    options: &BuildOptions,
    entry_point: u32,
    file: FileEntry,
    codes: CodesEntry,
) -> Manifest {
    Manifest {
        format_version: FORMAT_VERSION,
        written_by: format!("bathyal {}", env!("CARGO_PKG_VERSION")),
        family: "vamana".into(),
        vectors: data.count() as u64,
        dim: data.dim() as u32,
        element: data.element().name().into(),
        metric: options.metric.name().into(),
        data_bytes: data.data_bytes(),
        seed: options.seed,
        build_seconds: 0.0,
        graph: GraphEntry {
            file,
            layout: "padded".into(),
            page_bytes: PAGE_BYTES,
            max_degree: options.max_degree,
            search_list: options.search_list,
            alpha: options.alpha,
            entry_point,
        },
        codes,
        calibration: Calibration::default(),
    }
}

fn report(
    manifest: &Manifest,
    options: &BuildOptions,
    threads: usize,
    planned_memory_bytes: u64,
    mean_degree: f64,
    stages: Stages,
) -> BuildReport {
    BuildReport {
        build_seconds: manifest.build_seconds,
        index_bytes: manifest.index_bytes(),
        data_bytes: manifest.data_bytes,
        amplification: manifest.index_bytes() as f64 / manifest.data_bytes as f64,
        vectors: manifest.vectors,
        dim: manifest.dim,
        element: manifest.element.clone(),
        metric: manifest.metric.clone(),
        max_degree: options.max_degree,
        search_list: options.search_list,
        code_kind: manifest.codes.kind.clone(),
        code_bytes: manifest.codes.code_bytes,
        mean_degree,
        threads,
        planned_memory_bytes,
        stage_seconds: stages.seconds,
    }
}

/// How long each stage of a build took.
struct Stages {
    started: Instant,
    last: Instant,
    seconds: Vec<(String, f64)>,
}

impl Stages {
    fn end(&mut self, name: &str) {
        let now = Instant::now();
        self.seconds.push((name.into(), (now - self.last).as_secs_f64()));
        self.last = now;
        debug_assert!(self.started <= now);
    }
}

fn check_data(data: &VectorFile, options: &BuildOptions) -> Result<(), IndexError> {
    if data.count() as u64 > MAX_VECTORS {
        return Err(IndexError::Parameter(format!(
            "{}: {} vectors are more than the {MAX_VECTORS} that one index holds; split the file",
            data.path().display(),
            data.count()
        )));
    }
    if data.dim() > MAX_DIM as usize {
        return Err(IndexError::Parameter(format!(
            "{}: {} dimensions are more than the {MAX_DIM} that an index holds",
            data.path().display(),
            data.dim()
        )));
    }
    if let Some(queries) = &options.calibration
        && (queries.dim() != data.dim() || queries.element() != data.element())
    {
        return Err(IndexError::Parameter(format!(
            "{}: the calibration queries have {} dimensions of {}, the data has {} of {}",
            queries.path().display(),
            queries.dim(),
            queries.element(),
            data.dim(),
            data.element()
        )));
    }
    Ok(())
}

/// The layout of the graph's records.
fn page_layout(data: &VectorFile, options: &BuildOptions) -> Result<PageLayout, IndexError> {
    PageLayout::new(data.element(), data.dim() as u32, options.max_degree, PAGE_BYTES)
        .map_err(IndexError::Parameter)
}
