//! Builds a graph index: two passes over vectors in memory, of all vectors at once or part by part. Then it
//! writes pages and codes, and calibrates.

use super::calibrate::{self, DraftGraph, HeldOutVectors};
use super::options::{GraphLayoutChoice, GraphOptions};
use super::parts::{DataShape, GraphJournal, MergedGraph};
use super::plan::GraphPlan;
use super::section::{GraphEntry, NAME, STRIPED};
use super::sizes;
use super::whole::WholeGraph;
use super::work::{GrownGraph, Work};
use crate::build::options::{BuildOptions, BuildReport, Builder, Details, FamilyOptions, Job};
use crate::build::plan::FamilyPlan;
use crate::build::publishing::{Note, Start, publish, publish_finished};
use crate::build::{StageTimes, journal, least_manifest};
use crate::error::IndexError;
use crate::form::source::SourceVectors;
use crate::format::manifest::Manifest;
use crate::partition::space::Space;
use bathyal_store::Draft;

/// Version of the steps of a build. It changes whenever the files that a build writes change.
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

    fn calibrates(&self) -> bool {
        true
    }

    fn planned_memory(&self, data: &SourceVectors<'_>, options: &BuildOptions) -> u64 {
        GraphPlan::new(data, self, options).planned
    }

    fn plan(&self, data: &SourceVectors<'_>, options: &BuildOptions) -> Result<FamilyPlan, IndexError> {
        sizes::plan(data, self, options)
    }

    /// Shorter codes of whole vectors would be product codes, which a graphics card cannot score.
    fn with_default_code_bytes(&self, _bytes: u32) -> Option<FamilyOptions> {
        None
    }

    fn leaner(&self, dim: usize) -> Vec<(&'static str, FamilyOptions)> {
        let padded = GraphOptions { layout: GraphLayoutChoice::Padded, ..*self };
        vec![
            (
                "build the layout padded, in parts, and convert it on a machine with more memory",
                padded.into(),
            ),
            ("lower max_degree", GraphOptions { max_degree: self.max_degree / 2, ..*self }.into()),
            ("lower code_bytes", GraphOptions { code_bytes: self.codes().halved(dim), ..*self }.into()),
        ]
    }

    fn build(&self, job: Job<'_>) -> Result<BuildReport, IndexError> {
        build(job, self)
    }
}

/// Builds a graph, or continues a build of the same that was killed.
fn build(job: Job<'_>, graph_options: &GraphOptions) -> Result<BuildReport, IndexError> {
    let Job { data, target, options, identity, planned, progress } = job;
    let (rows, threads) = (GraphPlan::new(data, graph_options, options).rows, options.thread_count());
    let fingerprint = journal::fingerprint(data, options, identity, STEPS_VERSION);
    let shape = DataShape { vectors: data.count(), row_bytes: data.row_bytes(), rows };
    // A graph that is grown at once is in memory until it is complete, so its build has no step to continue
    // from.
    let journal = |draft: &dyn Draft, fingerprint: &str| {
        if rows >= data.count() { None } else { GraphJournal::read(draft, fingerprint, shape) }
    };
    let (draft, start) = target.start(fingerprint.as_deref(), journal)?;
    let fingerprint = fingerprint.unwrap_or_default();
    let mut journal = match start {
        Start::Finished(manifest, note) => {
            let section = GraphEntry::read(&manifest).map_err(IndexError::Internal)?;
            let details = details(&section, note.links, manifest.vectors);
            return publish_finished(draft, &manifest, &note, threads, planned, details, progress);
        }
        Start::After(journal) => journal,
        Start::Anew => GraphJournal::new(&fingerprint),
    };
    let mut stages = StageTimes::begin_after(journal.seconds);
    let (layout, directory) = ((), draft.as_ref());
    let work =
        Work { data, options, own: graph_options, layout, identity, rows, threads, directory, progress };
    let built = if work.placed_at_once() {
        progress.stage("loading vectors", data.count() as u64);
        let space = Space::load(data, options.metric, threads, progress)?;
        stages.end("load");
        let mut graph = WholeGraph::grow(&work, &space, &mut stages)?;
        // The calibration runs thousands of searches. They read from memory if the budget has room for the
        // pages, otherwise through the page cache.
        let has_room = |bytes| options.memory_bytes.is_none_or(|budget| budget >= planned + bytes);
        finish(&work, &mut graph, has_room, &mut stages)?
    } else {
        let mut graph = MergedGraph::grow(&work, &mut journal, &mut stages)?;
        finish(&work, &mut graph, |_| false, &mut stages)?
    };
    let CompletedGraph { mut manifest, section, links } = built;
    manifest.build_seconds = stages.seconds_so_far();
    publish(draft, &manifest, &Note { fingerprint, links }, progress)?;
    let details = details(&section, links, manifest.vectors);
    Ok(BuildReport::new(&manifest, threads, planned, stages, details))
}

/// A graph that is written and calibrated.
struct CompletedGraph {
    /// The manifest without the seconds of the build.
    manifest: Manifest,
    section: GraphEntry,
    links: u64,
}

/// Writes, encodes, calibrates and completes `graph`. `has_room_for` tells if the budget has room for a
/// number of bytes.
fn finish(
    work: &Work<'_>,
    graph: &mut impl GrownGraph,
    has_room_for: impl Fn(u64) -> bool,
    stages: &mut StageTimes,
) -> Result<CompletedGraph, IndexError> {
    let (data, directory, options, progress) = (work.data, work.directory, work.options, work.progress);
    let identity = graph.identify(work)?;
    let files = graph.write(work)?;
    stages.end("write graph");
    let codes = graph.write_codes(work)?;
    stages.end("codes");
    let mut section = graph.section(work, files, codes);
    let mut manifest = least_manifest(data, options, identity);
    manifest.set_structure(&section, section.files())?;
    let in_memory = has_room_for(section.file.bytes);
    let held_out = HeldOutVectors { ids: graph.held_out(), hidden_places: graph.hidden() };
    let draft_graph = DraftGraph { directory, manifest: &manifest, entry: &section, data, in_memory };
    section.calibration = calibrate::calibrate(&draft_graph, held_out, options, progress)?;
    stages.end("calibrate");
    if !graph.held_out().is_empty() {
        graph.complete(work)?;
        manifest.identity = Some(graph.identify(work)?.to_string());
        (section.file, section.offsets) = graph.write(work)?;
        stages.end("held-out vectors");
    }
    manifest.set_structure(&section, section.files())?;
    Ok(CompletedGraph { manifest, section, links: graph.links() })
}

/// Returns the details of a build that only this family reports.
fn details(section: &GraphEntry, links: u64, vectors: u64) -> Details {
    Details::from([
        ("max_degree", section.max_degree.into()),
        ("search_list", section.search_list.into()),
        ("mean_degree", (links as f64 / vectors as f64).into()),
        ("code_kind", section.codes.kind.as_str().into()),
        ("code_bytes", section.codes.code_bytes.into()),
    ])
}
