//! Builds of posting lists, with various data, options and budgets.

use super::{build_options, file_contents};
use crate::cases::{CaseSelection, case_runs, full_or_quick, quick_build};
use crate::clustered::vectors;
use crate::progress::check_cancellation;
use bathyal_index::families::spann::{
    DEFAULT_COUPLED_REPLICAS, DEFAULT_DECOUPLED_REPLICAS, DEFAULT_GROUPED_REPLICAS, SpannEntry,
};
use bathyal_index::format::manifest::Manifest;
use bathyal_index::format::postings::{MOST_REPLICAS, PackedIds, PostingLayout, Postings};
use bathyal_index::{
    BuildOptions, Effort, Index, IndexError, OpenOptions, SearchOptions, SpannOptions, TierChoice, build,
    families, verify,
};
use bathyal_kernels::{Element, Metric};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Silent;
use std::collections::BTreeMap;
use std::path::Path;

const LAYOUTS: [PostingLayout; 3] =
    [PostingLayout::Coupled, PostingLayout::Decoupled, PostingLayout::Grouped];

fn lists(layout: PostingLayout) -> SpannOptions {
    // The same number of replicas in every layout, so that all have the same lists.
    SpannOptions { layout, centroid_share: 0.04, replicas: Some(MOST_REPLICAS), ..SpannOptions::default() }
}

fn options(metric: Metric, layout: PostingLayout) -> BuildOptions {
    build_options(metric, lists(layout))
}

/// The content of the files of an index.
struct Stored {
    manifest: Manifest,
    entry: SpannEntry,
    table: Postings,
    /// The ids of each list.
    lists: Vec<Vec<u32>>,
    /// All stored copies of the row of each vector.
    rows: BTreeMap<u32, Vec<Vec<u8>>>,
}

impl Stored {
    fn read(path: &Path) -> Stored {
        let manifest = Manifest::read(path).unwrap();
        let entry = SpannEntry::read(&manifest).unwrap();
        let file = |name: &str| std::fs::read(path.join(name)).unwrap();
        let layout: PostingLayout = entry.layout.parse().unwrap();
        let row_bytes = manifest.element().unwrap().row_bytes(manifest.dim as usize);
        let (vectors, count) = (manifest.vectors, manifest.vectors as u32);
        let table = Postings::from_bytes(layout, row_bytes, vectors, &file(&entry.lists.name)).unwrap();
        let postings = file(&entry.file.name);
        let ids = entry.ids.as_ref().map(|ids| PackedIds::from_bytes(file(&ids.name), vectors).unwrap());
        let id = |place: u32| ids.as_ref().map_or(place, |ids| ids.get(place));
        let bytes = |range: std::ops::Range<u64>| &postings[range.start as usize..range.end as usize];
        let mut rows: BTreeMap<u32, Vec<Vec<u8>>> = BTreeMap::new();
        let mut lists = Vec::new();
        for list in 0..table.lists() as u32 {
            let stored = table.stored_of(list) as usize;
            let (own, others) = bytes(table.rows_range(list)).split_at(stored * row_bytes);
            let first = table.first_place(list).unwrap_or(0);
            let mut found: Vec<u32> = match layout {
                PostingLayout::Coupled => {
                    others.as_chunks::<4>().0.iter().map(|id| u32::from_le_bytes(*id)).collect()
                }
                _ => (first..first + stored as u32).map(id).collect(),
            };
            for (id, row) in found.iter().zip(own.chunks(row_bytes)) {
                rows.entry(*id).or_default().push(row.to_vec());
            }
            let mut places = Vec::new();
            table.members(list, bytes(table.members_range(list)), &mut places).unwrap();
            found.extend(places.into_iter().map(id));
            found.sort_unstable();
            lists.push(found);
        }
        if layout == PostingLayout::Decoupled {
            (0..count).for_each(|place| {
                rows.entry(place).or_default().push(bytes(table.places_range(place, 1)).to_vec())
            });
        }
        Stored { manifest, entry, table, lists, rows }
    }

