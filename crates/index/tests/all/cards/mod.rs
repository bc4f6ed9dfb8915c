//! Searches of graphs and of groups on a graphics card: the answers, hops and reads equal those of a
//! processor, for every metric, element and layout that cards support. Unsupported indexes and options are
//! refused with a reason. The card is emulated and runs the kernels of a real one.

mod whole;

use crate::cases::{case_runs, full_or_quick, quick_build};
use crate::clustered::vectors;
use bathyal_gpu::Card;
use bathyal_index::families::flat::FlatOptions;
use bathyal_index::families::graph::GraphLayoutChoice;
use bathyal_index::{
    BuildOptions, ClusterOptions, Effort, GraphOptions, Index, IndexError, OpenOptions, RangeOptions,
    SearchMode, SearchOptions, SearchResult, TierChoice, build,
};
use bathyal_kernels::{Element, Metric};
use bathyal_simt::{EmulatedCard, EmulatedOptions};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Silent;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const DIM: usize = 40;

fn card() -> Arc<EmulatedCard> {
    Arc::new(EmulatedCard::new(EmulatedOptions::default()))
}

fn graph(layout: GraphLayoutChoice) -> GraphOptions {
    GraphOptions { max_degree: 24, search_list: 30, layout, ..GraphOptions::default() }
}

fn build_graph(path: &Path, element: Element, metric: Metric, layout: GraphLayoutChoice) -> VectorFile {
    let options = BuildOptions { metric, threads: 1, ..quick_build(graph(layout)) };
    build(&vectors(element, 700, DIM, 1), path, &options, &Silent).unwrap();
    vectors(element, full_or_quick(12, 6), DIM, 2)
}

/// Opens the real card of the number `BATHYAL_CARD`, if that is set (`make check-gpu`).
fn real_card() -> Option<Arc<dyn Card>> {
    let number = std::env::var("BATHYAL_CARD").ok()?;
    Some(bathyal_gpu::card::open(number.parse().unwrap()).unwrap())
}

fn open(path: &Path, card: Option<Arc<EmulatedCard>>) -> Result<Index, IndexError> {
    open_on(path, card.map(|card| card as Arc<dyn Card>))
}

fn open_on(path: &Path, card: Option<Arc<dyn Card>>) -> Result<Index, IndexError> {
    Index::open(path, &OpenOptions { card, ..OpenOptions::default() })
}

fn search(index: &Index, queries: &VectorFile, options: SearchOptions) -> Result<SearchResult, IndexError> {
    index.search(queries, &options, Control::default())
}

/// Returns options of graph searches: little and much effort, many queries in flight, and one at a time.
fn options() -> [SearchOptions; 4] {
    let list = |list, beam_width, in_flight, threads| SearchOptions {
        effort: Effort::SearchList(list),
        beam_width,
        in_flight,
        threads,
        ..SearchOptions::default()
    };
    [
        list(10, Some(1), None, 1),
        list(60, None, None, 1),
        list(25, Some(16), Some(24), 2),
        list(30, None, Some(1), 1),
    ]
}

/// Checks that searches on an emulated card, and on a real one if there is one, equal those of this
/// processor.
fn check_on_card(path: &Path, queries: &VectorFile, options: &[SearchOptions], what: &str) {
    let card = card();
    let (on_processor, on_card) = (open(path, None).unwrap(), open(path, Some(card.clone())).unwrap());
    let real = real_card().map(|card| open_on(path, Some(card)).unwrap());
    for options in options {
        let expected = search(&on_processor, queries, *options).unwrap();
        for index in std::iter::once(&on_card).chain(&real) {
            let found = search(index, queries, *options).unwrap();
            assert_eq!((&found.ids, &found.distances), (&expected.ids, &expected.distances), "{what}");
            let counted = |result: &SearchResult| {
                let totals = &result.totals;
                (totals.hops, totals.reads, totals.bytes, totals.full_distances)
            };
            assert_eq!(counted(&found), counted(&expected), "{what}");
            // A card keeps no set of visited vectors, but it scores the starts once and not twice.
            let starts = 17 * queries.count() as u64;
            assert!(found.totals.code_distances + starts >= expected.totals.code_distances, "{what}");
        }
    }
    let counted = on_card.card().unwrap();
    let stats = on_card.stats();
    assert_eq!(stats.card.as_ref(), Some(&counted), "{what}");
    assert!(stats.to_prometheus().contains("card_launches_total"), "{what}");
    assert!(
        counted.name == "emulated" && counted.resident_bytes == card.taken_bytes(),
        "{what}: {counted:?}"
    );
    assert!(counted.asked > counted.launches && counted.launches == card.launches(), "{what}: {counted:?}");
    assert!(on_processor.card().is_none() && on_processor.stats().card.is_none());
    drop(on_card);
    assert_eq!(card.taken_bytes(), 0, "{what}: all memory is released");
}

