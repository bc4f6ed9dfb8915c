//! Six devices as one under graph searches: where every query begins at the same place, one device has more
//! to do than the others and all wait for it (GustANN, section 4.4.1). Everything is simulated and follows
//! from seeds.
//!
//! `cargo test -p bathyal-tier --test all -- --nocapture balance::` prints the table of `docs/benchmarks.md`.

use bathyal_tier::backend::sim::{Latency, SimClock, SimHandle, SimOptions, SimTier};
use bathyal_tier::layer::cache::{CacheOptions, CacheTier};
use bathyal_tier::layer::stripe::StripeTier;
use bathyal_tier::{Control, Cx, Engine, EngineOptions, Span, Tier};
use std::sync::Arc;

const DEVICES: usize = 6;
const PAGE: u64 = 4096;
const PAGES: u64 = 8192;

/// Pages that a walk can see in its first three rounds, as in a graph of some sixty neighbours; beyond, any
/// page.
const RINGS: [u64; 3] = [1, 64, 2048];

/// Rounds of a walk, and pages read at once in each but the first.
const ROUNDS: u64 = 10;
const BEAM: u64 = 4;

const QUERIES: u64 = 5000;
const AT_ONCE: usize = 48;

/// Where a page lies: near pages of the graph are strewn over the tier.
fn span(page: u64) -> Span {
    Span::at(page.wrapping_mul(2_654_435_761) % PAGES * PAGE, PAGE as u32)
}

/// The pages of one round of a walk to `target`, from 0 to 1. Each ring is crossed at the place that lies
/// towards the target; behind the last, the walk is near its target, and that is anywhere.
fn round(target: f64, seed: u64, round: u64) -> Vec<Span> {
    let start: u64 = RINGS.iter().take(round as usize).sum();
    match RINGS.get(round as usize) {
        Some(1) => vec![span(start)],
        Some(ring) => {
            let towards = (target * *ring as f64) as u64;
            (0..BEAM).map(|i| span(start + (towards + i) % ring)).collect()
        }
        None => {
            let near = |i: u64| {
                let number = (seed * 1000 + round * 10 + i).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                span(start + (number >> 33) % (PAGES - start))
            };
            (0..BEAM).map(near).collect()
        }
    }
}

/// What a kind of search does with its first rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Entry {
    /// Reads them like all others.
    Read,
    /// Their pages are pinned in a cache.
    Pinned,
    /// A cache of the same size finds out by itself.
    Cached,
    /// Pivots in memory lead straight to the third ring.
    Pivots,
}

#[derive(Debug, PartialEq)]
struct Outcome {
    /// Reads of each device, fewest first.
    reads: Vec<u64>,
    /// The 99th percentile of each device's latencies, smallest first, in microseconds.
    p99_us: Vec<u64>,
    queries_a_second: u64,
}

impl Outcome {
    /// The most reads of a device beside the mean.
    fn imbalance(&self) -> f64 {
        let all: u64 = self.reads.iter().sum();
        self.reads[DEVICES - 1] as f64 * DEVICES as f64 / all as f64
    }
}

