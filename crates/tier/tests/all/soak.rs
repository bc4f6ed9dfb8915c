//! Random queries on failing devices: no buffer is used twice while a read is in flight, and no answer is
//! computed from bytes that did not arrive.
//!
//! Each round is determined by its seed, which a failure prints. `BATHYAL_SOAK_SECONDS` sets the duration.

use bathyal_tier::backend::mapped::{LoadSource, MappedOptions, MappedTier};
use bathyal_tier::backend::sim::{
    FaultRates, LatencyDistribution, SimClock, SimHandle, SimOptions, SimTier, Watchdog,
};
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

/// Generator of random numbers (xorshift-multiply), independent of that of the library.
struct Random(u64);

impl Random {
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

/// Returns word `i` of the content of this seed.
fn word(seed: u64, i: u64) -> [u8; 8] {
    (i ^ seed.rotate_left(17)).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes()
}

fn assert_correct(seed: u64, span: Span, bytes: &[u8]) {
    assert_eq!(bytes.len(), span.len as usize);
    for (at, byte) in (span.offset..).zip(bytes) {
        assert_eq!(*byte, word(seed, at / 8)[(at % 8) as usize], "seed {seed}: {span:?} at {at}");
    }
}

/// Counts of the reads of one round.
#[derive(Debug, Default)]
struct Tally {
    correct: Cell<u64>,
    failed: Cell<u64>,
    dropped: Cell<u64>,
}

/// State that all queries of a round share.
struct Round {
    seed: u64,
    tally: Tally,
    cancel: Arc<AtomicBool>,
}

impl Round {
    fn count<T>(&self, outcome: &Result<T, ReadError>) {
        match outcome {
            Ok(_) => self.tally.correct.set(self.tally.correct.get() + 1),
            Err(ReadError::OutOfRange { .. }) => {
                panic!("seed {}: a span inside the tier was refused", self.seed)
            }
            Err(_) => self.tally.failed.set(self.tally.failed.get() + 1),
        }
    }
}

/// Polls a future once and drops it.
fn start_and_drop(future: impl Future) -> bool {
    pin!(future).as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

async fn read_batch(cx: &Cx, round: &Round, spans: &[Span]) {
    let batch = cx.read(spans).await;
    round.count(&batch);
    if let Ok(batch) = batch {
        assert_eq!(batch.len(), spans.len());
        for (i, span) in spans.iter().enumerate() {
            assert_correct(round.seed, *span, batch.bytes(i));
        }
    }
}

async fn read_stream(cx: &Cx, round: &Round, random: &mut Random) {
    let spans = random.spans(12);
    let mut stream = cx.stream();
    for span in &spans {
        stream.push(*span);
    }
    let mut left = random.below(spans.len() as u64 * 2 + 1);
    while left > 0
        && let Some(arrived) = stream.next().await
    {
        left -= 1;
        round.count(&arrived);
        if let Ok(arrived) = arrived {
            assert_correct(round.seed, spans[arrived.place as usize], arrived.bytes());
        }
    }
    if stream.pending() > 0 {
        round.tally.dropped.set(round.tally.dropped.get() + 1);
    }
}

/// Awaits two batches of one query at once.
async fn read_two_batches(cx: &Cx, round: &Round, random: &mut Random) {
    let (left, right) = (random.spans(4), random.spans(4));
    let mut first = pin!(read_batch(cx, round, &left));
    let mut second = pin!(read_batch(cx, round, &right));
    let mut ended = (false, false);
    poll_fn(|context| {
        ended.0 = ended.0 || first.as_mut().poll(context).is_ready();
        ended.1 = ended.1 || second.as_mut().poll(context).is_ready();
        if ended == (true, true) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

async fn query(cx: Cx, round: Rc<Round>, seed: u64) {
    let mut random = Random(seed);
    for _ in 0..1 + random.below(8) {
        match random.below(8) {
            0..4 => read_batch(&cx, &round, &random.spans(6)).await,
            4 | 5 => read_stream(&cx, &round, &mut random).await,
            6 => read_two_batches(&cx, &round, &mut random).await,
            _ => {
                let spans = random.spans(6);
                if start_and_drop(cx.read(&spans)) {
                    round.tally.dropped.set(round.tally.dropped.get() + 1);
                }
            }
        }
        if random.below(100) == 0 {
            round.cancel.store(true, Ordering::Relaxed);
        }
    }
}

fn options(random: &mut Random, seed: u64, clock: &SimClock) -> SimOptions {
    let rate = |random: &mut Random, most: f64| most * random.below(100) as f64 / 100.0;
    let latency = match random.below(4) {
        0 => LatencyDistribution::Constant { ns: 80_000 },
        1 => LatencyDistribution::Uniform { low_ns: 300, high_ns: 200_000 },
        2 => LatencyDistribution::Exponential { base_ns: 60_000, tail_ns: 60_000 },
        _ => LatencyDistribution::LogNormal { median_ns: 80_000, sigma: 1.0 },
    };
    SimOptions {
        seed,
        clock: clock.clone(),
        latency,
        iops: [0.0, 50_000.0][random.below(2) as usize],
        bandwidth_bytes_per_s: [0.0, 1e9][random.below(2) as usize],
        depth: 1 + random.below(40) as u32,
        granularity: 512,
        alignment: [1, 512, 4096][random.below(3) as usize],
        addressable: false,
        rates: FaultRates {
            error: rate(random, 0.05),
            short: rate(random, 0.05),
            delay: rate(random, 0.1),
            stuck: rate(random, 0.004),
            flip: 0.0,
            misdirect: 0.0,
            reorder: rate(random, 0.5),
            refuse: rate(random, 0.5),
            longest_delay: Duration::from_millis(30),
        },
        script: Vec::new(),
    }
}

/// Makes a tier with the bytes in mapped memory.
fn mapped(bytes: &[u8]) -> Arc<dyn Tier> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    let (len, crc32c) = (bytes.len() as u64, crc32c::crc32c(bytes));
    let source = LoadSource { path: file.path(), len, crc32c };
    Arc::new(MappedTier::load(&MappedOptions::default(), &source, &|_| true).unwrap())
}

/// Makes several runs of one engine over one tier, and returns the counts.
fn run_round(seed: u64) -> Tally {
    let mut random = Random(seed);
    let bytes: Vec<u8> = (0..LEN.div_ceil(8)).flat_map(|i| word(seed, i)).take(LEN as usize).collect();
    let clock = SimClock::virtual_time();
    let mut handles = Vec::new();
    let mut sim = |bytes: Vec<u8>, random: &mut Random| -> Arc<dyn Tier> {
        // One device in four has its bytes in mapped memory.
        let options = options(random, seed, &clock);
        let tier = match random.below(4) {
            0 => SimTier::over(mapped(&bytes), options),
            _ => SimTier::new(bytes, options),
        };
        handles.push(tier.handle());
        Arc::new(tier)
    };
    let tier: Arc<dyn Tier> = match random.below(3) {
        0 => {
            let parts = StripeTier::distribute(&bytes, 2, 8192);
            let members = parts.into_iter().map(|part| sim(part, &mut random)).collect();
            Arc::new(StripeTier::new(members, 8192).unwrap())
        }
        1 => Arc::new(TraceTier::new(sim(bytes, &mut random), Trace::in_memory(100))),
        _ => sim(bytes, &mut random),
    };
    // A cache of between a few pages and all of them.
    let tier: Arc<dyn Tier> = match random.below(3) {
        0 => tier,
        _ => {
            let budget_bytes = 30_000 + random.below(300_000);
            let page_bytes = tier.profile().alignment.max([512, 1024, 4096][random.below(3) as usize]);
            Arc::new(CacheTier::new(tier, CacheOptions { budget_bytes, page_bytes }).unwrap())
        }
    };
    let cancel = Arc::new(AtomicBool::new(false));
    let tier = Watchdog::over(tier, handles.clone(), cancel.clone());
    let engine_options = EngineOptions {
        depth: 1 + random.below(32) as u32,
        buffer_budget_bytes: (1 + random.below(8)) * (128 << 10),
        ..EngineOptions::default()
    };
    let mut engine = Engine::new(Arc::new(tier), engine_options).unwrap();
    let round = Rc::new(Round { seed, tally: Tally::default(), cancel: cancel.clone() });
    for _ in 0..8 {
        cancel.store(false, Ordering::Relaxed);
        let queries = random.below(60);
        let width = 1 + random.below(24) as usize;
        let made = RefCell::new(0);
        let next = |cx: &Cx| {
            *made.borrow_mut() += 1;
            (*made.borrow() <= queries).then(|| query(cx.clone(), round.clone(), random.below(u64::MAX)))
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
    Tally {
        correct: round.tally.correct.clone(),
        failed: round.tally.failed.clone(),
        dropped: round.tally.dropped.clone(),
    }
}

#[test]
fn random_queries_on_failing_devices() {
    let seconds = std::env::var("BATHYAL_SOAK_SECONDS").ok().map(|s| s.parse::<u64>().unwrap());
    let rounds = if seconds.is_some() { u64::MAX } else { 150 };
    let start = Instant::now();
    let (mut correct, mut failed, mut dropped, mut seed) = (0, 0, 0, 0);
    while seed < rounds && seconds.is_none_or(|s| start.elapsed().as_secs() < s) {
        seed += 1;
        let tally = run_round(seed);
        correct += tally.correct.get();
        failed += tally.failed.get();
        dropped += tally.dropped.get();
    }
    println!("{seed} rounds: {correct} correct reads, {failed} failed, {dropped} dropped");
    assert!(correct > failed && failed > seed && dropped > seed, "too few reads failed or were dropped");
}
