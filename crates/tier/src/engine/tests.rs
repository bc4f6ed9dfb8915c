//! Tests of the engine's internal state: release of reads, admission to buffers, and wake-ups.

use super::{Control, Cx, Engine, EngineOptions, EngineWaker, NextQuery, RunningQueries, Step, TaskWaker};
use crate::backend::dram::DramTier;
use crate::backend::sim::{FaultRates, SimClock, SimFault, SimOptions, SimTier, When};
use crate::contract::Span;
use crate::error::ReadError;
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

const LEN: usize = 1 << 20;

fn device(options: SimOptions) -> Arc<SimTier> {
    Arc::new(SimTier::new((0..LEN).map(|i| (i * 7 + i / 251) as u8).collect(), options))
}

fn engine(options: EngineOptions) -> Engine {
    Engine::new(device(SimOptions::default()), options).unwrap()
}

#[test]
fn reads_in_place_keep_to_the_depth_and_leave_nothing_behind() {
    let tier = Arc::new(DramTier::new((0..LEN).map(|i| (i / 64) as u8).collect()));
    let mut engine = Engine::new(tier, EngineOptions { depth: 4, ..EngineOptions::default() }).unwrap();
    let mut left = 20_u64;
    let next = |cx: &Cx| {
        left = left.checked_sub(1)?;
        let (cx, first) = (cx.clone(), left);
        Some(async move {
            // More than the depth has room for, as many as that, and fewer.
            for reads in [6, 4, 1] {
                let spans: Vec<_> = (first..first + reads).map(|line| Span::at(line * 64, 64)).collect();
                // Polled once and dropped before it ends.
                let mut abandoned = pin!(cx.read(&spans));
                assert!(abandoned.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
                let batch = cx.read(&spans).await.unwrap();
                assert_eq!(batch.len(), spans.len());
                for (i, line) in (first..first + reads).enumerate() {
                    assert!(batch.bytes(i).iter().all(|byte| u64::from(*byte) == line));
                }
                assert!(batch.bytes(spans.len()).is_empty());
            }
        })
    };
    engine.run(8, next, |()| (), Control::default()).unwrap();
    let core = engine.cx.0.borrow();
    assert!(core.stats.deepest <= 4, "{} at once", core.stats.deepest);
    assert_eq!((core.lent, core.read_entries().1, core.free_groups.len()), (0, 0, core.groups.len()));
}

#[test]
fn a_read_belongs_to_the_round_after_the_last_one_received() {
    let mut engine = engine(EngineOptions { depth: 8, ..EngineOptions::default() });
    let mut left = 6_u64;
    let next = |cx: &Cx| {
        left = left.checked_sub(1)?;
        let (cx, batches) = (cx.clone(), left);
        Some(async move {
            let round = || cx.0.borrow().round();
            let span = |i: u64| Span::at(i * 512, 512);
            assert_eq!(round(), 1);
            // Queries of different lengths are interleaved and reuse each other's slots; each has its own
            // rounds.
            for before in 0..batches {
                drop(cx.read(&[span(before), span(before + 9)]).await.unwrap());
                assert_eq!(u64::from(round()), before + 2);
            }
            let begun = round();
            drop(cx.read(&[]).await.unwrap());
            assert_eq!(round(), begun, "nothing was read");
            let mut stream = cx.stream();
            (0..3).for_each(|i| assert_eq!(u64::from(stream.push(span(i))), i));
            drop(stream.next().await.unwrap().unwrap());
            assert_eq!(round(), begun + 1);
            stream.push(span(7));
            // Two of the first three are left, and the one that came after: only that leads to a further
            // round.
            let (mut received, mut latest) = (0, 0);
            while let Some(arrived) = stream.next().await {
                latest = latest.max(arrived.unwrap().place);
                received += 1;
                assert_eq!(round(), begun + 1 + u16::from(latest == 3));
            }
            assert_eq!(received, 3);
        })
    };
    engine.run(3, next, |()| (), Control::default()).unwrap();
}

#[test]
fn a_long_stream_leaves_nothing_behind() {
    const READS: u64 = 200_000;
    let mut engine = engine(EngineOptions { depth: 8, ..EngineOptions::default() });
    let task = |cx: &Cx| {
        let cx = cx.clone();
        async move {
            let (mut stream, mut sum) = (cx.stream(), 0_u64);
            for i in 0..READS {
                assert_eq!(u64::from(stream.push(Span::at(i % 2000 * 512, 512))), i);
                if stream.pending() == 20 {
                    let arrived = stream.next().await.unwrap().unwrap();
                    sum += u64::from(arrived.place);
                }
            }
            while let Some(arrived) = stream.next().await {
                sum += u64::from(arrived.unwrap().place);
            }
            sum
        }
    };
    assert_eq!(engine.run_one(task, Control::default()).unwrap(), READS * (READS - 1) / 2);
    let (entries, used) = engine.cx.0.borrow().read_entries();
    assert!(entries <= 20 && used == 0, "{entries} entries for reads, {used} in use");
}

#[test]
fn withdrawn_groups_leave_a_long_queue() {
    let mut engine = engine(EngineOptions { depth: 4, ..EngineOptions::default() });
    let task = |cx: &Cx| {
        let cx = cx.clone();
        async move {
            let mut streams: Vec<_> = (0..100).map(|_| cx.stream()).collect();
            for (i, stream) in (0_u64..).zip(&mut streams) {
                for j in 0..10 {
                    stream.push(Span::at((i * 10 + j) * 512, 512));
                }
            }
            // Every other stream is dropped.
            let mut kept: Vec<_> = streams.into_iter().step_by(2).collect();
            let mut arrived = 0;
            for stream in kept.iter_mut().rev() {
                while let Some(read) = stream.next().await {
                    read.unwrap();
                    arrived += 1;
                }
            }
            arrived
        }
    };
    assert_eq!(engine.run_one(task, Control::default()).unwrap(), 500);
    assert_eq!(engine.cx.0.borrow().read_entries().1, 0);
}

/// One step of a random query.
#[derive(Debug, Clone)]
enum QueryStep {
    /// Reads spans of these lengths together.
    Batch(Vec<u32>),
    /// The same, and holds their bytes until the next `Hold` or the end.
    Hold(Vec<u32>),
    /// Stages them and drops the future.
    Abandon(Vec<u32>),
    /// Reads them one by one as they arrive.
    Stream(Vec<u32>),
}

fn spans(lens: &[u32], seed: u64) -> Vec<Span> {
    let span = |(i, len): (u64, &u32)| Span::at((seed * 7919 + i * 104_729) % (LEN as u64 - 70_000), *len);
    (0..).zip(lens).map(span).collect()
}

async fn run_steps(cx: Cx, seed: u64, steps: Vec<QueryStep>, refused: Rc<Cell<u32>>) {
    let mut held = Vec::new();
    let count_refusal = |error: ReadError| match error {
        ReadError::Budget { .. } => refused.set(refused.get() + 1),
        other => panic!("{other}"),
    };
    for step in steps {
        match step {
            QueryStep::Batch(lens) => match cx.read(&spans(&lens, seed)).await {
                Ok(batch) => assert_eq!(batch.len(), lens.len()),
                Err(error) => count_refusal(error),
            },
            QueryStep::Hold(lens) => {
                match cx.read(&spans(&lens, seed)).await {
                    Ok(batch) => held = vec![batch],
                    Err(error) => count_refusal(error),
                };
            }
            QueryStep::Abandon(lens) => {
                let spans = spans(&lens, seed);
                let begun = pin!(cx.read(&spans));
                let _ = begun.poll(&mut Context::from_waker(Waker::noop()));
            }
            QueryStep::Stream(lens) => {
                let mut stream = cx.stream();
                for span in spans(&lens, seed) {
                    stream.push(span);
                }
                while let Some(arrived) = stream.next().await {
                    if let Err(error) = arrived.map(|_| ()) {
                        count_refusal(error);
                    }
                }
            }
        }
    }
    drop(held);
}

fn query_steps() -> impl Strategy<Value = Vec<QueryStep>> {
    let lens = || prop::collection::vec(prop_oneof![4 => 1..4097_u32, 1 => 4097..60_000_u32], 1..12);
    let step = prop_oneof![
        3 => lens().prop_map(QueryStep::Batch),
        1 => lens().prop_map(QueryStep::Hold),
        1 => lens().prop_map(QueryStep::Abandon),
        2 => lens().prop_map(QueryStep::Stream),
    ];
    prop::collection::vec(step, 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// For random queries and budgets: all queries end, a staged batch holds all its buffers or none, the
    /// budget is kept, and at the end every buffer and every read entry is free.
    #[test]
    fn admission_starves_no_query_and_keeps_the_budget(
        queries in prop::collection::vec(query_steps(), 1..20),
        depth in 1..12_u32,
        width in 1..10_usize,
        frames in 1..40_u64,
        refuse in prop::bool::ANY,
    ) {
        let rates = FaultRates { refuse: if refuse { 0.3 } else { 0.0 }, ..FaultRates::NONE };
        let budget = frames * 4096;
        let options = EngineOptions { depth, buffer_budget_bytes: budget, ..EngineOptions::default() };
        let tier = device(SimOptions { rates, ..SimOptions::default() });
        let engine = Engine::new(tier.clone(), options).unwrap();
        let refused = Rc::new(Cell::new(0));
        let mut running = RunningQueries::new(engine);
        let (mut next, mut ended) = (0, 0);
        while ended < queries.len() {
            while next < queries.len() && running.active() < width {
                let make =
                    |cx: &Cx| run_steps(cx.clone(), next as u64, queries[next].clone(), refused.clone());
                ended += usize::from(running.start(make).unwrap().is_some());
                next += 1;
            }
            match running.step().unwrap() {
                Step::Answered(()) => ended += 1,
                Step::Suspended => {}
                Step::Waiting => running.wait(None, Duration::from_secs(1)).unwrap(),
            }
            prop_assert!(running.engine().buffer_bytes() <= budget);
            for (held, waiting) in running.engine().cx.0.borrow().staged_batches().into_values() {
                prop_assert!(held == 0 || held == waiting, "{held} of {waiting} have buffers");
            }
        }
        let (engine, settled) = running.end();
        settled.unwrap();
        let core = engine.cx.0.borrow();
        prop_assert_eq!(core.read_entries().1, 0);
        prop_assert!(core.pool.all_free());
        prop_assert_eq!(tier.handle().violations(), []);
    }
}

/// Number of queries that end without a read, before the others, and the width of the tests of fairness.
const QUERIES_WITHOUT_READS: usize = 100;
const FAIR_WIDTH: usize = 4;

/// Returns a query that reads and returns its number, or only returns its number.
fn read_if(cx: &Cx, reads: bool, number: usize) -> impl Future<Output = usize> + use<> {
    let cx = cx.clone();
    async move {
        if reads {
            cx.read(&[Span::at(0, 9)]).await.unwrap();
        }
        number
    }
}

#[test]
fn a_query_that_waits_is_resumed_while_others_end_at_once() {
    let ended = RefCell::new(Vec::new());
    let mut next = 0..QUERIES_WITHOUT_READS;
    let make = |cx: &Cx| next.next().map(|number| read_if(cx, number == 0, number));
    let tier = Arc::new(DramTier::new(vec![0; 64]));
    let mut engine = Engine::new(tier, EngineOptions::default()).unwrap();
    engine.run(FAIR_WIDTH, make, |number| ended.borrow_mut().push(number), Control::default()).unwrap();
    let at = ended.borrow().iter().position(|number| *number == 0).unwrap();
    assert!(at < 2 * FAIR_WIDTH, "ended after {at} others");
    assert_eq!(ended.borrow().len(), QUERIES_WITHOUT_READS);
}

#[test]
fn queries_that_end_at_once_begin_only_after_a_poll() {
    let mut running = RunningQueries::new(engine(EngineOptions::default()));
    assert!(running.start(|cx| read_if(cx, true, 0)).unwrap().is_none());
    let mut begun = 1;
    while running.may_begin(FAIR_WIDTH) {
        assert_eq!(running.start(|cx| read_if(cx, false, begun)).unwrap(), Some(begun));
        begun += 1;
    }
    assert_eq!((begun, running.active()), (FAIR_WIDTH, 1));
    assert!(running.begin_after_poll(FAIR_WIDTH));
    running.poll().unwrap();
    assert!(running.may_begin(FAIR_WIDTH) && !running.begin_after_poll(FAIR_WIDTH));
    running.retain(|_| false);
}

#[test]
fn a_fed_run_sleeps_until_more_queries_arrive() {
    let (queue, waker) = (Mutex::new(Vec::new()), EngineWaker::new());
    let answered = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..50_usize {
                queue.lock().unwrap().push(Some(round));
                waker.wake();
                // The next query follows when this one has been answered, so that the run is idle in between.
                while answered.load(Ordering::Acquire) <= round {
                    std::hint::spin_loop();
                }
            }
            queue.lock().unwrap().push(None);
            waker.wake();
        });
        let mut engine = engine(EngineOptions::default());
        let next = |cx: &Cx| match queue.lock().unwrap().pop() {
            None => NextQuery::NoneNow,
            Some(None) => NextQuery::End,
            Some(Some(round)) => {
                let cx = cx.clone();
                NextQuery::Query(async move { cx.read(&[Span::at(round as u64, 9)]).await.unwrap().len() })
            }
        };
        let sink = |_| {
            answered.fetch_add(1, Ordering::AcqRel);
        };
        engine.run_fed(4, next, sink, Control::default(), &waker).unwrap();
    });
    assert_eq!(answered.into_inner(), 50);
}

