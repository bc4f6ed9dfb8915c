//! Builds of graphs in parts, because their memory does not hold all vectors.

use crate::cases::{case_runs, full_or_quick, quick_build};
use crate::clustered::vectors;
use crate::progress::StageLog;
use bathyal_index::build::planned_memory;
use bathyal_index::{
    BuildOptions, BuildReport, Effort, GraphLayoutChoice, GraphOptions, Index, IndexError, OpenOptions,
    SearchOptions, SearchResult, build, inspect, verify,
};
use bathyal_kernels::{Element, Metric};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::groundtruth::exact_neighbors;
use bathyal_vectors::progress::Silent;
use std::path::Path;

fn options(metric: Metric) -> BuildOptions {
    let family = GraphOptions { max_degree: 24, search_list: 50, ..GraphOptions::default() };
    BuildOptions { metric, threads: 1, overwrite: true, ..quick_build(family) }
}

/// Returns the options with the smallest budget, which divides the set.
fn in_smallest_budget(data: &VectorFile, options: BuildOptions) -> BuildOptions {
    let least = planned_memory(data, &BuildOptions { memory_bytes: Some(1), ..options.clone() });
    assert!(least < planned_memory(data, &options));
    BuildOptions { memory_bytes: Some(least), ..options }
}

/// Builds an index, and checks that it was built in parts.
fn in_parts(data: &VectorFile, path: &Path, options: &BuildOptions) -> BuildReport {
    let stages = StageLog::default();
    let report = build(data, path, options, &stages).unwrap();
    assert_eq!(stages.steps("growing parts"), Some(2 * data.count() as u64), "each vector is in two parts");
    report
}

fn search(path: &Path, queries: &VectorFile, k: usize, list: u32) -> SearchResult {
    let options =
        SearchOptions { k, effort: Effort::SearchList(list), threads: 1, ..SearchOptions::default() };
    let index = Index::open(path, &OpenOptions::default()).unwrap();
    index.search(queries, &options, Control::default()).unwrap()
}

#[test]
fn a_build_in_parts_reaches_the_same_recall() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, parts) = (dir.path().join("whole"), dir.path().join("parts"));
    let pairs = [
        (Metric::L2, Element::U8),
        (Metric::Cosine, Element::F32),
        (Metric::InnerProduct, Element::F16),
        (Metric::Cosine, Element::I8),
    ];
    for (_, (metric, element)) in pairs.into_iter().enumerate().filter(|(number, _)| case_runs(*number, 2)) {
        let count = full_or_quick(6000, 3000);
        let (data, queries) = (vectors(element, count, 24, 1), vectors(element, 100, 24, 2));
        let truth = exact_neighbors(&data, &queries, metric, 10, None, &Silent).unwrap();
        let whole_report = build(&data, &whole, &options(metric), &Silent).unwrap();
        let options = in_smallest_budget(&data, options(metric));
        let of_parts = in_parts(&data, &parts, &options);
        assert!(of_parts.planned_memory_bytes <= options.memory_bytes.unwrap());
        assert_eq!((of_parts.index_bytes, of_parts.vectors), (whole_report.index_bytes, count as u64));
        let recall = [&whole, &parts].map(|path| {
            let found = search(path, &queries, 10, 40);
            let hits = found.ids.chunks(10).enumerate();
            hits.map(|(q, row)| truth.ids(q).iter().filter(|id| row.contains(id)).count()).sum::<usize>()
        });
        println!("{metric} {element}: {recall:?} of 1000");
        assert!(recall[1] + 15 >= recall[0] && recall[1] >= 950, "{metric} {element}: {recall:?} of 1000");
        let verified = verify(&parts, &Silent).unwrap();
        assert!(verified.sound, "{verified:?}");
        let links = of_parts.details["mean_degree"].as_f64().unwrap() * count as f64;
        assert_eq!(verified.links as f64, links.round());
        // All vectors are reachable: a candidate list for all of them finds all.
        let all = search(&parts, &vectors(element, 1, 24, 5), count, count as u32);
        let mut ids = all.ids;
        ids.sort_unstable();
        assert!(ids.iter().copied().eq(0..count as u32), "{metric} {element}");
    }
}

#[test]
fn one_seed_and_one_thread_give_one_graph() {
    let dir = tempfile::tempdir().unwrap();
    let data = vectors(Element::U8, full_or_quick(3000, 1500), 16, 1);
    let built = ["a", "b"].map(|name| {
        let path = dir.path().join(name);
        in_parts(&data, &path, &in_smallest_budget(&data, options(Metric::L2)));
        inspect(&path, &Silent).unwrap().manifest
    });
    assert_eq!(built[0].identity, built[1].identity);
    assert_eq!(built[0].files, built[1].files);
}

/// Equal vectors, which no plane divides, and vectors in tight clusters far apart, whose parts no link
/// connects by itself.
#[test]
fn every_vector_is_reached() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    let clusters = (0..2500_u32).flat_map(|i| {
        let cluster = (i % 5) as f32 * 1e6;
        [[cluster + (i / 5) as f32 * 1e-3, cluster, (i % 7) as f32 * 1e-3, 0.0]; 8].concat()
    });
    let clusters: Vec<u8> = clusters.flat_map(f32::to_le_bytes).collect();
    let sets = [
        VectorFile::from_rows(Element::F32, 32, clusters).unwrap(),
        VectorFile::from_rows(Element::U8, 32, vec![9; 32 * 2500]).unwrap(),
    ];
    for (number, data) in sets.into_iter().enumerate() {
        let degrees = [4, 16].into_iter().enumerate();
        for (_, max_degree) in degrees.filter(|(at, _)| case_runs(number + at, 2)) {
            let family = GraphOptions { max_degree, search_list: 20, ..GraphOptions::default() };
            let options = BuildOptions { overwrite: true, ..quick_build(family) };
            in_parts(&data, &path, &in_smallest_budget(&data, options));
            let verified = verify(&path, &Silent).unwrap();
            assert!(verified.sound, "{verified:?}");
            let query = VectorFile::from_rows(data.element(), 32, data.row(7).to_vec()).unwrap();
            let mut ids = search(&path, &query, 2500, 2500).ids;
            ids.sort_unstable();
            assert!(ids.iter().copied().eq(0..2500), "degree {max_degree}");
        }
    }
}

#[test]
fn a_refused_layout_advises_one_that_takes_less_memory() {
    let dir = tempfile::tempdir().unwrap();
    let data = vectors(Element::U8, 3000, 16, 1);
    for layout in [GraphLayoutChoice::PageLocal, GraphLayoutChoice::Csr] {
        let family = GraphOptions { layout, ..GraphOptions::default() };
        let options = BuildOptions { memory_bytes: Some(1 << 20), ..quick_build(family) };
        let refused = build(&data, &dir.path().join("index"), &options, &Silent).unwrap_err();
        let IndexError::Memory { ref advice, .. } = refused else { panic!("{refused}") };
        assert!(advice.contains("padded") && advice.contains("convert"), "{refused}");
    }
}
