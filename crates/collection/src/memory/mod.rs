//! Rows that were written lately: in memory, searched from the moment on at which they are acknowledged, until they are written as a
//! segment.
//!
//! They are compared one by one. A graph over them would have to be built while they come, and what is here never is more than what
//! one search thread compares in some milliseconds; see docs/decisions/collections.md.

mod chunk;
mod rooms;
mod search;
#[cfg(test)]
mod tests;

use crate::bits::RowBits;
use crate::error::CollectionError;
use crate::filter::BoundFilter;
use crate::ids::{Id, Ids};
use crate::rows::Rows;
use crate::schema::ID_COLUMN;
use arrow_array::RecordBatch;
use bathyal_index::RowSet;
use bathyal_tier::Control;
use chunk::Chunk;
use rooms::Rooms;
use std::sync::Arc;

pub(crate) use search::{MemoryQuery, check};

/// Rows in memory, numbered in the order in which they came. Copies share all that did not change between them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Memory {
    chunks: Vec<Arc<Chunk>>,
    /// Where the vectors of further rows come to lie.
    rooms: Rooms,
    rows: u32,
    deleted: RowBits,
    bytes: u64,
}

impl Memory {
    /// How many rows came, deleted or not.
    pub(crate) fn rows(&self) -> u32 {
        self.rows
    }

    /// How many of them are there.
    pub(crate) fn live(&self) -> u32 {
        self.rows - self.deleted.count()
    }

