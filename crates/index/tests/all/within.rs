//! Search within a set of rows, in every family and layout. It reaches the recall in any set.

use crate::cases::{CaseSelection, all_cases_run, full_or_quick, quick_build};
use crate::clustered::vectors;
use crate::files;
use crate::shared;
use bathyal_index::families::flat::FlatOptions;
use bathyal_index::families::lsh::LshOptions;
use bathyal_index::{
    BuildOptions, ClusterOptions, Effort, FamilyOptions, GraphLayoutChoice, GraphOptions, Index, IndexError,
    OpenOptions, PartitionedOptions, PostingLayout, RowSet, SearchOptions, SearchResult, SpannOptions,
    TierChoice, WithinPlan, build,
};
use bathyal_kernels::quantize::CodeKind;
use bathyal_kernels::{Distance, Element, Metric};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Silent;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

const ROWS: u32 = 12_000;
const DIM: usize = 32;
const QUERIES: usize = 60;
const K: usize = 10;

fn lists(layout: PostingLayout, code_kind: Option<CodeKind>) -> FamilyOptions {
    SpannOptions { layout, code_kind, ..SpannOptions::default() }.into()
}

fn graph(layout: GraphLayoutChoice) -> FamilyOptions {
    GraphOptions { layout, max_degree: 24, search_list: 50, ..GraphOptions::default() }.into()
}

fn kinds() -> Vec<(&'static str, FamilyOptions)> {
    let coded = FlatOptions { code_kind: Some(CodeKind::Axes), ..FlatOptions::default() };
    let partitioned = PartitionedOptions { partition_vectors: 300, ..PartitionedOptions::default() };
    vec![
        ("flat", FlatOptions::default().into()),
        ("flat_codes", coded.into()),
        ("cluster", ClusterOptions::default().into()),
        ("padded", graph(GraphLayoutChoice::Padded)),
        ("csr", graph(GraphLayoutChoice::Csr)),
        ("page_local", graph(GraphLayoutChoice::PageLocal)),
        ("coupled", lists(PostingLayout::Coupled, None)),
        ("decoupled", lists(PostingLayout::Decoupled, None)),
        ("grouped", lists(PostingLayout::Grouped, None)),
        ("codes", lists(PostingLayout::Coupled, Some(CodeKind::Axes))),
        ("lsh", LshOptions::default().into()),
        ("partitioned", partitioned.into()),
    ]
}

/// Vectors with their distances to the queries, and the indexes of them.
struct Data {
    rows: VectorFile,
    queries: VectorFile,
    metric: Metric,
    /// `queries x rows`.
    distances: Vec<Vec<f32>>,
    built: Mutex<BTreeMap<&'static str, Arc<OnceLock<()>>>>,
}

impl Data {
    fn new(element: Element, metric: Metric, count: u32) -> Data {
        let (rows, queries) = (vectors(element, count as usize, DIM, 1), vectors(element, QUERIES, DIM, 2));
        let kernel = Distance::new(element, metric, rows.dim());
        let between = |query, row| kernel.between(queries.row(query), rows.row(row));
        let to_all = |query| (0..rows.count()).map(|row| between(query, row)).collect();
        let distances = (0..QUERIES).map(to_all).collect();
        Data { rows, queries, metric, distances, built: Mutex::default() }
    }