#[test]
fn a_card_searches_graphs_like_a_processor() {
    let dir = tempfile::tempdir().unwrap();
    let layouts = [GraphLayoutChoice::Padded, GraphLayoutChoice::Csr, GraphLayoutChoice::PageLocal];
    for (number, (metric, element)) in pairs().enumerate() {
        let layout = layouts[number % 3];
        let path = dir.path().join(number.to_string());
        let queries = build_graph(&path, element, metric, layout);
        check_on_card(&path, &queries, &options(), &format!("{metric} {element} {layout:?}"));
    }
}

/// Returns pairs of each element with a metric, and of each metric with several elements.
fn pairs() -> impl Iterator<Item = (Metric, Element)> {
    let all = Metric::ALL.into_iter().enumerate();
    let all = all.flat_map(|(at, metric)| {
        (at..).zip(Element::ALL).map(move |(number, element)| (number, metric, element))
    });
    all.filter(|(number, ..)| case_runs(*number, 3)).map(|(_, metric, element)| (metric, element))
}

fn build_cluster(path: &Path, element: Element, metric: Metric) -> VectorFile {
    let family = ClusterOptions { group_vectors: 40, ..ClusterOptions::default() };
    let options = BuildOptions { metric, threads: 1, ..quick_build(family) };
    build(&vectors(element, 1500, DIM, 1), path, &options, &Silent).unwrap();
    vectors(element, full_or_quick(12, 6), DIM, 2)
}

#[test]
fn a_card_scans_groups_like_a_processor() {
    let dir = tempfile::tempdir().unwrap();
    for (number, (metric, element)) in pairs().enumerate() {
        let path = dir.path().join(number.to_string());
        let queries = build_cluster(&path, element, metric);
        check_on_card(&path, &queries, &scans(), &format!("{metric} {element}"));
    }
}

/// Returns options of searches of groups, as [`options`] of graph searches.
fn scans() -> [SearchOptions; 4] {
    let scan = |list, probes, in_flight, threads| SearchOptions {
        effort: Effort::SearchList(list),
        probes,
        in_flight,
        threads,
        ..SearchOptions::default()
    };
    [
        scan(10, Some(1), None, 1),
        scan(200, Some(1000), Some(24), 2),
        scan(30, None, Some(1), 1),
        SearchOptions::default(),
    ]
}

#[test]
fn a_card_runs_thousands_of_queries_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    let few = build_cluster(&path, Element::U8, Metric::L2);
    let many = full_or_quick(10_000, 2000);
    let rows = (0..many).flat_map(|row| few.row(row % few.count()).to_vec()).collect();
    let queries = VectorFile::from_rows(Element::U8, DIM, rows).unwrap();
    let options = SearchOptions {
        effort: Effort::SearchList(10),
        probes: Some(1),
        in_flight: Some(many),
        threads: 1,
        ..SearchOptions::default()
    };
    // A card with more memory has slots for more queries.
    let card = EmulatedCard::new(EmulatedOptions { memory_bytes: 16 << 30, ..EmulatedOptions::default() });
    let index = open(&path, Some(Arc::new(card))).unwrap();
    let found = search(&index, &queries, options).unwrap();
    let one = search(&open(&path, None).unwrap(), &few, options).unwrap();
    let expected = (0..many).flat_map(|row| &one.ids[row % few.count() * one.k..][..one.k]);
    assert!(found.ids.iter().eq(expected));
    assert_eq!(index.card().unwrap().asked, many as u64);
}

