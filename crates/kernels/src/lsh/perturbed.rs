//! Keys of the buckets around that of a point, the likeliest first: multi-probe LSH (Lv et al., VLDB 2007,
//! section 4).
//!
//! A near neighbour that is not in the bucket of a point is most likely in an adjacent one, across a boundary
//! that is near the point's projections. A *perturbation* moves one or two values of the compound hash to the
//! nearer edge of an adjacent cell. Its score is the sum of the squared distances to the crossed boundaries;
//! a lower score is likelier (section 4.3). Perturbations are generated in the order of their scores by the
//! paper's operations shift and expand (section 4.4).

use super::{CompoundHashes, KEY_BITS};
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A move of one value of a compound hash into an adjacent cell.
#[derive(Debug, Clone, Copy)]
struct CellStep {
    /// Squared distance to the boundary, in cells.
    score: f32,
    /// Bits of the key that change.
    bits: u128,
    hash: usize,
}

/// One or two steps, as positions in the list of steps by score.
#[derive(Debug, Clone, Copy)]
struct Perturbation {
    score: f32,
    first: usize,
    second: Option<usize>,
}

impl Perturbation {
    fn new(steps: &[CellStep], first: usize, second: Option<usize>) -> Option<Perturbation> {
        let score = steps.get(first)?.score;
        let score = match second {
            Some(second) => score + steps.get(second)?.score,
            None => score,
        };
        Some(Perturbation { score, first, second })
    }
}

impl Ord for Perturbation {
    /// The lowest score is the greatest, so that a heap returns it first.
    fn cmp(&self, other: &Perturbation) -> Ordering {
        let positions = |perturbation: &Perturbation| (perturbation.first, perturbation.second);
        other.score.total_cmp(&self.score).then_with(|| positions(other).cmp(&positions(self)))
    }
}

impl PartialOrd for Perturbation {
    fn partial_cmp(&self, other: &Perturbation) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Perturbation {
    fn eq(&self, other: &Perturbation) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Perturbation {}

/// Memory for [`CompoundHashes::perturbed_keys`]; reused.
#[derive(Debug, Default)]
pub struct PerturbationScratch {
    /// In ascending order of scores.
    steps: Vec<CellStep>,
    next: BinaryHeap<Perturbation>,
}

/// Iterator over the scores and the keys of the buckets around one, in ascending order of scores. The unit of
/// a score is the square of the finest cell.
#[derive(Debug)]
pub struct PerturbedKeys<'a> {
    key: u128,
    memory: &'a mut PerturbationScratch,
}

impl CompoundHashes {
    /// Iterates over the keys around `key`, the key of a point with these
    /// [`values`](super::HashScratch::values) in one table. They are keys of the buckets of width `cell x
    /// 2^level` in which one or two values of the compound hash differ by one.
    ///
    /// A moved value is at the edge of its new cell that is nearest to the point; the other values keep all
    /// their bits. A width with only one cell has no other buckets.
    pub fn perturbed_keys<'a>(
        &self,
        key: u128,
        values: &[f32],
        level: usize,
        memory: &'a mut PerturbationScratch,
    ) -> PerturbedKeys<'a> {
        let PerturbationScratch { steps, next } = memory;
        steps.clear();
        next.clear();
        if level < self.levels() {
            let end = 1_u32 << self.levels();
            for (hash, value) in values.iter().enumerate() {
                let cell = self.cell_of(*value);
                let (low, high) = (cell >> level << level, ((cell >> level) + 1) << level);
                let cell_bits = self.spread_out(cell);
                let mut step = |distance: f32, to: u32| {
                    // Values outside all cells, and NaN, have distance 0.
                    let distance = distance.max(0.0);
                    let bits = (cell_bits ^ self.spread_out(to)) << (self.hashes - 1 - hash);
                    steps.push(CellStep { score: distance * distance, bits, hash });
                };
                if low > 0 {
                    step(value - low as f32, low - 1);
                }
                if high < end {
                    step(high as f32 - value, high);
                }
            }
        }
        steps.sort_unstable_by(|a, b| a.score.total_cmp(&b.score).then(a.bits.cmp(&b.bits)));
        next.extend(Perturbation::new(steps, 0, None));
        PerturbedKeys { key, memory }
    }

    /// Returns the level of the finest width whose buckets the first `bits` bits of a key determine. All keys
    /// that begin with the same `bits` bits are in one bucket of width `cell x 2^level`.
    pub fn level_of(&self, bits: u32) -> usize {
        let unused = KEY_BITS - self.hashes * self.levels();
        let whole = (bits as usize).saturating_sub(unused).div_ceil(self.hashes);
        self.levels() - whole.min(self.levels())
    }
}

