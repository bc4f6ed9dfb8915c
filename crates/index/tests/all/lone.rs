//! Lone queries, which the calling thread answers itself if the index is in memory, and callers that wait for
//! others.

use crate::clustered::vectors;
use bathyal_index::{
    BuildOptions, ClusterOptions, Effort, FamilyOptions, GraphOptions, Index, IndexError, OpenOptions,
    SearchOptions, TierChoice, build,
};
use bathyal_kernels::Element;
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Silent;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

fn graph() -> FamilyOptions {
    GraphOptions { max_degree: 24, search_list: 50, ..GraphOptions::default() }.into()
}

fn families() -> [FamilyOptions; 2] {
    [ClusterOptions::default().into(), graph()]
}

const DIM: usize = 32;

fn build_index(dir: &Path, family: FamilyOptions) -> Index {
    let options = BuildOptions::of(family);
    let path = dir.join("index");
    build(&vectors(Element::U8, 3000, DIM, 1), &path, &options, &Silent).unwrap();
    Index::open(path, &OpenOptions { tier: TierChoice::Dram, ..OpenOptions::default() }).unwrap()
}

fn row(queries: &VectorFile, row: usize) -> VectorFile {
    VectorFile::from_rows(Element::U8, DIM, queries.row(row).to_vec()).unwrap()
}

fn options(search_list: u32) -> SearchOptions {
    SearchOptions { effort: Effort::SearchList(search_list), ..SearchOptions::default() }
}

#[test]
fn a_lone_query_gets_the_same_answer_as_in_a_batch() {
    for family in families() {
        let dir = tempfile::tempdir().unwrap();
        let index = build_index(dir.path(), family);
        let queries = vectors(Element::U8, 40, DIM, 2);
        let expected = index.search(&queries, &options(60), Control::default()).unwrap();
        let search_all = || {
            for at in 0..queries.count() {
                let found = index.search(&row(&queries, at), &options(60), Control::default()).unwrap();
                assert_eq!((found.threads, found.per_query.len()), (1, 1));
                assert_eq!(found.per_query[0], expected.per_query[at], "query {at}");
                assert_eq!(found.ids, expected.ids[at * 10..][..10], "query {at}");
                assert_eq!(found.distances, expected.distances[at * 10..][..10], "query {at}");
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..5 {
                scope.spawn(search_all);
            }
        });
        assert_eq!(index.stats().queries, 6 * queries.count() as u64);
    }
}

#[test]
fn a_lone_query_can_be_cancelled_and_can_be_late() {
    for family in families() {
        let dir = tempfile::tempdir().unwrap();
        let index = build_index(dir.path(), family);
        let query = vectors(Element::U8, 1, DIM, 2);
        let raised = AtomicBool::new(true);
        let cancelled = Control { cancel: Some(&raised), deadline: None };
        assert!(matches!(index.search(&query, &options(60), cancelled), Err(IndexError::Cancelled)));
        let late = Control { cancel: None, deadline: Some(Instant::now()) };
        assert!(matches!(index.search(&query, &options(60), late), Err(IndexError::Deadline)));
        assert_eq!(index.stats().errors, 2);
        assert!(index.search(&query, &options(60), Control::default()).is_ok());
    }
}

#[test]
fn the_callback_of_a_caller_runs_during_a_search_and_can_cancel_it() {
    let dir = tempfile::tempdir().unwrap();
    let index = build_index(dir.path(), graph());
    // The search would take a minute.
    let queries = vectors(Element::U8, 100_000, DIM, 2);
    let (cancel, calls) = (AtomicBool::new(false), AtomicUsize::new(0));
    let callback = || {
        if calls.fetch_add(1, Ordering::Relaxed) == 2 {
            cancel.store(true, Ordering::Relaxed);
        }
    };
    let control = Control { cancel: Some(&cancel), deadline: None };
    let outcome = index.search_attended(&queries, &options(1000), control, &callback);
    assert!(matches!(outcome, Err(IndexError::Cancelled)));
    assert_eq!(calls.load(Ordering::Relaxed), 3);
}

#[test]
fn jobs_are_assigned_while_workers_finish_others() {
    let dir = tempfile::tempdir().unwrap();
    let index = build_index(dir.path(), ClusterOptions::default().into());
    let queries = vectors(Element::U8, 80, DIM, 2);
    let with_threads = |threads| SearchOptions { threads, ..options(60) };
    // So many workers that their loads change while jobs are assigned by load.
    let expected = index.search(&queries, &with_threads(40), Control::default()).unwrap();
    let two = VectorFile::from_rows(Element::U8, DIM, [queries.row(0), queries.row(1)].concat()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                for _ in 0..300 {
                    let found = index.search(&two, &with_threads(2), Control::default()).unwrap();
                    assert_eq!(found.ids, expected.ids[..20]);
                }
            });
        }
    });
}