/// Launches of mini-batches are fewer and have more queries each.
#[test]
fn mini_batches_are_full_and_do_not_change_answers() {
    let dir = tempfile::tempdir().unwrap();
    let (graph, cluster) = (dir.path().join("graph"), dir.path().join("cluster"));
    let queries = build_graph(&graph, Element::F32, Metric::L2, GraphLayoutChoice::Padded);
    build_cluster(&cluster, Element::F32, Metric::L2);
    let many = (0..full_or_quick(10, 8))
        .flat_map(|_| (0..queries.count()).flat_map(|row| queries.row(row).to_vec()))
        .collect();
    let many = VectorFile::from_rows(Element::F32, DIM, many).unwrap();
    for (at, path) in [graph, cluster].into_iter().enumerate() {
        let expected = search(&open(&path, None).unwrap(), &many, SearchOptions::default()).unwrap();
        // More in flight than a batch, fewer, and one alone.
        let batches = [(1, 30, 1), (8, 40, 2), (100, 24, 1), (4, 1, 1)].into_iter().enumerate();
        for (_, (batch, in_flight, threads)) in batches.filter(|(number, _)| case_runs(at + number, 2)) {
            let options =
                OpenOptions { card: Some(card()), mini_batch: Some(batch), ..OpenOptions::default() };
            let index = Index::open(&path, &options).unwrap();
            let options = SearchOptions { in_flight: Some(in_flight), threads, ..SearchOptions::default() };
            let found = search(&index, &many, options).unwrap();
            assert_eq!((&found.ids, &found.distances), (&expected.ids, &expected.distances), "{batch}");
            let counted = index.card().unwrap();
            let (mean, most) = (
                counted.asked as f64 / counted.launches as f64,
                batch.min(in_flight as u32 * threads as u32),
            );
            // The first launches take the queries that have arrived, and the last ones those that are left.
            assert!(mean <= f64::from(most) && mean >= 0.4 * f64::from(most), "{batch}: {counted:?}");
        }
        // Cancelled queries do not block others.
        let options = OpenOptions { card: Some(card()), mini_batch: Some(64), ..OpenOptions::default() };
        let index = Index::open(&path, &options).unwrap();
        for _ in 0..3 {
            let control = Control { cancel: None, deadline: Some(Instant::now() + Duration::from_millis(5)) };
            let _ = index.search(&many, &SearchOptions::default(), control);
        }
        assert_eq!(search(&index, &many, SearchOptions::default()).unwrap().ids, expected.ids);
        // Invalid sizes, and sizes without a card, are refused.
        for (card, batch, word) in
            [(None, 8, "--device gpu"), (Some(card()), 0, "1 to 2048"), (Some(card()), 2049, "2049")]
        {
            let card = card.map(|card| card as Arc<dyn Card>);
            let options = OpenOptions { card, mini_batch: Some(batch), ..OpenOptions::default() };
            let error = Index::open(&path, &options).map(drop).unwrap_err();
            assert!(matches!(&error, IndexError::Parameter(text) if text.contains(word)), "{error}");
        }
    }
}

#[test]
fn codes_on_a_card_take_no_dram() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    let queries = build_cluster(&path, Element::F32, Metric::L2);
    let on_processor = open(&path, None).unwrap();
    let options = |memory_bytes, tier| OpenOptions {
        card: Some(card() as Arc<dyn Card>),
        memory_bytes,
        tier,
        ..OpenOptions::default()
    };
    let on_card = Index::open(&path, &options(None, TierChoice::File)).unwrap();
    let (split, all) = (on_card.memory_split(), on_processor.memory_split().codes);
    assert!(split.codes == 0 && split.codes_on_card == all && all > 0, "{split:?}");
    // A budget that is too small for the codes.
    let needed = split.fixed() + (4 << 20);
    for tier in [TierChoice::File, TierChoice::Dram] {
        let memory = needed + if tier == TierChoice::Dram { 2 << 20 } else { 0 };
        let index = Index::open(&path, &options(Some(memory), tier.clone())).unwrap();
        assert!(index.memory_split().codes == 0, "{:?}", index.memory_split());
        let found = search(&index, &queries, SearchOptions::default()).unwrap();
        // The rest of the budget may hold all pages.
        let tier = if index.memory_split().pages > 0 { TierChoice::Dram } else { TierChoice::File };
        let same = OpenOptions { tier, ..OpenOptions::default() };
        let expected =
            search(&Index::open(&path, &same).unwrap(), &queries, SearchOptions::default()).unwrap();
        assert_eq!((found.ids, found.distances), (expected.ids, expected.distances));
    }
    // Codes are checked when they are copied to the card.
    let codes = path.join("codes.bin");
    let mut bytes = std::fs::read(&codes).unwrap();
    bytes[77] ^= 1;
    std::fs::write(&codes, bytes).unwrap();
    let error = open(&path, Some(card())).map(drop).unwrap_err();
    assert!(matches!(error, IndexError::Damaged { .. }), "{error}");
}

