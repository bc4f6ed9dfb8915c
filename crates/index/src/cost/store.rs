//! An object store behind a network: equations 1 and 2 of cloud-native-vector-search (section 2.3.1), with
//! the slowest of several requests and the limits of the store.

use super::demand::{Demand, nanoseconds, rate};

/// Steps of the integration of the expected first byte, and its upper limit in standard deviations.
const STEPS: usize = 2000;
const REACH: f64 = 8.0;

/// The times of an object store.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StoreTimes {
    /// Median nanoseconds from a request to its first byte, which are distributed lognormally.
    pub first_byte_ns: f64,
    /// Standard deviation of the logarithm of this time; 0 if all requests take the median.
    pub spread: f64,
    /// Requests per second that the store accepts; 0 without a limit.
    pub requests_per_s: f64,
    /// Bytes per second of the network; 0 without a limit.
    pub bytes_per_s: f64,
    /// Processor nanoseconds of a request and its response.
    pub request_ns: f64,
}

/// The resource that limits the throughput of searches in an object store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreBound {
    /// Too few queries at once to hide the time of their requests.
    Latency,
    /// The requests per second of the store.
    Requests,
    /// The bytes per second of the network.
    Bandwidth,
    /// The processor, of which requests take a part.
    Processor,
}

impl StoreBound {
    /// Returns its name: "latency", "GET limit", "bandwidth" or "processor".
    pub fn name(self) -> &'static str {
        match self {
            StoreBound::Latency => "latency",
            StoreBound::Requests => "GET limit",
            StoreBound::Bandwidth => "bandwidth",
            StoreBound::Processor => "processor",
        }
    }
}

/// Predicted times and throughput.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StorePrediction {
    /// Latency of a query alone if every round takes the median first byte: equations 1 and 2 without
    /// additions.
    pub plain_ns: f64,
    /// Latency of one of the queries if every wait lasts as long as its slowest request.
    pub latency_ns: f64,
    /// Queries per second.
    pub qps: f64,
    /// The limit that determines `qps`.
    pub bound: StoreBound,
}

impl StoreTimes {
    /// Returns the expected slowest first byte of `requests` concurrent requests, in nanoseconds: the
    /// integral of 1 - F^n of a lognormal time.
    pub fn slowest_ns(&self, requests: f64) -> f64 {
        let (median, spread) = (self.first_byte_ns, self.spread);
        if spread <= 0.0 || median <= 0.0 {
            return median;
        }
        let top = median * (REACH * spread).exp();
        let exceeds = |at: f64| {
            if at <= 0.0 { 1.0 } else { 1.0 - normal((at / median).ln() / spread).powf(requests.max(1.0)) }
        };
        let step = top / STEPS as f64;
        (0..STEPS).map(|i| (exceeds(i as f64 * step) + exceeds((i + 1) as f64 * step)) / 2.0 * step).sum()
    }

    /// Predicts latency and throughput of `concurrency` queries at once on `cores` cores. The reads of
    /// `demand` are requests to the store, and its compute time does not include them. `waves` are the waits
    /// of a query for requests: more than its rounds if buffers do not hold a whole round.
    pub fn predict(&self, demand: &Demand, waves: f64, concurrency: f64, cores: f64) -> StorePrediction {
        let transfer_ns = nanoseconds(demand.moved_bytes, self.bytes_per_s);
        let requests_ns = nanoseconds(demand.reads, self.requests_per_s);
        let slowest_ns = self.slowest_ns(demand.reads / waves.max(1.0));
        let plain_ns = demand.rounds * self.first_byte_ns + transfer_ns + demand.compute_ns;
        // The limit of requests per second delays the requests of a single query, too.
        let alone_ns = waves * slowest_ns + transfer_ns.max(requests_ns) + demand.compute_ns;
        let processor_ns = (demand.compute_ns + demand.reads * self.request_ns) / cores.max(1.0);
        let limits = [
            (StoreBound::Latency, rate(concurrency * 1e9, alone_ns)),
            (StoreBound::Requests, rate(1e9, requests_ns)),
            (StoreBound::Bandwidth, rate(1e9, transfer_ns)),
            (StoreBound::Processor, rate(1e9, processor_ns)),
        ];
        let least = |a: (StoreBound, f64), b: (StoreBound, f64)| if b.1 < a.1 { b } else { a };
        let (bound, qps) = limits.into_iter().fold((StoreBound::Latency, f64::INFINITY), least);
        StorePrediction { plain_ns, latency_ns: concurrency * 1e9 / qps.max(1e-9), qps, bound }
    }
}

/// The distribution function of the standard normal (Abramowitz and Stegun, 7.1.26).
fn normal(x: f64) -> f64 {
    let z = x.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * z);
    let factors = [1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592];
    let polynomial = factors.iter().fold(0.0, |sum, factor| (sum + factor) * t);
    let tail = polynomial * (-z * z).exp() / 2.0;
    if x > 0.0 { 1.0 - tail } else { tail }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The store of the paper: 31 ms, 20,000 requests per second, 5 Gbit/s.
    const PAPER: StoreTimes = StoreTimes {
        first_byte_ns: 31e6,
        spread: 0.4,
        requests_per_s: 20_000.0,
        bytes_per_s: 625e6,
        request_ns: 45_000.0,
    };

    #[test]
    fn the_normal_distribution_agrees_with_published_tables() {
        for (x, expected) in [(0.0, 0.5), (1.0, 0.841_345), (-1.96, 0.024_998), (3.0, 0.998_650)] {
            assert!((normal(x) - expected).abs() < 1e-5, "{x}: {}", normal(x));
        }
    }

    #[test]
    fn one_request_takes_the_mean_and_the_slowest_of_more_takes_longer() {
        let one = PAPER.slowest_ns(1.0);
        let mean = 31e6 * (0.4_f64 * 0.4 / 2.0).exp();
        assert!((one - mean).abs() < 0.2e6, "{one} {mean}");
        let many: Vec<f64> = [1.0, 4.0, 16.0, 64.0].map(|n| PAPER.slowest_ns(n)).to_vec();
        assert!(many.is_sorted() && many[3] > 2.0 * one && many[3] < 4.0 * one, "{many:?}");
        assert_eq!(StoreTimes { spread: 0.0, ..PAPER }.slowest_ns(9.0), 31e6);
    }

    #[test]
    fn each_limit_binds_where_it_is_the_lowest() {
        let demand = Demand { rounds: 10.0, reads: 160.0, moved_bytes: 655_360.0, compute_ns: 1e6 };
        let at = |concurrency| PAPER.predict(&demand, 10.0, concurrency, 64.0);
        assert_eq!(at(1.0).bound, StoreBound::Latency);
        let full = at(1024.0);
        assert_eq!((full.bound, full.qps.round()), (StoreBound::Requests, 125.0));
        assert!((full.latency_ns - 1024.0 / 125.0 * 1e9).abs() < 1e6);
        let heavy = Demand { rounds: 1.0, reads: 8.0, moved_bytes: 64e6, compute_ns: 1e6 };
        assert_eq!(PAPER.predict(&heavy, 1.0, 64.0, 64.0).bound, StoreBound::Bandwidth);
        let slow = Demand { compute_ns: 1e9, ..demand };
        assert_eq!(PAPER.predict(&slow, 10.0, 64.0, 1.0).bound, StoreBound::Processor);
        assert!((at(1.0).plain_ns - (310.0 + 1.05 + 1.0) * 1e6).abs() < 1e4);
    }
}
