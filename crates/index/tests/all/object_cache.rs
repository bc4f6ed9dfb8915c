//! An index in an object store behind a cache: filled ahead, searched without a request, the same answers,
//! counted by kind.

use crate::cases::{full_or_quick, quick_build};
use crate::clustered::vectors;
use bathyal_index::{
    BuildOptions, CacheUse, ClusterOptions, Effort, FamilyOptions, FillOptions, GraphOptions, Index,
    IndexError, OpenOptions, SearchOptions, SpannOptions, StoreOptions, build, fill,
};
use bathyal_kernels::Element;
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
    assert!(fill_with(true, None).received_bytes < 1 << 20, "the record alone");

    // The caches above are gone, or go soon, and with them their memory: what follows is on disk, as a rule.
    let index = open(&cached);
    assert_eq!(index.opening_requests().unwrap().requests, 2, "a list and the record");
    let found = search(&index);
    assert_eq!((&found.ids, &found.distances), (&from_store.ids, &from_store.distances));
    let asked = found.requests.unwrap();
    assert_eq!((asked.requests, asked.cache.misses), (0, 0));
    assert!(asked.cache.hits + asked.cache.disk_hits > 0);
    assert_eq!(search(&index).requests.unwrap().cache.disk_hits, 0, "now all is in memory");

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

/// What a query found in the cache is told by kind and by round, and the rounds are those that it is said to
/// have had.
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
    for (name, family, asked) in families {
        let path = format!("memory://object-cache/rounds-{name}");
        let building = BuildOptions { threads: 2, store: options(dir.path(), &[]), ..quick_build(family) };
        build(&data, Path::new(&path), &building, &Silent).unwrap();
        let store = options(dir.path(), &[("cache_memory", "64MiB")]);
        let open = OpenOptions { store, wait: true, ..OpenOptions::default() };
        let index = Index::open(&path, &open).unwrap();
        assert_eq!(index.cache_rounds(), [], "{name}: to open an index is no round");

        let told = index.explain(&queries, 0, &asked, Control::default()).unwrap();
        let store = told.store.as_ref().unwrap();
        assert_eq!(store.cache_rounds.len(), told.hops as usize, "{name}: {store:?}");
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
        assert_eq!((store.again.requests, store.again.cache.misses), (0, 0), "{name}: it is there by then");
        assert_eq!(store.again.cache.hits, of_rounds.blocks(), "{name}: the same blocks");

        let text = index.stats().to_prometheus();
        assert!(text.contains(",round=\"1\",from=\"store\"} "), "{name}: {text}");
        assert_eq!(index.stats().store_cache_rounds, index.cache_rounds());
        assert!(serde_json::to_value(&told).unwrap()["store"]["cache_rounds"].is_array());
        drop(index);

        // Without a cache the store is asked both times, and of one that is here nothing is told.
        let bare = OpenOptions { store: options(dir.path(), &[]), wait: true, ..OpenOptions::default() };
        let bare =
            Index::open(&path, &bare).unwrap().explain(&queries, 0, &asked, Control::default()).unwrap();
        let store = bare.store.unwrap();
        assert!(
            store.first.requests > 0 && store.first.requests == store.again.requests,
            "{name}: {store:?}"
        );
        assert!(store.cache.is_empty() && store.cache_rounds.is_empty(), "{name}: {store:?}");
    }
    let here = dir.path().join("here");
    build(&data, &here, &quick_build(ClusterOptions::default()), &Silent).unwrap();
    let index = Index::open(&here, &OpenOptions::default()).unwrap();
    let told = index.explain(&queries, 0, &SearchOptions::default(), Control::default()).unwrap();
    assert!(told.store.is_none() && serde_json::to_value(&told).unwrap().get("store").is_none());
}

#[test]
fn filling_without_a_cache_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let filled = fill(PATH, &options(dir.path(), &[]), &FillOptions::default(), &Silent);
    assert!(matches!(filled, Err(IndexError::Parameter(_))), "{filled:?}");
    let filled = fill(dir.path().join("index"), &StoreOptions::default(), &FillOptions::default(), &Silent);
    assert!(matches!(filled, Err(IndexError::Parameter(_))), "{filled:?}");
}