#[test]
fn an_alarm_ends_a_sleep_in_the_device() {
    let stuck = SimOptions {
        clock: SimClock::real_time(),
        script: vec![(When::Nth(0), SimFault::Stuck)],
        ..SimOptions::default()
    };
    let engine = Engine::new(device(stuck), EngineOptions::default()).unwrap();
    let mut running = RunningQueries::new(engine);
    let read = |at: u64| {
        move |cx: &Cx| {
            let cx = cx.clone();
            async move { cx.read(&[Span::at(at, 9)]).await.map(|batch| batch.len()) }
        }
    };
    running.start(read(0)).unwrap();
    let waker = EngineWaker::new();
    std::thread::scope(|scope| {
        // The read never ends: if the waker did not end the sleep, this would take a day.
        scope.spawn(|| waker.wake());
        running.wait(Some(&waker), Duration::from_secs(86_400)).unwrap();
    });
    running.start(read(512)).unwrap();
    let answer = loop {
        match running.step().unwrap() {
            Step::Answered(answer) => break answer,
            _ => running.wait(Some(&waker), Duration::from_secs(86_400)).unwrap(),
        }
    };
    assert_eq!((answer.unwrap(), running.active()), (1, 1));
    running.retain(|_| false);
    assert_eq!(running.active(), 0);
}

