//! Many concurrent callers. They share search threads, do not wait behind the batch of another caller, and
//! end if the index is closed.

#[path = "all/clustered/mod.rs"]
mod clustered;

use bathyal_index::{
    BuildOptions, Effort, GivenOptions, Index, IndexError, OpenOptions, SearchOptions, TierChoice, build,
    families,
};
use bathyal_kernels::Element;
use bathyal_tier::backend::sim::{FaultRates, SimHandle, SimOptions, SimTier};
use bathyal_tier::{Control, Tier};
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Silent;
use clustered::vectors;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

const FAMILIES: [&str; 3] = ["cluster", "graph", "spann"];
const DIM: usize = 32;
const CALLERS: usize = 32;

fn build_index(dir: &Path, family: &str) -> PathBuf {
    let graph = [("max_degree", 24), ("search_list", 50)].map(|(name, value)| (name.into(), value.into()));
    let given = if family == "graph" { GivenOptions::from(graph) } else { GivenOptions::new() };
    let options = BuildOptions::of(families::options(family, &given).unwrap());
    let path = dir.join(family);
    build(&vectors(Element::U8, 3000, DIM, 1), &path, &options, &Silent).unwrap();
    path
}

fn queries(count: usize) -> VectorFile {
    vectors(Element::U8, count, DIM, 2)
}

fn row(queries: &VectorFile, row: usize) -> VectorFile {
    VectorFile::from_rows(Element::U8, DIM, queries.row(row).to_vec()).unwrap()
}

fn options() -> SearchOptions {
    SearchOptions { effort: Effort::SearchList(60), ..SearchOptions::default() }
}

/// Opens an index on a device whose reads complete only when the handle releases them.
fn stuck(path: &Path) -> (Index, SimHandle) {
    let handle = Arc::new(OnceLock::new());
    let keep = handle.clone();
    let rates = FaultRates { stuck: 1.0, ..FaultRates::NONE };
    let wrap = move |tier: Arc<dyn Tier>| {
        let sim = SimTier::over(tier, SimOptions { rates, ..SimOptions::default() });
        keep.get_or_init(|| sim.handle());
        Ok(Arc::new(sim) as Arc<dyn Tier>)
    };
    let index = Index::open(path, &OpenOptions { wrap: Some(Arc::new(wrap)), ..OpenOptions::default() });
    (index.unwrap(), handle.get().unwrap().clone())
}

/// Releases the reads of a device until `done` returns true.
fn release_until(handle: &SimHandle, done: impl Fn() -> bool) {
    while !done() {
        handle.release_stuck();
        std::thread::yield_now();
    }
}

#[test]
fn lone_callers_wait_for_the_device_together() {
    for family in FAMILIES {
        let dir = tempfile::tempdir().unwrap();
        let (index, device) = stuck(&build_index(dir.path(), family));
        let queries = queries(CALLERS);
        let ended = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for caller in 0..CALLERS {
                let (index, query, ended) = (&index, row(&queries, caller), &ended);
                scope.spawn(move || {
                    let found = index.search(&query, &options(), Control::default()).unwrap();
                    assert_eq!(found.ids.len(), 10);
                    ended.fetch_add(1, Ordering::Relaxed);
                });
            }
            // Every caller has a read in flight, and no answer. If few threads each served one caller, this
            // loop would not end.
            while device.stats().stuck < CALLERS as u64 {
                std::thread::yield_now();
            }
            assert_eq!(ended.load(Ordering::Relaxed), 0);
            release_until(&device, || ended.load(Ordering::Relaxed) == CALLERS);
        });
        assert_eq!(device.violations(), []);
    }
}

/// Awaits all of `futures` on this thread.
fn join<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let waker = bathyal_tier::thread_waker();
    let mut futures: Vec<_> = futures.into_iter().map(Box::pin).collect();
    let mut answers: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    while answers.iter().any(Option::is_none) {
        let mut progress = false;
        for (future, answer) in futures.iter_mut().zip(&mut answers) {
            if answer.is_none()
                && let Poll::Ready(ended) = future.as_mut().poll(&mut Context::from_waker(&waker))
            {
                *answer = Some(ended);
                progress = true;
            }
        }
        if !progress {
            std::thread::park();
        }
    }
    answers.into_iter().flatten().collect()
}

#[test]
fn awaited_searches_get_the_same_answers() {
    for tier in [TierChoice::File, TierChoice::Dram] {
        for family in FAMILIES {
            let dir = tempfile::tempdir().unwrap();
            let open = OpenOptions { tier: tier.clone(), ..OpenOptions::default() };
            let index = Index::open(build_index(dir.path(), family), &open).unwrap();
            let queries = queries(300);
            let expected = index.search(&queries, &options(), Control::default()).unwrap();
            let search = |at| index.search_async(&row(&queries, at), &options(), None);
            let found = join((0..300).map(search).collect());
            for (at, found) in found.into_iter().enumerate() {
                let found = found.unwrap();
                assert_eq!(found.ids, expected.ids[at * 10..][..10], "query {at}");
                assert_eq!(found.per_query, expected.per_query[at..at + 1], "query {at}");
            }
            let whole = join(vec![index.search_async(&queries, &options(), None)]).remove(0).unwrap();
            assert_eq!((whole.ids, whole.per_query), (expected.ids, expected.per_query));
            let none = SearchOptions { k: 0, ..options() };
            let refused = join(vec![index.search_async(&queries, &none, None)]).remove(0);
            assert!(matches!(refused, Err(IndexError::Parameter(_))));
        }
    }
}

