//! Search among some of the rows, in every family and layout: the recall that was asked for, whichever rows these are.

mod clustered;

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
use clustered::vectors;
use std::path::Path;
use std::sync::Arc;

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

struct Data {
    rows: VectorFile,
    queries: VectorFile,
    metric: Metric,
    /// `queries x rows`.
    distances: Vec<Vec<f32>>,
}

impl Data {
    fn new(element: Element, metric: Metric, count: u32) -> Data {
        let (rows, queries) = (vectors(element, count as usize, DIM, 1), vectors(element, QUERIES, DIM, 2));
        let kernel = Distance::new(element, metric, rows.dim());
        let between = |query, row| kernel.between(queries.row(query), rows.row(row));
        let to_all = |query| (0..rows.count()).map(|row| between(query, row)).collect();
        let distances = (0..QUERIES).map(to_all).collect();
        Data { rows, queries, metric, distances }
    }

    fn build(&self, path: &Path, family: FamilyOptions) {
        let options = BuildOptions { metric: self.metric, threads: 2, ..BuildOptions::of(family) };
        build(&self.rows, path, &options, &Silent).unwrap();
    }

    /// The share of the rows of `set` nearest to the queries that were found; checks whatever else is asked of the answer.
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
            true_ones.sort_unstable_by(f32::total_cmp);
            let Some(last) = wanted.checked_sub(1).map(|at| true_ones[at]) else { continue };
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

    /// Sets of all kinds, by name.
    fn sets(&self) -> Vec<(String, RowSet)> {
        let rows = self.rows.count() as u32;
        // A permutation, by a step that shares no factor with the number of rows.
        let mixed = |at: u32| (u64::from(at) * 7919 % u64::from(rows)) as u32;
        let mut sets =
            vec![("all".to_string(), RowSet::all(rows)), ("none".into(), RowSet::all(0).wide(rows))];
        for share in [2, 10, 100, 1000, rows] {
            let count = rows / share;
            sets.push((format!("{count} anywhere"), RowSet::from_ids(rows, (0..count).map(mixed))));
        }
        // The rows by their distance to the nearest query, and to one row.
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

trait Wide {
    fn wide(self, rows: u32) -> RowSet;
}

impl Wide for RowSet {
    fn wide(self, rows: u32) -> RowSet {
        RowSet::from_words(rows, self.words().to_vec())
    }
}

fn options(recall: f32) -> SearchOptions {
    SearchOptions { k: K, effort: Effort::Recall(recall), threads: 2, ..SearchOptions::default() }
}

fn open(path: &Path, tier: TierChoice) -> Index {
    Index::open(path, &OpenOptions { tier, ..OpenOptions::default() }).unwrap()
}

#[test]
fn every_family_finds_what_was_asked_for_among_any_rows() {
    let data = Data::new(Element::U8, Metric::L2, ROWS);
    let dir = tempfile::tempdir().unwrap();
    let sets = data.sets();
    let mut missed = Vec::new();
    for (name, family) in kinds() {
        let path = dir.path().join(name);
        data.build(&path, family);
        let index = open(&path, TierChoice::File);
        for asked in [0.9, 0.95, 0.99] {
            for (of, set) in &sets {
                let set = Arc::new(set.clone());
                let found = index.search_within(&data.queries, &options(asked), &set, Control::default());
                let found = found.unwrap();
                let what = format!("{name}, {of}, {asked}");
                let recall = data.recall(&what, &set, K, &found);
                println!(
                    "{what}: {recall:.4} {:?} hops {} reads {} codes {} full {}",
                    found.within,
                    found.totals.hops,
                    found.totals.reads,
                    found.totals.code_distances,
                    found.totals.full_distances
                );
                if recall < f64::from(asked) - 0.01 {
                    missed.push(format!("{what}: {recall} by {:?}", found.within));
                }
            }
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}
