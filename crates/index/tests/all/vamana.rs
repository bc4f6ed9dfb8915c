//! The graph index end to end: built, opened from every tier, searched, checked.

use crate::cases::{CaseSelection, case_runs, full_or_quick, quick_build};
use crate::clustered::vectors;
use bathyal_index::families::graph::GraphEntry;
use bathyal_index::{
    BuildOptions, Effort, GraphLayoutChoice, GraphOptions, Index, OpenOptions, QueryStats, SearchMode,
    SearchOptions, SearchResult, TierChoice, build, inspect, verify,
};
use bathyal_kernels::{Element, Metric};
use bathyal_tier::Control;
use bathyal_vectors::groundtruth::exact_neighbors;
use bathyal_vectors::progress::Silent;
use bathyal_vectors::{IdFile, VectorFile};
use rand::{Rng, SeedableRng};
use std::path::Path;

fn graph(layout: GraphLayoutChoice) -> GraphOptions {
    GraphOptions { layout, max_degree: 24, search_list: 50, ..GraphOptions::default() }
}

fn small(metric: Metric, layout: GraphLayoutChoice) -> BuildOptions {
    BuildOptions { metric, threads: 2, ..quick_build(graph(layout)) }
}

const LAYOUTS: [GraphLayoutChoice; 3] =
    [GraphLayoutChoice::Padded, GraphLayoutChoice::PageLocal, GraphLayoutChoice::Csr];

fn open(path: &Path, tier: TierChoice) -> Index {
    Index::open(path, &OpenOptions { tier, ..OpenOptions::default() }).unwrap()
}

fn search(index: &Index, queries: &VectorFile, k: usize, effort: Effort) -> SearchResult {
    let options = SearchOptions { k, effort, threads: 2, ..SearchOptions::default() };
    index.search(queries, &options, Control::default()).unwrap()
}

/// Returns the counters of each query. Bytes are left out if tiers do not read whole pages.
fn without_bytes(found: &SearchResult, layout: GraphLayoutChoice) -> Vec<QueryStats> {
    let bytes = |stats: &QueryStats| if layout == GraphLayoutChoice::Csr { 0 } else { stats.bytes };
    found.per_query.iter().map(|stats| QueryStats { bytes: bytes(stats), ..*stats }).collect()
}

fn recall(found: &SearchResult, truth: &IdFile) -> f64 {
    let queries = found.ids.len() / found.k;
    let hits: usize = (0..queries)
        .map(|q| {
            truth.ids(q)[..found.k]
                .iter()
                .filter(|id| found.ids[q * found.k..][..found.k].contains(id))
                .count()
        })
        .sum();
    hits as f64 / found.ids.len() as f64
}

#[test]
fn every_metric_and_element_reaches_its_recall_on_every_tier_alike() {
    let dir = tempfile::tempdir().unwrap();
    let mut cases = CaseSelection::one_in(7);
    for metric in [Metric::L2, Metric::InnerProduct, Metric::Cosine] {
        for (element, layout) in Element::ALL.into_iter().flat_map(|e| LAYOUTS.map(|layout| (e, layout))) {
            if !cases.next_runs() {
                continue;
            }
            let count = full_or_quick(2000, 1200);
            let (data, queries) = (vectors(element, count, 24, 1), vectors(element, 60, 24, 2));
            let path = dir.path().join(format!("{metric}-{element}-{layout:?}"));
            // On one thread, so that the recall is the same in every run.
            build(&data, &path, &BuildOptions { threads: 1, ..small(metric, layout) }, &Silent).unwrap();
            let truth = exact_neighbors(&data, &queries, metric, 10, None, &Silent).unwrap();
            let (file, dram) = (open(&path, TierChoice::File), open(&path, TierChoice::Dram));
            let found = search(&file, &queries, 10, Effort::SearchList(100));
            let recall = recall(&found, &truth);
            assert!(recall >= 0.97, "{metric} {element} {layout:?}: recall {recall}");
            let again = search(&dram, &queries, 10, Effort::SearchList(100));
            assert_eq!(found.ids, again.ids, "{metric} {element}");
            assert_eq!(found.distances, again.distances);
            assert_eq!(without_bytes(&found, layout), without_bytes(&again, layout));
            for (q, row) in found.distances.chunks(10).enumerate() {
                assert!(row.is_sorted(), "{metric} {element} query {q}: {row:?}");
                let exact = truth.distances(q).unwrap();
                for (id, distance) in found.ids[q * 10..].iter().zip(row) {
                    if let Some(rank) = truth.ids(q).iter().position(|true_id| true_id == id) {
                        let error = (distance - exact[rank]).abs();
                        assert!(error <= 1e-2 * exact[rank].abs().max(0.1), "{metric} {element}: {distance}");
                    }
                }
            }
            assert!(verify(&path, &Silent).unwrap().sound);
            assert_eq!(inspect(&path, &Silent).unwrap().manifest.vectors, count as u64);
        }
    }
}