    /// Bytes of memory, about.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes + self.deleted.bytes()
    }

    /// The rows that were deleted.
    pub(crate) fn deleted(&self) -> &RowBits {
        &self.deleted
    }

    /// Adds a copy of rows, none of whose ids a row that is there has. Returns the copy.
    pub(crate) fn push(&mut self, rows: &Rows) -> Result<Rows, CollectionError> {
        let end = self.rows.checked_add(rows.len() as u32).ok_or_else(|| {
            CollectionError::Parameter("there are too many rows in memory; write fewer at once".into())
        })?;
        let rows = rows.owned(self.rooms.take(rows.vectors(), self.bytes)?)?;
        let mut new = Chunk::new(self.rows, rows.clone());
        match self.chunks.last().and_then(|last| last.followed_by(&new)) {
            // Each is at least twice as long as the next, so that there are few and each id is moved seldom.
            Some(_) => {
                while let Some(last) = self.chunks.last()
                    && last.bytes() < 2 * new.bytes()
                    && let Some(vectors) = last.followed_by(&new)
                {
                    self.bytes -= last.bytes();
                    new = last.joined(&new, vectors)?;
                    self.chunks.pop();
                }
            }
            // Behind those nothing will come.
            None => self.join_last()?,
        }
        self.bytes += new.bytes();
        self.chunks.push(Arc::new(new));
        self.rows = end;
        Ok(rows)
    }

    /// Makes one of the last chunks, as far as their vectors lie one after the other.
    fn join_last(&mut self) -> Result<(), CollectionError> {
        while let [.., one, two] = &self.chunks[..]
            && let Some(vectors) = one.followed_by(two)
        {
            let joined = one.joined(two, vectors)?;
            self.bytes = self.bytes + joined.bytes() - one.bytes() - two.bytes();
            self.chunks.truncate(self.chunks.len() - 2);
            self.chunks.push(Arc::new(joined));
        }
        Ok(())
    }

    /// Deletes a row; false where it was deleted.
    pub(crate) fn delete(&mut self, row: u32) -> bool {
        self.deleted.add(row)
    }

    /// The row of each id, where one is there.
    pub(crate) fn find(&self, ids: &Ids) -> Vec<Option<u32>> {
        let mut found = vec![None; ids.len()];
        for chunk in self.chunks.iter().rev() {
            if !chunk.may_have(ids) {
                continue;
            }
            for (at, found) in found.iter_mut().enumerate().filter(|(_, found)| found.is_none()) {
                *found = chunk.find(ids, at, |row| !self.deleted.has(row));
            }
        }
        found
    }

    /// Where each row is, by the chunk: what is told of each row at its place.
    fn in_chunks(&self, rows: &[u32]) -> Result<Vec<(usize, usize)>, CollectionError> {
        let place = |row: &u32| {
            let chunk = self.chunks.partition_point(|chunk| chunk.first() <= *row).checked_sub(1)?;
            (*row < self.rows).then(|| (chunk, (*row - self.chunks[chunk].first()) as usize))
        };
        let places: Option<Vec<_>> = rows.iter().map(place).collect();
        places.ok_or_else(|| CollectionError::Internal("a row that is not in memory".into()))
    }

    /// The ids of rows, in their order.
    pub(crate) fn ids_of(&self, rows: &[u32]) -> Result<Ids, CollectionError> {
        let places = self.in_chunks(rows)?;
        let Some(first) = self.chunks.first() else {
            return Err(CollectionError::Internal("ids of no rows".into()));
        };
        let arrays: Vec<_> = self.chunks.iter().map(|chunk| chunk.rows().ids().as_array()).collect();
        let taken = arrow_select::interleave::interleave(&arrays, &places)?;
        Ids::of_array(first.rows().ids().kind(), &taken)
    }

    /// Columns of rows, in their order.
    pub(crate) fn columns_of(&self, rows: &[u32], columns: &[usize]) -> Result<RecordBatch, CollectionError> {
        let places = self.in_chunks(rows)?;
        let batches = self.chunks.iter().map(|chunk| chunk.rows().columns().project(columns));
        let batches = batches.collect::<Result<Vec<_>, _>>()?;
        let batches: Vec<&RecordBatch> = batches.iter().collect();
        if columns.is_empty() {
            return Ok(batches[0].slice(0, 0).with_rows(rows.len())?);
        }
        Ok(arrow_select::interleave::interleave_record_batch(&batches, &places)?)
    }

    /// The vector of a row.
    pub(crate) fn vector(&self, field: usize, row: u32) -> Result<&[u8], CollectionError> {
        let places = self.in_chunks(&[row])?;
        Ok(self.chunks[places[0].0].rows().vectors()[field].row(places[0].1))
    }

    /// The rows that are there, in the order of their ids.
    pub(crate) fn sorted(&self) -> Result<Vec<u32>, CollectionError> {
        let Some(first) = self.chunks.first() else { return Ok(Vec::new()) };
        let ids: Vec<Ids> = self.chunks.iter().map(|chunk| chunk.rows().ids().clone()).collect();
        let mut order = Ids::concat(first.rows().ids().kind(), &ids)?.order();
        order.retain(|row| !self.deleted.has(*row));
        Ok(order)
    }

    /// The rows that are there and match.
    pub(crate) fn matching(
        &self,
        filter: Option<&BoundFilter>,
        control: &Control<'_>,
    ) -> Result<RowSet, CollectionError> {
        let there = self.deleted.others(self.rows);
        let Some(filter) = filter else { return Ok(there) };
        let mut words = vec![0_u64; (self.rows as usize).div_ceil(64)];
        for chunk in &self.chunks {
            check(control)?;
            let matches = filter.evaluate(&chunk.batch(filter)?)?;
            for at in matches.set_indices() {
                let row = chunk.first() as usize + at;
                words[row / 64] |= 1 << (row % 64);
            }
        }
        Ok(RowSet::from_words(self.rows, words).and(&there))
    }

    /// The first place among `sorted` rows whose id is not below `id`.
    pub(crate) fn lower_bound(&self, sorted: &[u32], id: &Id) -> Result<usize, CollectionError> {
        let below = |row: &u32| self.ids_of(&[*row]).is_ok_and(|ids| ids.get(0) < *id);
        Ok(sorted.partition_point(below))
    }
}

/// A batch of no columns, and so many rows.
trait WithRows {
    fn with_rows(self, rows: usize) -> Result<RecordBatch, arrow_schema::ArrowError>;
}

impl WithRows for RecordBatch {
    fn with_rows(self, rows: usize) -> Result<RecordBatch, arrow_schema::ArrowError> {
        let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.schema(), Vec::new(), &options)
    }
}

impl Chunk {
    /// What a filter is evaluated over.
    fn batch(&self, filter: &BoundFilter) -> Result<RecordBatch, CollectionError> {
        let columns = self.rows().columns();
        if !filter.needs_ids() {
            return Ok(columns.clone());
        }
        let ids = arrow_schema::Field::new(ID_COLUMN, self.rows().ids().kind().data_type(), false);
        let schema = columns.schema();
        let fields = std::iter::once(Arc::new(ids)).chain(schema.fields().iter().cloned());
        let schema = Arc::new(arrow_schema::Schema::new(fields.collect::<Vec<_>>()));
        let arrays = std::iter::once(self.rows().ids().to_array()).chain(columns.columns().iter().cloned());
        Ok(RecordBatch::try_new(schema, arrays.collect())?)
    }
}
