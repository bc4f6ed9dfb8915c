//! Building a graph index: vectors in memory, two passes, then pages, codes and calibration on disk.

use super::adjacency::Adjacency;
use super::calibrate::{self, HeldOut};
use super::grow::Growth;
use super::local::Placed;
use super::options::{BuildOptions, BuildReport, LayoutChoice};
use super::pack::{self, Packer};
use super::places::Places;
use super::repair;
use super::space::Space;
use super::write;
use crate::build::publishing::{Note, Start, Target, publish, publish_finished};
use crate::build::{Stages, code_bytes, journal, least_manifest};
use crate::error::IndexError;
use crate::format::csr::{CsrLayout, LINE_BYTES};
use crate::format::identity::Identity;
use crate::format::local::LocalLayout;
use crate::format::manifest::{FileEntry, GraphEntry, Structure};
use crate::format::pages::PageLayout;
use crate::open::TierChoice;
use bathyal_store::Draft;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Progress;

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
    let placed = match options.graph_layout() {
        LayoutChoice::Padded => 0,
        LayoutChoice::PageLocal => {
            local_layout(data, options).map_or(0, |layout| Placed::planned_bytes(&layout, count))
        }
        LayoutChoice::Csr => Places::planned_bytes(count) + Packer::BYTES_A_RECORD * count,
        // Refused with the other options.
        LayoutChoice::Coupled | LayoutChoice::Decoupled | LayoutChoice::Grouped => 0,
    };
    Space::planned_bytes(data, options.metric) + growing + placed + mapped.max(sample).max(codes)
}

/// Builds a graph over `data` at `target`, or publishes one whose build was killed as it did; `planned` bytes are what it
/// will take.
pub(crate) fn build(
    data: &VectorFile,
    target: &Target<'_>,
    options: &BuildOptions,
    identity: Identity,
    planned: u64,
    progress: &dyn Progress,
) -> Result<BuildReport, IndexError> {
    let threads = options.thread_count();
    let fingerprint = fingerprint(data, options, identity);
    // The graph itself is in memory until it is whole, so there is no step before the last to go on from.
    let (draft, start) = target.start(fingerprint.as_deref(), |_, _| None::<()>)?;
    if let Start::Finished(manifest, note) = start {
        return publish_finished(draft, &manifest, &note, threads, planned);
    }
    let directory = draft.as_ref();
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
    let mut layout = Layout::new(data, &space, options, threads, progress)?;
    // Threads grow another graph each time, so an index is not told from others by what it was built from alone.
    let of_graph = |graph: &Adjacency| identity.and(&format!("links {:016x}", graph.hash()));
    layout.identify(of_graph(&growth.graph));
    stages.end("place vectors");
    let files = layout.write(directory, &growth)?;
    stages.end("write graph");
    let codes = write::write_codes(directory, &space, layout.order(), options, threads, progress)?;
    stages.end("codes");

    let graph_entry = layout.entry(files, entry, options);
    let mut manifest = least_manifest(
        data,
        options,
        of_graph(&growth.graph),
        "vamana",
        Structure::Graph(graph_entry),
        codes,
    );
    // Thousands of searches: from memory where the budget has room for the pages, else through the page cache.
    let graph_bytes = manifest.paged_file().bytes;
    let roomy = options.memory_bytes.is_none_or(|given| given >= planned + graph_bytes);
    let tier = if roomy { TierChoice::Dram } else { TierChoice::File };
    let missing = HeldOut { ids: &held_out, hidden: layout.hidden(&held_out) };
    manifest.calibration =
        calibrate::calibrate(directory, &manifest, data, missing, tier, options, progress)?;
    stages.end("calibrate");
    if !held_out.is_empty() {
        growth.insert("inserting held-out vectors", &held_out, options.alpha, options.search_list)?;
        order.extend(&held_out);
        growth.finish(&order)?;
        let identity = of_graph(&growth.graph);
        layout.identify(identity);
        manifest.identity = Some(identity.to_string());
        let files = layout.write(directory, &growth)?;
        manifest.structure = Structure::Graph(layout.entry(files, entry, options));
        stages.end("held-out vectors");
    }
    let links: u64 = (0..space.count() as u32).map(|id| growth.graph.degree(id) as u64).sum();
    let mean_degree = links as f64 / space.count() as f64;
    manifest.build_seconds = stages.seconds_so_far();
    publish(draft, &manifest, &Note { fingerprint: fingerprint.unwrap_or_default(), links })?;
    Ok(BuildReport::new(&manifest, threads, planned, mean_degree, stages))
}

