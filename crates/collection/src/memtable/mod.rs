//! Recently written rows, in memory. They can be searched as soon as they are acknowledged, until they are
//! written as a segment.
//!
//! A search compares them one by one: a graph would have to be built while they arrive, and one thread
//! compares all of them in some milliseconds (docs/decisions/collections.md).

mod chunk;
mod search;
#[cfg(test)]
mod tests;
mod vector_buffers;

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
use std::sync::Arc;
use vector_buffers::VectorBuffers;

pub(crate) use search::{MemTableQuery, check};

/// Rows in memory, numbered in the order of their arrival. Copies share the chunks that did not change.
#[derive(Debug, Clone, Default)]
pub(crate) struct MemTable {
    chunks: Vec<Arc<Chunk>>,
    /// Space for the vectors of further rows.
    vector_buffers: VectorBuffers,
    rows: u32,
    deleted: RowBits,
    bytes: u64,
}

impl MemTable {
    /// Returns the number of rows, deleted or not.
    pub(crate) fn rows(&self) -> u32 {
        self.rows
    }

    /// Returns the number of live rows.
    pub(crate) fn live(&self) -> u32 {
        self.rows - self.deleted.count()
    }

    /// Returns the approximate bytes of memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes + self.deleted.bytes()
    }

    /// Returns the deleted rows.
    pub(crate) fn deleted(&self) -> &RowBits {
        &self.deleted
    }

    /// Adds a copy of rows. Live rows must have other ids. Returns the copy.
    pub(crate) fn push(&mut self, rows: &Rows) -> Result<Rows, CollectionError> {
        let end = self.rows.checked_add(rows.len() as u32).ok_or_else(|| {
            CollectionError::Parameter("there are too many rows in memory; write fewer at once".into())
        })?;
        let rows = rows.copied(self.vector_buffers.append(rows.vectors(), self.bytes)?)?;
        let mut new = Chunk::new(self.rows, rows.clone());
        match self.chunks.last().and_then(|last| last.followed_by(&new)) {
            // Each chunk is at least twice as large as the next: there are few chunks, and an id is seldom
            // moved.
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
            // The vectors are in new memory, so that the chunks before them cannot grow any more.
            None => self.join_last()?,
        }
        self.bytes += new.bytes();
        self.chunks.push(Arc::new(new));
        self.rows = end;
        Ok(rows)
    }

    /// Joins the last chunks, as far as their vectors are adjacent.
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

    /// Deletes a row. Returns false if it was deleted already.
    pub(crate) fn delete(&mut self, row: u32) -> bool {
        self.deleted.add(row)
    }

    /// Finds the live row of each id.
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

    /// Returns the chunk of each row, and the position in that chunk.
    fn in_chunks(&self, rows: &[u32]) -> Result<Vec<(usize, usize)>, CollectionError> {
        let position = |row: &u32| {
            let chunk = self.chunks.partition_point(|chunk| chunk.first() <= *row).checked_sub(1)?;
            (*row < self.rows).then(|| (chunk, (*row - self.chunks[chunk].first()) as usize))
        };
        let positions: Option<Vec<_>> = rows.iter().map(position).collect();
        positions.ok_or_else(|| CollectionError::Internal("a row that is not in memory".into()))
    }

    /// Returns the ids of rows, in their order.
    pub(crate) fn ids_of(&self, rows: &[u32]) -> Result<Ids, CollectionError> {
        let positions = self.in_chunks(rows)?;
        let Some(first) = self.chunks.first() else {
            return Err(CollectionError::Internal("ids of no rows".into()));
        };
        let arrays: Vec<_> = self.chunks.iter().map(|chunk| chunk.rows().ids().as_array()).collect();
        let taken = arrow_select::interleave::interleave(&arrays, &positions)?;
        Ids::from_array(first.rows().ids().kind(), &taken)
    }

    /// Returns columns of rows, in their order.
    pub(crate) fn columns_of(&self, rows: &[u32], columns: &[usize]) -> Result<RecordBatch, CollectionError> {
        let positions = self.in_chunks(rows)?;
        let batches = self.chunks.iter().map(|chunk| chunk.rows().columns().project(columns));
        let batches = batches.collect::<Result<Vec<_>, _>>()?;
        let batches: Vec<&RecordBatch> = batches.iter().collect();
        if columns.is_empty() {
            return Ok(batches[0].slice(0, 0).with_rows(rows.len())?);
        }
        Ok(arrow_select::interleave::interleave_record_batch(&batches, &positions)?)
    }

    /// Returns the vector of a row.
    pub(crate) fn vector(&self, field: usize, row: u32) -> Result<&[u8], CollectionError> {
        let positions = self.in_chunks(&[row])?;
        Ok(self.chunks[positions[0].0].rows().vectors()[field].row(positions[0].1))
    }

    /// Returns the live rows in the order of their ids.
    pub(crate) fn sorted(&self) -> Result<Vec<u32>, CollectionError> {
        let Some(first) = self.chunks.first() else { return Ok(Vec::new()) };
        let ids: Vec<Ids> = self.chunks.iter().map(|chunk| chunk.rows().ids().clone()).collect();
        let mut order = Ids::concat(first.rows().ids().kind(), &ids)?.order();
        order.retain(|row| !self.deleted.has(*row));
        Ok(order)
    }

    /// Returns the live rows that match `filter`.
    pub(crate) fn matching(
        &self,
        filter: Option<&BoundFilter>,
        control: &Control<'_>,
    ) -> Result<RowSet, CollectionError> {
        let live = self.deleted.complement(self.rows);
        let Some(filter) = filter else { return Ok(live) };
        let mut words = vec![0_u64; (self.rows as usize).div_ceil(64)];
        for chunk in &self.chunks {
            check(control)?;
            let matches = filter.evaluate(&chunk.batch(filter)?)?;
            for at in matches.set_indices() {
                let row = chunk.first() as usize + at;
                words[row / 64] |= 1 << (row % 64);
            }
        }
        Ok(RowSet::from_words(self.rows, words).and(&live))
    }

    /// Returns the first position in `sorted` (rows in the order of their ids) whose id is not below `id`.
    pub(crate) fn lower_bound(&self, sorted: &[u32], id: &Id) -> Result<usize, CollectionError> {
        let below = |row: &u32| self.ids_of(&[*row]).is_ok_and(|ids| ids.get(0) < *id);
        Ok(sorted.partition_point(below))
    }
}

/// Makes a batch of rows without columns.
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
    /// Returns the columns over which a filter is evaluated.
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
