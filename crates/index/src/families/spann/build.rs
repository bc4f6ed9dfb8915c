//! Building posting lists: leaves and their means, a graph over these, the lists of each vector, what each list stores.

use super::assign;
use super::journal::{self, Admitted, FREQUENCIES_NAME, Journal, fingerprint};
use super::members::Memberships;
use super::options::SpannOptions;
use super::place::{self, Leaves};
use super::plan::Plan;
use super::section::{NAME, SpannEntry};
use super::work::Work;
use super::{coded_measure, coded_write};
use super::{graph, measure, write};
use crate::build::options::{BuildOptions, BuildReport, Builder, Details, FamilyOptions, Job};
use crate::build::publishing::{Note, Start, publish, publish_finished};
use crate::build::{Stages, least_manifest};
use crate::calibrate::Calibration;
use crate::error::IndexError;
use crate::families::graph::write::{Coding, write_codes};
use crate::format::appender::{Appender, read_back};
use crate::partition::intake::Intake;
use crate::partition::pieces::pieces;
use crate::partition::space::Space;
use bathyal_vectors::VectorFile;

impl From<SpannOptions> for FamilyOptions {
    fn from(options: SpannOptions) -> FamilyOptions {
        FamilyOptions::new(options)
    }
}

impl Builder for SpannOptions {
    fn family(&self) -> &'static str {
        NAME
    }

    fn check(&self) -> Result<(), IndexError> {
        SpannOptions::check(self)
    }

    fn planned_memory(&self, data: &VectorFile, options: &BuildOptions) -> u64 {
        Plan::new(data, self, options).planned
    }

    fn memory_advice(&self) -> &'static str {
        "allow at least that much, or lower centroid_share"
    }

    fn build(&self, job: Job<'_>) -> Result<BuildReport, IndexError> {
        build(job, self)
    }
}

/// Builds posting lists, or continues a build of the same that was killed.
fn build(job: Job<'_>, own: &SpannOptions) -> Result<BuildReport, IndexError> {
    let Job { data, target, options, identity, planned, progress } = job;
    let plan = Plan::new(data, own, options);
    plan.shape.check(data, own)?;
    let identity = identity.and(&format!("{} placed together", plan.rows));
    let fingerprint = fingerprint(data, own, options, identity, &plan.shape, plan.rows);
    let shape = journal::Shape::of(data, &plan.shape, plan.rows);
    let threads = options.thread_count();
    let (draft, start) = target
        .start(fingerprint.as_deref(), |draft, fingerprint| Journal::read(draft, fingerprint, &shape))?;
    let fingerprint = fingerprint.unwrap_or_default();
    let mut journal = match start {
        Start::Finished(manifest, note) => {
            let section = SpannEntry::read(&manifest).map_err(IndexError::Internal)?;
            return publish_finished(draft, &manifest, &note, threads, planned, details(&section));
        }
        Start::After(journal) => journal,
        Start::Anew => Journal::new(fingerprint.clone()),
    };
    let mut stages = Stages::begin_after(journal.seconds);
    let (layout, rows) = (plan.shape, plan.rows);
    let work =
        Work { data, options, own, layout, identity, rows, threads, directory: draft.as_ref(), progress };
    announce(&work, &journal);
    let mut intake = divide(&work, &mut journal, &mut stages)?;
    let (leaves, centroids) = place::place(&work, &mut intake, &mut journal, &mut stages)?;
    let (admitted, members) = admit(&work, &intake, &leaves, centroids, &mut journal, &mut stages)?;
    let coded = coded_write::encode(&work, &intake, &leaves)?;
    if coded.is_some() {
        stages.end("encode lists");
    }
    let lists = match &coded {
        Some(coded) => coded.write(&work, &leaves, &members)?,
        None => write::write(&work, &intake, &leaves, &members, &frequencies(&work, &admitted)?)?,
    };
    stages.end("write lists");

    let mut section = section(&work, admitted, &lists, coded.as_ref());
    section.calibration = match &coded {
        Some(coded) => coded_measure::calibrate(&work, &section, &leaves, coded, &lists.table)?,
        None => measure::calibrate(&work, &section, &leaves, &members)?,
    };
    stages.end("calibrate");
    let mut manifest = least_manifest(data, options, identity);
    manifest.set_structure(&section, section.files())?;
    manifest.build_seconds = stages.seconds_so_far();
    publish(draft, &manifest, &Note { fingerprint, links: 0 })?;
    Ok(BuildReport::new(&manifest, threads, planned, stages, details(&section)))
}

/// What only this family has to say of a build.
fn details(section: &SpannEntry) -> Details {
    let of_lists = section.list_codes.as_ref();
    let (kind, bytes) = of_lists
        .map_or((&section.codes.kind, section.codes.code_bytes), |codes| (&codes.kind, codes.code_bytes));
    Details::from([("code_kind", kind.as_str().into()), ("code_bytes", bytes.into())])
}

/// What the manifest will say of the files that were written.
fn section(
    work: &Work<'_>,
    admitted: Admitted,
    lists: &write::Files,
    coded: Option<&coded_write::CodedVectors>,
) -> SpannEntry {
    let codes = admitted.codes.entry();
    SpannEntry {
        file: lists.postings.clone(),
        checksums: lists.checksums.clone(),
        lists: lists.lists.clone(),
        centroids: admitted.centroids,
        links: admitted.links,
        ids: lists.ids.clone(),
        layout: lists.table.layout().name().into(),
        list_codes: coded.map(|coded| Box::new(coded.entry.clone())),
        list_count: lists.table.lists() as u32,
        copies: lists.table.copies(),
        replicas: work.own.list_replicas(),
        centroid_share: work.own.centroid_share,
        list_limit: work.layout.list_limit as u32,
        longest_bytes: lists.table.longest() as u32,
        max_degree: graph::CENTROID_DEGREE,
        entry_point: admitted.entry_point,
        codes,
        calibration: Calibration::default(),
    }
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
    let (codes, seed) = (work.own.centroid_codes(), work.options.seed);
    let coding = Coding { codes, metric: work.options.metric, seed, threads };
    let codes = write_codes(directory, &space, None, coding, progress)?.into();
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
