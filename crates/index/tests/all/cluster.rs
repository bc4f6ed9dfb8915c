//! The cluster index end to end: built, opened from every tier, searched, checked.

use crate::cases::{case_runs, full_or_quick, quick_build};
use crate::clustered::vectors;
use bathyal_index::families::cluster::ClusterEntry;
use bathyal_index::{
    BuildOptions, ClusterOptions, Effort, FamilyOptions, GraphOptions, Index, IndexError, OpenOptions,
    SearchMode, SearchOptions, SearchResult, TierChoice, build, inspect, verify,
};
use bathyal_kernels::quantize::CodeKind;
use bathyal_kernels::{Element, Metric};
use bathyal_tier::Control;
use bathyal_vectors::groundtruth::exact_neighbors;
use bathyal_vectors::progress::Silent;
use bathyal_vectors::{IdFile, VectorFile};
use std::path::Path;

fn options(metric: Metric) -> BuildOptions {
    options_of(metric, ClusterOptions::default())
}

fn options_of(metric: Metric, family: ClusterOptions) -> BuildOptions {
    BuildOptions { metric, threads: 2, ..quick_build(family) }
}

fn open(path: &Path, tier: TierChoice) -> Index {
    Index::open(path, &OpenOptions { tier, ..OpenOptions::default() }).unwrap()
}

fn search(index: &Index, queries: &VectorFile, k: usize, effort: Effort) -> SearchResult {
    let options = SearchOptions { k, effort, threads: 2, ..SearchOptions::default() };
    index.search(queries, &options, Control::default()).unwrap()
}

fn recall(found: &SearchResult, truth: &IdFile) -> f64 {
    let rows = found.ids.chunks(found.k).enumerate();
    let hits: usize =
        rows.map(|(q, row)| truth.ids(q)[..found.k].iter().filter(|id| row.contains(id)).count()).sum();
    hits as f64 / found.ids.len() as f64
}

#[test]
fn every_metric_and_element_reaches_its_recall_on_every_tier_alike() {
    let dir = tempfile::tempdir().unwrap();
    for (at, metric) in [Metric::L2, Metric::InnerProduct, Metric::Cosine].into_iter().enumerate() {
        // Each element occurs with one metric.
        for (_, element) in (at..).zip(Element::ALL).filter(|(number, _)| case_runs(*number, 3)) {
            let (data, queries) = (vectors(element, 2000, 24, 1), vectors(element, 60, 24, 2));
            let path = dir.path().join(format!("{metric}-{element}"));
            build(&data, &path, &options(metric), &Silent).unwrap();
            let truth = exact_neighbors(&data, &queries, metric, 10, None, &Silent).unwrap();
            let (file, dram) = (open(&path, TierChoice::File), open(&path, TierChoice::Dram));
            for (list, floor) in [(10, 0.85), (40, 0.97), (100, 0.99)] {
                let found = search(&file, &queries, 10, Effort::SearchList(list));
                let recall = recall(&found, &truth);
                println!("{metric} {element} {list}: {recall} {:?}", found.totals);
                assert!(recall >= floor, "{metric} {element}: recall {recall} at {list}");
                check_distances(&found, &truth, &format!("{metric} {element}"));
                let loaded = search(&dram, &queries, 10, Effort::SearchList(list));
                check_distances(&loaded, &truth, &format!("{metric} {element} in memory"));
                check_single_reads(&loaded, &found, list);
            }
            let report = verify(&path, &Silent).unwrap();
            assert!(report.sound && report.vectors == 2000 && report.links == 0, "{report:?}");
            let about = inspect(&path, &Silent).unwrap();
            assert_eq!(about.manifest.vectors, 2000);
            let about = about.description;
            let groups = about.facts.iter().find(|fact| fact.name == "groups").unwrap();
            assert!(groups.value.as_u64() >= Some(10), "{:?}", about.facts);
            assert!((0.0..0.5).contains(&about.padding_share), "{}", about.padding_share);
        }
    }
}