    /// Checks the invariants of an index of `data`.
    fn check(&self, data: &VectorFile, options: &SpannOptions, what: &str) {
        let entry = &self.entry;
        let metric = self.manifest.metric().unwrap();
        let leaf = (1.0 / options.centroid_share).round() as usize;
        let mut copies = vec![0_usize; data.count()];
        for (number, list) in self.lists.iter().enumerate() {
            assert!(list.windows(2).all(|w| w[0] < w[1]), "{what}: a vector is twice in list {number}");
            assert!(
                list.len() <= entry.list_limit as usize + leaf,
                "{what}: list {number} has {}",
                list.len()
            );
            list.iter().for_each(|id| copies[*id as usize] += 1);
        }
        let most = entry.replicas as usize;
        assert!(options.replicas.is_none_or(|asked| asked == entry.replicas), "{what}");
        assert!(copies.iter().all(|copies| (1..=most).contains(copies)), "{what}: {copies:?}");
        assert_eq!(copies.iter().sum::<usize>() as u64, entry.copies, "{what}");
        let coupled = self.table.layout() == PostingLayout::Coupled;
        for (id, copies) in copies.iter().enumerate() {
            let rows = &self.rows[&(id as u32)];
            assert_eq!(rows.len(), if coupled { *copies } else { 1 }, "{what}: vector {id}");
            if metric != Metric::Cosine || !data.element().is_float() {
                assert!(rows.iter().all(|row| row == data.row(id)), "{what}: vector {id}");
            }
        }
    }
}

/// Returns the recall of a search of the index at `path` for `effort`.
fn recall(path: &Path, data: &VectorFile, queries: &VectorFile, metric: Metric, effort: Effort) -> f64 {
    let index = Index::open(path, &OpenOptions { tier: TierChoice::File, ..OpenOptions::default() }).unwrap();
    let options = SearchOptions { k: 10.min(data.count()), effort, threads: 2, ..SearchOptions::default() };
    let found = index.search(queries, &options, Control::default()).unwrap();
    super::recall(&found, data, queries, metric)
}

#[test]
fn every_vector_is_in_a_list_and_is_stored_as_the_layout_requires() {
    let dir = tempfile::tempdir().unwrap();
    for (at, metric) in [Metric::L2, Metric::InnerProduct, Metric::Cosine].into_iter().enumerate() {
        // Each element occurs with one metric.
        for (_, element) in (at..).zip(Element::ALL).filter(|(number, _)| case_runs(*number, 5)) {
            let (data, queries) = (vectors(element, 3000, 24, 1), vectors(element, 50, 24, 2));
            let mut lists: Option<Vec<Vec<u32>>> = None;
            for layout in LAYOUTS {
                let what = format!("{metric} {element} {}", layout.name());
                let path = dir.path().join(&what);
                build(&data, &path, &options(metric, layout), &Silent).unwrap();
                assert!(verify(&path, &Silent).unwrap().sound, "{what}");
                let stored = Stored::read(&path);
                stored.check(&data, &self::lists(layout), &what);
                assert_eq!(stored.manifest.metric(), Ok(metric), "{what}");
                assert!(stored.lists.len() == 120, "{what}: {} lists", stored.lists.len());
                assert!(stored.entry.copies > 4500, "{what}: few vectors are in two lists");
                let recall = recall(&path, &data, &queries, metric, Effort::Recall(0.95));
                assert!(recall > 0.93, "{what}: recall {recall}");
                // The layout does not change the members of lists.
                assert_eq!(lists.get_or_insert(stored.lists.clone()), &stored.lists, "{what}");
            }
        }
    }
}

#[test]
fn the_number_of_threads_does_not_change_the_index() {
    let dir = tempfile::tempdir().unwrap();
    let data = vectors(Element::F32, full_or_quick(4000, 2000), 16, 3);
    for layout in LAYOUTS {
        let mut first = None;
        for threads in [1, 2, 5] {
            let path = dir.path().join(format!("{}-{threads}", layout.name()));
            build(&data, &path, &BuildOptions { threads, ..options(Metric::L2, layout) }, &Silent).unwrap();
            let found = file_contents(&path);
            assert_eq!(found.keys().filter(|name| name.contains("tmp") || name.contains("rows")).count(), 0);
            assert!(first.get_or_insert(found.clone()) == &found, "{} with {threads} threads", layout.name());
        }
    }
}

