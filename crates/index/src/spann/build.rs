//! Building posting lists: leaves and their means, a graph over these, the lists of each vector, what each list stores.

use super::assign::{self, Assigned};
use super::place::{self, Leaves};
use super::plan::{Plan, Shape};
use super::{coded, graph, measure, write};
use crate::build::{Stages, least_manifest};
use crate::error::IndexError;
use crate::format::directory::BuildDirectory;
use crate::format::manifest::{CodesEntry, SpannEntry, Structure};
use crate::parts;
use crate::parts::intake::Intake;
use crate::progress::Progress;
use crate::vamana::space::Space;
use crate::vamana::{BuildOptions, BuildReport};
use crate::vectors::VectorFile;
use std::path::Path;

/// What all stages of a build read.
pub(crate) type Work<'a> = parts::Work<'a, Shape>;

/// Bytes of memory at the build's peak; above the budget of `options` only if no plan keeps within it.
pub(crate) fn planned_memory(data: &VectorFile, options: &BuildOptions) -> u64 {
    Plan::new(data, options).planned
}

/// Builds posting lists over `data` at `target`.
pub(crate) fn build(
    data: &VectorFile,
    target: &Path,
    options: &BuildOptions,
    planned: u64,
    progress: &dyn Progress,
) -> Result<BuildReport, IndexError> {
    let plan = Plan::new(data, options);
    plan.shape.check(data, options)?;
    let directory = BuildDirectory::create(target, options.overwrite)?;
    let threads = options.thread_count();
    let (layout, rows) = (plan.shape, plan.rows);
    let work = Work { data, options, layout, rows, threads, directory: directory.path(), progress };
    let mut stages = Stages::begin();

    announce(&work);
    let mut intake = work.intake();
    let parts = work.divide(&mut intake)?;
    if !work.whole() {
        stages.end("spread");
    }
    let (leaves, centroids) = place::place(&work, &mut intake, &parts, &mut stages)?;
    let Navigated { assigned, files, codes, entry_point } =
        navigate(&work, &intake, &leaves, centroids, &mut stages)?;
    work.progress.stage("admitting", leaves.count() as u64);
    let members = assigned.requests.admit(&leaves, work.layout.list_limit, |lists| {
        work.progress.advance(lists);
        work.go_on()
    })?;
    stages.end("admit");
    let coded = coded::write::encode(&work, &intake, &leaves)?;
    if coded.is_some() {
        stages.end("encode lists");
    }
    let lists = match &coded {
        Some(coded) => coded.write(&work, &leaves, &members)?,
        None => write::write(&work, &intake, &leaves, &members, &assigned.frequencies)?,
    };
    stages.end("write lists");

    let entry = SpannEntry {
        file: lists.postings,
        checksums: lists.checksums,
        lists: lists.lists,
        centroids: files.centroids,
        links: files.links,
        ids: lists.ids,
        layout: lists.table.layout().name().into(),
        codes: coded.as_ref().map(|coded| Box::new(coded.entry.clone())),
        list_count: lists.table.lists() as u32,
        copies: lists.table.copies(),
        replicas: options.list_replicas(),
        centroid_share: options.centroid_share,
        list_limit: work.layout.list_limit as u32,
        longest_bytes: lists.table.longest() as u32,
        max_degree: graph::CENTROID_DEGREE,
        entry_point,
    };
    let mut manifest = least_manifest(data, options, "spann", Structure::Spann(entry), codes);
    manifest.calibration = match &coded {
        Some(coded) => coded::measure::calibrate(&work, &manifest, &leaves, coded, &lists.table)?,
        None => measure::calibrate(&work, &manifest, &leaves, &members)?,
    };
    stages.end("calibrate");
    leaves.remove()?;
    if let Some(coded) = coded {
        coded.remove()?;
    }
    members.remove()?;
    manifest.build_seconds = stages.seconds_so_far();
    manifest.write(directory.path())?;
    directory.publish()?;
    Ok(BuildReport::new(&manifest, threads, planned, 0.0, stages))
}

/// What is left when the centroids have done their part.
struct Navigated {
    assigned: Assigned,
    files: graph::Files,
    codes: CodesEntry,
    entry_point: u32,
}

/// Grows the graph over the centroids, lets all vectors ask for lists, and writes what a search navigates by.
fn navigate(
    work: &Work<'_>,
    intake: &Intake,
    leaves: &Leaves,
    centroids: Space,
    stages: &mut Stages,
) -> Result<Navigated, IndexError> {
    let options = graph::options(work);
    let growth = graph::grow(work, &centroids, &options)?;
    stages.end("grow graph");
    let assigned = assign::assign(work, intake, leaves, &growth)?;
    stages.end("assign");
    let files = graph::write(work, &growth)?;
    let (directory, threads, progress) = (work.directory, work.threads, work.progress);
    let codes = crate::vamana::write::write_codes(directory, &centroids, None, &options, threads, progress)?;
    stages.end("codes");
    Ok(Navigated { assigned, files, codes, entry_point: growth.entry })
}

/// Tells the receiver of progress what is to come. The numbers are seconds on one machine, so their proportions say how
/// long the rest takes on another.
fn announce(work: &Work<'_>) {
    let values = work.data.count() as f64 * work.data.dim() as f64 / 128e6;
    let lists = values * 25.0 / work.layout.leaf as f64;
    let first = if work.whole() { ("loading vectors", 0.3 * values) } else { ("spreading", 1.5 * values) };
    work.progress.plan(&[
        first,
        ("grouping", 7.0 * values),
        ("first pass", 4.0 * lists),
        ("second pass", 8.0 * lists),
        ("trimming", 1.0 * lists),
        ("assigning", 8.0 * values),
        ("training codes", 2.0),
        ("encoding", 0.1 * lists),
        ("admitting", 1.0 * values),
        ("placing vectors", 0.5 * values),
        ("writing lists", 1.5 * values),
        ("exact neighbours", 3.0 * values),
        ("calibrating", 4.0),
    ]);
}