#[test]
fn pipelined_searches_reach_the_same_recall() {
    let dir = tempfile::tempdir().unwrap();
    let (data, queries) = (vectors(Element::U8, 3000, 32, 1), vectors(Element::U8, 100, 32, 2));
    let path = dir.path().join("index");
    let truth = exact_neighbors(&data, &queries, Metric::L2, 10, None, &Silent).unwrap();
    for (layout, tier) in LAYOUTS.into_iter().zip([TierChoice::File, TierChoice::Dram, TierChoice::File]) {
        let build_options = BuildOptions { overwrite: true, ..small(Metric::L2, layout) };
        build(&data, &path, &build_options, &Silent).unwrap();
        let options = SearchOptions {
            effort: Effort::SearchList(60),
            mode: Some(SearchMode::Pipelined),
            ..SearchOptions::default()
        };
        let found = open(&path, tier).search(&queries, &options, Control::default()).unwrap();
        assert!(recall(&found, &truth) >= 0.97);
    }
}

#[test]
fn the_effort_for_a_recall_reaches_it() {
    let dir = tempfile::tempdir().unwrap();
    let (data, queries) =
        (vectors(Element::F32, full_or_quick(8000, 4000), 48, 1), vectors(Element::F32, 1000, 48, 2));
    let path = dir.path().join("index");
    // On one thread, so that the recall is the same in every run.
    let truth = exact_neighbors(&data, &queries, Metric::L2, 10, None, &Silent).unwrap();
    for layout in LAYOUTS {
        let family = GraphOptions { code_bytes: Some(8), ..graph(layout) };
        let options = BuildOptions { threads: 1, overwrite: true, ..BuildOptions::of(family) };
        build(&data, &path, &options, &Silent).unwrap();
        let index = open(&path, TierChoice::Dram);
        let curves = GraphEntry::read(index.manifest()).unwrap().calibration.curves;
        let least = curves.iter().find(|curve| curve.k == 10).unwrap().points[0].recall;
        for asked in [0.8, 0.9, 0.95, 0.99] {
            let found = search(&index, &queries, 10, Effort::Recall(asked));
            let recall = recall(&found, &truth);
            // In well separated clusters a query finds all or no neighbours, so that the recall varies by
            // 0.02 and more. The least effort may find more than was requested.
            let error = recall - f64::from(asked.max(least));
            println!("{layout:?}: asked {asked}, got {recall} at {}", found.search_list);
            assert!((-0.04..=0.04).contains(&error), "asked {asked}, got {recall} at {}", found.search_list);
        }
    }
}

#[test]
fn sets_of_odd_sizes_are_found_completely() {
    let dir = tempfile::tempdir().unwrap();
    for (name, data) in [
        ("one", vectors(Element::F32, 1, 7, 3)),
        ("two", vectors(Element::U8, 2, 1, 3)),
        ("few", vectors(Element::I8, 11, 3, 3)),
        ("equal", VectorFile::from_rows(Element::U8, 4, vec![9; 4 * 500]).unwrap()),
        // Vectors longer than a page.
        ("wide", vectors(Element::F32, 30, full_or_quick(3000, 1100), 3)),
        ("zeros", VectorFile::from_rows(Element::F32, 4, vec![0; 16 * 100]).unwrap()),
    ] {
        let n = data.count();
        let queries = data.rows(0..n.min(full_or_quick(usize::MAX, 60))).unwrap().to_vec();
        let queries = VectorFile::from_rows(data.element(), data.dim(), queries).unwrap();
        for layout in LAYOUTS {
            let path = dir.path().join(format!("{name}-{layout:?}"));
            build(&data, &path, &small(Metric::L2, layout), &Silent).unwrap();
            assert!(verify(&path, &Silent).unwrap().sound, "{name} {layout:?}");
            let indexes = [TierChoice::File, TierChoice::Dram].map(|tier| open(&path, tier));
            let efforts = [(n, Effort::SearchList(n as u32)), (n + 5, Effort::Recall(0.9))];
            for (index, (k, effort)) in indexes.iter().flat_map(|index| efforts.map(|effort| (index, effort)))
            {
                let found = search(index, &queries, k, effort);
                assert_eq!(found.k, n, "{name}");
                assert_eq!(found.notes.iter().any(|note| note.contains("only")), k > n);
                for row in found.ids.chunks(n) {
                    let mut ids = row.to_vec();
                    ids.sort_unstable();
                    assert!(ids.iter().copied().eq(0..n as u32), "{name}: {ids:?}");
                }
            }
        }
    }
}

