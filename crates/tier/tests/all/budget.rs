//! Many queries with few read buffers: all finish, or fail with the budget that they need.

use bathyal_tier::backend::file::{FileOptions, FileTier, Method};
use bathyal_tier::backend::sim::{FaultRates, LatencyDistribution, SimOptions, SimTier};
use bathyal_tier::conformance::content;
use bathyal_tier::{Batch, Control, Cx, Engine, EngineOptions, ReadError, Span, Tier};
use std::sync::{Arc, LazyLock};

const PAGE: u64 = 4096;
const PAGES: u64 = 1000;
const LEN: usize = (PAGE * PAGES) as usize;

static CONTENT: LazyLock<Vec<u8>> = LazyLock::new(|| content(LEN));

fn tiers() -> (tempfile::TempDir, Vec<Arc<dyn Tier>>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bytes");
    std::fs::write(&path, &*CONTENT).unwrap();
    let rates = FaultRates { delay: 0.2, reorder: 0.5, refuse: 0.3, ..FaultRates::NONE };
    let latency = LatencyDistribution::LogNormal { median_ns: 80_000, sigma: 1.0 };
    let sim = SimOptions { seed: 11, rates, latency, ..SimOptions::default() };
    let mut tiers: Vec<Arc<dyn Tier>> = vec![Arc::new(SimTier::new(CONTENT.clone(), sim))];
    for method in [Method::Probe, Method::Positioned] {
        tiers.push(Arc::new(FileTier::open(&path, FileOptions { method, direct: true }).unwrap()));
    }
    (dir, tiers)
}

fn engine(tier: &Arc<dyn Tier>, frames: u64, depth: u32) -> Engine {
    let options = EngineOptions { depth, buffer_budget_bytes: frames * PAGE, ..EngineOptions::default() };
    Engine::new(tier.clone(), options).unwrap()
}

/// Returns `n` pages, which differ by seed.
fn pages(seed: u64, n: u64) -> Vec<Span> {
    (0..n).map(|i| Span::at((seed * 7919 + i * 31) % PAGES * PAGE, PAGE as u32)).collect()
}

fn assert_correct(batch: &Batch, spans: &[Span]) {
    assert_eq!(batch.len(), spans.len());
    for (i, span) in spans.iter().enumerate() {
        assert_eq!(batch.bytes(i), &CONTENT[span.offset as usize..][..span.len as usize]);
    }
}

#[test]
fn sixteen_queries_of_a_hundred_pages_share_256_frames() {
    let (_dir, tiers) = tiers();
    for tier in &tiers {
        for depth in [8, 32, 128, 1000] {
            let mut engine = engine(tier, 256, depth);
            let mut made = 0;
            let next = |cx: &Cx| {
                made += 1;
                let (cx, seed) = (cx.clone(), made);
                (seed <= 48).then_some(async move {
                    // Dependent rounds of different sizes, so that batches end in another order than they
                    // begin.
                    for round in 0..3 {
                        let spans = pages(seed + round, 100 - round * 30);
                        assert_correct(&cx.read(&spans).await.unwrap(), &spans);
                    }
                })
            };
            let mut ended = 0;
            engine.run(16, next, |()| ended += 1, Control::default()).unwrap();
            assert_eq!((ended, engine.stats().reads), (48, 48 * 210));
            assert!(engine.buffer_bytes() <= 256 * PAGE);
        }
    }
}

#[test]
fn streams_and_batches_share_few_frames() {
    let (_dir, tiers) = tiers();
    for tier in &tiers {
        let mut engine = engine(tier, 24, 16);
        let mut made = 0;
        let next = |cx: &Cx| {
            made += 1;
            let (cx, seed) = (cx.clone(), made);
            (seed <= 40).then_some(async move {
                let spans = pages(seed, 20);
                if seed % 2 == 0 {
                    return drop(cx.read(&spans).await.unwrap());
                }
                // A stream may be far larger than the budget.
                let mut stream = cx.stream();
                pages(seed, 90).iter().for_each(|span| {
                    stream.push(*span);
                });
                while let Some(arrived) = stream.next().await {
                    arrived.unwrap();
                }
            })
        };
        let mut ended = 0;
        engine.run(16, next, |()| ended += 1, Control::default()).unwrap();
        assert_eq!(ended, 40);
    }
}