    /// Returns the vectors of bytes under the metric l2 whose indexes the tests share.
    fn shared(count: u32) -> &'static Data {
        static ALL: Mutex<BTreeMap<u32, &'static Data>> = Mutex::new(BTreeMap::new());
        let mut all = ALL.lock().unwrap();
        all.entry(count).or_insert_with(|| Box::leak(Box::new(Data::new(Element::U8, Metric::L2, count))))
    }

    /// Returns the path of the shared index of a kind, which is built at the first call. Tests must not
    /// change it.
    fn index_path(&self, name: &'static str) -> PathBuf {
        let path = shared::folder().join(format!("within-{}-{name}", self.rows.count()));
        let built = self.built.lock().unwrap().entry(name).or_default().clone();
        built.get_or_init(|| {
            let (_, family) = kinds().into_iter().find(|(kind, _)| *kind == name).unwrap();
            self.build(&path, family);
        });
        path
    }

    fn build(&self, path: &Path, family: FamilyOptions) {
        let options = BuildOptions { metric: self.metric, threads: 2, ..quick_build(family) };
        build(&self.rows, path, &options, &Silent).unwrap();
    }

    /// Returns the recall of an answer within `set`. Checks that ids are in the set and distinct, and that
    /// distances are sorted and true.
    fn recall(&self, what: &str, set: &RowSet, k: usize, found: &SearchResult) -> f64 {
        let wanted = k.min(set.count() as usize);
        assert_eq!(found.k, wanted, "{what}");
        assert_eq!(found.ids.len(), wanted * QUERIES, "{what}");
        let (mut near, mut all) = (0, 0);
        for (query, to_all) in self.distances.iter().enumerate() {
            let ids = &found.ids[query * wanted..(query + 1) * wanted];
            let distances = &found.distances[query * wanted..(query + 1) * wanted];
            let mut distinct = ids.to_vec();
            distinct.sort_unstable();
            distinct.dedup();
            assert_eq!(distinct.len(), wanted, "{what}: an id twice: {ids:?}");
            assert!(ids.iter().all(|id| set.has(*id)), "{what}: {ids:?}");
            assert!(distances.is_sorted(), "{what}: {distances:?}");
            let mut true_ones: Vec<f32> = set.iter().map(|id| to_all[id as usize]).collect();
            let Some(last) = wanted.checked_sub(1) else { continue };
            let last = *true_ones.select_nth_unstable_by(last, f32::total_cmp).1;
            let least = last.abs() * 1e-5;
            for (id, distance) in ids.iter().zip(distances) {
                let exact = to_all[*id as usize];
                assert!((exact - distance).abs() <= exact.abs() * 1e-4 + 1e-3, "{what}: {exact} {distance}");
            }
            near += ids.iter().filter(|id| to_all[**id as usize] <= last + least).count();
            all += wanted;
        }
        if all == 0 { 1.0 } else { near as f64 / all as f64 }
    }

    /// Returns sets of all kinds, with their names.
    fn sets(&self) -> Vec<(String, RowSet)> {
        let rows = self.rows.count() as u32;
        // A permutation: the factor has no common divisor with the number of rows.
        let mixed = |at: u32| (u64::from(at) * 7919 % u64::from(rows)) as u32;
        let mut sets = vec![
            ("all".to_string(), RowSet::all(rows)),
            ("none".into(), RowSet::from_words(rows, Vec::new())),
        ];
        for share in [2, 10, 100, 1000, rows] {
            let count = rows / share;
            sets.push((format!("{count} anywhere"), RowSet::from_ids(rows, (0..count).map(mixed))));
        }
        // The rows sorted by their distance to the nearest query, and to the first query.
        let nearest =
            |row: u32| self.distances.iter().map(|all| all[row as usize]).fold(f32::INFINITY, f32::min);
        let kernel = Distance::new(self.rows.element(), self.metric, self.rows.dim());
        let to_one = |row: u32| kernel.between(self.queries.row(0), self.rows.row(row as usize));
        let ranked = |key: &dyn Fn(u32) -> f32| {
            let mut all: Vec<(f32, u32)> = (0..rows).map(|row| (key(row), row)).collect();
            all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            all.into_iter().map(|(_, row)| row).collect::<Vec<u32>>()
        };
        let (by_queries, by_one) = (ranked(&nearest), ranked(&to_one));
        for share in [2, 10, 100] {
            let count = (rows / share) as usize;
            let some = |ids: &[u32]| RowSet::from_ids(rows, ids.iter().copied());
            sets.push((format!("{count} near one"), some(&by_one[..count])));
            sets.push((format!("{count} far from one"), some(&by_one[by_one.len() - count..])));
            sets.push((format!("{count} far from all"), some(&by_queries[by_queries.len() - count..])));
        }
        sets
    }
}

fn options(recall: f32) -> SearchOptions {
    SearchOptions { k: K, effort: Effort::Recall(recall), threads: 2, ..SearchOptions::default() }
}

/// Returns the set of one row in `step`.
fn every(rows: u32, step: usize) -> Arc<RowSet> {
    Arc::new(RowSet::from_ids(rows, (0..rows).step_by(step)))
}

fn open(path: &Path, tier: TierChoice) -> Index {
    Index::open(path, &OpenOptions { tier, ..OpenOptions::default() }).unwrap()
}

fn search(index: &Index, queries: &VectorFile, options: &SearchOptions, set: &Arc<RowSet>) -> SearchResult {
    index.search_within(queries, options, set, Control::default()).unwrap()
}

