//! Searches that continue on the processor if a graphics card cannot: there is none, it does not support the
//! index, it is lost during a search, or it does not answer. The card is emulated.

use crate::cases::quick_build;
use crate::clustered::vectors;
use bathyal_gpu::card::DeviceChoice;
use bathyal_gpu::{Card, GpuError};
use bathyal_index::families::flat::FlatOptions;
use bathyal_index::families::graph::GraphLayoutChoice;
use bathyal_index::{
    BuildOptions, ClusterOptions, Effort, GraphOptions, Index, IndexError, OpenOptions, RangeOptions,
    SearchOptions, SearchResult, TierChoice, build,
};
use bathyal_kernels::Element;
use bathyal_simt::{EmulatedCard, EmulatedOptions};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Silent;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

const DIM: usize = 40;

/// Builds a padded graph, a cluster index and a page-local graph. Returns their paths and queries.
fn build_index(dir: &Path) -> ([PathBuf; 3], VectorFile) {
    let data = vectors(Element::F32, 1200, DIM, 1);
    let [graph, cluster, local] = ["graph", "cluster", "local"].map(|name| dir.join(name));
    let family = GraphOptions { max_degree: 24, search_list: 30, ..GraphOptions::default() };
    build(&data, &graph, &BuildOptions { threads: 1, ..quick_build(family) }, &Silent).unwrap();
    let family = GraphOptions {
        max_degree: 24,
        search_list: 30,
        layout: GraphLayoutChoice::PageLocal,
        ..GraphOptions::default()
    };
    build(&data, &local, &BuildOptions { threads: 1, ..quick_build(family) }, &Silent).unwrap();
    let family = ClusterOptions { group_vectors: 40, ..ClusterOptions::default() };
    build(&data, &cluster, &BuildOptions { threads: 1, ..quick_build(family) }, &Silent).unwrap();
    ([graph, cluster, local], vectors(Element::F32, 24, DIM, 2))
}

fn card(options: EmulatedOptions) -> Option<Arc<dyn Card>> {
    Some(Arc::new(EmulatedCard::new(options)))
}

/// Returns a card whose launch of this number fails.
fn fails_at(fails_at: u64) -> Option<Arc<dyn Card>> {
    card(EmulatedOptions { fails_at, ..EmulatedOptions::default() })
}

/// Returns a card whose launches take `lasts`, and fail after `launch_limit`.
fn lasts(lasts: Duration, launch_limit: Duration) -> Option<Arc<dyn Card>> {
    card(EmulatedOptions { lasts, launch_limit, ..EmulatedOptions::default() })
}

/// Returns options with which the processor continues if the card fails.
fn with_fallback(card: Option<Arc<dyn Card>>) -> OpenOptions {
    OpenOptions { card, processor_goes_on: true, ..OpenOptions::default() }
}

fn open(path: &Path, options: &OpenOptions) -> Index {
    Index::open(path, options).unwrap()
}

fn search(index: &Index, queries: &VectorFile, options: SearchOptions) -> Result<SearchResult, IndexError> {
    index.search(queries, &options, Control::default())
}

/// Returns true if a note says that the processor searches.
fn noted(notes: &[String]) -> bool {
    notes.iter().any(|note| note.contains("this processor searches, and not a graphics card"))
}

fn check_same(found: &SearchResult, expected: &SearchResult, what: &str) {
    assert_eq!((&found.ids, &found.distances), (&expected.ids, &expected.distances), "{what}");
    let counted = |result: &SearchResult| {
        let totals = &result.totals;
        (totals.hops, totals.reads, totals.bytes, totals.full_distances)
    };
    assert_eq!(counted(found), counted(expected), "{what}");
}

#[test]
fn an_index_that_was_resident_on_a_lost_card_is_read_from_its_files() {
    let dir = tempfile::tempdir().unwrap();
    let (paths, queries) = build_index(dir.path());
    for path in &paths {
        let expected =
            search(&open(path, &OpenOptions::default()), &queries, SearchOptions::default()).unwrap();
        let missing = OpenOptions { card_missing: Some(GpuError::NoDriver), ..with_fallback(None) };
        for (options, reads_at_once) in [(with_fallback(fails_at(2)), false), (missing, true)] {
            let index = open(path, &OpenOptions { tier: TierChoice::Card, ..options });
            // A page-local graph cannot be resident on a card.
            let reads_at_once = reads_at_once || path.ends_with("local");
            assert_eq!(index.tier_kind(), if reads_at_once { "file" } else { "gpu" });
            let options = SearchOptions { in_flight: Some(6), threads: 1, ..SearchOptions::default() };
            let found = search(&index, &queries, options).unwrap();
            assert!(noted(&found.notes) && found.totals.reads > 0, "{:?}", found.notes);
            assert_eq!(index.tier_kind(), "file");
            let other = found.ids.iter().zip(&expected.ids).filter(|(a, b)| a != b).count();
            // The effort was chosen for reads of single vectors. Pages contain several, so that the search
            // finds more.
            assert!(20 * other <= found.ids.len(), "{}: {other} of {}", path.display(), found.ids.len());
        }
    }
}

