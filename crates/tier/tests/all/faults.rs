//! Tests of the engine on devices with reads that never complete: runs end, buffers stay untouched, and late
//! completions are handled.

use bathyal_tier::backend::sim::{SimFault, SimHandle, SimOptions, SimTier, When};
use bathyal_tier::conformance::content;
use bathyal_tier::{
    Control, Cx, Engine, EngineOptions, FaultKind, ReadError, ReadFault, RunError, Span, Tier,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const LEN: usize = 1 << 20;

fn engine(script: Vec<(When, SimFault)>, depth: u32) -> (Engine, SimHandle) {
    let sim = SimTier::new(content(LEN), SimOptions { script, ..SimOptions::default() });
    let handle = sim.handle();
    let options = EngineOptions { depth, ..EngineOptions::default() };
    (Engine::new(Arc::new(sim) as Arc<dyn Tier>, options).unwrap(), handle)
}

async fn read(cx: Cx, at: u64) -> Result<(), ReadError> {
    let batch = cx.read(&[Span::at(at, 5000), Span::at(at + 9000, 100)]).await?;
    assert_eq!(batch.bytes(0), &content(LEN)[at as usize..][..5000]);
    Ok(())
}

/// Runs two queries whose reads get stuck, until the last of `healthy` other queries sets the cancel flag.
fn run_with_stuck_reads(engine: &mut Engine, healthy: u64) -> Result<(), RunError> {
    let cancel = AtomicBool::new(false);
    let mut made = 0;
    let mut left = healthy;
    let next = |cx: &Cx| {
        made += 1;
        (made <= healthy + 2).then(|| read(cx.clone(), if made <= 2 { 0 } else { made * 20_000 }))
    };
    let sink = |answer: Result<(), ReadError>| {
        answer.unwrap();
        left -= 1;
        cancel.store(left == 0, Ordering::Relaxed);
    };
    engine.run(4, next, sink, Control { cancel: Some(&cancel), deadline: None })
}

#[test]
fn a_cancelled_run_with_stuck_reads_ends_within_a_tenth_of_a_second() {
    let (mut engine, handle) = engine(vec![(When::Touching(0), SimFault::Stuck)], 8);
    let before = handle.clock().now_ns();
    assert!(matches!(run_with_stuck_reads(&mut engine, 20), Err(RunError::Cancelled)));
    let took = handle.clock().now_ns() - before;
    assert!(took < 100_000_000, "{took} ns of virtual time");
    assert_eq!(handle.stats().stuck, 2);
    // The engine continues with the rest of its depth, and does not touch the two buffers.
    for _ in 0..3 {
        let mut made = 0;
        let next = |cx: &Cx| {
            made += 1;
            (made <= 50).then(|| read(cx.clone(), made * 15_000))
        };
        engine.run(10, next, |answer| answer.unwrap(), Control::default()).unwrap();
    }
    handle.release_stuck();
    engine.run_one(|cx| read(cx.clone(), 40_000), Control::default()).unwrap().unwrap();
    drop(engine);
    assert_eq!((handle.violations(), handle.stats().abandoned), (Vec::new(), 0));
}

#[test]
fn an_engine_dropped_with_stuck_reads_leaks_their_buffers() {
    let (mut engine, handle) = engine(vec![(When::Touching(0), SimFault::Stuck)], 8);
    assert!(run_with_stuck_reads(&mut engine, 5).is_err());
    drop(engine);
    // Released late, into buffers that are never used again.
    handle.release_stuck();
    assert_eq!(handle.violations(), []);
}

#[test]
fn when_all_depth_is_stuck_a_deadline_still_ends_the_run() {
    let (mut engine, handle) = engine(vec![(When::Touching(0), SimFault::Stuck)], 2);
    let deadline = Some(std::time::Instant::now() + std::time::Duration::from_millis(5));
    let mut made = 0;
    let next = |cx: &Cx| {
        made += 1;
        (made <= 10).then(|| read(cx.clone(), 0))
    };
    let outcome = engine.run(10, next, |_| (), Control { cancel: None, deadline });
    assert!(matches!(outcome, Err(RunError::Deadline)));
    handle.release_stuck();
    engine.run_one(|cx| read(cx.clone(), 70_000), Control::default()).unwrap().unwrap();
    assert_eq!(handle.violations(), []);
}

#[test]
fn a_short_read_fails_only_spans_whose_bytes_are_missing() {
    // Both spans are in the aligned read of 1024 bytes, of which the first 600 arrive.
    let (mut engine, _) = engine(vec![(When::Touching(4096), SimFault::Short(600))], 8);
    let read_span = |cx: &Cx, span: Span| {
        let cx = cx.clone();
        async move { cx.read(&[span]).await.map(|b| b.bytes(0).to_vec()) }
    };
    let got = engine.run_one(|cx| read_span(cx, Span::at(4100, 596)), Control::default()).unwrap();
    assert_eq!(got.unwrap(), content(LEN)[4100..4696]);
    let got = engine.run_one(|cx| read_span(cx, Span::at(4100, 597)), Control::default()).unwrap();
    assert_eq!(got, Err(ReadError::Short { offset: 4100, expected: 597, got: 596 }));
}

#[test]
fn a_stream_opened_outside_its_query_still_wakes_it() {
    let (mut engine, _) = engine(Vec::new(), 8);
    let mut made = 0_u64;
    let next = |cx: &Cx| {
        made += 1;
        // The stream is opened and filled before the query runs.
        let mut stream = cx.stream();
        let at = made * 30_000;
        stream.push(Span::at(at, 100));
        (made <= 20).then_some(async move {
            let arrived = stream.next().await.unwrap().unwrap();
            assert_eq!(arrived.bytes(), &content(LEN)[at as usize..][..100]);
        })
    };
    let mut ended = 0;
    engine.run(5, next, |()| ended += 1, Control::default()).unwrap();
    assert_eq!(ended, 20);
}

#[test]
fn a_fault_has_the_kind_of_its_error_number() {
    let kinds = [
        (libc::EIO, FaultKind::Damaged),
        (libc::ENODEV, FaultKind::Gone),
        (libc::EBUSY, FaultKind::Throttled),
        (libc::ECONNRESET, FaultKind::LostPeer),
        (libc::EINVAL, FaultKind::Device),
    ];
    for (errno, kind) in kinds {
        assert_eq!(ReadFault::system(errno), ReadFault { kind, errno });
        for (fault, errno) in [(SimFault::Error(errno), errno), (SimFault::Refuse(kind), 0)] {
            let script = vec![(When::Nth(0), fault)];
            let tier = SimTier::new(vec![7; 8192], SimOptions { script, ..SimOptions::default() });
            let mut engine = Engine::new(Arc::new(tier), EngineOptions::default()).unwrap();
            let read = |cx: &Cx| {
                let cx = cx.clone();
                async move { cx.read(&[Span::at(512, 100)]).await.map(|_| ()) }
            };
            let failed = engine.run_one(read, Control::default()).unwrap().unwrap_err();
            assert_eq!(failed, ReadError::Device { offset: 512, len: 100, kind, errno });
            assert!(failed.to_string().contains(kind.words()), "{failed}");
            assert!(engine.run_one(read, Control::default()).unwrap().is_ok());
        }
    }
}

#[test]
fn only_a_memory_node_is_said_to_be_worth_waiting_for() {
    assert!(FaultKind::Forgotten.words().contains("wait=60"));
    assert!(!FaultKind::Changed.words().contains("wait"));
}