/// Searches of memory read single candidates, and compare no other vectors of their pages. Their neighbours
/// are not nearer than those of searches that read pages, and the ids that both find have the same distances.
fn check_single_reads(loaded: &SearchResult, paged: &SearchResult, list: u32) {
    for (q, cost) in loaded.per_query.iter().enumerate() {
        assert_eq!((cost.reads, cost.full_distances, cost.hops), (list, list, 1));
        assert_eq!(cost.code_distances, paged.per_query[q].code_distances);
        let row = |found: &SearchResult| {
            let range = q * found.k..(q + 1) * found.k;
            found.ids[range.clone()].iter().copied().zip(found.distances[range].to_vec()).collect::<Vec<_>>()
        };
        let (single, paged) = (row(loaded), row(paged));
        for (single, paged) in single.iter().zip(&paged) {
            assert!(paged.1 <= single.1, "{paged:?} {single:?}");
        }
        for (id, distance) in single {
            let other = paged.iter().find(|other| other.0 == id);
            assert!(other.is_none_or(|other| other.1 == distance), "{id}");
        }
    }
}

/// Checks that distances are sorted, and that they are those of exact search.
fn check_distances(found: &SearchResult, truth: &IdFile, what: &str) {
    for (q, row) in found.distances.chunks(found.k).enumerate() {
        assert!(row.is_sorted(), "{what} query {q}: {row:?}");
        let exact = truth.distances(q).unwrap();
        for (id, distance) in found.ids[q * found.k..].iter().zip(row) {
            if let Some(rank) = truth.ids(q).iter().position(|true_id| true_id == id) {
                let error = (distance - exact[rank]).abs();
                assert!(error <= 1e-2 * exact[rank].abs().max(0.1), "{what}: {distance}");
            }
        }
    }
}

#[test]
fn the_effort_for_a_recall_reaches_it() {
    let dir = tempfile::tempdir().unwrap();
    let (data, queries) = (vectors(Element::F32, 8000, 48, 1), vectors(Element::F32, 1000, 48, 2));
    for (metric, tier) in [(Metric::L2, TierChoice::File), (Metric::InnerProduct, TierChoice::Dram)] {
        let path = dir.path().join(metric.name());
        let family = ClusterOptions { code_bytes: Some(12), ..ClusterOptions::default() };
        let options = BuildOptions { metric, threads: 2, ..BuildOptions::of(family) };
        build(&data, &path, &options, &Silent).unwrap();
        let truth = exact_neighbors(&data, &queries, metric, 100, None, &Silent).unwrap();
        let index = open(&path, tier);
        assert!(!ClusterEntry::read(index.manifest()).unwrap().calibration.curves.is_empty());
        for k in [1, 10, 100] {
            for asked in [0.8, 0.9, 0.95, 0.99] {
                let found = search(&index, &queries, k, Effort::Recall(asked));
                let recall = recall(&found, &truth);
                println!("{metric} k {k}: asked {asked}, got {recall} at {}", found.search_list);
                let error = recall - f64::from(asked);
                // The other vectors of a candidate's page are compared as well, so small lists find more.
                assert!(
                    error >= -0.03,
                    "{metric} k {k}: asked {asked}, got {recall} at {}",
                    found.search_list
                );
            }
        }
    }
}

#[test]
fn the_effort_for_a_recall_reaches_it_on_word_vectors() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/glove-words");
    let all = VectorFile::open(folder.join("vectors.f16bin")).unwrap();
    let rows = |range: std::ops::Range<usize>| {
        let bytes = all.rows(range).unwrap().to_vec();
        VectorFile::from_rows(all.element(), all.dim(), bytes).unwrap()
    };
    // The queries are rare words, and the data are frequent ones.
    let (data, queries) = (rows(0..10_000), rows(20_000..20_400));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("words");
    let options =
        BuildOptions { metric: Metric::Cosine, threads: 2, ..BuildOptions::of(ClusterOptions::default()) };
    build(&data, &path, &options, &Silent).unwrap();
    let truth = exact_neighbors(&data, &queries, Metric::Cosine, 10, None, &Silent).unwrap();
    let index = open(&path, TierChoice::File);
    let mut reads = 0;
    for asked in [0.8, 0.9, 0.95] {
        let found = search(&index, &queries, 10, Effort::Recall(asked));
        let recall = recall(&found, &truth);
        println!("asked {asked}, got {recall} with {:?}", found.totals);
        // Rare words are nearer to the centroids than the held-out words of the calibration. They are between
        // the groups, so that their searches scan more groups.
        assert!((-0.03..=0.09).contains(&(recall - f64::from(asked))), "asked {asked}, got {recall}");
        assert!(found.totals.reads > reads, "more recall takes more reads");
        reads = found.totals.reads;
    }
}

