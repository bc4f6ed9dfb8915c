//! The journal of a staged build, from which a killed build continues.

use super::pieces::{SpilledPart, check_parts, pieces, spill_files_exist};
use super::staged::{BuildShape, Staged};
use crate::build::StageTimes;
use crate::build::journal::{self, holds, require};
use crate::error::IndexError;
use crate::format::appender::Written;
use bathyal_store::Draft;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// During the build: the means of the units in which vectors are placed, f32.
pub(crate) const MEANS_NAME: &str = "means.tmp";
/// During the build: the ids by place, u32.
pub(crate) const ORDER_NAME: &str = "order.tmp";

/// The finished steps; `own` has the steps of the family, once all vectors are placed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Journal<S> {
    /// Identifies the data and the options; a build with another fingerprint starts from the beginning.
    fingerprint: String,
    /// Seconds of work so far.
    pub(crate) seconds: f64,
    /// Bits of the longest squared length, under the inner product.
    pub(crate) longest: Option<u32>,
    /// The parts, once all vectors were sent to theirs; a single part without a file if all vectors are
    /// placed at once.
    pub(crate) parts: Vec<SpilledPart>,
    /// Number of pieces whose vectors are written.
    pub(crate) placed: usize,
    pub(crate) vectors: Written,
    pub(crate) means: Written,
    pub(crate) order: Written,
    pub(crate) own: S,
}

impl<S: Default + Serialize + DeserializeOwned> Journal<S> {
    pub(crate) fn new(fingerprint: String) -> Journal<S> {
        Journal {
            fingerprint,
            seconds: 0.0,
            longest: None,
            parts: Vec::new(),
            placed: 0,
            vectors: Written::default(),
            means: Written::default(),
            order: Written::default(),
            own: S::default(),
        }
    }

    /// Replaces the journal in `directory`. The files that it names are already synced.
    pub(crate) fn write(&mut self, directory: &dyn Draft, stages: &StageTimes) -> Result<(), IndexError> {
        self.seconds = stages.seconds_so_far();
        journal::write(directory, self)
    }

    /// Returns the journal in `directory` if it is of a build with this fingerprint and its files exist.
    pub(crate) fn read<B: Staged<Steps = S>>(
        directory: &dyn Draft,
        fingerprint: &str,
        shape: &BuildShape<B::Layout>,
    ) -> Option<Journal<S>> {
        let journal = Journal::parse::<B>(&journal::read(directory)?, shape).ok()?;
        let placed = [
            (B::placing(&shape.layout).vectors_name, journal.vectors),
            (MEANS_NAME, journal.means),
            (ORDER_NAME, journal.order),
        ];
        let mut files = placed.into_iter().chain(B::files(&journal.own));
        let pieces = pieces(&journal.parts, shape.rows);
        let sound = journal.fingerprint == fingerprint
            && spill_files_exist(directory, &journal.parts, &pieces[journal.placed..])
            && files.all(|(name, written)| holds(directory, name, &written));
        sound.then_some(journal)
    }

    /// Parses the bytes from [`Journal::write`] of a build of this shape.
    ///
    /// # Errors
    /// A sentence if the journal is damaged or of another build.
    pub(crate) fn parse<B: Staged<Steps = S>>(
        bytes: &[u8],
        shape: &BuildShape<B::Layout>,
    ) -> Result<Journal<S>, String> {
        let journal: Journal<S> = journal::parse(bytes)?;
        require(journal.seconds >= 0.0, "its seconds are negative")?;
        let (parts, placed) = (&journal.parts, journal.placed);
        let pieces = check_parts(parts, placed, shape.vectors, shape.row_bytes as u64, shape.rows)?;
        let written = B::lengths(shape, &pieces[..placed]);
        let units = shape.units(B::placing(&shape.layout).unit, &pieces[..placed]);
        let right = journal.vectors.bytes == written.vectors
            && journal.order.bytes == written.order
            && journal.means.bytes == units * 4 * shape.dim as u64;
        require(right, "the lengths of its files do not follow from the placed pieces")?;
        let all_placed = placed == pieces.len() && !pieces.is_empty();
        B::check_steps(&journal.own, shape, &pieces, all_placed)?;
        Ok(journal)
    }
}
