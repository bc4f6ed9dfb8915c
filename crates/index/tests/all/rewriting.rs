//! Compactions of hash tables with a smaller stored form, whose inserted vectors are longer than those of the
//! build.

use crate::cases::{all_cases_run, case_runs, full_or_quick, quick_build};
use crate::clustered::vectors;
use bathyal_index::families::lsh::LshOptions;
use bathyal_index::format::manifest::{
    ANY_LENGTH_VERSION, FORMAT_VERSION, LATER_ELEMENTS_VERSION, MANIFEST_NAME, Manifest, SMALLER_VERSION,
};
use bathyal_index::{
    BuildOptions, CompactOptions, Effort, Index, IndexError, OpenOptions, SearchOptions, StoreAs,
    StoredBefore, build, compact, verify,
};
use bathyal_kernels::{Element, Metric, normalize_f32};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::groundtruth::{exact_neighbors, recall};
use bathyal_vectors::progress::Silent;
use std::path::Path;

const DIM: usize = 16;
const BUILT: usize = 600;
const FORMS: [StoreAs; 2] = [StoreAs::F16, StoreAs::I8];

fn floats(vectors: &VectorFile) -> Vec<f32> {
    let rows = (0..vectors.count()).flat_map(|row| vectors.row(row).as_chunks::<4>().0);
    rows.map(|value| f32::from_le_bytes(*value)).collect()
}

fn file(values: &[f32]) -> VectorFile {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    VectorFile::from_rows(Element::F32, DIM, bytes).unwrap()
}

/// Returns the vectors with each value multiplied by `factor`.
fn scaled(vectors: &VectorFile, factor: f32) -> VectorFile {
    file(&floats(vectors).iter().map(|value| value * factor).collect::<Vec<_>>())
}

fn joined(all: &[VectorFile]) -> VectorFile {
    file(&all.iter().flat_map(floats).collect::<Vec<_>>())
}

fn options(store_as: StoreAs, metric: Metric) -> BuildOptions {
    BuildOptions { metric, store_as: Some(store_as), threads: 2, ..quick_build(LshOptions::default()) }
}

fn open(path: &Path) -> Index {
    Index::open(path, &OpenOptions::default()).unwrap()
}

/// Returns the vectors `0..count` of an index.
fn stored_vectors(index: &Index, count: usize) -> Vec<f32> {
    let ids: Vec<u32> = (0..count as u32).collect();
    let found = index.vectors(&ids, Control::default()).unwrap();
    found.bytes.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value)).collect()
}

fn root_mean_square(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let squares: f64 = a.iter().zip(b).map(|(x, y)| (f64::from(*x) - f64::from(*y)).powi(2)).sum();
    (squares / a.len() as f64).sqrt()
}

/// Returns the recall of a search that compares all vectors.
fn exact_recall(index: &Index, data: &VectorFile, queries: &VectorFile, metric: Metric) -> f64 {
    let truth = exact_neighbors(data, queries, metric, 10, None, &Silent).unwrap();
    let all = SearchOptions {
        effort: Effort::SearchList(data.count() as u32),
        probes: Some(1000),
        ..SearchOptions::default()
    };
    let found = index.search(queries, &all, Control::default()).unwrap();
    recall(&truth, &found.ids, 10, queries.count()).unwrap()
}

