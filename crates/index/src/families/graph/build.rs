//! Building a graph index: vectors in memory, two passes, then pages, codes and calibration on disk.

use super::adjacency::Adjacency;
use super::calibrate::{self, HeldOut, Measured};
use super::grow::Growth;
use super::local::Placed;
use super::options::{GraphLayoutChoice, GraphOptions};
use super::pack::{self, Packer};
use super::places::Places;
use super::section::{GraphEntry, NAME, STRIPED};
use super::write;
use crate::build::options::{BuildOptions, BuildReport, Builder, Details, FamilyOptions, Job};
use crate::build::publishing::{Note, Start, publish, publish_finished};
use crate::build::{Stages, journal, least_manifest};
use crate::calibrate::Calibration;
use crate::error::IndexError;
use crate::form::source::Source;
use crate::format::csr::{CsrLayout, LINE_BYTES};
use crate::format::identity::Identity;
use crate::format::local::LocalLayout;
use crate::format::manifest::{CodesEntry, FileEntry};
use crate::format::pages::PageLayout;
use crate::partition::space::Space;
use bathyal_store::Draft;
use bathyal_vectors::progress::Progress;

/// Memory of a graph's build besides what grows with the vectors: buffers, samples, code tables, thread stacks.
const FIXED_MEMORY: u64 = 96 << 20;
/// Memory of each thread: search state, read buffers, blocks of exact search.
const MEMORY_A_THREAD: u64 = 24 << 20;

/// Changes whenever what a build writes does.
const STEPS_VERSION: u32 = 2;

impl From<GraphOptions> for FamilyOptions {
    fn from(options: GraphOptions) -> FamilyOptions {
        FamilyOptions::new(options)
    }
}

impl Builder for GraphOptions {
    fn family(&self) -> &'static str {
        NAME
    }

    fn striped(&self) -> &'static [&'static str] {
        STRIPED
    }

    fn check(&self) -> Result<(), IndexError> {
        GraphOptions::check(self)
    }

    fn planned_memory(&self, data: &Source<'_>, options: &BuildOptions) -> u64 {
        planned_memory(data, self, options)
    }

    fn leaner(&self, dim: usize) -> Vec<(&'static str, FamilyOptions)> {
        vec![
            ("lower max_degree", GraphOptions { max_degree: self.max_degree / 2, ..*self }.into()),
            ("lower code_bytes", GraphOptions { code_bytes: self.codes().halved(dim), ..*self }.into()),
        ]
    }

    fn build(&self, job: Job<'_>) -> Result<BuildReport, IndexError> {
        build(job, self)
    }
}

/// Bytes of memory at the build's peak.
fn planned_memory(data: &Source<'_>, own: &GraphOptions, options: &BuildOptions) -> u64 {
    let count = data.count() as u64;
    let codes = count * u64::from(own.codes().bytes(data.dim()));
    let sample = write::sample_bytes(data.count(), data.dim()) + own.codes().training_bytes(data.dim());
    let threads = options.thread_count() as u64;
    let growing = Adjacency::planned_bytes(count, own.max_degree) + Growth::planned_bytes(count, threads);
    let placed = match own.layout {
        GraphLayoutChoice::Padded => 0,
        GraphLayoutChoice::PageLocal => {
            local_layout(data, own).map_or(0, |layout| Placed::planned_bytes(&layout, count))
        }
        GraphLayoutChoice::Csr => Places::planned_bytes(count) + Packer::BYTES_A_RECORD * count,
    };
    let vectors = Space::planned_bytes(data, options.metric) + sample.max(codes);
    vectors + growing + placed + threads * MEMORY_A_THREAD + FIXED_MEMORY
}

