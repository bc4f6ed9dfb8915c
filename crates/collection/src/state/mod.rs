//! The content of a collection at a moment, as searches see it. A state never changes; the next state shares
//! all unchanged parts with it.

mod cursor;
mod fetch;
mod selection;

pub(crate) use cursor::Cursor;
pub use fetch::FetchedRows;

use crate::bits::RowBits;
use crate::error::CollectionError;
use crate::ids::Ids;
use crate::log::Change;
use crate::memtable::MemTable;
use crate::parallel::part_threads;
use crate::rows::Rows;
use crate::schema::Schema;
use crate::segment::Segment;
use crate::version::Version;
use selection::Selections;
use std::sync::Arc;

/// Location of a row: its part and its number within it. Segments come first, then memtables, oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Located {
    pub(crate) part: u32,
    pub(crate) row: u32,
}

/// A segment with its deleted rows.
#[derive(Debug, Clone)]
pub(crate) struct SegmentState {
    pub(crate) segment: Arc<Segment>,
    /// The smallest and the largest id.
    range: Ids,
    /// All deleted rows.
    pub(crate) deleted: RowBits,
    /// The rows that were deleted when the memtable was last frozen. The next version records them.
    pub(crate) frozen: RowBits,
    /// The deleted rows that the latest version records.
    pub(crate) published: RowBits,
    /// Cached sets of live rows and of rows that match filters.
    selections: Arc<Selections>,
}

impl SegmentState {
    /// Creates the state of a segment from the deleted rows that the version records.
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

    /// Returns the number of live rows.
    pub(crate) fn live(&self) -> u32 {
        self.segment.rows() - self.deleted.count()
    }

    /// Deletes a row. Returns false if it was deleted already.
    pub(crate) fn delete(&mut self, row: u32) -> bool {
        let new = self.deleted.add(row);
        if new {
            self.selections = Arc::new(self.selections.without_live());
        }
        new
    }
}

/// The content of a collection at a moment.
#[derive(Debug, Clone)]
pub(crate) struct State {
    pub(crate) version: Arc<Version>,
    pub(crate) segments: Vec<SegmentState>,
    /// Oldest first. The last one takes new rows; the others are being written as segments.
    pub(crate) memtables: Vec<MemTable>,
    /// Sequence number of the last log record whose change is in the state.
    pub(crate) sequence: u64,
}

impl State {
    /// Creates the state that a version records, without the changes in the logs.
    pub(crate) fn from_version(version: Arc<Version>, segments: Vec<SegmentState>) -> State {
        let sequence = version.through;
        State { version, segments, memtables: vec![MemTable::default()], sequence }
    }

    /// Returns a state of the segments alone. Long operations hold it, because it does not keep rows in
    /// memory that become part of a segment in the meantime.
    pub(crate) fn without_memory(&self) -> State {
        State::from_version(self.version.clone(), self.segments.clone())
    }

    /// Returns the schema.
    pub(crate) fn schema(&self) -> &Schema {
        &self.version.schema
    }

    /// Returns the number of live rows.
    pub(crate) fn live(&self) -> u64 {
        let segments: u64 = self.segments.iter().map(|segment| u64::from(segment.live())).sum();
        segments + self.memtables.iter().map(|memtable| u64::from(memtable.live())).sum::<u64>()
    }

    /// Returns the rows of segments, deleted or not, divided by their live rows.
    pub(crate) fn space_amplification(&self) -> f64 {
        let rows: u64 = self.segments.iter().map(|segment| u64::from(segment.segment.rows())).sum();
        let live: u64 = self.segments.iter().map(|segment| u64::from(segment.live())).sum();
        rows as f64 / live.max(1) as f64
    }

    /// Returns the bytes of the memtables.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.memtables.iter().map(MemTable::bytes).sum()
    }

    /// Returns the number of segments and memtables.
    pub(crate) fn parts(&self) -> usize {
        self.segments.len() + self.memtables.len()
    }

    /// Returns the number of threads that read segments in parallel if `threads` may compute; 0 means one per
    /// core.
    pub(crate) fn part_threads(&self, threads: usize) -> usize {
        part_threads(self.segments.first().is_some_and(|first| first.segment.is_remote()), threads)
    }

    /// Returns the memtable that is part `part`; `None` for a segment.
    pub(crate) fn memtable_of(&self, part: u32) -> Option<&MemTable> {
        self.memtables.get((part as usize).checked_sub(self.segments.len())?)
    }

    /// Finds the live row of each id.
    pub(crate) fn find(&self, ids: &Ids) -> Result<Vec<Option<Located>>, CollectionError> {
        let mut found: Vec<Option<Located>> = vec![None; ids.len()];
        for (number, memtable) in self.memtables.iter().enumerate().rev() {
            let part = (self.segments.len() + number) as u32;
            for (found, row) in found.iter_mut().zip(memtable.find(ids)) {
                *found = found.or(row.map(|row| Located { part, row }));
            }
        }
        for (part, state) in self.segments.iter().enumerate().rev() {
            let part = part as u32;
            let may_be_in_segment = |at: &usize| {
                found[*at].is_none()
                    && ids.compare(*at, &state.range, 0).is_ge()
                    && ids.compare(*at, &state.range, 1).is_le()
            };
            let positions: Vec<usize> = (0..ids.len()).filter(may_be_in_segment).collect();
            if positions.is_empty() {
                continue;
            }
            let numbers: Vec<u32> = positions.iter().map(|at| *at as u32).collect();
            let rows = state.segment.find(&ids.take(&numbers)?)?;
            for (at, row) in positions.into_iter().zip(rows) {
                let live_row = row.filter(|row| !state.deleted.has(*row));
                found[at] = live_row.map(|row| Located { part, row });
            }
        }
        Ok(found)
    }

    /// Deletes a row. Returns false if it was deleted already.
    pub(crate) fn delete(&mut self, at: Located) -> bool {
        let segments = self.segments.len();
        match self.segments.get_mut(at.part as usize) {
            Some(segment) => segment.delete(at.row),
            None => {
                let memtable = self.memtables.get_mut(at.part as usize - segments);
                memtable.is_some_and(|memtable| memtable.delete(at.row))
            }
        }
    }

    /// Copies rows into the memtable, and deletes older rows with the same ids. Returns the copy.
    pub(crate) fn put(&mut self, rows: &Rows) -> Result<Rows, CollectionError> {
        self.delete_ids(rows.ids())?;
        let memtable = self.memtables.last_mut();
        memtable.ok_or_else(|| CollectionError::Internal("no memory for rows".into()))?.push(rows)
    }

    /// Deletes the rows with these ids. Returns how many of them were live.
    pub(crate) fn delete_ids(&mut self, ids: &Ids) -> Result<u64, CollectionError> {
        let found = self.find(ids)?;
        Ok(found.into_iter().flatten().filter(|at| self.delete(*at)).count() as u64)
    }

    /// Adds an empty memtable for new rows; the others do not grow any more. `sequence` is that of the last
    /// log record.
    pub(crate) fn freeze(&mut self, sequence: u64) {
        self.sequence = sequence;
        self.memtables.push(MemTable::default());
        self.segments.iter_mut().for_each(|segment| segment.frozen = segment.deleted.clone());
    }

    /// Applies a log record, which is acknowledged or about to be. Returns it with the copy of the rows that
    /// is in memory now and never changes.
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
