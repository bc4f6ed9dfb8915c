//! Equations (1) and (2): the time of a query, from its counters and from the properties of the store.

use bathyal_object::Shaping;

/// Processor nanoseconds of a request and its response; the tier of object stores has the same number.
const REQUEST_NS: f64 = 45_000.0;
/// Steps of the integration of the expected first byte, and its upper limit in standard deviations.
const STEPS: usize = 2000;
const REACH: f64 = 8.0;

/// Mean cost of one query.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct QueryCost {
    /// Dependent rounds (rt).
    pub rounds: f64,
    /// Waits for reads: more than `rounds` if buffers do not hold a whole round.
    pub waves: f64,
    pub requests: f64,
    pub bytes: f64,
    /// Processor time for everything except requests.
    pub compute_ns: f64,
}

/// Predicted times and throughput.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct StorePrediction {
    /// Latency of a single query if every round takes the median first byte: the equations as the paper has
    /// them.
    pub plain_ms: f64,
    /// Latency of one of `concurrency` queries if every wait lasts as long as its slowest request.
    pub latency_ms: f64,
    pub qps: f64,
    /// The resource that limits the throughput.
    pub bound: &'static str,
}

/// Returns the expected slowest first byte of `requests` concurrent requests, in milliseconds: the integral
/// of 1 - F^n of a lognormal time.
pub(super) fn slowest_ms(shaping: &Shaping, requests: f64) -> f64 {
    let (median, spread) = (shaping.first_byte_ms, shaping.spread);
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

/// The distribution function of the standard normal (Abramowitz and Stegun, 7.1.26).
fn normal(x: f64) -> f64 {
    let z = x.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * z);
    let factors = [1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592];
    let polynomial = factors.iter().fold(0.0, |sum, factor| (sum + factor) * t);
    let tail = polynomial * (-z * z).exp() / 2.0;
    if x > 0.0 { 1.0 - tail } else { tail }
}

/// Predicts latency and throughput of `concurrency` queries at once, each of cost `cost`, on `cores` cores.
pub(super) fn predict(cost: &QueryCost, shaping: &Shaping, concurrency: f64, cores: f64) -> StorePrediction {
    let time_per_unit = |rate: f64| if rate > 0.0 { 1.0 / rate } else { 0.0 };
    let transfer_ms = cost.bytes * time_per_unit(shaping.bytes_per_s) * 1e3;
    let requests_ms = cost.requests * time_per_unit(shaping.requests_per_s) * 1e3;
    let compute_ms = cost.compute_ns / 1e6;
    let slowest = slowest_ms(shaping, cost.requests / cost.waves.max(1.0));
    let plain_ms = cost.rounds * shaping.first_byte_ms + transfer_ms + compute_ms;
    // The limit of requests per second delays the requests of a single query, too.
    let alone_ms = cost.waves * slowest + transfer_ms.max(requests_ms) + compute_ms;
    let rate = |ms: f64| if ms > 0.0 { 1e3 / ms } else { f64::INFINITY };
    let processor_ms = (compute_ms + cost.requests * REQUEST_NS / 1e6) / cores.max(1.0);
    let limits = [
        ("latency", concurrency * rate(alone_ms)),
        ("GET limit", rate(requests_ms)),
        ("bandwidth", rate(transfer_ms)),
        ("processor", rate(processor_ms)),
    ];
    let least = limits.into_iter().min_by(|a, b| a.1.total_cmp(&b.1));
    let (bound, qps) = least.unwrap_or(("latency", 0.0));
    StorePrediction { plain_ms, latency_ms: concurrency / qps.max(1e-9) * 1e3, qps, bound }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_normal_distribution_agrees_with_published_tables() {
        for (x, expected) in [(0.0, 0.5), (1.0, 0.841_345), (-1.96, 0.024_998), (3.0, 0.998_650)] {
            assert!((normal(x) - expected).abs() < 1e-5, "{x}: {}", normal(x));
        }
    }

    #[test]
    fn one_request_takes_the_mean_and_the_slowest_of_more_takes_longer() {
        let one = slowest_ms(&Shaping::PAPER, 1.0);
        let mean = 31.0 * (0.4_f64 * 0.4 / 2.0).exp();
        assert!((one - mean).abs() < 0.2, "{one} {mean}");
        let many: Vec<f64> = [1.0, 4.0, 16.0, 64.0].map(|n| slowest_ms(&Shaping::PAPER, n)).to_vec();
        assert!(many.is_sorted() && many[3] > 2.0 * one && many[3] < 4.0 * one, "{many:?}");
        assert_eq!(slowest_ms(&Shaping { spread: 0.0, ..Shaping::PAPER }, 9.0), 31.0);
    }

    #[test]
    fn each_limit_binds_where_it_is_the_lowest() {
        let cost =
            QueryCost { rounds: 10.0, waves: 10.0, requests: 160.0, bytes: 655_360.0, compute_ns: 1e6 };
        let at = |concurrency, cost: &QueryCost| predict(cost, &Shaping::PAPER, concurrency, 64.0);
        assert_eq!(at(1.0, &cost).bound, "latency");
        let full = at(1024.0, &cost);
        assert_eq!((full.bound, full.qps.round()), ("GET limit", 125.0));
        assert!((full.latency_ms - 1024.0 / 125.0 * 1e3).abs() < 1.0);
        let heavy = QueryCost { rounds: 1.0, waves: 1.0, requests: 8.0, bytes: 64e6, compute_ns: 1e6 };
        assert_eq!(at(64.0, &heavy).bound, "bandwidth");
        assert_eq!(
            predict(&QueryCost { compute_ns: 1e9, ..cost }, &Shaping::PAPER, 64.0, 1.0).bound,
            "processor"
        );
        assert!((at(1.0, &cost).plain_ms - (310.0 + 1.05 + 1.0)).abs() < 0.01);
    }
}
