//! Batches that compare all vectors: the queries share what is read, and their answers are those of single
//! queries.

use crate::cases::{case_runs, quick_build};
use crate::clustered::vectors;
use crate::families::places::{PLACES, VARIANTS, open, simulated, some};
use bathyal_index::families::flat::FlatOptions;
use bathyal_index::{
    BuildOptions, Effort, Index, IndexError, OpenOptions, QueryStats, RowSet, SearchOptions, SearchResult,
    StoreAs, build,
};
use bathyal_kernels::quantize::CodeKind;
use bathyal_kernels::{Element, Metric};
use bathyal_tier::Control;
use bathyal_tier::backend::sim::{SimFault, SimOptions, When};
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::{Progress, Silent};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Options of a search on `threads` threads, whose passes have up to `in_flight` queries for each thread.
fn options(k: usize, threads: usize, in_flight: Option<usize>) -> SearchOptions {
    SearchOptions { k, threads, in_flight, ..SearchOptions::default() }
}

fn search(index: &Index, queries: &VectorFile, options: &SearchOptions) -> SearchResult {
    index.search(queries, options, Control::default()).unwrap()
}

/// Returns the answers of the queries one by one.
fn alone(index: &Index, queries: &VectorFile, k: usize) -> SearchResult {
    search(index, queries, &options(k, 1, Some(1)))
}

fn first(queries: &VectorFile, count: usize) -> VectorFile {
    let rows = queries.rows(0..count).unwrap().to_vec();
    VectorFile::from_rows(queries.element(), queries.dim(), rows).unwrap()
}

fn build_flat(path: &Path, data: &VectorFile, metric: Metric, store_as: Option<StoreAs>) {
    let options = BuildOptions { metric, store_as, threads: 2, ..quick_build(FlatOptions::default()) };
    build(data, path, &options, &Silent).unwrap();
}

/// Checks that ids and distances are the same bits.
fn assert_same(found: &SearchResult, expected: &SearchResult, what: &str) {
    let bits = |found: &SearchResult| -> Vec<u32> { found.distances.iter().map(|d| d.to_bits()).collect() };
    let count = found.ids.len();
    assert_eq!(found.ids, expected.ids[..count], "{what}");
    assert_eq!(bits(found), bits(expected)[..count], "{what}");
}

#[test]
fn a_batch_has_the_answers_of_single_queries() {
    let dir = tempfile::tempdir().unwrap();
    let pairs = Metric::ALL.into_iter().flat_map(|metric| Element::ALL.map(|element| (metric, element)));
    let smaller = [StoreAs::F16, StoreAs::I8].map(Some);
    let smaller = Metric::ALL.into_iter().flat_map(|metric| smaller.map(|as_| (metric, Element::F32, as_)));
    let forms = pairs.map(|(metric, element)| (metric, element, None)).chain(smaller);
    for (number, (metric, element, store_as)) in forms.enumerate() {
        let path = dir.path().join(number.to_string());
        let (data, queries) = (vectors(element, 2500, 40, 1), vectors(element, 700, 40, 2));
        build_flat(&path, &data, metric, store_as);
        for place in some(number) {
            let index = place.open(&path);
            let few = first(&queries, 33);
            let expected = alone(&index, &few, 10);
            for (count, threads) in [(1, 1), (2, 2), (7, 1), (33, 1), (33, 3)] {
                let what = format!("{metric} {element} {store_as:?} on {}: {count}, {threads}", place.name);
                let found = search(&index, &first(&queries, count), &options(10, threads, None));
                assert_same(&found, &expected, &what);
            }
        }
        // Few queries of bits are compared one by one.
        if case_runs(number, 5) || element == Element::B1 {
            let index = open(&path, OpenOptions::default());
            let what = format!("{metric} {element} {store_as:?}");
            let expected = alone(&index, &queries, 10);
            assert_same(&search(&index, &queries, &options(10, 2, None)), &expected, &what);
            let few = first(&queries, 5);
            let all = alone(&index, &few, 2600);
            assert_eq!(all.k, 2500);
            assert_same(&search(&index, &few, &options(2600, 2, None)), &all, &what);
        }
    }
}

