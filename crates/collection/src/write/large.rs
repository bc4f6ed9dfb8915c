//! Batches that are too large for the memory for writes. Their rows become a segment at once, without the
//! log. One version adds the segment and deletes the rows that it replaces, so the batch is published
//! completely or not at all.
//!
//! A version is valid as of one log record: everything that was written before must be in segments, and
//! nothing may be written until the version is published. Other writes wait for the publication, but not
//! while the segment is written, unless rows must be read for it.
//!
//! The log is rotated: the first record after the batch is in a new log. Therefore a reader that moves to
//! another log checks that its version is still the latest (`log/reader.rs`).

use super::measured::{MeasureLimits, NewMeasurements};
use super::operation::{Operation, Written, check_rows, refuse_duplicates, refuse_existing, update};
use super::segments::SegmentWriteGuard;
use super::shared::Shared;
use super::target_segment::ROWS_AT_ONCE;
use super::traffic::Traffic;
use super::writer::Writer;
use crate::error::CollectionError;
use crate::ids::Ids;
use crate::log::Change;
use crate::rows::Rows;
use crate::segment::{Segment, SegmentWriter};
use crate::state::{Located, SegmentState, State};
use crate::version::SegmentEntry;
use bathyal_tier::Control;
use bathyal_vectors::progress::Progress;
use std::sync::{Arc, MutexGuard};

/// Ids that are looked up at once.
const IDS_AT_ONCE: u32 = 1 << 16;

/// A large batch in progress; the log is kept open for it.
struct LargeBatch<'a> {
    shared: &'a Arc<Shared>,
    operation: &'a Operation,
    /// The writer's epoch when the batch began.
    epoch: u64,
}

impl Drop for LargeBatch<'_> {
    fn drop(&mut self) {
        self.shared.writer().end_large();
    }
}

/// A segment that is written but not yet named by a version.
struct StagedSegment<'a> {
    entry: SegmentEntry,
    measurements: NewMeasurements,
    _writing: SegmentWriteGuard<'a>,
}

impl StagedSegment<'_> {
    /// Returns true if the segment was measured with all calibrations of the version of `state`.
    fn is_measured(&self, state: &State) -> bool {
        self.measurements.cover(&state.version)
    }
}

/// Keeps other writes from starting, until it is dropped.
struct Reservation<'a>(&'a Shared);

impl<'a> Reservation<'a> {
    /// Waits until no other batch keeps writes from starting.
    fn wait_for(shared: &'a Shared) -> Reservation<'a> {
        let mut writer = shared.writer();
        while !writer.reserve() {
            writer = Writer::wait(writer);
        }
        Reservation(shared)
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.0.writer().end_reservation();
    }
}

impl Shared {
    /// Writes a batch of any size. When this returns, the batch survives a crash of the machine.
    ///
    /// # Errors
    /// As [`Shared::write`].
    pub(super) fn write_large(self: &Arc<Self>, operation: &Operation) -> Result<Written, CollectionError> {
        let epoch = self.writer().begin_large()?;
        let batch = LargeBatch { shared: self, operation, epoch };
        // Another writer may have removed objects that are read here.
        batch.check().map_err(|error| self.writer().fenced_if_superseded(error))?;
        let written = batch.write();
        // Removes replaced segments, or the segment of a failed batch, at once.
        self.clean();
        written.map_err(|error| self.writer().fenced_if_superseded(error))
    }
}

impl<'a> LargeBatch<'a> {
    /// Does all checks that are possible before anything is written.
    fn check(&self) -> Result<(), CollectionError> {
        let content = &self.shared.content;
        let path = content.place.path();
        match self.operation {
            Operation::Add(rows) => {
                refuse_duplicates(rows.ids(), path)?;
                refuse_existing(&content.state(), rows.ids(), path)
            }
            Operation::Upsert(rows) => refuse_duplicates(rows.ids(), path),
            Operation::Update(ids, columns) => {
                check_rows(ids, columns)?;
                refuse_duplicates(ids, path)
            }
            Operation::Delete(_) | Operation::DeleteMatching(_) => Ok(()),
        }
    }

