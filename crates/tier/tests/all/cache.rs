//! Tests of the cache: unchanged bytes, no page cached that did not arrive, exact counters.

use bathyal_tier::backend::file::{FileOptions, FileTier};
use bathyal_tier::backend::sim::{FaultRates, SimFault, SimHandle, SimOptions, SimTier, When};
use bathyal_tier::conformance::content;
use bathyal_tier::layer::cache::{CacheOptions, CacheTier, LoadCounts};
use bathyal_tier::{Control, Cx, Engine, EngineOptions, ReadError, RunError, Span, Tier};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, LazyLock};

const PAGE: u64 = 4096;
const LEN: usize = (2 << 20) + 777;

static CONTENT: LazyLock<Vec<u8>> = LazyLock::new(|| content(LEN));

fn sim(options: SimOptions) -> (Arc<dyn Tier>, SimHandle) {
    let tier = SimTier::new(CONTENT.clone(), options);
    let handle = tier.handle();
    (Arc::new(tier), handle)
}

fn cached(tier: Arc<dyn Tier>, pages: u64) -> CacheTier {
    // 1% for tables and queues.
    let budget_bytes = (pages + 1) * PAGE + pages * PAGE / 100;
    CacheTier::new(tier, CacheOptions { budget_bytes, ..CacheOptions::default() }).unwrap()
}

fn scripted(script: Vec<(When, SimFault)>) -> (CacheTier, SimHandle) {
    let (tier, handle) = sim(SimOptions { script, ..SimOptions::default() });
    (cached(tier, 64), handle)
}

/// Reads spans one after another and compares their bytes.
fn read(tier: &CacheTier, spans: &[Span]) -> Vec<Result<(), ReadError>> {
    let mut engine = Engine::new(Arc::new(tier.clone()), EngineOptions::default()).unwrap();
    let query = |cx: &Cx| {
        let cx = cx.clone();
        async move {
            let mut outcomes = Vec::new();
            for span in spans {
                let compare = |bytes: &[u8]| {
                    assert_eq!(bytes, &CONTENT[span.offset as usize..][..span.len as usize], "{span:?}")
                };
                outcomes.push(cx.read(&[*span]).await.map(|batch| compare(batch.bytes(0))));
            }
            outcomes
        }
    };
    engine.run_one(query, Control::default()).unwrap()
}

fn page(i: u64) -> Span {
    Span::at(i * PAGE, PAGE as u32)
}

#[test]
fn a_second_read_is_a_hit_down_to_the_last_byte() {
    let (cache, device) = scripted(Vec::new());
    let last = Span::at(LEN as u64 - 9, 9);
    let spans = [page(3), Span::at(PAGE * 3 + 50, 70), Span::at(PAGE * 7 - 5, 10), last, last, page(6)];
    assert!(read(&cache, &spans).iter().all(Result::is_ok));
    let counters = cache.counters();
    assert_eq!((counters.misses, counters.hits, counters.resident_pages), (1 + 2 + 1, 1 + 1 + 1, 4));
    let tail = LEN as u64 % PAGE;
    assert_eq!((counters.miss_bytes, counters.hit_bytes), (3 * PAGE + tail, 2 * PAGE + tail));
    assert_eq!(device.stats().reads, 3);
}

#[test]
fn cached_ends_of_a_span_are_not_read_again() {
    let (cache, device) = scripted(Vec::new());
    let long = Span::at(10 * PAGE, 8 * PAGE as u32);
    let spans = [page(10), page(11), page(14), page(17), long, long];
    assert!(read(&cache, &spans).iter().all(Result::is_ok));
    let counters = cache.counters();
    // Of the eight pages, 12 to 16 are read in one piece, although 14 is cached.
    assert_eq!((counters.misses, counters.hits), (4 + 5, 3 + 8));
    assert_eq!(device.stats().reads, 5);
}

