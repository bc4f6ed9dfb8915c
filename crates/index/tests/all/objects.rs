//! Indexes in an object store: they are found, built, copied, replaced and searched there, also while their
//! codes and centroids are still arriving.

use crate::cases::quick_build;
use crate::clustered::vectors;
use crate::shared;
use bathyal_index::families::lsh::LshOptions;
use bathyal_index::format::manifest::Manifest;
use bathyal_index::{
    BuildOptions, ClusterOptions, CopyOptions, Effort, GraphOptions, Index, IndexError, OpenOptions,
    PruneOptions, SearchMode, SearchOptions, SearchResult, StoreOptions, TierChoice, build, compact_in, copy,
    find, holding, inspect_in, verify_in,
};
use bathyal_kernels::{Element, Metric};
use bathyal_object::{Shaper, Shaping};
use bathyal_store::{DraftExt, Replace};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Silent;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tempfile::TempDir;

/// Latency and bandwidth of a store in the same zone.
const NEAR: Shaping =
    Shaping { first_byte_ms: 3.0, spread: 0.3, requests_per_s: 20_000.0, bytes_per_s: 625e6 };

/// A name in the object store of this process, for one test.
struct StoredIndex {
    scratch: TempDir,
    name: String,
    store: StoreOptions,
}

impl StoredIndex {
    fn new(name: &str) -> StoredIndex {
        let scratch = tempfile::tempdir().unwrap();
        let store = StoreOptions::new([("scratch", scratch.path().to_str().unwrap())]).unwrap();
        StoredIndex { scratch, name: format!("memory://objects/{name}"), store }
    }

    fn path(&self) -> &Path {
        Path::new(&self.name)
    }

    /// Returns the options of a client with this latency and bandwidth.
    fn options(&self, shaping: Option<Shaping>) -> OpenOptions {
        let mut store = self.store.clone();
        store.shaper = shaping.map(|shaping| Arc::new(Shaper::new(shaping, 3)));
        OpenOptions { store, ..OpenOptions::default() }
    }

    fn open(&self) -> Index {
        Index::open(self.path(), &self.options(None)).unwrap()
    }

    /// Copies an index to the store.
    fn copy_from(&self, index: &Path) {
        let options = CopyOptions { to: self.store.clone(), ..CopyOptions::default() };
        copy(index, self.path(), &options, &Silent).unwrap();
    }
}

/// Returns the cluster index of 40,000 vectors that the tests share, and queries. Its codes are so small that
/// they arrive in one piece.
fn shared_index() -> (PathBuf, VectorFile) {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let path = BUILT.get_or_init(|| {
        let path = shared::folder().join("objects");
        let options = quick_build(ClusterOptions::default());
        build(&vectors(Element::U8, 40_000, 64, 1), &path, &options, &Silent).unwrap();
        path
    });
    (path.clone(), vectors(Element::U8, 30, 64, 2))
}

fn search(index: &Index, queries: &VectorFile) -> SearchResult {
    // A fixed effort, because the effort for a recall depends on the profile of the store.
    let options =
        SearchOptions { effort: Effort::SearchList(40), probes: Some(30), ..SearchOptions::default() };
    index.search(queries, &options, Control::default()).unwrap()
}

#[test]
fn answers_equal_those_of_a_folder_before_and_after_the_codes_arrive() {
    let (path, queries) = shared_index();
    let local = search(&Index::open(&path, &OpenOptions::default()).unwrap(), &queries);
    let stored = StoredIndex::new("arriving");
    stored.copy_from(&path);
    let index = Index::open(stored.path(), &stored.options(Some(NEAR))).unwrap();
    let early = search(&index, &queries);
    index.wait(Control::default()).unwrap();
    let arrival = index.arrival().unwrap();
    assert_eq!((arrival.here, &arrival.failed), (arrival.all, &None));
    let late = search(&index, &queries);
    for found in [&early, &late] {
        assert_eq!((&found.ids, &found.distances), (&local.ids, &local.distances));
    }
    assert_eq!((late.totals.hops, late.totals.reads), (local.totals.hops, local.totals.reads), "one round");
    assert!(early.totals.hops >= late.totals.hops);
    let requests = late.requests.unwrap();
    assert_eq!(requests.reads, late.totals.reads);
    let first_requests = requests.requests - requests.hedges - requests.retries;
    assert!((1..=requests.reads).contains(&first_requests), "{requests:?}");
    assert!(local.requests.is_none() && index.opening_requests().unwrap().requests < 10);
}

