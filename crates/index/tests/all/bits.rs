//! Vectors of bits in every family. Distances are numbers of bits, and queries may be given as bytes.

use crate::cases::quick_build;
use crate::clustered::vectors;
use bathyal_index::families::{self, FAMILIES};
use bathyal_index::{
    BuildOptions, CompactOptions, Effort, Index, IndexError, OpenOptions, RangeOptions, SearchOptions,
    TierChoice, build, compact, verify,
};
use bathyal_kernels::{Element, Metric};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::groundtruth::exact_neighbors;
use bathyal_vectors::progress::Silent;
use std::path::Path;

const BYTES: usize = 32;
const K: usize = 10;

/// Returns vectors of bits as vectors of bytes.
fn as_bytes(bits: &VectorFile) -> VectorFile {
    let rows = (0..bits.count()).flat_map(|row| bits.row(row)).copied().collect();
    VectorFile::from_rows(Element::U8, bits.row_bytes(), rows).unwrap()
}

fn hamming(a: &[u8], b: &[u8]) -> f32 {
    a.iter().zip(b).map(|(x, y)| (x ^ y).count_ones()).sum::<u32>() as f32
}

fn options(family: &str, metric: Metric) -> BuildOptions {
    let family = families::options(family, &Default::default()).unwrap();
    BuildOptions { metric, threads: 2, ..quick_build(family) }
}

fn open(path: &Path, tier: TierChoice) -> Index {
    Index::open(path, &OpenOptions { tier, ..OpenOptions::default() }).unwrap()
}

#[test]
fn every_family_finds_the_vectors_that_differ_in_the_fewest_bits() {
    let dir = tempfile::tempdir().unwrap();
    let (data, queries) = (vectors(Element::B1, 3000, BYTES, 1), vectors(Element::B1, 40, BYTES, 2));
    assert_eq!((data.dim(), data.row_bytes()), (8 * BYTES, BYTES));
    let truth = exact_neighbors(&data, &queries, Metric::L2, K, None, &Silent).unwrap();
    for family in FAMILIES {
        let path = dir.path().join(family.name);
        let report = build(&data, &path, &options(family.name, Metric::L2), &Silent).unwrap();
        assert_eq!((&*report.metric, &*report.element, report.data_bytes), ("hamming", "b1", 3000 * 32));
        assert!(verify(&path, &Silent).unwrap().sound, "{}", family.name);
        for tier in [TierChoice::File, TierChoice::Dram] {
            let (what, index) = (format!("{} {tier}", family.name), open(&path, tier));
            assert_eq!((index.dim(), index.element()), (8 * BYTES, Element::B1));
            let options = SearchOptions { k: K, effort: Effort::Recall(0.95), ..SearchOptions::default() };
            let found = index.search(&queries, &options, Control::default()).unwrap();
            let mut near = 0;
            for (query, (ids, distances)) in found.ids.chunks(K).zip(found.distances.chunks(K)).enumerate() {
                assert!(distances.is_sorted(), "{what}");
                let last = truth.distances(query).unwrap()[K - 1];
                near += distances.iter().filter(|distance| **distance <= last).count();
                for (id, distance) in ids.iter().zip(distances) {
                    assert_eq!(*distance, hamming(queries.row(query), data.row(*id as usize)), "{what}");
                }
            }
            let recall = near as f64 / found.ids.len() as f64;
            assert!(recall >= 0.9, "{what}: recall {recall}");
            let by_bytes = index.search(&as_bytes(&queries), &options, Control::default()).unwrap();
            assert_eq!((by_bytes.ids, by_bytes.distances), (found.ids, found.distances), "{what}");
            assert!(index.warm(&options, Control::default()).unwrap().queries > 0, "{what}");
            index.explain(&queries, 3, &options, Control::default()).unwrap();
        }
    }
}

