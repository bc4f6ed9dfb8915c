//! What rows hold, in the order in which it is asked for, from wherever they are.

use super::{Located, State};
use crate::error::CollectionError;
use crate::ids::Ids;
use crate::together::together;
use arrow_array::{Array, RecordBatch, RecordBatchOptions};
use bathyal_index::StoredVectors;
use bathyal_tier::Control;

/// Rows that what finds neighbours asks for. Who asks for more reads on and on, and has parts read one after the other, so that memory
/// holds what one of them takes.
const FEW_ROWS: usize = 1024;

/// Rows, and what was asked for of them.
#[derive(Debug, Clone)]
pub struct Fetched {
    /// Their ids.
    pub ids: Ids,
    /// The columns that were asked for.
    pub columns: RecordBatch,
    /// The vectors of the fields that were asked for, in their order.
    pub vectors: Vec<StoredVectors>,
}

/// The rows of each part, and for each row asked for: its part's number among those, and its place there.
struct ByPart {
    parts: Vec<(u32, Vec<u32>)>,
    places: Vec<(usize, usize)>,
}

impl ByPart {
    fn of(rows: &[Located]) -> ByPart {
        let mut parts: Vec<(u32, Vec<u32>)> = Vec::new();
        let mut places = Vec::with_capacity(rows.len());
        for at in rows {
            let number = parts.iter().position(|(part, _)| *part == at.part).unwrap_or_else(|| {
                parts.push((at.part, Vec::new()));
                parts.len() - 1
            });
            places.push((number, parts[number].1.len()));
            parts[number].1.push(at.row);
        }
        ByPart { parts, places }
    }
}

impl State {
    /// What `read` reads of the rows of each part. A few rows of a store far away are read in all of its segments at the same time.
    fn of_parts<T: Send>(
        &self,
        by_part: &ByPart,
        read: impl Fn(u32, &[u32]) -> Result<T, CollectionError> + Sync,
    ) -> Result<Vec<T>, CollectionError> {
        let few = by_part.places.len() <= FEW_ROWS;
        let far = self.segments.first().is_some_and(|first| first.segment.is_far());
        let callers = if few && far { self.callers(0) } else { 1 };
        together(by_part.parts.len(), callers, |number| {
            let (part, rows) = &by_part.parts[number];
            read(*part, rows)
        })
    }

    /// The ids of rows, in their order.
    pub(crate) fn ids_of(&self, rows: &[Located]) -> Result<Ids, CollectionError> {
        let kind = self.schema().id_kind;
        if rows.is_empty() {
            return Ok(Ids::none(kind));
        }
        let by_part = ByPart::of(rows);
        let ids = self.of_parts(&by_part, |part, rows| match self.memory_of(part) {
            Some(memory) => memory.ids_of(rows),
            None => self.segments[part as usize].segment.ids_of(rows),
        })?;
        let arrays: Vec<&dyn Array> = ids.iter().map(Ids::as_array).collect();
        Ids::of_array(kind, &arrow_select::interleave::interleave(&arrays, &by_part.places)?)
    }

    /// Columns of rows, in their order.
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
        let by_part = ByPart::of(rows);
        let batches = self.of_parts(&by_part, |part, rows| match self.memory_of(part) {
            Some(memory) => memory.columns_of(rows, columns),
            None => self.segments[part as usize].segment.columns_of(rows, columns),
        })?;
        let batches: Vec<&RecordBatch> = batches.iter().collect();
        Ok(arrow_select::interleave::interleave_record_batch(&batches, &by_part.places)?)
    }

    /// The vectors of a field of rows, in their order.
    pub(crate) fn vectors_of(
        &self,
        rows: &[Located],
        field: usize,
        control: Control<'_>,
    ) -> Result<StoredVectors, CollectionError> {
        let shape = &self.schema().vectors[field];
        let (element, dim, size) = (shape.element, shape.dim, shape.row_bytes());
        let mut bytes = vec![0; rows.len() * size];
        let by_part = ByPart::of(rows);
        let of_segments = self.of_parts(&by_part, |part, own| match self.memory_of(part) {
            Some(_) => Ok(None),
            None => self.segments[part as usize].segment.vectors_of(field, own, control).map(Some),
        })?;
        for (number, ((part, own), of_segment)) in by_part.parts.iter().zip(of_segments).enumerate() {
            let places = by_part.places.iter().zip(bytes.chunks_exact_mut(size));
            for ((_, at), out) in places.filter(|((of, _), _)| *of == number) {
                out.copy_from_slice(match (&of_segment, self.memory_of(*part)) {
                    (Some(vectors), _) => &vectors.bytes[at * size..(at + 1) * size],
                    (None, Some(memory)) => memory.vector(field, own[*at])?,
                    (None, None) => return Err(CollectionError::Internal("a row of no part".into())),
                });
            }
        }
        Ok(StoredVectors { element, dim, bytes })
    }

    /// Ids, columns and vectors of rows, in their order.
    pub(crate) fn fetch(
        &self,
        rows: &[Located],
        columns: &[usize],
        fields: &[usize],
        control: Control<'_>,
    ) -> Result<Fetched, CollectionError> {
        let vectors = fields.iter().map(|field| self.vectors_of(rows, *field, control));
        Ok(Fetched {
            ids: self.ids_of(rows)?,
            columns: self.columns_of(rows, columns)?,
            vectors: vectors.collect::<Result<_, _>>()?,
        })
    }
}
