//! Batches with numbers, by which a collection says how much of what was written it holds.

use crate::model::cases::{Case, Row, Value};
use crate::model::program::write;
use crate::model::truth::{Change, Truth};
use crate::server::service::{Place, Service};
use bathyal_collection::{Collection, CollectionError, CollectionOptions, Id};
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::sync::Arc;

/// Rows of a batch beside the one that counts.
pub const ROWS: u64 = 4;

/// What is written: numbers as ids, rows of some 200 bytes.
pub fn case() -> Case {
    Case::small()
}

/// Options that reach a place by `endpoint`.
pub fn options(place: &Place, endpoint: &str) -> CollectionOptions {
    CollectionOptions { store: place.options(endpoint, &[("hedge", "off")]), ..case().options() }
}

/// A new collection in the place, straight at the server.
pub fn create(service: &Service, place: &Place) -> Collection {
    let options = options(place, &service.endpoint);
    Collection::create(place.address("docs"), case().schema, &options).unwrap()
}

/// The collection of the place, by `endpoint`.
pub fn open(place: &Place, endpoint: &str) -> Result<Collection, CollectionError> {
    Collection::open(place.address("docs"), &options(place, endpoint))
}

/// The row that says how many batches `writer` has written.
pub fn counter(writer: u64) -> Id {
    Id::Number(u64::MAX - writer)
}

/// A batch of a writer: rows of its own, each of which several batches write, and its counter.
pub fn batch(writer: u64, number: u64) -> Change {
    let (case, mut random) = (case(), StdRng::seed_from_u64(writer << 32 | number));
    let mut row = |value: u64| {
        let row: Row = (*case.row(&mut random)).clone();
        let values = std::iter::once(Value::Whole(value as i64)).chain(row.values.into_iter().skip(1));
        Arc::new(Row { vectors: row.vectors, values: values.collect() })
    };
    let first = 1_000 * writer + number % 10 * ROWS;
    let mut rows: Vec<_> = (first..first + ROWS).map(|id| (Id::Number(id), row(id))).collect();
    rows.push((counter(writer), row(number)));
    Change::Upsert(rows)
}

/// How many batches of a writer are there.
pub fn batches(truth: &Truth, writer: u64) -> u64 {
    match truth.rows.get(&counter(writer)).map(|row| &row.values[0]) {
        Some(Value::Whole(number)) => *number as u64,
        None => 0,
        other => panic!("{other:?} batches"),
    }
}

/// What is there after so many batches of each writer, from 0 on.
pub fn after(counts: &[u64]) -> Truth {
    let mut truth = Truth::default();
    for (writer, count) in counts.iter().enumerate() {
        (1..=*count).for_each(|number| {
            truth.apply(&batch(writer as u64, number)).unwrap();
        });
    }
    truth
}

/// Writes a batch.
pub fn put(collection: &Collection, writer: u64, number: u64) -> Result<(), CollectionError> {
    write(&case(), collection, &batch(writer, number)).map(drop)
}

/// What an error says, in which there is no secret.
pub fn said(service: &Service, error: &CollectionError) -> String {
    let text = error.to_string();
    service.assert_no_secret(&text);
    service.assert_no_secret(&format!("{error:?}"));
    text
}
