//! Searches that go on where a graphics card does not: where there is none, where it does not suit, where it is lost in the middle or
//! does not answer. The card is emulated.

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

/// A graph and groups of codes, and what is asked of them.
fn built(dir: &Path) -> ([PathBuf; 3], VectorFile) {
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

/// A card whose launch of this number fails.
fn fails_at(fails_at: u64) -> Option<Arc<dyn Card>> {
    card(EmulatedOptions { fails_at, ..EmulatedOptions::default() })
}

/// A card whose launches last so long, and which is waited for as long as `launch_limit`.
fn lasts(lasts: Duration, launch_limit: Duration) -> Option<Arc<dyn Card>> {
    card(EmulatedOptions { lasts, launch_limit, ..EmulatedOptions::default() })
}

fn going_on(card: Option<Arc<dyn Card>>) -> OpenOptions {
    OpenOptions { card, processor_goes_on: true, ..OpenOptions::default() }
}

fn open(path: &Path, options: &OpenOptions) -> Index {
    Index::open(path, options).unwrap()
}

fn search(index: &Index, queries: &VectorFile, options: SearchOptions) -> Result<SearchResult, IndexError> {
    index.search(queries, &options, Control::default())
}

fn noted(notes: &[String]) -> bool {
    notes.iter().any(|note| note.contains("this processor searches, and not a graphics card"))
}

fn same(found: &SearchResult, expected: &SearchResult, what: &str) {
    assert_eq!((&found.ids, &found.distances), (&expected.ids, &expected.distances), "{what}");
    let counted = |result: &SearchResult| {
        let totals = &result.totals;
        (totals.hops, totals.reads, totals.bytes, totals.full_distances)
    };
    assert_eq!(counted(found), counted(expected), "{what}");
}

#[test]
fn an_index_that_was_on_a_lost_card_as_a_whole_is_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let (paths, queries) = built(dir.path());
    for path in &paths {
        let expected =
            search(&open(path, &OpenOptions::default()), &queries, SearchOptions::default()).unwrap();
        let missing = OpenOptions { card_missing: Some(GpuError::NoDriver), ..going_on(None) };
        for (options, reads_at_once) in [(going_on(fails_at(2)), false), (missing, true)] {
            let index = open(path, &OpenOptions { tier: TierChoice::Card, ..options });
            // Pages that link as a whole are none that can be on a card.
            let reads_at_once = reads_at_once || path.ends_with("local");
            assert_eq!(index.tier_kind(), if reads_at_once { "file" } else { "gpu" });
            let options = SearchOptions { in_flight: Some(6), threads: 1, ..SearchOptions::default() };
            let found = search(&index, &queries, options).unwrap();
            assert!(noted(&found.notes) && found.totals.reads > 0, "{:?}", found.notes);
            assert_eq!(index.tier_kind(), "file");
            let other = found.ids.iter().zip(&expected.ids).filter(|(a, b)| a != b).count();
            // An effort that was chosen for vectors alone reads pages of several, and finds no less.
            assert!(20 * other <= found.ids.len(), "{}: {other} of {}", path.display(), found.ids.len());
        }
    }
}

#[test]
fn queries_of_a_card_that_is_lost_are_searched_again() {
    let dir = tempfile::tempdir().unwrap();
    let (paths, queries) = built(dir.path());
    let options = SearchOptions::default();
    for path in &paths {
        let expected = search(&open(path, &OpenOptions::default()), &queries, options).unwrap();
        // At once, and among answers.
        for at in [1, 2, 5] {
            let index = open(path, &going_on(fails_at(at)));
            assert!(index.card_trouble().is_none());
            let first = search(&index, &queries, SearchOptions { in_flight: Some(6), threads: 1, ..options });
            let first = first.unwrap();
            same(&first, &expected, &format!("{} at launch {at}", path.display()));
            assert!(noted(&first.notes), "{:?}", first.notes);
            assert!(index.card_trouble().unwrap().contains("the card is lost"), "{:?}", index.card_trouble());
            let launches = index.card().unwrap().launches;
            let codes = index.memory_split().codes_on_card;
            assert!(index.dram_bytes(0, 0, 0) > index.memory_split().fixed() + codes);
            // From here on nothing fails, and what a card keeps is no limit.
            let later = search(&index, &queries, SearchOptions { threads: 2, ..options }).unwrap();
            same(&later, &expected, "later");
            let longer = SearchOptions { effort: Effort::SearchList(1100), ..options };
            assert!(noted(&search(&index, &queries, longer).unwrap().notes));
            let stats = index.stats();
            assert_eq!((stats.errors, stats.card.map(|card| card.launches)), (0, Some(launches)));
            assert!(index.stats().to_prometheus().contains("bathyal_card_off"));
            assert!(stats.card_trouble.is_some());
        }
    }
}

