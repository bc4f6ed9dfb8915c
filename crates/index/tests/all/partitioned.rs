//! Partitioned indexes: the cache of sub-indexes, the limits of partitions, and the recall.

use crate::cases::quick_build;
use crate::clustered::vectors;
use bathyal_index::families::partitioned::{PartitionedEntry, Pivots};
use bathyal_index::format::manifest::Manifest;
use bathyal_index::open::WrapTier;
use bathyal_index::{
    BuildOptions, Effort, Index, IndexError, MOST_CALIBRATION_QUERIES, OpenOptions, PartitionedOptions,
    QueryStats, SearchOptions, SearchResult, TierChoice, build, verify,
};
use bathyal_kernels::{Element, Metric};
use bathyal_tier::backend::sim::{SimFault, SimHandle, SimOptions, SimTier, When};
use bathyal_tier::{Control, Tier};
use bathyal_vectors::VectorFile;
use bathyal_vectors::groundtruth::{exact_neighbors, recall};
use bathyal_vectors::progress::Silent;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const OWN: PartitionedOptions = PartitionedOptions {
    partition_vectors: 50,
    pivots: Pivots::Balanced,
    replicas: 2,
    links: 8,
    construction_list: 40,
    growth: 0.0,
    overflow_vectors: 0,
};

fn build_options(own: PartitionedOptions) -> BuildOptions {
    BuildOptions { threads: 2, ..quick_build(own) }
}

fn entry(path: &Path) -> PartitionedEntry {
    PartitionedEntry::read(&Manifest::read(path).unwrap()).unwrap()
}

/// Returns options of a search on one thread.
fn search_options(probes: u32, in_flight: usize) -> SearchOptions {
    SearchOptions {
        effort: Effort::SearchList(40),
        probes: Some(probes),
        threads: 1,
        in_flight: Some(in_flight),
        ..SearchOptions::default()
    }
}

fn search(index: &Index, queries: &VectorFile, options: &SearchOptions) -> SearchResult {
    index.search(queries, options, Control::default()).unwrap()
}

/// Returns the smallest budget that opens an index.
fn smallest_budget(path: &Path) -> u64 {
    let refused = Index::open(path, &OpenOptions { memory_bytes: Some(1), ..OpenOptions::default() });
    match refused {
        Err(IndexError::Memory { needed, .. }) => needed,
        other => panic!("{:?}", other.err()),
    }
}

/// Opens an index on a simulated device.
fn simulated(path: &Path, memory_bytes: Option<u64>, options: SimOptions) -> (Index, SimHandle) {
    let cache: Arc<Mutex<Option<SimHandle>>> = Arc::default();
    let keep = cache.clone();
    let wrap: WrapTier = Arc::new(move |tier| {
        let sim = SimTier::over(tier, options.clone());
        *keep.lock().unwrap() = Some(sim.handle());
        Ok(Arc::new(sim) as Arc<dyn Tier>)
    });
    let options = OpenOptions { wrap: Some(wrap), memory_bytes, ..OpenOptions::default() };
    let index = Index::open(path, &options).unwrap();
    let handle = cache.lock().unwrap().take().unwrap();
    (index, handle)
}

#[test]
fn a_batch_reads_each_partition_once_with_a_small_cache() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    let (data, queries) = (vectors(Element::U8, 4000, 32, 1), vectors(Element::U8, 600, 32, 2));
    build(&data, &path, &build_options(OWN), &Silent).unwrap();
    let partitions = u64::from(entry(&path).partitions);
    let expected = search(
        &Index::open(&path, &OpenOptions { tier: TierChoice::Dram, ..OpenOptions::default() }).unwrap(),
        &queries,
        &search_options(6, 1),
    );
    // The cache has space for a tenth of the partitions.
    let open = || simulated(&path, None, SimOptions::default());
    let (index, sim) = open();
    let found = search(&index, &queries, &search_options(6, 600));
    assert_eq!((&found.ids, &found.distances), (&expected.ids, &expected.distances));
    // The tier aligns reads, which changes the bytes.
    let mut both = found.per_query.iter().zip(&expected.per_query);
    let same = both.all(|(a, b)| QueryStats { bytes: b.bytes, ..*a } == *b);
    assert!(same, "the reads of queries do not depend on the tier");
    let cache = index.cache_counters().unwrap();
    // Each query reads six partitions, and the tier reads each partition once.
    assert_eq!((found.totals.reads, cache.misses + cache.hits), (600 * 6, 600 * 6));
    assert!(cache.misses <= partitions && cache.misses > partitions / 2, "{cache:?} of {partitions}");
    assert_eq!(sim.stats().reads, cache.misses);
    assert!(cache.capacity_pages < partitions / 5, "{cache:?} of {partitions}");
    // With few queries in flight, partitions are evicted and read again.
    for in_flight in [1, 9] {
        let (index, _) = open();
        let found = search(&index, &queries, &search_options(6, in_flight));
        assert_eq!((&found.ids, &found.distances), (&expected.ids, &expected.distances));
        assert!(index.cache_counters().unwrap().misses > 3 * partitions, "{:?}", index.cache_counters());
    }
}

