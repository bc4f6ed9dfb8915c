//! Builds a flat index: writes the vectors in the order of the data, on pages with checksums, and then their
//! codes if there are to be any.

use super::calibrate;
use super::codes;
use super::open::load_flat;
use super::options::FlatOptions;
use super::section::{FlatEntry, NAME, STRIPED, VECTORS_NAME};
use super::sizes::{self, layout_of, stages};
use crate::build::codes::CodeChoice;
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
use crate::format::manifest::{FileEntry, Manifest};
use crate::partition::{self, in_order};
use bathyal_store::Draft;
use serde::{Deserialize, Serialize};

/// The program itself, thread stacks, mapped vectors that are not released yet, and buffers.
const FIXED_BYTES: u64 = 64 << 20;
/// Search state, exact search and code tables of each thread.
const THREAD_BYTES: u64 = 4 << 20;
/// Calibration: queries, and the neighbours of each query that a thread keeps, with slack for growing lists.
const TRUTH_BYTES: u64 = 1000 * 101 * 16;
/// Version of the files that the stages write. Increase it when their contents change.
const STEPS_VERSION: u32 = 2;

/// The inputs that all stages of a build share.
pub(super) type Work<'a> = partition::Work<'a, GroupLayout, FlatOptions>;

/// The finished stages, from which a killed build continues.
#[derive(Debug, Default, Serialize, Deserialize)]
struct FlatJournal {
    /// Identifies the data and the options; a build with another fingerprint starts from the beginning.
    fingerprint: String,
    /// Seconds of work so far.
    seconds: f64,
    /// The pages that are written so far.
    pages: Written,
}

impl From<FlatOptions> for FamilyOptions {
    fn from(options: FlatOptions) -> FamilyOptions {
        FamilyOptions::new(options)
    }
}

impl Builder for FlatOptions {
    fn family(&self) -> &'static str {
        NAME
    }

    fn striped(&self) -> &'static [&'static str] {
        STRIPED
    }

    fn check(&self) -> Result<(), IndexError> {
        FlatOptions::check(self)
    }

    fn calibrates(&self) -> bool {
        self.codes().is_some()
    }

    fn planned_memory(&self, data: &SourceVectors<'_>, options: &BuildOptions) -> u64 {
        let threads = options.thread_count() as u64;
        let fixed = FIXED_BYTES + threads * THREAD_BYTES;
        let Some(choice) = self.codes() else { return fixed };
        let (count, dim) = (data.count(), data.dim());
        let all_codes = (count * choice.of_groups(dim).1) as u64;
        let queries = 1000 * (data.given_row_bytes() as u64 + 8 * dim as u64);
        let calibrating = all_codes.max(threads * TRUTH_BYTES) + queries + TRUTH_BYTES;
        fixed + codes::planned_bytes(count, dim, choice, threads).max(calibrating)
    }

    fn plan(&self, data: &SourceVectors<'_>, options: &BuildOptions) -> Result<FamilyPlan, IndexError> {
        sizes::plan(data, self, options)
    }

    fn with_default_code_bytes(&self, bytes: u32) -> Option<FamilyOptions> {
        self.codes()
            .is_some_and(CodeChoice::may_be_short)
            .then(|| FlatOptions { code_bytes: Some(bytes), ..*self }.into())
    }

    fn leaner(&self, dim: usize) -> Vec<(&'static str, FamilyOptions)> {
        let Some(choice) = self.codes() else { return Vec::new() };
        vec![
            ("lower code_bytes", FlatOptions { code_bytes: choice.halved(dim), ..*self }.into()),
            ("leave codes out", FlatOptions::default().into()),
        ]
    }

    fn build(&self, job: Job<'_>) -> Result<BuildReport, IndexError> {
        build(job, self)
    }
}

