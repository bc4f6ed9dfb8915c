//! Building posting lists: leaves and their means, a graph over these, the lists of each vector, what each list stores.

use super::assign;
use super::journal::{self, Admitted, FREQUENCIES_NAME, Journal, fingerprint};
use super::members::Memberships;
use super::place::{self, Leaves};
use super::plan::{Plan, Shape};
use super::{coded, graph, measure, write};
use crate::build::publishing::{Note, Start, Target, publish, publish_finished};
use crate::build::{Stages, least_manifest};
use crate::error::IndexError;
use crate::families::graph::space::Space;
use crate::families::graph::{BuildOptions, BuildReport};
use crate::format::appender::{Appender, read_back};
use crate::format::identity::Identity;
use crate::format::manifest::{SpannEntry, Structure};
use crate::partition;
use crate::partition::intake::Intake;
use crate::partition::pieces::pieces;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Progress;

/// What all stages of a build read.
pub(crate) type Work<'a> = partition::Work<'a, Shape>;

/// Bytes of memory at the build's peak; above the budget of `options` only if no plan keeps within it.
pub(crate) fn planned_memory(data: &VectorFile, options: &BuildOptions) -> u64 {
    Plan::new(data, options).planned
}

/// Builds posting lists over `data` at `target`, or continues a build of the same that was killed.
pub(crate) fn build(
    data: &VectorFile,
    target: &Target<'_>,
    options: &BuildOptions,
    identity: Identity,
    planned: u64,
    progress: &dyn Progress,
) -> Result<BuildReport, IndexError> {
    let plan = Plan::new(data, options);
    plan.shape.check(data, options)?;
    let identity = identity.and(&format!("{} placed together", plan.rows));
    let fingerprint = fingerprint(data, options, identity, &plan);
    let shape = journal::Shape::of(data, &plan);
    let threads = options.thread_count();
    let (draft, start) = target
        .start(fingerprint.as_deref(), |draft, fingerprint| Journal::read(draft, fingerprint, &shape))?;
    let fingerprint = fingerprint.unwrap_or_default();
    let mut journal = match start {
        Start::Finished(manifest, note) => {
            return publish_finished(draft, &manifest, &note, threads, planned);
        }
        Start::After(journal) => journal,
        Start::Anew => Journal::new(fingerprint.clone()),
    };
    let mut stages = Stages::begin_after(journal.seconds);
    let (layout, rows) = (plan.shape, plan.rows);
    let work = Work { data, options, layout, identity, rows, threads, directory: draft.as_ref(), progress };
    announce(&work, &journal);
    let mut intake = divide(&work, &mut journal, &mut stages)?;
    let (leaves, centroids) = place::place(&work, &mut intake, &mut journal, &mut stages)?;
    let (admitted, members) = admit(&work, &intake, &leaves, centroids, &mut journal, &mut stages)?;
    let coded = coded::write::encode(&work, &intake, &leaves)?;
    if coded.is_some() {
        stages.end("encode lists");
    }
    let lists = match &coded {
        Some(coded) => coded.write(&work, &leaves, &members)?,
        None => write::write(&work, &intake, &leaves, &members, &frequencies(&work, &admitted)?)?,
    };
    stages.end("write lists");

    let entry = SpannEntry {
        file: lists.postings,
        checksums: lists.checksums,
        lists: lists.lists,
        centroids: admitted.centroids,
        links: admitted.links,
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
        entry_point: admitted.entry_point,
    };
    let mut manifest =
        least_manifest(data, options, identity, "spann", Structure::Spann(entry), admitted.codes);
    manifest.calibration = match &coded {
        Some(coded) => coded::measure::calibrate(&work, &manifest, &leaves, coded, &lists.table)?,
        None => measure::calibrate(&work, &manifest, &leaves, &members)?,
    };
    stages.end("calibrate");
    manifest.build_seconds = stages.seconds_so_far();
    publish(draft, &manifest, &Note { fingerprint, links: 0 })?;
    Ok(BuildReport::new(&manifest, threads, planned, 0.0, stages))
}

