//! Vectors in a smaller stored form: their errors after merges.

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use bathyal_collection::{
    Collection, CollectionOptions, Column, CompactOptions, IdKind, Ids, Projection, Rows, Schema,
    SearchRequest, VectorField,
};
use bathyal_index::{Effort, StoreAs};
use bathyal_kernels::{Element, Metric};
use bathyal_store::Durability;
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::groundtruth::{exact_neighbors, recall};
use bathyal_vectors::progress::Silent;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;

const DIM: usize = 24;
const BATCH: usize = 150;
const BATCHES: usize = 20;

/// Returns rows with values between `-length` and `length`, around a few centres.
fn rows(count: usize, length: f32, offset: f32, seed: u64) -> Vec<f32> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut shape = StdRng::seed_from_u64(17);
    let centres: Vec<f32> = (0..10 * DIM).map(|_| shape.random_range(-0.6..0.6)).collect();
    let mut values = Vec::with_capacity(count * DIM);
    for _ in 0..count {
        let centre = random.random_range(0..10) * DIM;
        let near = |value: &f32| (value + random.random_range(-0.4..0.4)) * length + offset;
        values.extend(centres[centre..centre + DIM].iter().map(near));
    }
    values
}

fn file(values: &[f32]) -> VectorFile {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    VectorFile::from_rows(Element::F32, DIM, bytes).unwrap()
}

/// Creates a collection without `flat` segments, so that all vectors are stored as `store_as`.
fn collection(folder: &tempfile::TempDir, name: &str, store_as: StoreAs, metric: Metric) -> Collection {
    let field = VectorField { store_as: Some(store_as), ..VectorField::new("v", DIM, Element::F32, metric) };
    let columns = vec![Column { name: "year".into(), kind: "int64".parse().unwrap() }];
    let schema = Schema { id_kind: IdKind::Number, vectors: vec![field], columns };
    let options = CollectionOptions {
        durability: Durability::System,
        background: false,
        compact: false,
        flat_below_rows: 0,
        ..CollectionOptions::default()
    };
    Collection::create(folder.path().join(name), schema, &options).unwrap()
}

fn numbers(first: usize, count: usize) -> Ids {
    Ids::Numbers((first as u64..(first + count) as u64).collect::<Vec<_>>().into())
}

fn years(count: usize, year: i64) -> RecordBatch {
    let years: ArrayRef = Arc::new(Int64Array::from(vec![year; count]));
    RecordBatch::try_from_iter([("year", years)]).unwrap()
}

fn add(collection: &Collection, first: usize, values: &[f32]) {
    let count = values.len() / DIM;
    let (ids, years) = (numbers(first, count), years(count, 0));
    let rows = Rows::new(&collection.schema(), ids, vec![file(values)], Some(&years)).unwrap();
    collection.add(rows).unwrap();
    collection.flush().unwrap();
}

fn compact(collection: &Collection) {
    collection.compact(&CompactOptions { full: true }, &Silent).unwrap();
    assert_eq!(collection.describe().segments.len(), 1);
}

/// Returns the vectors of the rows `0..count`.
fn held(collection: &Collection, count: usize) -> Vec<f32> {
    let ids = numbers(0, count);
    let fetch = Projection { vectors: vec!["v".into()], ..Projection::default() };
    let gotten = collection.get(&ids, &fetch, Control::default()).unwrap();
    gotten.vectors[0].bytes.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value)).collect()
}

fn root_mean_square(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let squares: f64 = a.iter().zip(b).map(|(x, y)| (f64::from(*x) - f64::from(*y)).powi(2)).sum();
    (squares / a.len() as f64).sqrt()
}

/// Returns the share of the 10 nearest of `all` that an exact search of the stored vectors finds.
fn exact_recall(collection: &Collection, all: &[f32], queries: &[f32], metric: Metric) -> f64 {
    let (data, queries) = (file(all), file(queries));
    let truth = exact_neighbors(&data, &queries, metric, 10, None, &Silent).unwrap();
    let request = SearchRequest { k: 10, effort: Effort::Recall(1.0), ..SearchRequest::default() };
    let found = collection.search(&queries, &request, Control::default()).unwrap();
    let Ids::Numbers(ids) = &found.ids else { panic!("numbers") };
    let ids: Vec<u32> = ids.values().iter().map(|id| *id as u32).collect();
    recall(&truth, &ids, 10, queries.count()).unwrap()
}