#[test]
fn one_thread_and_one_seed_give_one_index() {
    let dir = tempfile::tempdir().unwrap();
    let data = vectors(Element::F32, full_or_quick(1500, 700), 16, 1);
    for layout in LAYOUTS {
        let options = BuildOptions { threads: 1, overwrite: true, ..small(Metric::L2, layout) };
        let graphs: Vec<Vec<u8>> = ["a", "b"]
            .map(|name| {
                build(&data, &dir.path().join(name), &options, &Silent).unwrap();
                std::fs::read(dir.path().join(name).join("graph.bin")).unwrap()
            })
            .to_vec();
        assert!(graphs[0] == graphs[1], "{layout:?}");
    }
}

#[test]
fn full_lists_leave_every_vector_reachable() {
    let dir = tempfile::tempdir().unwrap();
    // In many dimensions no link is pruned. Every list is full, and some vectors are in no list.
    let mut random = rand::rngs::StdRng::seed_from_u64(5);
    let rows = (0..1500 * 128).map(|_| random.random_range(0..=255_u8)).collect();
    let data = VectorFile::from_rows(Element::U8, 128, rows).unwrap();
    let all = [2, 4, 8].into_iter().flat_map(|degree| LAYOUTS.map(|layout| (degree, layout))).enumerate();
    for (_, (max_degree, layout)) in all.filter(|(number, _)| case_runs(*number, 2)) {
        let path = dir.path().join(format!("{max_degree}-{layout:?}"));
        let family = GraphOptions { layout, max_degree, search_list: 10, ..GraphOptions::default() };
        let options = BuildOptions { threads: 2, ..quick_build(family) };
        build(&data, &path, &options, &Silent).unwrap();
        let queries = VectorFile::from_rows(Element::U8, 128, data.row(7).to_vec()).unwrap();
        let found = search(&open(&path, TierChoice::Dram), &queries, 1500, Effort::SearchList(1500));
        let mut ids = found.ids;
        ids.sort_unstable();
        assert!(ids.into_iter().eq(0..1500), "max_degree {max_degree}");
        assert!(verify(&path, &Silent).unwrap().sound);
    }
}

#[test]
fn callers_on_several_threads_get_their_own_answers() {
    let dir = tempfile::tempdir().unwrap();
    let data = vectors(Element::U8, 1000, 16, 1);
    let path = dir.path().join("index");
    build(&data, &path, &small(Metric::L2, GraphLayoutChoice::Padded), &Silent).unwrap();
    let index = open(&path, TierChoice::File);
    std::thread::scope(|scope| {
        for seed in 10..16 {
            let (index, path) = (&index, &path);
            scope.spawn(move || {
                let queries = vectors(Element::U8, 40, 16, seed);
                let alone = search(&open(path, TierChoice::Dram), &queries, 10, Effort::SearchList(40));
                for _ in 0..5 {
                    assert_eq!(search(index, &queries, 10, Effort::SearchList(40)).ids, alone.ids);
                }
            });
        }
    });
    let raised = std::sync::atomic::AtomicBool::new(true);
    let count = full_or_quick(20_000, 4000);
    let many = vectors(Element::U8, count, 16, 3);
    let options = SearchOptions { effort: Effort::SearchList(900), ..SearchOptions::default() };
    let stopped = index.search(&many, &options, Control { cancel: Some(&raised), deadline: None });
    assert!(matches!(stopped, Err(bathyal_index::IndexError::Cancelled)));
    let deadline = Some(std::time::Instant::now());
    let late = index.search(&many, &options, Control { cancel: None, deadline });
    assert!(matches!(late, Err(bathyal_index::IndexError::Deadline)));
    assert_eq!(search(&index, &many, 10, Effort::SearchList(20)).ids.len(), 10 * count);
}