/// Searches for each recall in each set. Returns the sets whose recall is more than 0.01 too low.
fn low_recalls(data: &Data, name: &str, index: &Index, recalls: &[f32]) -> Vec<String> {
    let mut missed = Vec::new();
    for (set_name, set) in data.sets() {
        let set = Arc::new(set);
        for asked in recalls {
            let found = search(index, &data.queries, &options(*asked), &set);
            let what = format!("{name} {}, {set_name}, {asked}", data.metric);
            let recall = data.recall(&what, &set, K, &found);
            let (plan, reason) = (found.within.unwrap(), found.within_reason.unwrap());
            println!("{what}: {recall:.4} {plan:?} {:?}: {reason}", found.totals);
            assert_eq!((plan, reason), index.plan_within(&options(*asked), &set).unwrap(), "{what}");
            if plan == WithinPlan::All {
                let plain = index.search(&data.queries, &options(*asked), Control::default()).unwrap();
                assert_eq!((found.ids, found.totals), (plain.ids, plain.totals), "{what}");
                assert_eq!((plain.within, plain.within_reason), (None, None));
            } else if recall < f64::from(*asked) - 0.01 {
                missed.push(format!("{what}: {recall} by {plan:?}"));
            }
        }
    }
    missed
}

#[test]
fn every_family_reaches_the_recall_in_any_set_of_rows() {
    let data = Data::shared(ROWS);
    let mut all = Vec::new();
    let recalls = [0.9, 0.95, 0.99];
    for (number, (name, _)) in kinds().into_iter().enumerate() {
        let path = data.index_path(name);
        let recalls = if all_cases_run() { &recalls[..] } else { &recalls[number % 3..][..1] };
        all.extend(low_recalls(data, name, &open(&path, TierChoice::File), recalls));
    }
    assert!(all.is_empty(), "{all:#?}");
}

#[test]
fn every_metric_reaches_the_recall_in_memory() {
    let (mut all, mut cases) = (Vec::new(), CaseSelection::one_in(5));
    for (element, metric) in
        [(Element::F32, Metric::InnerProduct), (Element::F32, Metric::Cosine), (Element::I8, Metric::L2)]
    {
        let data = Data::new(element, metric, 3000);
        let dir = tempfile::tempdir().unwrap();
        for (name, family) in kinds().into_iter().filter(|_| cases.next_runs()) {
            let path = dir.path().join(name);
            data.build(&path, family);
            all.extend(low_recalls(&data, name, &open(&path, TierChoice::Dram), &[0.95]));
        }
    }
    assert!(all.is_empty(), "{all:#?}");
}

#[test]
fn batches_and_equal_sets_do_not_change_answers() {
    let data = Data::shared(3000);
    for (name, _) in kinds() {
        let index = open(&data.index_path(name), TierChoice::File);
        for step in [2, 9, 100, 1000] {
            let set = every(3000, step);
            let what = format!("{name}, one in {step}");
            let found = search(&index, &data.queries, &options(0.95), &set);
            let same = Arc::new(RowSet::from_words(3000, set.words().to_vec()));
            let again = search(&index, &data.queries, &options(0.95), &same);
            assert_eq!((&found.ids, &found.distances), (&again.ids, &again.distances), "{what}");
            assert_eq!((found.within, found.k), (again.within, again.k), "{what}");
            let third = search(&index, &data.queries, &options(0.95), &set);
            assert_eq!((&again.ids, &again.per_query), (&third.ids, &third.per_query), "{what}");
            for query in (0..QUERIES).step_by(full_or_quick(1, 4)) {
                let row = data.queries.row(query).to_vec();
                let one = VectorFile::from_rows(Element::U8, DIM, row).unwrap();
                let alone = search(&index, &one, &options(0.95), &set);
                assert_eq!(alone.ids, found.ids[query * found.k..(query + 1) * found.k], "{what}, {query}");
                // The queries of a flat index share their reads.
                if found.within == Some(WithinPlan::Among) && !name.starts_with("flat") {
                    assert_eq!(alone.per_query[0], found.per_query[query], "{what}, {query}");
                }
            }
        }
    }
}

#[test]
fn all_tiers_give_the_same_answers() {
    let data = Data::shared(3000);
    let mut compared = 0;
    for (name, _) in kinds() {
        let path = data.index_path(name);
        let (file, dram) = (open(&path, TierChoice::File), open(&path, TierChoice::Dram));
        for step in [2, 9, 100, 1000] {
            let set = every(3000, step);
            // The plan and the effort for a recall may depend on the tier. With the same plan and effort the
            // answers do not.
            let effort = if name == "flat" { Effort::Recall(1.0) } else { Effort::SearchList(200) };
            let has_search_list = !matches!(name, "flat" | "partitioned");
            let named = SearchOptions {
                effort: if has_search_list { effort } else { Effort::Recall(1.0) },
                ..options(0.9)
            };
            let (on_file, on_dram) =
                (search(&file, &data.queries, &named, &set), search(&dram, &data.queries, &named, &set));
            // These read single vectors in memory, and compare no other vectors of their pages.
            let single = matches!(name, "cluster" | "lsh" | "flat_codes");
            if on_file.within == on_dram.within && (!single || on_file.within == Some(WithinPlan::Scan)) {
                compared += 1;
                assert_eq!(on_file.ids, on_dram.ids, "{name}, one in {step}, {:?}", on_file.within);
            }
        }
    }
    assert!(compared >= 24, "{compared}");
}