#[test]
fn merges_do_not_degrade_vectors_stored_as_bytes() {
    // One metric; both in `make soak`.
    let whole = std::env::var_os("BATHYAL_WHOLE").is_some();
    for metric in [Metric::InnerProduct, Metric::L2].into_iter().take(if whole { 2 } else { 1 }) {
        let folder = tempfile::tempdir().unwrap();
        let (merged, once) = (
            collection(&folder, "merged", StoreAs::I8, metric),
            collection(&folder, "once", StoreAs::I8, metric),
        );
        let mut all = Vec::new();
        for batch in 0..BATCHES {
            let values = rows(BATCH, 1.25_f32.powi(batch as i32), 0.0, batch as u64);
            add(&merged, batch * BATCH, &values);
            all.extend(values);
            compact(&merged);
        }
        add(&once, 0, &all);
        let (left, best) = (held(&merged, BATCHES * BATCH), held(&once, BATCHES * BATCH));
        let (error, least) = (root_mean_square(&left, &all), root_mean_square(&best, &all));
        // All roundings together have an error of the square root of 2 times one, since scales are nested.
        assert!(error <= 1.5 * least, "{metric}: {error}, and one build has {least}");
        // Rows that were written early are not pushed away from zero.
        let lengths = |values: &[f32]| values[..BATCH * DIM].iter().map(|value| value.abs()).sum::<f32>();
        assert!(lengths(&left) <= 1.5 * lengths(&best).max(lengths(&all)), "{metric}");
        let queries = rows(100, 1.25_f32.powi(BATCHES as i32 - 1), 0.0, 99);
        let [share, of_one] =
            [&merged, &once].map(|collection| exact_recall(collection, &all, &queries, metric));
        assert!(share >= of_one - 0.02, "{metric}: {share}, and one build has {of_one}");
        assert!(merged.verify(&Silent).unwrap().is_empty());
    }
}

#[test]
fn one_long_row_does_not_change_the_others() {
    for (store_as, length) in [(StoreAs::I8, 100.0), (StoreAs::I8, 1e6), (StoreAs::F16, 1e6)] {
        let folder = tempfile::tempdir().unwrap();
        let collection = collection(&folder, "c", store_as, Metric::L2);
        let mut all = rows(600, 1.0, 0.0, 1);
        add(&collection, 0, &all);
        let before = held(&collection, 600);
        let long = rows(1, length, 0.0, 2);
        add(&collection, 600, &long);
        all.extend(long);
        compact(&collection);
        let moved = root_mean_square(&held(&collection, 600), &before);
        assert!(moved < 2e-3, "{store_as} {length:e}: {moved}");
        let share = exact_recall(&collection, &all, &rows(100, 1.0, 0.0, 3), Metric::L2);
        assert!(share >= 0.93, "{store_as} {length:e}: {share}");
        // Further merges do not change it.
        let before = held(&collection, 601);
        add(&collection, 601, &rows(10, 1.0, 0.0, 4));
        compact(&collection);
        assert_eq!(held(&collection, 601), before, "{store_as} {length:e}");
    }
}

#[test]
fn nearly_parallel_vectors_of_two_segments_are_distinguished() {
    let folder = tempfile::tempdir().unwrap();
    let collection = collection(&folder, "c", StoreAs::F16, Metric::Cosine);
    let (all, queries) = (rows(2000, 1.0, 20.0, 1), rows(100, 1.0, 20.0, 2));
    let halves = [&all[..1000 * DIM], &all[1000 * DIM..]];
    add(&collection, 0, halves[0]);
    add(&collection, 1000, halves[1]);
    let before = exact_recall(&collection, &all, &queries, Metric::Cosine);
    compact(&collection);
    let after = exact_recall(&collection, &all, &queries, Metric::Cosine);
    assert!(before >= 0.97 && after >= 0.97, "{before} in two segments, {after} in one");
}

#[test]
fn updates_of_metadata_do_not_change_vectors() {
    for (store_as, metric) in
        [StoreAs::F16, StoreAs::I8].into_iter().flat_map(|form| Metric::ALL.map(|metric| (form, metric)))
    {
        let folder = tempfile::tempdir().unwrap();
        let collection = collection(&folder, "c", store_as, metric);
        add(&collection, 0, &rows(300, 3.0, 1.0, 5));
        let before = held(&collection, 300);
        for year in 1..5 {
            // A part of the rows, so that segments differ in their largest value.
            let count = 300 / year as usize;
            collection.update(numbers(0, count), years(count, year)).unwrap();
            collection.flush().unwrap();
            compact(&collection);
        }
        let moved = root_mean_square(&held(&collection, 300), &before);
        // Under cosine, vectors come back with length 1, except for the last digit of f32.
        let allowed = if metric == Metric::Cosine { 1e-7 } else { 0.0 };
        assert!(moved <= allowed, "{store_as} {metric}: {moved}");
    }
}
