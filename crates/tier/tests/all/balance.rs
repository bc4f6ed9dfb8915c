//! Graph searches on a stripe of six devices. If every query begins at the same vertex, one device has more
//! reads than the others, and all queries wait for it (GustANN, section 4.4.1). Devices and queries are
//! simulated from seeds.
//!
//! `cargo test -p bathyal-tier --test all -- --nocapture balance::` prints the table of `docs/benchmarks.md`.

use bathyal_tier::backend::sim::{LatencyDistribution, SimClock, SimHandle, SimOptions, SimTier};
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

/// Returns the span of a page: pages that are near in the graph are spread over the tier.
fn span(page: u64) -> Span {
    Span::at(page.wrapping_mul(2_654_435_761) % PAGES * PAGE, PAGE as u32)
}

/// Returns the pages of one round of a walk to `target`, a number from 0 to 1. In each ring, the walk reads
/// the pages in the direction of the target. After the last ring it is near the target, which may be any
/// page.
fn pages_of_round(target: f64, seed: u64, round: u64) -> Vec<Span> {
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

/// Treatment of the pages of the first rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Entry {
    /// They are read like all others.
    Read,
    /// They are pinned in a cache.
    Pinned,
    /// A cache of the same size chooses its pages by itself.
    Cached,
    /// Pivots in memory replace the first two rounds.
    Pivots,
}

#[derive(Debug, PartialEq)]
struct Outcome {
    /// Reads of each device, fewest first.
    reads: Vec<u64>,
    /// The 99th percentile of each device's latencies, smallest first, in microseconds.
    p99_us: Vec<u64>,
    queries_per_s: u64,
}

impl Outcome {
    /// Returns the largest number of reads of a device, divided by the mean.
    fn imbalance(&self) -> f64 {
        let all: u64 = self.reads.iter().sum();
        self.reads[DEVICES - 1] as f64 * DEVICES as f64 / all as f64
    }
}

fn search(entry: Entry) -> Outcome {
    let clock = SimClock::virtual_time();
    let parts = StripeTier::distribute(&vec![0; (PAGES * PAGE) as usize], DEVICES, PAGE as u32);
    let mut handles: Vec<SimHandle> = Vec::new();
    let mut device = |(i, part): (usize, Vec<u8>)| -> Arc<dyn Tier> {
        let latency = LatencyDistribution::LogNormal { median_ns: 75_000, sigma: 0.2 };
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
        // Queries prefer some targets: their density falls with the square root.
        let uniform = (seed.wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 11) as f64 / (1_u64 << 53) as f64;
        let first = if entry == Entry::Pivots { 2 } else { 0 };
        (seed <= QUERIES).then_some(async move {
            for i in first..ROUNDS {
                cx.read(&pages_of_round(uniform * uniform, seed, i)).await.unwrap();
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
    Outcome { reads, p99_us, queries_per_s: (QUERIES as f64 / seconds) as u64 }
}

#[test]
fn caching_the_pages_of_the_first_rounds_balances_the_devices() {
    println!(
        "{:<8} {:>12} {:>9} {:>20} {:>10}",
        "entry", "reads", "most/mean", "p99 us, least..most", "queries/s"
    );
    let mut outcomes = Vec::new();
    for entry in [Entry::Read, Entry::Cached, Entry::Pinned, Entry::Pivots] {
        let outcome = search(entry);
        let Outcome { reads, p99_us, queries_per_s } = &outcome;
        let all: u64 = reads.iter().sum();
        let spread = format!("{}..{}", p99_us[0], p99_us[DEVICES - 1]);
        let (name, worst) = (format!("{entry:?}"), outcome.imbalance());
        println!("{name:<8} {all:>12} {worst:>9.3} {spread:>20} {queries_per_s:>10}");
        outcomes.push(outcome);
    }
    assert_eq!(outcomes[1], search(Entry::Cached), "equal seeds give equal outcomes");
    let total = |outcome: &Outcome| outcome.reads.iter().sum::<u64>();
    let reads_per_walk = 1 + (ROUNDS - 1) * BEAM;
    assert_eq!(total(&outcomes[0]), QUERIES * reads_per_walk);
    // Pivots save the reads of the first two rounds. Pinning their pages does, too, and the rest of that
    // cache saves a few more.
    assert_eq!(total(&outcomes[3]), QUERIES * (reads_per_walk - 1 - BEAM));
    assert!(total(&outcomes[2]) <= total(&outcomes[3]));
    let plain = &outcomes[0];
    assert!(plain.imbalance() > 1.1, "one device has more reads than the others");
    for better in &outcomes[1..] {
        assert!(better.imbalance() < 1.03, "{better:?}");
        assert!(better.p99_us[DEVICES - 1] < plain.p99_us[DEVICES - 1], "{better:?}");
        // A seventh of the reads is saved, but throughput rises by more than that.
        assert!(better.queries_per_s * 4 > plain.queries_per_s * 5, "{better:?}");
    }
}