/// Stores a copy of the index at `path` with a wrong checksum of the rows. They never arrive as a whole, so
/// that searches read the ones that they need. `change` may damage one.
fn without_rows(path: &Path, stored: &StoredIndex, change: fn(&mut Vec<u8>)) {
    let mut manifest = Manifest::read(path).unwrap();
    let names: Vec<String> = manifest.files.iter().map(|file| file.name.clone()).collect();
    manifest.files.iter_mut().find(|file| file.name == "rows.bin").unwrap().crc32c ^= 1;
    let held = holding(stored.path(), &stored.store).unwrap();
    let draft = held.store().begin(&held.name, Replace::Generation).unwrap();
    for name in &names {
        let mut bytes = std::fs::read(path.join(name)).unwrap();
        if name == "rows.bin" {
            change(&mut bytes);
        }
        draft.put(name, &bytes).unwrap();
    }
    draft.put("manifest.json", &manifest.to_bytes().unwrap()).unwrap();
    let names: Vec<&str> = names.iter().map(String::as_str).chain(["manifest.json"]).collect();
    draft.publish(&names, "").unwrap();
}

#[test]
fn answers_before_the_centroids_arrive_equal_those_of_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    for metric in [Metric::L2, Metric::Cosine] {
        let path = folder.path().join(metric.to_string());
        let options = BuildOptions { metric, ..quick_build(ClusterOptions::default()) };
        build(&vectors(Element::F32, 20_000, 32, 1), &path, &options, &Silent).unwrap();
        let queries = vectors(Element::F32, 30, 32, 2);
        let stored = StoredIndex::new(&format!("early-{metric}"));
        without_rows(&path, &stored, |_| ());
        let (local, index) = (Index::open(&path, &OpenOptions::default()).unwrap(), stored.open());
        index.wait(Control::default()).unwrap();
        let arrival = index.arrival().unwrap();
        assert!(arrival.here < arrival.all && arrival.failed.unwrap().contains("checksum"));
        // A round reads the centroids and codes of 32 groups. Few groups, several, all, and as many as
        // contain k neighbours.
        for (probes, k, rounds) in [(10, 10, 2), (150, 10, 6), (5000, 10, 8), (1, 1500, 13)] {
            let effort = Effort::SearchList(k.max(40));
            let options =
                SearchOptions { k: k as usize, effort, probes: Some(probes), ..SearchOptions::default() };
            let search = |index: &Index| index.search(&queries, &options, Control::default()).unwrap();
            let (early, late) = (search(&index), search(&local));
            // Groups are chosen by the codes of their centroids, which gives nearly the same answers.
            let common = |(a, b): (&[u32], &[u32])| a.iter().filter(|id| b.contains(id)).count();
            let pairs = early.ids.chunks_exact(k as usize).zip(late.ids.chunks_exact(k as usize));
            let share = pairs.map(common).sum::<usize>() as f64 / early.ids.len() as f64;
            assert!(share > if probes == 5000 { 0.999 } else { 0.95 }, "{metric}, {probes}, {k}: {share}");
            assert!(early.totals.hops <= 30 * rounds, "{metric}, {probes}, {k}: {:?}", early.totals);
            assert!(early.totals.hops > late.totals.hops, "{metric}, {probes}, {k}");
        }
        // A distant store serves all centroids and codes in one round.
        let far = Index::open(stored.path(), &stored.options(Some(NEAR))).unwrap();
        far.wait(Control::default()).unwrap();
        for probes in [150, 5000] {
            let options = SearchOptions {
                effort: Effort::SearchList(40),
                probes: Some(probes),
                ..SearchOptions::default()
            };
            let found = far.search(&queries, &options, Control::default()).unwrap();
            assert_eq!(found.totals.hops, 30 * 2, "{metric}, {probes}");
        }
    }
}

