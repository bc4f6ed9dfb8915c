//! The build of partitions: the meta index over the pivots, the assignment of vectors to partitions, and a
//! sub-index for each partition.

use super::assign::{self, Assignment};
use super::balance;
use super::calibrate::{self, CalibrationRun, CalibrationScratch};
use super::growth::entry::GrowthEntry;
use super::growth::group_file::GroupFileWriter;
use super::meta::{self, MetaIndex};
use super::plan::{self, READY};
use super::section::{FILE_NAME, META_NAME, MOST_BYTES, NAME, PartitionedEntry, STRIPED, TABLE_NAME};
use super::sizes::{self, partitions, stages};
use super::subindex::SubIndexParts;
use super::subindex::hnsw::{Hnsw, arrange};
use super::subindex::options::{PartitionedOptions, Pivots};
use super::subindex::table::{ALIGNMENT, SubIndexEntry};
use crate::build::journal;
use crate::build::options::{BuildOptions, BuildReport, Builder, Details, FamilyOptions, Job};
use crate::build::plan::FamilyPlan;
use crate::build::publishing::{Note, Start, publish, publish_finished};
use crate::build::{StageTimes, least_manifest};
use crate::error::IndexError;
use crate::form::source::SourceVectors;
use crate::format::appender::Appender;
use crate::format::manifest::{FileEntry, Manifest};
use crate::partition::{self, spread};
use rand::SeedableRng;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The version of the build steps. It is incremented if the written files change.
const STEPS_VERSION: u32 = 1;

/// The input of all stages of a build.
pub(super) type Work<'a> = partition::Work<'a, (), PartitionedOptions>;

impl From<PartitionedOptions> for FamilyOptions {
    fn from(options: PartitionedOptions) -> FamilyOptions {
        FamilyOptions::new(options)
    }
}

impl Builder for PartitionedOptions {
    fn family(&self) -> &'static str {
        NAME
    }

    fn striped(&self) -> &'static [&'static str] {
        STRIPED
    }

    fn check(&self) -> Result<(), IndexError> {
        PartitionedOptions::check(self)
    }

    fn calibrates(&self) -> bool {
        true
    }

    fn planned_memory(&self, data: &SourceVectors<'_>, options: &BuildOptions) -> u64 {
        plan::planned_bytes(data, self, options)
    }

    fn plan(&self, data: &SourceVectors<'_>, options: &BuildOptions) -> Result<FamilyPlan, IndexError> {
        sizes::plan(data, self, options)
    }

    fn with_default_code_bytes(&self, _bytes: u32) -> Option<FamilyOptions> {
        None
    }

    fn leaner(&self, _dim: usize) -> Vec<(&'static str, FamilyOptions)> {
        vec![
            (
                "lower partition_vectors",
                PartitionedOptions { partition_vectors: self.partition_vectors / 2, ..*self }.into(),
            ),
            ("lower replicas", PartitionedOptions { replicas: self.replicas / 2, ..*self }.into()),
        ]
    }

    fn build(&self, job: Job<'_>) -> Result<BuildReport, IndexError> {
        build(job, self)
    }
}

/// Builds an index of partitions.
fn build(job: Job<'_>, family_options: &PartitionedOptions) -> Result<BuildReport, IndexError> {
    let Job { data, target, options, identity, planned, progress } = job;
    let threads = options.thread_count();
    let fingerprint = journal::fingerprint(data, options, identity, STEPS_VERSION);
    // A stopped build is not resumed, because its files are quickly written again. Only a finished build is
    // taken over.
    let (draft, start) = target.start::<()>(fingerprint.as_deref(), |_, _| None)?;
    if let Start::Finished(manifest, note) = start {
        let details = details(&manifest)?;
        return publish_finished(draft, &manifest, &note, threads, planned, details, progress);
    }
    let mut stages = StageTimes::begin();
    let (directory, rows) = (draft.as_ref(), data.count());
    let work =
        Work { data, options, own: family_options, layout: (), identity, rows, threads, directory, progress };
    announce(&work);
    let longest = spread::longest(&work)?;
    let (meta, assignment) = divide(&work, longest)?;
    stages.end("partition");
    let held_out = calibrate::hold_out(&work, &meta)?;
    let calibration_run = CalibrationRun::prepare(&work, &meta, &assignment, &held_out)?;
    stages.end("prepare calibration");
    let building = SubIndexBuild { work: &work, assignment: &assignment, longest, held_out, calibration_run };
    let written = building.write()?;
    stages.end("build sub-indexes");
    let mut meta_file = Appender::create(directory, META_NAME)?;
    meta_file.append(&meta.bytes)?;
    let calibration = building
        .calibration_run
        .as_ref()
        .map(|calibration_run| calibration_run.calibration(assignment.count()));
    let section = PartitionedEntry {
        file: written.file,
        table: written.table,
        meta: meta_file.finish()?,
        partitions: assignment.count() as u32,
        partition_vectors: family_options.partition_vectors,
        pivots: family_options.pivots.name().into(),
        replicas: family_options.replicas,
        links: family_options.links,
        construction_list: family_options.construction_list,
        copies: assignment.copies(),
        most_vectors: written.most_vectors,
        longest_bytes: written.longest_bytes,
        growth: written.growth,
        read_bytes: 0,
        calibration: calibration.unwrap_or_default(),
    };
    let mut manifest = least_manifest(data, options, identity);
    manifest.set_structure(&section, section.files())?;
    manifest.build_seconds = stages.seconds_so_far();
    drop(building);
    publish(draft, &manifest, &Note { fingerprint: fingerprint.unwrap_or_default(), links: 0 }, progress)?;
    let details = details(&manifest)?;
    Ok(BuildReport::new(&manifest, threads, planned, stages, details))
}