/// Returns a card with memory for some of the codes of an index, and the bytes of all codes.
fn small_card(path: &Path) -> (Arc<dyn Card>, u64) {
    let all = open(path, Some(card())).unwrap();
    let (codes, taken) = (all.memory_split().codes_on_card, all.card().unwrap().resident_bytes);
    let card_of = |memory_bytes| {
        Arc::new(EmulatedCard::new(EmulatedOptions { memory_bytes, ..EmulatedOptions::default() }))
    };
    let all_fit = |memory_bytes| {
        let index = open(path, Some(card_of(memory_bytes)));
        index.is_ok_and(|index| index.memory_split().codes_on_card == codes)
    };
    // The memory of queries is reserved before that of the codes. Search for the least memory that holds
    // both.
    let (mut too_few, mut enough) = (taken / 2, 2 * taken);
    while too_few + 1 < enough {
        let middle = (too_few + enough) / 2;
        *(if all_fit(middle) { &mut enough } else { &mut too_few }) = middle;
    }
    (card_of(enough - codes / 2), codes)
}

#[test]
fn codes_that_do_not_fit_a_card_are_scanned_by_the_processor() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    let queries = build_cluster(&path, Element::F32, Metric::L2);
    let on_processor = open(&path, None).unwrap();
    let (card, all) = small_card(&path);
    let opened = |memory_bytes, tier| {
        let options = OpenOptions { card: Some(card.clone()), memory_bytes, tier, ..OpenOptions::default() };
        Index::open(&path, &options)
    };
    let some = opened(None, TierChoice::File).unwrap();
    let split = *some.memory_split();
    assert!(split.codes_on_card > 0 && split.codes > 0 && split.codes_on_tier == 0, "{split:?}");
    assert_eq!(split.codes_on_card + split.codes, all);
    drop(some);
    // The codes that are not on the card are in memory, or on the tier, or some on each.
    let Err(IndexError::Memory { needed, .. }) = opened(Some(1), TierChoice::File) else {
        panic!("a byte of memory was enough");
    };
    let mut on_tier = Vec::new();
    for (memory, tier) in [
        (None, TierChoice::File),
        (Some(needed + split.codes), TierChoice::File),
        (Some(needed + 4 * split.codes), TierChoice::File),
        (None, TierChoice::Dram),
    ] {
        let index = opened(memory, tier.clone()).unwrap();
        let split = index.memory_split();
        on_tier.push(split.codes_on_tier > 0);
        let tier = if split.pages > 0 { TierChoice::Dram } else { tier };
        assert_eq!(split.codes_on_card + split.codes + split.codes_on_tier, all, "{split:?}");
        for options in scans() {
            let options = SearchOptions { threads: 1, ..options };
            let expected = match tier {
                TierChoice::Dram => {
                    let same = OpenOptions { tier: TierChoice::Dram, ..OpenOptions::default() };
                    search(&Index::open(&path, &same).unwrap(), &queries, options).unwrap()
                }
                _ => search(&on_processor, &queries, options).unwrap(),
            };
            let found = search(&index, &queries, options).unwrap();
            assert_eq!((&found.ids, &found.distances), (&expected.ids, &expected.distances), "{split:?}");
            let counted =
                |result: &SearchResult| (result.totals.full_distances, result.totals.code_distances);
            assert_eq!(counted(&found), counted(&expected), "{split:?}");
        }
    }
    assert_eq!((on_tier[0], on_tier[1], on_tier[3]), (false, true, false));
}

#[test]
fn a_recall_is_reached_on_a_card() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    let queries = build_graph(&path, Element::U8, Metric::L2, GraphLayoutChoice::Padded);
    let index = open(&path, Some(card())).unwrap();
    let expected = search(&open(&path, None).unwrap(), &queries, SearchOptions::default()).unwrap();
    let found = search(&index, &queries, SearchOptions::default()).unwrap();
    assert_eq!(expected.ids, found.ids);
    // A lone query as well.
    let first = VectorFile::from_rows(Element::U8, DIM, queries.row(0).to_vec()).unwrap();
    let one = search(&index, &first, SearchOptions::default()).unwrap();
    assert_eq!(one.ids[..], found.ids[..one.k]);
}

