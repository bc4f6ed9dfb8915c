//! The conformance suite on every backend and every layer.

use bathyal_tier::backend::dram::DramTier;
use bathyal_tier::backend::file::{FileOptions, FileTier, Method};
use bathyal_tier::backend::mapped::{MappedOptions, MappedPlace, MappedTier};
use bathyal_tier::backend::sim::{
    FaultRates, LatencyDistribution, SimClock, SimFault, SimHandle, SimOptions, SimTier, When,
};
use bathyal_tier::conformance::{Capabilities, check};
use bathyal_tier::layer::cache::{CacheOptions, CacheTier};
use bathyal_tier::layer::delay::{DelayProfile, DelayTier};
use bathyal_tier::layer::doorbell::DoorbellTier;
use bathyal_tier::layer::stripe::StripeTier;
use bathyal_tier::layer::switch::SwitchTier;
use bathyal_tier::layer::trace::{Trace, TraceTier};
use bathyal_tier::{Action, Operation, Tier, WriteTier, complete_operations};
use std::cell::RefCell;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

fn file(method: Method, direct: bool) {
    let dir = tempfile::tempdir().unwrap();
    let made = RefCell::new(0);
    let make = |bytes: Vec<u8>| -> Arc<dyn Tier> {
        *made.borrow_mut() += 1;
        let path = dir.path().join(made.borrow().to_string());
        std::fs::write(&path, bytes).unwrap();
        Arc::new(FileTier::open(&path, FileOptions { method, direct }).unwrap())
    };
    check(&make, Capabilities::default()).unwrap();
}

/// Runs the suite on simulated devices, and checks that none has recorded a violation.
fn sim(options: SimOptions) {
    let handles: RefCell<Vec<SimHandle>> = RefCell::default();
    let build = |bytes: Vec<u8>, script: Vec<(When, SimFault)>| -> Arc<dyn Tier> {
        let tier = SimTier::new(bytes, SimOptions { script, ..options.clone() });
        handles.borrow_mut().push(tier.handle());
        Arc::new(tier)
    };
    let failing = |bytes: Vec<u8>, bad| build(bytes, vec![(When::Touching(bad), SimFault::Error(5))]);
    check(&|bytes| build(bytes, Vec::new()), Capabilities { failing: Some(&failing) }).unwrap();
    for handle in handles.borrow().iter() {
        assert_eq!(handle.violations(), []);
    }
}

#[test]
fn dram() {
    check(&|bytes| Arc::new(DramTier::new(bytes)), Capabilities::default()).unwrap();
}

#[test]
fn writable_dram() {
    check(&|bytes| Arc::new(DramTier::writable_copy(&bytes)), Capabilities::default()).unwrap();
}

#[test]
fn writable_mapped_memory() {
    let make = |bytes: Vec<u8>| -> Arc<dyn Tier> {
        let options = MappedOptions::at(MappedPlace::Anonymous);
        let tier = MappedTier::writable_zeros(&options, bytes.len()).unwrap();
        let mut queue = tier.open_write(1).unwrap();
        let action = Action::Write { from: bytes.as_ptr(), len: bytes.len() as u32 };
        let operation = Operation { id: 0, offset: 0, action, linked: false };
        // SAFETY: the bytes are valid until the completion.
        let done = unsafe { complete_operations(queue.as_mut(), &[operation]).unwrap() };
        assert!(bytes.is_empty() || done[0].result == Ok(bytes.len() as u32));
        Arc::new(tier)
    };
    check(&make, Capabilities::default()).unwrap();
}

#[test]
fn writable_sim() {
    let rates = FaultRates { delay: 0.1, reorder: 0.3, refuse: 0.3, ..FaultRates::NONE };
    let latency = LatencyDistribution::LogNormal { median_ns: 3_000, sigma: 0.8 };
    let options = SimOptions { seed: 5, latency, rates, ..SimOptions::default() };
    let handles: RefCell<Vec<SimHandle>> = RefCell::default();
    let make = |bytes: Vec<u8>| -> Arc<dyn Tier> {
        let tier = SimTier::writable_copy(&bytes, options.clone());
        handles.borrow_mut().push(tier.handle());
        Arc::new(tier)
    };
    check(&make, Capabilities::default()).unwrap();
    assert!(handles.borrow().iter().all(|handle| handle.violations().is_empty()));
}