#[test]
fn the_smallest_budget_gives_the_same_recall_and_a_smaller_one_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    // The vectors take more memory than any stage.
    let (element, count, dim) = full_or_quick((Element::U8, 200_000, 96), (Element::F32, 27_000, 128));
    let (data, queries) = (vectors(element, count, dim, 4), vectors(element, 50, dim, 5));
    let free = options(Metric::InnerProduct, PostingLayout::Grouped);
    let tight = BuildOptions { memory_bytes: Some(1 << 20), ..free.clone() };
    let refused = build(&data, &dir.path().join("tight"), &tight, &Silent).unwrap_err();
    let IndexError::Memory { needed, .. } = refused else { panic!("{refused}") };
    for memory_bytes in [None, Some(needed)] {
        let options = BuildOptions { memory_bytes, ..free.clone() };
        let path = dir.path().join(format!("{memory_bytes:?}"));
        let report = build(&data, &path, &options, &Silent).unwrap();
        assert!(memory_bytes.is_none_or(|given| report.planned_memory_bytes <= given), "{report:?}");
        let spread = report.stage_seconds.iter().any(|stage| stage.0 == "spread");
        assert_eq!(spread, memory_bytes.is_some(), "{report:?}");
        Stored::read(&path).check(&data, &lists(PostingLayout::Grouped), "a budget");
        let recall = recall(&path, &data, &queries, Metric::InnerProduct, Effort::Recall(0.9));
        assert!(recall > 0.85, "{memory_bytes:?}: {recall}");
    }
}

#[test]
fn odd_data_and_odd_options_give_complete_lists() {
    let dir = tempfile::tempdir().unwrap();
    let equal = |count: usize| {
        VectorFile::from_rows(
            Element::F32,
            4,
            [1.5_f32, 0.0, -2.0, 3.0].map(f32::to_le_bytes).concat().repeat(count),
        )
        .unwrap()
    };
    let sets = [
        ("one", vectors(Element::F16, 1, 8, 6)),
        ("few", vectors(Element::I8, 7, 8, 6)),
        ("equal", equal(1000)),
        ("many", vectors(Element::U8, 1500, 8, 7)),
    ];
    let mut cases = CaseSelection::one_in(5);
    for (name, data) in &sets {
        for layout in LAYOUTS {
            for (share, replicas, list_limit) in
                [(0.04, 8, None), (1.0, 8, Some(1)), (1e-5, 1, None), (0.2, 3, Some(2))]
            {
                if !cases.next_runs() {
                    continue;
                }
                let lists = SpannOptions {
                    centroid_share: share,
                    replicas: Some(replicas),
                    list_limit,
                    ..lists(layout)
                };
                let what = format!("{name} {} {share} {replicas} {list_limit:?}", layout.name());
                let path = dir.path().join(&what);
                build(data, &path, &build_options(Metric::L2, lists), &Silent).unwrap();
                assert!(verify(&path, &Silent).unwrap().sound, "{what}");
                Stored::read(&path).check(data, &lists, &what);
                let index = Index::open(&path, &OpenOptions::default()).unwrap();
                let options = SearchOptions {
                    k: data.count(),
                    effort: Effort::SearchList(data.count() as u32),
                    ..SearchOptions::default()
                };
                let queries =
                    VectorFile::from_rows(data.element(), data.dim(), data.row(0).to_vec()).unwrap();
                let mut found = index.search(&queries, &options, Control::default()).unwrap().ids;
                found.sort_unstable();
                assert_eq!(found, (0..data.count() as u32).collect::<Vec<_>>(), "{what}");
            }
        }
    }
}