/// Wakes a thread that polls.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn awaited<F: Future>(future: F) -> F::Output {
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
fn whatever_is_asked_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (paths, queries) = built(dir.path());
    let options = SearchOptions::default();
    let lone = VectorFile::from_rows(Element::F32, DIM, queries.row(3).to_vec()).unwrap();
    for path in &paths {
        let here = open(path, &OpenOptions::default());
        let lost = || open(path, &going_on(fails_at(1)));
        let one = search(&lost(), &lone, options).unwrap();
        same(&one, &search(&here, &lone, options).unwrap(), "a lone query");
        assert!(noted(&one.notes));
        let later = awaited(lost().search_async(&queries, &options, None)).unwrap();
        same(&later, &search(&here, &queries, options).unwrap(), "awaited");
        assert!(noted(&later.notes));
        let within = |index: &Index| {
            index
                .range_search(&queries, one.distances[5], &RangeOptions::default(), Control::default())
                .unwrap()
        };
        let (found, expected) = (within(&lost()), within(&here));
        assert_eq!((&found.ids, &found.offsets), (&expected.ids, &expected.offsets));
        assert!(noted(&found.notes));
        let explained = lost().explain(&queries, 3, &options, Control::default()).unwrap();
        assert_eq!(explained.ids, one.ids);
        assert!(noted(&explained.notes));
        // Many callers at once, of which each asks for one.
        let index = lost();
        std::thread::scope(|scope| {
            for row in 0..queries.count() {
                let (index, here, queries) = (&index, &here, &queries);
                scope.spawn(move || {
                    let lone = VectorFile::from_rows(Element::F32, DIM, queries.row(row).to_vec()).unwrap();
                    same(
                        &search(index, &lone, options).unwrap(),
                        &search(here, &lone, options).unwrap(),
                        "one of many",
                    );
                });
            }
        });
        assert!(index.warm(&options, Control::default()).unwrap().queries > 0);
    }
}

#[test]
fn where_a_card_does_not_do_the_processor_begins() {
    let dir = tempfile::tempdir().unwrap();
    let (paths, queries) = built(dir.path());
    let flat = dir.path().join("flat");
    build(&vectors(Element::F32, 300, DIM, 1), &flat, &quick_build(FlatOptions::default()), &Silent).unwrap();
    let small = || card(EmulatedOptions { memory_bytes: 1000, ..EmulatedOptions::default() });
    let full = || card(EmulatedOptions::default());
    let none = || OpenOptions::default().on(DeviceChoice::GpuElseCpu(100)).unwrap();
    assert!(OpenOptions::default().on(DeviceChoice::Gpu(100)).is_err());
    let cases = [
        (&flat, OpenOptions { mini_batch: Some(4), ..going_on(full()) }, "family flat"),
        (&paths[0], going_on(small()), "bytes free"),
        (&paths[1], OpenOptions { mini_batch: Some(4), ..going_on(small()) }, "bytes free"),
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
        same(&found, &expected, why);
        assert!(noted(&found.notes) && index.card().is_none(), "{:?}", found.notes);
        assert!(index.stats().to_prometheus().contains("bathyal_card_off"));
        // What is searched so needs its codes here, and what is too little says both.
        let little = OpenOptions { memory_bytes: Some(1000), ..options };
        let error = Index::open(path, &little).map(drop).unwrap_err();
        assert!(matches!(&error, IndexError::WithoutCard { .. } | IndexError::Memory { .. }), "{error}");
    }
    // What is damaged is no reason to go on.
    let codes = paths[1].join("codes.bin");
    let mut bytes = std::fs::read(&codes).unwrap();
    bytes[77] ^= 1;
    std::fs::write(&codes, bytes).unwrap();
    let error = Index::open(&paths[1], &going_on(full())).map(drop).unwrap_err();
    assert!(matches!(error, IndexError::Damaged { .. }), "{error}");
    let found = bathyal_index::locate::find(&paths[0], &[], &Default::default()).unwrap();
    let error = Index::open_in(&*found, &going_on(full()), &Silent).map(drop).unwrap_err();
    assert!(matches!(error, IndexError::Parameter(_)), "{error}");
}