#[test]
fn queries_of_a_card_that_is_lost_are_searched_again() {
    let dir = tempfile::tempdir().unwrap();
    let (paths, queries) = build_index(dir.path());
    let options = SearchOptions::default();
    for path in &paths {
        let expected = search(&open(path, &OpenOptions::default()), &queries, options).unwrap();
        // The card is lost at the first launch, and after some answers.
        for at in [1, 2, 5] {
            let index = open(path, &with_fallback(fails_at(at)));
            assert!(index.card_trouble().is_none());
            let first = search(&index, &queries, SearchOptions { in_flight: Some(6), threads: 1, ..options });
            let first = first.unwrap();
            check_same(&first, &expected, &format!("{} at launch {at}", path.display()));
            assert!(noted(&first.notes), "{:?}", first.notes);
            assert!(index.card_trouble().unwrap().contains("the card is lost"), "{:?}", index.card_trouble());
            let launches = index.card().unwrap().launches;
            let codes = index.memory_split().codes_on_card;
            assert!(index.dram_bytes(0, 0, 0) > index.memory_split().fixed() + codes);
            // Later searches do not fail, and may have longer candidate lists than a card.
            let later = search(&index, &queries, SearchOptions { threads: 2, ..options }).unwrap();
            check_same(&later, &expected, "later");
            let longer = SearchOptions { effort: Effort::SearchList(1100), ..options };
            assert!(noted(&search(&index, &queries, longer).unwrap().notes));
            let stats = index.stats();
            assert_eq!((stats.errors, stats.card.map(|card| card.launches)), (0, Some(launches)));
            assert!(index.stats().to_prometheus().contains("bathyal_card_off"));
            assert!(stats.card_trouble.is_some());
        }
    }
}

/// Waker of a thread that polls a future.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls a future on this thread until it is ready.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        std::thread::park();
    }
}

#[test]
fn every_kind_of_search_continues_after_a_card_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let (paths, queries) = build_index(dir.path());
    let options = SearchOptions::default();
    let lone = VectorFile::from_rows(Element::F32, DIM, queries.row(3).to_vec()).unwrap();
    for path in &paths {
        let on_processor = open(path, &OpenOptions::default());
        let lost = || open(path, &with_fallback(fails_at(1)));
        let one = search(&lost(), &lone, options).unwrap();
        check_same(&one, &search(&on_processor, &lone, options).unwrap(), "a lone query");
        assert!(noted(&one.notes));
        let later = block_on(lost().search_async(&queries, &options, None)).unwrap();
        check_same(&later, &search(&on_processor, &queries, options).unwrap(), "awaited");
        assert!(noted(&later.notes));
        let within = |index: &Index| {
            index
                .range_search(&queries, one.distances[5], &RangeOptions::default(), Control::default())
                .unwrap()
        };
        let (found, expected) = (within(&lost()), within(&on_processor));
        assert_eq!((&found.ids, &found.offsets), (&expected.ids, &expected.offsets));
        assert!(noted(&found.notes));
        let explained = lost().explain(&queries, 3, &options, Control::default()).unwrap();
        assert_eq!(explained.ids, one.ids);
        assert!(noted(&explained.notes));
        // Many concurrent callers with one query each.
        let index = lost();
        std::thread::scope(|scope| {
            for row in 0..queries.count() {
                let (index, on_processor, queries) = (&index, &on_processor, &queries);
                scope.spawn(move || {
                    let lone = VectorFile::from_rows(Element::F32, DIM, queries.row(row).to_vec()).unwrap();
                    check_same(
                        &search(index, &lone, options).unwrap(),
                        &search(on_processor, &lone, options).unwrap(),
                        "one of many",
                    );
                });
            }
        });
        assert!(index.warm(&options, Control::default()).unwrap().queries > 0);
    }
}

