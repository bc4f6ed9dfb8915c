//! Indexes in mapped memory: answers, the memory that counts towards a budget, and files that are truncated
//! during searches.

use crate::cases::quick_build;
use crate::clustered::vectors;
use bathyal_index::families::flat::FlatOptions;
use bathyal_index::families::lsh::LshOptions;
use bathyal_index::{
    ClusterOptions, Effort, FamilyOptions, GraphLayoutChoice, GraphOptions, Index, IndexError, OpenOptions,
    PostingLayout, QueryStats, SearchOptions, SearchResult, SpannOptions, TierChoice, build,
};
use bathyal_kernels::Element;
use bathyal_tier::{Control, TierError};
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::{Progress, Silent};
use std::path::Path;
use std::sync::Mutex;

fn build_index(path: &Path, family: FamilyOptions) -> VectorFile {
    let data = vectors(Element::U8, 3000, 32, 1);
    build(&data, path, &quick_build(family), &Silent).unwrap();
    vectors(Element::U8, 40, 32, 2)
}

/// Returns all families and layouts.
fn kinds() -> [FamilyOptions; 10] {
    let graph = |layout| GraphOptions { layout, max_degree: 20, ..GraphOptions::default() }.into();
    // Replicas in every layout of lists, so that lists have addresses.
    let lists = |layout| SpannOptions { layout, replicas: Some(8), ..SpannOptions::default() }.into();
    [
        ClusterOptions::default().into(),
        graph(GraphLayoutChoice::Padded),
        graph(GraphLayoutChoice::PageLocal),
        graph(GraphLayoutChoice::Csr),
        lists(PostingLayout::Coupled),
        lists(PostingLayout::Decoupled),
        lists(PostingLayout::Grouped),
        FlatOptions::default().into(),
        LshOptions::default().into(),
        FlatOptions { code_bytes: Some(16), ..FlatOptions::default() }.into(),
    ]
}

fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

fn choice(text: &str) -> TierChoice {
    text.parse().unwrap()
}

fn open(path: &Path, tier: TierChoice) -> Index {
    Index::open(path, &OpenOptions { tier, ..OpenOptions::default() }).unwrap()
}

fn search(index: &Index, queries: &VectorFile) -> Result<SearchResult, IndexError> {
    // A search that compares all vectors has no candidate list.
    let compares_all = index.manifest().family == "flat" && index.memory_split().codes == 0;
    let options = SearchOptions {
        effort: if compares_all { Effort::Recall(1.0) } else { Effort::SearchList(60) },
        threads: 2,
        in_flight: Some(9),
        ..SearchOptions::default()
    };
    index.search(queries, &options, Control::default())
}

#[test]
fn answers_and_counters_equal_those_of_every_other_tier() {
    for family in kinds() {
        let dir = folder();
        let path = dir.path().join("index");
        let groups = ["cluster", "lsh"].contains(&family.family())
            || format!("{family:?}").contains("code_bytes: Some(16)");
        let queries = build_index(&path, family.clone());
        let file = search(&open(&path, TierChoice::File), &queries).unwrap();
        // On addressable tiers some layouts read only the bytes of a record, so that the counters are those
        // of DRAM.
        let dram = search(&open(&path, TierChoice::Dram), &queries).unwrap();
        // Groups in DRAM read single candidates, because their pages were checked when they were loaded.
        assert!(groups || (&dram.ids, &dram.distances) == (&file.ids, &file.distances));
        let shared = format!("mapped:{}", dir.path().display());
        let node = if cfg!(target_os = "linux") { "mapped:node=0" } else { "mapped" };
        let checked = format!("{shared},verify");
        for place in ["dram", "mapped", node, &shared, &shared, &checked] {
            let index = open(&path, choice(place));
            let found = search(&index, &queries).unwrap();
            // DRAM of this process counts towards its memory. A NUMA node or a file does not.
            let counted = index.memory_split().pages > 0;
            let expected = if groups && !counted { &file } else { &dram };
            assert_eq!(found.ids, expected.ids, "{place}");
            assert_eq!(found.distances, expected.distances, "{place}");
            // Runs of blocks begin anywhere in a sector, and devices read whole sectors.
            let counters = |cost: &QueryStats| match family.family() {
                "lsh" => QueryStats { bytes: 0, ..*cost },
                _ => *cost,
            };
            let counters_of =
                |result: &SearchResult| result.per_query.iter().map(counters).collect::<Vec<_>>();
            assert_eq!(counters_of(&found), counters_of(expected), "{place}");
            assert_eq!(counted, place == "dram" || place == "mapped", "{place}");
            let kind = if place == "dram" { "dram: " } else { "mapped: " };
            assert!(index.stats().place.starts_with(kind), "{}", index.stats().place);
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn searches_of_a_truncated_region_return_an_error_with_the_reason() {
    for family in kinds() {
        let dir = folder();
        let path = dir.path().join("index");
        let queries = build_index(&path, family);
        let region = dir.path().join("region");
        let tier = || choice(&format!("mapped:{}", region.display()));
        let index = open(&path, tier());
        let sound = search(&index, &queries).unwrap();
        for cut in [0, 5000] {
            let file = std::fs::File::options().write(true).open(&region).unwrap();
            std::thread::scope(|scope| {
                let searching = scope.spawn(|| {
                    loop {
                        match search(&index, &queries) {
                            Ok(found) => assert_eq!(found.ids, sound.ids),
                            Err(error) => return error,
                        }
                    }
                });
                file.set_len(cut).unwrap();
                let error = searching.join().unwrap();
                assert!(matches!(error, IndexError::Tier(TierError::Lost { .. })), "{error}");
            });
        }
        drop(index);
        assert_eq!(search(&open(&path, tier()), &queries).unwrap().ids, sound.ids);
    }
}

/// Notes the stages. Cancels at the first stage if `cancel` is set.
struct Watcher {
    stages: Mutex<Vec<String>>,
    cancel: bool,
}

impl Progress for Watcher {
    fn stage(&self, name: &str, _total: u64) {
        self.stages.lock().unwrap().push(name.to_owned());
    }

    fn advance(&self, _done: u64) {}

    fn cancelled(&self) -> bool {
        self.cancel && !self.stages.lock().unwrap().is_empty()
    }
}

#[test]
fn loading_reports_progress_and_can_be_cancelled() {
    let dir = folder();
    let path = dir.path().join("index");
    build_index(&path, ClusterOptions::default().into());
    let options = OpenOptions { tier: choice("mapped"), ..OpenOptions::default() };
    let watch = |cancel| Watcher { stages: Mutex::default(), cancel };
    let watcher = watch(false);
    Index::open_attended(&path, &options, &watcher).unwrap();
    assert_eq!(*watcher.stages.lock().unwrap(), ["loading the pages"]);
    let cancelled = Index::open_attended(&path, &options, &watch(true)).err();
    assert!(matches!(cancelled, Some(IndexError::Cancelled)));
}