#[test]
fn failed_and_short_reads_are_not_cached() {
    let faults = [
        (0, SimFault::Error(5)),
        (1, SimFault::Short(4095)),
        (2, SimFault::Short(0)),
        (4, SimFault::Short(5000)),
    ];
    let script = faults.map(|(n, fault)| (When::Nth(n), fault)).to_vec();
    let (cache, _) = scripted(script);
    let outcomes = read(&cache, &[page(5); 5]);
    let failed: Vec<_> = outcomes.iter().map(|o| o.is_err()).collect();
    assert_eq!(failed, [true, true, true, false, false]);
    assert_eq!((cache.counters().misses, cache.counters().hits, cache.counters().resident_pages), (4, 1, 1));
    // After one cached page, only the first of three pages arrives completely.
    let long = Span::at(5 * PAGE, 4 * PAGE as u32);
    let outcomes = read(&cache, &[long, page(6), long]);
    let short = ReadError::Short { offset: long.offset, expected: long.len, got: PAGE as u32 + 5000 };
    assert_eq!(outcomes, [Err(short), Ok(()), Ok(())]);
    assert_eq!(cache.counters().resident_pages, 4);
}

#[test]
fn a_damaged_page_can_be_forgotten_and_read_again() {
    let (tier, _) =
        sim(SimOptions { script: vec![(When::Nth(0), SimFault::Flip(9))], ..SimOptions::default() });
    let cache = cached(tier, 64);
    let read = |cache: &CacheTier| {
        let mut engine = Engine::new(Arc::new(cache.clone()), EngineOptions::default()).unwrap();
        let query = |cx: &Cx| {
            let cx = cx.clone();
            async move { cx.read(&[page(2)]).await.unwrap().bytes(0).to_vec() }
        };
        engine.run_one(query, Control::default()).unwrap()
    };
    let correct = &CONTENT[2 * PAGE as usize..][..PAGE as usize];
    assert_ne!(read(&cache), correct);
    assert_ne!(read(&cache), correct, "the cache does not detect damage");
    cache.forget(Span::at(2 * PAGE + 7, 1));
    assert_eq!(read(&cache), correct);
    cache.forget(Span::at(0, u32::MAX));
    assert_eq!(cache.counters().resident_pages, 0);
}

/// Makes random reads from four threads, most of them near the start, and compares their bytes.
fn read_from_four_threads(cache: &CacheTier, seed: u64) {
    let query = |cx: Cx, seed: u64| async move {
        let mut state = seed;
        let mut below = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 24) % bound
        };
        for _ in 0..30 {
            let mut span = || {
                let longest = [100, 4096, 9000, 40_000][below(4) as usize];
                let len = 1 + below(longest);
                let last = LEN as u64 - len;
                let bound = [last, 200_000][below(2) as usize].min(last);
                Span::at(below(bound + 1), len as u32)
            };
            let spans: Vec<_> = (0..6).map(|_| span()).collect();
            let batch = cx.read(&spans).await.unwrap();
            for (i, span) in spans.iter().enumerate() {
                let same = batch.bytes(i) == &CONTENT[span.offset as usize..][..span.len as usize];
                assert!(same, "seed {seed}: {span:?}");
            }
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let cache = cache.clone();
            scope.spawn(move || {
                let options = EngineOptions { depth: 16, ..EngineOptions::default() };
                let mut engine = Engine::new(Arc::new(cache), options).unwrap();
                let mut made = 0;
                let next = |cx: &Cx| {
                    made += 1;
                    (made <= 40).then(|| query(cx.clone(), seed * 1000 + thread * 100 + made))
                };
                engine.run(8, next, |()| (), Control::default()).unwrap();
            });
        }
    });
}

