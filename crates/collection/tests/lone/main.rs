//! Queries that come alone, over many segments: what they read, and what is opened for them.

mod counted;
mod engines;
mod vectors;

use bathyal_collection::{
    Collection, CollectionOptions, Durability, Found, IdKind, Ids, Question, Rows, Schema, VectorField,
};
use bathyal_kernels::{Element, Metric};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use std::path::Path;

/// With [`ROWS`] rows a segment has less than a megabyte of vectors, and no codes.
const DIM: usize = 512;
/// Rows of a segment.
const ROWS: u64 = 400;

fn options() -> CollectionOptions {
    CollectionOptions {
        durability: Durability::System,
        background: false,
        compact: false,
        ..CollectionOptions::default()
    }
}

fn schema() -> Schema {
    let vectors = vec![VectorField::new("v", DIM, Element::F32, Metric::L2)];
    Schema { id_kind: IdKind::Number, vectors, columns: Vec::new() }
}

fn rows(ids: impl Iterator<Item = u64> + Clone) -> VectorFile {
    let number = |id: u64, at: u64| ((id * 2_654_435_761 + at * at * 40_503) % 100_003) as f32;
    let numbers = ids.flat_map(|id| (0..DIM as u64).map(move |at| number(id, at)));
    VectorFile::from_rows(Element::F32, DIM, numbers.flat_map(f32::to_le_bytes).collect()).unwrap()
}

/// A collection of so many segments of so many rows, which is closed.
fn written(path: &Path, (segments, rows_each): (u64, u64), options: &CollectionOptions) {
    let collection = Collection::create(path, schema(), options).unwrap();
    for first in (0..segments).map(|segment| segment * rows_each) {
        let ids = first..first + rows_each;
        let given = Ids::Numbers(ids.clone().collect::<Vec<_>>().into());
        collection.add(Rows::new(&schema(), given, vec![rows(ids)], None).unwrap()).unwrap();
        collection.flush().unwrap();
    }
    assert_eq!(collection.describe().segments.len() as u64, segments);
}

/// The nearest of the row with this id, one query alone, on so many threads.
fn search(collection: &Collection, id: u64, threads: usize) -> Found {
    let question = Question { k: 5, threads, ..Question::default() };
    let found = collection.search(&rows(id..id + 1), &question, Control::default()).unwrap();
    assert_eq!(found.ids.get(0), bathyal_collection::Id::Number(id));
    found
}
