//! An index in an object store behind a cache: filling it, searches without requests, and the counters.

use crate::cases::{full_or_quick, quick_build};
use crate::clustered::vectors;
use bathyal_index::families::flat::FlatOptions;
use bathyal_index::families::lsh::LshOptions;
use bathyal_index::families::partitioned::PartitionedOptions;
use bathyal_index::{
    BuildOptions, CacheUse, ClusterOptions, Effort, FamilyOptions, FillOptions, GraphOptions, Index,
    IndexError, OpenOptions, PostingLayout, SearchOptions, SpannOptions, StoreOptions, build, fill,
};
use bathyal_kernels::Element;
use bathyal_kernels::quantize::CodeKind;
use bathyal_tier::Control;
use bathyal_vectors::progress::Silent;
use std::path::Path;

const PATH: &str = "memory://object-cache/index";

fn options(scratch: &Path, cache: &[(&str, &str)]) -> StoreOptions {
    let scratch = [("scratch", scratch.to_str().unwrap()), ("hedge", "off")];
    StoreOptions::new(scratch.iter().chain(cache).copied()).unwrap()
}

#[test]
fn a_filled_cache_is_searched_without_a_request() {
    let dir = tempfile::tempdir().unwrap();
    let (data, queries) = (vectors(Element::F32, 40_000, 96, 1), vectors(Element::F32, 40, 96, 2));
    let bare = options(dir.path(), &[]);
    let building = BuildOptions { threads: 1, store: bare.clone(), ..quick_build(ClusterOptions::default()) };
    build(&data, Path::new(PATH), &building, &Silent).unwrap();
    let open = |store: &StoreOptions| {
        Index::open(PATH, &OpenOptions { store: store.clone(), wait: true, ..OpenOptions::default() })
            .unwrap()
    };
    let search =
        |index: &Index| index.search(&queries, &SearchOptions::default(), Control::default()).unwrap();
    let from_store = search(&open(&bare));
    assert!(from_store.requests.unwrap().requests > 0);

    let folder = dir.path().join("cache");
    let cached = options(
        dir.path(),
        &[("cache", folder.to_str().unwrap()), ("cache_memory", "32MiB"), ("cache_disk", "64MiB")],
    );
    let fill_with =
        |all, limit_bytes| fill(PATH, &cached, &FillOptions { all, limit_bytes }, &Silent).unwrap();
    let some = fill_with(true, Some(1 << 20));
    assert!(some.limited && some.bytes == 1 << 20, "{some:?}");
    let first = fill_with(false, None);
    let all = fill_with(true, None);
    assert!(!all.limited && all.bytes > first.bytes && all.bytes < 32 << 20, "{all:?}");
    assert!(fill_with(true, None).received_bytes < 1 << 20, "only the record is received again");

    // The memory of the caches above is released now or soon. The blocks are then on disk.
    let index = open(&cached);
    assert_eq!(index.opening_requests().unwrap().requests, 2, "a list and the record");
    let found = search(&index);
    assert_eq!((&found.ids, &found.distances), (&from_store.ids, &from_store.distances));
    let requests = found.requests.unwrap();
    assert_eq!((requests.requests, requests.cache.misses), (0, 0));
    assert!(requests.cache.hits + requests.cache.disk_hits > 0);
    assert_eq!(search(&index).requests.unwrap().cache.disk_hits, 0, "now all blocks are in memory");

    let stats = index.stats();
    assert!(
        stats.store_cache["vectors"].hits > 0
            && stats.store_cache["codes"].hits + stats.store_cache["codes"].disk_hits > 0,
        "{stats:?}"
    );
    assert_eq!(stats.store_cache_trouble, None);
    let text = stats.to_prometheus();
    assert!(text.contains(
        "store_cache_blocks_total{index=\"memory://object-cache/index\",kind=\"codes\",from=\"disk\"}"
    ));
}

/// The most bytes of a record, which contains the small files of an index, and of the listing of records.
const RECORD_BYTES: u64 = (2 << 20) + (64 << 10);

/// Opening lists the records of the index and reads the newest one, because another index may have been
/// published since the cache was filled. Nothing else is requested, and no other data is received.
#[test]
fn an_index_whose_cache_was_filled_is_opened_with_a_list_and_its_record() {
    let dir = tempfile::tempdir().unwrap();
    let (data, queries) = (vectors(Element::F32, 4000, 64, 5), vectors(Element::F32, 8, 64, 6));
    let lists_of_codes = SpannOptions {
        layout: PostingLayout::Coupled,
        code_kind: Some(CodeKind::Axes),
        ..SpannOptions::default()
    };
    let families: [(&str, FamilyOptions); 8] = [
        ("cluster", ClusterOptions::default().into()),
        ("spann", SpannOptions::default().into()),
        ("codes", lists_of_codes.into()),
        ("graph", GraphOptions { max_degree: 16, search_list: 30, ..GraphOptions::default() }.into()),
        ("flat", FlatOptions::default().into()),
        ("flat_codes", FlatOptions { code_kind: Some(CodeKind::Axes), ..FlatOptions::default() }.into()),
        ("lsh", LshOptions::default().into()),
        (
            "partitioned",
            PartitionedOptions { partition_vectors: 100, ..PartitionedOptions::default() }.into(),
        ),
    ];
    let folder = dir.path().join("cache");
    let cached = options(
        dir.path(),
        &[("cache", folder.to_str().unwrap()), ("cache_memory", "8MiB"), ("cache_disk", "64MiB")],
    );
    for (name, family) in families {
        let takes_inserts = name == "lsh";
        let path = format!("memory://object-cache/filled-{name}");
        let building = BuildOptions { threads: 1, store: options(dir.path(), &[]), ..quick_build(family) };
        build(&data, Path::new(&path), &building, &Silent).unwrap();
        fill(&path, &cached, &FillOptions { all: true, limit_bytes: None }, &Silent).unwrap();
        for wait in [true, false] {
            let opening = OpenOptions { store: cached.clone(), wait, ..OpenOptions::default() };
            let index = Index::open(&path, &opening).unwrap();
            index.wait(Control::default()).unwrap();
            let opening = index.opening_requests().unwrap();
            // Two more look for the log of a family whose indexes change.
            let requests = if takes_inserts { 4 } else { 2 };
            assert_eq!((opening.requests, opening.cache.misses), (requests, 0), "{name}");
            assert!(opening.received_bytes < RECORD_BYTES, "{name}: {opening:?}");
            let search = || index.search(&queries, &SearchOptions::default(), Control::default()).unwrap();
            let found = search().requests.unwrap().cache;
            assert!(found.hits + found.disk_hits > 0, "{name}: {found:?}");
            // The first search for a recall looks for calibrations that were added since the build.
            let first = index.requests().unwrap();
            let data = (first.received_bytes, first.cache.misses);
            assert!(first.requests <= 2 && data == (0, 0), "{name}: {first:?}");
            assert_eq!(search().requests.unwrap().requests, 0, "{name}");
        }
    }
}

