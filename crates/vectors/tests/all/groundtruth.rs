//! Exact neighbours compared with a plain sort of all distances, and with files from another program.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use bathyal_kernels::{Element, Metric, from_f32, to_f32};
use bathyal_vectors::groundtruth::{GroundTruthError, exact_neighbors};
use bathyal_vectors::progress::{Progress, Silent};
use bathyal_vectors::{FileFormat, IdFile, VectorError, VectorFile};
use proptest::prelude::*;

fn encode(element: Element, values: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0; element.row_bytes(values.len())];
    from_f32(element, values, &mut bytes);
    bytes
}

fn decode(element: Element, row: &[u8]) -> Vec<f64> {
    let mut values = vec![0.0; element.components_in(row.len())];
    to_f32(element, row, &mut values);
    values.into_iter().map(f64::from).collect()
}

fn file(element: Element, dim: usize, values: &[f32]) -> VectorFile {
    VectorFile::from_rows(element, dim, encode(element, values)).unwrap()
}

fn threads(count: usize) -> Option<NonZeroUsize> {
    NonZeroUsize::new(count)
}

/// Computes the distance in 64 bits, in plain loops.
fn distance(metric: Metric, a: &[f64], b: &[f64]) -> f64 {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
    match metric {
        Metric::L2 => a.iter().zip(b).map(|(x, y)| (x - y) * (x - y)).sum(),
        Metric::InnerProduct => -dot(a, b),
        Metric::Cosine => 1.0 - dot(a, b) / (dot(a, a).sqrt() * dot(b, b).sqrt()),
    }
}

/// Asserts that `found` equals the result of sorting all distances. With `exact` (for whole numbers) nothing
/// may differ. Otherwise vectors whose distances differ by no more than a rounding may be in either order.
fn assert_nearest(base: &VectorFile, queries: &VectorFile, metric: Metric, found: &IdFile, exact: bool) {
    let rows: Vec<Vec<f64>> = (0..base.count()).map(|row| decode(base.element(), base.row(row))).collect();
    assert_eq!(found.queries(), queries.count());
    for query in 0..queries.count() {
        let values = decode(queries.element(), queries.row(query));
        let mut all: Vec<(f32, u32)> = rows
            .iter()
            .enumerate()
            .map(|(id, row)| (distance(metric, &values, row) as f32 + 0.0, id as u32))
            .collect();
        let by_id = all.clone();
        all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let (ids, distances) = (found.ids(query), found.distances(query).unwrap());
        let expected = &all[..found.k()];
        if exact {
            assert_eq!(ids, expected.iter().map(|e| e.1).collect::<Vec<_>>(), "query {query}");
            assert_eq!(distances, expected.iter().map(|e| e.0).collect::<Vec<_>>());
            continue;
        }
        for ((id, distance), (nearest, _)) in ids.iter().zip(distances).zip(expected) {
            let tolerance = 1e-6 * nearest.abs().max(1e-6);
            assert!((distance - nearest).abs() <= tolerance, "query {query}: {distance} {nearest}");
            assert!((distance - by_id[*id as usize].0).abs() <= tolerance, "query {query}, id {id}");
        }
        let mut unique = ids.to_vec();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), ids.len());
    }
}

#[test]
fn all_elements_and_metrics_agree_with_a_plain_sort() {
    let (count, queries) = (1003, 37);
    for element in Element::ALL {
        for metric in Metric::ALL {
            for dim in [1, 3, 16, 100, 129] {
                let dim = if element == Element::B1 { 8 * dim } else { dim };
                let value = |i: usize| {
                    let value = (i.wrapping_mul(2_654_435_761) >> 7) % 101 + 1;
                    // Half of the bits are set. The first always is, since a zero vector has no cosine.
                    let bit = if i.is_multiple_of(dim) { 1 } else { value % 2 };
                    if element == Element::B1 { bit } else { value }
                };
                let all: Vec<f32> = (0..(count + queries) * dim).map(|i| value(i) as f32).collect();
                let (b, q) = all.split_at(count * dim);
                let (base, queries) = (file(element, dim, b), file(element, dim, q));
                for (k, workers) in [(1, 1), (10, 3), (1003, 2)] {
                    let found =
                        exact_neighbors(&base, &queries, metric, k, threads(workers), &Silent).unwrap();
                    assert_nearest(&base, &queries, metric, &found, metric != Metric::Cosine);
                }
            }
        }
    }
}

#[test]
fn the_result_does_not_depend_on_the_number_of_threads() {
    let all: Vec<f32> = (0..5000 * 20).map(|i| ((i as f32) * 0.7391).sin()).collect();
    let (base, queries) = (file(Element::F32, 20, &all), file(Element::F32, 20, &all[..20 * 50]));
    for metric in Metric::ALL {
        let one = exact_neighbors(&base, &queries, metric, 17, threads(1), &Silent).unwrap();
        for workers in [2, 5, 16] {
            let many = exact_neighbors(&base, &queries, metric, 17, threads(workers), &Silent).unwrap();
            assert_eq!(one, many, "{metric} {workers}");
        }
    }
}