    /// Writes the batch as a segment, and publishes it.
    fn write(&self) -> Result<Written, CollectionError> {
        let mut staged = match self.operation {
            Operation::Add(rows) | Operation::Upsert(rows) => self.stage_rows(rows)?,
            Operation::Update(..) | Operation::Delete(_) | Operation::DeleteMatching(_) => None,
        };
        self.measure(staged.as_mut())?;
        // Other writes wait only for the rows that are written from here on.
        self.shared.flush_all(None)?;
        let _reservation = Reservation::wait_for(self.shared);
        let mut writer = self.flush_completely()?;
        if let Operation::Update(ids, columns) = self.operation {
            drop(writer);
            let Some(updated) = self.stage_update(ids, columns)? else {
                return Ok(Written { missing: ids.len() as u64, ..Written::default() });
            };
            staged = Some(updated);
            writer = self.flush_completely()?;
        }
        while staged.as_ref().is_some_and(|staged| !staged.is_measured(&self.shared.content.state())) {
            drop(writer);
            self.measure(staged.as_mut())?;
            writer = self.flush_completely()?;
        }
        self.publish(&mut writer, staged.as_ref())
    }

    /// Measures the segment with all calibrations of the current version.
    fn measure(&self, staged: Option<&mut StagedSegment<'_>>) -> Result<(), CollectionError> {
        let Some(StagedSegment { entry, measurements, .. }) = staged else { return Ok(()) };
        let content = &self.shared.content;
        let limits = MeasureLimits::of_merge(&content.options.for_writing());
        content.measure_new(entry, measurements, limits, &self.shared.background.until_stopped())
    }

    /// Waits until everything that was written is in segments of the latest version. That stays so while the
    /// returned lock is held.
    fn flush_completely(&self) -> Result<MutexGuard<'a, Writer>, CollectionError> {
        let mut writer = self.shared.writer();
        loop {
            writer = self.shared.make_room(writer, None, true)?;
            if writer.can_publish_batch(self.epoch)? {
                return Ok(writer);
            }
        }
    }