#[test]
fn four_threads_read_the_bytes_of_the_tier_below() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bytes");
    std::fs::write(&path, &*CONTENT).unwrap();
    for (seed, pages) in [(1, 4), (2, 40), (3, 300), (4, 600)] {
        let rates = FaultRates { delay: 0.1, reorder: 0.5, refuse: 0.2, ..FaultRates::NONE };
        let (tier, device) = sim(SimOptions { seed, rates, depth: 5, ..SimOptions::default() });
        let file: Arc<dyn Tier> = Arc::new(FileTier::open(&path, FileOptions::default()).unwrap());
        for tier in [tier, file] {
            let cache = cached(tier, pages);
            read_from_four_threads(&cache, seed);
            let counters = cache.counters();
            assert!(
                counters.hits > 0
                    && counters.misses > 0
                    && counters.resident_pages <= counters.capacity_pages
            );
            assert!(pages == 600 || counters.evictions > 0);
            assert!(pages < 600 || counters.evictions == 0, "all pages fit");
        }
        assert_eq!(device.violations(), []);
    }
}

#[test]
fn warm_pages_are_hits_and_pinned_pages_survive_a_scan() {
    let (tier, device) = sim(SimOptions::default());
    let cache = cached(tier, 64);
    let spans =
        [Span::at(0, 10 * PAGE as u32), Span::at(3 * PAGE, 100), page(100), Span::at(u64::MAX - 9, 9)];
    let loaded = cache.pin(&spans, Control::default()).unwrap();
    assert_eq!(loaded, LoadCounts { wanted: 11, resident: 11, failed_reads: 0 });
    // One read for the ten adjacent pages, one for the other; neither counts as hit or miss.
    assert_eq!((device.stats().reads, cache.counters().hits, cache.counters().misses), (2, 0, 0));
    let warm = cache.warm(&[Span::at(200 * PAGE, 5 * PAGE as u32), page(0)], Control::default()).unwrap();
    assert_eq!((warm.wanted, warm.resident), (6, 6));
    let scan: Vec<_> = (100..500).chain(100..500).map(page).collect();
    assert!(read(&cache, &scan).iter().all(Result::is_ok));
    let before = cache.counters().misses;
    let pinned: Vec<_> = (0..10).chain([100]).map(page).collect();
    assert!(read(&cache, &pinned).iter().all(Result::is_ok));
    assert_eq!(cache.counters().misses, before);
    let everything = cache.warm(&[Span::at(0, LEN as u32)], Control::default()).unwrap();
    assert_eq!(everything.wanted, (LEN as u64).div_ceil(PAGE));
    assert!(everything.resident <= cache.counters().capacity_pages);
}

#[test]
fn warming_counts_failed_reads_and_can_be_cancelled() {
    let (cache, _) = scripted(vec![(When::Touching(5 * PAGE), SimFault::Error(5))]);
    let loaded = cache.warm(&[page(1), page(5), page(9)], Control::default()).unwrap();
    assert_eq!(loaded, LoadCounts { wanted: 3, resident: 2, failed_reads: 1 });
    let cancel = AtomicBool::new(true);
    let control = Control { cancel: Some(&cancel), deadline: None };
    assert!(matches!(cache.warm(&[page(20)], control), Err(RunError::Cancelled)));
}

#[test]
fn invalid_caches_are_refused() {
    use bathyal_tier::backend::dram::DramTier;
    let options = CacheOptions::default();
    assert!(CacheTier::new(Arc::new(DramTier::new(vec![0; 9])), options).is_err(), "read in place");
    for page_bytes in [0, 256, 600, 8192] {
        let refused = CacheTier::new(sim(SimOptions::default()).0, CacheOptions { page_bytes, ..options });
        assert!(refused.is_err(), "pages of {page_bytes} bytes");
    }
    let small =
        CacheTier::new(sim(SimOptions::default()).0, CacheOptions { budget_bytes: 10_000, ..options });
    let message = small.map(|_| ()).unwrap_err().to_string();
    // The number at the end of the message is a budget that suffices.
    let least = message.rsplit(' ').next().and_then(|n| n.parse().ok()).unwrap();
    CacheTier::new(sim(SimOptions::default()).0, CacheOptions { budget_bytes: least, ..options }).unwrap();
}
