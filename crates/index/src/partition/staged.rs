//! A build in stages, which continues after the last finished stage if it is killed. The vectors are divided
//! into parts, the pieces of the parts are ordered and written, and then the stages of the family follow.

use super::Work;
use super::intake::Intake;
use super::journal::{Journal, MEANS_NAME, ORDER_NAME};
use super::pieces::{Ordered, Piece, pieces, remove_spilled};
use super::spread::Copies;
use crate::build::options::{BuildOptions, BuildReport, Builder, Details, Job};
use crate::build::publishing::{Note, Start, publish, publish_finished};
use crate::build::{StageTimes, journal};
use crate::error::IndexError;
use crate::form::source::SourceVectors;
use crate::format::appender::{Appender, Written};
use crate::format::identity::Identity;
use crate::format::manifest::Manifest;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Bytes of means written at once.
const WRITE_BYTES: usize = 4 << 20;

/// The options of a family whose builds place vectors piece by piece and continue with stages of their own.
pub(crate) trait Staged: Builder + Sized {
    /// The layout of the family's files.
    type Layout: Copy;
    /// The finished stages after placing.
    type Steps: Default + Serialize + DeserializeOwned;

    /// Version of the files that the stages write. Increase it when their contents change.
    const STEPS_VERSION: u32;

