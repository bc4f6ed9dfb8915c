//! An index in an object store behind a cache: filled ahead, searched without a request, the same answers, counted by kind.

mod clustered;

use bathyal_index::{
    BuildOptions, ClusterOptions, FillOptions, Index, IndexError, OpenOptions, SearchOptions, StoreOptions,
    build, fill,
};
use bathyal_kernels::Element;
use bathyal_tier::Control;
use bathyal_vectors::progress::Silent;
use clustered::vectors;
use std::path::Path;

const PATH: &str = "memory://object-cache/index";

fn options(scratch: &Path, cache: &[(&str, &str)]) -> StoreOptions {
    let scratch = [("scratch", scratch.to_str().unwrap()), ("hedge", "off")];
    StoreOptions::new(scratch.iter().chain(cache).copied()).unwrap()
}

#[test]
fn what_was_filled_is_searched_without_a_request() {
    let dir = tempfile::tempdir().unwrap();
    let (data, queries) = (vectors(Element::F32, 40_000, 96, 1), vectors(Element::F32, 40, 96, 2));
    let bare = options(dir.path(), &[]);
    let building =
        BuildOptions { threads: 1, store: bare.clone(), ..BuildOptions::of(ClusterOptions::default()) };
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

#[test]
fn there_has_to_be_a_cache_to_fill() {
    let dir = tempfile::tempdir().unwrap();
    let filled = fill(PATH, &options(dir.path(), &[]), &FillOptions::default(), &Silent);
    assert!(matches!(filled, Err(IndexError::Parameter(_))), "{filled:?}");
    let filled = fill(dir.path().join("index"), &StoreOptions::default(), &FillOptions::default(), &Silent);
    assert!(matches!(filled, Err(IndexError::Parameter(_))), "{filled:?}");
}
