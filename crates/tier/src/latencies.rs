//! A compact histogram of the latencies of reads.

/// Steps within each power of two.
const STEPS: u64 = 16;

/// Histogram of latencies, in steps of one sixteenth of a power of two.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    counts: Vec<u64>,
    all: u64,
}

impl Latencies {
    pub(crate) fn add(&mut self, ns: u64) {
        let step = step(ns);
        if step >= self.counts.len() {
            self.counts.resize(step + 1, 0);
        }
        self.counts[step] += 1;
        self.all += 1;
    }

    /// Adds the counts of `other`.
    pub(crate) fn merge(&mut self, other: &Latencies) {
        if other.counts.len() > self.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        self.counts.iter_mut().zip(&other.counts).for_each(|(sum, count)| *sum += count);
        self.all += other.all;
    }

    /// Returns the upper end of the step that holds the quantile, in nanoseconds; 0 if nothing was counted.
    pub(crate) fn quantile_ns(&self, share: f64) -> u64 {
        let rank = (self.all as f64 * share.clamp(0.0, 1.0)).ceil().max(1.0) as u64;
        let mut counted = 0;
        for (step, count) in self.counts.iter().enumerate() {
            counted += count;
            if counted >= rank {
                return upper_end(step);
            }
        }
        0
    }
}

fn step(ns: u64) -> usize {
    if ns < STEPS {
        return ns as usize;
    }
    let power = ns.ilog2() - STEPS.ilog2();
    (u64::from(power) * STEPS + (ns >> power)) as usize
}

fn upper_end(step: usize) -> u64 {
    let step = step as u64;
    if step < STEPS {
        return step;
    }
    let power = step / STEPS - 1;
    ((STEPS + step % STEPS + 1) << power) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_exact_or_rounded_up_by_a_sixteenth() {
        for ns in [0, 1, 15, 16, 17, 31, 32, 33, 999, 75_000, 1 << 40] {
            let mut one = Latencies::default();
            one.add(ns);
            let found = one.quantile_ns(0.99);
            assert!(found >= ns && found - ns <= ns / 16, "{ns}: {found}");
        }
        let mut many = Latencies::default();
        (1..=1000).for_each(|i| many.add(i * 1000));
        assert_eq!(Latencies::default().quantile_ns(0.5), 0);
        let (mut whole, mut part) = (Latencies::default(), Latencies::default());
        (1..=1000).for_each(|i| if i % 3 == 0 { &mut whole } else { &mut part }.add(i * 1000));
        whole.merge(&part);
        assert_eq!(whole.quantile_ns(0.5), many.quantile_ns(0.5));
        for (share, exact) in [(0.0, 1000), (0.5, 500_000), (0.99, 990_000), (1.0, 1_000_000)] {
            let found = many.quantile_ns(share);
            assert!(found >= exact && found <= exact + exact / 16, "{share}: {found}");
        }
    }
}
