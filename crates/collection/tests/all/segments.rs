//! Search over many segments: the total recall, wherever the neighbours are, and the shared memory.

use crate::foreground::without_background;
use bathyal_collection::{
    Collection, CollectionError, CollectionOptions, CompactOptions, Filter, FoundRows, Id, IdKind, Ids, Rows,
    Schema, SearchRequest, VectorField, search_many,
};
use bathyal_index::format::manifest::Manifest;
use bathyal_index::{Effort, OpenOptions};
use bathyal_kernels::{Element, Metric};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Silent;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

const DIM: usize = 16;
const SEGMENTS: usize = 16;
const ROWS: usize = 16_000;
const QUERIES: usize = 100;
const K: usize = 10;

fn schema() -> Schema {
    let vectors = vec![VectorField::new("v", DIM, Element::F32, Metric::L2)];
    Schema { id_kind: IdKind::Number, vectors, columns: Vec::new() }
}

fn options() -> CollectionOptions {
    without_background()
}

/// Returns vectors around as many centres as there are segments, one centre after the other.
fn clustered(rng: &mut StdRng, rows: usize) -> Vec<[f32; DIM]> {
    let mut vector = |spread: f32| std::array::from_fn(|_| rng.random_range(-spread..spread));
    let centers: Vec<[f32; DIM]> = (0..SEGMENTS).map(|_| vector(4.0)).collect();
    let near = |row: usize| {
        let (center, offset): (_, [f32; DIM]) = (&centers[row * SEGMENTS / rows], vector(1.0));
        std::array::from_fn(|at| center[at] + offset[at])
    };
    (0..rows).map(near).collect()
}

fn file(rows: &[[f32; DIM]]) -> VectorFile {
    let bytes = rows.iter().flatten().flat_map(|number| number.to_le_bytes()).collect();
    VectorFile::from_rows(Element::F32, DIM, bytes).unwrap()
}

/// Creates a collection of these rows, in the order of `order`, in some segments.
fn collection(path: &Path, rows: &[[f32; DIM]], order: &[usize], segments: usize) {
    let collection = Collection::create(path, schema(), &options()).unwrap();
    for some in order.chunks(order.len().div_ceil(segments)) {
        let ids = Ids::Numbers(some.iter().map(|row| *row as u64).collect::<Vec<_>>().into());
        let segment_rows: Vec<[f32; DIM]> = some.iter().map(|row| rows[*row]).collect();
        collection.add(Rows::new(&schema(), ids, vec![file(&segment_rows)], None).unwrap()).unwrap();
        collection.flush().unwrap();
    }
    assert_eq!(collection.describe().segments.len(), segments);
}

/// Returns the share of the true neighbours that were found.
fn recall(found: &FoundRows, rows: &[[f32; DIM]], queries: &[[f32; DIM]]) -> f64 {
    let mut hits = 0;
    for (at, query) in queries.iter().enumerate() {
        let distance = |row: usize| -> f32 { (0..DIM).map(|at| (rows[row][at] - query[at]).powi(2)).sum() };
        let mut all: Vec<usize> = (0..rows.len()).collect();
        all.sort_by(|a, b| distance(*a).total_cmp(&distance(*b)));
        let ids = (0..found.k).map(|rank| found.ids.get(at * found.k + rank));
        hits += ids.filter(|id| all[..K].iter().any(|row| *id == Id::Number(*row as u64))).count();
    }
    hits as f64 / (queries.len() * K) as f64
}

