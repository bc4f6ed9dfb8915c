//! Building a graph index: vectors in memory, two passes, then pages, codes and calibration on disk.

use super::adjacency::Adjacency;
use super::calibrate;
use super::grow::Growth;
use super::options::{BuildOptions, BuildReport};
use super::repair;
use super::space::Space;
use super::write;
use crate::build::{Stages, code_bytes, least_manifest};
use crate::error::IndexError;
use crate::format::directory::BuildDirectory;
use crate::format::manifest::{GraphEntry, Structure};
use crate::format::pages::{PAGE_BYTES, PageLayout};
use crate::index::TierChoice;
use crate::progress::Progress;
use crate::vectors::VectorFile;
use std::path::Path;

/// Bytes that grow with the vectors, at the build's peak.
pub(crate) fn planned_memory(data: &VectorFile, options: &BuildOptions) -> u64 {
    let count = data.count() as u64;
    let codes = count * u64::from(code_bytes(options, data.dim()));
    let sample = write::sample_bytes(data.count(), data.dim());
    // A mapped file's pages count as resident while they are copied, and once more when calibration computes
    // its exact answers; in between they are given back.
    let mapped = data.data_bytes();
    let growing =
        Adjacency::planned_bytes(count, options.max_degree) + count * 4 + repair::planned_bytes(count);
    Space::planned_bytes(data, options.metric) + growing + mapped.max(sample).max(codes)
}

/// Builds a graph over `data` at `target`; `planned` bytes are what it will take.
pub(crate) fn build(
    data: &VectorFile,
    target: &Path,
    options: &BuildOptions,
    planned: u64,
    progress: &dyn Progress,
) -> Result<BuildReport, IndexError> {
    let directory = BuildDirectory::create(target, options.overwrite)?;
    let threads = options.thread_count();
    let mut stages = Stages::begin();

    progress.stage("loading vectors", data.count() as u64);
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

    let graph_entry = GraphEntry {
        file,
        layout: "padded".into(),
        page_bytes: PAGE_BYTES,
        max_degree: options.max_degree,
        search_list: options.search_list,
        alpha: options.alpha,
        entry_point: entry,
    };
    let mut manifest = least_manifest(data, options, "vamana", Structure::Graph(graph_entry), codes);
    // Thousands of searches: from memory where the budget has room for the pages, else through the page cache.
    let graph_bytes = manifest.paged_file().bytes;
    let roomy = options.memory_bytes.is_none_or(|given| given >= planned + graph_bytes);
    let tier = if roomy { TierChoice::Dram } else { TierChoice::File };
    manifest.calibration =
        calibrate::calibrate(directory.path(), &manifest, data, &held_out, tier, options, progress)?;
    stages.end("calibrate");
    if !held_out.is_empty() {
        growth.insert("inserting held-out vectors", &held_out, options.alpha, options.search_list)?;
        order.extend(&held_out);
        growth.finish(&order)?;
        let file = write::write_graph(directory.path(), &layout, &space, &growth.graph, progress)?;
        manifest.replace_paged_file(file);
        stages.end("held-out vectors");
    }
    let links: u64 = (0..space.count() as u32).map(|id| growth.graph.degree(id) as u64).sum();
    let mean_degree = links as f64 / space.count() as f64;
    manifest.build_seconds = stages.seconds_so_far();
    manifest.write(directory.path())?;
    directory.publish()?;
    Ok(BuildReport::new(&manifest, threads, planned, mean_degree, stages))
}

/// The layout of the graph's records.
fn page_layout(data: &VectorFile, options: &BuildOptions) -> Result<PageLayout, IndexError> {
    PageLayout::new(data.element(), data.dim() as u32, options.max_degree, PAGE_BYTES)
        .map_err(IndexError::Parameter)
}
