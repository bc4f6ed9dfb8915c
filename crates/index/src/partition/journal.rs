//! What a staged build has finished, so that a killed one continues.

use super::pieces::{Part, check_parts, pieces, spill_files_exist};
use super::staged::{Shape, Staged};
use crate::build::Stages;
use crate::build::journal::{self, holds, require};
use crate::error::IndexError;
use crate::format::appender::Written;
use bathyal_store::Draft;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// While building: the means of the units that vectors are placed in, f32.
pub(crate) const MEANS_NAME: &str = "means.tmp";
/// While building: the ids by place, u32.
pub(crate) const ORDER_NAME: &str = "order.tmp";

/// The steps that are finished; `own` has those of the family, once all vectors are placed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Journal<S> {
    /// What was built from and how; a build that differs in it begins anew.
    fingerprint: String,
    /// Seconds worked.
    pub(crate) seconds: f64,
    /// Bits of the longest squared length, under the inner product.
    pub(crate) longest: Option<u32>,
    /// The parts, once all vectors have been sent to theirs; one without a file where all are placed at once.
    pub(crate) parts: Vec<Part>,
    /// Pieces of parts whose vectors are written.
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

    /// Replaces the journal in `directory`. What it names was synced before.
    pub(crate) fn write(&mut self, directory: &dyn Draft, stages: &Stages) -> Result<(), IndexError> {
        self.seconds = stages.seconds_so_far();
        journal::write(directory, self)
    }

    /// The journal in `directory`, if it is of a build with this fingerprint and the files that it names are there.
    pub(crate) fn read<B: Staged<Steps = S>>(
        directory: &dyn Draft,
        fingerprint: &str,
        shape: &Shape<B::Layout>,
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

    /// Reads what [`Journal::write`] wrote for a build of this shape.
    ///
    /// # Errors
    /// A sentence when it is damaged or of another build.
    pub(crate) fn parse<B: Staged<Steps = S>>(
        bytes: &[u8],
        shape: &Shape<B::Layout>,
    ) -> Result<Journal<S>, String> {
        let journal: Journal<S> = journal::parse(bytes)?;
        require(journal.seconds >= 0.0, "it took less than no time")?;
        let (parts, placed) = (&journal.parts, journal.placed);
        let pieces = check_parts(parts, placed, shape.vectors, shape.row_bytes as u64, shape.rows)?;
        let written = B::lengths(shape, &pieces[..placed]);
        let units = shape.units(B::placing(&shape.layout).unit, &pieces[..placed]);
        let right = journal.vectors.bytes == written.vectors
            && journal.order.bytes == written.order
            && journal.means.bytes == units * 4 * shape.dim as u64;
        require(right, "the lengths of its files do not follow from what is placed")?;
        let all_placed = placed == pieces.len() && !pieces.is_empty();
        B::check_steps(&journal.own, shape, &pieces, all_placed)?;
        Ok(journal)
    }
}
