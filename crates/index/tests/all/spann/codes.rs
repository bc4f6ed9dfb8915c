//! Posting lists of codes, compared with lists of copies.

use super::{build_options, file_contents, recall};
use crate::cases::{case_runs, full_or_quick};
use crate::clustered::vectors;
use crate::progress::check_cancellation;
use bathyal_index::families::spann::SpannEntry;
use bathyal_index::format::manifest::Manifest;
use bathyal_index::format::postings::{PostingLayout, Postings};
use bathyal_index::{
    BuildOptions, Effort, Index, IndexError, OpenOptions, RangeOptions, SearchOptions, SearchResult,
    SpannOptions, TierChoice, build, inspect, verify,
};
use bathyal_kernels::quantize::CodeKind;
use bathyal_kernels::{Element, Metric};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Silent;
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

fn lists() -> SpannOptions {
    SpannOptions {
        layout: PostingLayout::Coupled,
        code_kind: Some(CodeKind::Axes),
        code_bytes: Some(12),
        centroid_share: 0.04,
        ..SpannOptions::default()
    }
}

fn options(metric: Metric) -> BuildOptions {
    build_options(metric, lists())
}

fn open(path: &Path, tier: TierChoice) -> Index {
    Index::open(path, &OpenOptions { tier, ..OpenOptions::default() }).unwrap()
}

fn search(index: &Index, queries: &VectorFile, options: &SearchOptions) -> SearchResult {
    index.search(queries, options, Control::default()).unwrap()
}

/// The content of the files of an index of lists of codes.
struct Stored {
    entry: SpannEntry,
    /// Ids by place.
    ids: Vec<u32>,
    rows: Vec<Vec<u8>>,
    lists: Vec<Vec<u32>>,
}

impl Stored {
    fn read(path: &Path) -> Stored {
        let manifest = Manifest::read(path).unwrap();
        let entry = SpannEntry::read(&manifest).unwrap();
        let code_bytes = entry.list_codes.as_ref().unwrap().code_bytes as usize;
        let row_bytes = manifest.element().unwrap().row_bytes(manifest.dim as usize);
        let table = std::fs::read(path.join(&entry.lists.name)).unwrap();
        let table = Postings::coded_from_bytes(row_bytes, code_bytes, manifest.vectors, &table).unwrap();
        let file = std::fs::read(path.join(&entry.file.name)).unwrap();
        let bytes = |range: Range<u64>| &file[range.start as usize..range.end as usize];
        let rows = bytes(table.places_range(0, manifest.vectors as u32)).chunks(row_bytes + 4);
        let (rows, ids) = rows
            .map(|row| (row[..row_bytes].to_vec(), u32::from_le_bytes(row[row_bytes..].try_into().unwrap())))
            .unzip();
        let mut first_factors: HashMap<u32, Vec<u8>> = HashMap::new();
        let mut lists = Vec::new();
        for list in 0..table.lists() as u32 {
            let count = table.stored_of(list) as usize;
            let (codes, places) = bytes(table.rows_range(list)).split_at(count * code_bytes);
            let places: Vec<u32> =
                places.as_chunks::<4>().0.iter().map(|place| u32::from_le_bytes(*place)).collect();
            // A block begins with the first factors of its codes, of 16 bits each.
            let mut number = 0;
            for block in codes.chunks(32 * code_bytes) {
                for factor in block[..block.len() / code_bytes * 2].chunks(2) {
                    let same = first_factors.entry(places[number]).or_insert(factor.to_vec());
                    assert_eq!(same, factor, "a vector has two codes");
                    number += 1;
                }
            }
            lists.push(places);
        }
        Stored { entry, ids, rows, lists }
    }
}

/// Returns the ids of each list of an index with lists of copies.
fn copied_lists(path: &Path) -> Vec<Vec<u32>> {
    let manifest = Manifest::read(path).unwrap();
    let entry = SpannEntry::read(&manifest).unwrap();
    let row_bytes = manifest.element().unwrap().row_bytes(manifest.dim as usize);
    let table = std::fs::read(path.join(&entry.lists.name)).unwrap();
    let table = Postings::from_bytes(PostingLayout::Coupled, row_bytes, manifest.vectors, &table).unwrap();
    let file = std::fs::read(path.join(&entry.file.name)).unwrap();
    (0..table.lists() as u32)
        .map(|list| {
            let range = table.rows_range(list);
            let ids = range.start as usize + table.stored_of(list) as usize * row_bytes;
            let ids = file[ids..range.end as usize].as_chunks::<4>().0;
            ids.iter().map(|id| u32::from_le_bytes(*id)).collect()
        })
        .collect()
}