#[test]
fn longer_vectors_are_kept_unchanged_until_the_index_is_compacted() {
    let data = vectors(Element::F32, BUILT, DIM, 1);
    let all = Metric::ALL.into_iter().enumerate();
    let all =
        all.flat_map(|(at, metric)| (at..).zip(FORMS).map(move |(number, form)| (number, form, metric)));
    // Each metric occurs with one form.
    for (_, store_as, metric) in all.filter(|(number, ..)| case_runs(*number, 2)) {
        let what = format!("{store_as} {metric}");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("index");
        build(&data, &path, &options(store_as, metric), &Silent).unwrap();
        let index = open(&path);
        let some = vectors(Element::F32, 4, DIM, 2);
        let longer: Vec<VectorFile> =
            [1.0, 3.0, 100.0, 1e6].into_iter().map(|factor| scaled(&some, factor)).collect();
        for (inserted, rows) in longer.iter().enumerate() {
            let first = (BUILT + 4 * inserted) as u32;
            assert_eq!(index.insert(rows).unwrap(), first..first + 4, "{what}");
            let ids: Vec<u32> = (first..first + 4).collect();
            let back = index.vectors(&ids, Control::default()).unwrap();
            for (row, (got, given)) in back.bytes.chunks(4 * DIM).zip(floats(rows).chunks(DIM)).enumerate() {
                let got: Vec<f32> =
                    got.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value)).collect();
                let length = given.iter().map(|value| value * value).sum::<f32>().sqrt();
                let scale = if metric == Metric::Cosine { 1.0 / length } else { 1.0 };
                for (got, given) in got.iter().zip(given) {
                    let given = given * scale;
                    assert!(
                        (got - given).abs() <= 1e-6 * given.abs(),
                        "{what} row {row}: {got}, not {given}"
                    );
                }
            }
            if metric == Metric::L2 {
                let options = SearchOptions { k: 1, ..SearchOptions::default() };
                let found = index.search(rows, &options, Control::default()).unwrap();
                assert_eq!(found.ids, ids, "{what}");
                let square = floats(rows).iter().map(|value| value * value).sum::<f32>();
                assert!(found.distances.iter().all(|far| *far <= 1e-9 * square), "{what}: {found:?}");
            }
        }
        drop(index);
        compact(&path, &CompactOptions::default(), &Silent).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(verify(&path, &Silent).unwrap().sound, "{what}");
        let all = joined(&[vec![data.clone()], longer].concat());
        let index = open(&path);
        assert_eq!(index.len(), all.count(), "{what}");
        // Some vectors are 10^6 times as long. The scale of i8 would round the others to 0, and f16 keeps
        // them.
        let expected = if metric == Metric::Cosine { store_as } else { StoreAs::F16 };
        assert_eq!(index.manifest().stored.unwrap().element, expected, "{what}");
        let share = exact_recall(&index, &all, &data, metric);
        assert!(share >= 0.95, "{what}: {share}");
    }
}

#[test]
fn vectors_whose_distances_no_f32_holds_are_refused_with_their_row() {
    let tiny = scaled(&vectors(Element::F32, 100, DIM, 1), 1e-13);
    for store_as in FORMS {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("index");
        build(&tiny, &path, &options(store_as, Metric::L2), &Silent).unwrap();
        let index = open(&path);
        let refused = index.insert(&joined(&[scaled(&tiny, 10.0), scaled(&tiny, 1e26)])).unwrap_err();
        assert!(
            matches!(&refused, IndexError::Parameter(why) if why.contains("row 100 has a value")),
            "{refused}"
        );
        assert_eq!(index.len(), 100, "{store_as}");
    }
}

#[test]
fn errors_of_bytes_do_not_grow_with_compactions() {
    let base = vectors(Element::F32, BUILT, DIM, 3);
    for metric in [Metric::InnerProduct, Metric::L2]
        .into_iter()
        .filter(|metric| all_cases_run() || *metric != Metric::L2)
    {
        let dir = tempfile::tempdir().unwrap();
        let (path, once) = (dir.path().join("index"), dir.path().join("once"));
        build(&base, &path, &options(StoreAs::I8, metric), &Silent).unwrap();
        let mut batches = vec![base.clone()];
        for round in 1..13 {
            let batch = scaled(&vectors(Element::F32, 100, DIM, 3 + round), 1.25_f32.powi(round as i32));
            open(&path).insert(&batch).unwrap();
            batches.push(batch);
            compact(&path, &CompactOptions::default(), &Silent).unwrap();
        }
        let all = joined(&batches);
        build(&all, &once, &options(StoreAs::I8, metric), &Silent).unwrap();
        let (index, one) = (open(&path), open(&once));
        let error_of = |index: &Index| root_mean_square(&stored_vectors(index, all.count()), &floats(&all));
        let (error, best) = (error_of(&index), error_of(&one));
        // The scale is up to twice that of one build, and all roundings together have sqrt(2) times the error
        // of one.
        assert!(error <= 2.9 * best, "{metric}: {error}, and one build has {best}");
        let stored = index.manifest().stored.unwrap();
        let (stored_values, given) = (stored_vectors(&index, all.count()), floats(&all));
        let farthest = stored_values.iter().zip(&given).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(farthest < stored.scale, "{metric}: off by {farthest}, and a step is {}", stored.scale);

        // The reported loss is relative to the given vectors, and not to those before the last compaction.
        let loss = stored.loss.unwrap();
        let reported = f64::from(loss.component_error.unwrap());
        assert!((0.8..1.25).contains(&(reported / error)), "{metric}: {reported} is reported, not {error}");
        let some =
            (0..all.count()).step_by(full_or_quick(1, 4)).flat_map(|row| all.row(row).to_vec()).collect();
        let some = VectorFile::from_rows(Element::F32, DIM, some).unwrap();
        let share = exact_recall(&index, &all, &some, metric);
        assert!((share - f64::from(loss.recall)).abs() < 0.03, "{metric}: {share}, {loss:?}");

        // Inserts of shorter vectors do not change the others.
        let before = stored_vectors(&index, all.count());
        drop(index);
        for round in 0..3 {
            open(&path).insert(&vectors(Element::F32, 1, DIM, 90 + round)).unwrap();
            compact(&path, &CompactOptions::default(), &Silent).unwrap();
        }
        assert_eq!(stored_vectors(&open(&path), all.count()), before, "{metric}");
    }
}