    /// Writes rows as a segment, in the order of their ids.
    fn stage_rows(&self, rows: &Rows) -> Result<Option<StagedSegment<'a>>, CollectionError> {
        let order = rows.ids().order();
        let chunks = order.chunks(ROWS_AT_ONCE).map(|positions| rows.at_positions(positions).map(Some));
        self.stage(&self.shared.content.state(), chunks)
    }

    /// Writes the rows with these ids as a segment, with the values of `columns` instead of theirs.
    fn stage_update(
        &self,
        ids: &Ids,
        columns: &arrow_array::RecordBatch,
    ) -> Result<Option<StagedSegment<'a>>, CollectionError> {
        let state = self.shared.content.state();
        let order = ids.order();
        let updated = |positions: &[u32]| {
            let numbers = arrow_array::UInt32Array::from(positions.to_vec());
            let given = arrow_select::take::take_record_batch(columns, &numbers)?;
            Ok(match update(&state, &ids.take(positions)?, &given)?.0 {
                Some(Change::Put(rows)) => Some(rows),
                _ => None,
            })
        };
        self.stage(&state, order.chunks(ROWS_AT_ONCE).map(updated))
    }

    /// Writes rows, which come in the order of their ids, as a segment; `None` if there are none.
    fn stage(
        &self,
        state: &State,
        chunks: impl Iterator<Item = Result<Option<Rows>, CollectionError>>,
    ) -> Result<Option<StagedSegment<'a>>, CollectionError> {
        let content = &self.shared.content;
        let mut started: Option<(SegmentWriter, SegmentWriteGuard<'a>)> = None;
        let schema = Arc::new(state.schema().clone());
        let until_stopped = self.shared.background.until_stopped();
        for rows in chunks {
            let Some(rows) = rows? else { continue };
            if until_stopped.cancelled() {
                return Err(CollectionError::Cancelled);
            }
            if started.is_none() {
                let (name, options) = (content.segment_name(), content.options.for_writing());
                let writing = content.segments.begin(name.clone());
                let id = &state.version.id;
                let writer = SegmentWriter::begin(&content.place, schema.clone(), id, name, &options)?;
                started = Some((writer.with_largest_scales(content.largest_segment_scales(state)), writing));
            }
            let Some((writer, _)) = &mut started else { continue };
            let vectors = rows.vectors().iter().map(|vectors| vectors.rows(0..vectors.count()));
            let vectors: Option<Vec<&[u8]>> = vectors.collect();
            let not_contiguous = || CollectionError::Internal("vectors of a batch are not contiguous".into());
            writer.push(rows.ids(), &vectors.ok_or_else(not_contiguous)?, rows.columns())?;
        }
        let Some((writer, writing)) = started else { return Ok(None) };
        let (entry, measurements) = (writer.finish(&until_stopped)?, NewMeasurements::default());
        Ok(Some(StagedSegment { entry, measurements, _writing: writing }))
    }

    /// Publishes the version with the batch, whose rows are in the segment `staged`. Everything that was
    /// written before is in segments.
    fn publish(
        &self,
        writer: &mut Writer,
        staged: Option<&StagedSegment<'_>>,
    ) -> Result<Written, CollectionError> {
        let (content, entry) = (&self.shared.content, staged.map(|staged| &staged.entry));
        let state = content.state();
        let mut next = (*state).clone();
        let segment = entry.map(|entry| content.open_segment(&state, entry));
        let written = self.delete_replaced(segment.as_deref(), &state, &mut next)?;
        if segment.is_none() && written.deleted == 0 {
            return Ok(written);
        }
        next.segments.extend(segment.map(|segment| SegmentState::new(segment, Default::default())));
        if let Some(StagedSegment { entry, measurements, .. }) = staged {
            measurements.note_in(&mut next, &entry.name);
        }
        writer.publish_batch(next)?;
        Traffic::add(&content.traffic.segments, entry.map_or(0, |entry| entry.bytes));
        Traffic::add(&content.traffic.given, self.operation.bytes());
        Ok(written)
    }

    /// Deletes the rows of `state` that the batch deletes or replaces, in `next`. `segment` has the new rows.
    fn delete_replaced(
        &self,
        segment: Option<&Segment>,
        state: &State,
        next: &mut State,
    ) -> Result<Written, CollectionError> {
        let (operation, rows) = (self.operation, segment.map_or(0, Segment::rows));
        let mut found: u64 = 0;
        let mut deleted: u64 = 0;
        let mut delete = |at: Located| deleted += u64::from(next.delete(at));
        for first in (0..rows).step_by(IDS_AT_ONCE as usize) {
            let Some(segment) = segment else { continue };
            let some = segment.ids(first..rows.min(first + IDS_AT_ONCE))?;
            let positions = state.find(&some)?;
            if let Operation::Add(all) = operation
                && positions.iter().any(Option::is_some)
            {
                // The ids were added in the meantime. The check of all ids finds which ones, for the error.
                refuse_existing(state, all.ids(), self.shared.content.place.path())?;
            }
            positions.into_iter().flatten().for_each(&mut delete);
        }
        match operation {
            Operation::Delete(ids) => {
                for first in (0..ids.len()).step_by(IDS_AT_ONCE as usize) {
                    let some = ids.slice(first, (ids.len() - first).min(IDS_AT_ONCE as usize));
                    for place in state.find(&some)?.into_iter().flatten() {
                        found += 1;
                        delete(place);
                    }
                }
            }
            Operation::DeleteMatching(filter) => {
                let sets = state.matching(Some(filter), &Control::default())?;
                for (part, set) in (0..).zip(&sets) {
                    set.iter().for_each(|row| delete(Located { part, row }));
                }
            }
            Operation::Add(_) | Operation::Upsert(_) | Operation::Update(..) => {}
        }
        let rows = u64::from(rows);
        Ok(match operation {
            Operation::Add(_) | Operation::Upsert(_) => {
                Written { added: rows - deleted, replaced: deleted, ..Written::default() }
            }
            Operation::Update(ids, _) => {
                Written { replaced: rows, missing: ids.len() as u64 - rows, ..Written::default() }
            }
            Operation::Delete(ids) => {
                Written { deleted, missing: ids.len() as u64 - found, ..Written::default() }
            }
            Operation::DeleteMatching(_) => Written { deleted, ..Written::default() },
        })
    }
}
