//! What a collection holds at a moment, as searches see it. A state never changes; the next one shares all that did not change.

mod cursor;
mod fetch;
mod selection;

pub(crate) use cursor::Cursor;
pub use fetch::Fetched;

use crate::bits::RowBits;
use crate::error::CollectionError;
use crate::ids::Ids;
use crate::log::Change;
use crate::memory::Memory;
use crate::rows::Rows;
use crate::schema::Schema;
use crate::segment::Segment;
use crate::together::callers;
use crate::version::Version;
use selection::Selections;
use std::sync::Arc;

/// A row: the part that it is in (segments come first, then memories, the oldest first), and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Located {
    pub(crate) part: u32,
    pub(crate) row: u32,
}

/// A segment, and what of it is deleted.
#[derive(Debug, Clone)]
pub(crate) struct SegmentState {
    pub(crate) segment: Arc<Segment>,
    /// Its smallest and its largest id.
    range: Ids,
    /// All rows that are deleted.
    pub(crate) deleted: RowBits,
    /// Those of them that were when memory was last frozen: the next version says so.
    pub(crate) frozen: RowBits,
    /// Those of them that the version says.
    pub(crate) published: RowBits,
    /// The rows that are there, and those that match filters.
    selections: Arc<Selections>,
}

impl SegmentState {
    /// A segment of which these rows are deleted, as the version says.
    pub(crate) fn new(segment: Arc<Segment>, deleted: RowBits) -> SegmentState {
        let selections = Arc::default();
        let range = segment.entry().range();
        SegmentState {
            segment,
            range,
            published: deleted.clone(),
            frozen: deleted.clone(),
            deleted,
            selections,
        }
    }

    /// How many rows are there.
    pub(crate) fn live(&self) -> u32 {
        self.segment.rows() - self.deleted.count()
    }

    /// Deletes a row; false where it was deleted.
    pub(crate) fn delete(&mut self, row: u32) -> bool {
        let new = self.deleted.add(row);
        if new {
            self.selections = Arc::new(self.selections.without_live());
        }
        new
    }
}

/// See the module's description.
#[derive(Debug, Clone)]
pub(crate) struct State {
    pub(crate) version: Arc<Version>,
    pub(crate) segments: Vec<SegmentState>,
    /// The oldest first; the last takes new rows, the others are being written as segments.
    pub(crate) memories: Vec<Memory>,
    /// The last record of the log that is in it.
    pub(crate) sequence: u64,
}

impl State {
    /// What a version says, without what the logs say beyond it.
    pub(crate) fn of(version: Arc<Version>, segments: Vec<SegmentState>) -> State {
        let sequence = version.through;
        State { version, segments, memories: vec![Memory::default()], sequence }
    }

    /// The segments alone, for work that takes long: it keeps no rows in memory that are in segments by the time it ends.
    pub(crate) fn without_memory(&self) -> State {
        State::of(self.version.clone(), self.segments.clone())
    }

    /// What every row has.
    pub(crate) fn schema(&self) -> &Schema {
        &self.version.schema
    }

    /// Rows that are there.
    pub(crate) fn live(&self) -> u64 {
        let segments: u64 = self.segments.iter().map(|segment| u64::from(segment.live())).sum();
        segments + self.memories.iter().map(|memory| u64::from(memory.live())).sum::<u64>()
    }

    /// Bytes of rows in memory.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memories.iter().map(Memory::bytes).sum()
    }

    /// Segments and memories.
    pub(crate) fn parts(&self) -> usize {
        self.segments.len() + self.memories.len()
    }

    /// Threads that look at segments at the same time, of which `threads` may compute; 0 means all cores.
    pub(crate) fn callers(&self, threads: usize) -> usize {
        callers(self.segments.first().is_some_and(|first| first.segment.is_far()), threads)
    }

    /// The memory that is a part; `None` of a segment.
    pub(crate) fn memory_of(&self, part: u32) -> Option<&Memory> {
        self.memories.get((part as usize).checked_sub(self.segments.len())?)
    }

    /// The row of each id, where one is there.
    pub(crate) fn find(&self, ids: &Ids) -> Result<Vec<Option<Located>>, CollectionError> {
        let mut found: Vec<Option<Located>> = vec![None; ids.len()];
        for (number, memory) in self.memories.iter().enumerate().rev() {
            let part = (self.segments.len() + number) as u32;
            for (found, row) in found.iter_mut().zip(memory.find(ids)) {
                *found = found.or(row.map(|row| Located { part, row }));
            }
        }
        for (part, state) in self.segments.iter().enumerate().rev() {
            let part = part as u32;
            let within = |at: &usize| {
                found[*at].is_none()
                    && ids.compare(*at, &state.range, 0).is_ge()
                    && ids.compare(*at, &state.range, 1).is_le()
            };
            let places: Vec<usize> = (0..ids.len()).filter(within).collect();
            if places.is_empty() {
                continue;
            }
            let numbers: Vec<u32> = places.iter().map(|at| *at as u32).collect();
            let rows = state.segment.find(&ids.take(&numbers)?)?;
            for (at, row) in places.into_iter().zip(rows) {
                let there = row.filter(|row| !state.deleted.has(*row));
                found[at] = there.map(|row| Located { part, row });
            }
        }
        Ok(found)
    }

    /// Deletes a row; false where it was deleted.
    pub(crate) fn delete(&mut self, at: Located) -> bool {
        let segments = self.segments.len();
        match self.segments.get_mut(at.part as usize) {
            Some(segment) => segment.delete(at.row),
            None => {
                let memory = self.memories.get_mut(at.part as usize - segments);
                memory.is_some_and(|memory| memory.delete(at.row))
            }
        }
    }

    /// Puts a copy of rows in the place of those with the same ids, or beside all others. Returns the copy.
    pub(crate) fn put(&mut self, rows: &Rows) -> Result<Rows, CollectionError> {
        self.delete_ids(rows.ids())?;
        let memory = self.memories.last_mut();
        memory.ok_or_else(|| CollectionError::Internal("no memory for rows".into()))?.push(rows)
    }

    /// Deletes the rows with these ids. Returns how many were there.
    pub(crate) fn delete_ids(&mut self, ids: &Ids) -> Result<u64, CollectionError> {
        let found = self.find(ids)?;
        Ok(found.into_iter().flatten().filter(|at| self.delete(*at)).count() as u64)
    }

    /// Goes on with an empty memory for new rows; those that came so far do not grow any more. The log has come to `sequence`.
    pub(crate) fn freeze(&mut self, sequence: u64) {
        self.sequence = sequence;
        self.memories.push(Memory::default());
        self.segments.iter_mut().for_each(|segment| segment.frozen = segment.deleted.clone());
    }

    /// Applies a record of the log, which was acknowledged or is about to be. Returns it with the rows as they are in memory now, which
    /// nobody else changes.
    pub(crate) fn apply(&mut self, sequence: u64, change: Change) -> Result<Change, CollectionError> {
        let applied = match change {
            Change::Put(rows) => Change::Put(self.put(&rows)?),
            Change::Delete(ids) => {
                self.delete_ids(&ids)?;
                Change::Delete(ids)
            }
        };
        self.sequence = sequence;
        Ok(applied)
    }
}
