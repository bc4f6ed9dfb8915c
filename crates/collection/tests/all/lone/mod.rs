//! Reads of single queries over many segments.

mod counted;
mod vectors;

use bathyal_collection::{
    Collection, CollectionOptions, Durability, FoundRows, IdKind, Ids, Rows, Schema, SearchRequest,
    VectorField,
};
use bathyal_kernels::{Element, Metric};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use std::path::Path;

/// Rows of a segment. By default it is flat and has no codes.
const ROWS: u64 = 400;

fn options() -> CollectionOptions {
    CollectionOptions {
        durability: Durability::System,
        background: false,
        compact: false,
        ..CollectionOptions::default()
    }
}

fn schema(dim: usize) -> Schema {
    let vectors = vec![VectorField::new("v", dim, Element::F32, Metric::L2)];
    Schema { id_kind: IdKind::Number, vectors, columns: Vec::new() }
}

fn rows(dim: usize, ids: impl Iterator<Item = u64> + Clone) -> VectorFile {
    let number = |id: u64, at: u64| ((id * 2_654_435_761 + at * at * 40_503) % 100_003) as f32;
    let numbers = ids.flat_map(|id| (0..dim as u64).map(move |at| number(id, at)));
    VectorFile::from_rows(Element::F32, dim, numbers.flat_map(f32::to_le_bytes).collect()).unwrap()
}

/// Creates and closes a collection of some segments, of vectors of `dim` dimensions.
fn written(path: &Path, segments: u64, dim: usize, options: &CollectionOptions) {
    let collection = Collection::create(path, schema(dim), options).unwrap();
    for first in (0..segments).map(|segment| segment * ROWS) {
        let ids = first..first + ROWS;
        let given = Ids::Numbers(ids.clone().collect::<Vec<_>>().into());
        collection.add(Rows::new(&schema(dim), given, vec![rows(dim, ids)], None).unwrap()).unwrap();
        collection.flush().unwrap();
    }
    assert_eq!(collection.describe().segments.len() as u64, segments);
}

/// Searches for the row with this id: a single query, with some threads.
fn search(collection: &Collection, id: u64, threads: usize) -> FoundRows {
    let dim = collection.schema().vectors[0].dim;
    let request = SearchRequest { k: 5, threads, ..SearchRequest::default() };
    let found = collection.search(&rows(dim, id..id + 1), &request, Control::default()).unwrap();
    assert_eq!(found.ids.get(0), bathyal_collection::Id::Number(id));
    found
}