#[test]
fn a_damaged_centroid_is_an_error_before_all_centroids_arrive() {
    let (path, queries) = shared_index();
    let stored = StoredIndex::new("damaged-row");
    without_rows(&path, &stored, |rows| *rows.last_mut().unwrap() ^= 1);
    let index = stored.open();
    index.wait(Control::default()).unwrap();
    let all =
        SearchOptions { effort: Effort::SearchList(40), probes: Some(5000), ..SearchOptions::default() };
    let refused = index.search(&queries, &all, Control::default()).unwrap_err().to_string();
    assert!(refused.contains("the centroid of group") && refused.contains("checksum"), "{refused}");
}

#[test]
fn indexes_that_are_loaded_first_answer_like_a_folder() {
    let (path, queries) = shared_index();
    let stored = StoredIndex::new("whole");
    stored.copy_from(&path);
    let opened: [fn(OpenOptions) -> OpenOptions; 3] = [
        |options| OpenOptions { wait: true, ..options },
        |options| OpenOptions { tier: TierChoice::Dram, ..options },
        |options| OpenOptions { memory_bytes: Some(32 << 20), ..options },
    ];
    for change in opened {
        let local = Index::open(&path, &change(OpenOptions::default())).unwrap();
        let index = Index::open(stored.path(), &change(stored.options(None))).unwrap();
        assert!(index.arrival().is_none());
        let found = search(&index, &queries);
        assert_eq!(found.ids, search(&local, &queries).ids);
        let requests = found.requests.unwrap();
        let in_memory = index.memory_split().pages > 0;
        assert_eq!(requests.requests == 0, in_memory, "an index in memory sends no requests");
    }
}

#[test]
fn a_budget_counts_the_responses_in_flight() {
    let (path, queries) = shared_index();
    let stored = StoredIndex::new("budget");
    stored.copy_from(&path);
    let local = search(&Index::open(&path, &OpenOptions::default()).unwrap(), &queries);
    let options = SearchOptions {
        effort: Effort::SearchList(40),
        probes: Some(30),
        threads: 1,
        in_flight: Some(32),
        ..SearchOptions::default()
    };
    let (mut refused, mut answered) = (0, 0);
    for budget in (2..24).map(|mib| mib << 20) {
        let opening = OpenOptions { memory_bytes: Some(budget), ..stored.options(Some(NEAR)) };
        let found = Index::open(stored.path(), &opening)
            .and_then(|index| index.search(&queries, &options, Control::default()));
        match found {
            Ok(found) => {
                // The smallest budgets have shorter codes.
                let pairs = found.ids.chunks_exact(10).zip(local.ids.chunks_exact(10));
                let common: usize = pairs.map(|(a, b)| a.iter().filter(|id| b.contains(id)).count()).sum();
                assert!(found.ids.len() == local.ids.len() && common * 10 >= found.ids.len() * 8, "{budget}");
                answered += 1;
            }
            Err(IndexError::Memory { needed, given, .. }) => {
                assert!(needed > given && answered == 0, "{needed} of {given}");
                refused += 1;
            }
            Err(error) => panic!("{budget}: {error}"),
        }
    }
    assert!(refused > 0 && answered > 0, "{refused} {answered}");
}

