//! Building a cluster index, in stages that a killed build continues from: parts, pages, codes, calibration.

use super::centroids::{Centroids, codes_metric};
use super::journal::{Journal, Shape, fingerprint};
use super::plan::Plan;
use super::{calibrate, encode, place};
use crate::build::publishing::{Note, Start, Target, publish, publish_finished};
use crate::build::{Stages, least_manifest};
use crate::error::IndexError;
use crate::families::graph::{BuildOptions, BuildReport};
use crate::format::appender::{Appender, ReadBack, Written, read_back};
use crate::format::groups::GroupLayout;
use crate::format::identity::Identity;
use crate::format::manifest::{ClusterEntry, CodesEntry, FileEntry, Structure};
use crate::partition;
use crate::partition::intake::Intake;
use crate::partition::pieces::pieces;
use bathyal_kernels::quantize::Codec;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Progress;

/// The vectors in the order of their groups.
pub(crate) const VECTORS_NAME: &str = "vectors.bin";
/// The centroids of groups and runs.
pub(crate) const CENTROIDS_NAME: &str = "centroids.bin";
/// The codes of all groups.
pub(crate) const CODES_NAME: &str = "codes.bin";
/// The trained codec.
pub(crate) const CODEC_NAME: &str = "codec.bin";
/// While building: the means of the groups, f32.
pub(crate) const MEANS_NAME: &str = "means.tmp";
/// While building: the ids by place, u32.
pub(crate) const ORDER_NAME: &str = "order.tmp";

/// What all stages of a build read.
pub(crate) type Work<'a> = partition::Work<'a, GroupLayout>;

fn layout_of(data: &VectorFile, options: &BuildOptions) -> Result<GroupLayout, IndexError> {
    GroupLayout::choose(data.element(), data.dim() as u32, options.group_vectors as usize)
        .map_err(IndexError::Parameter)
}

/// Bytes of memory at the build's peak; above the budget of `options` only if no plan keeps within it.
pub(crate) fn planned_memory(data: &VectorFile, options: &BuildOptions) -> u64 {
    layout_of(data, options).map_or(0, |layout| Plan::new(data, options, &layout).planned)
}

/// Builds a cluster index over `data` at `target`, or continues a build of the same that was killed.
pub(crate) fn build(
    data: &VectorFile,
    target: &Target<'_>,
    options: &BuildOptions,
    identity: Identity,
    planned: u64,
    progress: &dyn Progress,
) -> Result<BuildReport, IndexError> {
    let layout = layout_of(data, options)?;
    let plan = Plan::new(data, options, &layout);
    let identity = identity.and(&format!("{} placed together", plan.rows));
    let layout = layout.identified(identity);
    let fingerprint = fingerprint(data, options, identity, &plan);
    let shape = Shape { vectors: data.count(), rows: plan.rows, layout };
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
    let rows = plan.rows;
    let work = Work { data, options, layout, identity, rows, threads, directory: draft.as_ref(), progress };

    announce(&work, &journal);
    let intake = divide(&work, &mut journal, &mut stages)?;
    place::place(&work, &intake, &mut journal, &mut stages)?;
    let vectors_file = place::finish(&work, &journal)?;
    let mut centroids = centroids(&work, &journal)?;
    let (codec, codec_file) = train(&work, &intake, &centroids, &mut journal, &stages)?;
    let (codes_file, checksums) = encode::write(&work, &intake, &centroids, &codec, &mut journal, &stages)?;
    journal.codes = Written { bytes: codes_file.bytes, crc32c: codes_file.crc32c };
    journal.seconds = stages.seconds_so_far();
    journal.write(draft.as_ref())?;
    centroids.set_code_checksums(checksums);
    centroids.encode(&codec);
    let mut file = Appender::create(draft.as_ref(), CENTROIDS_NAME)?;
    file.append(&centroids.to_bytes())?;
    let centroids_file = file.finish()?;
    stages.end("codes");

    let codes = CodesEntry {
        file: codes_file,
        codec: codec_file,
        kind: codec.kind().to_string(),
        code_bytes: codec.code_bytes() as u32,
    };
    let entry = ClusterEntry {
        file: vectors_file,
        centroids: centroids_file,
        layout: "resident".into(),
        page_bytes: layout.page_bytes() as u32,
        group_pages: layout.group_pages() as u32,
        groups: centroids.groups() as u32,
        runs: centroids.runs() as u32,
    };
    drop((centroids, codec));
    let mut manifest = least_manifest(data, options, identity, "cluster", Structure::Cluster(entry), codes);
    manifest.calibration = calibrate::calibrate(&work, &manifest, journal.order)?;
    stages.end("calibrate");
    manifest.build_seconds = stages.seconds_so_far();
    publish(draft, &manifest, &Note { fingerprint, links: 0 })?;
    Ok(BuildReport::new(&manifest, threads, planned, 0.0, stages))
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