#[test]
fn queries_unlike_those_of_the_calibration_get_a_note() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/glove-words");
    let all = VectorFile::open(folder.join("vectors.f16bin")).unwrap();
    let rows = |wanted: &dyn Fn(usize) -> bool| {
        let bytes = (0..10_000).filter(|row| wanted(*row)).flat_map(|row| all.row(row).to_vec()).collect();
        VectorFile::from_rows(all.element(), all.dim(), bytes).unwrap()
    };
    let (data, words) = (rows(&|row| row % 25 != 7), rows(&|row| row % 25 == 7));
    let directions = vectors(all.element(), 200, all.dim(), 9);
    let dir = tempfile::tempdir().unwrap();
    let graph = GraphOptions { max_degree: 16, search_list: 32, ..GraphOptions::default() };
    let families: [(&str, FamilyOptions); 2] =
        [("cluster", ClusterOptions::default().into()), ("graph", graph.into())];
    for (name, family) in families {
        let path = dir.path().join(name);
        let options = BuildOptions { metric: Metric::Cosine, threads: 2, ..BuildOptions::of(family) };
        build(&data, &path, &options, &Silent).unwrap();
        let index = open(&path, TierChoice::File);
        let has_note = |queries: &VectorFile, effort: Effort| {
            let found = search(&index, queries, 10, effort);
            found.notes.iter().any(|note| note.contains("recall 0.9 is not promised"))
        };
        assert!(!has_note(&words, Effort::Recall(0.9)), "{name}: words");
        assert!(has_note(&directions, Effort::Recall(0.9)), "{name}: directions");
        // A search for an effort has no promised recall.
        assert!(!has_note(&directions, Effort::SearchList(20)), "{name}: an effort");
        let lone = |queries: &VectorFile| {
            let alone = |row: usize| {
                let bytes = queries.row(row).to_vec();
                has_note(
                    &VectorFile::from_rows(queries.element(), queries.dim(), bytes).unwrap(),
                    Effort::Recall(0.9),
                )
            };
            (0..40).filter(|row| alone(*row)).count()
        };
        assert!(
            lone(&words) <= 2 && lone(&directions) >= 20,
            "{name}: {} {}",
            lone(&words),
            lone(&directions)
        );
    }
}

#[test]
fn sets_of_odd_sizes_are_found_completely() {
    let dir = tempfile::tempdir().unwrap();
    let wide = |count, dim| vectors(Element::F32, count, dim, 3);
    for (number, (name, data)) in [
        ("one", wide(1, 7)),
        ("two", vectors(Element::U8, 2, 1, 3)),
        ("few", vectors(Element::I8, 11, 3, 3)),
        ("31", vectors(Element::U8, 31, 128, 3)),
        ("32", vectors(Element::U8, 32, 128, 3)),
        ("33", vectors(Element::U8, 33, 128, 3)),
        ("97", vectors(Element::F16, 97, 9, 3)),
        ("one dimension", vectors(Element::F32, 700, 1, 3)),
        ("equal", VectorFile::from_rows(Element::U8, 4, vec![9; 4 * 500]).unwrap()),
        (
            "duplicates",
            VectorFile::from_rows(Element::U8, 1, (0..600).map(|i| (i % 3) as u8).collect()).unwrap(),
        ),
        // Vectors longer than a page.
        ("wide", wide(130, full_or_quick(1536, 1100))),
        ("widest", wide(3, 65_536)),
        ("zeros", VectorFile::from_rows(Element::F32, 4, vec![0; 16 * 100]).unwrap()),
    ]
    .into_iter()
    .enumerate()
    {
        let metrics = [Metric::L2, Metric::InnerProduct].into_iter().enumerate();
        for (_, metric) in metrics.filter(|(at, _)| case_runs(number + at, 2)) {
            let path = dir.path().join(format!("{name}-{metric}"));
            build(&data, &path, &options(metric), &Silent).unwrap_or_else(|e| panic!("{name}: {e}"));
            let n = data.count();
            let queries = data.rows(0..n.min(full_or_quick(usize::MAX, 60))).unwrap().to_vec();
            let queries = VectorFile::from_rows(data.element(), data.dim(), queries).unwrap();
            for tier in [TierChoice::File, TierChoice::Dram] {
                let index = open(&path, tier);
                for (k, effort) in [(n, Effort::SearchList(n as u32)), (n + 5, Effort::Recall(0.9))] {
                    let found = search(&index, &queries, k, effort);
                    assert_eq!(found.k, n, "{name}");
                    assert_eq!(found.notes.iter().any(|note| note.contains("only")), k > n);
                    for row in found.ids.chunks(n) {
                        let mut ids = row.to_vec();
                        ids.sort_unstable();
                        assert!(ids.iter().copied().eq(0..n as u32), "{name}: {ids:?}");
                    }
                }
            }
            assert!(verify(&path, &Silent).unwrap().sound, "{name}");
            inspect(&path, &Silent).unwrap();
        }
    }
}

