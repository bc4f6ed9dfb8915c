//! Builds an LSH index: writes the vectors in the order of the data, their tables, and their codes.

use super::calibrate;
use super::open::load_lsh;
use super::options::LshOptions;
use super::section::{FENCES_NAME, HASHES_NAME, LshEntry, NAME, STRIPED, TABLES_NAME};
use super::sizes::{self, layout_of, stages};
use super::stated::StatedPromises;
use super::tables::{ENTRY_BYTES, PART_SLACK, Points, TableFiles, TableWriter};
use crate::build::journal::{self, holds, require};
use crate::build::options::{BuildOptions, BuildReport, Builder, Details, FamilyOptions, Job};
use crate::build::plan::FamilyPlan;
use crate::build::publishing::{Note, Start, publish, publish_finished};
use crate::build::{StageTimes, least_manifest};
use crate::calibrate::Calibration;
use crate::error::IndexError;
use crate::form::source::SourceVectors;
use crate::format::appender::{Appender, Written};
use crate::format::groups::GroupLayout;
use crate::format::ids::IDS_NAME;
use crate::format::manifest::{FileEntry, Manifest};
use crate::format::tables::TableLayout;
use crate::partition::encoding::{self, Encoding, FloatRows};
use crate::partition::intake::Intake;
use crate::partition::plain_codes::{sample_bytes, write_codes};
use crate::partition::{self, in_order, sample_rows, spread};
use bathyal_kernels::lsh::CompoundHashes;
use bathyal_store::Draft;
use serde::{Deserialize, Serialize};

/// The program itself, thread stacks, and buffers.
const FIXED_BYTES: u64 = 64 << 20;
/// Search state, exact search and hashing of each thread, without the part that grows with the dimension.
const THREAD_BYTES: u64 = 4 << 20;
/// Vectors whose floats a thread holds at once.
const THREAD_ROWS: u64 = 512;
/// Calibration: queries, and the neighbours of each query that a thread keeps, with slack for growing lists.
const TRUTH_BYTES: u64 = 1000 * 101 * 16;
/// Fewest entries that are sorted at once: with fewer, a table would take too many passes over the data.
const LEAST_ENTRIES: u64 = 1 << 16;
/// Bytes of entries that are sorted at once without a memory budget, unless a single table has more.
const USUAL_ENTRY_BYTES: u64 = 1 << 30;
/// Version of the files that the stages write. Increase it when their contents change.
const STEPS_VERSION: u32 = 2;

/// The inputs that all stages of a build share.
pub(super) type Work<'a> = partition::Work<'a, GroupLayout, LshOptions>;

/// The finished stages, from which a killed build continues.
#[derive(Debug, Default, Serialize, Deserialize)]
struct LshJournal {
    /// Identifies the data and the options; a build with another fingerprint starts from the beginning.
    fingerprint: String,
    /// Seconds of work so far.
    seconds: f64,
    /// The pages and tables that are written so far.
    file: Written,
    /// The first keys of the blocks of the written tables.
    fences: Written,
    /// Number of written tables.
    tables: u32,
}

impl From<LshOptions> for FamilyOptions {
    fn from(options: LshOptions) -> FamilyOptions {
        FamilyOptions::new(options)
    }
}

impl Builder for LshOptions {
    fn family(&self) -> &'static str {
        NAME
    }

    fn striped(&self) -> &'static [&'static str] {
        STRIPED
    }

    fn check(&self) -> Result<(), IndexError> {
        LshOptions::check(self)
    }

    fn calibrates(&self) -> bool {
        true
    }

    fn planned_memory(&self, data: &SourceVectors<'_>, options: &BuildOptions) -> u64 {
        let least = self.fixed_bytes(data, options)
            + self.other_bytes(data, options).max(sorting_bytes(self.entries(data, Some(0))));
        let given = options.memory_bytes.map(|given| given.max(least));
        least.max(self.fixed_bytes(data, options) + sorting_bytes(self.entries_within(data, options, given)))
    }

    fn plan(&self, data: &SourceVectors<'_>, options: &BuildOptions) -> Result<FamilyPlan, IndexError> {
        sizes::plan(data, self, options)
    }

    /// Returns `None`: shorter codes outside of groups would be product codes, which graphics cards do not
    /// score.
    fn with_default_code_bytes(&self, _bytes: u32) -> Option<FamilyOptions> {
        None
    }

    fn leaner(&self, dim: usize) -> Vec<(&'static str, FamilyOptions)> {
        vec![
            ("lower code_bytes", LshOptions { code_bytes: self.codes().halved(dim), ..*self }.into()),
            ("lower tables", LshOptions { tables: (self.tables / 2).max(1), ..*self }.into()),
            (
                "raise block_bytes",
                LshOptions { block_bytes: (self.block_bytes * 2).min(4096), ..*self }.into(),
            ),
        ]
    }

    fn build(&self, job: Job<'_>) -> Result<BuildReport, IndexError> {
        build(job, self)
    }
}

