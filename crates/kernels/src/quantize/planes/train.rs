//! Training: the number of bits and the grid of each dimension.

use super::axes::{self, Axes};
use super::layout::{GROUP, LEAST_BYTES, PlaneLayout};
use super::quantizer::{GAUSSIAN_ERROR, GAUSSIAN_STEP, PlaneQuantizer};
use super::rotation::Rotation;
use crate::kmeans::random::{Random, sample_rows};
use crate::quantize::code::{CodeKind, QuantizeError};
use std::sync::Arc;

/// Bits of a dimension from which factors are f32. The error of f16 factors would be visible there.
const FINE_BITS: usize = 5;
/// Most bits of a dimension.
const MOST_BITS: u8 = 8;
/// Most rows from which the mean and the axes are computed.
const TRAINING_ROWS: usize = 100_000;
/// Exponent of the variance in the weights of the bit allocation. 1 is best for queries with the variances of
/// the data, 0 is best for the reconstruction. This is between them: from 0 to 0.5, SIFT gains 1% of recall
/// and GloVe loses 1%.
const ALLOCATION_EXPONENT: f64 = 0.25;

impl PlaneQuantizer {
    /// Trains a quantizer with the same number of bits in every dimension after a random rotation.
    pub(in crate::quantize) fn train_uniform(
        bits: u8,
        code_bytes: usize,
        sample: &[f32],
        dim: usize,
        seed: u64,
    ) -> Result<Self, QuantizeError> {
        let factor_bytes = if usize::from(bits) >= FINE_BITS { 8 } else { 4 };
        let layout = PlaneLayout::new(vec![bits; dim.div_ceil(GROUP)], factor_bytes);
        if layout.code_bytes > code_bytes {
            let kind = CodeKind::RaBitQ { bits };
            return Err(QuantizeError::CodeBytes { code_bytes, kind, least: layout.code_bytes });
        }
        let (mean, centred) = centre(sample, dim, seed);
        let total = mean_square(&centred, dim);
        let variance = vec![total / dim as f64; layout.dims()];
        Self::assemble(mean, Rotation::random(dim, seed), variance, total, layout)
    }

    /// Trains a quantizer with bits allocated by variance to the principal axes of the sample. Axes with
    /// equal bits are rotated at random.
    pub(in crate::quantize) fn train_allocated(
        code_bytes: usize,
        sample: &[f32],
        dim: usize,
        seed: u64,
        threads: usize,
    ) -> Result<Self, QuantizeError> {
        if code_bytes < LEAST_BYTES {
            let kind = CodeKind::Axes;
            return Err(QuantizeError::CodeBytes { code_bytes, kind, least: LEAST_BYTES });
        }
        let (mean, centred) = centre(sample, dim, seed);
        let factor_bytes = factor_bytes(code_bytes, dim);
        let plane_bytes = code_bytes.saturating_sub(factor_bytes).max(1);
        let Axes { rows: mut axes, mut variances, total } =
            axes::principal_axes(&centred, dim, plane_bytes, seed, threads);
        let weights: Vec<f64> =
            variances.chunks(GROUP).map(|group| group.iter().map(|v| weight(*v)).sum()).collect();
        let group_bits = allocate(&weights, plane_bytes, |_| MOST_BITS);
        axes::mix_runs(&mut axes, &mut variances, &group_bits, dim, seed);
        let layout = PlaneLayout::new(group_bits, factor_bytes);
        let kept = layout.dims().min(dim);
        let mut columns = vec![0.0f32; dim * kept];
        for (a, axis) in axes.chunks_exact(dim).take(kept).enumerate() {
            axis.iter().enumerate().for_each(|(d, &v)| columns[d * kept + a] = v as f32);
        }
        let mut kept_variances = variances[..kept].to_vec();
        kept_variances.resize(layout.dims(), 0.0);
        // Codes with 8-byte factors are more precise than a rotation in bytes, so their rotation stays in
        // floats.
        let rotation = Rotation::dense(columns, dim, kept, factor_bytes == 4);
        Self::assemble(mean, rotation, kept_variances, total, layout)
    }

