//! Equations (1) and (2): what a query takes, from its counters and from what the store is.

use bathyal_object::Shaping;

/// Processor nanoseconds of a request and its answer, as the tier of object stores has it.
const REQUEST_NS: f64 = 45_000.0;
/// Steps in which the expected first byte is integrated, and standard deviations that it goes to.
const STEPS: usize = 2000;
const REACH: f64 = 8.0;

/// What one query asks for, in the mean.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Asked {
    /// Dependent rounds (rt), and how often is waited for them: more often where buffers do not hold a whole round.
    pub rounds: f64,
    pub waves: f64,
    pub requests: f64,
    pub bytes: f64,
    /// Of the processor, for everything but requests.
    pub compute_ns: f64,
}

/// What is to be expected of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Expected {
    /// Of a query alone, every round as long as the median first byte: the equations as they stand.
    pub plain_ms: f64,
    /// Of a query among so many, every wait as long as its slowest request.
    pub latency_ms: f64,
    pub qps: f64,
    /// What holds the throughput down.
    pub bound: &'static str,
}

/// The expected slowest first byte of `requests` at once, in milliseconds: the integral of 1 - F^n of a lognormal time.
pub(super) fn slowest_ms(shaping: &Shaping, requests: f64) -> f64 {
    let (median, spread) = (shaping.first_byte_ms, shaping.spread);
    if spread <= 0.0 || median <= 0.0 {
        return median;
    }
    let top = median * (REACH * spread).exp();
    let later = |at: f64| {
        if at <= 0.0 { 1.0 } else { 1.0 - normal((at / median).ln() / spread).powf(requests.max(1.0)) }
    };
    let step = top / STEPS as f64;
    (0..STEPS).map(|i| (later(i as f64 * step) + later((i + 1) as f64 * step)) / 2.0 * step).sum()
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

/// What `concurrency` queries at once, each of which asks for `asked`, are to be expected to take on `cores`.
pub(super) fn expect(asked: &Asked, shaping: &Shaping, concurrency: f64, cores: f64) -> Expected {
    let each = |rate: f64| if rate > 0.0 { 1.0 / rate } else { 0.0 };
    let transfer_ms = asked.bytes * each(shaping.bytes_per_s) * 1e3;
    let requests_ms = asked.requests * each(shaping.requests_per_s) * 1e3;
    let compute_ms = asked.compute_ns / 1e6;
    let slowest = slowest_ms(shaping, asked.requests / asked.waves.max(1.0));
    let plain_ms = asked.rounds * shaping.first_byte_ms + transfer_ms + compute_ms;
    // Requests of one round wait for their turn as others do.
    let alone_ms = asked.waves * slowest + transfer_ms.max(requests_ms) + compute_ms;
    let rate = |ms: f64| if ms > 0.0 { 1e3 / ms } else { f64::INFINITY };
    let processor_ms = (compute_ms + asked.requests * REQUEST_NS / 1e6) / cores.max(1.0);
    let limits = [
        ("latency", concurrency * rate(alone_ms)),
        ("GET limit", rate(requests_ms)),
        ("bandwidth", rate(transfer_ms)),
        ("processor", rate(processor_ms)),
    ];
    let least = limits.into_iter().min_by(|a, b| a.1.total_cmp(&b.1));
    let (bound, qps) = least.unwrap_or(("latency", 0.0));
    Expected { plain_ms, latency_ms: concurrency / qps.max(1e-9) * 1e3, qps, bound }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_normal_distribution_is_known_where_tables_have_it() {
        for (x, expected) in [(0.0, 0.5), (1.0, 0.841_345), (-1.96, 0.024_998), (3.0, 0.998_650)] {
            assert!((normal(x) - expected).abs() < 1e-5, "{x}: {}", normal(x));
        }
    }

    #[test]
    fn one_first_byte_is_the_mean_and_more_are_later() {
        let one = slowest_ms(&Shaping::PAPER, 1.0);
        let mean = 31.0 * (0.4_f64 * 0.4 / 2.0).exp();
        assert!((one - mean).abs() < 0.2, "{one} {mean}");
        let many: Vec<f64> = [1.0, 4.0, 16.0, 64.0].map(|n| slowest_ms(&Shaping::PAPER, n)).to_vec();
        assert!(many.is_sorted() && many[3] > 2.0 * one && many[3] < 4.0 * one, "{many:?}");
        assert_eq!(slowest_ms(&Shaping { spread: 0.0, ..Shaping::PAPER }, 9.0), 31.0);
    }

    #[test]
    fn each_limit_binds_in_its_place() {
        let asked = Asked { rounds: 10.0, waves: 10.0, requests: 160.0, bytes: 655_360.0, compute_ns: 1e6 };
        let at = |concurrency, asked: &Asked| expect(asked, &Shaping::PAPER, concurrency, 64.0);
        assert_eq!(at(1.0, &asked).bound, "latency");
        let full = at(1024.0, &asked);
        assert_eq!((full.bound, full.qps.round()), ("GET limit", 125.0));
        assert!((full.latency_ms - 1024.0 / 125.0 * 1e3).abs() < 1.0);
        let heavy = Asked { rounds: 1.0, waves: 1.0, requests: 8.0, bytes: 64e6, compute_ns: 1e6 };
        assert_eq!(at(64.0, &heavy).bound, "bandwidth");
        assert_eq!(
            expect(&Asked { compute_ns: 1e9, ..asked }, &Shaping::PAPER, 64.0, 1.0).bound,
            "processor"
        );
        assert!((at(1.0, &asked).plain_ms - (310.0 + 1.05 + 1.0)).abs() < 0.01);
    }
}