/// Returns the details that this family adds to a report.
fn details(manifest: &Manifest) -> Result<Details, IndexError> {
    let section = PartitionedEntry::read(manifest).map_err(IndexError::Internal)?;
    Ok(Details::from([
        ("partitions", section.partitions.into()),
        ("copies", section.copies.into()),
        ("longest_bytes", section.longest_bytes.into()),
        ("meta_bytes", section.meta.bytes.into()),
    ]))
}

/// Announces the expected seconds of each stage, on one machine, to the progress receiver.
fn announce(work: &Work<'_>) {
    work.progress.plan(&stages(work.data));
}

/// Chooses the pivots, and assigns every vector to partitions.
fn divide(work: &Work<'_>, longest: Option<f32>) -> Result<(MetaIndex, Assignment), IndexError> {
    let (family_options, count) = (work.own, work.data.count());
    let mut random = rand::rngs::StdRng::seed_from_u64(work.options.seed ^ 0xd15c);
    let sampled = rand::seq::index::sample(&mut random, count, partitions(count, family_options));
    let mut meta = MetaIndex::grow(work, sampled.iter().map(|id| id as u32).collect(), longest)?;
    if family_options.pivots == Pivots::Balanced {
        // The middle vector of a part attracts vectors of other partitions, so that some partitions become
        // large again.
        for _ in 0..balance::ROUNDS {
            let pivots = {
                let assignment = assign::assign(work, &meta, 1, count)?;
                balance::divide(work, &meta, &assignment, longest)?
            };
            let Some(pivots) = pivots else { break };
            meta = MetaIndex::grow(work, pivots, longest)?;
        }
    }
    let assignment =
        assign::assign(work, &meta, family_options.replicas as usize, family_options.most_vectors())?;
    Ok((meta, assignment))
}

/// The written files of sub-indexes, and their extents.
struct WrittenSubIndexes {
    file: FileEntry,
    table: FileEntry,
    most_vectors: u32,
    longest_bytes: u32,
    growth: Option<GrowthEntry>,
}

/// The stage that builds and writes the sub-index of each partition.
struct SubIndexBuild<'a> {
    work: &'a Work<'a>,
    assignment: &'a Assignment,
    longest: Option<f32>,
    /// Ascending.
    held_out: Vec<u32>,
    calibration_run: Option<CalibrationRun>,
}

