//! Tests of logs: truncation, damage, killed writers, and competing writers.

mod faults;
mod format;
mod missing;
mod races;
mod scheduler;
mod shared;

use super::*;
use crate::ids::{Id, IdKind, Ids};
use crate::rows::Rows;
use crate::schema::{Column, Schema, VectorField};
use crate::version::{FORMAT, Version};
use arrow_array::{RecordBatch, StringArray};
use bathyal_kernels::{Element, Metric};
use bathyal_vectors::VectorFile;
use std::sync::Arc;

/// Two fields of vectors, and a column.
fn schema(id_kind: IdKind) -> Schema {
    let vectors = vec![
        VectorField::new("v", 3, Element::F32, Metric::L2),
        VectorField::new("w", 5, Element::U8, Metric::L2),
    ];
    let columns = vec![Column { name: "note".into(), kind: "string".parse().unwrap() }];
    Schema { id_kind, vectors, columns }
}

/// Rows with these ids; all their values derive from `label`.
fn put(ids: Ids, label: u64) -> Change {
    let schema = schema(ids.kind());
    let count = ids.len();
    let floats = vec![label as f32; 3 * count].into_iter().flat_map(f32::to_le_bytes).collect();
    let bytes = vec![label as u8; 5 * count];
    let vectors = vec![
        VectorFile::from_rows(Element::F32, 3, floats).unwrap(),
        VectorFile::from_rows(Element::U8, 5, bytes).unwrap(),
    ];
    let note = |row: usize| (row % 3 != 1).then(|| format!("row {row} of {label}"));
    let notes = StringArray::from((0..count).map(note).collect::<Vec<_>>());
    let columns = RecordBatch::try_new(schema.metadata(), vec![Arc::new(notes)]).unwrap();
    Change::Put(Rows::new(&schema, ids, vectors, Some(&columns)).unwrap())
}

fn numbers(ids: &[u64]) -> Ids {
    Ids::Numbers(ids.to_vec().into())
}

/// Label of a change with so many rows that some of their vectors are written separately.
const LARGE: u64 = 3_000;

/// A change from which [`label_of`] gets the label back. Every third change is a delete.
fn change(label: u64) -> Change {
    match label % 3 {
        2 => Change::Delete(numbers(&[label, label + 1])),
        _ if label == LARGE => put(numbers(&vec![label; 6_000]), label),
        _ => put(numbers(&vec![label; 1 + label as usize % 7]), label),
    }
}

fn label_of(change: &Change) -> u64 {
    let ids = match change {
        Change::Put(rows) => rows.ids(),
        Change::Delete(ids) => ids,
    };
    let Id::Number(label) = ids.get(0) else { panic!("{ids:?}") };
    assert_eq!(formatted(change), formatted(&self::change(label)), "a change is read as it was written");
    label
}

/// Formats the content of a change, for comparisons.
fn formatted(change: &Change) -> String {
    match change {
        Change::Delete(ids) => format!("not {ids:?}"),
        Change::Put(rows) => {
            let vectors = rows.vectors().iter();
            let vectors: Vec<Vec<&[u8]>> =
                vectors.map(|field| (0..field.count()).map(|row| field.row(row)).collect()).collect();
            format!("{:?} {:?} {vectors:?}", rows.ids(), rows.columns())
        }
    }
}

fn batch(labels: impl IntoIterator<Item = u64>) -> Batch {
    let mut batch = Batch::new();
    labels.into_iter().for_each(|label| batch.push(&change(label)).unwrap());
    batch
}

/// Creates a collection without a writer.
fn create(place: &CollectionLocation) {
    let mut version = Version {
        bathyal_collection: FORMAT,
        id: crate::version::random_digits(32),
        number: 1,
        schema: schema(IdKind::Number),
        through: 0,
        log: None,
        next_segment: 1,
        writer: String::new(),
        published: 0,
        segments: Vec::new(),
        calibrations: Vec::new(),
    };
    version.publish(place, &[]).unwrap();
}

/// Returns the sequence numbers and labels of changes.
fn labelled(changes: &[(u64, Change)]) -> Vec<(u64, u64)> {
    changes.iter().map(|(sequence, change)| (*sequence, label_of(change))).collect()
}