/// Returns the most bytes that `entries` entries take.
fn sorting_bytes(entries: u64) -> u64 {
    entries * ENTRY_BYTES
}

impl LshOptions {
    /// Returns the bytes of memory that every stage takes.
    fn fixed_bytes(&self, data: &SourceVectors<'_>, options: &BuildOptions) -> u64 {
        let (threads, dim) = (options.thread_count() as u64, data.dim() as u64 + 1);
        let functions = CompoundHashes::file_bytes(dim as usize, self.tables as usize, self.hashes as usize);
        FIXED_BYTES + threads * (THREAD_BYTES + THREAD_ROWS * 4 * dim) + 2 * functions
    }

    /// Returns the largest number of bytes that a stage without sorting takes.
    fn other_bytes(&self, data: &SourceVectors<'_>, options: &BuildOptions) -> u64 {
        let (count, dim, codes) = (data.count(), data.dim(), self.codes());
        let threads = options.thread_count() as u64;
        let training = sample_bytes(sample_rows(count, dim), dim) + codes.training_bytes(dim);
        let training = training + encoding::planned_bytes(1, dim, codes, threads);
        let blocks = TableLayout::new(0, self.block_bytes, self.tables, count as u64);
        let fences = 2 * blocks.map_or(0, |layout| layout.fence_bytes());
        let queries = 1000 * (data.given_row_bytes() as u64 + 8 * dim as u64);
        let codes = count as u64 * u64::from(codes.bytes(dim)) + codes.codec_bytes(dim);
        let calibrating = (codes + fences).max(threads * TRUTH_BYTES) + queries + TRUTH_BYTES;
        training.max(calibrating)
    }

    /// Returns the number of entries that are sorted at once in `bytes` bytes; `None` stands for the usual
    /// number.
    fn entries(&self, data: &SourceVectors<'_>, bytes: Option<u64>) -> u64 {
        let (count, all) = (data.count() as u64, data.count() as u64 * u64::from(self.tables));
        let usual = (USUAL_ENTRY_BYTES / ENTRY_BYTES).max(count);
        let fitting = bytes.map_or(usual, |bytes| (bytes / ENTRY_BYTES).min(usual));
        // A multiple of whole tables, or a part of one table.
        let entries =
            if fitting >= count { fitting / count * count } else { fitting.max(LEAST_ENTRIES.min(count)) };
        entries.min(all)
    }

    /// Returns the number of entries that are sorted at once if the whole build may use `budget` bytes.
    fn entries_within(&self, data: &SourceVectors<'_>, options: &BuildOptions, budget: Option<u64>) -> u64 {
        self.entries(data, budget.map(|budget| budget.saturating_sub(self.fixed_bytes(data, options))))
    }
}