#[test]
fn equal_distances_come_in_order_of_id() {
    for element in Element::ALL {
        let base = file(element, 8, &[3.0; 8 * 100]);
        let queries = file(element, 8, &[1.0; 8 * 3]);
        for metric in Metric::ALL {
            let found = exact_neighbors(&base, &queries, metric, 20, threads(3), &Silent).unwrap();
            assert_eq!(found.ids(2), (0..20).collect::<Vec<u32>>(), "{element} {metric}");
        }
    }
}

#[test]
fn near_ties_far_from_the_origin_are_ranked_correctly() {
    // The values of the 32-bit screen are only rounding errors here, so the exact distances have to decide.
    let (count, dim) = (300, 8);
    let mut values = vec![10_000.0f32; count * dim];
    for row in 0..count {
        values[row * dim + row % dim] += ((row * 91) % count) as f32 * 0.001;
    }
    let base = file(Element::F32, dim, &values);
    let queries = file(Element::F32, dim, &[10_000.0; 8]);
    let found = exact_neighbors(&base, &queries, Metric::L2, 50, threads(2), &Silent).unwrap();
    assert_nearest(&base, &queries, Metric::L2, &found, true);
}

#[test]
fn huge_and_tiny_values_are_ranked() {
    for scale in [1e-30f32, 1e-20, 1e18, 1e19] {
        let values: Vec<f32> = (0..64 * 2).map(|i| ((i * 37 % 64) as f32 - 20.0) * scale).collect();
        let (base, queries) = (file(Element::F32, 2, &values), file(Element::F32, 2, &values[..4]));
        for metric in [Metric::L2, Metric::InnerProduct] {
            let found = exact_neighbors(&base, &queries, metric, 10, threads(1), &Silent).unwrap();
            // In 32 bits, squares of the smallest values vanish and those of the largest overflow, so that
            // only the ids determine the order. No other loss or error is allowed.
            assert_nearest(&base, &queries, metric, &found, true);
        }
    }
}

#[test]
fn files_with_gaps_between_rows_are_searched() {
    let bytes: Vec<u8> = (0..200u8).flat_map(|row| [2, 0, 0, 0, row, row / 2]).collect();
    let base = VectorFile::from_file_bytes(FileFormat::Vecs(Element::U8), bytes.clone()).unwrap();
    let queries = VectorFile::from_file_bytes(FileFormat::Vecs(Element::U8), bytes[..60].to_vec()).unwrap();
    let found = exact_neighbors(&base, &queries, Metric::L2, 5, threads(2), &Silent).unwrap();
    assert_nearest(&base, &queries, Metric::L2, &found, true);
    let mut damaged = bytes;
    damaged[6 * 101] = 1;
    let refusal = VectorFile::from_file_bytes(FileFormat::Vecs(Element::U8), damaged);
    assert!(matches!(refusal, Err(VectorError::RowLength { row: 101, .. })), "{refusal:?}");
}

#[test]
fn queries_and_vectors_that_do_not_match_are_refused() {
    let base = file(Element::F32, 2, &[1.0, 2.0, 3.0, 4.0]);
    let search = |base: &VectorFile, queries: &VectorFile, metric, k| {
        exact_neighbors(base, queries, metric, k, threads(2), &Silent)
    };
    let refusal = search(&base, &file(Element::F32, 3, &[1.0; 3]), Metric::L2, 1);
    assert!(matches!(refusal, Err(GroundTruthError::Dimensions { queries: 3, vectors: 2 })), "{refusal:?}");
    let refusal = search(&base, &file(Element::U8, 2, &[1.0; 2]), Metric::L2, 1);
    assert!(matches!(refusal, Err(GroundTruthError::Elements { .. })), "{refusal:?}");
    for k in [0, 3, usize::MAX] {
        let refusal = search(&base, &base, Metric::L2, k);
        assert!(matches!(refusal, Err(GroundTruthError::KOutside { count: 2, .. })), "{refusal:?}");
    }
    let zero = file(Element::F32, 2, &[1.0, 2.0, 0.0, 0.0]);
    for (b, q) in [(&base, &zero), (&zero, &base)] {
        let refusal = search(b, q, Metric::Cosine, 1);
        assert!(matches!(refusal, Err(GroundTruthError::ZeroVector { row: 1, .. })), "{refusal:?}");
        search(b, q, Metric::L2, 1).unwrap();
    }
    let bad = file(Element::F32, 2, &[1.0, 2.0, 0.0, f32::NAN]);
    for (b, q) in [(&base, &bad), (&bad, &base)] {
        let refusal = search(b, q, Metric::L2, 1);
        let Err(GroundTruthError::Vectors(VectorError::NotFinite { row: 1, dimension: 1, .. })) = refusal
        else {
            panic!("{refusal:?}");
        };
    }
}

