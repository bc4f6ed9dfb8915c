//! Numbered batches: a counter row tells how many of them a collection holds.

use crate::model::cases::{Case, Row, Value};
use crate::model::program::write;
use crate::model::truth::{Change, Truth};
use crate::server::service::{Place, Service};
use bathyal_collection::{Collection, CollectionError, CollectionOptions, Id};
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::sync::Arc;

/// Rows of a batch besides the counter row.
pub const ROWS: u64 = 4;

/// Returns the case: numeric ids, and rows of some 200 bytes.
pub fn case() -> Case {
    Case::small()
}

/// Returns options for a location that is reached through `endpoint`.
pub fn options(place: &Place, endpoint: &str) -> CollectionOptions {
    CollectionOptions { store: place.options(endpoint, &[("hedge", "off")]), ..case().options() }
}

/// Creates a collection at the location, directly at the server.
pub fn create(service: &Service, place: &Place) -> Collection {
    let options = options(place, &service.endpoint);
    Collection::create(place.address("docs"), case().schema, &options).unwrap()
}

/// Opens the collection at the location, through `endpoint`.
pub fn open(place: &Place, endpoint: &str) -> Result<Collection, CollectionError> {
    Collection::open(place.address("docs"), &options(place, endpoint))
}

/// Returns the id of the row with the number of batches of `writer`.
pub fn counter(writer: u64) -> Id {
    Id::Number(u64::MAX - writer)
}

/// Returns a batch of a writer: rows that several of its batches write, and its counter row.
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

/// Returns the number of batches of a writer in a collection.
pub fn batches(truth: &Truth, writer: u64) -> u64 {
    match truth.rows.get(&counter(writer)).map(|row| &row.values[0]) {
        Some(Value::Whole(number)) => *number as u64,
        None => 0,
        other => panic!("{other:?} batches"),
    }
}

/// Returns the content after this many batches of each writer, from writer 0 on.
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

/// Returns the text of an error, after checking that it contains no secret.
pub fn error_text(service: &Service, error: &CollectionError) -> String {
    let text = error.to_string();
    service.assert_no_secret(&text);
    service.assert_no_secret(&format!("{error:?}"));
    text
}