/// Builds a flat index, or continues a killed build of the same index.
fn build(job: Job<'_>, own: &FlatOptions) -> Result<BuildReport, IndexError> {
    let Job { data, target, options, identity, planned, progress } = job;
    let threads = options.thread_count();
    let layout = layout_of(data)?.identified(identity);
    let fingerprint = journal::fingerprint(data, options, identity, STEPS_VERSION);
    let (draft, start) = target
        .start(fingerprint.as_deref(), |draft, fingerprint| read_journal(draft, fingerprint, &layout))?;
    let fingerprint = fingerprint.unwrap_or_default();
    let mut journal = match start {
        Start::Finished(manifest, note) => {
            let details = details(&manifest)?;
            return publish_finished(draft, &manifest, &note, threads, planned, details, progress);
        }
        Start::After(journal) => journal,
        Start::Anew => FlatJournal { fingerprint: fingerprint.clone(), ..FlatJournal::default() },
    };
    let mut stages = StageTimes::begin_after(journal.seconds);
    let (directory, rows) = (draft.as_ref(), data.count());
    let work = Work { data, options, own, layout, identity, rows, threads, directory, progress };
    announce(&work);
    let file = write_pages(&work, &mut journal, &stages)?;
    stages.end("write vectors");
    let codes = codes::write(&work, &work.intake())?;
    let mut section = FlatEntry {
        file,
        page_bytes: layout.page_bytes() as u32,
        read_pages: layout.group_pages() as u32,
        reads: rows.div_ceil(layout.group_vectors()) as u32,
        codes,
        calibration: Calibration::default(),
    };
    let mut manifest = least_manifest(data, options, identity);
    manifest.set_structure(&section, section.files())?;
    if section.codes.is_some() {
        stages.end("codes");
        let flat = load_flat(directory, &manifest, section.clone())?;
        section.calibration = calibrate::calibrate(&flat, data, options, progress)?;
        manifest.set_structure(&section, section.files())?;
        stages.end("calibrate");
    }
    manifest.build_seconds = stages.seconds_so_far();
    publish(draft, &manifest, &Note { fingerprint, links: 0 }, progress)?;
    let details = details(&manifest)?;
    Ok(BuildReport::new(&manifest, threads, planned, stages, details))
}

/// Returns the details of the build report that only this family has.
fn details(manifest: &Manifest) -> Result<Details, IndexError> {
    let section = FlatEntry::read(manifest).map_err(IndexError::Internal)?;
    let codes = section.codes.map(|codes| codes.codes);
    let parameters =
        codes.map(|codes| [("code_kind", codes.kind.into()), ("code_bytes", codes.code_bytes.into())]);
    Ok(parameters.into_iter().flatten().collect())
}

/// Announces the stages to the progress receiver, with their expected seconds on a reference machine.
fn announce(work: &Work<'_>) {
    work.progress.plan(&stages(work.data, work.own));
}

/// Reads the journal of an earlier build of the same index, if there is one whose files are intact.
fn read_journal(draft: &dyn Draft, fingerprint: &str, layout: &GroupLayout) -> Option<FlatJournal> {
    let journal: FlatJournal = journal::parse(&journal::read(draft)?).ok()?;
    let whole = journal.pages.bytes.is_multiple_of(layout.group_bytes() as u64);
    let sound = require(whole && journal.seconds >= 0.0, "").is_ok() && journal.fingerprint == fingerprint;
    (sound && holds(draft, VECTORS_NAME, &journal.pages)).then_some(journal)
}

/// Writes the pages that are not written yet.
fn write_pages(
    work: &Work<'_>,
    journal: &mut FlatJournal,
    stages: &StageTimes,
) -> Result<FileEntry, IndexError> {
    let mut file = Appender::resume(work.directory, VECTORS_NAME, journal.pages)?;
    in_order::write_pages(work, &mut file, |written| {
        journal.pages = written;
        journal.seconds = stages.seconds_so_far();
        journal::write(work.directory, journal)
    })?;
    file.finish()
}