#[test]
fn an_index_is_built_described_verified_and_copied_back() {
    let folder = tempfile::tempdir().unwrap();
    let stored = StoredIndex::new("built");
    let data = vectors(Element::U8, 3000, 32, 5);
    let options = BuildOptions { store: stored.store.clone(), ..quick_build(ClusterOptions::default()) };
    build(&data, stored.path(), &options, &Silent).unwrap();
    let again = build(&data, stored.path(), &options, &Silent);
    assert!(matches!(again, Err(IndexError::Exists { .. })));
    let found = find(stored.path(), &[], &stored.store).unwrap();
    assert!(verify_in(found.as_ref(), &Silent).unwrap().sound);
    let report = inspect_in(found.as_ref(), &Silent).unwrap();
    assert_eq!(report.manifest.vectors, 3000);
    let back = folder.path().join("back");
    let options = CopyOptions { from: stored.store.clone(), ..CopyOptions::default() };
    copy(stored.path(), &back, &options, &Silent).unwrap();
    let queries = vectors(Element::U8, 20, 32, 6);
    let (local, remote) = (Index::open(&back, &OpenOptions::default()).unwrap(), stored.open());
    assert_eq!(search(&local, &queries).ids, search(&remote, &queries).ids);
    assert_eq!(remote.path(), stored.path());
    let left = stored.scratch.path().read_dir().unwrap().flat_map(|f| f.unwrap().path().read_dir().unwrap());
    assert_eq!(left.count(), 0, "the scratch folder is empty");
}

#[test]
fn searches_of_a_distant_graph_are_pipelined_and_of_a_local_one_batched() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    build(&vectors(Element::U8, 6000, 128, 5), &path, &quick_build(GraphOptions::default()), &Silent)
        .unwrap();
    let queries = vectors(Element::U8, 30, 128, 6);
    let stored = StoredIndex::new("far");
    stored.copy_from(&path);
    let near = Index::open(&path, &OpenOptions::default()).unwrap();
    let far = Index::open(stored.path(), &stored.options(Some(NEAR))).unwrap();
    assert_eq!((near.default_mode(), far.default_mode()), (SearchMode::Batched, SearchMode::Pipelined));
    let search = |index: &Index, mode| {
        let options = SearchOptions { effort: Effort::SearchList(50), mode, ..SearchOptions::default() };
        index.search(&queries, &options, Control::default()).unwrap()
    };
    // The batched mode finds as many vectors as the local index.
    let (local, batched) = (search(&near, None), search(&far, Some(SearchMode::Batched)));
    assert_eq!(local.distances.len(), batched.distances.len());
    let pipelined = search(&far, None);
    let pairs = local.ids.chunks_exact(10).zip(pipelined.ids.chunks_exact(10));
    let common: usize = pairs.map(|(a, b)| a.iter().filter(|id| b.contains(id)).count()).sum();
    assert!(common * 100 >= local.ids.len() * 90, "{common} of {}", local.ids.len());
}

#[test]
fn readers_keep_a_replaced_index_until_it_is_pruned() {
    let stored = StoredIndex::new("replaced");
    let queries = vectors(Element::U8, 20, 32, 6);
    let options = BuildOptions {
        store: stored.store.clone(),
        overwrite: true,
        ..quick_build(ClusterOptions::default())
    };
    build(&vectors(Element::U8, 50_000, 32, 5), stored.path(), &options, &Silent).unwrap();
    let old = Index::open(stored.path(), &OpenOptions { wait: true, ..stored.options(None) }).unwrap();
    let before = search(&old, &queries);
    build(&vectors(Element::U8, 2000, 32, 7), stored.path(), &options, &Silent).unwrap();
    assert_eq!(stored.open().len(), 2000);
    assert_eq!(search(&old, &queries).ids, before.ids, "open indexes keep their generation");
    let holding = holding(stored.path(), &stored.store).unwrap();
    let pruned = |kept, dry_run| holding.prune(&PruneOptions { kept, dry_run }).unwrap();
    let young = pruned(Duration::from_secs(3600), false);
    assert_eq!((young.generations, young.kept), (0, 1));
    let dry_run = pruned(Duration::ZERO, true);
    assert_eq!((dry_run.generations, dry_run.objects > 0), (1, true));
    assert_eq!(search(&old, &queries).ids, before.ids, "a dry run removes nothing");
    assert_eq!(pruned(Duration::ZERO, false), dry_run);
    assert_eq!(stored.open().len(), 2000, "the current generation stays");
    let error = old.search(&queries, &SearchOptions::default(), Control::default()).unwrap_err();
    assert!(
        matches!(error, IndexError::Read { .. }) && error.to_string().contains("no longer exists"),
        "{error}"
    );
    assert_eq!(pruned(Duration::ZERO, false).generations, 0);
}

