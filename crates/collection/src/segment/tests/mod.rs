//! Tests of segments: writing, reading, damage and interruptions.

mod columns;
mod damage;
mod ids;
mod kills;
mod stores;
mod vector_memory;

use super::{Segment, SegmentOptions, SegmentWriter, WriteOptions};
use crate::error::CollectionError;
use crate::ids::{Id, IdKind, Ids};
use crate::location::CollectionLocation;
use crate::schema::{Column, Schema, VectorField};
use crate::version::SegmentEntry;
use arrow_array::{ArrayRef, Int32Array, Int64Array, ListArray, RecordBatch, RecordBatchOptions};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_cast::cast;
use arrow_schema::DataType;
use bathyal_kernels::{Element, Metric};
use bathyal_store::memory::MemoryStore;
use bathyal_vectors::progress::Silent;
use std::sync::Arc;

const COLLECTION: &str = "00112233445566778899aabbccddeeff";

/// Returns a schema with these columns, and a vector field for each number of dimensions.
fn schema(id_kind: IdKind, dims: &[usize], columns: &[&str]) -> Arc<Schema> {
    let field =
        |(at, dim): (usize, &usize)| VectorField::new(format!("f{at}"), *dim, Element::F32, Metric::L2);
    let column = |(at, kind): (usize, &&str)| Column { name: format!("c{at}"), kind: kind.parse().unwrap() };
    let schema = Schema {
        id_kind,
        vectors: dims.iter().enumerate().map(field).collect(),
        columns: columns.iter().enumerate().map(column).collect(),
    };
    schema.check().unwrap();
    Arc::new(schema)
}

/// Returns the id of a row. There are unused ids between those of adjacent rows.
fn id_of(kind: IdKind, row: u32) -> Id {
    match kind {
        IdKind::Number => Id::Number(3 + 7 * u64::from(row)),
        IdKind::Text => Id::Text(format!("row/{row:07}")),
    }
}

fn ids_of(kind: IdKind, rows: impl IntoIterator<Item = u32>) -> Ids {
    Ids::from_ids(kind, &rows.into_iter().map(|row| id_of(kind, row)).collect::<Vec<_>>()).unwrap()
}

/// Returns values of a type for rows: every fifth is null, and lists have various lengths.
fn values(kind: &DataType, rows: &[u32], salt: u32) -> ArrayRef {
    if let DataType::List(item) = kind {
        let lengths: Vec<usize> = rows.iter().map(|row| ((row + salt) % 4) as usize).collect();
        let of_items: Vec<u32> = rows
            .iter()
            .zip(&lengths)
            .flat_map(|(row, len)| (0..*len as u32).map(move |at| row * 4 + at))
            .collect();
        let items = values(item.data_type(), &of_items, salt);
        let valid: NullBuffer =
            rows.iter().map(|row| !(row + salt).is_multiple_of(5)).collect::<Vec<_>>().into();
        return Arc::new(
            ListArray::try_new(item.clone(), OffsetBuffer::from_lengths(lengths), items, Some(valid))
                .unwrap(),
        );
    }
    let value = |row: &u32| (!(row + salt).is_multiple_of(5)).then_some((row % 101) as i32);
    let plain = Int32Array::from_iter(rows.iter().map(value));
    match kind {
        DataType::Timestamp(..) => {
            let wide = Int64Array::from_iter(rows.iter().map(|row| value(row).map(|at| i64::from(at) << 40)));
            cast(&wide, kind).unwrap()
        }
        kind => cast(&plain, kind).unwrap(),
    }
}

fn columns_of(schema: &Schema, rows: &[u32]) -> RecordBatch {
    let arrays =
        schema.columns.iter().zip(0..).map(|(column, salt)| values(column.kind.data_type(), rows, salt));
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    RecordBatch::try_new_with_options(schema.metadata(), arrays.collect(), &options).unwrap()
}

/// Returns vectors of rows, little-endian.
fn vectors_of(field: &VectorField, rows: impl IntoIterator<Item = u32>) -> Vec<u8> {
    let value = |row: u32, at: usize| {
        ((row as u64 * 2_654_435_761 + at as u64 * 40_503) % 1000) as f32 / 8.0 + row as f32
    };
    rows.into_iter().flat_map(|row| (0..field.dim).flat_map(move |at| value(row, at).to_le_bytes())).collect()
}

/// Passes rows to a writer in several batches.
fn push(
    writer: &mut SegmentWriter,
    schema: &Schema,
    rows: &[u32],
    at_once: usize,
) -> Result<(), CollectionError> {
    for some in rows.chunks(at_once) {
        let vectors: Vec<Vec<u8>> =
            schema.vectors.iter().map(|field| vectors_of(field, some.iter().copied())).collect();
        let vectors: Vec<&[u8]> = vectors.iter().map(Vec::as_slice).collect();
        writer.push(&ids_of(schema.id_kind, some.iter().copied()), &vectors, &columns_of(schema, some))?;
    }
    Ok(())
}

/// Writes a segment with the rows from 0 to before `count`.
fn write(
    place: &CollectionLocation,
    schema: &Arc<Schema>,
    name: &str,
    count: u32,
    options: &WriteOptions,
) -> Result<SegmentEntry, CollectionError> {
    let mut writer = SegmentWriter::begin(place, schema.clone(), COLLECTION, name.into(), options)?;
    push(&mut writer, schema, &(0..count).collect::<Vec<_>>(), 1000)?;
    writer.finish(&Silent)
}

fn open(place: &CollectionLocation, schema: &Arc<Schema>, entry: &SegmentEntry) -> Segment {
    Segment::new(place, schema.clone(), entry.clone(), Arc::new(SegmentOptions::default()))
}

fn in_memory() -> CollectionLocation {
    CollectionLocation::in_store(Arc::new(MemoryStore::new("memory")))
}

fn one_thread() -> WriteOptions {
    WriteOptions { threads: 1, ..WriteOptions::default() }
}

fn segment(schema: &Arc<Schema>, count: u32) -> Segment {
    let place = in_memory();
    let entry = write(&place, schema, "s-1-aa", count, &one_thread()).unwrap();
    open(&place, schema, &entry)
}