    fn assemble(
        mean: Vec<f32>,
        rotation: Rotation,
        variances: Vec<f64>,
        total: f64,
        layout: PlaneLayout,
    ) -> Result<Self, QuantizeError> {
        // Data whose variance vanishes in a float still needs a grid step above zero.
        let unit = if total >= f64::from(f32::MIN_POSITIVE) { total.min(f64::from(f32::MAX)) } else { 1.0 };
        let least = unit / variances.len() as f64 * 1e-6;
        let kept: f64 = variances.iter().sum();
        let bits = |d: usize| layout.bits(d) as usize;
        let grid = |(d, v): (usize, &f64)| GAUSSIAN_STEP[bits(d)] * v.max(least).sqrt() as f32;
        let error = |(d, v): (usize, &f64)| (GAUSSIAN_ERROR[bits(d)] * v) as f32;
        let steps: Vec<f32> = variances.iter().enumerate().map(grid).collect();
        let errors: Vec<f32> = variances.iter().enumerate().map(error).collect();
        // Otherwise the codec could not be read again, and distances would overflow, too.
        if !steps.iter().chain(&errors).all(|v| v.is_finite()) {
            return Err(QuantizeError::TooLarge);
        }
        let tail = ((unit - kept) / unit).clamp(0.0, 1.0) as f32;
        Ok(PlaneQuantizer {
            dim: mean.len(),
            mean,
            rotation: Arc::new(rotation),
            steps,
            errors,
            tail,
            norm_unit: unit as f32,
            layout,
        })
    }
}

/// Draws a subsample. Returns its mean, and the subsample minus the mean.
fn centre(sample: &[f32], dim: usize, seed: u64) -> (Vec<f32>, Vec<f32>) {
    let rows = sample_rows(sample.len() / dim, TRAINING_ROWS, &mut Random::new(seed));
    let mut sums = vec![0.0f64; dim];
    for &r in &rows {
        sums.iter_mut().zip(&sample[r * dim..(r + 1) * dim]).for_each(|(s, &v)| *s += f64::from(v));
    }
    let mean: Vec<f32> = sums.iter().map(|s| (s / rows.len() as f64) as f32).collect();
    let centred = rows
        .iter()
        .flat_map(|r| sample[r * dim..(r + 1) * dim].iter().zip(&mean))
        .map(|(v, m)| (v - m).clamp(f32::MIN, f32::MAX))
        .collect();
    (mean, centred)
}

fn mean_square(centred: &[f32], dim: usize) -> f64 {
    centred.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>() / (centred.len() / dim).max(1) as f64
}

/// Returns the bytes of the factors of a code of `code_bytes`.
pub(super) fn factor_bytes(code_bytes: usize, dim: usize) -> usize {
    if code_bytes * 8 >= FINE_BITS * dim { 8 } else { 4 }
}

/// Returns the weight of the error of an axis of variance `v` in the bit allocation.
pub(super) fn weight(v: f64) -> f64 {
    v * v.max(0.0).powf(ALLOCATION_EXPONENT)
}

/// Allocates each byte of `plane_bytes` to the group of 8 axes whose error, weighted by `weights`, it lowers
/// most. Group `g` gets at most `most(g)` bits. Returns the bits of the groups, in falling order and without
/// groups of 0 bits.
pub(super) fn allocate(weights: &[f64], plane_bytes: usize, most: impl Fn(usize) -> u8) -> Vec<u8> {
    let mut bits = vec![0u8; weights.len()];
    for _ in 0..plane_bytes {
        let gain = |(g, &b): (usize, &u8)| {
            let errors = |b: u8| GAUSSIAN_ERROR[usize::from(b)] - GAUSSIAN_ERROR[usize::from(b) + 1];
            if b >= most(g) { -1.0 } else { weights[g] * errors(b) }
        };
        let gains = bits.iter().enumerate().map(gain);
        let best = gains.enumerate().fold((usize::MAX, -1.0), |a, (g, v)| if v > a.1 { (g, v) } else { a });
        match bits.get_mut(best.0) {
            Some(chosen) => *chosen += 1,
            None => break,
        }
    }
    // Weights fall, but the order that the layout requires must not depend on rounding.
    bits.sort_unstable_by(|a, b| b.cmp(a));
    bits.retain(|&b| b > 0);
    bits
}
