//! Indexes that are resident on a graphics card with codes, links and vectors. They answer like an index
//! whose pages are in memory, and read nothing.

use super::{DIM, build_cluster, build_graph, card, open, options, pairs, real_card, scans, search, vectors};
use crate::cases::{case_runs, full_or_quick, quick_build};
use bathyal_gpu::Card;
use bathyal_index::families::graph::GraphLayoutChoice;
use bathyal_index::{
    BuildOptions, ClusterOptions, Index, OpenOptions, SearchMode, SearchOptions, StoreAs, TierChoice, build,
};
use bathyal_kernels::{Element, Metric};
use bathyal_simt::{EmulatedCard, EmulatedOptions};
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Silent;
use std::path::Path;
use std::sync::Arc;

/// Checks that searches of an index that is resident on a card equal those of an index whose pages are in
/// memory, but for the last bits of sums of floats.
fn check_resident(path: &Path, queries: &VectorFile, options: &[SearchOptions], what: &str) {
    let card = card();
    let opened =
        |card, tier| Index::open(path, &OpenOptions { card, tier, ..OpenOptions::default() }).unwrap();
    let in_memory = opened(None, TierChoice::Dram);
    let on_card = opened(Some(card.clone() as Arc<dyn Card>), TierChoice::Card);
    let real = real_card().map(|card| opened(Some(card), TierChoice::Card));
    let stored = in_memory.manifest().stored_element().unwrap();
    let exact = !queries.element().is_float() && in_memory.element() == stored;
    for options in options {
        let batched = SearchOptions { mode: Some(SearchMode::Batched), ..*options };
        let expected =
            search(&in_memory, queries, batched).or_else(|_| search(&in_memory, queries, *options)).unwrap();
        for index in std::iter::once(&on_card).chain(&real) {
            let found = search(index, queries, *options).unwrap();
            if exact {
                assert_eq!((&found.ids, &found.distances), (&expected.ids, &expected.distances), "{what}");
            }
            // Bounds the rounding of a sum of 40 products in another order.
            let near = |a: f32, b: f32| (a - b).abs() <= 1e-5 * (1.0 + a.abs().max(b.abs()));
            assert!(
                found.distances.iter().zip(&expected.distances).all(|(a, b)| near(*a, *b)),
                "{what}: {:?}, not {:?}",
                found.distances,
                expected.distances
            );
            let other = found.ids.iter().zip(&expected.ids).filter(|(a, b)| a != b).count();
            assert!(50 * other <= found.ids.len(), "{what}: {other} of {} are others", found.ids.len());
            let (of_card, of_memory) = (&found.totals, &expected.totals);
            assert_eq!((of_card.reads, of_card.bytes), (0, 0), "{what}");
            assert_eq!(of_card.full_distances, of_memory.full_distances, "{what}");
            let is_graph = in_memory.manifest().family == "graph";
            assert!(!is_graph || of_card.hops == of_memory.hops, "{what}");
        }
    }
    let counted = on_card.card().unwrap();
    assert!(counted.resident_bytes == card.taken_bytes(), "{what}: {counted:?}");
    assert_eq!(on_card.memory_split().pages, 0, "{what}");
    drop((in_memory, on_card));
    assert_eq!(card.taken_bytes(), 0, "{what}: all memory is released");
}