#[test]
fn threads_share_the_cache_and_find_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    let (data, queries) = (vectors(Element::F32, 3000, 24, 1), vectors(Element::F32, 400, 24, 2));
    build(&data, &path, &build_options(OWN), &Silent).unwrap();
    let expected =
        search(&Index::open(&path, &OpenOptions::default()).unwrap(), &queries, &search_options(5, 1));
    for memory in [smallest_budget(&path), smallest_budget(&path) + (1 << 20)] {
        let options = OpenOptions { memory_bytes: Some(memory), ..OpenOptions::default() };
        let index = Index::open(&path, &options).unwrap();
        std::thread::scope(|scope| {
            for threads in [1, 2, 3, 4] {
                let (index, queries, expected) = (&index, &queries, &expected);
                scope.spawn(move || {
                    for in_flight in [None, Some(1), Some(50)] {
                        let options = SearchOptions { threads, in_flight, ..search_options(5, 1) };
                        let found = index.search(queries, &options, Control::default());
                        // The smallest budget may not be enough for so many queries in flight.
                        let found = match found {
                            Err(IndexError::Memory { .. }) => continue,
                            found => found.unwrap(),
                        };
                        assert_eq!((&found.ids, &found.distances), (&expected.ids, &expected.distances));
                    }
                });
            }
        });
    }
}

#[test]
fn a_partition_that_could_not_be_read_is_read_again_by_the_next_query() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    let (data, queries) = (vectors(Element::U8, 2000, 32, 1), vectors(Element::U8, 200, 32, 2));
    build(&data, &path, &build_options(OWN), &Silent).unwrap();
    let expected =
        search(&Index::open(&path, &OpenOptions::default()).unwrap(), &queries, &search_options(4, 1));
    for fault in [SimFault::Error(5), SimFault::Short(100), SimFault::Flip(8000)] {
        let script = vec![(When::Nth(7), fault)];
        let (index, sim) = simulated(&path, None, SimOptions { script, ..SimOptions::default() });
        let failed = index.search(&queries, &search_options(4, 200), Control::default());
        assert!(matches!(failed, Err(IndexError::Read { .. } | IndexError::Damaged { .. })), "{fault:?}");
        let found = search(&index, &queries, &search_options(4, 200));
        assert_eq!((&found.ids, &found.distances), (&expected.ids, &expected.distances), "{fault:?}");
        assert!(sim.violations().is_empty());
    }
}

#[test]
fn cancelled_searches_leave_no_pending_reads() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    let (data, queries) = (vectors(Element::U8, 2000, 32, 1), vectors(Element::U8, 300, 32, 2));
    build(&data, &path, &build_options(OWN), &Silent).unwrap();
    let expected =
        search(&Index::open(&path, &OpenOptions::default()).unwrap(), &queries, &search_options(4, 1));
    let (index, _) = simulated(&path, Some(smallest_budget(&path) + (1 << 20)), SimOptions::default());
    for _ in 0..20 {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_micros(300));
                stop.store(true, std::sync::atomic::Ordering::Relaxed);
            });
            let control = Control { cancel: Some(&stop), deadline: None };
            let _ = index.search(&queries, &search_options(4, 300), control);
        });
        let found = search(&index, &queries, &search_options(4, 300));
        assert_eq!((&found.ids, &found.distances), (&expected.ids, &expected.distances));
    }
}

#[test]
fn partitions_keep_to_their_limit_and_contain_every_vector() {
    let dir = tempfile::tempdir().unwrap();
    // A third of the set are copies of one vector, and a third are near each other.
    let mut rows = vec![7_u8; 1000 * 16];
    rows.extend((0..1000).flat_map(|i| (0..16).map(move |d| if d == i % 16 { 9 } else { 8 })));
    rows.extend_from_slice(vectors(Element::U8, 1000, 16, 5).rows(0..1000).unwrap());
    let data = VectorFile::from_rows(Element::U8, 16, rows).unwrap();
    for pivots in [Pivots::Sampled, Pivots::Balanced] {
        for replicas in [1, 2, 8] {
            let path = dir.path().join(format!("{pivots}-{replicas}"));
            let own = PartitionedOptions { pivots, replicas, ..OWN };
            build(&data, &path, &build_options(own), &Silent).unwrap();
            let report = verify(&path, &Silent).unwrap();
            assert!(report.sound && report.vectors == 3000, "{report:?}");
            let entry = entry(&path);
            assert!(entry.most_vectors <= 200, "{}", entry.most_vectors);
            let index = Index::open(&path, &OpenOptions::default()).unwrap();
            let all = SearchOptions { k: 3000, effort: Effort::SearchList(3000), ..search_options(1, 1) };
            let one = VectorFile::from_rows(Element::U8, 16, vec![7; 16]).unwrap();
            let found: BTreeSet<u32> = search(&index, &one, &all).ids.into_iter().collect();
            assert_eq!(found.len(), 3000);
        }
    }
}