#[test]
fn the_least_and_the_most_effort_both_answer() {
    let dir = tempfile::tempdir().unwrap();
    let (data, queries) = (vectors(Element::F32, 3000, 16, 1), vectors(Element::F32, 50, 16, 2));
    let path = dir.path().join("index");
    build(&data, &path, &options(Metric::L2), &Silent).unwrap();
    let index = open(&path, TierChoice::File);
    let truth = exact_neighbors(&data, &queries, Metric::L2, 10, None, &Silent).unwrap();
    let search_with = |k, list, probes| {
        let options = SearchOptions {
            k,
            effort: Effort::SearchList(list),
            probes: Some(probes),
            ..SearchOptions::default()
        };
        index.search(&queries, &options, Control::default())
    };
    let least = search_with(1, 1, 1).unwrap();
    // Each query scans one group and reads one page.
    assert_eq!((least.totals.reads, least.totals.hops), (50, 50));
    assert!(least.per_query.iter().all(|one| one.code_distances <= 128), "{:?}", least.per_query[0]);
    assert!(recall(&least, &truth) > 0.3);
    let most = search_with(10, 3000, 100_000).unwrap();
    assert_eq!(recall(&most, &truth), 1.0);
    assert!(most.per_query.iter().all(|one| one.code_distances == 3000 && one.full_distances == 3000));
    // If the groups have fewer than k vectors, the search scans more of them.
    assert_eq!(search_with(500, 500, 1).unwrap().ids.len(), 50 * 500);
    assert!(matches!(search_with(1, 1, 0), Err(IndexError::Parameter(_))));
    // All reads are in one round, which has no pipelined mode.
    let pipelined = SearchOptions { mode: Some(SearchMode::Pipelined), ..SearchOptions::default() };
    let refused = index.search(&queries, &pipelined, Control::default());
    assert!(matches!(refused, Err(IndexError::Parameter(_))));
}

#[test]
fn the_number_of_threads_does_not_change_the_index() {
    let dir = tempfile::tempdir().unwrap();
    let data = vectors(Element::F32, 3000, 24, 1);
    let files = |name: &str, threads, seed| {
        let path = dir.path().join(name);
        build(&data, &path, &BuildOptions { threads, seed, ..options(Metric::L2) }, &Silent).unwrap();
        let index = open(&path, TierChoice::File);
        let manifest = index.manifest();
        let read =
            |file: &bathyal_index::format::manifest::FileEntry| std::fs::read(path.join(&file.name)).unwrap();
        let entry = ClusterEntry::read(manifest).unwrap();
        let calibration = (entry.calibration, entry.lone_curves);
        (manifest.files.iter().map(read).collect::<Vec<_>>(), calibration)
    };
    let one = files("one", 1, 7);
    for threads in [2, 3, 5] {
        assert!(files(&format!("{threads}"), threads, 7) == one, "{threads} threads");
    }
    assert!(files("other", 2, 8).0 != one.0, "the seed makes no difference");
}

