//! Building a graph index: two passes over vectors in memory, of all at once or part by part; then pages, codes and calibration
//! on disk.

use super::calibrate::{self, HeldOut, Measured};
use super::options::{GraphLayoutChoice, GraphOptions};
use super::parts::{Journal, Parts};
use super::plan::Plan;
use super::section::{GraphEntry, NAME, STRIPED};
use super::sizes;
use super::whole::Whole;
use super::work::{Grown, Work};
use crate::build::options::{BuildOptions, BuildReport, Builder, Details, FamilyOptions, Job};
use crate::build::plan::FamilyPlan;
use crate::build::publishing::{Note, Start, publish, publish_finished};
use crate::build::{Stages, journal, least_manifest};
use crate::error::IndexError;
use crate::form::source::Source;
use crate::format::manifest::Manifest;
use crate::partition::space::Space;
use bathyal_store::Draft;

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

    fn calibrates(&self) -> bool {
        true
    }

    fn planned_memory(&self, data: &Source<'_>, options: &BuildOptions) -> u64 {
        Plan::new(data, self, options).planned
    }

    fn plan(&self, data: &Source<'_>, options: &BuildOptions) -> Result<FamilyPlan, IndexError> {
        sizes::plan(data, self, options)
    }

    /// Codes of fewer bytes that do not lie in groups are product codes, which no graphics card scores.
    fn with_default_code_bytes(&self, _bytes: u32) -> Option<FamilyOptions> {
        None
    }

    fn leaner(&self, dim: usize) -> Vec<(&'static str, FamilyOptions)> {
        let padded = GraphOptions { layout: GraphLayoutChoice::Padded, ..*self };
        vec![
            ("build the padded layout, in parts, and convert it where there is more memory", padded.into()),
            ("lower max_degree", GraphOptions { max_degree: self.max_degree / 2, ..*self }.into()),
            ("lower code_bytes", GraphOptions { code_bytes: self.codes().halved(dim), ..*self }.into()),
        ]
    }

    fn build(&self, job: Job<'_>) -> Result<BuildReport, IndexError> {
        build(job, self)
    }
}

/// Builds a graph, or continues a build of the same that was killed.
fn build(job: Job<'_>, own: &GraphOptions) -> Result<BuildReport, IndexError> {
    let Job { data, target, options, identity, planned, progress } = job;
    let (rows, threads) = (Plan::new(data, own, options).rows, options.thread_count());
    let fingerprint = journal::fingerprint(data, options, identity, STEPS_VERSION);
    let shape = (data.count(), data.row_bytes(), rows);
    // A graph that fits in memory is there until it is whole, so it has no step before the last to go on from.
    let journal = |draft: &dyn Draft, fingerprint: &str| {
        if rows >= data.count() { None } else { Journal::read(draft, fingerprint, shape) }
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
        Start::Anew => Journal::new(&fingerprint),
    };
    let mut stages = Stages::begin_after(journal.seconds);
    let (layout, directory) = ((), draft.as_ref());
    let work = Work { data, options, own, layout, identity, rows, threads, directory, progress };
    let built = if work.placed_at_once() {
        progress.stage("loading vectors", data.count() as u64);
        let space = Space::load(data, options.metric, threads, progress)?;
        stages.end("load");
        let mut whole = Whole::grow(&work, &space, &mut stages)?;
        // Thousands of searches: from memory where the budget has room for the pages, else through the page cache.
        let room = |bytes| options.memory_bytes.is_none_or(|given| given >= planned + bytes);
        finish(&work, &mut whole, room, &mut stages)?
    } else {
        let mut parts = Parts::grow(&work, &mut journal, &mut stages)?;
        finish(&work, &mut parts, |_| false, &mut stages)?
    };
    let (mut manifest, section, links) = built;
    manifest.build_seconds = stages.seconds_so_far();
    publish(draft, &manifest, &Note { fingerprint, links }, progress)?;
    let details = details(&section, links, manifest.vectors);
    Ok(BuildReport::new(&manifest, threads, planned, stages, details))
}

/// Writes, encodes, calibrates and completes what is grown; returns the manifest, but for the seconds, and the links.
fn finish(
    work: &Work<'_>,
    grown: &mut impl Grown,
    room_for: impl Fn(u64) -> bool,
    stages: &mut Stages,
) -> Result<(Manifest, GraphEntry, u64), IndexError> {
    let (data, directory, options, progress) = (work.data, work.directory, work.options, work.progress);
    let identity = grown.identify(work)?;
    let files = grown.write(work)?;
    stages.end("write graph");
    let codes = grown.write_codes(work)?;
    stages.end("codes");
    let mut section = grown.section(work, files, codes);
    let mut manifest = least_manifest(data, options, identity);
    manifest.set_structure(&section, section.files())?;
    let in_memory = room_for(section.file.bytes);
    let missing = HeldOut { ids: grown.held_out(), hidden: grown.hidden() };
    let measured = Measured { directory, manifest: &manifest, entry: &section, data, in_memory };
    section.calibration = calibrate::calibrate(&measured, missing, options, progress)?;
    stages.end("calibrate");
    if !grown.held_out().is_empty() {
        grown.complete(work)?;
        manifest.identity = Some(grown.identify(work)?.to_string());
        (section.file, section.offsets) = grown.write(work)?;
        stages.end("held-out vectors");
    }
    manifest.set_structure(&section, section.files())?;
    Ok((manifest, section, grown.links()))
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