#[test]
fn queries_of_a_flat_index_share_reads_if_all_rows_match() {
    let dir = tempfile::tempdir().unwrap();
    for element in [Element::U8, Element::F32] {
        let data = Data::new(element, Metric::L2, 3000);
        let path = dir.path().join(element.name());
        data.build(&path, FlatOptions::default().into());
        let (index, set) = (open(&path, TierChoice::File), Arc::new(RowSet::all(3000)));
        let found = search(&index, &data.queries, &options(0.9), &set);
        assert_eq!(found.within, Some(WithinPlan::Scan), "{element:?}");
        let plain = index.search(&data.queries, &options(0.9), Control::default()).unwrap();
        assert_eq!((&found.ids, &found.distances), (&plain.ids, &plain.distances), "{element:?}");
        let first = VectorFile::from_rows(element, DIM, data.queries.row(0).to_vec()).unwrap();
        let alone = index.search(&first, &options(0.9), Control::default()).unwrap();
        assert_eq!((found.totals.bytes, plain.totals.bytes), (alone.totals.bytes, alone.totals.bytes));
    }
}

#[test]
fn a_scan_reads_the_rows_of_the_set_once_for_all_queries() {
    let data = Data::shared(3000);
    let set = Arc::new(RowSet::from_ids(3000, [7, 8, 1500, 2999].into_iter()));
    for (name, _) in kinds() {
        let index = open(&data.index_path(name), TierChoice::File);
        let first = search(&index, &data.queries, &options(0.95), &set);
        assert_eq!(first.within, Some(WithinPlan::Scan), "{name}");
        let found = search(&index, &data.queries, &options(0.95), &set);
        assert_eq!((found.k, first.ids), (4, found.ids), "{name}");
        assert!(
            (1..=4).contains(&found.totals.reads) && found.totals.hops == 1,
            "{name}: {:?}",
            found.totals
        );
        assert!(found.totals.bytes >= 100 * found.totals.reads, "{name}: {:?}", found.totals);
        assert_eq!((found.totals.full_distances, found.totals.code_distances), (4 * QUERIES as u64, 0));
        assert_eq!(found.per_query.iter().filter(|cost| cost.reads > 0).count(), 1, "{name}");
        assert!(found.notes.iter().any(|note| note.contains("only 4")), "{name}: {:?}", found.notes);
        let stats = index.stats();
        assert_eq!(stats.queries, 2 * QUERIES as u64, "{name}");
    }
}

#[test]
fn invalid_sets_are_refused_and_empty_sets_find_nothing() {
    let data = Data::new(Element::U8, Metric::L2, 1000);
    let dir = tempfile::tempdir().unwrap();
    let none = VectorFile::from_rows(Element::U8, DIM, Vec::new());
    // Sets for other numbers of rows. The largest has half a gigabyte of words.
    let others = [0, 999, 1001, u32::MAX].map(|rows| Arc::new(RowSet::from_words(rows, Vec::new())));
    for (name, family) in kinds() {
        let path = dir.path().join(name);
        data.build(&path, family);
        let index = open(&path, TierChoice::File);
        let ask = |options: &SearchOptions, set: RowSet| {
            index.search_within(&data.queries, options, &Arc::new(set), Control::default())
        };
        for set in &others {
            let refused = index.search_within(&data.queries, &options(0.9), set, Control::default());
            let rows = set.rows();
            assert!(matches!(refused, Err(IndexError::Parameter(_))), "{name}, {rows}: {refused:?}");
        }
        let nothing = SearchOptions { k: 0, ..options(0.9) };
        assert!(matches!(ask(&nothing, RowSet::all(1000)), Err(IndexError::Parameter(_))), "{name}");
        assert!(matches!(ask(&nothing, (*every(1000, 3)).clone()), Err(IndexError::Parameter(_))), "{name}");
        let found = ask(&options(0.9), RowSet::from_words(1000, Vec::new())).unwrap();
        assert_eq!((found.k, found.ids.len(), found.latencies_ns.len()), (0, 0, QUERIES), "{name}");
        // More neighbours than there are vectors.
        let many = SearchOptions { k: 5000, ..options(0.9) };
        let found = ask(&many, (*every(1000, 3)).clone()).unwrap();
        data.recall(name, &every(1000, 3), 5000, &found);
        if let Ok(none) = &none {
            let found = search(&index, none, &options(0.9), &every(1000, 3));
            assert_eq!((found.k, found.ids.len()), (K, 0), "{name}");
        }
    }
}