#[test]
fn the_number_of_threads_does_not_change_the_index() {
    let dir = tempfile::tempdir().unwrap();
    let data = vectors(Element::F32, 2000, 20, 3);
    let files = [1, 2, 3].map(|threads| {
        let path = dir.path().join(threads.to_string());
        build(&data, &path, &BuildOptions { threads, ..build_options(OWN) }, &Silent).unwrap();
        Manifest::read(&path).unwrap().files
    });
    assert!(files[0] == files[1] && files[1] == files[2]);
}

#[test]
fn a_requested_recall_is_reached() {
    let dir = tempfile::tempdir().unwrap();
    for metric in Metric::ALL {
        let path = dir.path().join(metric.name());
        let (data, queries) = (vectors(Element::F32, 6000, 24, 1), vectors(Element::F32, 300, 24, 9));
        let calibration_queries = MOST_CALIBRATION_QUERIES;
        let options = BuildOptions { metric, calibration_queries, ..build_options(OWN) };
        build(&data, &path, &options, &Silent).unwrap();
        let truth = exact_neighbors(&data, &queries, metric, 10, None, &Silent).unwrap();
        let index = Index::open(&path, &OpenOptions::default()).unwrap();
        let mut last = 0;
        for asked in [0.7, 0.9, 0.98] {
            let options = SearchOptions { effort: Effort::Recall(asked), ..SearchOptions::default() };
            let found = search(&index, &queries, &options);
            let reached = recall(&truth, &found.ids, 10, 300).unwrap();
            assert!(reached >= f64::from(asked) - 0.03, "{metric} {asked}: {reached}");
            let searched = found.totals.own.of("subindexes").unwrap();
            assert!(searched >= last, "{metric}: more recall with fewer partitions");
            last = searched;
        }
    }
}

#[test]
fn partitions_of_another_index_are_damage() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    let (data, query) = (vectors(Element::U8, 2000, 32, 1), vectors(Element::U8, 1, 32, 2));
    build(&data, &path, &build_options(OWN), &Silent).unwrap();
    let other = dir.path().join("other");
    build(&vectors(Element::U8, 2000, 32, 8), &other, &build_options(OWN), &Silent).unwrap();
    let file = |path: &Path| path.join("partitions.bin");
    let own = std::fs::read(file(&path)).unwrap();
    let mut bytes = own.clone();
    let strange = std::fs::read(file(&other)).unwrap();
    let len = bytes.len().min(strange.len());
    bytes[..len].copy_from_slice(&strange[..len]);
    for tier in [TierChoice::File, TierChoice::Dram] {
        std::fs::write(file(&path), &bytes).unwrap();
        let opened = Index::open(&path, &OpenOptions { tier: tier.clone(), ..OpenOptions::default() });
        let outcome =
            opened.and_then(|index| index.search(&query, &search_options(4, 1), Control::default()));
        assert!(matches!(outcome, Err(IndexError::Damaged { .. })), "{tier}");
        assert!(!verify(&path, &Silent).unwrap().sound);
        std::fs::write(file(&path), &own).unwrap();
    }
}

#[test]
fn options_out_of_range_are_refused_by_name() {
    let data = vectors(Element::U8, 100, 8, 1);
    let dir = tempfile::tempdir().unwrap();
    let refused = [
        (PartitionedOptions { partition_vectors: 3, ..OWN }, "partition_vectors"),
        (PartitionedOptions { replicas: 0, ..OWN }, "replicas"),
        (PartitionedOptions { replicas: 9, ..OWN }, "replicas"),
        (PartitionedOptions { links: 1, ..OWN }, "links"),
        (PartitionedOptions { construction_list: 1, ..OWN }, "construction_list"),
    ];
    for (own, name) in refused {
        let error =
            build(&data, &dir.path().join("index"), &build_options(own), &Silent).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{name} is ")), "{error}");
    }
}
