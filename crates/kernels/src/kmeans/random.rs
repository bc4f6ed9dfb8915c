//! A small deterministic generator. The results of a seed must not change with the version of a dependency.

/// SplitMix64 (Steele, Lea & Flood, OOPSLA'14). It has 64 bits of state and passes BigCrush.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a uniform number in `0..bound` (bound at least 1). The bias of the multiply-shift is below
    /// 2^-32 for the bounds that occur here.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }

    /// Returns a uniform number in [0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Returns a standard normal number (Box and Muller).
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// Draws `count` distinct rows of `0..n`, ascending (Floyd's sampling); all of them if `count >= n`.
pub(crate) fn sample_rows(n: usize, count: usize, random: &mut Random) -> Vec<usize> {
    if count >= n {
        return (0..n).collect();
    }
    let mut chosen = std::collections::BTreeSet::new();
    for upper in n - count..n {
        let row = random.below(upper + 1);
        if !chosen.insert(row) {
            chosen.insert(upper);
        }
    }
    chosen.into_iter().collect()
}