#[test]
fn range_searches_of_bits_find_all_vectors_in_range() {
    let dir = tempfile::tempdir().unwrap();
    let (data, queries) = (vectors(Element::B1, 2000, BYTES, 3), vectors(Element::B1, 20, BYTES, 4));
    for family in ["cluster", "graph", "flat"] {
        let path = dir.path().join(family);
        build(&data, &path, &options(family, Metric::L2), &Silent).unwrap();
        let radius = 40.0;
        let found = open(&path, TierChoice::File)
            .range_search(&as_bytes(&queries), radius, &RangeOptions::default(), Control::default())
            .unwrap();
        let mut within = 0;
        for query in 0..queries.count() {
            let distances = (0..data.count()).map(|row| hamming(queries.row(query), data.row(row)));
            within += distances.filter(|distance| *distance <= radius).count();
        }
        assert!(within > 0 && found.distances.iter().all(|distance| *distance <= radius), "{family}");
        assert!(found.ids.len() as f64 >= 0.9 * within as f64, "{family}: {} of {within}", found.ids.len());
    }
}

#[test]
fn bits_are_inserted_deleted_and_compacted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    let all = vectors(Element::B1, 700, BYTES, 5);
    let part = |rows: std::ops::Range<usize>| {
        VectorFile::from_rows(Element::B1, all.dim(), all.rows(rows).unwrap().to_vec()).unwrap()
    };
    let options = quick_build(families::options("lsh", &Default::default()).unwrap());
    build(&part(0..600), &path, &options, &Silent).unwrap();
    let index = open(&path, TierChoice::File);
    assert_eq!(index.insert(&as_bytes(&part(600..700))).unwrap(), 600..700);
    assert_eq!(index.delete(&[5, 650]).unwrap(), 2);
    let nearest = |index: &Index, row: usize| {
        let options = SearchOptions { k: 1, effort: Effort::Recall(0.99), ..SearchOptions::default() };
        let found = index.search(&part(row..row + 1), &options, Control::default()).unwrap();
        (found.ids[0], found.distances[0])
    };
    assert_eq!(nearest(&index, 620), (620, 0.0));
    assert_ne!(nearest(&index, 650).0, 650);
    drop(index);
    compact(&path, &CompactOptions::default(), &Silent).unwrap();
    let index = open(&path, TierChoice::File);
    assert_eq!((index.len(), nearest(&index, 620).1), (698, 0.0));
}

#[test]
fn queries_and_zeros_that_do_not_fit_an_index_of_bits_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    build(&vectors(Element::B1, 300, BYTES, 6), &path, &options("cluster", Metric::L2), &Silent).unwrap();
    let index = open(&path, TierChoice::File);
    let refused = |queries: &VectorFile| {
        let refused = index.search(queries, &SearchOptions::default(), Control::default()).unwrap_err();
        assert!(matches!(refused, IndexError::Parameter(_)), "{refused}");
        refused.to_string()
    };
    let message = refused(&vectors(Element::U8, 2, BYTES + 1, 7));
    assert!(message.contains("264 dimensions, the index has 256"), "{message}");
    let message = refused(&vectors(Element::F32, 2, 8 * BYTES, 7));
    assert!(message.contains("are f32, the index holds b1"), "{message}");
    // Vectors of zeros have distances, but no direction.
    for (element, dim) in [(Element::B1, 64), (Element::Bf16, 4), (Element::U8, 8)] {
        let zeros = VectorFile::from_rows(element, dim, vec![0; 80]).unwrap();
        for family in FAMILIES {
            let options = BuildOptions { overwrite: true, ..options(family.name, Metric::L2) };
            build(&zeros, &path, &options, &Silent).unwrap();
            let refused = build(&zeros, &path, &BuildOptions { metric: Metric::Cosine, ..options }, &Silent);
            let message = refused.expect_err(family.name).to_string();
            assert!(message.contains("all zeros"), "{} of {element}: {message}", family.name);
        }
    }
}