#[test]
fn dropped_and_late_searches_release_their_slots() {
    let dir = tempfile::tempdir().unwrap();
    let (index, device) = stuck(&build_index(dir.path(), "cluster"));
    let queries = queries(200);
    // These are more than one thread interleaves. If they kept their slots, the last search would never
    // begin.
    for at in 0..200 {
        let mut search = pin!(index.search_async(&row(&queries, at), &options(), None));
        let polled = search.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
    }
    let deadline = Some(Instant::now() + Duration::from_millis(50));
    let late =
        join((0..200).map(|at| index.search_async(&row(&queries, at), &options(), deadline)).collect());
    assert!(late.iter().all(|late| matches!(late, Err(IndexError::Deadline))));
    let control = Control { cancel: None, deadline: Some(Instant::now() + Duration::from_millis(50)) };
    assert!(matches!(index.search(&queries, &options(), control), Err(IndexError::Deadline)));
    assert!(matches!(index.search(&row(&queries, 0), &options(), control), Err(IndexError::Deadline)));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| release_until(&device, || done.load(Ordering::Relaxed)));
        let found = join(vec![index.search_async(&queries, &options(), None)]).remove(0);
        done.store(true, Ordering::Relaxed);
        assert_eq!(found.unwrap().ids.len(), 2000);
    });
    assert_eq!(device.violations(), []);
}

#[test]
fn a_lone_caller_does_not_wait_behind_a_batch() {
    let dir = tempfile::tempdir().unwrap();
    let path = build_index(dir.path(), "graph");
    for tier in [TierChoice::File, TierChoice::Dram] {
        let index = Index::open(&path, &OpenOptions { tier, ..OpenOptions::default() }).unwrap();
        // The batch takes minutes on every thread.
        let (batch, cancel) = (queries(100_000), AtomicBool::new(false));
        let hard = SearchOptions { effort: Effort::SearchList(1000), ..SearchOptions::default() };
        std::thread::scope(|scope| {
            let control = Control { cancel: Some(&cancel), deadline: None };
            let (index, batch, hard) = (&index, &batch, &hard);
            let busy = scope.spawn(move || index.search(batch, hard, control));
            while index.stats().queries == 0 {
                std::thread::yield_now();
            }
            let searches: Vec<_> =
                (0..20).map(|at| index.search_async(&row(batch, at), &options(), None)).collect();
            assert!(join(searches).iter().all(Result::is_ok));
            assert!(!busy.is_finished(), "the batch was answered first");
            cancel.store(true, Ordering::Relaxed);
            assert!(matches!(busy.join().unwrap(), Err(IndexError::Cancelled)));
        });
    }
}

#[test]
fn callers_share_a_budget_that_is_enough_for_one() {
    let dir = tempfile::tempdir().unwrap();
    for family in FAMILIES {
        let path = build_index(dir.path(), family);
        let open =
            |bytes| Index::open(&path, &OpenOptions { memory_bytes: Some(bytes), ..OpenOptions::default() });
        let Err(IndexError::Memory { needed, .. }) = open(1000) else { panic!("1000 bytes are enough") };
        let index = open(needed).unwrap();
        let queries = queries(CALLERS);
        let one = SearchOptions { threads: 1, ..options() };
        let expected = index.search(&queries, &one, Control::default()).unwrap();
        let wrong = Mutex::new(0);
        std::thread::scope(|scope| {
            for caller in 0..CALLERS {
                let (index, queries, expected, wrong) = (&index, &queries, &expected, &wrong);
                scope.spawn(move || {
                    for at in (0..CALLERS).map(|i| (i + caller) % CALLERS) {
                        let found = index.search(&row(queries, at), &one, Control::default()).unwrap();
                        *wrong.lock().unwrap() += u32::from(found.ids != expected.ids[at * 10..][..10]);
                    }
                });
            }
        });
        assert_eq!(wrong.into_inner().unwrap(), 0);
    }
}

/// Returns the number of search threads of this process.
#[cfg(target_os = "linux")]
fn search_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name =
        |task: std::io::Result<std::fs::DirEntry>| std::fs::read_to_string(task.unwrap().path().join("comm"));
    tasks.map(name).filter(|name| name.as_ref().is_ok_and(|name| name.trim() == "bathyal-search")).count()
}

