//! Audits of live searches: all parts of a collection together, among the rows that match a filter.

use crate::foreground::without_background;
use bathyal_collection::{
    Collection, CollectionOptions, Filter, FoundRows, Id, IdKind, Ids, Rows, Schema, SearchRequest,
    VectorField,
};
use bathyal_index::{AuditOptions, AuditStats, Effort, OnMiss, OpenOptions};
use bathyal_kernels::{Element, Metric};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::groundtruth::{exact_neighbors, recall};
use bathyal_vectors::progress::Silent;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::ops::Range;
use std::time::{Duration, Instant};

const DIM: usize = 16;
const ROWS: u64 = 6000;
/// Rows that are in memory only; the others are in two segments.
const IN_MEMORY: u64 = 1000;

fn schema() -> Schema {
    let vectors = vec![VectorField::new("v", DIM, Element::F32, Metric::L2)];
    Schema { id_kind: IdKind::Number, vectors, columns: Vec::new() }
}

fn options() -> CollectionOptions {
    CollectionOptions {
        audit: Some(AuditOptions { share: 1.0, on_miss: OnMiss::Note, busy: 1.0 }),
        ..without_background()
    }
}

fn vectors(count: usize, seed: u64) -> VectorFile {
    let mut random = StdRng::seed_from_u64(seed);
    let values = (0..count * DIM).map(|_| random.random_range(-1.0_f32..1.0));
    VectorFile::from_rows(Element::F32, DIM, values.flat_map(f32::to_le_bytes).collect()).unwrap()
}

fn slice(all: &VectorFile, rows: Range<u64>) -> VectorFile {
    let bytes = rows.flat_map(|row| all.row(row as usize)).copied().collect();
    VectorFile::from_rows(Element::F32, DIM, bytes).unwrap()
}

fn add(collection: &Collection, all: &VectorFile, rows: Range<u64>) {
    let ids = Ids::Numbers(rows.clone().collect::<Vec<_>>().into());
    collection.add(Rows::new(&schema(), ids, vec![slice(all, rows)], None).unwrap()).unwrap();
}

/// Returns the counters once no query waits or is being answered.
fn settled(collection: &Collection) -> AuditStats {
    let started = Instant::now();
    loop {
        let stats = collection.stats().audit.unwrap();
        let audited: u64 = stats.recalls.iter().map(|one| one.audited).sum();
        if stats.sampled == stats.dropped + stats.discarded + audited {
            return stats;
        }
        assert!(started.elapsed() < Duration::from_secs(60), "{stats:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the recall of answers among the rows from `first` on.
fn recall_from(found: &FoundRows, all: &VectorFile, queries: &VectorFile, first: u64) -> f64 {
    let kept = slice(all, first..ROWS);
    let truth = exact_neighbors(&kept, queries, Metric::L2, 10, None, &Silent).unwrap();
    let number = |at: usize| match found.ids.get(at) {
        Id::Number(number) => (number - first) as u32,
        other => panic!("{other:?}"),
    };
    let ids: Vec<u32> = (0..queries.count() * found.k).map(number).collect();
    recall(&truth, &ids, found.k, queries.count()).unwrap()
}

#[test]
fn the_answers_of_all_parts_are_audited_on_the_rows_that_their_search_saw() {
    let (folder, all, queries) = (tempfile::tempdir().unwrap(), vectors(ROWS as usize, 1), vectors(60, 2));
    let collection = Collection::create(folder.path().join("rows"), schema(), &options()).unwrap();
    for rows in [0..2000, 2000..ROWS - IN_MEMORY] {
        add(&collection, &all, rows);
        collection.flush().unwrap();
    }
    add(&collection, &all, ROWS - IN_MEMORY..ROWS);
    let described = collection.describe();
    assert_eq!((described.segments.len(), described.rows_in_memory), (2, IN_MEMORY));
    let request = SearchRequest { effort: Effort::Recall(0.5), ..SearchRequest::default() };
    let search = |filter: Option<&str>| {
        let filter = filter.map(|text| Filter::parse(text).unwrap());
        collection.search(&queries, &SearchRequest { filter, ..request.clone() }, Control::default()).unwrap()
    };
    let mut expected = Vec::new();
    for first in [0, 1500] {
        let filter = (first > 0).then(|| format!("id >= {first}"));
        expected.push(recall_from(&search(filter.as_deref()), &all, &queries, first));
        // Rows that are deleted after a search still count for it.
        let deleted = Ids::Numbers((first..first + 100).collect::<Vec<_>>().into());
        if first > 0 {
            collection.delete(deleted).unwrap();
        }
    }
    let stats = settled(&collection);
    let estimate = stats.recalls[0].estimate.unwrap();
    let mean = expected.iter().sum::<f64>() / 2.0;
    assert_eq!((estimate.queries, stats.discarded, stats.recalls[0].asked), (120, 0, Some(0.5)));
    assert!((estimate.found - mean).abs() < 1e-6, "{estimate:?}, not {mean} of {expected:?}");
    assert!(mean < 0.99, "the searches are too easy for this test: {expected:?}");
    let text = collection.stats().to_prometheus();
    assert!(text.contains("bathyal_collection_audit_queries_total{collection="), "{text}");
    let started = Instant::now();
    drop(collection);
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

#[test]
fn segments_are_not_audited_one_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let index = OpenOptions { audit: Some(AuditOptions::default()), ..OpenOptions::default() };
    let created = Collection::create(folder.path(), schema(), &CollectionOptions { index, ..options() });
    let refusal = created.map(|_| ()).unwrap_err().to_string();
    assert!(refusal.contains("as an option of the collection"), "{refusal}");
}
