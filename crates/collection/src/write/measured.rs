//! Measures new segments with the calibrations of the collection, before a version names the segments.

use super::content::Content;
use crate::calibration::{MeasuredSegment, measure, read_sample};
use crate::error::CollectionError;
use crate::location::{CollectionLocation, Part};
use crate::segment::{SegmentShare, WriteOptions};
use crate::state::State;
use crate::version::{CalibrationEntry, SegmentEntry, Version};
use bathyal_index::{Index, MOST_QUERIES, OpenOptions};
use bathyal_vectors::progress::{Progress, Silent};
use std::collections::BTreeSet;

/// Queries that measure a segment made from rows in memory. The time grows with them, writes may wait for it,
/// and a merge measures again with all.
const FLUSH_QUERIES: usize = 100;

/// The calibrations with which a new segment was measured.
#[derive(Debug, Default)]
pub(super) struct NewMeasurements {
    /// Ids of those whose result is beside its indexes.
    measured: Vec<String>,
    /// Ids of those that need not be tried again.
    tried: BTreeSet<String>,
}

/// How a new segment is measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct MeasureLimits {
    /// The most queries.
    pub(super) queries: usize,
    /// Threads; 0 means all cores.
    pub(super) threads: usize,
    /// Bytes of memory that the indexes may take, one after the other; `None` means no limit.
    pub(super) memory_bytes: Option<u64>,
}

impl MeasureLimits {
    /// Returns the limits for a segment that is made from rows in memory, written with `options`.
    pub(super) fn of_flush(options: &WriteOptions) -> MeasureLimits {
        MeasureLimits { queries: FLUSH_QUERIES, threads: options.threads, memory_bytes: options.memory_bytes }
    }

    /// Returns the limits for a segment that others were merged into, written with `options`.
    pub(super) fn of_merge(options: &WriteOptions) -> MeasureLimits {
        MeasureLimits { queries: MOST_QUERIES, ..MeasureLimits::of_flush(options) }
    }

    /// Returns the most queries, and the threads.
    fn queries_and_threads(self) -> (usize, usize) {
        (self.queries, self.threads)
    }
}

impl NewMeasurements {
    /// Returns true if every calibration of the version was tried.
    pub(super) fn cover(&self, version: &Version) -> bool {
        version.calibrations.iter().all(|calibration| self.tried.contains(&calibration.id))
    }

    /// Returns the ids of the calibrations whose result is beside the indexes of the segment.
    pub(super) fn ids(&self) -> &[String] {
        &self.measured
    }

    /// Records the results in the version of `state`, which has the segment `name`.
    pub(super) fn note_in(&self, state: &mut State, name: &str) {
        if !self.measured.is_empty() {
            let mut version = (*state.version).clone();
            version.note_measured(name, &self.measured);
            state.version = version.into();
        }
    }
}

impl Content {
    /// Measures a new segment with each calibration of the current version that was not tried yet. A failure
    /// leaves the calibration out: searches of the segment then say so, and writes go on.
    ///
    /// # Errors
    /// [`CollectionError::Cancelled`] by `progress`.
    pub(super) fn measure_new(
        &self,
        entry: &SegmentEntry,
        found: &mut NewMeasurements,
        limits: MeasureLimits,
        progress: &dyn Progress,
    ) -> Result<(), CollectionError> {
        self.measure_in(&self.place, (&self.state(), entry), found, limits, progress)
    }

    /// Measures a segment at `place`, which has the queries of the calibrations of `state`, as
    /// [`Content::measure_new`] does.
    pub(super) fn measure_in(
        &self,
        place: &CollectionLocation,
        (state, entry): (&State, &SegmentEntry),
        found: &mut NewMeasurements,
        limits: MeasureLimits,
        progress: &dyn Progress,
    ) -> Result<(), CollectionError> {
        for (field, shape) in state.schema().vectors.iter().enumerate() {
            let new = |calibration: &&CalibrationEntry| !found.tried.contains(&calibration.id);
            let new: Vec<&CalibrationEntry> =
                state.version.calibrations_of(&shape.name).filter(new).collect();
            let ids: Vec<String> = new.iter().map(|calibration| calibration.id.clone()).collect();
            let measured = self.measure_field(place, (state, entry, field), &new, limits, progress);
            if progress.cancelled() {
                return Err(CollectionError::Cancelled);
            }
            found.measured.extend(measured.unwrap_or_default());
            found.tried.extend(ids);
        }
        Ok(())
    }

    /// Measures the index of a field with `calibrations`. Returns the ids of those that were measured.
    fn measure_field(
        &self,
        place: &CollectionLocation,
        (state, entry, field): (&State, &SegmentEntry, usize),
        calibrations: &[&CalibrationEntry],
        limits: MeasureLimits,
        progress: &dyn Progress,
    ) -> Result<Vec<String>, CollectionError> {
        let mut ids = Vec::new();
        if calibrations.is_empty() {
            return Ok(ids);
        }
        let index = self.open_to_measure(place, (state, entry, field), limits.memory_bytes)?;
        for calibration in calibrations {
            let measured =
                read_sample(place, calibration, &state.schema().vectors[field]).and_then(|queries| {
                    measure(&index, (calibration, &queries), limits.queries_and_threads(), progress)
                });
            if let Ok(MeasuredSegment::Efforts(_)) = measured {
                ids.push(calibration.id.clone());
            }
        }
        Ok(ids)
    }

    /// Opens an index of a new segment for itself, with the memory for builds, which its build has given
    /// back.
    fn open_to_measure(
        &self,
        place: &CollectionLocation,
        (state, entry, field): (&State, &SegmentEntry, usize),
        memory_bytes: Option<u64>,
    ) -> Result<Index, CollectionError> {
        let generation = place.store().open(&Part::Segment(entry.name.clone(), Some(field)).name())?;
        let others: u64 = state.segments.iter().map(|segment| segment.segment.entry().bytes).sum();
        let segments = 1 + state.segments.len() as u64;
        let share = SegmentShare { bytes: entry.bytes, all_bytes: others + entry.bytes, segments };
        let given = self.options.index.memory_bytes.map(|given| share.share_of(given));
        let memory_bytes = memory_bytes.or(given);
        let options = OpenOptions { memory_bytes, search_memory: None, ..self.options.index.clone() };
        Ok(Index::open_in(&*generation, &options, &Silent)?)
    }
}