#[test]
fn an_index_in_an_object_store_takes_inserts_deletes_and_compaction() {
    let stored = StoredIndex::new("changing");
    let options = BuildOptions { store: stored.store.clone(), ..quick_build(LshOptions::default()) };
    build(&vectors(Element::U8, 2000, 32, 5), stored.path(), &options, &Silent).unwrap();
    let index = stored.open();
    let more = vectors(Element::U8, 30, 32, 8);
    assert_eq!(index.insert(&more).unwrap(), 2000..2030);
    assert_eq!(index.delete(&[3, 2001]).unwrap(), 2);
    let nearest = |index: &Index| {
        let found =
            index.search(&more, &SearchOptions { k: 1, ..SearchOptions::default() }, Control::default());
        found.unwrap().ids
    };
    let ids = nearest(&index);
    assert_eq!((ids[0], ids[1] == 2001, ids[2]), (2000, false, 2002));
    let other = stored.open();
    assert_eq!((nearest(&other), other.len()), (ids.clone(), 2028));
    let busy = other.insert(&more).unwrap_err();
    assert!(matches!(busy, IndexError::Store(_)), "{busy}");
    drop((index, other));
    let holding = holding(stored.path(), &stored.store).unwrap();
    let (store, name) = (holding.store(), &holding.name);
    compact_in(store, name, Some(stored.scratch.path()), &Default::default(), &Silent).unwrap();
    let compacted = stored.open();
    assert_eq!((nearest(&compacted), compacted.len()), (ids, 2028));
}

#[test]
fn addresses_and_options_that_lead_nowhere_are_refused() {
    let stored = StoredIndex::new("none");
    let options = stored.options(None);
    let open = |path: &str| Index::open(path, &options).map(drop).unwrap_err();
    assert!(open("memory://objects/nothing").to_string().contains("no such index"));
    assert!(matches!(open("ftp://x/y"), IndexError::Parameter(_)));
    let odd = StoreOptions::new([("region", "moon")]).unwrap();
    let error = find("memory://objects/x", &[], &odd).map(drop).unwrap_err();
    assert!(matches!(error, IndexError::Parameter(_)), "{error}");
    let error = find("folder", &[], &odd).map(drop).unwrap_err();
    assert!(error.to_string().contains("store options"), "{error}");
    let error = find(stored.path(), &[PathBuf::from("/")], &stored.store).map(drop).unwrap_err();
    assert!(matches!(error, IndexError::Parameter(_)), "{error}");
    let holding = holding("folder/index", &StoreOptions::default()).unwrap();
    assert!(matches!(holding.prune(&PruneOptions::default()), Err(IndexError::Parameter(_))));
}

/// Read buffers that a search has not used take no memory.
#[test]
fn the_reported_memory_of_a_search_is_that_of_its_reads() {
    let (path, queries) = shared_index();
    let stored = StoredIndex::new("reported");
    stored.copy_from(&path);
    let index =
        Index::open(stored.path(), &OpenOptions { wait: true, ..stored.options(Some(NEAR)) }).unwrap();
    let options = SearchOptions { threads: 2, in_flight: Some(8), ..SearchOptions::default() };
    let found = index.search(&queries, &options, Control::default()).unwrap();
    let (used, fixed) = (index.dram_bytes_of(&found, &options), index.dram_bytes(0, 0, 0));
    let read = found.per_query.iter().map(|cost| cost.bytes + 4096 * u64::from(cost.reads)).max().unwrap();
    // A response is in memory twice: as it is received, and in the buffers.
    let most = fixed + 2 * 8 * (2 * read + index.query_bytes(&options).unwrap());
    assert!(used > fixed && used <= most, "{used}, {fixed} of the open index, {most} at most");
    let reserved = index.dram_bytes(2, 8, found.search_list);
    assert!(used < reserved, "{used} of {reserved}");
}
