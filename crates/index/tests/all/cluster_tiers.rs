//! A cluster index on several tiers: the same ids, distances and counters, also compared with golden files.

use crate::cases::quick_build;
use crate::clustered::vectors;
use bathyal_index::families::cluster::ClusterEntry;
use bathyal_index::format::manifest::Manifest;
use bathyal_index::{
    BuildOptions, ClusterOptions, Effort, Index, IndexError, OpenOptions, QueryStats, SearchOptions,
    SearchResult, TierChoice, build, verify,
};
use bathyal_kernels::Element;
use bathyal_tier::backend::sim::{SimOptions, SimTier};
use bathyal_tier::layer::delay::{DelayProfile, DelayTier};
use bathyal_tier::{Control, Tier};
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Silent;
use std::path::Path;
use std::sync::Arc;

fn build_index(dir: &Path) -> (VectorFile, Index) {
    let data = vectors(Element::U8, 3000, 32, 1);
    let path = dir.join("index");
    let family = ClusterOptions { code_bytes: Some(16), ..ClusterOptions::default() };
    let options = BuildOptions { threads: 1, ..quick_build(family) };
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

fn search(index: &Index, queries: &VectorFile) -> Result<SearchResult, IndexError> {
    let options = SearchOptions {
        effort: Effort::SearchList(60),
        threads: 2,
        in_flight: Some(9),
        ..SearchOptions::default()
    };
    index.search(queries, &options, Control::default())
}

/// Pages of one vector of 4,096 bytes, and of several of 640. They are not aligned to sectors.
#[test]
fn pages_of_any_length_are_read_at_every_alignment() {
    let dir = tempfile::tempdir().unwrap();
    for (dim, page_bytes) in [(1024, 4104), (160, 3868)] {
        let path = dir.path().join(dim.to_string());
        let family = ClusterOptions { code_bytes: Some(16), ..ClusterOptions::default() };
        let options = BuildOptions { threads: 2, ..quick_build(family) };
        build(&vectors(Element::F32, 700, dim, 1), &path, &options, &Silent).unwrap();
        assert!(verify(&path, &Silent).unwrap().sound);
        let manifest = Manifest::read(&path).unwrap();
        let entry = ClusterEntry::read(&manifest).unwrap();
        assert_eq!(entry.page_bytes, page_bytes);
        // The bound includes groups that are not full, and leaves out the sample that trained the codes.
        let full = 1.05 * f64::from(entry.groups * 96) / 700.0;
        let file_bytes = manifest.paged_file().bytes as f64;
        assert!(file_bytes <= full * manifest.data_bytes as f64, "{dim}: {file_bytes}");
        let queries = vectors(Element::F32, 30, dim, 2);
        let index = Index::open(&path, &OpenOptions::default()).unwrap();
        let expected = search(&index, &queries).unwrap();
        for alignment in [1, 512, 4096] {
            let (sim, handle) = simulated(&index, SimOptions { alignment, ..SimOptions::default() });
            let found = search(&sim, &queries).unwrap();
            for (found, expected) in found.per_query.iter().zip(&expected.per_query) {
                // Alignment changes only the bytes.
                assert_eq!(QueryStats { bytes: expected.bytes, ..*found }, *expected, "{dim}, {alignment}");
                let page = u64::from(page_bytes);
                let read_bytes = page..=page + 2 * (u64::from(alignment) - 1);
                assert!(
                    read_bytes.contains(&(found.bytes / u64::from(found.reads))),
                    "{dim}, {alignment}: {found:?}"
                );
            }
            assert_eq!(found.ids, expected.ids, "{dim}, aligned to {alignment}");
            assert!(handle.violations().is_empty(), "{:?}", handle.violations());
        }
        // With little memory the codes are on the tier, behind the vectors.
        let little = OpenOptions { memory_bytes: Some(1), ..OpenOptions::default() };
        let Err(IndexError::Memory { needed, .. }) = Index::open(&path, &little).map(|_| ()) else {
            panic!("a byte was enough")
        };
        let little = OpenOptions { memory_bytes: Some(needed), ..OpenOptions::default() };
        let one = SearchOptions {
            effort: Effort::SearchList(60),
            threads: 1,
            in_flight: Some(1),
            ..SearchOptions::default()
        };
        let index = Index::open(&path, &little).unwrap();
        let found = index.search(&queries, &one, Control::default()).unwrap();
        assert_eq!(found.ids, expected.ids, "{dim} in little memory");
    }
}

/// A query scans more groups than the budget plans for, and a part of the codes is on the tier.
#[test]
fn a_budget_leaves_memory_for_a_query_of_more_effort() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    let family = ClusterOptions { group_vectors: 16, code_bytes: Some(16), ..ClusterOptions::default() };
    let options = BuildOptions { threads: 2, ..quick_build(family) };
    build(&vectors(Element::U8, 60_000, 16, 1), &path, &options, &Silent).unwrap();
    let queries = vectors(Element::U8, 20, 16, 2);
    let open = |memory_bytes| Index::open(&path, &OpenOptions { memory_bytes, ..OpenOptions::default() });
    let Err(IndexError::Memory { needed, .. }) = open(Some(1)).map(|_| ()) else {
        panic!("a byte was enough")
    };
    let all = open(None).unwrap();
    let codes = all.memory_split().codes;
    let one =
        SearchOptions { probes: Some(1500), threads: 1, in_flight: Some(1), ..SearchOptions::default() };
    let expected = all.search(&queries, &one, Control::default()).unwrap();
    for share in [0.25, 0.5, 0.75] {
        let index = open(Some(needed + (codes as f64 * share) as u64)).unwrap();
        let split = index.memory_split();
        assert!(split.codes > 0 && split.codes_on_tier + split.codes_left_out > 0, "{split:?}");
        let found = index.search(&queries, &one, Control::default()).unwrap();
        let same = found.ids.iter().filter(|id| expected.ids.contains(id)).count();
        assert!(same * 100 >= found.ids.len() * 90, "{same} with {share} of the codes");
    }
}

