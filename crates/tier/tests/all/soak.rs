//! Random queries on a failing device: no buffer is used twice while a read is in flight, and no answer is
//! computed from bytes that did not arrive.
//!
//! Everything follows from one seed, printed when a run fails. `BATHYAL_SOAK_SECONDS` makes it longer.

use bathyal_tier::backend::mapped::{MappedOptions, MappedTier, Source};
use bathyal_tier::backend::sim::{FaultRates, Latency, SimClock, SimHandle, SimOptions, SimTier, Watchdog};
use bathyal_tier::layer::cache::{CacheOptions, CacheTier};
use bathyal_tier::layer::stripe::StripeTier;
use bathyal_tier::layer::trace::{Trace, TraceTier};
use bathyal_tier::{Control, Cx, Engine, EngineOptions, ReadError, RunError, Span, Tier};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

const LEN: u64 = 200_003;

/// Random numbers by seed (xorshift-multiply; the library's generator is its own business).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut z = self.0;
        z = (z ^ (z >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        (z ^ (z >> 29)) % bound
    }

    fn span(&mut self) -> Span {
        let longest = [64, 700, 5_000, 30_000][self.below(4) as usize];
        let len = 1 + self.below(longest);
        Span::at(self.below(LEN - len + 1), len as u32)
    }

    fn spans(&mut self, most: u64) -> Vec<Span> {
        (0..self.below(most + 1)).map(|_| self.span()).collect()
    }
}

/// Each eight bytes tell their offset, in the tongue of this seed.
fn word(seed: u64, i: u64) -> [u8; 8] {
    (i ^ seed.rotate_left(17)).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes()
}

fn assert_genuine(seed: u64, span: Span, bytes: &[u8]) {
    assert_eq!(bytes.len(), span.len as usize);
    for (at, byte) in (span.offset..).zip(bytes) {
        assert_eq!(*byte, word(seed, at / 8)[(at % 8) as usize], "seed {seed}: {span:?} at {at}");
    }
}

/// What the queries of a soak have seen.
#[derive(Debug, Default)]
struct Tally {
    genuine: Cell<u64>,
    failed: Cell<u64>,
    dropped: Cell<u64>,
}

struct World {
    seed: u64,
    tally: Tally,
    cancel: Arc<AtomicBool>,
}

impl World {
    fn note<T>(&self, outcome: &Result<T, ReadError>) {
        match outcome {
            Ok(_) => self.tally.genuine.set(self.tally.genuine.get() + 1),
            Err(ReadError::OutOfRange { .. }) => panic!("seed {}: a span inside was refused", self.seed),
            Err(_) => self.tally.failed.set(self.tally.failed.get() + 1),
        }
    }
}