#[test]
fn searches_within_sets_can_be_cancelled_and_can_be_late() {
    let data = Data::shared(3000);
    let cancelled = AtomicBool::new(true);
    let cancel = Control { cancel: Some(&cancelled), deadline: None };
    let late = Control { cancel: None, deadline: Some(Instant::now()) };
    for (name, _) in kinds() {
        let index = open(&data.index_path(name), TierChoice::File);
        for set in [every(3000, 1), every(3000, 2), every(3000, 20), every(3000, 2900)] {
            let ask = |control| index.search_within(&data.queries, &options(0.9), &set, control);
            assert!(matches!(ask(cancel), Err(IndexError::Cancelled)), "{name}, {}", set.count());
            assert!(matches!(ask(late), Err(IndexError::Deadline)), "{name}, {}", set.count());
            data.recall(name, &set, K, &ask(Control::default()).unwrap());
        }
    }
}

#[test]
fn the_data_kept_for_sets_fits_the_budget() {
    let data = Data::shared(ROWS);
    let mut cases = CaseSelection::one_in(3);
    for (name, _) in kinds() {
        let path = data.index_path(name);
        let with_budget = |bytes| OpenOptions { memory_bytes: Some(bytes), ..OpenOptions::default() };
        let Err(IndexError::Memory { needed: least, .. }) = Index::open(&path, &with_budget(1)) else {
            panic!("{name}: a byte is enough");
        };
        for budget in [least, least + (64 << 10), least + (2 << 20), least + (64 << 20)] {
            if !cases.next_runs() {
                continue;
            }
            let index = Index::open(&path, &with_budget(budget)).unwrap();
            for step in [2, 10, 100, 2000] {
                let set = every(ROWS, step);
                let what = format!("{name}, {} more, one in {step}", budget - least);
                let one = SearchOptions { threads: 1, ..options(0.9) };
                match index.search_within(&data.queries, &one, &set, Control::default()) {
                    Ok(found) => assert!(data.recall(&what, &set, K, &found) > 0.88, "{what}"),
                    Err(IndexError::Memory { needed, given, .. }) => {
                        assert!(needed > given && given == budget && budget < least + (2 << 20), "{what}");
                    }
                    Err(other) => panic!("{what}: {other}"),
                }
                assert!(index.dram_bytes(1, 1, 10) <= budget.max(index.dram_bytes(0, 0, 0)), "{what}");
                assert!(index.dram_bytes(0, 0, 0) <= budget, "{what}");
            }
        }
    }
}

#[test]
fn a_changed_index_cannot_be_searched_within_rows() {
    let data = Data::new(Element::U8, Metric::L2, 1000);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lsh");
    data.build(&path, LshOptions::default().into());
    let index = open(&path, TierChoice::File);
    search(&index, &data.queries, &options(0.9), &every(1000, 2));
    index.delete(&[5]).unwrap();
    let refused = index.search_within(&data.queries, &options(0.9), &every(1000, 2), Control::default());
    assert!(
        matches!(&refused, Err(IndexError::Parameter(what)) if what.contains("has changed since its build"))
    );
}

#[test]
fn damage_is_an_error() {
    let data = Data::shared(3000);
    let dir = tempfile::tempdir().unwrap();
    for (name, _) in kinds() {
        let path = dir.path().join(name);
        files::copy(&data.index_path(name), &path);
        let largest = walk(&path).into_iter().max_by_key(|file| file.metadata().unwrap().len()).unwrap();
        let mut bytes = std::fs::read(&largest).unwrap();
        bytes.iter_mut().for_each(|byte| *byte ^= 0x55);
        std::fs::write(&largest, bytes).unwrap();
        // Files that are kept in memory are checked when the index is opened.
        let Ok(index) = Index::open(&path, &OpenOptions::default()) else { continue };
        for step in [2, 20, 2900] {
            let found =
                index.search_within(&data.queries, &options(0.9), &every(3000, step), Control::default());
            assert!(found.is_err(), "{name}, one in {step}");
        }
    }
}

/// Returns all files in a folder and its folders.
fn walk(path: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|entry| if entry.is_dir() { walk(&entry) } else { vec![entry] }).collect()
}