/// Builds an LSH index, or continues a killed build of the same index.
fn build(job: Job<'_>, own: &LshOptions) -> Result<BuildReport, IndexError> {
    let Job { data, target, options, identity, planned, progress } = job;
    let threads = options.thread_count();
    let layout = layout_of(data)?.identified(identity);
    let pages = data.count().div_ceil(layout.group_vectors()) as u64;
    let tables = TableLayout::new(layout.file_bytes(pages), own.block_bytes, own.tables, data.count() as u64);
    let tables = tables.map_err(IndexError::Parameter)?.identified(identity);
    let fingerprint = journal::fingerprint(data, options, identity, STEPS_VERSION);
    let (draft, start) = target.start(fingerprint.as_deref(), |draft, fingerprint| {
        read_journal(draft, fingerprint, &layout, &tables)
    })?;
    let fingerprint = fingerprint.unwrap_or_default();
    let mut journal = match start {
        Start::Finished(manifest, note) => {
            let details = details(&manifest)?;
            return publish_finished(draft, &manifest, &note, threads, planned, details, progress);
        }
        Start::After(journal) => journal,
        Start::Anew => LshJournal { fingerprint: fingerprint.clone(), ..LshJournal::default() },
    };
    let mut stages = StageTimes::begin_after(journal.seconds);
    let (directory, rows) = (draft.as_ref(), data.count());
    let work = Work { data, options, own, layout, identity, rows, threads, directory, progress };
    announce(&work);
    let mut section = write(&work, tables, &mut journal, &mut stages)?;
    let mut manifest = least_manifest(data, options, identity);
    manifest.set_structure(&section, section.files())?;
    let lsh = load_lsh(directory, &manifest, section.clone())?;
    section.calibration = calibrate::calibrate(&work, &lsh)?;
    drop(lsh);
    manifest.set_structure(&section, section.files())?;
    stages.end("calibrate");
    manifest.build_seconds = stages.seconds_so_far();
    publish(draft, &manifest, &Note { fingerprint, links: 0 }, progress)?;
    let details = details(&manifest)?;
    Ok(BuildReport::new(&manifest, threads, planned, stages, details))
}

/// Returns the details of the build report that only this family has.
fn details(manifest: &Manifest) -> Result<Details, IndexError> {
    let section = LshEntry::read(manifest).map_err(IndexError::Internal)?;
    let codes = &section.codes;
    let layout = section.table_layout(manifest).map_err(IndexError::Internal)?;
    let buckets = section.buckets(manifest).map_err(IndexError::Internal)?;
    let stated = StatedPromises::new(&section, &layout, manifest.vectors, &buckets);
    let promised = |sentence: String| format!("promised: {sentence}");
    let mut details: Details = stated.facts().into_iter().map(|fact| (fact.name, fact.value)).collect();
    details.extend([
        ("remarks", stated.sentences(&manifest.metric).map(promised).to_vec().into()),
        ("tables", section.tables.into()),
        ("hashes", section.hashes.into()),
        ("code_kind", codes.kind.clone().into()),
        ("code_bytes", codes.code_bytes.into()),
    ]);
    Ok(details)
}

/// Announces the stages to the progress receiver, with their expected seconds on a reference machine.
fn announce(work: &Work<'_>) {
    work.progress.plan(&stages(work.data, work.own));
}

/// Reads the journal of an earlier build of the same index, if there is one whose files are intact.
fn read_journal(
    draft: &dyn Draft,
    fingerprint: &str,
    pages: &GroupLayout,
    tables: &TableLayout,
) -> Option<LshJournal> {
    let journal: LshJournal = journal::parse(&journal::read(draft)?).ok()?;
    let begin = tables.span(0, 0).offset;
    let one_table = tables.table_bytes() / u64::from(tables.tables());
    let fences = tables.fence_bytes() / u64::from(tables.tables()) * u64::from(journal.tables);
    let bytes = journal.file.bytes;
    let whole = match journal.tables {
        0 => bytes == begin || bytes < begin && bytes.is_multiple_of(pages.group_bytes() as u64),
        done => done <= tables.tables() && bytes == begin + u64::from(done) * one_table,
    };
    let sound = require(whole && journal.fences.bytes == fences && journal.seconds >= 0.0, "").is_ok();
    let continues = sound && journal.fingerprint == fingerprint;
    (continues && holds(draft, TABLES_NAME, &journal.file) && holds(draft, FENCES_NAME, &journal.fences))
        .then_some(journal)
}