#[test]
fn the_recall_holds_over_all_segments_wherever_neighbours_are() {
    let folder = tempfile::tempdir().unwrap();
    let mut rng = StdRng::seed_from_u64(3);
    let all = clustered(&mut rng, ROWS + QUERIES);
    // Queries of every cluster that are not rows.
    let (queries, all): (Vec<_>, Vec<_>) =
        all.into_iter().enumerate().partition(|(row, _)| row % (ROWS / QUERIES + 1) == 0);
    let vectors =
        |numbered: Vec<(usize, [f32; DIM])>| numbered.into_iter().map(|(_, vector)| vector).collect();
    let (queries, all): (Vec<[f32; DIM]>, Vec<[f32; DIM]>) = (vectors(queries), vectors(all));
    assert_eq!((queries.len(), all.len()), (QUERIES, ROWS));
    let together: Vec<usize> = (0..ROWS).collect();
    let spread: Vec<usize> = (0..ROWS).map(|at| at % 1000 * SEGMENTS + at / 1000).collect();
    // If every segment has some of the neighbours, all are searched. This takes longest, so it runs in `make
    // soak`.
    let whole = std::env::var_os("BATHYAL_WHOLE").is_some();
    let orders = [("together", together), ("spread", spread)].into_iter().take(if whole { 2 } else { 1 });
    for (name, order) in orders {
        let path = folder.path().join(name);
        collection(&path, &all, &order, SEGMENTS);
        let collection = Collection::open(&path, &options()).unwrap();
        for recall_wanted in [0.9, 0.95, 0.99] {
            let request =
                SearchRequest { k: K, effort: Effort::Recall(recall_wanted), ..SearchRequest::default() };
            let found = collection.search(&file(&queries), &request, Control::default()).unwrap();
            let reached = recall(&found, &all, &queries);
            println!("{name} {recall_wanted}: {reached:.3}, {:?}", found.totals);
            assert!(reached >= f64::from(recall_wanted) - 0.01, "{name} {recall_wanted}: {reached}");
            // Each query is far from the vectors of most segments, and near those that it finds.
            assert_eq!(found.notes, [""; 0], "{name}");
            assert_eq!(found.plans.len(), SEGMENTS);
        }
    }
}

/// The merged answers are judged once: not by each segment, of which most are far from a query.
#[test]
fn queries_far_from_all_segments_are_noted_once() {
    let folder = tempfile::tempdir().unwrap();
    let (path, segments) = (folder.path().join("c"), 4);
    let all = clustered(&mut StdRng::seed_from_u64(8), 10_100);
    let (queries, rows) = all.split_at(100);
    // Near rows share a segment. A calibration is kept if it has 200 queries, which are a tenth of a segment.
    let order: Vec<usize> = (0..rows.len()).collect();
    collection(&path, rows, &order, segments);
    let collection = Collection::open(&path, &options()).unwrap();
    let twice = [&collection, &Collection::open(&path, &options()).unwrap()];
    let request = SearchRequest { k: K, ..SearchRequest::default() };
    let notes = |queries: &[[f32; DIM]]| {
        let one = collection.search(&file(queries), &request, Control::default()).unwrap().notes;
        let many = search_many(&twice, &file(queries), &request, Control::default()).unwrap().notes;
        [one, many]
    };
    assert_eq!(notes(queries), [[""; 0]; 2]);
    let far: Vec<[f32; DIM]> = queries.iter().map(|query| query.map(|number| number + 30.0)).collect();
    for notes in notes(&far) {
        let [note] = &notes[..] else { panic!("{notes:?}") };
        assert!(note.starts_with("100 of 100 queries are farther from all vectors"), "{note}");
        assert!(note.contains("the segments of the collection were calibrated with"), "{note}");
    }
}

#[test]
fn a_query_has_the_same_results_alone_and_in_a_batch() {
    let folder = tempfile::tempdir().unwrap();
    let all = clustered(&mut StdRng::seed_from_u64(4), 4000);
    let order: Vec<usize> = (0..all.len()).collect();
    collection(folder.path().join("c").as_path(), &all, &order, 8);
    let collection = Collection::open(folder.path().join("c"), &options()).unwrap();
    let request = SearchRequest { k: K, ..SearchRequest::default() };
    let queries = &all[..100];
    let batch = collection.search(&file(queries), &request, Control::default()).unwrap();
    for threads in [1, 3] {
        for (at, query) in queries.iter().enumerate().step_by(7) {
            let request = SearchRequest { threads, ..request.clone() };
            let alone = collection.search(&file(&[*query]), &request, Control::default()).unwrap();
            for rank in 0..K {
                let place = at * K + rank;
                assert_eq!(alone.ids.get(rank), batch.ids.get(place), "{at} {rank}");
                assert_eq!(alone.distances[rank], batch.distances[place], "{at} {rank}");
            }
        }
    }
}

