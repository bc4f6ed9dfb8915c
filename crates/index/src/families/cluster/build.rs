//! Building a cluster index, in stages that a killed build continues from: parts, pages, codes, calibration.

use super::centroids::{Centroids, codes_metric};
use super::journal::{Journal, Shape, fingerprint};
use super::options::ClusterOptions;
use super::plan::Plan;
use super::section::{CENTROIDS_NAME, CODEC_NAME, ClusterEntry, NAME};
use super::{calibrate, encode, place};
use crate::build::options::{BuildOptions, BuildReport, Builder, Details, FamilyOptions, Job};
use crate::build::publishing::{Note, Start, publish, publish_finished};
use crate::build::{Stages, least_manifest};
use crate::calibrate::Calibration;
use crate::error::IndexError;
use crate::format::appender::{Appender, ReadBack, Written, read_back};
use crate::format::groups::GroupLayout;
use crate::format::manifest::{CodesEntry, FileEntry};
use crate::partition;
use crate::partition::intake::Intake;
use crate::partition::pieces::pieces;
use bathyal_kernels::quantize::Codec;
use bathyal_vectors::VectorFile;

/// While building: the means of the groups, f32.
pub(crate) const MEANS_NAME: &str = "means.tmp";
/// While building: the ids by place, u32.
pub(crate) const ORDER_NAME: &str = "order.tmp";

/// What all stages of a build read.
pub(crate) type Work<'a> = partition::Work<'a, GroupLayout, ClusterOptions>;

fn layout_of(data: &VectorFile, own: &ClusterOptions) -> Result<GroupLayout, IndexError> {
    GroupLayout::choose(data.element(), data.dim() as u32, own.group_vectors as usize)
        .map_err(IndexError::Parameter)
}

impl From<ClusterOptions> for FamilyOptions {
    fn from(options: ClusterOptions) -> FamilyOptions {
        FamilyOptions::new(options)
    }
}

impl Builder for ClusterOptions {
    fn family(&self) -> &'static str {
        NAME
    }

    fn check(&self) -> Result<(), IndexError> {
        ClusterOptions::check(self)
    }

    fn planned_memory(&self, data: &VectorFile, options: &BuildOptions) -> u64 {
        layout_of(data, self).map_or(0, |layout| Plan::new(data, self, options, &layout).planned)
    }

    fn memory_advice(&self) -> &'static str {
        "allow at least that much, or lower code_bytes"
    }

    fn build(&self, job: Job<'_>) -> Result<BuildReport, IndexError> {
        build(job, self)
    }
}

/// Builds a cluster index, or continues a build of the same that was killed.
fn build(job: Job<'_>, own: &ClusterOptions) -> Result<BuildReport, IndexError> {
    let Job { data, target, options, identity, planned, progress } = job;
    let layout = layout_of(data, own)?;
    let plan = Plan::new(data, own, options, &layout);
    let identity = identity.and(&format!("{} placed together", plan.rows));
    let layout = layout.identified(identity);
    let fingerprint = fingerprint(data, own, options, identity, &plan);
    let shape = Shape { vectors: data.count(), rows: plan.rows, layout };
    let threads = options.thread_count();
    let (draft, start) = target
        .start(fingerprint.as_deref(), |draft, fingerprint| Journal::read(draft, fingerprint, &shape))?;
    let fingerprint = fingerprint.unwrap_or_default();
    let mut journal = match start {
        Start::Finished(manifest, note) => {
            let section = ClusterEntry::read(&manifest).map_err(IndexError::Internal)?;
            return publish_finished(draft, &manifest, &note, threads, planned, details(&section));
        }
        Start::After(journal) => journal,
        Start::Anew => Journal::new(fingerprint.clone()),
    };
    let mut stages = Stages::begin_after(journal.seconds);
    let rows = plan.rows;
    let work =
        Work { data, options, own, layout, identity, rows, threads, directory: draft.as_ref(), progress };

    announce(&work, &journal);
    let intake = divide(&work, &mut journal, &mut stages)?;
    place::place(&work, &intake, &mut journal, &mut stages)?;
    let mut section = code(&work, &intake, &mut journal, &mut stages)?;
    let mut manifest = least_manifest(data, options, identity);
    manifest.set_structure(&section, section.files())?;
    (section.calibration, section.lone_curves) =
        calibrate::calibrate(&work, &manifest, &section, journal.order)?;
    stages.end("calibrate");
    manifest.set_structure(&section, section.files())?;
    manifest.build_seconds = stages.seconds_so_far();
    publish(draft, &manifest, &Note { fingerprint, links: 0 })?;
    Ok(BuildReport::new(&manifest, threads, planned, stages, details(&section)))
}

/// What only this family has to say of a build.
fn details(section: &ClusterEntry) -> Details {
    let codes = &section.codes;
    Details::from([("code_kind", codes.kind.as_str().into()), ("code_bytes", codes.code_bytes.into())])
}