#[test]
fn given_queries_decide_where_vectors_are_stored() {
    let dir = tempfile::tempdir().unwrap();
    let (data, queries) =
        (vectors(Element::F32, full_or_quick(6000, 3000), 24, 10), vectors(Element::F32, 3, 24, 11));
    for metric in [Metric::L2, Metric::InnerProduct, Metric::Cosine] {
        let without_queries = options(metric, PostingLayout::Grouped);
        let with_queries = BuildOptions { calibration: Some(queries.clone()), ..without_queries.clone() };
        let small_reads = [("without", without_queries), ("with", with_queries)].map(|(name, options)| {
            let path = dir.path().join(format!("{metric}-{name}"));
            build(&data, &path, &options, &Silent).unwrap();
            Stored::read(&path).check(&data, &lists(PostingLayout::Grouped), name);
            let index = Index::open(&path, &OpenOptions { tier: TierChoice::Dram, ..OpenOptions::default() })
                .unwrap();
            let effort = Effort::SearchList(16);
            let options = SearchOptions { k: 10, effort, threads: 1, ..SearchOptions::default() };
            let found = index.search(&queries, &options, Control::default()).unwrap();
            found.own.of("small_reads").unwrap().iter().sum::<u32>()
        });
        assert!(small_reads[1] < small_reads[0], "{metric}: {small_reads:?}");
    }
}

#[test]
fn the_default_number_of_replicas_depends_on_the_layout() {
    let dir = tempfile::tempdir().unwrap();
    let data = vectors(Element::U8, 3000, 24, 12);
    let defaults = [DEFAULT_COUPLED_REPLICAS, DEFAULT_DECOUPLED_REPLICAS, DEFAULT_GROUPED_REPLICAS];
    for (layout, default) in LAYOUTS.into_iter().zip(defaults) {
        for (replicas, expected) in [(None, default), (Some(3), 3)] {
            let what = format!("{} {replicas:?}", layout.name());
            let path = dir.path().join(&what);
            let lists = SpannOptions { replicas, ..lists(layout) };
            build(&data, &path, &build_options(Metric::L2, lists), &Silent).unwrap();
            let stored = Stored::read(&path);
            stored.check(&data, &lists, &what);
            let entry = &stored.entry;
            // The limit of a list follows from the replicas.
            assert_eq!((entry.replicas, entry.list_limit), (expected, 25 * expected), "{what}");
            assert_eq!(entry.copies == 3000, expected == 1, "{what}: {} copies", entry.copies);
        }
    }
    let given = [("centroid_share".into(), 0.04.into())].into();
    let path = dir.path().join("no layout");
    let options = quick_build(families::options("spann", &given).unwrap());
    build(&data, &path, &options, &Silent).unwrap();
    let entry = SpannEntry::read(&Manifest::read(&path).unwrap()).unwrap();
    assert_eq!((&entry.layout[..], entry.replicas), ("grouped", DEFAULT_GROUPED_REPLICAS));
}

#[test]
fn options_out_of_range_are_refused_with_advice() {
    let dir = tempfile::tempdir().unwrap();
    let data = vectors(Element::F32, 100, 8, 8);
    let base = lists(PostingLayout::Grouped);
    let cases = [
        (SpannOptions { centroid_share: 0.0, ..base }, "centroid_share is 0"),
        (SpannOptions { centroid_share: f32::NAN, ..base }, "centroid_share is NaN"),
        (SpannOptions { centroid_share: 1.5, ..base }, "between"),
        (SpannOptions { replicas: Some(0), ..base }, "replicas is 0"),
        (SpannOptions { replicas: Some(9), ..base }, "between 1 (each vector in one list) and 8"),
        (SpannOptions { list_limit: Some(0), ..base }, "list_limit is 0"),
    ];
    for (lists, expected) in cases {
        let options = build_options(Metric::L2, lists);
        let error = build(&data, &dir.path().join("refused"), &options, &Silent).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    // This is a layout of graphs.
    let csr = families::options("spann", &[("layout".into(), "csr".into())].into());
    assert!(csr.unwrap_err().to_string().contains("csr"));
    let zeros = VectorFile::from_rows(Element::I8, 4, vec![0; 400]).unwrap();
    let cosine = options(Metric::Cosine, PostingLayout::Grouped);
    let error = build(&zeros, &dir.path().join("zeros"), &cosine, &Silent).unwrap_err();
    assert!(matches!(error, IndexError::ZeroVectors { count: 100, .. }), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "files were left behind");
}

#[test]
fn a_build_can_be_cancelled_at_any_moment_and_leaves_nothing() {
    let data = vectors(Element::U8, 2000, 16, 9);
    check_cancellation(&data, &options(Metric::L2, PostingLayout::Grouped), 12);
}