#[test]
fn every_tier_reads_a_block_once_for_a_batch() {
    let dir = tempfile::tempdir().unwrap();
    let (data, queries) = (vectors(Element::U8, 6000, 32, 1), vectors(Element::U8, 70, 32, 2));
    let path = dir.path().join("flat");
    build_flat(&path, &data, Metric::L2, None);
    for place in PLACES.iter().chain(&VARIANTS) {
        let index = place.open(&path);
        let expected = alone(&index, &queries, 10);
        let (reads, bytes) = (expected.per_query[0].reads, expected.per_query[0].bytes);
        for (in_flight, threads, passes) in [(None, 1, 1), (None, 3, 1), (Some(7), 2, 5), (Some(2), 1, 35)] {
            let what = format!("{}: {in_flight:?} {threads}", place.name);
            let found = search(&index, &queries, &options(10, threads, in_flight));
            assert_same(&found, &expected, &what);
            assert_eq!(found.totals.reads, u64::from(reads) * passes, "{what}");
            assert_eq!(found.totals.bytes, bytes * passes, "{what}");
            assert_eq!(found.totals.full_distances, 6000 * 70, "{what}");
            // The first query of a pass has its reads.
            let with_reads = QueryStats { hops: 1, reads, bytes, ..found.per_query[1] };
            for (query, cost) in found.per_query.iter().enumerate() {
                let first = (query as u64).is_multiple_of(70 / passes);
                assert_eq!(*cost, if first { with_reads } else { found.per_query[1] }, "{what}: {query}");
            }
        }
    }
}

#[test]
fn filters_exact_neighbors_and_codes_share_passes() {
    let dir = tempfile::tempdir().unwrap();
    let (data, queries) = (vectors(Element::U8, 3000, 32, 1), vectors(Element::U8, 40, 32, 2));
    let path = dir.path().join("flat");
    build_flat(&path, &data, Metric::L2, None);
    let index = open(&path, OpenOptions::default());
    let expected = alone(&index, &queries, 10);
    let exact = index.exact_neighbors(&queries, 10, 2, &Silent).unwrap();
    for query in 0..40 {
        assert_eq!(exact.ids(query), &expected.ids[query * 10..][..10]);
        assert_eq!(exact.distances(query).unwrap(), &expected.distances[query * 10..][..10]);
    }
    assert_eq!(index.stats().queries, 40, "exact neighbours are no searches");
    let all = index.search_within(
        &queries,
        &options(10, 2, None),
        &Arc::new(RowSet::all(3000)),
        Control::default(),
    );
    let all = all.unwrap();
    assert_same(&all, &expected, "all rows");
    assert_eq!(all.totals.bytes, expected.per_query[0].bytes);
    let some = Arc::new(RowSet::from_ids(3000, (0..3000).filter(|id| id % 3 != 0)));
    let within = |options: &SearchOptions| index.search_within(&queries, options, &some, Control::default());
    let (batch, single) = (within(&options(10, 2, None)).unwrap(), within(&options(10, 1, Some(1))).unwrap());
    assert_same(&batch, &single, "some rows");
    assert!(batch.ids.iter().all(|id| some.has(*id)));
    // With codes, a search for all candidates compares all vectors, and another one reads its own pages.
    let family = FlatOptions { code_kind: Some(CodeKind::Axes), ..FlatOptions::default() };
    let path = dir.path().join("codes");
    build(&data, &path, &quick_build(family), &Silent).unwrap();
    let index = open(&path, OpenOptions::default());
    for (list, shared) in [(100, false), (3000, true)] {
        let options = |threads, in_flight| SearchOptions {
            effort: Effort::SearchList(list),
            ..options(10, threads, in_flight)
        };
        let found = search(&index, &queries, &options(2, None));
        assert_same(&found, &search(&index, &queries, &options(1, Some(1))), "codes");
        assert_eq!(found.per_query[1].reads == 0, shared);
    }
}