/// Polls a future once and drops it.
fn start_and_drop(future: impl Future) -> bool {
    pin!(future).as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

async fn batch(cx: &Cx, world: &World, spans: &[Span]) {
    let batch = cx.read(spans).await;
    world.note(&batch);
    if let Ok(batch) = batch {
        assert_eq!(batch.len(), spans.len());
        for (i, span) in spans.iter().enumerate() {
            assert_genuine(world.seed, *span, batch.bytes(i));
        }
    }
}

async fn stream(cx: &Cx, world: &World, dice: &mut Dice) {
    let spans = dice.spans(12);
    let mut stream = cx.stream();
    for span in &spans {
        stream.push(*span);
    }
    let mut left = dice.below(spans.len() as u64 * 2 + 1);
    while left > 0
        && let Some(arrived) = stream.next().await
    {
        left -= 1;
        world.note(&arrived);
        if let Ok(arrived) = arrived {
            assert_genuine(world.seed, spans[arrived.place as usize], arrived.bytes());
        }
    }
    if stream.pending() > 0 {
        world.tally.dropped.set(world.tally.dropped.get() + 1);
    }
}

/// Two reads of one query at once, each awaited whenever the other is.
async fn join(cx: &Cx, world: &World, dice: &mut Dice) {
    let (left, right) = (dice.spans(4), dice.spans(4));
    let mut first = pin!(batch(cx, world, &left));
    let mut second = pin!(batch(cx, world, &right));
    let mut ended = (false, false);
    poll_fn(|context| {
        ended.0 = ended.0 || first.as_mut().poll(context).is_ready();
        ended.1 = ended.1 || second.as_mut().poll(context).is_ready();
        if ended == (true, true) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

async fn query(cx: Cx, world: Rc<World>, seed: u64) {
    let mut dice = Dice(seed);
    for _ in 0..1 + dice.below(8) {
        match dice.below(8) {
            0..4 => batch(&cx, &world, &dice.spans(6)).await,
            4 | 5 => stream(&cx, &world, &mut dice).await,
            6 => join(&cx, &world, &mut dice).await,
            _ => {
                let spans = dice.spans(6);
                if start_and_drop(cx.read(&spans)) {
                    world.tally.dropped.set(world.tally.dropped.get() + 1);
                }
            }
        }
        if dice.below(100) == 0 {
            world.cancel.store(true, Ordering::Relaxed);
        }
    }
}

fn options(dice: &mut Dice, seed: u64, clock: &SimClock) -> SimOptions {
    let often = |dice: &mut Dice, most: f64| most * dice.below(100) as f64 / 100.0;
    let latency = match dice.below(4) {
        0 => Latency::Constant { ns: 80_000 },
        1 => Latency::Uniform { low_ns: 300, high_ns: 200_000 },
        2 => Latency::Exponential { base_ns: 60_000, tail_ns: 60_000 },
        _ => Latency::LogNormal { median_ns: 80_000, sigma: 1.0 },
    };
    SimOptions {
        seed,
        clock: clock.clone(),
        latency,
        iops: [0.0, 50_000.0][dice.below(2) as usize],
        bandwidth_bytes_per_s: [0.0, 1e9][dice.below(2) as usize],
        depth: 1 + dice.below(40) as u32,
        granularity: 512,
        alignment: [1, 512, 4096][dice.below(3) as usize],
        addressable: false,
        rates: FaultRates {
            error: often(dice, 0.05),
            short: often(dice, 0.05),
            delay: often(dice, 0.1),
            stuck: often(dice, 0.004),
            flip: 0.0,
            misdirect: 0.0,
            reorder: often(dice, 0.5),
            refuse: often(dice, 0.5),
            longest_delay: Duration::from_millis(30),
        },
        script: Vec::new(),
    }
}

/// The bytes in mapped memory.
fn mapped(bytes: &[u8]) -> Arc<dyn Tier> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    let (len, crc32c) = (bytes.len() as u64, crc32c::crc32c(bytes));
    let source = Source { path: file.path(), len, crc32c };
    Arc::new(MappedTier::load(&MappedOptions::default(), &source, &|_| true).unwrap())
}

/// One device, one engine, several runs.
fn round(seed: u64) -> (u64, u64, u64) {
    let mut dice = Dice(seed);
    let bytes: Vec<u8> = (0..LEN.div_ceil(8)).flat_map(|i| word(seed, i)).take(LEN as usize).collect();
    let clock = SimClock::virtual_time();
    let mut handles = Vec::new();
    let mut sim = |bytes: Vec<u8>, dice: &mut Dice| -> Arc<dyn Tier> {
        // Of every four devices one has its bytes in mapped memory.
        let options = options(dice, seed, &clock);
        let tier = match dice.below(4) {
            0 => SimTier::over(mapped(&bytes), options),
            _ => SimTier::new(bytes, options),
        };
        handles.push(tier.handle());
        Arc::new(tier)
    };
    let below: Arc<dyn Tier> = match dice.below(3) {
        0 => {
            let parts = StripeTier::deal(&bytes, 2, 8192);
            let members = parts.into_iter().map(|part| sim(part, &mut dice)).collect();
            Arc::new(StripeTier::new(members, 8192).unwrap())
        }
        1 => Arc::new(TraceTier::new(sim(bytes, &mut dice), Trace::in_memory(100))),
        _ => sim(bytes, &mut dice),
    };
    // A cache of anything between a few pages and all of them.
    let below: Arc<dyn Tier> = match dice.below(3) {
        0 => below,
        _ => {
            let budget_bytes = 30_000 + dice.below(300_000);
            let page_bytes = below.profile().alignment.max([512, 1024, 4096][dice.below(3) as usize]);
            Arc::new(CacheTier::new(below, CacheOptions { budget_bytes, page_bytes }).unwrap())
        }
    };
    let cancel = Arc::new(AtomicBool::new(false));
    let tier = Watchdog::over(below, handles.clone(), cancel.clone());
    let engine_options = EngineOptions {
        depth: 1 + dice.below(32) as u32,
        buffer_budget_bytes: (1 + dice.below(8)) * (128 << 10),
        ..EngineOptions::default()
    };
    let mut engine = Engine::new(Arc::new(tier), engine_options).unwrap();
    let world = Rc::new(World { seed, tally: Tally::default(), cancel: cancel.clone() });
    for _ in 0..8 {
        cancel.store(false, Ordering::Relaxed);
        let queries = dice.below(60);
        let width = 1 + dice.below(24) as usize;
        let made = RefCell::new(0);
        let next = |cx: &Cx| {
            *made.borrow_mut() += 1;
            (*made.borrow() <= queries).then(|| query(cx.clone(), world.clone(), dice.below(u64::MAX)))
        };
        let control = Control { cancel: Some(&cancel), deadline: None };
        match engine.run(width, next, |()| (), control) {
            Ok(()) | Err(RunError::Cancelled) => {}
            Err(e) => panic!("seed {seed}: {e}"),
        }
    }
    assert!(engine.buffer_bytes() <= engine_options.buffer_budget_bytes, "seed {seed}: over budget");
    handles.iter().for_each(SimHandle::release_stuck);
    drop(engine);
    for handle in &handles {
        assert_eq!(handle.violations(), [], "seed {seed}");
    }
    let Tally { genuine, failed, dropped } = &world.tally;
    (genuine.get(), failed.get(), dropped.get())
}

#[test]
fn random_queries_on_failing_devices() {
    let seconds = std::env::var("BATHYAL_SOAK_SECONDS").ok().map(|s| s.parse::<u64>().unwrap());
    let rounds = if seconds.is_some() { u64::MAX } else { 150 };
    let start = Instant::now();
    let (mut genuine, mut failed, mut dropped, mut seed) = (0, 0, 0, 0);
    while seed < rounds && seconds.is_none_or(|s| start.elapsed().as_secs() < s) {
        seed += 1;
        let (g, f, d) = round(seed);
        (genuine, failed, dropped) = (genuine + g, failed + f, dropped + d);
    }
    println!("{seed} rounds: {genuine} reads genuine, {failed} failed, {dropped} dropped");
    assert!(genuine > failed && failed > seed && dropped > seed, "the soak no longer soaks");
}