#[test]
fn group_sizes_and_code_kinds_can_be_chosen() {
    let dir = tempfile::tempdir().unwrap();
    let (data, queries) = (vectors(Element::U8, 2000, 32, 1), vectors(Element::U8, 50, 32, 2));
    let truth = exact_neighbors(&data, &queries, Metric::L2, 10, None, &Silent).unwrap();
    for (group_vectors, kind) in [
        (1, CodeKind::Axes),
        (31, CodeKind::RaBitQ { bits: 1 }),
        (250, CodeKind::RaBitQ { bits: 4 }),
        (1 << 16, CodeKind::Axes),
    ] {
        let path = dir.path().join(format!("{group_vectors}"));
        let family = ClusterOptions { group_vectors, code_kind: Some(kind), ..ClusterOptions::default() };
        let options = options_of(Metric::L2, family);
        build(&data, &path, &options, &Silent).unwrap();
        let found = search(&open(&path, TierChoice::File), &queries, 10, Effort::SearchList(200));
        assert!(recall(&found, &truth) >= 0.95, "{group_vectors} {kind}: {}", recall(&found, &truth));
        assert!(verify(&path, &Silent).unwrap().sound);
    }
    for kind in [CodeKind::Pq, CodeKind::Pq4] {
        let family = ClusterOptions { code_kind: Some(kind), ..ClusterOptions::default() };
        let options = options_of(Metric::L2, family);
        let refused = build(&data, &dir.path().join("refused"), &options, &Silent).unwrap_err();
        assert!(refused.to_string().contains("groups"), "{refused}");
    }
    assert!(!dir.path().join("refused").exists());
}

#[test]
fn values_of_any_magnitude_are_searched_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let base = vectors(Element::F32, 600, 8, 1);
    for scale in [1e-44_f32, 1e-30, 1e-6, 1e6, 1e10, 3e17, 1e30, 5e33] {
        for shift in [0.0, 1000.0] {
            let scaled = |value: [u8; 4]| (f32::from_le_bytes(value) + shift) * scale;
            let bytes = |rows: &VectorFile, from: usize| {
                let values = rows.rows(from..rows.count()).unwrap().as_chunks::<4>().0.iter();
                values.flat_map(|value| scaled(*value).to_le_bytes()).collect::<Vec<u8>>()
            };
            let data = VectorFile::from_rows(Element::F32, 8, bytes(&base, 0)).unwrap();
            let queries = VectorFile::from_rows(Element::F32, 8, bytes(&base, 580)).unwrap();
            for metric in [Metric::L2, Metric::InnerProduct, Metric::Cosine] {
                let path = dir.path().join(format!("{scale}-{shift}-{metric}"));
                let built = build(&data, &path, &options(metric), &Silent);
                // The squares of other values overflow or underflow in f32.
                if metric != Metric::Cosine && !(1e-10..1e11).contains(&scale) {
                    assert!(matches!(built, Err(IndexError::Parameter(_))), "{scale} {metric}: {built:?}");
                    continue;
                }
                built.unwrap_or_else(|e| panic!("{scale}: {e}"));
                let found = search(&open(&path, TierChoice::File), &queries, 10, Effort::SearchList(100));
                assert_eq!(found.ids.len(), 200, "{scale} {metric}");
                if metric == Metric::L2 && shift == 0.0 {
                    for (q, row) in found.ids.chunks(10).enumerate() {
                        assert_eq!(row[0], 580 + q as u32, "{scale} {shift}: {row:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn queries_from_far_away_are_answered_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let data = vectors(Element::F32, 1000, 8, 1);
    for metric in [Metric::L2, Metric::InnerProduct, Metric::Cosine] {
        let path = dir.path().join(metric.name());
        build(&data, &path, &options(metric), &Silent).unwrap();
        let index = open(&path, TierChoice::File);
        for far in [1e-18_f32, 1e7, 1e18, f32::MAX] {
            let row = (0..8).flat_map(|d| if d == 3 { far } else { 0.0 }.to_le_bytes()).collect();
            let query = VectorFile::from_rows(Element::F32, 8, row).unwrap();
            let found = index.search(&query, &SearchOptions::default(), Control::default());
            let fits = match metric {
                Metric::L2 => far < 1e15,
                Metric::InnerProduct => (1e-12..1e15).contains(&far),
                Metric::Cosine => true,
            };
            match found {
                Ok(found) => assert_eq!((found.ids.len(), fits), (10, true), "{metric} {far}"),
                Err(IndexError::Parameter(what)) => assert!(!fits, "{metric} {far}: {what}"),
                Err(error) => panic!("{metric} {far}: {error}"),
            }
        }
    }
}
