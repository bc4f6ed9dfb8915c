//! Sets with repeated vectors. The recall is measured by distance, because all copies of a vector are equally
//! near.

use crate::cases::{CaseSelection, full_or_quick, quick_build};
use crate::clustered::vectors;
use crate::families::kinds::KINDS;
use bathyal_index::families::partitioned::PartitionedOptions;
use bathyal_index::{
    BuildOptions, Effort, Index, OpenOptions, SearchMode, SearchOptions, SearchResult, build, verify,
};
use bathyal_kernels::{Element, Metric};
use bathyal_tier::Control;
use bathyal_vectors::groundtruth::exact_neighbors;
use bathyal_vectors::progress::Silent;
use bathyal_vectors::{IdFile, VectorFile};
use rand::SeedableRng;
use rand::seq::SliceRandom;

const DIM: usize = 24;
/// Largest relative difference to the true distance. Arithmetic differs between the two.
const TOLERANCE: f32 = 1e-3;

/// Returns sets of repeated vectors, with a name of how they repeat.
fn sets(element: Element) -> Vec<(&'static str, VectorFile)> {
    let repeated = |distinct: usize, times: &dyn Fn(usize) -> usize| {
        let data = vectors(element, distinct, DIM, 1);
        let row_bytes = data.row_bytes();
        let mut order: Vec<usize> =
            (0..distinct).flat_map(|row| std::iter::repeat_n(row, times(row))).collect();
        order.shuffle(&mut rand::rngs::StdRng::seed_from_u64(4));
        let rows = order.iter().flat_map(|row| data.row(*row)[..row_bytes].to_vec()).collect();
        VectorFile::from_rows(element, data.dim(), rows).unwrap()
    };
    vec![
        ("twice", repeated(500, &|_| 2)),
        ("20 times", repeated(50, &|_| 20)),
        ("half one vector", repeated(500, &|row| if row == 7 { 500 } else { 1 })),
        ("all equal", repeated(1, &|_| 700)),
    ]
}

/// Returns the share of the `k` neighbours that are at most as far away as the k-th true neighbour. Checks
/// that the ids of a query are distinct.
fn recall_by_distance(found: &SearchResult, truth: &IdFile) -> f64 {
    let (k, mut near) = (found.k, 0);
    for (query, (ids, distances)) in found.ids.chunks(k).zip(found.distances.chunks(k)).enumerate() {
        let mut distinct = ids.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), k, "query {query}: {ids:?}");
        let last = truth.distances(query).unwrap()[k - 1];
        let limit = last + TOLERANCE * last.abs().max(0.1);
        near += distances.iter().filter(|distance| **distance <= limit).count();
    }
    near as f64 / found.ids.len() as f64
}

/// Recall that searches request, and the least recall that the test accepts. Queries differ from those of the
/// calibration.
const REQUESTED_RECALL: f32 = 0.95;
const LEAST_RECALL: f64 = 0.92;

/// Returns rows of the set, and vectors that are not in the set.
fn queries(data: &VectorFile, count: usize) -> [(&'static str, VectorFile); 2] {
    let rows = (0..count).flat_map(|at| data.row(at * data.count() / count).to_vec()).collect();
    let own = VectorFile::from_rows(data.element(), data.dim(), rows).unwrap();
    [("rows of the set", own), ("others", vectors(data.element(), count, DIM, 2))]
}

/// Checks that searches find `k` distinct ids at a recall of at least `least`.
fn check(index: &Index, data: &VectorFile, options: &SearchOptions, least: f64, what: &str) {
    // Few queries are enough if each has many neighbours.
    let count = if options.k > 50 { full_or_quick(80, 16) } else { 80 };
    for (whose, queries) in queries(data, count) {
        let truth = exact_neighbors(data, &queries, index.metric(), options.k, None, &Silent).unwrap();
        let found = index.search(&queries, options, Control::default());
        let found = found.unwrap_or_else(|e| panic!("{what}, {whose}: {e}"));
        assert_eq!(found.k, options.k, "{what}");
        let recall = recall_by_distance(&found, &truth);
        assert!(recall >= least, "{what}, {whose}, k {}: {recall}", options.k);
    }
}

#[test]
fn repeated_vectors_are_found_by_every_family() {
    let mut cases = CaseSelection::one_in(7);
    for metric in Metric::ALL {
        for (name, data) in sets(Element::F32) {
            let dir = tempfile::tempdir().unwrap();
            for kind in KINDS.into_iter().filter(|_| cases.next_runs()) {
                let what = format!("{name}, {metric} {}", kind.name);
                let path = dir.path().join(kind.name);
                kind.build(&path, &data, metric);
                let index = Index::open(&path, &OpenOptions::default()).unwrap();
                check(&index, &data, &kind.search_options(SearchMode::Batched), LEAST_RECALL, &what);
                // More neighbours than a vector has copies, and all vectors.
                for k in [100, data.count()] {
                    let effort = kind.effort(2 * k as u32);
                    let options = SearchOptions { k, effort, ..SearchOptions::default() };
                    check(&index, &data, &options, if k == 100 { 0.0 } else { 1.0 }, &what);
                }
            }
        }
    }
}

#[test]
fn partitions_of_repeated_vectors_reach_the_requested_recall() {
    let mut cases = CaseSelection::one_in(5);
    for metric in Metric::ALL {
        for element in [Element::F32, Element::U8] {
            for (name, data) in sets(element) {
                if !cases.next_runs() {
                    continue;
                }
                let dir = tempfile::tempdir().unwrap();
                // One partition that is larger than the set, and several.
                for partition_vectors in [2000, 250] {
                    let what = format!("{name}, {metric} {element}, partitions of {partition_vectors}");
                    let path = dir.path().join(partition_vectors.to_string());
                    let own = PartitionedOptions { partition_vectors, ..PartitionedOptions::default() };
                    let options = BuildOptions { metric, ..quick_build(own) };
                    build(&data, &path, &options, &Silent).unwrap();
                    assert!(verify(&path, &Silent).unwrap().sound, "{what}");
                    let index = Index::open(&path, &OpenOptions::default()).unwrap();
                    // More neighbours than a vector has copies. The nearest neighbours of a held-out vector
                    // are its copies, and queries without copies are harder than that.
                    let copies = if name == "20 times" { 20 } else { 2 };
                    for k in [10, 50].into_iter().filter(|k| *k > copies) {
                        let effort = Effort::Recall(REQUESTED_RECALL);
                        let options = SearchOptions { k, effort, ..SearchOptions::default() };
                        check(&index, &data, &options, LEAST_RECALL, &what);
                    }
                }
            }
        }
    }
}