    /// Returns the most vectors that are placed together.
    fn rows(&self, data: &SourceVectors<'_>, options: &BuildOptions) -> Result<usize, IndexError>;

    /// Returns the layout of the index with this identity.
    fn layout(&self, data: &SourceVectors<'_>, identity: Identity) -> Result<Self::Layout, IndexError>;

    /// Returns how vectors are placed.
    fn placing(layout: &Self::Layout) -> Placing;

    /// Returns the lengths of the files of placed vectors, once `pieces` are written.
    fn lengths(shape: &BuildShape<Self::Layout>, pieces: &[Piece]) -> Lengths;

    /// Appends a piece: its vectors, and its ids by place.
    fn write(
        work: &Work<'_, Self::Layout, Self>,
        ordered: &Ordered,
        vectors: &mut Appender,
        order: &mut Appender,
    ) -> Result<(), IndexError>;

    /// Returns the files that the finished steps have written.
    fn files(steps: &Self::Steps) -> Vec<(&'static str, Written)>;

    /// Checks the journal's steps; without `all_placed` none can have begun.
    ///
    /// # Errors
    /// A sentence that states what is wrong.
    fn check_steps(
        steps: &Self::Steps,
        shape: &BuildShape<Self::Layout>,
        pieces: &[Piece],
        all_placed: bool,
    ) -> Result<(), String>;

    /// Returns the stages after placing, with their expected seconds, for the progress receiver. `values` is
    /// the size of the data in units of a million vectors of 128 dimensions.
    fn rest(
        &self,
        data: &SourceVectors<'_>,
        layout: &Self::Layout,
        steps: &Self::Steps,
        values: f64,
    ) -> Vec<(&'static str, f64)>;

    /// Runs the stages after placing. The returned manifest is complete except for the seconds.
    fn finish(
        work: &Work<'_, Self::Layout, Self>,
        intake: &Intake,
        journal: &mut Journal<Self::Steps>,
        stages: &mut StageTimes,
    ) -> Result<Manifest, IndexError>;

    /// Returns the details of the build report that only this family has.
    fn details(manifest: &Manifest) -> Result<Details, IndexError>;
}

/// The way in which vectors are placed.
pub(crate) struct Placing {
    /// The file that the vectors are written to.
    pub(crate) vectors_name: &'static str,
    /// The sizes of the units in which vectors are ordered, the smallest first.
    pub(crate) units: Vec<usize>,
    /// The size of the units whose means are written.
    pub(crate) unit: usize,
}

/// Bytes of the files of placed vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lengths {
    pub(crate) vectors: u64,
    pub(crate) order: u64,
}

/// The numbers that determine the lengths of all files of a build.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BuildShape<L> {
    pub(crate) vectors: usize,
    pub(crate) dim: usize,
    /// Bytes of a stored vector.
    pub(crate) row_bytes: usize,
    /// Most vectors that are placed together; at least 1.
    pub(crate) rows: usize,
    pub(crate) layout: L,
}

impl<L> BuildShape<L> {
    /// Returns the number of units of `unit` vectors. Units begin anew with each piece.
    pub(crate) fn units(&self, unit: usize, pieces: &[Piece]) -> u64 {
        pieces.iter().map(|piece| piece.rows.div_ceil(unit) as u64).sum()
    }
}

/// Builds an index, or continues a killed build of the same index.
pub(crate) fn build<B: Staged>(job: Job<'_>, own: &B) -> Result<BuildReport, IndexError> {
    let Job { data, target, options, identity, planned, progress } = job;
    let (rows, threads) = (own.rows(data, options)?, options.thread_count());
    let identity = identity.and(&format!("{rows} placed together"));
    let layout = own.layout(data, identity)?;
    let fingerprint = journal::fingerprint(data, options, identity, B::STEPS_VERSION);
    let shape =
        BuildShape { vectors: data.count(), dim: data.dim(), row_bytes: data.row_bytes(), rows, layout };
    let (draft, start) = target
        .start(fingerprint.as_deref(), |draft, fingerprint| Journal::read::<B>(draft, fingerprint, &shape))?;
    let fingerprint = fingerprint.unwrap_or_default();
    let mut journal = match start {
        Start::Finished(manifest, note) => {
            let details = B::details(&manifest)?;
            return publish_finished(draft, &manifest, &note, threads, planned, details, progress);
        }
        Start::After(journal) => journal,
        Start::Anew => Journal::new(fingerprint.clone()),
    };
    let mut stages = StageTimes::begin_after(journal.seconds);
    let work =
        Work { data, options, own, layout, identity, rows, threads, directory: draft.as_ref(), progress };
    announce(&work, &journal);
    let mut intake = divide(&work, &mut journal, &mut stages)?;
    place(&work, &mut intake, &mut journal, &mut stages)?;
    let mut manifest = B::finish(&work, &intake, &mut journal, &mut stages)?;
    manifest.build_seconds = stages.seconds_so_far();
    publish(draft, &manifest, &Note { fingerprint, links: 0 }, progress)?;
    let details = B::details(&manifest)?;
    Ok(BuildReport::new(&manifest, threads, planned, stages, details))
}

/// Announces the stages to the progress receiver. The numbers are seconds on a reference machine; their
/// proportions predict the remaining time on any machine.
fn announce<B: Staged>(work: &Work<'_, B::Layout, B>, journal: &Journal<B::Steps>) {
    let pieces = pieces(&journal.parts, work.rows);
    let placed: usize = pieces[..journal.placed].iter().map(|piece| piece.rows).sum();
    let first = match (work.placed_at_once(), journal.parts.is_empty()) {
        (false, true) => FirstStage::Spreading,
        (true, _) if journal.placed == 0 => FirstStage::Loading,
        _ => FirstStage::Nothing,
    };
    work.progress.plan(&stages(work.data, work.own, &work.layout, (first, placed), &journal.own));
}

/// The stage before the vectors are placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FirstStage {
    Spreading,
    Loading,
    Nothing,
}

/// Returns the stages after `first`, if `placed` vectors are placed and `steps` are done, with their expected
/// seconds on a reference machine.
pub(crate) fn stages<B: Staged>(
    data: &SourceVectors<'_>,
    own: &B,
    layout: &B::Layout,
    (first, placed): (FirstStage, usize),
    steps: &B::Steps,
) -> Vec<(&'static str, f64)> {
    let count = data.count() as f64;
    let values = count * data.dim() as f64 / 128e6;
    let mut stages = match first {
        FirstStage::Spreading => vec![("spreading", 0.5 * values)],
        FirstStage::Loading => vec![("loading vectors", 0.3 * values)],
        FirstStage::Nothing => Vec::new(),
    };
    stages.push(("grouping", 6.5 * values * (1.0 - placed as f64 / count)));
    stages.extend(own.rest(data, layout, steps, values));
    stages
}

/// Returns the stages of a new build that keeps `rows` vectors in memory at once.
pub(crate) fn all_stages<B: Staged>(
    data: &SourceVectors<'_>,
    own: &B,
    layout: &B::Layout,
    rows: usize,
) -> Vec<(&'static str, Option<f64>)> {
    let first = if rows >= data.count() { FirstStage::Loading } else { FirstStage::Spreading };
    let stages = stages(data, own, layout, (first, 0), &B::Steps::default());
    stages.into_iter().map(|(name, seconds)| (name, Some(seconds))).collect()
}

/// Sends the vectors to parts, unless all are placed at once.
fn divide<B: Staged>(
    work: &Work<'_, B::Layout, B>,
    journal: &mut Journal<B::Steps>,
    stages: &mut StageTimes,
) -> Result<Intake, IndexError> {
    let mut intake = Intake { longest: journal.longest.map(f32::from_bits), ..work.intake() };
    if !journal.parts.is_empty() {
        return Ok(intake);
    }
    journal.parts = work.divide(&mut intake, Copies::One)?;
    if !work.placed_at_once() {
        journal.longest = intake.longest.map(f32::to_bits);
        journal.write(work.directory, stages)?;
        stages.end("spread");
    }
    Ok(intake)
}

/// Places the remaining pieces one by one and records each in the journal. Sets the longest vector of
/// `intake`.
fn place<B: Staged>(
    work: &Work<'_, B::Layout, B>,
    intake: &mut Intake,
    journal: &mut Journal<B::Steps>,
    stages: &mut StageTimes,
) -> Result<(), IndexError> {
    let pieces = pieces(&journal.parts, work.rows);
    if journal.placed == pieces.len() {
        return Ok(());
    }
    let Placing { vectors_name, units, unit } = B::placing(&work.layout);
    let mut vectors = Appender::resume(work.directory, vectors_name, journal.vectors)?;
    let mut means = Appender::resume(work.directory, MEANS_NAME, journal.means)?;
    let mut order = Appender::resume(work.directory, ORDER_NAME, journal.order)?;
    if !work.placed_at_once() {
        // Count only the remaining vectors: earlier processes took the time for the others, and the remaining
        // time is extrapolated from this process.
        let left: usize = pieces[journal.placed..].iter().map(|piece| piece.rows).sum();
        work.progress.stage("grouping", left as u64);
    }
    let mut before = 0;
    for piece in &pieces[journal.placed..] {
        let ordered =
            Ordered::load(work, intake, &journal.parts, *piece, (units.clone(), Some(unit)), before, stages)?;
        intake.longest = intake.longest.or(ordered.space.longest());
        B::write(work, &ordered, &mut vectors, &mut order)?;
        write_means(&ordered, unit, work.threads, &mut means)?;
        journal.longest = intake.longest.map(f32::to_bits);
        journal.vectors = vectors.sync()?;
        journal.means = means.sync()?;
        journal.order = order.sync()?;
        journal.placed += 1;
        journal.write(work.directory, stages)?;
        before += piece.rows as u64;
        remove_spilled(work, &journal.parts, *piece);
        stages.end("write vectors");
    }
    Ok(())
}

/// Appends the means of all units of `unit` places.
fn write_means(
    ordered: &Ordered,
    unit: usize,
    threads: usize,
    file: &mut Appender,
) -> Result<(), IndexError> {
    let mut bytes = Vec::with_capacity(WRITE_BYTES);
    for means in ordered.means(unit, threads).chunks(WRITE_BYTES / 4) {
        bytes.clear();
        means.iter().for_each(|value| bytes.extend(value.to_le_bytes()));
        file.append(&bytes)?;
    }
    Ok(())
}
