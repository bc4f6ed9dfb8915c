//! The load of several simulated devices of a stripe under real searches. It follows from seeds, because
//! searches have one thread.

use bathyal_index::format::manifest::Manifest;
use bathyal_index::open::WrapTier;
use bathyal_index::{Index, OpenOptions, SearchOptions};
use bathyal_tier::backend::sim::{LatencyDistribution, SimClock, SimHandle, SimOptions, SimTier};
use bathyal_tier::layer::stripe::StripeTier;
use bathyal_tier::{Control, Tier};
use bathyal_vectors::VectorFile;
use std::path::Path;
use std::sync::Arc;

/// Counters of the devices of a stripe.
#[derive(Debug, Clone, PartialEq)]
pub struct Spread {
    /// Reads of each device.
    pub reads: Vec<u64>,
    /// The 99th percentile of each device's latencies in microseconds, time in its queue included.
    pub p99_us: Vec<u64>,
    /// Reads that cross units, as a share of all reads of the searches.
    pub crossing: f64,
    /// Queries a second of simulated time.
    pub queries_a_second: f64,
}

impl Spread {
    /// Returns the largest number of reads of a device, divided by the mean.
    pub fn imbalance(&self) -> f64 {
        let (most, all) = (self.reads.iter().max().copied().unwrap_or(0), self.reads.iter().sum::<u64>());
        most as f64 * self.reads.len() as f64 / all.max(1) as f64
    }

    /// Returns the smallest and the largest p99 of the devices, in microseconds.
    pub fn p99_range_us(&self) -> (u64, u64) {
        let p99 = self.p99_us.iter().copied();
        (p99.clone().min().unwrap_or(0), p99.max().unwrap_or(0))
    }
}

/// Searches the index at `path`, which is not striped, as if it were striped in units of `stripe_bytes` over
/// `devices` disks. A read of a disk takes 75 us, and a disk has 100,000 reads per second.
pub fn measure(
    path: &Path,
    queries: &VectorFile,
    options: &SearchOptions,
    devices: usize,
    stripe_bytes: u32,
) -> Spread {
    let manifest = Manifest::read(path).unwrap();
    let bytes = std::fs::read(path.join(&manifest.paged_file().name)).unwrap();
    let clock = SimClock::virtual_time();
    let mut handles: Vec<SimHandle> = Vec::new();
    let device = |(seed, part): (usize, Vec<u8>)| -> Arc<dyn Tier> {
        let latency = LatencyDistribution::LogNormal { median_ns: 75_000, sigma: 0.2 };
        let (seed, clock) = (seed as u64, clock.clone());
        let tier =
            SimTier::new(part, SimOptions { seed, clock, latency, iops: 100_000.0, ..SimOptions::default() });
        handles.push(tier.handle());
        Arc::new(tier)
    };
    let parts = StripeTier::distribute(&bytes, devices, stripe_bytes);
    drop(bytes);
    let members = parts.into_iter().enumerate().map(device).collect();
    let stripe = Arc::new(StripeTier::new(members, stripe_bytes).unwrap());
    let wrap: WrapTier = {
        let stripe = stripe.clone();
        Arc::new(move |_| Ok(stripe.clone() as Arc<dyn Tier>))
    };
    let index = Index::open(path, &OpenOptions { wrap: Some(wrap), ..OpenOptions::default() }).unwrap();
    let before = stripe.counters();
    let begun_ns = clock.now_ns();
    let found = index.search(queries, &SearchOptions { threads: 1, ..*options }, Control::default()).unwrap();
    let seconds = (clock.now_ns() - begun_ns) as f64 * 1e-9;
    let reads: Vec<u64> =
        stripe.counters().iter().zip(before).map(|(now, then)| now.reads - then.reads).collect();
    let pieces: u64 = reads.iter().sum();
    Spread {
        p99_us: handles.iter().map(|device| device.latency_ns(0.99) / 1000).collect(),
        crossing: pieces as f64 / found.totals.reads.max(1) as f64 - 1.0,
        queries_a_second: found.latencies_ns.len() as f64 / seconds,
        reads,
    }
}
