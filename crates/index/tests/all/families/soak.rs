//! Random searches of every family in every layout on failing devices: no wrong answer, no search without an
//! end, and no buffer that is reused while its read is in flight.
//!
//! All random choices follow from a seed, which a failed round prints. `BATHYAL_SOAK_SECONDS` sets the
//! duration.

use crate::cases::full_or_quick;
use crate::families::kinds::{KINDS, Kind, Shared};
use crate::families::places::{open, wrapped};
use bathyal_index::{Index, IndexError, OpenOptions, SearchMode, SearchOptions, SearchResult};
use bathyal_tier::backend::sim::{FaultRates, LatencyDistribution, SimOptions, SimTier, Watchdog};
use bathyal_tier::{Control, Tier};
use bathyal_vectors::VectorFile;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Returns the number of rounds of each kind if no duration is set.
fn rounds_of_a_kind() -> u64 {
    full_or_quick(6, 3)
}

/// Searches of a round.
const SEARCHES: usize = 6;

/// Numbers of searches by how they ended.
#[derive(Default, Debug)]
struct Tally {
    answered: u64,
    failed: u64,
    cancelled: u64,
}

/// Returns the options of a device with random rates of each fault.
fn device(random: &mut StdRng, seed: u64) -> SimOptions {
    // Each fault has rate 0 on half of the devices, so that each occurs without the others as well.
    let mut often = |most: f64| if random.random() { most * random.random::<f64>() } else { 0.0 };
    let rates = FaultRates {
        error: often(0.01),
        short: often(0.01),
        delay: often(0.1),
        stuck: often(0.004),
        flip: often(0.01),
        misdirect: often(0.02),
        reorder: often(0.5),
        refuse: often(0.5),
        longest_delay: Duration::from_millis(30),
    };
    let latency = match random.random_range(0..3) {
        0 => LatencyDistribution::Constant { ns: 80_000 },
        1 => LatencyDistribution::Uniform { low_ns: 300, high_ns: 200_000 },
        _ => LatencyDistribution::LogNormal { median_ns: 80_000, sigma: 1.0 },
    };
    let depth = random.random_range(1..40);
    SimOptions { seed, latency, depth, rates, ..SimOptions::default() }
}

/// Checks what holds at any effort: k different vectors, sorted, at their true distances.
fn assert_genuine(found: &SearchResult, data: &VectorFile, queries: &VectorFile, what: &str) {
    for (q, (ids, distances)) in found.ids.chunks(found.k).zip(found.distances.chunks(found.k)).enumerate() {
        assert!(distances.is_sorted(), "{what}: query {q}: {distances:?}");
        let mut different = ids.to_vec();
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), found.k, "{what}: query {q}: {ids:?}");
        for (id, distance) in ids.iter().zip(distances) {
            let pairs = data.row(*id as usize).iter().zip(queries.row(q));
            let exact: i32 = pairs.map(|(a, b)| (i32::from(*a) - i32::from(*b)).pow(2)).sum();
            assert_eq!(*distance, exact as f32, "{what}: query {q}, vector {id}");
        }
    }
}

/// Searches an index on one device several times.
fn round(kind: Kind, sound: &Index, shared: &Shared, seed: u64, tally: &mut Tally) {
    let mut random = StdRng::seed_from_u64(seed);
    let sim = SimTier::over(sound.tier().clone(), device(&mut random, seed));
    let (handle, cancel) = (sim.handle(), Arc::new(AtomicBool::new(false)));
    let tier: Arc<dyn Tier> = Arc::new(Watchdog::over(Arc::new(sim), vec![handle.clone()], cancel.clone()));
    let index = wrapped(sound.path(), tier);
    for number in 0..SEARCHES {
        let what = format!("{}, seed {seed}, search {number}", kind.name);
        cancel.store(false, Ordering::Relaxed);
        let mode = if random.random() { SearchMode::Batched } else { SearchMode::Pipelined };
        let options = SearchOptions {
            effort: kind.effort(random.random_range(10..120)),
            probes: kind.is_lists().then(|| random.random_range(1..12)),
            threads: random.random_range(1..4),
            in_flight: Some(random.random_range(1..12)),
            ..kind.search_options(mode)
        };
        match index.search(&shared.queries, &options, Control { cancel: Some(&cancel), deadline: None }) {
            Ok(found) => {
                assert_genuine(&found, &shared.data, &shared.queries, &what);
                if mode == SearchMode::Batched || kind.ignores_read_order() {
                    let expected = sound.search(&shared.queries, &options, Control::default()).unwrap();
                    assert_eq!((found.ids, found.distances), (expected.ids, expected.distances), "{what}");
                }
                tally.answered += 1;
            }
            Err(IndexError::Read { .. } | IndexError::Damaged { .. }) => tally.failed += 1,
            Err(IndexError::Cancelled) => tally.cancelled += 1,
            Err(other) => panic!("{what}: {other}"),
        }
    }
    handle.release_stuck();
    drop(index);
    assert_eq!(handle.violations(), [], "{}, seed {seed}", kind.name);
}

#[test]
fn random_searches_on_failing_devices_answer_correctly_or_fail() {
    let seconds = std::env::var("BATHYAL_SOAK_SECONDS").ok().map(|s| s.parse::<u64>().unwrap());
    let rounds = if seconds.is_some() { u64::MAX } else { rounds_of_a_kind() * KINDS.len() as u64 };
    let (start, shared, mut tally) = (Instant::now(), Shared::get(), Tally::default());
    let sound: Vec<Index> =
        (0..KINDS.len()).map(|number| open(&shared.path(number), OpenOptions::default())).collect();
    let mut seed = 0;
    while seed < rounds && seconds.is_none_or(|s| start.elapsed().as_secs() < s) {
        let number = (seed % KINDS.len() as u64) as usize;
        round(KINDS[number], &sound[number], shared, seed, &mut tally);
        seed += 1;
    }
    println!("{seed} rounds: {tally:?}");
    let Tally { answered, failed, cancelled } = tally;
    assert!(answered > seed / 4 && failed > seed / 2 && cancelled > 0, "the soak no longer soaks: {tally:?}");
}