#[test]
fn many_segments_share_a_small_budget_or_report_the_memory_they_need() {
    let folder = tempfile::tempdir().unwrap();
    let all = clustered(&mut StdRng::seed_from_u64(5), 4800);
    let order: Vec<usize> = (0..all.len()).collect();
    let path = folder.path().join("c");
    collection(&path, &all, &order, 24);
    let search = |memory: Option<u64>| {
        let index = OpenOptions { memory_bytes: memory, ..OpenOptions::default() };
        let collection = Collection::open(&path, &CollectionOptions { index, ..options() })?;
        let request = SearchRequest { k: K, threads: 2, ..SearchRequest::default() };
        collection.search(&file(&all[..300]), &request, Control::default())
    };
    let good = |found: &FoundRows| recall(found, &all, &all[..300]) >= 0.94;
    assert!(good(&search(None).unwrap()) && good(&search(Some(32 << 20)).unwrap()));
    let Err(CollectionError::Memory { needed, given, .. }) = search(Some(1 << 20)) else {
        panic!("a megabyte is too little for the buffers of a search thread");
    };
    assert!(given == 1 << 20 && needed > given && needed <= 32 << 20, "{needed}");
    assert!(good(&search(Some(needed)).unwrap()));
    let Err(CollectionError::Memory { needed: again, .. }) = search(Some(needed - 1)) else {
        panic!("{needed} is not the least");
    };
    assert_eq!(again, needed);
}

#[test]
fn the_evaluation_of_a_filter_can_be_cancelled() {
    let folder = tempfile::tempdir().unwrap();
    let all = clustered(&mut StdRng::seed_from_u64(6), 4000);
    let order: Vec<usize> = (0..all.len()).collect();
    let path = folder.path().join("c");
    collection(&path, &all, &order, 4);
    let collection = Collection::open(&path, &options()).unwrap();
    let one: Vec<[f32; DIM]> = vec![all[0]];
    let rows = Rows::new(&schema(), Ids::Numbers(vec![1 << 40].into()), vec![file(&one)], None).unwrap();
    collection.add(rows).unwrap();
    let cancel = AtomicBool::new(true);
    let cancelled = Control { cancel: Some(&cancel), deadline: None };
    let late = Control { cancel: None, deadline: Some(Instant::now()) };
    let filter = |number: u64| Filter::parse(&format!("id >= {number}")).unwrap();
    for (at, control) in [cancelled, late].into_iter().enumerate() {
        let check_error = |error: CollectionError| match at {
            0 => assert!(matches!(error, CollectionError::Cancelled), "{error}"),
            _ => assert!(matches!(error, CollectionError::Deadline), "{error}"),
        };
        // Another filter each time, because results of filters are cached.
        let number = at as u64 * 10;
        check_error(collection.delete_matching(&filter(number), control).unwrap_err());
        check_error(collection.count(Some(&filter(number + 1)), control).unwrap_err());
        let scan = collection.scan(Some(&filter(number + 2)), &Default::default(), None, control);
        check_error(scan.map(drop).unwrap_err());
        assert_eq!(collection.count(None, control).unwrap(), 4001);
    }
    assert_eq!(collection.delete_matching(&filter(10), Control::default()).unwrap().deleted, 3991);
}

/// Returns the families of the indexes in a collection, from their manifests.
fn families(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<String> =
        entries.filter_map(|entry| Manifest::read(&entry).ok()).map(|manifest| manifest.family).collect();
    found.sort();
    found
}

