//! Principal axes of a sample and how many bits each of them gets.

use super::eigen::{add_scaled, dot, symmetric_eigen};
use super::layout::GROUP;
use crate::kmeans::random::Random;
use crate::product::{Product, multiply};

/// Rows the covariance is taken from.
const COVARIANCE_ROWS: usize = 20_000;
/// Rows whose products are summed in floats before they are added to doubles: fast, and exact enough.
const CHUNK_ROWS: usize = 256;

/// Axes as rows (`dim x dim`, orthonormal, variance falling) and the variance along each.
pub(super) fn principal_axes(centred: &[f32], dim: usize) -> (Vec<f64>, Vec<f64>) {
    let (values, vectors) = symmetric_eigen(&mut covariance(centred, dim), dim);
    let mut order: Vec<usize> = (0..dim).collect();
    order.sort_by(|&a, &b| values[b].total_cmp(&values[a]).then(a.cmp(&b)));
    let axes = order.iter().flat_map(|&r| &vectors[r * dim..(r + 1) * dim]).copied().collect();
    (axes, order.iter().map(|&r| values[r].max(0.0)).collect())
}

fn covariance(centred: &[f32], dim: usize) -> Vec<f64> {
    let n = centred.len() / dim;
    let step = n.div_ceil(COVARIANCE_ROWS).max(1);
    let rows: Vec<&[f32]> = centred.chunks_exact(dim).step_by(step).collect();
    // A power of two that brings the largest value near 1: floats neither overflow nor vanish, and nothing is rounded.
    let largest = rows.iter().flat_map(|row| row.iter()).fold(f32::MIN_POSITIVE, |m, v| m.max(v.abs()));
    let shrink = f32::from_bits(254_u32.saturating_sub(largest.to_bits() >> 23).clamp(1, 253) << 23);
    let mut sums = vec![0.0f64; dim * dim];
    let (mut products, mut columns, mut turned) = (vec![0.0f32; dim * dim], Vec::new(), Vec::new());
    for chunk in rows.chunks(CHUNK_ROWS) {
        columns.clear();
        chunk.iter().for_each(|row| columns.extend(row.iter().map(|v| v * shrink)));
        turned.clear();
        (0..dim).for_each(|d| turned.extend(chunk.iter().map(|row| row[d] * shrink)));
        let product = Product { rows: &turned, dim: chunk.len(), columns: &columns, kept: dim, stride: dim };
        multiply(&product, &mut products);
        sums.iter_mut().zip(&products).for_each(|(s, &p)| *s += f64::from(p));
    }
    let unit = f64::from(shrink) * f64::from(shrink) * rows.len().max(1) as f64;
    sums.iter_mut().for_each(|s| *s /= unit);
    sums
}

/// Gram and Schmidt, twice where a row loses most of its length; a row without length becomes a fresh direction.
pub(super) fn orthonormalise(rows: &mut [f64], dim: usize) {
    let mut random = Random::new(0x0A7E5);
    for r in 0..rows.len() / dim {
        let (done, rest) = rows.split_at_mut(r * dim);
        let row = &mut rest[..dim];
        loop {
            let before: f64 = row.iter().map(|v| v * v).sum();
            for _ in 0..2 {
                for other in done.chunks_exact(dim) {
                    let along = dot(row, other);
                    add_scaled(row, -along, other);
                }
            }
            let length: f64 = row.iter().map(|v| v * v).sum::<f64>().sqrt();
            if length > 1e-8 * before.sqrt() && length > 0.0 {
                row.iter_mut().for_each(|v| *v /= length);
                break;
            }
            row.iter_mut().for_each(|v| *v = random.normal());
        }
    }
}

/// Mixes the axes of each run of equal bits by a random rotation, so that their coordinates are alike.
pub(super) fn mix_runs(axes: &mut [f64], variances: &mut [f64], bits: &[u8], dim: usize, seed: u64) {
    let mut random = Random::new(seed);
    let mut from = 0;
    for run in bits.chunk_by(|a, b| a == b) {
        let to = (from + run.len() * GROUP).min(dim);
        let width = to - from;
        let mut turn: Vec<f64> = (0..width * width).map(|_| random.normal()).collect();
        orthonormalise(&mut turn, width);
        let old = axes[from * dim..to * dim].to_vec();
        for (new, weights) in axes[from * dim..to * dim].chunks_exact_mut(dim).zip(turn.chunks_exact(width)) {
            new.fill(0.0);
            weights.iter().zip(old.chunks_exact(dim)).for_each(|(&w, axis)| add_scaled(new, w, axis));
        }
        let old = variances[from..to].to_vec();
        for (variance, weights) in variances[from..to].iter_mut().zip(turn.chunks_exact(width)) {
            *variance = weights.iter().zip(&old).map(|(w, v)| w * w * v).sum();
        }
        from = to;
    }
}