impl SubIndexBuild<'_> {
    /// Builds all sub-indexes, several at a time, and writes them in order, then the table of their
    /// positions.
    fn write(&self) -> Result<WrittenSubIndexes, IndexError> {
        let (work, partitions) = (self.work, self.assignment.count());
        work.progress.stage("building sub-indexes", self.assignment.copies());
        let mut file = Appender::create(work.directory, FILE_NAME)?;
        let (mut table, mut most_vectors, mut longest_bytes, mut done) = (Vec::new(), 0, 0, 0);
        let mut group_writer =
            GroupFileWriter::new(work.own, work.identity, partitions, work.data.row_bytes());
        let at_once = work.threads.max(1) * READY;
        for first in (0..partitions).step_by(at_once) {
            let range = first..partitions.min(first + at_once);
            for (partition, bytes) in range.clone().zip(self.build_range(range)?) {
                let vectors = self.assignment.members(partition).len() as u32;
                let length = bytes.len() as u32;
                (most_vectors, longest_bytes) = (vectors.max(most_vectors), length.max(longest_bytes));
                done += u64::from(vectors);
                match &mut group_writer {
                    Some(group_writer) => group_writer.push(&mut file, bytes, vectors, &mut table)?,
                    None => {
                        let end = file.written().bytes;
                        let offset = end.next_multiple_of(ALIGNMENT);
                        file.append(&vec![0; (offset - end) as usize])?;
                        file.append(&bytes)?;
                        SubIndexEntry { offset, bytes: length, vectors }.encode(&mut table);
                    }
                }
            }
            work.progress.advance(done);
        }
        let mut growth = None;
        if let Some(group_writer) = group_writer {
            let (entry, longest) =
                group_writer.finish(&mut file, &mut table, &self.assignment.partitions_of(work.rows)?)?;
            (growth, longest_bytes) = (Some(entry), longest);
        }
        let mut table_file = Appender::create(work.directory, TABLE_NAME)?;
        table_file.append(&table)?;
        Ok(WrittenSubIndexes {
            file: file.finish()?,
            table: table_file.finish()?,
            most_vectors,
            longest_bytes,
            growth,
        })
    }

    /// Builds the sub-indexes of a range of partitions on all threads.
    fn build_range(&self, partitions: std::ops::Range<usize>) -> Result<Vec<Vec<u8>>, IndexError> {
        let next = AtomicUsize::new(partitions.start);
        let built = Mutex::new((vec![Vec::new(); partitions.len()], None::<IndexError>));
        std::thread::scope(|scope| {
            for _ in 0..self.work.threads.clamp(1, partitions.len()) {
                scope.spawn(|| {
                    let mut scratch = CalibrationScratch::new();
                    loop {
                        let partition = next.fetch_add(1, Ordering::Relaxed);
                        if partition >= partitions.end {
                            return;
                        }
                        let outcome = self.build_subindex(partition, &mut scratch);
                        let Ok(mut built) = built.lock() else { return };
                        match outcome {
                            Ok(bytes) => built.0[partition - partitions.start] = bytes,
                            Err(error) => {
                                built.1 = built.1.take().or(Some(error));
                                return;
                            }
                        }
                    }
                });
            }
        });
        match built.into_inner() {
            Ok((built, None)) => Ok(built),
            Ok((_, Some(error))) => Err(error),
            Err(_) => Err(IndexError::Internal("a thread of the build panicked".into())),
        }
    }

    /// Builds the sub-index of a partition: first without the held-out vectors, for calibration, then with
    /// all vectors.
    fn build_subindex(
        &self,
        partition: usize,
        scratch: &mut CalibrationScratch,
    ) -> Result<Vec<u8>, IndexError> {
        let work = self.work;
        let mut members = self.assignment.members(partition).to_vec();
        let held_out = |id: u32| self.held_out.binary_search(&id).is_ok();
        let held_count = members.iter().filter(|id| held_out(**id)).count();
        let sizes = arrange(&mut members, held_out, work.own, work.options.seed ^ partition as u64);
        let space = meta::load(work, &members, self.longest)?;
        let mut hnsw = Hnsw::grow(&space, &sizes, held_count, work.own, work.progress)?;
        let mut bytes = Vec::new();
        let encode = |hnsw: &Hnsw<'_>, bytes: &mut Vec<u8>| {
            bytes.clear();
            let parts = SubIndexParts { number: partition as u32, layers: &hnsw.layers, ids: &members };
            parts.encode(work.identity, |number| space.row(number), bytes);
        };
        if let Some(calibration_run) =
            self.calibration_run.as_ref().filter(|calibration_run| calibration_run.has_queries(partition))
        {
            encode(&hnsw, &mut bytes);
            calibration_run.measure(work, partition, &bytes, scratch)?;
        }
        if held_count > 0 {
            hnsw.complete(members.len() - held_count)?;
        }
        encode(&hnsw, &mut bytes);
        if bytes.len() as u64 > MOST_BYTES {
            return Err(IndexError::Parameter(format!(
                "a partition of {} vectors takes {} bytes, and one read can fetch {MOST_BYTES} at most; \
                 lower partition_vectors",
                members.len(),
                bytes.len()
            )));
        }
        Ok(bytes)
    }
}