#[cfg(target_os = "linux")]
#[test]
fn a_hundred_open_indexes_share_the_threads() {
    let dir = tempfile::tempdir().unwrap();
    let path = build_index(dir.path(), "cluster");
    let cores = std::thread::available_parallelism().unwrap().get();
    let queries = queries(50);
    let open = || Index::open(&path, &OpenOptions::default()).unwrap();
    let indexes: Vec<Index> = (0..100).map(|_| open()).collect();
    let expected = indexes[0].search(&queries, &options(), Control::default()).unwrap();
    // All at the same time, so that each thread runs many engines.
    let searches: Vec<_> =
        indexes.iter().map(|index| index.search_async(&queries, &options(), None)).collect();
    for found in join(searches) {
        assert_eq!(found.unwrap().ids, expected.ids);
    }
    assert!(search_threads() <= cores, "{} threads on {cores} cores", search_threads());
}

#[test]
fn an_index_can_be_closed_during_searches() {
    let dir = tempfile::tempdir().unwrap();
    let (index, device) = stuck(&build_index(dir.path(), "spann"));
    let queries = queries(20);
    let mut searches: Vec<_> =
        (0..20).map(|at| Box::pin(index.search_async(&row(&queries, at), &options(), None))).collect();
    for search in &mut searches {
        assert!(search.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    drop(index);
    device.release_stuck();
    assert!(join(searches).iter().all(|found| matches!(found, Err(IndexError::Cancelled))));
}

/// Runs in a forked child. Returns 0 if searches of the parent's index are refused and those of a new one
/// succeed.
#[cfg(target_os = "linux")]
fn search_in_child(index: &Index, path: &Path, query: &VectorFile, batch: &VectorFile) -> i32 {
    let forked = |outcome| matches!(outcome, Err(IndexError::Forked { .. }));
    if !forked(index.search(query, &options(), Control::default()).map(drop))
        || !forked(index.search(batch, &options(), Control::default()).map(drop))
        || !forked(join(vec![index.search_async(batch, &options(), None)]).remove(0).map(drop))
    {
        return 1;
    }
    let Ok(again) = Index::open(path, &OpenOptions::default()) else { return 2 };
    match again.search(batch, &options(), Control::default()) {
        Ok(found) if found.ids.len() == 10 * batch.count() => 0,
        _ => 3,
    }
}

/// Runs in a forked child. Returns 0 if changes of the parent's index are refused, and those of a new one as
/// well, because the parent is its writer.
#[cfg(target_os = "linux")]
fn change_in_child(index: &Index, path: &Path, rows: &VectorFile) -> i32 {
    if !matches!(index.insert(rows), Err(IndexError::Forked { .. }))
        || !matches!(index.delete(&[1]), Err(IndexError::Forked { .. }))
    {
        return 1;
    }
    let Ok(again) = Index::open(path, &OpenOptions::default()) else { return 2 };
    // The parent keeps the lock of the log.
    match again.insert(rows) {
        Err(IndexError::Store(_)) if again.len() == index.len() => 0,
        _ => 3,
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_forked_child_cannot_change_the_index_of_its_parent() {
    let dir = tempfile::tempdir().unwrap();
    let path = build_index(dir.path(), "lsh");
    let index = Index::open(&path, &OpenOptions::default()).unwrap();
    let rows = queries(3);
    assert_eq!(index.insert(&rows).unwrap(), 3000..3003);
    in_child(|| change_in_child(&index, &path, &rows));
    // The end of the child does not release the lock of the log.
    let other = Index::open(&path, &OpenOptions::default()).unwrap();
    assert!(matches!(other.insert(&rows), Err(IndexError::Store(_))));
    assert_eq!((index.insert(&rows).unwrap(), index.delete(&[1, 2]).unwrap()), (3003..3006, 2));
}

/// Runs `work` in a forked child, and checks that it returns 0.
#[cfg(target_os = "linux")]
fn in_child(work: impl FnOnce() -> i32) {
    // SAFETY: the child calls nothing but the library under test and `_exit`.
    let number = unsafe { libc::fork() };
    if number == 0 {
        let outcome = work();
        // SAFETY: ends the child without running exit handlers of its parent.
        unsafe { libc::_exit(outcome) };
    }
    let mut status = 0;
    // SAFETY: waits for the child just made, and the status has room.
    assert_eq!(unsafe { libc::waitpid(number, &mut status, 0) }, number);
    assert_eq!((libc::WIFEXITED(status), libc::WEXITSTATUS(status)), (true, 0));
}

#[cfg(target_os = "linux")]
#[test]
fn a_forked_child_has_to_open_the_index_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = build_index(dir.path(), "cluster");
    for tier in [TierChoice::File, TierChoice::Dram] {
        let index = Index::open(&path, &OpenOptions { tier, ..OpenOptions::default() }).unwrap();
        let (query, batch) = (row(&queries(1), 0), queries(50));
        index.search(&batch, &options(), Control::default()).unwrap();
        index.search(&query, &options(), Control::default()).unwrap();
        in_child(|| search_in_child(&index, &path, &query, &batch));
        assert_eq!(index.search(&batch, &options(), Control::default()).unwrap().ids.len(), 500);
    }
}