#[test]
fn errors_of_directions_do_not_grow_with_compactions() {
    // With the offset all directions are nearly the same. Few dimensions have the largest rounding errors.
    let data =
        file(&floats(&vectors(Element::F32, BUILT, DIM, 4)).iter().map(|v| v + 300.0).collect::<Vec<_>>());
    for store_as in FORMS {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("index");
        build(&data, &path, &options(store_as, Metric::Cosine), &Silent).unwrap();
        let before = stored_vectors(&open(&path), BUILT);
        for round in 0..5 {
            open(&path).insert(&vectors(Element::F32, 1, DIM, 90 + round)).unwrap();
            compact(&path, &CompactOptions::default(), &Silent).unwrap();
        }
        let moved = root_mean_square(&stored_vectors(&open(&path), BUILT), &before);
        assert!(moved < 1e-7, "{store_as}: {moved}");
    }
}

#[test]
fn f16_vectors_of_earlier_versions_are_compared_by_direction_under_cosine() {
    // As earlier versions stored them: scaled to length 1 and rounded.
    let values =
        floats(&vectors(Element::F32, BUILT, DIM, 4)).into_iter().map(|v| v + 2000.0).collect::<Vec<_>>();
    let mut units = values.clone();
    units.chunks_mut(DIM).for_each(|row| assert!(normalize_f32(row)));
    let halves = units.iter().flat_map(|value| half::f16::from_f32(*value).to_le_bytes()).collect();
    let data = VectorFile::from_rows(Element::F16, DIM, halves).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    let options = BuildOptions { metric: Metric::Cosine, ..BuildOptions::default() };
    build(&data, &path, &options, &Silent).unwrap();
    let sound = Manifest::read(&path).unwrap();
    assert_eq!(sound.format_version, ANY_LENGTH_VERSION);
    let write = |format_version: u32| {
        let manifest = Manifest { format_version, ..sound.clone() };
        std::fs::write(path.join(MANIFEST_NAME), manifest.to_bytes().unwrap()).unwrap();
    };
    for version in [FORMAT_VERSION, ANY_LENGTH_VERSION] {
        write(version);
        let share = exact_recall(&open(&path), &data, &data, Metric::Cosine);
        assert!(share >= 0.99, "version {version}: {share}");
    }
    for version in [SMALLER_VERSION, LATER_ELEMENTS_VERSION] {
        write(version);
        let refused = Index::open(&path, &OpenOptions::default()).err();
        assert!(matches!(refused, Some(IndexError::Damaged { .. })), "version {version}: {refused:?}");
    }
}

#[test]
fn the_history_of_a_stored_form_is_checked() {
    let data = vectors(Element::F32, 40, DIM, 1);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    let bytes = options(StoreAs::I8, Metric::L2);
    for (store_as, stored_before, word) in [
        (None, StoredBefore::NEVER, "requires store_as"),
        (Some(StoreAs::I8), StoredBefore { scale: Some(0.0), ..StoredBefore::NEVER }, "scale"),
        (Some(StoreAs::I8), StoredBefore { scale: Some(f32::NAN), ..StoredBefore::NEVER }, "scale"),
        (Some(StoreAs::I8), StoredBefore { component_error: -1.0, ..StoredBefore::NEVER }, "error"),
    ] {
        let options = BuildOptions { store_as, stored_before: Some(stored_before), ..bytes.clone() };
        let refused = build(&data, &path, &options, &Silent).unwrap_err();
        assert!(matches!(&refused, IndexError::Parameter(why) if why.contains(word)), "{refused}");
    }
}
