//! A build in stages, each of which a killed build continues from: the vectors are divided into parts, the pieces of these
//! are ordered and written, and then come the stages of the family.

use super::Work;
use super::intake::Intake;
use super::journal::{Journal, MEANS_NAME, ORDER_NAME};
use super::pieces::{Ordered, Piece, pieces, remove_spilled};
use super::spread::Copies;
use crate::build::options::{BuildOptions, BuildReport, Builder, Details, Job};
use crate::build::publishing::{Note, Start, publish, publish_finished};
use crate::build::{Stages, journal};
use crate::error::IndexError;
use crate::form::source::Source;
use crate::format::appender::{Appender, Written};
use crate::format::identity::Identity;
use crate::format::manifest::Manifest;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Bytes of means written at once.
const WRITE_BYTES: usize = 4 << 20;

/// The options of a family whose builds place vectors piece by piece and go on in stages of their own.
pub(crate) trait Staged: Builder + Sized {
    /// What it lays out.
    type Layout: Copy;
    /// What it has finished of the stages after placing.
    type Steps: Default + Serialize + DeserializeOwned;

    /// Changes whenever what a step writes does.
    const STEPS_VERSION: u32;

    /// Most vectors that are placed together.
    fn rows(&self, data: &Source<'_>, options: &BuildOptions) -> Result<usize, IndexError>;

    /// The layout of an index of this identity.
    fn layout(&self, data: &Source<'_>, identity: Identity) -> Result<Self::Layout, IndexError>;

    /// How vectors are placed.
    fn placing(layout: &Self::Layout) -> Placing;

    /// How long the files of placed vectors are, once `pieces` are written.
    fn lengths(shape: &Shape<Self::Layout>, pieces: &[Piece]) -> Lengths;

    /// Appends a piece: its vectors, and its ids by place.
    fn write(
        work: &Work<'_, Self::Layout, Self>,
        ordered: &Ordered,
        vectors: &mut Appender,
        order: &mut Appender,
    ) -> Result<(), IndexError>;

    /// The files that steps have written so far.
    fn files(steps: &Self::Steps) -> Vec<(&'static str, Written)>;

    /// Checks what a journal says of the steps; `all_placed` says whether they can have begun.
    ///
    /// # Errors
    /// A sentence.
    fn check_steps(
        steps: &Self::Steps,
        shape: &Shape<Self::Layout>,
        pieces: &[Piece],
        all_placed: bool,
    ) -> Result<(), String>;

    /// The stages after placing with the seconds that they take, for the receiver of progress; `values` are the millions of
    /// numbers of the data, in units of a million vectors of 128.
    fn rest(
        &self,
        data: &Source<'_>,
        layout: &Self::Layout,
        steps: &Self::Steps,
        values: f64,
    ) -> Vec<(&'static str, f64)>;

    /// The stages after placing; the manifest is whole but for the seconds.
    fn finish(
        work: &Work<'_, Self::Layout, Self>,
        intake: &Intake,
        journal: &mut Journal<Self::Steps>,
        stages: &mut Stages,
    ) -> Result<Manifest, IndexError>;

    /// What only this family has to say of a build.
    fn details(manifest: &Manifest) -> Result<Details, IndexError>;
}

/// How vectors are placed.
pub(crate) struct Placing {
    /// The file that they are written to.
    pub(crate) vectors_name: &'static str,
    /// In units of how many they are ordered, the smallest first.
    pub(crate) units: Vec<usize>,
    /// Of how many a mean is written.
    pub(crate) unit: usize,
}

/// Bytes of the files of placed vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lengths {
    pub(crate) vectors: u64,
    pub(crate) order: u64,
}

/// What the lengths of all files of a build follow from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape<L> {
    pub(crate) vectors: usize,
    pub(crate) dim: usize,
    /// Of a stored vector.
    pub(crate) row_bytes: usize,
    /// Vectors placed together at most; at least 1.
    pub(crate) rows: usize,
    pub(crate) layout: L,
}

impl<L> Shape<L> {
    /// Units of `unit` vectors: they begin anew with each piece.
    pub(crate) fn units(&self, unit: usize, pieces: &[Piece]) -> u64 {
        pieces.iter().map(|piece| piece.rows.div_ceil(unit) as u64).sum()
    }
}

/// Builds an index, or continues a build of the same that was killed.
pub(crate) fn build<B: Staged>(job: Job<'_>, own: &B) -> Result<BuildReport, IndexError> {
    let Job { data, target, options, identity, planned, progress } = job;
    let (rows, threads) = (own.rows(data, options)?, options.thread_count());
    let identity = identity.and(&format!("{rows} placed together"));
    let layout = own.layout(data, identity)?;
    let fingerprint = journal::fingerprint(data, options, identity, B::STEPS_VERSION);
    let shape = Shape { vectors: data.count(), dim: data.dim(), row_bytes: data.row_bytes(), rows, layout };
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
    let mut stages = Stages::begin_after(journal.seconds);
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

/// Tells the receiver of progress what is to come. The numbers are seconds on one machine, so their proportions say how
/// long the rest takes on another.
fn announce<B: Staged>(work: &Work<'_, B::Layout, B>, journal: &Journal<B::Steps>) {
    let pieces = pieces(&journal.parts, work.rows);
    let placed: usize = pieces[..journal.placed].iter().map(|piece| piece.rows).sum();
    let first = match (work.placed_at_once(), journal.parts.is_empty()) {
        (false, true) => First::Spreading,
        (true, _) if journal.placed == 0 => First::Loading,
        _ => First::Nothing,
    };
    work.progress.plan(&stages(work.data, work.own, &work.layout, (first, placed), &journal.own));
}

/// What comes before the vectors are placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum First {
    Spreading,
    Loading,
    Nothing,
}

/// The stages where so many vectors are placed and `steps` are done, in seconds on one machine.
pub(crate) fn stages<B: Staged>(
    data: &Source<'_>,
    own: &B,
    layout: &B::Layout,
    (first, placed): (First, usize),
    steps: &B::Steps,
) -> Vec<(&'static str, f64)> {
    let count = data.count() as f64;
    let values = count * data.dim() as f64 / 128e6;
    let mut stages = match first {
        First::Spreading => vec![("spreading", 0.5 * values)],
        First::Loading => vec![("loading vectors", 0.3 * values)],
        First::Nothing => Vec::new(),
    };
    stages.push(("grouping", 6.5 * values * (1.0 - placed as f64 / count)));
    stages.extend(own.rest(data, layout, steps, values));
    stages
}

/// The stages of a build that begins anew and holds `rows` vectors at once.
pub(crate) fn all_stages<B: Staged>(
    data: &Source<'_>,
    own: &B,
    layout: &B::Layout,
    rows: usize,
) -> Vec<(&'static str, Option<f64>)> {
    let first = if rows >= data.count() { First::Loading } else { First::Spreading };
    let stages = stages(data, own, layout, (first, 0), &B::Steps::default());
    stages.into_iter().map(|(name, seconds)| (name, Some(seconds))).collect()
}

/// Sends the vectors to parts, where they are not placed all at once.
fn divide<B: Staged>(
    work: &Work<'_, B::Layout, B>,
    journal: &mut Journal<B::Steps>,
    stages: &mut Stages,
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

/// Places what is not placed yet, piece by piece; the journal knows of each, and `intake` then of the longest vector.
fn place<B: Staged>(
    work: &Work<'_, B::Layout, B>,
    intake: &mut Intake,
    journal: &mut Journal<B::Steps>,
    stages: &mut Stages,
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
        // What an earlier process has placed took none of this one's time, from which follows what is left.
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