/// Builds a graph, or publishes one whose build was killed as it did.
fn build(job: Job<'_>, own: &GraphOptions) -> Result<BuildReport, IndexError> {
    let Job { data, target, options, identity, planned, progress } = job;
    let threads = options.thread_count();
    let fingerprint = journal::fingerprint(data, options, identity, STEPS_VERSION);
    // The graph itself is in memory until it is whole, so there is no step before the last to go on from.
    let (draft, start) = target.start(fingerprint.as_deref(), |_, _| None::<()>)?;
    if let Start::Finished(manifest, note) = start {
        let section = GraphEntry::read(&manifest).map_err(IndexError::Internal)?;
        let details = details(&section, note.links, manifest.vectors);
        return publish_finished(draft, &manifest, &note, threads, planned, details);
    }
    let directory = draft.as_ref();
    let mut stages = Stages::begin();

    progress.stage("loading vectors", data.count() as u64);
    let space = Space::load(data, options.metric, threads, progress)?;
    stages.end("load");
    let entry = space.medoid(threads, progress)?;
    let held_out = calibrate::hold_out(data, entry, options);
    let graph = Adjacency::new(space.count(), own.max_degree)?;
    let growth = Growth { space: &space, graph, entry, options: own, seed: options.seed, threads, progress };
    let mut order = growth.passes(&held_out)?;
    growth.finish(&order)?;
    stages.end("grow graph");
    let mut layout = Layout::new(data, &space, own, options.seed, threads, progress)?;
    // Threads grow another graph each time, so an index is not told from others by what it was built from alone.
    let of_graph = |graph: &Adjacency| identity.and(&format!("links {:016x}", graph.hash()));
    layout.identify(of_graph(&growth.graph));
    stages.end("place vectors");
    let files = layout.write(directory, &growth)?;
    stages.end("write graph");
    let codec = write::Coding { codes: own.codes(), metric: options.metric, seed: options.seed, threads };
    let codes = write::write_codes(directory, &space, layout.order(), codec, progress)?;
    stages.end("codes");

    let mut section = layout.section(files, codes, entry, own);
    let mut manifest = least_manifest(data, options, of_graph(&growth.graph));
    manifest.set_structure(&section, section.files())?;
    // Thousands of searches: from memory where the budget has room for the pages, else through the page cache.
    let in_memory = options.memory_bytes.is_none_or(|given| given >= planned + section.file.bytes);
    let missing = HeldOut { ids: &held_out, hidden: layout.hidden(&held_out) };
    let measured = Measured { directory, manifest: &manifest, entry: &section, data, in_memory };
    section.calibration = calibrate::calibrate(&measured, missing, options, progress)?;
    stages.end("calibrate");
    if !held_out.is_empty() {
        growth.insert("inserting held-out vectors", &held_out, own.alpha, own.search_list)?;
        order.extend(&held_out);
        growth.finish(&order)?;
        let identity = of_graph(&growth.graph);
        layout.identify(identity);
        manifest.identity = Some(identity.to_string());
        (section.file, section.offsets) = layout.write(directory, &growth)?;
        stages.end("held-out vectors");
    }
    let links: u64 = (0..space.count() as u32).map(|id| growth.graph.degree(id) as u64).sum();
    manifest.set_structure(&section, section.files())?;
    manifest.build_seconds = stages.seconds_so_far();
    publish(draft, &manifest, &Note { fingerprint: fingerprint.unwrap_or_default(), links })?;
    let details = details(&section, links, manifest.vectors);
    Ok(BuildReport::new(&manifest, threads, planned, stages, details))
}

/// What only this family has to say of a build.
fn details(section: &GraphEntry, links: u64, vectors: u64) -> Details {
    Details::from([
        ("max_degree", section.max_degree.into()),
        ("search_list", section.search_list.into()),
        ("mean_degree", (links as f64 / vectors as f64).into()),
        ("code_kind", section.codes.kind.as_str().into()),
        ("code_bytes", section.codes.code_bytes.into()),
    ])
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
        data: &Source<'_>,
        space: &Space,
        own: &GraphOptions,
        seed: u64,
        threads: usize,
        progress: &dyn Progress,
    ) -> Result<Layout, IndexError> {
        match own.layout {
            GraphLayoutChoice::Padded => {
                let layout = PageLayout::choose(data.element(), data.dim() as u32, own.max_degree);
                layout.map(Layout::Padded).map_err(IndexError::Parameter)
            }
            GraphLayoutChoice::PageLocal => {
                Placed::new(space, local_layout(data, own)?, seed, threads, progress).map(Layout::Local)
            }
            GraphLayoutChoice::Csr => {
                let (dim, count) = (data.dim() as u32, data.count());
                let layout = CsrLayout::new(data.element(), dim, count as u32, own.max_degree, LINE_BYTES);
                let layout = layout.map_err(IndexError::Parameter)?;
                let places = Places::new(space, count, 1, seed, threads, progress)?;
                Ok(Layout::Csr(layout, places))
            }
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

    fn section(&self, files: GraphFiles, codes: CodesEntry, entry: u32, own: &GraphOptions) -> GraphEntry {
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
            layout: own.layout.name().into(),
            page_bytes,
            page_vectors,
            max_degree: own.max_degree,
            search_list: own.search_list,
            alpha: own.alpha,
            entry_point,
            codes,
            calibration: Calibration::default(),
        }
    }
}

fn local_layout(data: &Source<'_>, own: &GraphOptions) -> Result<LocalLayout, IndexError> {
    LocalLayout::choose(data.element(), data.dim() as u32, data.count() as u32, own.max_degree)
        .map_err(IndexError::Parameter)
}