fn search(entry: Entry) -> Outcome {
    let clock = SimClock::virtual_time();
    let parts = StripeTier::deal(&vec![0; (PAGES * PAGE) as usize], DEVICES, PAGE as u32);
    let mut handles: Vec<SimHandle> = Vec::new();
    let mut device = |(i, part): (usize, Vec<u8>)| -> Arc<dyn Tier> {
        let latency = Latency::LogNormal { median_ns: 75_000, sigma: 0.2 };
        let (seed, clock) = (i as u64, clock.clone());
        let tier =
            SimTier::new(part, SimOptions { seed, clock, latency, iops: 100_000.0, ..SimOptions::default() });
        handles.push(tier.handle());
        Arc::new(tier)
    };
    let members = parts.into_iter().enumerate().map(&mut device).collect();
    let stripe = Arc::new(StripeTier::new(members, PAGE as u32).unwrap());
    let hot: Vec<_> = (0..RINGS[0] + RINGS[1]).map(span).collect();
    let budget_bytes = hot.len() as u64 * PAGE * 5 / 4;
    let tier: Arc<dyn Tier> = match entry {
        Entry::Read | Entry::Pivots => stripe.clone(),
        Entry::Pinned | Entry::Cached => {
            let cache =
                CacheTier::new(stripe.clone(), CacheOptions { budget_bytes, ..CacheOptions::default() });
            let cache = cache.unwrap();
            if entry == Entry::Pinned {
                assert_eq!(cache.pin(&hot, Control::default()).unwrap().resident, hot.len() as u64);
            }
            Arc::new(cache)
        }
    };
    let before = stripe.counters();
    let start_ns = clock.now_ns();
    let mut engine = Engine::new(tier, EngineOptions { depth: 1024, ..EngineOptions::default() }).unwrap();
    let mut made = 0_u64;
    let next = |cx: &Cx| {
        made += 1;
        let (cx, seed) = (cx.clone(), made);
        // Queries prefer some regions: the density falls with the square root.
        let uniform = (seed.wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 11) as f64 / (1_u64 << 53) as f64;
        let first = if entry == Entry::Pivots { 2 } else { 0 };
        (seed <= QUERIES).then_some(async move {
            for i in first..ROUNDS {
                cx.read(&round(uniform * uniform, seed, i)).await.unwrap();
            }
        })
    };
    engine.run(AT_ONCE, next, |()| (), Control::default()).unwrap();
    let seconds = (clock.now_ns() - start_ns) as f64 * 1e-9;
    let mut reads: Vec<_> =
        stripe.counters().iter().zip(before).map(|(now, then)| now.reads - then.reads).collect();
    let mut p99_us: Vec<_> = handles.iter().map(|h| h.latency_ns(0.99) / 1000).collect();
    reads.sort_unstable();
    p99_us.sort_unstable();
    Outcome { reads, p99_us, queries_a_second: (QUERIES as f64 / seconds) as u64 }
}

#[test]
fn pages_that_every_query_reads_are_better_held_in_memory() {
    println!(
        "{:<8} {:>12} {:>9} {:>20} {:>10}",
        "entry", "reads", "most/mean", "p99 us, least..most", "queries/s"
    );
    let mut outcomes = Vec::new();
    for entry in [Entry::Read, Entry::Cached, Entry::Pinned, Entry::Pivots] {
        let found = search(entry);
        let Outcome { reads, p99_us, queries_a_second } = &found;
        let all: u64 = reads.iter().sum();
        let spread = format!("{}..{}", p99_us[0], p99_us[DEVICES - 1]);
        let (name, worst) = (format!("{entry:?}"), found.imbalance());
        println!("{name:<8} {all:>12} {worst:>9.3} {spread:>20} {queries_a_second:>10}");
        outcomes.push(found);
    }
    assert_eq!(outcomes[1], search(Entry::Cached), "a simulation repeats itself");
    let total = |outcome: &Outcome| outcome.reads.iter().sum::<u64>();
    let a_walk = 1 + (ROUNDS - 1) * BEAM;
    assert_eq!(total(&outcomes[0]), QUERIES * a_walk);
    // Pivots save the reads of the first two rounds, and pinning their pages does too; what is left of that
    // cache saves a few more.
    assert_eq!(total(&outcomes[3]), QUERIES * (a_walk - 1 - BEAM));
    assert!(total(&outcomes[2]) <= total(&outcomes[3]));
    let plain = &outcomes[0];
    assert!(plain.imbalance() > 1.1, "one device is read more than the others");
    for better in &outcomes[1..] {
        assert!(better.imbalance() < 1.03, "{better:?}");
        assert!(better.p99_us[DEVICES - 1] < plain.p99_us[DEVICES - 1], "{better:?}");
        // A seventh of the reads is saved, and more than that is won.
        assert!(better.queries_a_second * 4 > plain.queries_a_second * 5, "{better:?}");
    }
}
