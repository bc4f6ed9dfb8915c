//! Audits of live searches.

use super::calibrations::queries_unlike_the_data;
use super::kinds::{KINDS, Shared};
use crate::files;
use bathyal_index::{
    AuditOptions, AuditStats, Effort, Index, IndexError, OnMiss, OpenOptions, RowSet, SearchOptions,
};
use bathyal_kernels::Metric;
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::groundtruth::{exact_neighbors, recall};
use bathyal_vectors::progress::Silent;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Opens an index whose searches are all audited.
fn audited(path: &Path, on_miss: OnMiss) -> Result<Index, IndexError> {
    let audit = Some(AuditOptions { share: 1.0, on_miss, busy: 1.0 });
    Index::open(path, &OpenOptions { audit, ..OpenOptions::default() })
}

/// Returns the counters once no query waits or is being answered.
fn settled(index: &Index) -> AuditStats {
    let started = Instant::now();
    loop {
        let stats = index.stats().audit.unwrap();
        let audited: u64 = stats.recalls.iter().map(|one| one.audited).sum();
        if stats.sampled == stats.dropped + stats.discarded + audited {
            return stats;
        }
        assert!(started.elapsed() < Duration::from_secs(60), "{stats:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn for_90() -> SearchOptions {
    SearchOptions { effort: Effort::Recall(0.9), ..SearchOptions::default() }
}

#[test]
fn the_recall_of_live_searches_is_that_of_the_ground_truth() {
    let (all, queries) = (Shared::get(), queries_unlike_the_data(200, 8));
    let truth = exact_neighbors(&all.data, &queries, Metric::L2, 100, None, &Silent).unwrap();
    for (number, kind) in KINDS.into_iter().enumerate() {
        let index = match audited(&all.path(number), OnMiss::Note) {
            Ok(index) => index,
            Err(error) => {
                assert!(error.to_string().contains("is changed in place cannot be audited"), "{error}");
                continue;
            }
        };
        let found = index.search(&queries, &for_90(), Control::default()).unwrap();
        let expected = recall(&truth, &found.ids, 10, queries.count()).unwrap();
        let stats = settled(&index);
        let watched = &stats.recalls[0];
        assert_eq!((stats.sampled, watched.asked, watched.audited), (200, Some(0.9), 200), "{}", kind.name);
        let estimate = watched.estimate.unwrap();
        assert!((estimate.found - expected).abs() < 1e-6, "{}: {estimate:?}, not {expected}", kind.name);
        assert_eq!(watched.missed, estimate.high < f64::from(0.9_f32), "{watched:?}");
        // Later answers say so, whichever way they are asked for.
        let later = index.search(&queries, &for_90(), Control::default()).unwrap();
        // The note may be of the moment before the last queries were counted.
        let notes = later.notes.iter().filter(|note| note.contains("in an audit of "));
        assert_eq!(notes.count(), usize::from(watched.missed), "{}: {:?}", kind.name, later.notes);
        let text = index.stats().to_prometheus();
        assert!(text.contains("bathyal_audit_recall_low{index="), "{text}");
    }
    assert_eq!(Index::open(all.path(0), &OpenOptions::default()).unwrap().stats().audit, None);
}

#[test]
fn raised_effort_mends_a_miss() {
    let all = Shared::get();
    let (queries, others) = (queries_unlike_the_data(250, 8), queries_unlike_the_data(250, 9));
    let truth = exact_neighbors(&all.data, &others, Metric::L2, 100, None, &Silent).unwrap();
    let found_by = |index: &Index, options: &SearchOptions| {
        let found = index.search(&others, options, Control::default()).unwrap();
        (recall(&truth, &found.ids, 10, others.count()).unwrap(), found.notes)
    };
    let most = SearchOptions { effort: Effort::Recall(1.0), ..SearchOptions::default() };
    let misses = |number: &usize| {
        let index = Index::open(all.path(*number), &OpenOptions::default()).unwrap();
        let before = found_by(&index, &for_90()).0;
        before < 0.86 && found_by(&index, &most).0 > before + 0.05
    };
    let kind = (0..KINDS.len()).find(misses).expect("the queries are too easy for this test");
    let index = audited(&all.path(kind), OnMiss::RaiseEffort { most: 3 }).unwrap();
    let found = || found_by(&index, &for_90());
    let (before, notes) = found();
    assert!(notes.iter().all(|note| !note.contains("audit")), "{notes:?}");
    for _ in 0..5 {
        index.search(&queries, &for_90(), Control::default()).unwrap();
        settled(&index);
    }
    let (after, notes) = found();
    let watched = settled(&index).recalls[0].clone();
    assert!(watched.effort_for > Some(0.9) && watched.effort_changes > 0, "{watched:?}");
    assert!(after > before + 0.02, "{before} before, {after} after: {watched:?}");
    assert!(notes.iter().any(|note| note.contains("in an audit")), "{notes:?}");
    // Other recalls and efforts are not affected.
    let options = SearchOptions { effort: Effort::Recall(0.5), ..SearchOptions::default() };
    let plain = Index::open(all.path(kind), &OpenOptions::default()).unwrap();
    let same = |index: &Index| index.search(&others, &options, Control::default()).unwrap().ids;
    assert_eq!(same(&index), same(&plain));
}

#[test]
fn the_recall_of_filtered_searches_is_that_among_the_rows_that_match() {
    let (all, queries) = (Shared::get(), queries_unlike_the_data(80, 8));
    let rows = all.data.count() as u32;
    let index = audited(&all.path(0), OnMiss::Note).unwrap();
    let (mut hits, mut searched) = (0.0, 0.0);
    for step in [2, 7, 400] {
        let set = Arc::new(RowSet::from_ids(rows, (0..rows).step_by(step)));
        let found = index.search_within(&queries, &for_90(), &set, Control::default()).unwrap();
        let bytes = set.iter().flat_map(|row| all.data.row(row as usize)).copied().collect();
        let kept = VectorFile::from_rows(all.data.element(), all.data.dim(), bytes).unwrap();
        let k = found.k.min(kept.count());
        let truth =
            exact_neighbors(&kept, &queries, Metric::L2, 100.min(kept.count()), None, &Silent).unwrap();
        let ids: Vec<u32> = found.ids.iter().map(|id| id / step as u32).collect();
        hits += recall(&truth, &ids, k, queries.count()).unwrap();
        searched += 1.0;
    }
    let stats = settled(&index);
    let estimate = stats.recalls[0].estimate.unwrap();
    assert_eq!(estimate.queries, 240);
    assert!((estimate.found - hits / searched).abs() < 1e-6, "{estimate:?}, not {}", hits / searched);
}

#[test]
fn queries_of_an_index_that_has_changed_are_discarded() {
    let (all, folder) = (Shared::get(), tempfile::tempdir().unwrap());
    let path = folder.path().join("index");
    let lsh = KINDS.iter().position(|kind| kind.name == "lsh").unwrap();
    files::copy(&all.path(lsh), &path);
    let audit = Some(AuditOptions { share: 1.0, on_miss: OnMiss::Note, busy: 0.01 });
    let index = Index::open(&path, &OpenOptions { audit, ..OpenOptions::default() }).unwrap();
    index.search(&all.queries, &for_90(), Control::default()).unwrap();
    index.delete(&[1, 2, 3]).unwrap();
    index.search(&all.queries, &for_90(), Control::default()).unwrap();
    let started = Instant::now();
    loop {
        let stats = index.stats().audit.unwrap();
        if stats.discarded > 0 {
            break;
        }
        assert!(started.elapsed() < Duration::from_secs(300), "{stats:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
    // The audit rests for 99 parts of 100 of the time, and ends at once all the same.
    let started = Instant::now();
    drop(index);
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

struct Waker(Thread);

impl Wake for Waker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let (mut future, waker) = (pin!(future), Arc::new(Waker(std::thread::current())).into());
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(answer) => return answer,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn awaited_searches_are_audited() {
    let (all, queries) = (Shared::get(), queries_unlike_the_data(60, 8));
    let index = audited(&all.path(0), OnMiss::Note).unwrap();
    let found = block_on(index.search_async(&queries, &for_90(), None)).unwrap();
    let truth = exact_neighbors(&all.data, &queries, Metric::L2, 100, None, &Silent).unwrap();
    let estimate = settled(&index).recalls[0].estimate.unwrap();
    assert!((estimate.found - recall(&truth, &found.ids, 10, 60).unwrap()).abs() < 1e-6, "{estimate:?}");
}
