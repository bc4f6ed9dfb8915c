//! Batches that are larger than memory for writes takes. Their rows become a segment at once, without the log, and one version puts
//! that in and says what it replaces: a version is published whole or not at all.
//!
//! A version says what was true at a record, so everything that was written before has to be in segments by then, and nothing may
//! be written until it is published. Others wait for that, and not while the segment is written, unless rows are read for it.
//!
//! The log goes on in another one, in which the first record after such a batch is. So whoever reads on from one log to the next
//! looks whether its version is still the latest (`log/reader.rs`).

use super::flush::{Flush, ROWS_AT_ONCE, Stopping};
use super::operation::{Operation, Written, check_rows, refuse_there, refuse_twice, update};
use super::segments::BeingWritten;
use super::shared::{Shared, Writing};
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

/// Ids that are looked for at once.
const IDS_AT_ONCE: u32 = 1 << 16;

/// A segment that no version names yet.
struct Staged<'a> {
    entry: SegmentEntry,
    _written: BeingWritten<'a>,
}

/// Lets the log go where nothing else is written.
struct UnderWay<'a>(&'a Shared);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.writing().large -= 1;
    }
}

/// Lets others write again.
struct Reserved<'a>(&'a Shared);

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.0.writing().reserved = false;
        self.0.answered.notify_all();
    }
}

