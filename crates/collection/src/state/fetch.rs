//! Fetches ids, columns and vectors of rows from all parts, in the requested order.

use super::{Located, State};
use crate::error::CollectionError;
use crate::ids::Ids;
use crate::parallel::run_parallel;
use arrow_array::{Array, RecordBatch, RecordBatchOptions};
use bathyal_index::StoredVectors;
use bathyal_tier::Control;

/// Limit for parallel reads of segments: results of searches have fewer rows. A caller that fetches more rows
/// scans the collection; its parts are read one after the other, so that only one of them takes memory at a
/// time.
const FEW_ROWS: usize = 1024;

/// Fetched rows.
#[derive(Debug, Clone)]
pub struct FetchedRows {
    /// Their ids.
    pub ids: Ids,
    /// The requested columns.
    pub columns: RecordBatch,
    /// The vectors of the requested fields, in the requested order.
    pub vectors: Vec<StoredVectors>,
}

/// Rows grouped by part.
struct ByPart {
    /// Each part with its rows.
    parts: Vec<(u32, Vec<u32>)>,
    /// For each row, in the original order: an index of `parts`, and an index of that part's rows.
    positions: Vec<(usize, usize)>,
}

impl ByPart {
    fn group(rows: &[Located]) -> ByPart {
        let mut parts: Vec<(u32, Vec<u32>)> = Vec::new();
        let mut positions = Vec::with_capacity(rows.len());
        for at in rows {
            let number = parts.iter().position(|(part, _)| *part == at.part).unwrap_or_else(|| {
                parts.push((at.part, Vec::new()));
                parts.len() - 1
            });
            positions.push((number, parts[number].1.len()));
            parts[number].1.push(at.row);
        }
        ByPart { parts, positions }
    }
}

impl State {
    /// Calls `read` for each part with its rows. For a few rows in an object store, all segments are read in
    /// parallel.
    fn read_parts<T: Send>(
        &self,
        by_part: &ByPart,
        read: impl Fn(u32, &[u32]) -> Result<T, CollectionError> + Sync,
    ) -> Result<Vec<T>, CollectionError> {
        let few = by_part.positions.len() <= FEW_ROWS;
        let remote = self.segments.first().is_some_and(|first| first.segment.is_remote());
        let reading_threads = if few && remote { self.part_threads(0) } else { 1 };
        run_parallel(by_part.parts.len(), reading_threads, |number| {
            let (part, rows) = &by_part.parts[number];
            read(*part, rows)
        })
    }

    /// Returns the ids of rows, in their order.
    pub(crate) fn ids_of(&self, rows: &[Located]) -> Result<Ids, CollectionError> {
        let kind = self.schema().id_kind;
        if rows.is_empty() {
            return Ok(Ids::none(kind));
        }
        let by_part = ByPart::group(rows);
        let ids = self.read_parts(&by_part, |part, rows| match self.memtable_of(part) {
            Some(memtable) => memtable.ids_of(rows),
            None => self.segments[part as usize].segment.ids_of(rows),
        })?;
        let arrays: Vec<&dyn Array> = ids.iter().map(Ids::as_array).collect();
        Ids::from_array(kind, &arrow_select::interleave::interleave(&arrays, &by_part.positions)?)
    }

    /// Returns columns of rows, in their order.
    pub(crate) fn columns_of(
        &self,
        rows: &[Located],
        columns: &[usize],
    ) -> Result<RecordBatch, CollectionError> {
        let schema = self.schema().metadata().project(columns)?;
        if rows.is_empty() || columns.is_empty() {
            let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
            let empty = schema.fields().iter().map(|field| arrow_array::new_empty_array(field.data_type()));
            return Ok(RecordBatch::try_new_with_options(schema.clone().into(), empty.collect(), &options)?);
        }
        let by_part = ByPart::group(rows);
        let batches = self.read_parts(&by_part, |part, rows| match self.memtable_of(part) {
            Some(memtable) => memtable.columns_of(rows, columns),
            None => self.segments[part as usize].segment.columns_of(rows, columns),
        })?;
        let batches: Vec<&RecordBatch> = batches.iter().collect();
        Ok(arrow_select::interleave::interleave_record_batch(&batches, &by_part.positions)?)
    }

    /// Returns the vectors of rows in a field, in the order of the rows.
    pub(crate) fn vectors_of(
        &self,
        rows: &[Located],
        field: usize,
        control: Control<'_>,
    ) -> Result<StoredVectors, CollectionError> {
        let shape = &self.schema().vectors[field];
        let (element, dim, size) = (shape.element, shape.dim, shape.row_bytes());
        let mut bytes = vec![0; rows.len() * size];
        let by_part = ByPart::group(rows);
        let segment_vectors = self.read_parts(&by_part, |part, part_rows| match self.memtable_of(part) {
            Some(_) => Ok(None),
            None => self.segments[part as usize].segment.vectors_of(field, part_rows, control).map(Some),
        })?;
        for (number, ((part, part_rows), vectors_of_segment)) in
            by_part.parts.iter().zip(segment_vectors).enumerate()
        {
            let positions = by_part.positions.iter().zip(bytes.chunks_exact_mut(size));
            for ((_, at), out) in positions.filter(|((part_number, _), _)| *part_number == number) {
                out.copy_from_slice(match (&vectors_of_segment, self.memtable_of(*part)) {
                    (Some(vectors), _) => &vectors.bytes[at * size..(at + 1) * size],
                    (None, Some(memtable)) => memtable.vector(field, part_rows[*at])?,
                    (None, None) => return Err(CollectionError::Internal("a row of no part".into())),
                });
            }
        }
        Ok(StoredVectors { element, dim, bytes })
    }

    /// Returns ids, columns and vectors of rows, in their order.
    pub(crate) fn fetch(
        &self,
        rows: &[Located],
        columns: &[usize],
        fields: &[usize],
        control: Control<'_>,
    ) -> Result<FetchedRows, CollectionError> {
        let vectors = fields.iter().map(|field| self.vectors_of(rows, *field, control));
        Ok(FetchedRows {
            ids: self.ids_of(rows)?,
            columns: self.columns_of(rows, columns)?,
            vectors: vectors.collect::<Result<_, _>>()?,
        })
    }
}