#[test]
fn read_only_tiers_are_not_writable() {
    let dram: Arc<dyn Tier> = Arc::new(DramTier::new(vec![1; 100]));
    let sim = Arc::new(SimTier::new(vec![1; 100], SimOptions::default()));
    let over: Arc<dyn Tier> =
        Arc::new(TraceTier::new(Arc::new(DramTier::writable_copy(&[1; 100])), Trace::in_memory(1)));
    assert!(dram.writable().is_none() && sim.writable().is_none() && over.writable().is_none());
}

#[test]
fn file_probed_direct() {
    file(Method::Probe, true);
}

#[test]
fn file_probed_cached() {
    file(Method::Probe, false);
}

#[test]
fn file_positioned_direct() {
    file(Method::Positioned, true);
}

#[test]
fn file_positioned_cached() {
    file(Method::Positioned, false);
}

#[test]
fn sim_faultless() {
    sim(SimOptions::default());
}

#[test]
fn sim_slow_with_delays_and_refusals() {
    let rates = FaultRates { delay: 0.1, reorder: 0.3, refuse: 0.3, ..FaultRates::NONE };
    sim(SimOptions {
        seed: 3,
        latency: LatencyDistribution::LogNormal { median_ns: 80_000, sigma: 0.8 },
        iops: 400_000.0,
        bandwidth_bytes_per_s: 2e9,
        depth: 5,
        granularity: 4096,
        alignment: 4096,
        rates,
        ..SimOptions::default()
    });
}

#[test]
fn sim_real_time() {
    let latency = LatencyDistribution::Exponential { base_ns: 2_000, tail_ns: 2_000 };
    let rates = FaultRates { delay: 0.01, longest_delay: Duration::from_micros(50), ..FaultRates::NONE };
    sim(SimOptions { clock: SimClock::real_time(), latency, rates, alignment: 1, ..SimOptions::default() });
}

#[test]
fn sim_addressable() {
    let latency = LatencyDistribution::Uniform { low_ns: 200, high_ns: 600 };
    sim(SimOptions { latency, alignment: 1, granularity: 64, addressable: true, ..SimOptions::default() });
}

#[test]
fn sim_over_dram() {
    let make = |bytes: Vec<u8>| -> Arc<dyn Tier> {
        Arc::new(SimTier::over(Arc::new(DramTier::new(bytes)), SimOptions::default()))
    };
    check(&make, Capabilities::default()).unwrap();
}

#[test]
fn sim_over_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bytes");
    let make = |bytes: Vec<u8>| -> Arc<dyn Tier> {
        // Each tier keeps its open file, even when a new file takes its name.
        let _ = std::fs::remove_file(&path);
        std::fs::write(&path, bytes).unwrap();
        let file = FileTier::open(&path, FileOptions::default()).unwrap();
        Arc::new(SimTier::over(Arc::new(file), SimOptions { alignment: 1, ..SimOptions::default() }))
    };
    check(&make, Capabilities::default()).unwrap();
}

/// Function that makes a backend over the given bytes.
type MakeBackend<'a> = &'a dyn Fn(Vec<u8>) -> Arc<dyn Tier>;