#[test]
fn the_processor_searches_from_the_start_if_a_card_cannot() {
    let dir = tempfile::tempdir().unwrap();
    let (paths, queries) = build_index(dir.path());
    let flat = dir.path().join("flat");
    build(&vectors(Element::F32, 300, DIM, 1), &flat, &quick_build(FlatOptions::default()), &Silent).unwrap();
    let small = || card(EmulatedOptions { memory_bytes: 1000, ..EmulatedOptions::default() });
    let full = || card(EmulatedOptions::default());
    let none = || OpenOptions::default().on(DeviceChoice::GpuElseCpu(100)).unwrap();
    assert!(OpenOptions::default().on(DeviceChoice::Gpu(100)).is_err());
    let cases = [
        (&flat, OpenOptions { mini_batch: Some(4), ..with_fallback(full()) }, "family flat"),
        (&paths[0], with_fallback(small()), "bytes free"),
        (&paths[1], OpenOptions { mini_batch: Some(4), ..with_fallback(small()) }, "bytes free"),
        (&paths[1], none(), "graphics card"),
    ];
    for (path, options, why) in cases {
        let expected =
            search(&open(path, &OpenOptions::default()), &queries, SearchOptions::default()).unwrap();
        let index = open(path, &options);
        assert!(
            index.card_trouble().is_some_and(|trouble| trouble.contains(why)),
            "{:?}",
            index.card_trouble()
        );
        let found = search(&index, &queries, SearchOptions::default()).unwrap();
        check_same(&found, &expected, why);
        assert!(noted(&found.notes) && index.card().is_none(), "{:?}", found.notes);
        assert!(index.stats().to_prometheus().contains("bathyal_card_off"));
        // The processor needs its codes in memory. An error about a small budget includes the trouble of the
        // card.
        let little = OpenOptions { memory_bytes: Some(1000), ..options };
        let error = Index::open(path, &little).map(drop).unwrap_err();
        assert!(matches!(&error, IndexError::WithoutCard { .. } | IndexError::Memory { .. }), "{error}");
    }
    // A damaged index is an error, and not a reason to search without the card.
    let codes = paths[1].join("codes.bin");
    let mut bytes = std::fs::read(&codes).unwrap();
    bytes[77] ^= 1;
    std::fs::write(&codes, bytes).unwrap();
    let error = Index::open(&paths[1], &with_fallback(full())).map(drop).unwrap_err();
    assert!(matches!(error, IndexError::Damaged { .. }), "{error}");
    let found = bathyal_index::locate::find(&paths[0], &[], &Default::default()).unwrap();
    let error = Index::open_in(&*found, &with_fallback(full()), &Silent).map(drop).unwrap_err();
    assert!(matches!(error, IndexError::Parameter(_)), "{error}");
}

/// Such queries are no reason to stop using the card for others.
#[test]
fn queries_that_exceed_a_card_are_searched_by_the_processor() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    // A page holds two of these long vectors.
    let family = ClusterOptions { group_vectors: 2, ..ClusterOptions::default() };
    let options = BuildOptions { threads: 1, ..quick_build(family) };
    build(&vectors(Element::F32, 2600, 12 * DIM, 1), &path, &options, &Silent).unwrap();
    let queries = vectors(Element::F32, 6, 12 * DIM, 2);
    let probing = |probes| SearchOptions {
        effort: Effort::SearchList(60),
        probes: Some(probes),
        ..SearchOptions::default()
    };
    let on_processor = open(&path, &OpenOptions::default());
    let refused =
        open(&path, &OpenOptions { card: card(EmulatedOptions::default()), ..OpenOptions::default() });
    let error = search(&refused, &queries, probing(2000)).unwrap_err();
    assert!(matches!(error, IndexError::Gpu(GpuError::Unsuited(_))), "{error}");
    let index = open(&path, &with_fallback(card(EmulatedOptions::default())));
    let found = search(&index, &queries, probing(2000)).unwrap();
    check_same(&found, &search(&on_processor, &queries, probing(2000)).unwrap(), "many groups");
    assert!(
        found.notes.iter().any(|note| note.contains("queries that the graphics card cannot answer")),
        "{:?}",
        found.notes
    );
    assert!(index.card_trouble().is_none() && index.card().unwrap().asked == 0);
    // The card searches later queries.
    let found = search(&index, &queries, probing(20)).unwrap();
    check_same(&found, &search(&on_processor, &queries, probing(20)).unwrap(), "few groups");
    assert_eq!(index.card().unwrap().asked, queries.count() as u64);
}