impl Shared {
    /// Writes a batch of any size: when this returns it outlives the machine.
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
        let _under_way = UnderWay(self);
        // Others may have removed what is read: that is judged, too.
        self.refuse(operation).map_err(|error| self.judged(&mut self.writing(), error))?;
        let written = self.write_in(operation, epoch);
        // What was replaced, or what was staged in vain, is not left until somebody else comes by.
        self.clean();
        written.map_err(|error| self.judged(&mut self.writing(), error))
    }

    /// Refuses what can be refused before anything is written.
    fn refuse(&self, operation: &Operation) -> Result<(), CollectionError> {
        let path = self.place.path();
        match operation {
            Operation::Add(rows) => {
                refuse_twice(rows.ids(), path)?;
                refuse_there(&self.state(), rows.ids(), path)
            }
            Operation::Upsert(rows) => refuse_twice(rows.ids(), path),
            Operation::Update(ids, columns) => {
                check_rows(ids, columns)?;
                refuse_twice(ids, path)
            }
            Operation::Delete(_) | Operation::DeleteMatching(_) => Ok(()),
        }
    }

    fn write_in(self: &Arc<Self>, operation: &Operation, epoch: u64) -> Result<Written, CollectionError> {
        let mut staged = match operation {
            Operation::Add(rows) | Operation::Upsert(rows) => self.stage_rows(&self.state(), rows)?,
            Operation::Update(..) | Operation::Delete(_) | Operation::DeleteMatching(_) => None,
        };
        // Others wait for what is written meanwhile, and not for all that was before.
        self.flush_all(None)?;
        let _reserved = self.reserve();
        let mut writing = self.emptied(self.writing(), epoch)?;
        if let Operation::Update(ids, columns) = operation {
            drop(writing);
            let Some(updated) = self.stage_update(&self.state(), ids, columns)? else {
                return Ok(Written { missing: ids.len() as u64, ..Written::default() });
            };
            staged = Some(updated);
            writing = self.emptied(self.writing(), epoch)?;
        }
        self.put_in(&mut writing, operation, staged.as_ref().map(|staged| &staged.entry))
    }

    /// Keeps others from writing.
    fn reserve(&self) -> Reserved<'_> {
        let mut writing = self.writing();
        while writing.reserved {
            writing = self.answered.wait(writing).unwrap_or_else(PoisonError::into_inner);
        }
        writing.reserved = true;
        Reserved(self)
    }

    /// Waits until all that was written is in segments by the latest version, which is this one's.
    fn emptied<'a>(
        self: &'a Arc<Self>,
        mut writing: MutexGuard<'a, Writing>,
        epoch: u64,
    ) -> Result<MutexGuard<'a, Writing>, CollectionError> {
        loop {
            let room;
            (writing, room) = self.make_room(writing, (None, true));
            room?;
            // Whoever wrote in between may have removed what no version names.
            if writing.epoch != epoch {
                let (path, reason) =
                    (self.place.path().to_path_buf(), "a write to the log has failed meanwhile".into());
                return Err(CollectionError::NotWritten { path, reason });
            }
            let state = self.state();
            if matches!(writing.flush, Flush::Idle) && state.sequence == state.version.through {
                return Ok(writing);
            }
        }
    }

    /// Writes rows as a segment, in the order of their ids.
    fn stage_rows<'a>(&'a self, state: &State, rows: &Rows) -> Result<Option<Staged<'a>>, CollectionError> {
        let order = rows.ids().order();
        self.stage(state, order.chunks(ROWS_AT_ONCE).map(|places| rows.taken(places).map(Some)))
    }

    /// Writes the rows of a state with these ids as a segment, with the columns that are given in the place of theirs.
    fn stage_update<'a>(
        &'a self,
        state: &State,
        ids: &Ids,
        columns: &arrow_array::RecordBatch,
    ) -> Result<Option<Staged<'a>>, CollectionError> {
        let order = ids.order();
        let updated = |places: &[u32]| {
            let numbers = arrow_array::UInt32Array::from(places.to_vec());
            let given = arrow_select::take::take_record_batch(columns, &numbers)?;
            Ok(match update(state, &ids.take(places)?, &given)?.0 {
                Some(Change::Put(rows)) => Some(rows),
                _ => None,
            })
        };
        self.stage(state, order.chunks(ROWS_AT_ONCE).map(updated))
    }

    /// Writes rows, whose ids rise, as a segment; `None` if there are none.
    fn stage<'a>(
        &'a self,
        state: &State,
        chunks: impl Iterator<Item = Result<Option<Rows>, CollectionError>>,
    ) -> Result<Option<Staged<'a>>, CollectionError> {
        let mut begun: Option<(SegmentWriter, BeingWritten<'a>)> = None;
        let schema = Arc::new(state.schema().clone());
        let stopping = Stopping(self);
        for rows in chunks {
            let Some(rows) = rows? else { continue };
            stopping.check()?;
            if begun.is_none() {
                let (name, options) = (self.segment_name(), self.options.of_writing());
                let written = self.segments.begin(name.clone());
                let id = &state.version.id;
                let writer = SegmentWriter::begin(&self.place, schema.clone(), id, name, &options)?;
                begun = Some((writer.beside(self.stored_beside(state)), written));
            }
            let Some((writer, _)) = &mut begun else { continue };
            let vectors = rows.vectors().iter().map(|vectors| vectors.rows(0..vectors.count()));
            let vectors: Option<Vec<&[u8]>> = vectors.collect();
            let apart = || CollectionError::Internal("vectors that do not lie one after the other".into());
            writer.push(rows.ids(), &vectors.ok_or_else(apart)?, rows.columns())?;
        }
        let Some((writer, written)) = begun else { return Ok(None) };
        Ok(Some(Staged { entry: writer.finish(&stopping)?, _written: written }))
    }

    /// Publishes the version that holds a batch. Memory is empty, and stays so as long as `writing` is locked.
    fn put_in(
        &self,
        writing: &mut Writing,
        operation: &Operation,
        entry: Option<&SegmentEntry>,
    ) -> Result<Written, CollectionError> {
        let state = self.state();
        let mut next = (*state).clone();
        let open = entry.map(|entry| self.open_segment(&state, entry));
        let ids = |range| open.as_ref().map(|open| open.ids(range)).transpose();
        let written =
            self.replace(operation, entry.map_or(0, |entry| entry.rows), &ids, &state, &mut next)?;
        if entry.is_none() && written.deleted == 0 {
            return Ok(written);
        }
        if let Some(open) = &open {
            next.segments.push(SegmentState::new(open.clone(), Default::default()));
        }
        let Some(log) = &mut writing.log else {
            return Err(CollectionError::Internal("a batch is written without a log".into()));
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
            // What is there is read anew by the next that writes.
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
        self.show(next);
        Ok(written)
    }

    /// Deletes in `next` what a batch deletes or replaces of `state`. The batch has `rows` rows, of which `ids` tells the ids.
    fn replace(
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
            let places = state.find(&some)?;
            if let Operation::Add(all) = operation
                && places.iter().any(Option::is_some)
            {
                // Somebody has added them meanwhile; who they are is asked of all.
                refuse_there(state, all.ids(), self.place.path())?;
            }
            places.into_iter().flatten().for_each(&mut delete);
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
