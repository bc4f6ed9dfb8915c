//! Tests of the engine over real tiers: answers, order, errors, cancellation.

use bathyal_tier::backend::dram::DramTier;
use bathyal_tier::backend::file::{FileOptions, FileTier, Method};
use bathyal_tier::{Control, Cx, Engine, EngineOptions, ReadError, RunError, Span, Tier};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

const LEN: usize = 1 << 20;

fn content() -> Vec<u8> {
    (0..LEN).map(|i| (i.wrapping_mul(2_654_435_761) >> 7) as u8).collect()
}

fn tiers() -> (tempfile::TempDir, Vec<Arc<dyn Tier>>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bytes");
    std::fs::write(&path, content()).unwrap();
    let mut tiers: Vec<Arc<dyn Tier>> = vec![Arc::new(DramTier::new(content()))];
    for method in [Method::Probe, Method::Positioned] {
        for direct in [true, false] {
            tiers.push(Arc::new(FileTier::open(&path, FileOptions { method, direct }).unwrap()));
        }
    }
    (dir, tiers)
}

fn engine(tier: &Arc<dyn Tier>) -> Engine {
    Engine::new(tier.clone(), EngineOptions { depth: 8, ..EngineOptions::default() }).unwrap()
}

/// Reads 20 batches, each of which depends on the bytes of the previous one.
async fn read_dependent(cx: Cx, seed: u64) -> Result<u64, ReadError> {
    let (mut at, mut sum) = (seed, 0_u64);
    for _ in 0..20 {
        at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let spans: Vec<Span> =
            (0..5).map(|i| Span::at((at >> 20) % (LEN as u64 - 9000), 100 + i * 1777)).collect();
        let batch = cx.read(&spans).await?;
        for (i, span) in spans.iter().enumerate() {
            assert_eq!(batch.bytes(i).len(), span.len as usize);
            sum = batch.bytes(i).iter().fold(sum, |s, b| s.wrapping_mul(31).wrapping_add(u64::from(*b)));
        }
        at ^= sum;
    }
    Ok(sum)
}

#[test]
fn dependent_reads_give_the_same_sums_on_every_tier() {
    let (_dir, tiers) = tiers();
    let mut all = Vec::new();
    for tier in &tiers {
        let mut engine = engine(tier);
        let (mut next, mut sums) = (0_u64, Vec::new());
        let make = |cx: &Cx| {
            next += 1;
            let (cx, seed) = (cx.clone(), next);
            (seed <= 40).then_some(async move { (seed, read_dependent(cx, seed).await.unwrap()) })
        };
        engine.run(7, make, |sum| sums.push(sum), Control::default()).unwrap();
        sums.sort_unstable();
        assert_eq!(sums.len(), 40);
        assert_eq!(engine.stats().reads, 40 * 100);
        all.push(sums);
    }
    assert!(all.windows(2).all(|w| w[0] == w[1]));
}

#[test]
fn streams_return_every_read_once() {
    let (_dir, tiers) = tiers();
    for tier in &tiers {
        let task = |cx: &Cx| {
            let cx = cx.clone();
            async move {
                let bytes = content();
                let mut stream = cx.stream();
                let mut seen = [0; 50];
                for i in 0..50_u64 {
                    stream.push(Span::at(i * 20_011, 3_000));
                }
                while let Some(arrived) = stream.next().await {
                    let arrived = arrived.unwrap();
                    let at = arrived.place as usize * 20_011;
                    assert_eq!(arrived.bytes(), &bytes[at..at + 3_000]);
                    seen[arrived.place as usize] += 1;
                }
                seen
            }
        };
        assert_eq!(engine(tier).run_one(task, Control::default()).unwrap(), [1; 50]);
    }
}

#[test]
fn spans_outside_the_tier_fail_without_effect_on_others() {
    let (_dir, tiers) = tiers();
    for tier in &tiers {
        let mut engine = engine(tier);
        for span in [Span::at(LEN as u64 - 1, 2), Span::at(u64::MAX - 3, 100), Span::at(0, 0)] {
            let task = |cx: &Cx| {
                let cx = cx.clone();
                async move {
                    let failed = cx.read(&[Span::at(0, 4), span]).await.map(|_| ());
                    // A read that fails before others are staged does not wake the task early.
                    let first = cx.read(&[span, Span::at(0, 4), span, Span::at(9000, 4)]).await.map(|_| ());
                    assert_eq!(first, failed);
                    (failed, cx.read(&[Span::at(LEN as u64 - 1, 1)]).await.map(|b| b.bytes(0).to_vec()))
                }
            };
            let (failed, fine) = engine.run_one(task, Control::default()).unwrap();
            assert!(matches!(failed, Err(ReadError::OutOfRange { .. })), "{failed:?}");
            assert_eq!(fine.unwrap(), content()[LEN - 1..]);
        }
    }
}

#[test]
fn a_query_beyond_the_buffer_budget_gets_an_error() {
    let (_dir, tiers) = tiers();
    let options = EngineOptions { depth: 8, buffer_budget_bytes: 64 << 10, ..EngineOptions::default() };
    for tier in tiers.iter().filter(|t| !t.profile().addressable) {
        let mut engine = Engine::new(tier.clone(), options).unwrap();
        let task = |cx: &Cx| {
            let cx = cx.clone();
            async move { cx.read(&[Span::at(0, 1 << 19)]).await.map(|_| ()) }
        };
        let refused = engine.run_one(task, Control::default()).unwrap();
        assert!(matches!(refused, Err(ReadError::Budget { .. })), "{refused:?}");
        assert!(engine.buffer_bytes() <= 64 << 10);
    }
}

#[test]
fn a_cancel_flag_ends_the_run_and_leaves_the_engine_usable() {
    let (_dir, tiers) = tiers();
    for tier in &tiers {
        let mut engine = engine(tier);
        let cancel = AtomicBool::new(true);
        let make = |cx: &Cx| Some(read_dependent(cx.clone(), 3));
        let control = Control { cancel: Some(&cancel), deadline: None };
        assert!(matches!(engine.run(4, make, |_| (), control), Err(RunError::Cancelled)));
        let late = Control { cancel: None, deadline: Some(std::time::Instant::now()) };
        let make = |cx: &Cx| Some(read_dependent(cx.clone(), 3));
        assert!(matches!(engine.run(4, make, |_| (), late), Err(RunError::Deadline)));
        engine.run_one(|cx| read_dependent(cx.clone(), 3), Control::default()).unwrap().unwrap();
    }
}

#[test]
fn a_foreign_future_is_an_error_not_a_hang() {
    let (_dir, tiers) = tiers();
    let stuck = engine(&tiers[0]).run_one(|_| std::future::pending::<()>(), Control::default());
    assert!(matches!(stuck, Err(RunError::Stalled)));
}
