//! Searches of graphs on several tiers: the same ids, distances and counters, also compared with golden
//! files.

use crate::clustered::vectors;
use bathyal_index::families::graph::GraphEntry;
use bathyal_index::{
    BuildOptions, Effort, GraphLayoutChoice, GraphOptions, Index, IndexError, OpenOptions, QueryStats,
    SearchMode, SearchOptions, SearchResult, TierChoice, build,
};
use bathyal_kernels::Element;
use bathyal_tier::backend::file::Method;
use bathyal_tier::backend::sim::{FaultRates, LatencyDistribution, SimOptions, SimTier};
use bathyal_tier::layer::cache::{CacheOptions, CacheTier};
use bathyal_tier::{Control, Tier};
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Silent;
use std::path::Path;
use std::sync::Arc;

const LAYOUTS: [GraphLayoutChoice; 3] =
    [GraphLayoutChoice::Padded, GraphLayoutChoice::PageLocal, GraphLayoutChoice::Csr];

fn build_index(dir: &Path, layout: GraphLayoutChoice) -> (VectorFile, Index) {
    let data = vectors(Element::U8, 3000, 32, 1);
    let path = dir.join("index");
    let family = GraphOptions {
        layout,
        max_degree: 24,
        search_list: 50,
        code_bytes: Some(16),
        ..GraphOptions::default()
    };
    let options = BuildOptions { threads: 1, overwrite: true, ..BuildOptions::of(family) };
    build(&data, &path, &options, &Silent).unwrap();
    (vectors(Element::U8, 50, 32, 2), Index::open(&path, &OpenOptions::default()).unwrap())
}

fn simulated(index: &Index, options: SimOptions) -> (Index, bathyal_tier::backend::sim::SimHandle) {
    let sim = Arc::new(SimTier::over(index.tier().clone(), options));
    let handle = sim.handle();
    let wrap: bathyal_index::open::WrapTier = Arc::new(move |_| Ok(sim.clone() as Arc<dyn Tier>));
    let options = OpenOptions { wrap: Some(wrap), ..OpenOptions::default() };
    (Index::open(index.path(), &options).unwrap(), handle)
}

/// Opens the index behind a cache of its pages. Returns a handle of the cache as well.
fn cached(index: &Index, budget_bytes: u64) -> (Index, CacheTier) {
    let options = CacheOptions { budget_bytes, ..CacheOptions::default() };
    let cache = CacheTier::new(index.tier().clone(), options).unwrap();
    let tier: Arc<dyn Tier> = Arc::new(cache.clone());
    let wrap: bathyal_index::open::WrapTier = Arc::new(move |_| Ok(tier.clone()));
    let options = OpenOptions { wrap: Some(wrap), ..OpenOptions::default() };
    (Index::open(index.path(), &options).unwrap(), cache)
}

fn search(index: &Index, queries: &VectorFile, mode: SearchMode) -> Result<SearchResult, IndexError> {
    let options = SearchOptions {
        effort: Effort::SearchList(60),
        threads: 2,
        mode: Some(mode),
        in_flight: Some(9),
        ..SearchOptions::default()
    };
    index.search(queries, &options, Control::default())
}

#[test]
fn batched_answers_and_counters_are_the_same_on_every_tier() {
    for layout in LAYOUTS {
        let dir = tempfile::tempdir().unwrap();
        let (queries, index) = build_index(dir.path(), layout);
        check_tiers(&index, &queries);
    }
}

fn is_packed(index: &Index) -> bool {
    GraphEntry::read(index.manifest()).is_ok_and(|graph| graph.layout == "csr")
}

/// Returns the counters of each query. Bytes are left out if tiers do not read whole pages.
fn costs(index: &Index, found: &SearchResult) -> Vec<QueryStats> {
    let bytes = |stats: &QueryStats| if is_packed(index) { 0 } else { stats.bytes };
    found.per_query.iter().map(|stats| QueryStats { bytes: bytes(stats), ..*stats }).collect()
}

fn check_tiers(index: &Index, queries: &VectorFile) {
    let expected = search(index, queries, SearchMode::Batched).unwrap();
    let slow = SimOptions {
        latency: LatencyDistribution::Uniform { low_ns: 1_000, high_ns: 900_000 },
        depth: 5,
        rates: FaultRates { delay: 0.1, reorder: 0.5, refuse: 0.2, ..FaultRates::NONE },
        ..SimOptions::default()
    };
    let (sim, handle) = simulated(index, slow);
    let open = |options| Index::open(index.path(), &options).unwrap();
    let others = [
        ("dram", open(OpenOptions { tier: TierChoice::Dram, ..OpenOptions::default() })),
        ("positioned", open(OpenOptions { method: Method::Positioned, ..OpenOptions::default() })),
        ("page cache", open(OpenOptions { page_cache: true, ..OpenOptions::default() })),
        ("sim", sim),
    ];
    for (name, other) in &others {
        let found = search(other, queries, SearchMode::Batched).unwrap();
        assert_eq!(found.ids, expected.ids, "{name}");
        assert_eq!(found.distances, expected.distances, "{name}");
        let alignments = [index, other].map(|index| index.tier().profile().alignment);
        assert_eq!(costs(other, &found), costs(index, &expected), "{name}");
        if alignments[0] == alignments[1] {
            assert_eq!(found.per_query, expected.per_query, "{name}");
        } else {
            assert_eq!(found.totals.bytes < expected.totals.bytes, is_packed(index), "{name}");
        }
    }
    assert!(handle.violations().is_empty(), "{:?}", handle.violations());
    for budget_bytes in [60 << 10, 4 << 20] {
        let (other, cache) = cached(index, budget_bytes);
        for _ in 0..2 {
            let found = search(&other, queries, SearchMode::Batched).unwrap();
            assert_eq!(costs(&other, &found), costs(index, &expected), "a cache of {budget_bytes} bytes");
            assert_eq!((found.ids, found.distances), (expected.ids.clone(), expected.distances.clone()));
        }
        let counters = cache.counters();
        assert!(counters.hits > 0 && counters.misses > 0, "{counters:?}");
        assert_eq!(counters.evictions == 0, budget_bytes > 1 << 20, "{counters:?}");
    }
}

#[test]
fn counters_change_only_on_purpose() {
    if crate::golden::ran_on_every_isa(module_path!(), "counters_change_only_on_purpose") {
        return;
    }
    let mut found = serde_json::Map::new();
    for layout in LAYOUTS {
        let dir = tempfile::tempdir().unwrap();
        let (queries, index) = build_index(dir.path(), layout);
        // In memory, because the alignment of files depends on the file system.
        let memory = OpenOptions { tier: TierChoice::Dram, ..OpenOptions::default() };
        let index = Index::open(index.path(), &memory).unwrap();
        let totals = search(&index, &queries, SearchMode::Batched).unwrap().totals;
        found.insert(format!("{layout:?}"), serde_json::to_value(totals).unwrap());
    }
    crate::golden::compare("counters.json", found.into());
}