#[test]
fn an_index_that_is_resident_on_a_card_is_searched_there() {
    let dir = tempfile::tempdir().unwrap();
    let layouts = [GraphLayoutChoice::Padded, GraphLayoutChoice::Csr];
    for (number, (metric, element)) in pairs().enumerate() {
        let layout = layouts[number % 2];
        let path = dir.path().join(format!("graph{number}"));
        let queries = build_graph(&path, element, metric, layout);
        // Half of the elements take the first half of the options, and the others the second.
        let half = 2 * (number / 2 % 2);
        check_resident(
            &path,
            &queries,
            &options()[half..half + 2],
            &format!("{metric} {element} {layout:?}"),
        );
        let path = dir.path().join(format!("cluster{number}"));
        let queries = build_cluster(&path, element, metric);
        check_resident(&path, &queries, &scans()[half..half + 2], &format!("{metric} {element}"));
    }
    // Vectors in a smaller stored form.
    let smaller = Metric::ALL.into_iter().enumerate();
    let smaller = smaller.flat_map(|(at, metric)| {
        [StoreAs::I8, StoreAs::F16]
            .into_iter()
            .enumerate()
            .map(move |(form, store_as)| (at + form, metric, store_as))
    });
    // Each metric with a form, and each form with a metric.
    for (number, (_, metric, store_as)) in smaller.filter(|(at, ..)| case_runs(*at, 2)).enumerate() {
        let path = dir.path().join(format!("smaller{number}"));
        let family = ClusterOptions { group_vectors: 40, ..ClusterOptions::default() };
        let options = BuildOptions { metric, threads: 1, store_as: Some(store_as), ..quick_build(family) };
        build(&vectors(Element::F32, 1500, DIM, 1), &path, &options, &Silent).unwrap();
        let queries = vectors(Element::F32, full_or_quick(12, 6), DIM, 2);
        check_resident(&path, &queries, &scans()[..1], &format!("{metric} {store_as}"));
    }
}

#[test]
fn queries_far_from_all_vectors_are_answered_by_an_index_on_a_card() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    build_cluster(&path, Element::F32, Metric::L2);
    let far: Vec<u8> = (0..3 * DIM).flat_map(|at| [1e15_f32, -3e14, 1e-15][at / DIM].to_le_bytes()).collect();
    let queries = VectorFile::from_rows(Element::F32, DIM, far).unwrap();
    let options =
        OpenOptions { card: Some(card() as Arc<dyn Card>), tier: TierChoice::Card, ..OpenOptions::default() };
    let on_card = Index::open(&path, &options).unwrap();
    let found = search(&on_card, &queries, SearchOptions::default()).unwrap();
    let expected = search(&open(&path, None).unwrap(), &queries, SearchOptions::default()).unwrap();
    assert_eq!(found.ids.len(), expected.ids.len());
    assert!(found.ids.iter().all(|id| *id < 1500));
}

#[test]
fn indexes_that_cannot_be_resident_on_a_card_are_refused_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    build_cluster(&path, Element::F32, Metric::L2);
    let opened = |card: Option<Arc<dyn Card>>, path: &Path| {
        let options = OpenOptions { card, tier: TierChoice::Card, ..OpenOptions::default() };
        Index::open(path, &options).map(drop).unwrap_err().to_string()
    };
    let error = opened(None, &path);
    assert!(error.contains("the tier gpu") && error.contains("--device gpu"), "{error}");
    let wrapped = OpenOptions {
        card: Some(card() as Arc<dyn Card>),
        tier: TierChoice::Card,
        wrap: Some(Arc::new(Ok)),
        ..OpenOptions::default()
    };
    let error = Index::open(&path, &wrapped).map(drop).unwrap_err().to_string();
    assert!(error.contains("nothing is read") && error.contains("--delay"), "{error}");
    let local = dir.path().join("local");
    build_graph(&local, Element::F32, Metric::L2, GraphLayoutChoice::PageLocal);
    let error = opened(Some(card() as Arc<dyn Card>), &local);
    assert!(error.contains("page_local") && error.contains("--tier gpu"), "{error}");
    // The codes fit, the vectors do not.
    let little = EmulatedOptions { memory_bytes: 200_000, ..EmulatedOptions::default() };
    let error = opened(Some(Arc::new(EmulatedCard::new(little))), &path);
    assert!(error.contains("the vectors of the index (--tier gpu)"), "{error}");
    let vectors = path.join("vectors.bin");
    let mut bytes = std::fs::read(&vectors).unwrap();
    bytes[5000] ^= 1;
    std::fs::write(&vectors, bytes).unwrap();
    let error = opened(Some(card() as Arc<dyn Card>), &path);
    assert!(error.contains("checksum"), "{error}");
}