/// Sends the vectors to parts, where they are not placed all at once.
fn divide(work: &Work<'_>, journal: &mut Journal, stages: &mut Stages) -> Result<Intake, IndexError> {
    let mut intake = Intake { longest: journal.longest.map(f32::from_bits), ..work.intake() };
    if !journal.parts.is_empty() {
        return Ok(intake);
    }
    journal.parts = work.divide(&mut intake)?;
    if !work.whole() {
        journal.longest = intake.longest.map(f32::to_bits);
        journal.seconds = stages.seconds_so_far();
        journal.write(work.directory)?;
        stages.end("spread");
    }
    Ok(intake)
}

/// Grows the graph over the centroids, writes what a search navigates by, and admits the vectors to lists; or takes what an
/// earlier process made of all that.
fn admit(
    work: &Work<'_>,
    intake: &Intake,
    leaves: &Leaves,
    space: Space,
    journal: &mut Journal,
    stages: &mut Stages,
) -> Result<(Admitted, Memberships), IndexError> {
    let (directory, threads, progress) = (work.directory, work.threads, work.progress);
    if let Some(found) = &journal.admitted {
        let members = Memberships::restore(directory, leaves.count(), found.members, found.slots)?;
        return Ok((found.clone(), members));
    }
    let options = graph::options(work);
    let growth = graph::grow(work, &space, &options)?;
    stages.end("grow graph");
    let assigned = assign::assign(work, intake, leaves, &growth)?;
    stages.end("assign");
    let graph::Files { centroids, links } = graph::write(work, &growth)?;
    let entry_point = growth.entry;
    drop(growth);
    let codes =
        crate::families::graph::write::write_codes(directory, &space, None, &options, threads, progress)?;
    drop(space);
    stages.end("codes");
    progress.stage("admitting", leaves.count() as u64);
    let admitted = assigned.requests.admit(leaves, work.layout.list_limit, |lists| {
        progress.advance(lists);
        work.go_on()
    })?;
    let (members, slots) = admitted.save(directory)?;
    let mut file = Appender::create(directory, FREQUENCIES_NAME)?;
    file.append(&assigned.frequencies.iter().flat_map(|count| count.to_le_bytes()).collect::<Vec<_>>())?;
    let frequencies = file.sync()?;
    let found = Admitted { centroids, links, codes, entry_point, members, slots, frequencies };
    journal.admitted = Some(found.clone());
    journal.seconds = stages.seconds_so_far();
    journal.write(directory)?;
    stages.end("admit");
    Ok((found, admitted))
}

/// How often each list is read.
fn frequencies(work: &Work<'_>, admitted: &Admitted) -> Result<Vec<u32>, IndexError> {
    let bytes = read_back(work.directory, FREQUENCIES_NAME, admitted.frequencies)?;
    Ok(bytes.as_chunks::<4>().0.iter().map(|count| u32::from_le_bytes(*count)).collect())
}

/// Tells the receiver of progress what is to come. The numbers are seconds on one machine, so their proportions say how
/// long the rest takes on another.
fn announce(work: &Work<'_>, journal: &Journal) {
    let values = work.data.count() as f64 * work.data.dim() as f64 / 128e6;
    let lists = values * 25.0 / work.layout.leaf as f64;
    let placed: usize =
        pieces(&journal.parts, work.rows)[..journal.placed].iter().map(|piece| piece.rows).sum();
    let left = 1.0 - placed as f64 / work.data.count() as f64;
    let mut plan = Vec::new();
    match (work.whole(), journal.parts.is_empty()) {
        (false, true) => plan.push(("spreading", 1.5 * values)),
        (true, true) => plan.push(("loading vectors", 0.3 * values)),
        _ => {}
    }
    plan.push(("grouping", 7.0 * values * left));
    if journal.admitted.is_none() {
        plan.extend([
            ("first pass", 4.0 * lists),
            ("second pass", 8.0 * lists),
            ("trimming", 1.0 * lists),
            ("assigning", 8.0 * values),
            ("training codes", 2.0),
            ("encoding", 0.1 * lists),
            ("admitting", 1.0 * values),
        ]);
    }
    plan.extend([
        ("placing vectors", 0.5 * values),
        ("writing lists", 1.5 * values),
        ("exact neighbours", 3.0 * values),
        ("calibrating", 4.0),
    ]);
    work.progress.plan(&plan);
}