#[test]
fn the_fallback_to_the_processor_keeps_to_the_memory_budget() {
    let dir = tempfile::tempdir().unwrap();
    let (paths, queries) = build_index(dir.path());
    for path in &paths {
        let options = |memory_bytes, at| OpenOptions { memory_bytes, ..with_fallback(fails_at(at)) };
        let codes = open(path, &options(None, 0)).memory_split().codes_on_card;
        let searched = |index: &Index| {
            let effort = Effort::SearchList(60);
            search(index, &queries, SearchOptions { threads: 1, effort, ..SearchOptions::default() })
        };
        let expected = searched(&open(path, &OpenOptions::default())).unwrap();
        let error = Index::open(path, &options(Some(1000), 1)).map(drop).unwrap_err();
        let IndexError::Memory { needed: least, .. } = error else { panic!("{error}") };
        // If the budget has no memory for the codes, searches work until the card is lost.
        let index = open(path, &options(Some(least), 1));
        let (split, error) = (*index.memory_split(), searched(&index).unwrap_err());
        assert!(split.standby == 0 && split.fixed() + split.searches <= least, "{split:?}");
        let IndexError::WithoutCard { source, .. } = &error else { panic!("{error}") };
        let IndexError::Memory { needed, given, .. } = &**source else { panic!("{error}") };
        assert!(*given == least && *needed > least + codes, "{error}");
        // All later searches fail.
        assert!(matches!(searched(&index), Err(IndexError::WithoutCard { .. })));
        // The memory that the error names is enough.
        for memory in [*needed, 8 << 20] {
            let index = open(path, &options(Some(memory), 1));
            let split = *index.memory_split();
            assert!(split.standby > codes && split.fixed() + split.searches <= memory, "{split:?}");
            let found = searched(&index).unwrap();
            assert_eq!((&found.ids, &found.distances), (&expected.ids, &expected.distances));
            assert!(noted(&found.notes));
        }
        // Pages in memory are not loaded twice.
        let dram = OpenOptions { tier: TierChoice::Dram, ..options(None, 1) };
        let found = searched(&open(path, &dram)).unwrap();
        let without_card = OpenOptions { tier: TierChoice::Dram, ..OpenOptions::default() };
        check_same(&found, &searched(&open(path, &without_card)).unwrap(), "in memory");
    }
}

#[test]
fn a_card_that_does_not_answer_does_not_block_searches() {
    let dir = tempfile::tempdir().unwrap();
    let (paths, queries) = build_index(dir.path());
    let lone = VectorFile::from_rows(Element::F32, DIM, queries.row(0).to_vec()).unwrap();
    let second = Duration::from_secs(1);
    for (path, asked) in paths.iter().zip([&queries, &lone]) {
        let index = open(path, &OpenOptions { card: lasts(second, 9 * second), ..OpenOptions::default() });
        let began = Instant::now();
        let control = Control { cancel: None, deadline: Some(began + Duration::from_millis(50)) };
        let error = index.search(asked, &SearchOptions::default(), control).unwrap_err();
        assert!(matches!(error, IndexError::Deadline), "{error}");
        // The callback, which sets the flag, runs while the caller waits.
        let cancel = AtomicBool::new(false);
        let raise = || cancel.store(began.elapsed() > Duration::from_millis(150), Ordering::Relaxed);
        let control = Control { cancel: Some(&cancel), deadline: None };
        let error = index.search_attended(asked, &SearchOptions::default(), control, &raise).unwrap_err();
        assert!(matches!(error, IndexError::Cancelled), "{error}");
        assert!(began.elapsed() < Duration::from_millis(600), "{:?}", began.elapsed());
    }
    let limit = Duration::from_millis(200);
    for path in &paths {
        let stuck = lasts(100 * second, limit);
        let index = open(path, &OpenOptions { card: stuck.clone(), ..OpenOptions::default() });
        let error = search(&index, &queries, SearchOptions::default()).unwrap_err();
        assert!(matches!(error, IndexError::Gpu(GpuError::Stuck { .. })), "{error}");
        let index = open(path, &with_fallback(stuck));
        let found = search(&index, &queries, SearchOptions::default()).unwrap();
        let expected =
            search(&open(path, &OpenOptions::default()), &queries, SearchOptions::default()).unwrap();
        check_same(&found, &expected, "after a kernel that does not end");
        assert!(noted(&found.notes) && index.card_trouble().unwrap().contains("has not answered"));
    }
}