#[test]
fn a_budget_has_as_many_passes_as_it_needs() {
    let dir = tempfile::tempdir().unwrap();
    let (data, queries) = (vectors(Element::F32, 3000, 64, 1), vectors(Element::F32, 300, 64, 2));
    let path = dir.path().join("flat");
    build_flat(&path, &data, Metric::Cosine, None);
    let expected = alone(&open(&path, OpenOptions::default()), &queries, 100);
    let of_pass = expected.per_query[0].bytes;
    let budget = |bytes| OpenOptions { memory_bytes: Some(bytes), ..OpenOptions::default() };
    let Err(IndexError::Memory { needed, .. }) = Index::open(&path, &budget(1)) else { panic!("1 byte") };
    let mut before = u64::MAX;
    for more in [0, 64 << 10, 700 << 10, 1 << 20, 2 << 20, 8 << 20] {
        let index = open(&path, budget(needed + more));
        let options = options(100, 1, None);
        let found = search(&index, &queries, &options);
        assert_same(&found, &expected, "a budget");
        assert!(index.dram_bytes_of(&found, &options) <= needed + more, "{more}");
        assert!(found.totals.bytes <= before && found.totals.bytes.is_multiple_of(of_pass), "{more}");
        before = found.totals.bytes;
    }
    assert_eq!(before, of_pass, "one pass");
    let least = search(&open(&path, budget(needed)), &queries, &options(100, 1, None));
    assert_eq!(least.totals.bytes, 300 * of_pass, "no space for two queries at once");
}

#[test]
fn a_failed_read_fails_the_batch_and_leaves_the_index_usable() {
    let dir = tempfile::tempdir().unwrap();
    let (data, queries) = (vectors(Element::U8, 20_000, 32, 1), vectors(Element::U8, 40, 32, 2));
    let path = dir.path().join("flat");
    build_flat(&path, &data, Metric::L2, None);
    let index = open(&path, OpenOptions::default());
    let expected = alone(&index, &queries, 10);
    for fault in [SimFault::Error(5), SimFault::Short(100), SimFault::Flip(12_345), SimFault::Misdirect(7)] {
        let script = vec![(When::Touching(index.tier().len() / 2), fault)];
        let (sim, handle) = simulated(&index, SimOptions { script, ..SimOptions::default() });
        for threads in [1, 2] {
            let failed = sim.search(&queries, &options(10, threads, None), Control::default());
            assert!(matches!(failed, Err(IndexError::Read { .. } | IndexError::Damaged { .. })), "{fault:?}");
        }
        assert!(handle.violations().is_empty());
    }
    assert_same(&search(&index, &queries, &options(10, 2, None)), &expected, "after the faults");
}

/// Progress that cancels the work once some of it is done.
#[derive(Default)]
struct CancelsHalfway {
    done: AtomicU64,
    raised: AtomicBool,
}

impl Progress for CancelsHalfway {
    fn stage(&self, _: &str, _: u64) {}

    fn advance(&self, done: u64) {
        self.done.fetch_max(done, Ordering::Relaxed);
        self.raised.store(done > 0, Ordering::Relaxed);
    }

    fn cancelled(&self) -> bool {
        self.raised.load(Ordering::Relaxed)
    }
}

#[test]
fn a_pass_shows_its_progress_and_stops_when_it_is_cancelled() {
    let dir = tempfile::tempdir().unwrap();
    let (data, queries) = (vectors(Element::F32, 20_000, 64, 1), vectors(Element::F32, 6000, 64, 2));
    let path = dir.path().join("flat");
    build_flat(&path, &data, Metric::L2, None);
    let index = open(&path, OpenOptions::default());
    let progress = CancelsHalfway::default();
    let stopped = index.exact_neighbors(&queries, 100, 2, &progress);
    assert!(matches!(stopped, Err(IndexError::Cancelled)), "{:?}", stopped.err());
    assert!((1..6000).contains(&progress.done.load(Ordering::Relaxed)));
    let few = first(&queries, 3);
    assert_same(&search(&index, &few, &options(10, 2, None)), &alone(&index, &few, 10), "afterwards");
}