/// Runs the suite on a layer over DRAM, files and simulated devices with faults.
fn layer(wrap: impl Fn(Vec<u8>, MakeBackend<'_>) -> Arc<dyn Tier>) {
    check(&|bytes| wrap(bytes, &|b| Arc::new(DramTier::new(b))), Capabilities::default()).unwrap();
    layer_over_devices(wrap);
}

/// Runs the suite on a layer over files and simulated devices, for layers that refuse an addressable tier
/// below.
fn layer_over_devices(wrap: impl Fn(Vec<u8>, MakeBackend<'_>) -> Arc<dyn Tier>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bytes");
    let file = |bytes: Vec<u8>| -> Arc<dyn Tier> {
        let _ = std::fs::remove_file(&path);
        std::fs::write(&path, bytes).unwrap();
        Arc::new(FileTier::open(&path, FileOptions::default()).unwrap())
    };
    let rates = FaultRates { delay: 0.05, reorder: 0.2, refuse: 0.3, ..FaultRates::NONE };
    let sim = |bytes: Vec<u8>| -> Arc<dyn Tier> {
        Arc::new(SimTier::new(bytes, SimOptions { rates, depth: 6, ..SimOptions::default() }))
    };
    let faulty = |bytes: Vec<u8>, bad: u64| -> Arc<dyn Tier> {
        // The layer may rearrange the bytes, so the damaged word is found by its value.
        let word = bytes[bad as usize & !7..][..8].to_vec();
        let below = |bytes: Vec<u8>| -> Arc<dyn Tier> {
            let damaged = bytes.chunks_exact(8).position(|w| w == word);
            let script = damaged.map(|i| (When::Touching(i as u64 * 8), SimFault::Error(5)));
            let script = script.into_iter().collect();
            Arc::new(SimTier::new(bytes, SimOptions { rates, script, ..SimOptions::default() }))
        };
        wrap(bytes, &below)
    };
    check(&|bytes| wrap(bytes, &file), Capabilities::default()).unwrap();
    check(&|bytes| wrap(bytes, &sim), Capabilities { failing: Some(&faulty) }).unwrap();
}

#[test]
fn trace() {
    layer(|bytes, below| Arc::new(TraceTier::new(below(bytes), Trace::in_memory(1000))));
}

#[test]
fn stripe() {
    layer(|bytes, below| {
        let parts = StripeTier::distribute(&bytes, 3, 8192);
        Arc::new(StripeTier::new(parts.into_iter().map(below).collect(), 8192).unwrap())
    });
}

#[test]
fn end_to_end() {
    layer(|bytes, below| {
        let first = (bytes.len() / 3).next_multiple_of(4096).min(bytes.len());
        let second = (bytes.len() / 2).next_multiple_of(4096).clamp(first, bytes.len());
        let parts = [&bytes[..first], &bytes[first..second], &bytes[second..]];
        let parts = parts.into_iter().enumerate().filter(|(i, part)| *i == 0 || !part.is_empty());
        Arc::new(StripeTier::end_to_end(parts.map(|(_, part)| below(part.to_vec())).collect()).unwrap())
    });
}

#[test]
fn delay() {
    layer(|bytes, below| Arc::new(DelayTier::new(below(bytes), DelayProfile::rdma())));
}

fn doorbell(reads: u32) {
    let reads = NonZeroU32::new(reads).unwrap();
    layer(|bytes, below| Arc::new(DoorbellTier::new(below(bytes), reads)));
}

#[test]
fn doorbell_of_one_read() {
    doorbell(1);
}

#[test]
fn doorbell_of_some_reads() {
    doorbell(16);
}

#[test]
fn doorbell_without_a_limit() {
    layer(|bytes, below| Arc::new(DoorbellTier::unlimited(below(bytes))));
}

#[test]
fn doorbell_over_delay() {
    layer(|bytes, below| {
        let delay = DelayTier::new(below(bytes), DelayProfile::connectx6());
        Arc::new(DoorbellTier::new(Arc::new(delay), NonZeroU32::new(4).unwrap()))
    });
}

#[test]
fn switch() {
    layer(|bytes, below| {
        let below = below(bytes);
        let slow = Arc::new(DelayTier::new(below.clone(), DelayProfile::cxl()));
        let switch = SwitchTier::new(vec![below, slow]).unwrap();
        assert!(switch.choose(1) && !switch.choose(2));
        Arc::new(switch)
    });
}

#[test]
fn trace_over_delay_over_stripe() {
    layer(|bytes, below| {
        let parts = StripeTier::distribute(&bytes, 2, 4096);
        let stripe = StripeTier::new(parts.into_iter().map(below).collect(), 4096).unwrap();
        let delay = DelayTier::new(Arc::new(stripe), DelayProfile::cxl());
        Arc::new(TraceTier::new(Arc::new(delay), Trace::in_memory(0)))
    });
}

fn cache(budget_bytes: u64, page_bytes: u32) {
    layer_over_devices(|bytes, below| {
        Arc::new(CacheTier::new(below(bytes), CacheOptions { budget_bytes, page_bytes }).unwrap())
    });
}

#[test]
fn cache_of_few_pages() {
    cache(40 << 10, 4096);
}

#[test]
fn cache_of_a_third_of_the_tier() {
    cache(1 << 20, 4096);
}

#[test]
fn cache_of_everything_in_small_pages() {
    cache(8 << 20, 512);
}

#[test]
fn cache_over_stripe_over_cache() {
    layer_over_devices(|bytes, below| {
        let options = CacheOptions { budget_bytes: 200 << 10, page_bytes: 512 };
        let cached = |part| -> Arc<dyn Tier> { Arc::new(CacheTier::new(below(part), options).unwrap()) };
        let parts = StripeTier::distribute(&bytes, 2, 8192).into_iter().map(cached).collect();
        let stripe = StripeTier::new(parts, 8192).unwrap();
        Arc::new(CacheTier::new(Arc::new(stripe), CacheOptions { page_bytes: 4096, ..options }).unwrap())
    });
}
