//! Random numbers and latencies of the simulation: the same on every machine and with every compiler.

use serde::{Deserialize, Serialize};

/// SplitMix64, a small and fast generator. Its sequence is fixed by definition, unlike that of a library's
/// generator.
#[derive(Debug, Clone)]
pub(crate) struct SplitMix64(u64);

impl SplitMix64 {
    /// Makes the generator of sequence `stream` of `seed`.
    pub(crate) fn new(seed: u64, stream: u64) -> SplitMix64 {
        let mut random = SplitMix64(seed ^ stream.wrapping_mul(0xD6E8_FEB8_6659_FD93));
        random.next();
        random
    }

    /// Returns 64 uniform bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// Returns a uniform number in `0..bound`; 0 for a bound of 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns a uniform number in [0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Applies the finaliser of SplitMix64: a bijection in which every input bit affects all output bits.
pub(crate) fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Distribution of a simulated device's latency for one read, without queueing and transfer. In nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum LatencyDistribution {
    /// Constant latency.
    Constant {
        /// The latency.
        ns: u64,
    },
    /// Uniform between two bounds.
    Uniform {
        /// The shortest.
        low_ns: u64,
        /// The longest.
        high_ns: u64,
    },
    /// A constant part and an exponential tail.
    Exponential {
        /// The shortest.
        base_ns: u64,
        /// The mean of the tail.
        tail_ns: u64,
    },
    /// Log-normal, as of flash devices under load.
    LogNormal {
        /// The median.
        median_ns: u64,
        /// Standard deviation of the logarithm.
        sigma: f64,
    },
}

impl LatencyDistribution {
    /// Returns the distribution's mean in nanoseconds.
    pub fn mean_ns(&self) -> u64 {
        match *self {
            LatencyDistribution::Constant { ns } => ns,
            LatencyDistribution::Uniform { low_ns, high_ns } => low_ns / 2 + high_ns / 2,
            LatencyDistribution::Exponential { base_ns, tail_ns } => base_ns.saturating_add(tail_ns),
            LatencyDistribution::LogNormal { median_ns, sigma } => {
                (median_ns as f64 * (sigma * sigma / 2.0).exp()) as u64
            }
        }
    }

    /// Draws a latency in nanoseconds.
    pub(crate) fn draw(&self, random: &mut SplitMix64) -> u64 {
        // 1 - unit lies in (0, 1], whose logarithm is finite.
        match *self {
            LatencyDistribution::Constant { ns } => ns,
            LatencyDistribution::Uniform { low_ns, high_ns } => {
                low_ns.saturating_add(random.below(high_ns.saturating_sub(low_ns).saturating_add(1)))
            }
            LatencyDistribution::Exponential { base_ns, tail_ns } => {
                base_ns.saturating_add((tail_ns as f64 * -(1.0 - random.unit()).ln()) as u64)
            }
            LatencyDistribution::LogNormal { median_ns, sigma } => {
                let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
                let normal = radius * (std::f64::consts::TAU * random.unit()).cos();
                (median_ns as f64 * (sigma * normal).exp()) as u64
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_latencies_have_the_promised_mean() {
        let kinds = [
            LatencyDistribution::Constant { ns: 700 },
            LatencyDistribution::Uniform { low_ns: 100, high_ns: 900 },
            LatencyDistribution::Exponential { base_ns: 300, tail_ns: 500 },
            LatencyDistribution::LogNormal { median_ns: 1000, sigma: 0.5 },
        ];
        for kind in kinds {
            let mut random = SplitMix64::new(7, 1);
            let mean = (0..50_000).map(|_| kind.draw(&mut random)).sum::<u64>() / 50_000;
            let expected = kind.mean_ns();
            assert!(mean.abs_diff(expected) * 50 < expected, "{kind:?}: {mean} for {expected}");
        }
    }

    #[test]
    fn sequences_differ_by_stream_and_repeat_by_seed() {
        let take = |seed, stream| {
            let mut random = SplitMix64::new(seed, stream);
            (0..8).map(|_| random.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(take(1, 2), take(1, 2));
        assert_ne!(take(1, 2), take(1, 3));
        assert_ne!(take(1, 2), take(2, 2));
    }
}