#[test]
fn lists_of_codes_contain_the_same_vectors_as_lists_of_copies() {
    let dir = tempfile::tempdir().unwrap();
    for (at, metric) in [Metric::L2, Metric::InnerProduct, Metric::Cosine].into_iter().enumerate() {
        // Each element occurs with one metric.
        for (_, element) in (at..).zip(Element::ALL).filter(|(number, _)| case_runs(*number, 3)) {
            let what = format!("{metric} {element}");
            let (data, queries) = (vectors(element, 3000, 24, 1), vectors(element, 50, 24, 2));
            let (path, plain) = (dir.path().join(&what), dir.path().join(format!("{what} copies")));
            build(&data, &path, &options(metric), &Silent).unwrap();
            let copies = SpannOptions { code_kind: None, ..lists() };
            build(&data, &plain, &build_options(metric, copies), &Silent).unwrap();
            let report = verify(&path, &Silent).unwrap();
            assert!(report.sound && report.vectors == 3000, "{what}: {report:?}");

            let stored = Stored::read(&path);
            let mut sorted = stored.ids.clone();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..3000), "{what}: every vector once");
            if metric != Metric::Cosine || !element.has_unit_vectors() {
                let same = |(id, row): (&u32, &Vec<u8>)| row == data.row(*id as usize);
                assert!(stored.ids.iter().zip(&stored.rows).all(same), "{what}");
            }
            let of_list =
                |list: &Vec<u32>| list.iter().map(|place| stored.ids[*place as usize]).collect::<Vec<_>>();
            assert_eq!(stored.lists.iter().map(of_list).collect::<Vec<_>>(), copied_lists(&plain), "{what}");

            for tier in [TierChoice::File, TierChoice::Dram] {
                let index = open(&path, tier);
                for wanted in [0.8, 0.95] {
                    let options = SearchOptions { effort: Effort::Recall(wanted), ..Default::default() };
                    let found = search(&index, &queries, &options);
                    let recall = recall(&found, &data, &queries, metric);
                    // The tolerance is three standard errors of a low recall of 500 neighbours.
                    assert!(recall > f64::from(wanted) - 0.05, "{what}: recall {recall} for {wanted}");
                    assert!(found.per_query.iter().all(|cost| cost.hops == 2), "{what}");
                }
            }
            let about = inspect(&path, &Silent).unwrap().description;
            let list_codes = about.facts.iter().find(|fact| fact.name == "list_codes").unwrap();
            assert_eq!(list_codes.value, serde_json::json!(["axes", 12]), "{what}");
            // The first lists find nearly all neighbours in so few bits.
            let long = stored.entry.calibration.curves.iter().all(|curve| curve.points.len() > 10);
            assert!(long || element == Element::B1, "{what}");
        }
    }
}

#[test]
fn the_numbers_of_candidates_and_of_lists_are_independent() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    let (data, queries) = (vectors(Element::F32, 5000, 32, 1), vectors(Element::F32, 50, 32, 2));
    build(&data, &path, &build_options(Metric::L2, SpannOptions { code_bytes: Some(8), ..lists() }), &Silent)
        .unwrap();
    let index = open(&path, TierChoice::File);
    let measure = |search_list, probes| {
        let effort = Effort::SearchList(search_list);
        let found = search(&index, &queries, &SearchOptions { effort, probes, ..Default::default() });
        let lists = found.own.of("lists").unwrap();
        for (cost, lists) in found.per_query.iter().zip(lists) {
            // The search compares the requested number of candidates, unless one list has fewer vectors.
            let fewer = probes == Some(1) && cost.full_distances < search_list;
            assert!(cost.full_distances == search_list || fewer, "{cost:?}");
            assert!(probes.is_none_or(|probes| *lists == probes));
        }
        (recall(&found, &data, &queries, Metric::L2), found.totals.code_distances)
    };
    let (few, many) = (measure(10, Some(20)), measure(200, Some(20)));
    assert!(few.0 + 0.1 < many.0 && few.1 == many.1, "{few:?} {many:?}");
    assert!(measure(200, Some(1)).0 + 0.1 < many.0);
    assert!(measure(200, None).0 > 0.95, "enough lists for the candidates");
    // Range searches use the same functions.
    let radius = 24.0 * 18.0 * 18.0;
    let range = RangeOptions { recall: 0.9, ..RangeOptions::default() };
    let found = index.range_search(&queries, radius, &range, Control::default()).unwrap();
    assert!(found.distances.iter().all(|distance| *distance <= radius));
    assert!(found.ids.len() > 1000);
    let explained = index.explain(&queries, 3, &SearchOptions::default(), Control::default()).unwrap();
    assert!(explained.hops == 2 && explained.code_distances > explained.full_distances);
    assert!(explained.memory.iter().any(|part| part.part == "codec"));
    assert!(index.warm(&SearchOptions::default(), Control::default()).unwrap().reads > 0);
}