#[test]
fn answers_and_counters_are_the_same_on_all_tiers_that_read_single_vectors() {
    let dir = tempfile::tempdir().unwrap();
    let (queries, index) = build_index(dir.path());
    let paged = search(&index, &queries).unwrap();
    let delayed = |profile: DelayProfile| {
        let wrap: bathyal_index::open::WrapTier =
            Arc::new(move |tier| Ok(Arc::new(DelayTier::new(tier, profile.clone())) as Arc<dyn Tier>));
        OpenOptions { tier: TierChoice::Dram, wrap: Some(wrap), ..OpenOptions::default() }
    };
    let open = |options| Index::open(index.path(), &options).unwrap();
    let dram = open(OpenOptions { tier: TierChoice::Dram, ..OpenOptions::default() });
    let expected = search(&dram, &queries).unwrap();
    assert_eq!(expected.totals.reads, 50 * 60);
    let mapped = "mapped".parse().unwrap();
    let others = [
        ("mapped", open(OpenOptions { tier: mapped, ..OpenOptions::default() })),
        ("budget", open(OpenOptions { memory_bytes: Some(64 << 20), ..OpenOptions::default() })),
        ("cxl", open(delayed(DelayProfile::cxl()))),
    ];
    for (name, other) in &others {
        let found = search(other, &queries).unwrap();
        assert_eq!(found.ids, expected.ids, "{name}");
        assert_eq!(found.distances, expected.distances, "{name}");
        assert_eq!(found.per_query, expected.per_query, "{name}");
    }
    // Searches of a device that transfers whole pages read whole pages.
    let found = search(&open(delayed(DelayProfile::ssd())), &queries).unwrap();
    assert_eq!((found.ids, found.per_query), (paged.ids, paged.per_query));
}

#[test]
fn counters_change_only_on_purpose() {
    if crate::golden::ran_on_every_isa(module_path!(), "counters_change_only_on_purpose") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (queries, index) = build_index(dir.path());
    let totals = search(&index, &queries).unwrap().totals;
    let found = serde_json::to_value(totals).unwrap();
    crate::golden::compare("cluster.json", found);
}