/// A receiver that records the progress, and cancels once `limit` vectors are done.
struct Counting {
    total: AtomicU64,
    done: AtomicU64,
    limit: u64,
}

impl Progress for Counting {
    fn stage(&self, _name: &str, total: u64) {
        self.total.store(total, Ordering::Relaxed);
    }

    fn advance(&self, done: u64) {
        self.done.fetch_max(done, Ordering::Relaxed);
    }

    fn cancelled(&self) -> bool {
        self.done.load(Ordering::Relaxed) >= self.limit
    }
}

#[test]
fn progress_reaches_the_total_and_cancellation_stops() {
    // Several blocks.
    const COUNT: u64 = 200_000;
    let values: Vec<f32> = (0..COUNT * 4).map(|i| (i % 251) as f32).collect();
    let (base, queries) = (file(Element::U8, 4, &values), file(Element::U8, 4, &values[..400]));
    let progress = |limit| Counting { total: AtomicU64::new(0), done: AtomicU64::new(0), limit };
    let whole = progress(u64::MAX);
    exact_neighbors(&base, &queries, Metric::L2, 3, threads(2), &whole).unwrap();
    assert_eq!((whole.total.into_inner(), whole.done.into_inner()), (COUNT, COUNT));
    // One thread, which checks for cancellation before each block. Two threads could be in the last two
    // blocks already.
    let part = progress(1);
    let refusal = exact_neighbors(&base, &queries, Metric::L2, 3, threads(1), &part);
    assert!(matches!(refusal, Err(GroundTruthError::Cancelled)), "{refusal:?}");
    assert!(part.done.into_inner() < COUNT);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_floats_are_ranked_as_by_sorting(
        dim in 1usize..40,
        count in 1usize..150,
        metric in 0usize..2,
        spread in -20i32..20,
        seed in any::<u64>(),
    ) {
        let mut state = seed | 1;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 40) as f32 / (1 << 23) as f32 - 1.0) * 2f32.powi(spread)
        };
        let values: Vec<f32> = (0..count * dim).map(|_| next()).collect();
        let base = file(Element::F32, dim, &values);
        let queries = file(Element::F32, dim, &(0..5 * dim).map(|_| next()).collect::<Vec<_>>());
        let metric = [Metric::L2, Metric::Cosine][metric];
        let found = exact_neighbors(&base, &queries, metric, count.div_ceil(2), threads(2), &Silent).unwrap();
        assert_nearest(&base, &queries, metric, &found, false);
    }
}

/// Returns the folder of real data sets. If it is not set, tests on real data print that and pass.
fn data() -> Option<PathBuf> {
    let folder = std::env::var_os("BATHYAL_DATA").map(PathBuf::from);
    if folder.is_none() {
        println!("BATHYAL_DATA is not set: tests on real data sets are skipped");
    }
    folder
}

/// Compares with the ground truth in `folder`, for its first `count` queries.
fn compare_with_file(folder: &Path, extension: &str, count: usize, ids_equal: bool) {
    let base = VectorFile::open(folder.join(format!("base.{extension}"))).unwrap();
    let queries = VectorFile::open(folder.join(format!("query.{extension}"))).unwrap();
    let expected = IdFile::open(folder.join("gt100.ibin")).unwrap();
    expected.check_ids(base.count()).unwrap();
    let first = queries.rows(0..count).unwrap().to_vec();
    let first = VectorFile::from_rows(queries.element(), queries.dim(), first).unwrap();
    let found = exact_neighbors(&base, &first, Metric::L2, expected.k(), None, &Silent).unwrap();
    for query in 0..count {
        let (ours, theirs) = (found.distances(query).unwrap(), expected.distances(query).unwrap());
        for (a, b) in ours.iter().zip(theirs) {
            assert!((a - b).abs() <= 1e-5 * b.abs().max(0.01), "query {query}: {a} {b}");
        }
        if ids_equal {
            assert_eq!(found.ids(query), expected.ids(query), "query {query}");
            assert_eq!(ours, theirs);
        }
    }
}

#[test]
fn sift_agrees_with_its_ground_truth_file() {
    let Some(folder) = data() else { return };
    compare_with_file(&folder.join("sift-a"), "u8bin", 200, true);
}

#[test]
fn minilm_agrees_with_its_ground_truth_file() {
    let Some(folder) = data() else { return };
    compare_with_file(&folder.join("minilm-debian"), "fbin", 1000, false);
}