#[test]
fn the_number_of_threads_does_not_change_the_index() {
    let dir = tempfile::tempdir().unwrap();
    let data = vectors(Element::F16, full_or_quick(4000, 2000), 16, 3);
    let mut first = None;
    for threads in [1, 2, 5] {
        let path = dir.path().join(threads.to_string());
        build(&data, &path, &BuildOptions { threads, ..options(Metric::L2) }, &Silent).unwrap();
        let found = file_contents(&path);
        assert!(
            found.keys().all(|name| name.ends_with(".bin") && !name.contains("rows")),
            "{:?}",
            found.keys()
        );
        let curves = SpannEntry::read(&Manifest::read(&path).unwrap()).unwrap().calibration;
        assert!(
            first.get_or_insert((found.clone(), curves.clone())) == &(found, curves),
            "{threads} threads"
        );
    }
}

#[test]
fn the_smallest_budget_gives_the_same_recall() {
    let dir = tempfile::tempdir().unwrap();
    let (data, queries) =
        (vectors(Element::U8, full_or_quick(60_000, 12_000), 96, 4), vectors(Element::U8, 50, 96, 5));
    let free = SpannOptions { replicas: Some(3), code_bytes: Some(64), ..lists() };
    let free = build_options(Metric::L2, free);
    let tight = BuildOptions { memory_bytes: Some(1 << 20), ..free.clone() };
    let refused = build(&data, &dir.path().join("tight"), &tight, &Silent).unwrap_err();
    let IndexError::Memory { needed, .. } = refused else { panic!("{refused}") };
    for memory_bytes in [None, Some(needed)] {
        let options = BuildOptions { memory_bytes, ..free.clone() };
        let path = dir.path().join(format!("{memory_bytes:?}"));
        let report = build(&data, &path, &options, &Silent).unwrap();
        assert!(memory_bytes.is_none_or(|given| report.planned_memory_bytes <= given), "{report:?}");
        assert!(verify(&path, &Silent).unwrap().sound);
        let options = SearchOptions { effort: Effort::Recall(0.9), ..Default::default() };
        let found = search(&open(&path, TierChoice::File), &queries, &options);
        let recall = recall(&found, &data, &queries, Metric::L2);
        assert!(recall > 0.85, "{memory_bytes:?}: {recall}");
    }
}

#[test]
fn a_build_can_be_cancelled_at_any_moment_and_leaves_nothing() {
    check_cancellation(&vectors(Element::U8, 2000, 16, 9), &options(Metric::L2), 15);
}

#[test]
fn codes_that_lists_cannot_contain_are_refused_with_advice() {
    let dir = tempfile::tempdir().unwrap();
    let data = vectors(Element::F32, 100, 8, 8);
    let base = lists();
    let cases = [
        (SpannOptions { layout: SpannOptions::default().layout, ..base }, "take the layout coupled"),
        (SpannOptions { layout: PostingLayout::Decoupled, ..base }, "layout decoupled hold no codes"),
        (SpannOptions { code_kind: Some(CodeKind::Pq), ..base }, "take axes or rabitq1 to rabitq8"),
        (SpannOptions { code_bytes: Some(4), ..base }, "too small"),
    ];
    for (lists, expected) in cases {
        let options = build_options(Metric::L2, lists);
        let error = build(&data, &dir.path().join("refused"), &options, &Silent).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "files were left behind");
}