#[test]
fn a_small_batch_goes_ahead_to_avoid_a_deadlock() {
    let (_dir, tiers) = tiers();
    for tier in &tiers {
        // Each of the three queries holds 80 of 256 frames while it waits for more. The 16 frames left
        // suffice for the batch of 10.
        let mut engine = engine(tier, 256, 64);
        let mut made = 0;
        let next = |cx: &Cx| {
            made += 1;
            let (cx, seed) = (cx.clone(), made);
            (seed <= 3).then_some(async move {
                let (first, second) = (pages(seed, 80), pages(seed + 9, if seed == 3 { 10 } else { 90 }));
                let held = cx.read(&first).await.unwrap();
                assert_correct(&cx.read(&second).await.unwrap(), &second);
                assert_correct(&held, &first);
            })
        };
        let mut ended = 0;
        engine.run(3, next, |()| ended += 1, Control::default()).unwrap();
        assert_eq!(ended, 3);
    }
}

/// Runs two queries that each hold 100 pages and read 100 more. Returns the budget in the error of each that
/// fails.
fn needed_by_failed_queries(tier: &Arc<dyn Tier>, frames: u64) -> Vec<u64> {
    let mut engine = engine(tier, frames, 64);
    let mut made = 0;
    let next = |cx: &Cx| {
        made += 1;
        let (cx, seed) = (cx.clone(), made);
        (seed <= 2).then_some(async move {
            let spans = pages(seed, 100);
            let held = cx.read(&spans).await?;
            assert_correct(&cx.read(&spans).await?, &spans);
            assert_correct(&held, &spans);
            Ok(())
        })
    };
    let mut failed = Vec::new();
    let sink = |outcome: Result<(), ReadError>| match outcome {
        Ok(()) => {}
        Err(ReadError::Budget { needed, .. }) => failed.push(needed),
        Err(e) => panic!("{e}"),
    };
    engine.run(2, next, sink, Control::default()).unwrap();
    failed
}

#[test]
fn of_two_queries_that_wait_for_each_other_one_fails_with_the_needed_budget() {
    let (_dir, tiers) = tiers();
    for tier in &tiers {
        let needed = needed_by_failed_queries(tier, 256);
        assert_eq!(needed.len(), 1);
        assert_eq!(needed[0], 300 * PAGE, "200 pages are held, and 100 are requested");
        assert!(needed_by_failed_queries(tier, 300).is_empty());
    }
}

#[test]
fn the_error_of_a_batch_beyond_the_budget_names_a_budget_that_suffices() {
    let (_dir, tiers) = tiers();
    let large = [Span::at(0, 1 << 20), Span::at(5, 9000), Span::at(70_000, 1)];
    for tier in &tiers {
        for spans in [pages(1, 300), large.to_vec()] {
            let mut frames = 64;
            let read = |cx: &Cx| {
                let (cx, spans) = (cx.clone(), spans.clone());
                async move { cx.read(&spans).await.map(|batch| assert_correct(&batch, &spans)) }
            };
            let mut small = engine(tier, frames, 32);
            let refused = small.run_one(read, Control::default()).unwrap();
            let Err(ReadError::Budget { needed, budget }) = refused else { panic!("{refused:?}") };
            assert_eq!(budget, frames * PAGE);
            assert_eq!(small.stats().reads, 0, "a batch beyond the budget reads nothing");
            frames = needed.div_ceil(PAGE);
            engine(tier, frames, 32).run_one(read, Control::default()).unwrap().unwrap();
            // The engine stays usable after the error.
            small
                .run_one(
                    |cx| {
                        let cx = cx.clone();
                        async move { cx.read(&pages(2, 60)).await.map(drop) }
                    },
                    Control::default(),
                )
                .unwrap()
                .unwrap();
        }
    }
}