/// A query may want more than a card does of one, which is no reason to give the card up.
#[test]
fn what_is_too_much_for_a_card_is_searched_by_the_processor_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    // Of vectors so long that a page holds two of them.
    let family = ClusterOptions { group_vectors: 2, ..ClusterOptions::default() };
    let options = BuildOptions { threads: 1, ..quick_build(family) };
    build(&vectors(Element::F32, 2600, 12 * DIM, 1), &path, &options, &Silent).unwrap();
    let queries = vectors(Element::F32, 6, 12 * DIM, 2);
    let probing = |probes| SearchOptions {
        effort: Effort::SearchList(60),
        probes: Some(probes),
        ..SearchOptions::default()
    };
    let here = open(&path, &OpenOptions::default());
    let refused =
        open(&path, &OpenOptions { card: card(EmulatedOptions::default()), ..OpenOptions::default() });
    let error = search(&refused, &queries, probing(2000)).unwrap_err();
    assert!(matches!(error, IndexError::Gpu(GpuError::Unsuited(_))), "{error}");
    let index = open(&path, &going_on(card(EmulatedOptions::default())));
    let found = search(&index, &queries, probing(2000)).unwrap();
    same(&found, &search(&here, &queries, probing(2000)).unwrap(), "many groups");
    assert!(
        found.notes.iter().any(|note| note.contains("queries that the graphics card cannot answer")),
        "{:?}",
        found.notes
    );
    assert!(index.card_trouble().is_none() && index.card().unwrap().asked == 0);
    // The card goes on searching.
    let found = search(&index, &queries, probing(20)).unwrap();
    same(&found, &search(&here, &queries, probing(20)).unwrap(), "few groups");
    assert_eq!(index.card().unwrap().asked, queries.count() as u64);
}

#[test]
fn going_on_keeps_to_the_memory_budget() {
    let dir = tempfile::tempdir().unwrap();
    let (paths, queries) = built(dir.path());
    for path in &paths {
        let options = |memory_bytes, at| OpenOptions { memory_bytes, ..going_on(fails_at(at)) };
        let codes = open(path, &options(None, 0)).memory_split().codes_on_card;
        let searched = |index: &Index| {
            let effort = Effort::SearchList(60);
            search(index, &queries, SearchOptions { threads: 1, effort, ..SearchOptions::default() })
        };
        let expected = searched(&open(path, &OpenOptions::default())).unwrap();
        let error = Index::open(path, &options(Some(1000), 1)).map(drop).unwrap_err();
        let IndexError::Memory { needed: least, .. } = error else { panic!("{error}") };
        // Where codes have no room beside the card's searches, these are answered until it is lost.
        let index = open(path, &options(Some(least), 1));
        let (split, error) = (*index.memory_split(), searched(&index).unwrap_err());
        assert!(split.standby == 0 && split.fixed() + split.searches <= least, "{split:?}");
        let IndexError::WithoutCard { source, .. } = &error else { panic!("{error}") };
        let IndexError::Memory { needed, given, .. } = &**source else { panic!("{error}") };
        assert!(*given == least && *needed > least + codes, "{error}");
        // It fails for good, and for whoever asks.
        assert!(matches!(searched(&index), Err(IndexError::WithoutCard { .. })));
        // As much as it says is enough.
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
        let here = OpenOptions { tier: TierChoice::Dram, ..OpenOptions::default() };
        same(&found, &searched(&open(path, &here)).unwrap(), "in memory");
    }
}

#[test]
fn a_card_that_does_not_answer_holds_up_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let (paths, queries) = built(dir.path());
    let lone = VectorFile::from_rows(Element::F32, DIM, queries.row(0).to_vec()).unwrap();
    let second = Duration::from_secs(1);
    for (path, asked) in paths.iter().zip([&queries, &lone]) {
        let index = open(path, &OpenOptions { card: lasts(second, 9 * second), ..OpenOptions::default() });
        let began = Instant::now();
        let control = Control { cancel: None, deadline: Some(began + Duration::from_millis(50)) };
        let error = index.search(asked, &SearchOptions::default(), control).unwrap_err();
        assert!(matches!(error, IndexError::Deadline), "{error}");
        // Whoever raises the flag on Ctrl-C is called while the caller waits.
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
        let index = open(path, &going_on(stuck));
        let found = search(&index, &queries, SearchOptions::default()).unwrap();
        let expected =
            search(&open(path, &OpenOptions::default()), &queries, SearchOptions::default()).unwrap();
        same(&found, &expected, "after a kernel that does not end");
        assert!(noted(&found.notes) && index.card_trouble().unwrap().contains("has not answered"));
    }
}