/// Writes the files of the index that are not written yet. Returns the index's section, without a
/// calibration.
fn write(
    work: &Work<'_>,
    tables: TableLayout,
    journal: &mut LshJournal,
    stages: &mut StageTimes,
) -> Result<LshEntry, IndexError> {
    let (data, own, directory) = (work.data, work.own, work.directory);
    let mut file = Appender::resume(directory, TABLES_NAME, journal.file)?;
    if journal.file.bytes < tables.span(0, 0).offset {
        in_order::write_pages(work, &mut file, |written| {
            record(work, journal, (written, Written::default()), 0, stages)
        })?;
        record(work, journal, (file.sync()?, Written::default()), 0, stages)?;
        stages.end("write vectors");
    }
    let intake = Intake { longest: spread::longest(work)?, ..work.intake() };
    let functions = draw(work, &intake)?;
    let files = write_tables(work, &intake, &functions, tables, file, journal, stages)?;
    stages.end("tables");
    let ids = match data.ids() {
        Some(ids) => {
            let mut written = Appender::create(directory, IDS_NAME)?;
            written.append(&ids.to_bytes())?;
            Some(written.finish()?)
        }
        None => None,
    };
    let mut written = Appender::create(directory, HASHES_NAME)?;
    written.append(&functions.to_bytes())?;
    let reader = |ahead| {
        let mut rows = FloatRows::new(data, &intake, ahead);
        move |id, out: &mut [f32]| rows.read(id, out)
    };
    let (count, dim, row_bytes) = (data.count(), data.dim(), data.given_row_bytes());
    let encoding = Encoding { work, count, dim, row_bytes, reader };
    let sample = encoding.sample(sample_rows(count, dim))?;
    let codes = write_codes(&encoding, own.codes(), sample)?;
    stages.end("codes");
    Ok(LshEntry {
        file: files.0,
        fences: files.1,
        ids,
        functions: written.finish()?,
        page_bytes: work.layout.page_bytes() as u32,
        tables: own.tables,
        hashes: own.hashes,
        block_bytes: own.block_bytes,
        cell: functions.cell(),
        circle: true,
        longest: intake.longest,
        codes,
        calibration: Calibration::default(),
    })
}

/// Records in the journal the bytes of both files and the number of tables that are finished.
fn record(
    work: &Work<'_>,
    journal: &mut LshJournal,
    (file, fences): (Written, Written),
    tables: u32,
    stages: &StageTimes,
) -> Result<(), IndexError> {
    (journal.file, journal.fences, journal.tables) = (file, fences, tables);
    journal.seconds = stages.seconds_so_far();
    journal::write(work.directory, journal)
}

/// Draws the hash functions: centred on the mean of a sample, with a width that suits the extent of the
/// sample.
fn draw(work: &Work<'_>, intake: &Intake) -> Result<CompoundHashes, IndexError> {
    let (count, dim) = (work.data.count(), intake.point_dim());
    let rows = sample_rows(count, dim);
    let mut points = Points::new(work, intake, 0);
    let (mut point, mut sums, mut squares) = (vec![0.0_f32; dim], vec![0.0_f64; dim], 0.0_f64);
    for i in 0..rows {
        if i % 4096 == 0 {
            work.check_cancelled()?;
        }
        points.read((i as u64 * count as u64 / rows as u64) as usize, &mut point)?;
        for (sum, value) in sums.iter_mut().zip(&point) {
            *sum += f64::from(*value);
            squares += f64::from(*value).powi(2);
        }
    }
    let centre: Vec<f32> = sums.iter().map(|sum| (sum / rows as f64) as f32).collect();
    let length: f64 = centre.iter().map(|value| f64::from(*value).powi(2)).sum();
    let spread = (squares / rows as f64 - length).max(0.0).sqrt();
    let own = work.own;
    Ok(CompoundHashes::draw(&centre, spread, own.tables as usize, own.hashes as usize, work.options.seed))
}

/// Writes the tables that are not written yet, and finishes both files.
fn write_tables(
    work: &Work<'_>,
    intake: &Intake,
    functions: &CompoundHashes,
    layout: TableLayout,
    blocks: Appender,
    journal: &mut LshJournal,
    stages: &StageTimes,
) -> Result<(FileEntry, FileEntry), IndexError> {
    let entries = work.own.entries_within(work.data, work.options, work.options.memory_bytes) as usize;
    let capacity = if entries < work.data.count() { (entries as f64 / PART_SLACK) as usize } else { entries };
    let writer = TableWriter { work, intake, functions, layout, capacity };
    let mut files =
        TableFiles { blocks, fences: Appender::resume(work.directory, FENCES_NAME, journal.fences)? };
    let (all, mut done) = (functions.tables(), journal.tables as usize);
    while done < all {
        let end = all.min(done + writer.tables_at_once());
        writer.write(done..end, &mut files)?;
        done = end;
        record(work, journal, (files.blocks.sync()?, files.fences.sync()?), done as u32, stages)?;
    }
    let rest = layout.file_bytes() - files.blocks.written().bytes;
    files.blocks.append(&vec![0; rest as usize])?;
    Ok((files.blocks.finish()?, files.fences.finish()?))
}