/// The number of rounds in the report equals the number of hops of the query.
#[test]
fn cache_hits_are_reported_by_kind_and_round() {
    let dir = tempfile::tempdir().unwrap();
    let (data, queries) =
        (vectors(Element::F32, full_or_quick(20_000, 6000), 96, 3), vectors(Element::F32, 4, 96, 4));
    let families: [(&str, FamilyOptions, SearchOptions); 3] = [
        ("cluster", ClusterOptions::default().into(), SearchOptions::default()),
        ("spann", SpannOptions::default().into(), SearchOptions::default()),
        (
            "graph",
            GraphOptions { max_degree: 24, search_list: 40, ..GraphOptions::default() }.into(),
            SearchOptions { effort: Effort::SearchList(40), beam_width: Some(4), ..SearchOptions::default() },
        ),
    ];
    for (name, family, options_of_search) in families {
        let path = format!("memory://object-cache/rounds-{name}");
        let building = BuildOptions { threads: 2, store: options(dir.path(), &[]), ..quick_build(family) };
        build(&data, Path::new(&path), &building, &Silent).unwrap();
        let store = options(dir.path(), &[("cache_memory", "64MiB")]);
        let open = OpenOptions { store, wait: true, ..OpenOptions::default() };
        let index = Index::open(&path, &open).unwrap();
        assert_eq!(index.cache_rounds(), [], "{name}: opening an index is not a round");
        assert_eq!(index.store_cache_bytes(), 64 << 20, "{name}: no budget counts the shared cache");

        let explained = index.explain(&queries, 0, &options_of_search, Control::default()).unwrap();
        let store = explained.store.as_ref().unwrap();
        assert_eq!(store.cache_rounds.len(), explained.hops as usize, "{name}: {store:?}");
        let sum = |counts: &mut dyn Iterator<Item = &CacheUse>| {
            counts.fold(CacheUse::default(), |mut sum, used| {
                sum += *used;
                sum
            })
        };
        let of_rounds = sum(&mut store.cache_rounds.iter());
        assert_eq!(of_rounds, sum(&mut store.cache.values()), "{name}");
        assert_eq!(of_rounds, store.first.cache, "{name}");
        assert!(store.first.requests > 0 && of_rounds.misses > 0, "{name}: {store:?}");
        assert_eq!(
            (store.again.requests, store.again.cache.misses),
            (0, 0),
            "{name}: the blocks are in the cache"
        );
        assert_eq!(store.again.cache.hits, of_rounds.blocks(), "{name}: the same blocks");

        let text = index.stats().to_prometheus();
        assert!(text.contains(",round=\"1\",from=\"store\"} "), "{name}: {text}");
        assert_eq!(index.stats().store_cache_rounds, index.cache_rounds());
        assert!(serde_json::to_value(&explained).unwrap()["store"]["cache_rounds"].is_array());
        drop(index);

        // Without a cache both searches send requests. An index in a folder has no requests.
        let bare = OpenOptions { store: options(dir.path(), &[]), wait: true, ..OpenOptions::default() };
        let bare = Index::open(&path, &bare)
            .unwrap()
            .explain(&queries, 0, &options_of_search, Control::default())
            .unwrap();
        let store = bare.store.unwrap();
        assert!(
            store.first.requests > 0 && store.first.requests == store.again.requests,
            "{name}: {store:?}"
        );
        assert!(store.cache.is_empty() && store.cache_rounds.is_empty(), "{name}: {store:?}");
    }
    let local = dir.path().join("local");
    build(&data, &local, &quick_build(ClusterOptions::default()), &Silent).unwrap();
    let index = Index::open(&local, &OpenOptions::default()).unwrap();
    let explained = index.explain(&queries, 0, &SearchOptions::default(), Control::default()).unwrap();
    assert!(explained.store.is_none() && serde_json::to_value(&explained).unwrap().get("store").is_none());
}

#[test]
fn filling_without_a_cache_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let filled = fill(PATH, &options(dir.path(), &[]), &FillOptions::default(), &Silent);
    assert!(matches!(filled, Err(IndexError::Parameter(_))), "{filled:?}");
    let filled = fill(dir.path().join("index"), &StoreOptions::default(), &FillOptions::default(), &Silent);
    assert!(matches!(filled, Err(IndexError::Parameter(_))), "{filled:?}");
}
