//! Calibrations of a whole collection with queries unlike its rows, and audits with given queries.

use bathyal_collection::{
    Collection, CollectionAuditRequest, CollectionCalibration, CollectionError, CollectionLocation,
    CollectionOptions, CompactOptions, Durability, Filter, IdKind, Ids, Rows, Schema, SearchRequest,
    VectorField,
};
use bathyal_index::{AuditReport, Effort, StoreOptions};
use bathyal_kernels::{Element, Metric};
use bathyal_store::memory::MemoryStore;
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Silent;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::ops::Range;
use std::sync::Arc;

const DIM: usize = 64;
const SEGMENT: u64 = 3000;

fn schema() -> Schema {
    let mut field = VectorField::new("v", DIM, Element::F32, Metric::Cosine);
    field.family = std::env::var("FAM").unwrap_or("cluster".into());
    Schema { id_kind: IdKind::Number, vectors: vec![field], columns: Vec::new() }
}

fn options() -> CollectionOptions {
    CollectionOptions {
        durability: Durability::System,
        background: false,
        compact: false,
        threads: 2,
        // Small segments have codes and groups, too.
        flat_below_rows: 100,
        ..CollectionOptions::default()
    }
}

fn file(values: Vec<f32>) -> VectorFile {
    VectorFile::from_rows(Element::F32, DIM, values.into_iter().flat_map(f32::to_le_bytes).collect()).unwrap()
}

/// Returns rows whose components are smaller and smaller.
fn rows(range: Range<u64>) -> Rows {
    let mut values = Vec::new();
    for row in range.clone() {
        let mut random = StdRng::seed_from_u64(row);
        let mut component = |at: usize| random.random_range(-1.0_f32..1.0) / (1 + at) as f32;
        values.extend((0..DIM).map(&mut component));
    }
    let ids = Ids::Numbers(range.collect::<Vec<_>>().into());
    Rows::new(&schema(), ids, vec![file(values)], None).unwrap()
}

/// Returns queries in random directions.
fn directions(count: usize, seed: u64) -> VectorFile {
    let mut random = StdRng::seed_from_u64(seed);
    file((0..count * DIM).map(|_| random.random_range(-1.0_f32..1.0)).collect())
}

fn audit(collection: &Collection, search: SearchRequest) -> AuditReport {
    let request = CollectionAuditRequest { recalls: vec![0.9, 0.95], search, ..Default::default() };
    collection.audit(&directions(150, 2), &request, &Silent).unwrap()
}

fn found(report: &AuditReport) -> Vec<f64> {
    report.recalls.iter().map(|one| one.estimate.found).collect()
}

fn in_memory() -> CollectionLocation {
    CollectionLocation::in_store(Arc::new(MemoryStore::new(CollectionLocation::MARK)))
}

#[test]
fn a_calibrated_collection_finds_the_recall_also_after_flushes_and_merges() {
    let place = in_memory();
    let collection = Collection::create_in(place.clone(), schema(), &options()).unwrap();
    for first in [0, SEGMENT] {
        collection.add(rows(first..first + SEGMENT)).unwrap();
        collection.flush().unwrap();
    }
    collection.add(rows(9000..9200)).unwrap();
    collection.delete(Ids::Numbers((0..100).collect::<Vec<u64>>().into())).unwrap();
    let before = audit(&collection, SearchRequest::default());
    println!("before {:?} {:?}", found(&before), before.recalls[0].notes);
    let report =
        collection.calibrate(&directions(1200, 1), &CollectionCalibration::default(), &Silent).unwrap();
    println!("{report:#?}");
    let after = audit(&collection, SearchRequest::default());
    println!("after {:?} {:?}", found(&after), after.recalls[0].notes);
    collection.flush().unwrap();
    println!("flushed {:?}", found(&audit(&collection, SearchRequest::default())));
    collection.compact(&CompactOptions { full: true }, &Silent).unwrap();
    let merged = audit(&collection, SearchRequest::default());
    println!("merged {:?} {:?} {:?}", found(&merged), merged.recalls[0].notes, collection.describe());
}
