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

use super::flush::{Flush, ROWS_AT_ONCE, UntilStopped};
use super::operation::{Operation, Written, check_rows, refuse_duplicates, refuse_existing, update};
use super::segments::SegmentWriteGuard;
use super::shared::{Shared, WriterState};
use super::traffic::Traffic;
use crate::error::CollectionError;
use crate::ids::Ids;
use crate::log::Change;
use crate::rows::Rows;
use crate::segment::SegmentWriter;
use crate::state::{Located, SegmentState, State};
use crate::version::SegmentEntry;
use bathyal_tier::Control;
use std::sync::{Arc, MutexGuard, PoisonError};

/// Ids that are looked up at once.
const IDS_AT_ONCE: u32 = 1 << 16;

/// A segment that is written but not yet named by a version.
struct StagedSegment<'a> {
    entry: SegmentEntry,
    _written: SegmentWriteGuard<'a>,
}

/// Counts a large batch in progress; the log is not released meanwhile.
struct LargeWriteGuard<'a>(&'a Shared);

impl Drop for LargeWriteGuard<'_> {
    fn drop(&mut self) {
        self.0.writing().large -= 1;
    }
}

/// Keeps other writes from starting, until it is dropped.
struct Reservation<'a>(&'a Shared);

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.0.writing().reserved = false;
        self.0.outcomes_ready.notify_all();
    }
}

impl Shared {
    /// Writes a batch of any size. When this returns, the batch survives a crash of the machine.
    ///
    /// # Errors
    /// As [`Shared::write`].
    pub(super) fn write_large(self: &Arc<Self>, operation: &Operation) -> Result<Written, CollectionError> {
        let epoch = {
            let mut writing = self.writing();
            self.acquire(&mut writing)?;
            writing.large += 1;
            writing.epoch
        };
        let _guard = LargeWriteGuard(self);
        // Another writer may have removed objects that are read here.
        self.check_operation(operation)
            .map_err(|error| self.fenced_if_superseded(&mut self.writing(), error))?;
        let written = self.write_and_publish(operation, epoch);
        // Removes replaced segments, or the segment of a failed batch, at once.
        self.clean();
        written.map_err(|error| self.fenced_if_superseded(&mut self.writing(), error))
    }

    /// Does all checks that are possible before anything is written.
    fn check_operation(&self, operation: &Operation) -> Result<(), CollectionError> {
        let path = self.place.path();
        match operation {
            Operation::Add(rows) => {
                refuse_duplicates(rows.ids(), path)?;
                refuse_existing(&self.state(), rows.ids(), path)
            }
            Operation::Upsert(rows) => refuse_duplicates(rows.ids(), path),
            Operation::Update(ids, columns) => {
                check_rows(ids, columns)?;
                refuse_duplicates(ids, path)
            }
            Operation::Delete(_) | Operation::DeleteMatching(_) => Ok(()),
        }
    }

    fn write_and_publish(
        self: &Arc<Self>,
        operation: &Operation,
        epoch: u64,
    ) -> Result<Written, CollectionError> {
        let mut staged = match operation {
            Operation::Add(rows) | Operation::Upsert(rows) => self.stage_rows(&self.state(), rows)?,
            Operation::Update(..) | Operation::Delete(_) | Operation::DeleteMatching(_) => None,
        };
        // Other writes wait only for the rows that are written from here on.
        self.flush_all(None)?;
        let _reserved = self.reserve();
        let mut writing = self.flush_completely(self.writing(), epoch)?;
        if let Operation::Update(ids, columns) = operation {
            drop(writing);
            let Some(updated) = self.stage_update(&self.state(), ids, columns)? else {
                return Ok(Written { missing: ids.len() as u64, ..Written::default() });
            };
            staged = Some(updated);
            writing = self.flush_completely(self.writing(), epoch)?;
        }
        self.publish_batch(&mut writing, operation, staged.as_ref().map(|staged| &staged.entry))
    }