/// Makes centroids and codes of the pages that were written; what the manifest will say of all is returned.
fn code(
    work: &Work<'_>,
    intake: &Intake,
    journal: &mut Journal,
    stages: &mut Stages,
) -> Result<ClusterEntry, IndexError> {
    let layout = work.layout;
    let vectors_file = place::finish(work, journal)?;
    let mut centroids = centroids(work, journal)?;
    let (codec, codec_file) = train(work, intake, &centroids, journal, stages)?;
    let (codes_file, checksums) = encode::write(work, intake, &centroids, &codec, journal, stages)?;
    journal.codes = Written { bytes: codes_file.bytes, crc32c: codes_file.crc32c };
    journal.seconds = stages.seconds_so_far();
    journal.write(work.directory)?;
    centroids.set_code_checksums(checksums);
    centroids.encode(&codec);
    let mut file = Appender::create(work.directory, CENTROIDS_NAME)?;
    file.append(&centroids.to_bytes())?;
    let centroids_file = file.finish()?;
    stages.end("codes");
    let codes = CodesEntry {
        file: codes_file,
        codec: codec_file,
        kind: codec.kind().to_string(),
        code_bytes: codec.code_bytes() as u32,
    };
    Ok(ClusterEntry {
        file: vectors_file,
        centroids: centroids_file,
        page_bytes: layout.page_bytes() as u32,
        group_pages: layout.group_pages() as u32,
        groups: centroids.groups() as u32,
        runs: centroids.runs() as u32,
        codes,
        calibration: Calibration::default(),
        lone_curves: Vec::new(),
    })
}

/// Tells the receiver of progress what is to come. The numbers are seconds on one machine, so their proportions say how
/// long the rest takes on another.
fn announce(work: &Work<'_>, journal: &Journal) {
    let values = work.data.count() as f64 * work.data.dim() as f64 / 128e6;
    let pieces = pieces(&journal.parts, work.rows);
    let placed: usize = pieces[..journal.placed.min(pieces.len())].iter().map(|piece| piece.rows).sum();
    let grouping = 6.0 * values * (1.0 - placed as f64 / work.data.count() as f64);
    let parts = !work.whole();
    let mut stages = Vec::new();
    if parts && journal.parts.is_empty() {
        stages.push(("spreading", 1.5 * values));
    }
    if !parts && journal.placed == 0 {
        stages.push(("loading vectors", 0.3 * values));
    }
    stages.push(("grouping", grouping));
    if journal.trained.is_none() {
        stages.push(("training codes", 1.0));
    }
    // What is compared with all vectors grows with them, the scans of a thousand queries do not.
    stages.extend([("encoding", 2.0 * values), ("exact neighbours", 3.0 * values), ("calibrating", 4.0)]);
    work.progress.plan(&stages);
}

/// Sends the vectors to parts, where they are not placed all at once.
fn divide(work: &Work<'_>, journal: &mut Journal, stages: &mut Stages) -> Result<Intake, IndexError> {
    let mut intake = Intake { longest: journal.longest.map(f32::from_bits), ..work.intake() };
    if !journal.parts.is_empty() {
        return Ok(intake);
    }
    journal.parts = work.divide(&mut intake)?;
    if work.whole() {
        return Ok(intake);
    }
    journal.longest = intake.longest.map(f32::to_bits);
    journal.seconds = stages.seconds_so_far();
    journal.write(work.directory)?;
    stages.end("spread");
    Ok(intake)
}

/// Trains the codec, or reads the one that an earlier process trained.
fn train(
    work: &Work<'_>,
    intake: &Intake,
    centroids: &Centroids,
    journal: &mut Journal,
    stages: &Stages,
) -> Result<(Codec, FileEntry), IndexError> {
    if let Some(file) = &journal.trained {
        let written = Written { bytes: file.bytes, crc32c: file.crc32c };
        let bytes = read_back(work.directory, CODEC_NAME, written)?;
        return Ok((Codec::from_bytes(&bytes)?, file.clone()));
    }
    let codec = encode::train(work, intake, centroids)?;
    let mut file = Appender::create(work.directory, CODEC_NAME)?;
    file.append(&codec.to_bytes())?;
    let file = file.finish()?;
    journal.trained = Some(file.clone());
    journal.seconds = stages.seconds_so_far();
    journal.write(work.directory)?;
    Ok((codec, file))
}

/// The centroids of groups and runs, from the means that were written with the pages.
fn centroids(work: &Work<'_>, journal: &Journal) -> Result<Centroids, IndexError> {
    let dim = work.data.dim();
    let (counts, first_groups) = place::groups(&pieces(&journal.parts, work.rows), &work.layout);
    let mut file = ReadBack::open(work.directory, MEANS_NAME, journal.means)?;
    let mut means = vec![0.0_f32; counts.len() * dim];
    let mut sum = vec![0.0_f64; dim];
    let mut bytes = vec![0_u8; dim * 4];
    for (row, count) in means.chunks_exact_mut(dim).zip(&counts) {
        file.fill(&mut bytes)?;
        let share = f64::from(*count) / work.data.count() as f64;
        for ((value, sum), bytes) in row.iter_mut().zip(&mut sum).zip(bytes.as_chunks::<4>().0) {
            *value = f32::from_le_bytes(*bytes);
            *sum += share * f64::from(*value);
        }
    }
    let mean = sum.iter().map(|m| *m as f32).collect();
    Ok(Centroids::new(codes_metric(work.options.metric), mean, means, first_groups, counts))
}