/// What a build is made from: the data and every option that has a part in the result. `None` for vectors in memory.
fn fingerprint(data: &VectorFile, options: &BuildOptions, identity: Identity) -> Option<String> {
    let source = journal::source(data, options, identity)?;
    Some(format!(
        "graph of {}; {source}; {} {:?}",
        env!("CARGO_PKG_VERSION"),
        options.threads,
        options.memory_bytes
    ))
}

/// The layout of the graph's file, with all that it takes to write it.
enum Layout {
    Padded(PageLayout),
    Local(Placed),
    Csr(CsrLayout, Places),
}

/// What was written: the graph, and where its records begin.
type GraphFiles = (FileEntry, Option<FileEntry>);

impl Layout {
    fn new(
        data: &VectorFile,
        space: &Space,
        options: &BuildOptions,
        threads: usize,
        progress: &dyn Progress,
    ) -> Result<Layout, IndexError> {
        match options.graph_layout() {
            LayoutChoice::Padded => {
                let layout = PageLayout::choose(data.element(), data.dim() as u32, options.max_degree);
                layout.map(Layout::Padded).map_err(IndexError::Parameter)
            }
            LayoutChoice::PageLocal => {
                Placed::new(space, local_layout(data, options)?, options, threads, progress)
                    .map(Layout::Local)
            }
            LayoutChoice::Csr => {
                let (dim, count) = (data.dim() as u32, data.count());
                let layout =
                    CsrLayout::new(data.element(), dim, count as u32, options.max_degree, LINE_BYTES);
                let layout = layout.map_err(IndexError::Parameter)?;
                let places = Places::new(space, count, 1, options.seed, threads, progress)?;
                Ok(Layout::Csr(layout, places))
            }
            other => Err(IndexError::Internal(format!("a graph of layout {}", other.name()))),
        }
    }

    fn write(&self, directory: &dyn Draft, growth: &Growth<'_>) -> Result<GraphFiles, IndexError> {
        let (space, graph, progress) = (growth.space, &growth.graph, growth.progress);
        match self {
            Layout::Padded(layout) => {
                Ok((write::write_graph(directory, layout, space, graph, progress)?, None))
            }
            Layout::Local(placed) => {
                let links = placed.links(graph, growth.entry, growth.threads, progress)?;
                Ok((placed.write(directory, space, &links, progress)?, None))
            }
            Layout::Csr(layout, places) => {
                let (file, offsets) = pack::write_packed(directory, layout, places, space, graph, progress)?;
                Ok((file, Some(offsets)))
            }
        }
    }

    /// Sets what the checksums begin with.
    fn identify(&mut self, identity: Identity) {
        match self {
            Layout::Padded(layout) => *layout = layout.identified(identity),
            Layout::Local(placed) => placed.layout = placed.layout.identified(identity),
            Layout::Csr(layout, _) => *layout = layout.identified(identity),
        }
    }

    /// The ids by place, where these differ.
    fn order(&self) -> Option<&[u32]> {
        match self {
            Layout::Padded(_) => None,
            Layout::Local(placed) => Some(&placed.order.ids),
            Layout::Csr(_, places) => Some(&places.ids),
        }
    }

    /// The places of vectors that no link leads to, but that may be pivots or share a page with others: rising.
    fn hidden(&self, held_out: &[u32]) -> Vec<u32> {
        let mut places = match self {
            Layout::Padded(_) => held_out.to_vec(),
            Layout::Local(placed) => held_out.iter().map(|id| placed.place_of(*id)).collect(),
            Layout::Csr(_, places) => held_out.iter().map(|id| places.place_of(*id)).collect(),
        };
        places.sort_unstable();
        places
    }

    fn entry(&self, files: GraphFiles, entry: u32, options: &BuildOptions) -> GraphEntry {
        let (page_bytes, page_vectors, entry_point) = match self {
            Layout::Padded(layout) => (layout.page_bytes() as u32, 0, entry),
            Layout::Local(placed) => {
                let layout = &placed.layout;
                (layout.page_bytes() as u32, layout.records() as u32, placed.place_of(entry))
            }
            Layout::Csr(_, places) => (LINE_BYTES, 0, places.place_of(entry)),
        };
        let (file, offsets) = files;
        GraphEntry {
            file,
            offsets,
            layout: options.graph_layout().name().into(),
            page_bytes,
            page_vectors,
            max_degree: options.max_degree,
            search_list: options.search_list,
            alpha: options.alpha,
            entry_point,
        }
    }
}

fn local_layout(data: &VectorFile, options: &BuildOptions) -> Result<LocalLayout, IndexError> {
    LocalLayout::choose(data.element(), data.dim() as u32, data.count() as u32, options.max_degree)
        .map_err(IndexError::Parameter)
}