    /// Keeps other writes from starting.
    fn reserve(&self) -> Reservation<'_> {
        let mut writing = self.writing();
        while writing.reserved {
            writing = self.outcomes_ready.wait(writing).unwrap_or_else(PoisonError::into_inner);
        }
        writing.reserved = true;
        Reservation(self)
    }

    /// Waits until everything that was written is in segments of the latest version.
    fn flush_completely<'a>(
        self: &'a Arc<Self>,
        mut writing: MutexGuard<'a, WriterState>,
        epoch: u64,
    ) -> Result<MutexGuard<'a, WriterState>, CollectionError> {
        loop {
            let room;
            (writing, room) = self.make_room(writing, (None, true));
            room?;
            // The log was acquired again in between; the segment of this batch may have been removed.
            if writing.epoch != epoch {
                let (path, reason) = (
                    self.place.path().to_path_buf(),
                    "another write to the log has failed in the meantime".into(),
                );
                return Err(CollectionError::NotWritten { path, reason });
            }
            let state = self.state();
            if matches!(writing.flush, Flush::Idle) && state.sequence == state.version.through {
                return Ok(writing);
            }
        }
    }

    /// Writes rows as a segment, in the order of their ids.
    fn stage_rows<'a>(
        &'a self,
        state: &State,
        rows: &Rows,
    ) -> Result<Option<StagedSegment<'a>>, CollectionError> {
        let order = rows.ids().order();
        self.stage(state, order.chunks(ROWS_AT_ONCE).map(|positions| rows.at_positions(positions).map(Some)))
    }

    /// Writes the rows with these ids as a segment, with the values of `columns` instead of theirs.
    fn stage_update<'a>(
        &'a self,
        state: &State,
        ids: &Ids,
        columns: &arrow_array::RecordBatch,
    ) -> Result<Option<StagedSegment<'a>>, CollectionError> {
        let order = ids.order();
        let updated = |positions: &[u32]| {
            let numbers = arrow_array::UInt32Array::from(positions.to_vec());
            let given = arrow_select::take::take_record_batch(columns, &numbers)?;
            Ok(match update(state, &ids.take(positions)?, &given)?.0 {
                Some(Change::Put(rows)) => Some(rows),
                _ => None,
            })
        };
        self.stage(state, order.chunks(ROWS_AT_ONCE).map(updated))
    }

    /// Writes rows, which come in the order of their ids, as a segment; `None` if there are none.
    fn stage<'a>(
        &'a self,
        state: &State,
        chunks: impl Iterator<Item = Result<Option<Rows>, CollectionError>>,
    ) -> Result<Option<StagedSegment<'a>>, CollectionError> {
        let mut started: Option<(SegmentWriter, SegmentWriteGuard<'a>)> = None;
        let schema = Arc::new(state.schema().clone());
        let stopping = UntilStopped(self);
        for rows in chunks {
            let Some(rows) = rows? else { continue };
            stopping.check()?;
            if started.is_none() {
                let (name, options) = (self.segment_name(), self.options.for_writing());
                let written = self.segments.begin(name.clone());
                let id = &state.version.id;
                let writer = SegmentWriter::begin(&self.place, schema.clone(), id, name, &options)?;
                started = Some((writer.with_largest_scales(self.largest_segment_scales(state)), written));
            }
            let Some((writer, _)) = &mut started else { continue };
            let vectors = rows.vectors().iter().map(|vectors| vectors.rows(0..vectors.count()));
            let vectors: Option<Vec<&[u8]>> = vectors.collect();
            let not_contiguous = || CollectionError::Internal("vectors of a batch are not contiguous".into());
            writer.push(rows.ids(), &vectors.ok_or_else(not_contiguous)?, rows.columns())?;
        }
        let Some((writer, written)) = started else { return Ok(None) };
        Ok(Some(StagedSegment { entry: writer.finish(&stopping)?, _written: written }))
    }

    /// Publishes the version with a batch. The memtable is empty, and stays empty while `writing` is locked.
    fn publish_batch(
        &self,
        writing: &mut WriterState,
        operation: &Operation,
        entry: Option<&SegmentEntry>,
    ) -> Result<Written, CollectionError> {
        let state = self.state();
        let mut next = (*state).clone();
        let open = entry.map(|entry| self.open_segment(&state, entry));
        let ids = |range| open.as_ref().map(|open| open.ids(range)).transpose();
        let written =
            self.delete_replaced(operation, entry.map_or(0, |entry| entry.rows), &ids, &state, &mut next)?;
        if entry.is_none() && written.deleted == 0 {
            return Ok(written);
        }
        if let Some(open) = &open {
            next.segments.push(SegmentState::new(open.clone(), Default::default()));
        }
        let Some(log) = &mut writing.log else {
            return Err(CollectionError::Internal("a large batch is published without a log".into()));
        };
        let mut version = (*state.version).clone();
        version.next_segment += 1;
        version.segments.extend(entry.cloned());
        let deleted: Vec<_> = next.segments.iter().map(|segment| segment.deleted.to_bitmap()).collect();
        let published = log.rotate().and_then(|()| {
            version.through = log.last();
            log.publish(&mut version, &deleted)
        });
        if let Err(error) = published {
            // The next write acquires the log again and reads what is there.
            writing.log = None;
            return Err(error);
        }
        Traffic::add(&self.traffic.log, log.take_appended());
        Traffic::add(&self.traffic.segments, entry.map_or(0, |entry| entry.bytes));
        Traffic::add(&self.traffic.given, operation.bytes());
        for segment in &mut next.segments {
            segment.frozen = segment.deleted.clone();
            segment.published = segment.deleted.clone();
        }
        next.sequence = version.through;
        next.version = Arc::new(version);
        self.set_state(next);
        Ok(written)
    }

    /// Deletes the rows of `state` that a batch deletes or replaces, in `next`. The batch has `rows` new
    /// rows; `ids` returns their ids.
    fn delete_replaced(
        &self,
        operation: &Operation,
        rows: u32,
        ids: &dyn Fn(std::ops::Range<u32>) -> Result<Option<Ids>, CollectionError>,
        state: &State,
        next: &mut State,
    ) -> Result<Written, CollectionError> {
        let mut found: u64 = 0;
        let mut deleted: u64 = 0;
        let mut delete = |at: Located| deleted += u64::from(next.delete(at));
        for first in (0..rows).step_by(IDS_AT_ONCE as usize) {
            let Some(some) = ids(first..rows.min(first + IDS_AT_ONCE))? else { continue };
            let positions = state.find(&some)?;
            if let Operation::Add(all) = operation
                && positions.iter().any(Option::is_some)
            {
                // The ids were added in the meantime. The check of all ids finds which ones, for the error.
                refuse_existing(state, all.ids(), self.place.path())?;
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