impl Iterator for PerturbedKeys<'_> {
    type Item = (f32, u128);

    fn next(&mut self) -> Option<(f32, u128)> {
        let PerturbationScratch { steps, next } = &mut *self.memory;
        loop {
            let Perturbation { score, first, second } = next.pop()?;
            match second {
                // The operations shift and expand.
                None => {
                    next.extend(Perturbation::new(steps, first + 1, None));
                    next.extend(Perturbation::new(steps, first, Some(first + 1)));
                    return Some((score, self.key ^ steps[first].bits));
                }
                Some(second) => {
                    next.extend(Perturbation::new(steps, first, Some(second + 1)));
                    // A value cannot move in both directions.
                    if steps[first].hash != steps[second].hash {
                        return Some((score, self.key ^ steps[first].bits ^ steps[second].bits));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::HashScratch;
    use super::*;
    use crate::kmeans::random::Random;
    use proptest::prelude::*;

    /// Returns the cells that a key encodes.
    fn cells(hashes: &CompoundHashes, key: u128) -> Vec<i64> {
        let (count, levels) = (hashes.hashes(), hashes.levels());
        let bit = |hash: usize, level: usize| (key >> (level * count + count - 1 - hash)) & 1;
        let cell = |hash| (0..levels).map(|level| (bit(hash, level) as i64) << level).sum();
        (0..count).map(cell).collect()
    }

    proptest! {
        #[test]
        fn perturbed_keys_are_of_adjacent_buckets_in_order_of_scores(
            seed in any::<u64>(), hashes in 1_usize..33, level in 0_usize..17, far in 0.0_f32..40.0,
        ) {
            let (dim, mut random) = (6, Random::new(seed));
            let drawn = CompoundHashes::draw(&vec![0.0; dim], 3.0, 2, hashes, seed);
            // Some of these points are outside all cells.
            let point: Vec<f32> = (0..dim).map(|_| far * random.normal() as f32).collect();
            let (mut keys, mut scratch) = (Vec::new(), HashScratch::default());
            drawn.keys(1, &point, &mut scratch, &mut keys);
            let (key, values) = (keys[0], scratch.values().to_vec());
            let own_cells = cells(&drawn, key);
            let (most, width) = ((1_i64 << drawn.levels()) - 1, 1_i64 << level);
            for (value, cell) in values.iter().zip(&own_cells) {
                prop_assert_eq!((value.floor().max(0.0) as i64).min(most), *cell);
            }

            let mut memory = PerturbationScratch::default();
            let around: Vec<(f32, u128)> = drawn.perturbed_keys(key, &values, level, &mut memory).collect();
            prop_assert!(around.is_sorted_by(|a, b| a.0 <= b.0));
            // Each value moves to each adjacent cell that exists, and each pair of values makes all pairs of
            // moves.
            let adjacent = |cell: &i64| {
                let bucket = cell >> level;
                let sides = usize::from(bucket > 0) + usize::from(bucket < most >> level);
                usize::from(level < drawn.levels()) * sides
            };
            let single: usize = own_cells.iter().map(adjacent).sum();
            let same: usize = own_cells.iter().map(adjacent).map(|count| count * count).sum();
            prop_assert_eq!(around.len(), single + (single * single - same) / 2);
            let mut distinct: Vec<u128> = around.iter().map(|(_, key)| *key).collect();
            distinct.sort_unstable();
            distinct.dedup();
            prop_assert_eq!(distinct.len(), around.len());
            for (score, other) in around {
                let other = cells(&drawn, other);
                let moved: Vec<usize> = (0..hashes).filter(|hash| own_cells[*hash] != other[*hash]).collect();
                prop_assert!((1..=2).contains(&moved.len()));
                let mut sum = 0.0;
                for hash in moved {
                    let (from, to) = (own_cells[hash], other[hash]);
                    prop_assert_eq!((from / width - to / width).abs(), 1);
                    let (edge, boundary) = if to > from { (0, to) } else { (width - 1, to + 1) };
                    prop_assert_eq!(to % width, edge);
                    let distance = (boundary as f32 - values[hash]) * if to > from { 1.0 } else { -1.0 };
                    sum += distance.max(0.0).powi(2);
                }
                prop_assert!((score - sum).abs() <= 1e-5 * sum);
            }
        }
    }

    #[test]
    fn a_prefix_of_a_key_has_the_level_of_the_bucket_that_it_determines() {
        let draw = |hashes: usize| CompoundHashes::draw(&[0.0; 2], 1.0, 1, hashes, 1);
        let (whole, unused) = (draw(16), draw(12));
        assert_eq!([0, 1, 16, 17, 112, 113, 128].map(|bits| whole.level_of(bits)), [8, 7, 7, 6, 1, 0, 0]);
        // Twelve values of ten bits leave eight bits unused.
        assert_eq!([0, 8, 9, 20, 21, 128].map(|bits| unused.level_of(bits)), [10, 10, 9, 9, 8, 0]);
    }

    #[test]
    fn values_that_are_not_finite_have_perturbed_keys() {
        let drawn = CompoundHashes::draw(&[0.0; 2], 1.0, 1, 4, 1);
        let values = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 2.5];
        let mut memory = PerturbationScratch::default();
        let around: Vec<_> = drawn.perturbed_keys(0, &values, 3, &mut memory).collect();
        assert!(around.len() > 4 && around.iter().all(|(score, _)| !score.is_nan()), "{around:?}");
    }
}