#[test]
fn indexes_and_options_that_a_card_cannot_search_are_refused_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |path: &Path, words: &[&str]| {
        let error = open(path, Some(card())).map(drop).unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
        open(path, None).unwrap();
    };
    let data = vectors(Element::F32, 700, DIM, 1);
    let flat = dir.path().join("flat");
    build(&data, &flat, &quick_build(FlatOptions::default()), &Silent).unwrap();
    refused(&flat, &["flat", "--device"]);
    let short = dir.path().join("short");
    let family = GraphOptions { code_bytes: Some(8), ..graph(GraphLayoutChoice::Padded) };
    build(&data, &short, &quick_build(family), &Silent).unwrap();
    refused(&short, &["pq", "code_bytes of 32"]);

    let path = dir.path().join("index");
    let queries = build_graph(&path, Element::F32, Metric::L2, GraphLayoutChoice::Padded);
    let little = EmulatedOptions { memory_bytes: 100_000, ..EmulatedOptions::default() };
    let error = open(&path, Some(Arc::new(EmulatedCard::new(little)))).map(drop).unwrap_err().to_string();
    assert!(error.contains("100000 bytes free") || error.contains("bytes free"), "{error}");
    let index = open(&path, Some(card())).unwrap();
    for (options, word) in [
        (SearchOptions { effort: Effort::SearchList(1025), ..SearchOptions::default() }, "1025"),
        (SearchOptions { beam_width: Some(17), ..SearchOptions::default() }, "17"),
        (SearchOptions { mode: Some(SearchMode::Pipelined), ..SearchOptions::default() }, "pipelined"),
    ] {
        let error = search(&index, &queries, options).unwrap_err().to_string();
        assert!(error.contains(word) && error.contains("without the card"), "{error}");
    }
}

#[test]
fn searches_on_a_lost_card_fail_and_the_index_can_be_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    let queries = build_graph(&path, Element::F32, Metric::L2, GraphLayoutChoice::Padded);
    for fails_at in [1, 2, 3] {
        let lost = Arc::new(EmulatedCard::new(EmulatedOptions { fails_at, ..EmulatedOptions::default() }));
        let index = open(&path, Some(lost.clone())).unwrap();
        for _ in 0..2 {
            let error = search(&index, &queries, SearchOptions::default()).unwrap_err();
            assert!(matches!(error, IndexError::Gpu(_)), "{error}");
        }
        // The card works again after the index was opened again.
        drop(index);
        search(&open(&path, Some(lost)).unwrap(), &queries, SearchOptions::default()).unwrap();
    }
}

#[test]
fn range_searches_on_a_card_find_as_many_vectors_as_its_lists_hold() {
    let dir = tempfile::tempdir().unwrap();
    let [graph, local, cluster] = ["graph", "local", "cluster"].map(|name| dir.path().join(name));
    let queries = build_graph(&graph, Element::F32, Metric::L2, GraphLayoutChoice::Padded);
    build_graph(&local, Element::F32, Metric::L2, GraphLayoutChoice::PageLocal);
    build_cluster(&cluster, Element::F32, Metric::L2);
    let rows = (0..3).flat_map(|row| queries.row(row).to_vec()).collect();
    let queries = VectorFile::from_rows(Element::F32, DIM, rows).unwrap();
    // The candidate list of a card holds 700 vectors, and not 1,500.
    for (path, longer) in [(graph, false), (local, false), (cluster, true)] {
        let (on_processor, on_card) = (open(&path, None).unwrap(), open(&path, Some(card())).unwrap());
        let nearest = search(&on_processor, &queries, SearchOptions::default()).unwrap();
        // The distance of the tenth neighbour of the first query, and an infinite radius.
        for (radius, cut) in [(nearest.distances[nearest.k - 1], false), (f32::INFINITY, longer)] {
            let within = |index: &Index| {
                index.range_search(&queries, radius, &RangeOptions::default(), Control::default()).unwrap()
            };
            let (expected, found) = (within(&on_processor), within(&on_card));
            assert_eq!(
                found.notes.iter().any(|note| note.contains("graphics card")),
                cut,
                "{:?}",
                found.notes
            );
            assert!(!cut || found.ids.len() < expected.ids.len());
            assert!(
                cut || (found.ids, found.distances) == (expected.ids, expected.distances),
                "{}",
                path.display()
            );
        }
    }
}

#[test]
fn a_search_on_a_card_ends_at_its_deadline() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    let queries = build_graph(&path, Element::F32, Metric::L2, GraphLayoutChoice::Padded);
    let index = open(&path, Some(card())).unwrap();
    let many: Vec<u8> =
        (0..400).flat_map(|_| (0..queries.count()).flat_map(|row| queries.row(row).to_vec())).collect();
    let many = VectorFile::from_rows(Element::F32, DIM, many).unwrap();
    let control = Control { cancel: None, deadline: Some(Instant::now() + Duration::from_millis(50)) };
    let error = index.search(&many, &SearchOptions::default(), control).unwrap_err();
    assert!(matches!(error, IndexError::Deadline), "{error}");
    // The slots of the late queries are free again.
    search(&index, &queries, SearchOptions::default()).unwrap();
}