#[test]
fn segments_that_writes_wait_for_are_flat_until_a_compaction() {
    let folder = tempfile::tempdir().unwrap();
    let mut rng = StdRng::seed_from_u64(9);
    let all = clustered(&mut rng, ROWS);
    // Three eighths of the memory are rows that are in no segment.
    let options = CollectionOptions { write_memory_bytes: 1 << 20, ..options() };
    let path = folder.path().join("c");
    let collection = Collection::create(&path, schema(), &options).unwrap();
    for (at, some) in all[..6000].chunks(500).enumerate() {
        let ids = Ids::Numbers((0..500).map(|row| (500 * at + row) as u64).collect::<Vec<_>>().into());
        collection.add(Rows::new(&schema(), ids, vec![file(some)], None).unwrap()).unwrap();
    }
    let found = families(&path);
    assert!(!found.is_empty() && found.iter().all(|family| family == "flat"), "{found:?}");
    // The version records it, so that another process knows.
    drop(collection);
    let collection = Collection::open(&path, &options).unwrap();
    let compacted = collection.compact(&CompactOptions::default(), &Silent).unwrap();
    assert!(compacted.rows_written >= 4000, "{compacted:?}");
    let found = families(&path);
    assert!(found.iter().all(|family| family == "cluster"), "{found:?}");
    let again = collection.compact(&CompactOptions::default(), &Silent).unwrap();
    assert_eq!((again.rows_written, collection.count(None, Control::default()).unwrap()), (0, 6000));
}

#[test]
fn every_effort_works_for_rows_in_memory_and_in_segments() {
    let folder = tempfile::tempdir().unwrap();
    let all = clustered(&mut StdRng::seed_from_u64(6), 900);
    for family in ["cluster", "graph", "flat", "lsh"] {
        let mut schema = schema();
        schema.vectors[0].family = family.into();
        let options = CollectionOptions { flat_below_rows: 500, ..options() };
        let collection = Collection::create(folder.path().join(family), schema.clone(), &options).unwrap();
        let add = |range: std::ops::Range<usize>| {
            let ids = Ids::Numbers(range.clone().map(|row| row as u64).collect::<Vec<_>>().into());
            let rows = Rows::new(&schema, ids, vec![file(&all[range])], None).unwrap();
            collection.add(rows).unwrap();
        };
        let search = |effort: Effort| {
            let request = SearchRequest { k: K, effort, ..SearchRequest::default() };
            collection.search(&file(&all[..7]), &request, Control::default())
        };
        let agrees = |when: &str| {
            let found =
                search(Effort::SearchList(900)).unwrap_or_else(|error| panic!("{family}, {when}: {error}"));
            for query in 0..7_u64.min(collection.describe().rows) {
                assert_eq!(found.ids.get(query as usize * found.k), Id::Number(query), "{family}, {when}");
            }
            assert!(found.notes.iter().all(|note| note.starts_with("asked for")), "{:?}", found.notes);
            for (effort, part) in [
                (Effort::SearchList(9), "search_list is 9, which must be at least k = 10"),
                (Effort::SearchList(0), "search_list is 0"),
                (Effort::SearchList(u32::MAX), "at most"),
                (Effort::Recall(1.5), "recall is 1.5"),
                (Effort::Ratio(0.5), "ratio is 0.5"),
            ] {
                let error = search(effort).unwrap_err().to_string();
                assert!(error.contains(part), "{family}, {when}: {error}");
            }
            assert_eq!(search(Effort::Ratio(1.5)).is_ok(), family == "lsh", "{family}, {when}");
        };
        agrees("empty");
        add(0..100);
        agrees("in memory");
        collection.flush().unwrap();
        agrees("in a small segment");
        add(100..800);
        collection.flush().unwrap();
        agrees("in a small segment and a large one");
        add(800..900);
        agrees("in segments and in memory");
        assert_eq!(collection.describe().segments.len(), 2);
    }
}
