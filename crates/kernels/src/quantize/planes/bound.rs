//! Error bounds of estimates, and the functions of plane codes that scans need.

use super::factors::load_factors;
use super::layout::GROUP;
use super::quantizer::PlaneQuantizer;
use super::query::PlaneQuery;
use super::rotation::Rotation;

/// Standard deviations in a bound: 99.7% of Gaussian errors.
const BOUND_DEVIATIONS: f32 = 3.0;
/// Three times the relative error of a factor that is rounded to f16. Three such factors are in a bound.
const HALF_ERROR: f32 = 3.0 / 2048.0;

impl PlaneQuantizer {
    /// Returns three standard deviations of the error of a code's score.
    ///
    /// With a random rotation, the direction of the code's component orthogonal to the vector is random, so
    /// the query's error is its length over `sqrt(dim - 1)` (Theorem 3.2 of SIGMOD'24). On principal axes the
    /// bound uses the mean error of each dimension.
    pub(in crate::quantize) fn bound(&self, query: &PlaneQuery, code: &[u8]) -> f32 {
        let narrow = self.layout.factor_bytes == 4;
        let (stored_norm, gain) = load_factors(narrow, code);
        let norm = stored_norm * self.norm_unit;
        let (mut point, mut level_square) = (0.0f32, 0.0f32);
        for d in 0..self.layout.dims() {
            let level = f32::from(self.layout.level(code, d)) - self.layout.middle(d);
            level_square += level * level;
            point += level * self.steps[d] * level * self.steps[d];
        }
        let square = gain * gain;
        let rounding = if narrow { HALF_ERROR } else { 0.0 };
        let code_error = match *self.rotation {
            Rotation::Hadamard { .. } => {
                let orthogonal = (square * point - norm).max(0.0) + rounding * norm;
                orthogonal * query.query_norm / (self.dim.max(2) - 1) as f32
            }
            Rotation::Dense { .. } | Rotation::Bytes(_) => {
                square * query.point_error + norm * query.tail_error
            }
        };
        // Rounding the query to whole units adds an error, which is uniform within half a unit.
        let query_error = square * level_square * query.scale * query.scale / 12.0;
        let in_score = if query.norm_factor > 0.0 { 2.0 } else { 1.0 };
        let factor_error = rounding * (norm * query.query_norm).sqrt().max(norm);
        BOUND_DEVIATIONS * in_score * (code_error + query_error).sqrt() + factor_error
    }

    /// Returns the score of a code whose first 8 bytes are `head` and whose sum of level x query unit is
    /// `sum`.
    pub(in crate::quantize) fn finish(&self, query: &PlaneQuery, head: &[u8], sum: f32) -> f32 {
        let (norm, gain) = load_factors(self.layout.factor_bytes == 4, head);
        query.bias + query.norm_factor * norm + query.gain_factor * (gain * (sum + query.offset))
    }

    /// Appends the tables of each byte of a code: the 16 sums of its low half, then the 16 of its high half.
    pub(in crate::quantize) fn nibble_tables(&self, query: &PlaneQuery, out: &mut Vec<f32>) {
        let unit = |d: usize| {
            f32::from(query.unit_low[d])
                + if self.is_fine() { 256.0 * f32::from(query.unit_high[d]) } else { 0.0 }
        };
        out.resize(32 * self.layout.factor_bytes, 0.0);
        for plane in 0..8u8 {
            for g in (0..self.layout.group_bits.len()).take_while(|&g| self.layout.group_bits[g] > plane) {
                for first in [g * GROUP, g * GROUP + 4] {
                    out.extend((0..16usize).map(|set| {
                        let bits = (0..4).filter(|bit| set >> bit & 1 == 1);
                        bits.map(|bit| unit(first + bit)).sum::<f32>() * f32::from(1u8 << plane)
                    }));
                }
            }
        }
        out.resize(32 * self.code_bytes(), 0.0);
    }
}