/// The number of the task whose turn it is, and the tasks to wake when it changes.
#[derive(Default)]
struct Turn(Mutex<(u32, Vec<TaskWaker>)>);

impl Turn {
    /// Parks until it is the turn of `number`.
    async fn wait(&self, cx: &Cx, number: u32) {
        loop {
            {
                let mut turn = self.0.lock().unwrap();
                if turn.0 == number {
                    return;
                }
                turn.1.push(cx.task_waker());
            }
            cx.parked().await;
        }
    }

    fn pass(&self) {
        let mut turn = self.0.lock().unwrap();
        turn.0 += 1;
        turn.1.drain(..).for_each(|waker| waker.wake());
    }
}

#[test]
fn tasks_wake_each_other_within_a_thread_and_across_threads() {
    const TASKS: u32 = 200;
    let (turn, order) = (Turn::default(), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        // Each thread has every second task, begun from the last to the first, so that all but one wait.
        for thread in 0..2 {
            let (turn, order) = (&turn, &order);
            scope.spawn(move || {
                let mut engine = engine(EngineOptions::default());
                let mut left = TASKS / 2;
                let next = |cx: &Cx| {
                    left = left.checked_sub(1)?;
                    let (cx, number) = (cx.clone(), 2 * left + thread);
                    Some(async move {
                        turn.wait(&cx, number).await;
                        // A completion does not end a wait for the turn, and a turn does not end a read.
                        let read = cx.read(&[Span::at(u64::from(number) * 512, 512)]).await.unwrap();
                        assert_eq!(read.len(), 1);
                        order.lock().unwrap().push(number);
                        turn.pass();
                    })
                };
                engine.run(TASKS as usize, next, |()| (), Control::default()).unwrap();
                assert_eq!(engine.cx.0.borrow().parked, 0);
            });
        }
    });
    assert!(order.into_inner().unwrap().into_iter().eq(0..TASKS));
}

#[test]
fn a_parked_task_ends_with_its_deadline_and_leaves_nothing_behind() {
    let mut engine = engine(EngineOptions::default());
    let deadline = Some(std::time::Instant::now() + Duration::from_millis(30));
    let mut woken = Vec::new();
    let parked = |cx: &Cx| {
        let cx = cx.clone();
        woken.push(cx.task_waker());
        async move {
            loop {
                cx.parked().await;
            }
        }
    };
    let late = engine.run_one(parked, Control { cancel: None, deadline });
    assert!(matches!(late, Err(crate::RunError::Deadline)), "{late:?}");
    // The task has ended; to wake it does no harm.
    woken.iter().for_each(TaskWaker::wake);
    let read = |cx: &Cx| {
        let cx = cx.clone();
        async move { cx.read(&[Span::at(0, 512)]).await.map(|batch| batch.len()) }
    };
    assert_eq!(engine.run_one(read, Control::default()).unwrap().unwrap(), 1);
    assert_eq!(engine.cx.0.borrow().parked, 0);
}
