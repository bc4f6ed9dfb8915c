//! Principal axes of a sample and how many bits each of them gets.

use super::layout::GROUP;
use crate::kmeans::random::Random;

/// Rows the covariance is taken from.
const COVARIANCE_ROWS: usize = 20_000;
/// Sweeps of one-sided Jacobi rotations; six leave angles below 1e-6 on the data sets of the table.
const SWEEPS: usize = 8;

/// Axes as rows (`dim x dim`, orthonormal, variance falling) and the variance along each.
pub(super) fn principal_axes(centred: &[f32], dim: usize) -> (Vec<f64>, Vec<f64>) {
    let mut rows = covariance(centred, dim);
    // A ridge keeps rows of axes without variance apart from zero, so that they can be normalised.
    let trace: f64 = (0..dim).map(|d| rows[d * dim + d]).sum();
    let ridge = if trace > 0.0 { trace / dim as f64 * 1e-6 } else { 1.0 };
    (0..dim).for_each(|d| rows[d * dim + d] += ridge);
    for _ in 0..SWEEPS {
        if !jacobi_sweep(&mut rows, dim) {
            break;
        }
    }
    let norm = |r: usize| rows[r * dim..(r + 1) * dim].iter().map(|v| v * v).sum::<f64>().sqrt();
    let mut order: Vec<(f64, usize)> = (0..dim).map(|r| (norm(r), r)).collect();
    order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let mut axes = Vec::with_capacity(dim * dim);
    let mut variances = Vec::with_capacity(dim);
    for (length, r) in order {
        axes.extend(rows[r * dim..(r + 1) * dim].iter().map(|v| v / length));
        variances.push((length - ridge).max(0.0));
    }
    orthonormalise(&mut axes, dim);
    (axes, variances)
}

fn covariance(centred: &[f32], dim: usize) -> Vec<f64> {
    let n = centred.len() / dim;
    let step = n.div_ceil(COVARIANCE_ROWS).max(1);
    let mut sums = vec![0.0f64; dim * dim];
    let mut block = vec![0.0f32; dim * dim];
    let mut taken = 0usize;
    for row in centred.chunks_exact(dim).step_by(step) {
        for (i, &v) in row.iter().enumerate() {
            block[i * dim..(i + 1) * dim].iter_mut().zip(row).for_each(|(s, &w)| *s += v * w);
        }
        taken += 1;
        // Short float sums, flushed to doubles: fast, and exact enough.
        if taken.is_multiple_of(256) {
            sums.iter_mut().zip(&mut block).for_each(|(s, b)| *s += f64::from(std::mem::take(b)));
        }
    }
    sums.iter_mut().zip(&block).for_each(|(s, &b)| *s = (*s + f64::from(b)) / taken.max(1) as f64);
    sums
}

/// A dot product in eight partial sums: one sum would wait for every addition before the next.
fn dot(x: &[f64], y: &[f64]) -> f64 {
    let mut sums = [0.0f64; 8];
    let (x_parts, y_parts) = (x.chunks_exact(8), y.chunks_exact(8));
    let tail: f64 = x_parts.remainder().iter().zip(y_parts.remainder()).map(|(u, v)| u * v).sum();
    for (u, v) in x_parts.zip(y_parts) {
        (0..8).for_each(|l| sums[l] += u[l] * v[l]);
    }
    sums.iter().sum::<f64>() + tail
}

/// Rotates every pair of rows of a symmetric matrix to orthogonality (Hestenes); rows end as scaled eigenvectors.
fn jacobi_sweep(rows: &mut [f64], dim: usize) -> bool {
    let mut turned = false;
    for p in 0..dim {
        for q in p + 1..dim {
            let (head, tail) = rows.split_at_mut(q * dim);
            let (a, b) = (&mut head[p * dim..(p + 1) * dim], &mut tail[..dim]);
            let (aa, bb, ab) = (dot(a, a), dot(b, b), dot(a, b));
            if ab.abs() <= 1e-7 * (aa * bb).sqrt() {
                continue;
            }
            turned = true;
            let zeta = (bb - aa) / (2.0 * ab);
            let t = zeta.signum() / (zeta.abs() + (1.0 + zeta * zeta).sqrt());
            let c = 1.0 / (1.0 + t * t).sqrt();
            let s = c * t;
            for (x, y) in a.iter_mut().zip(b) {
                (*x, *y) = (c * *x - s * *y, s * *x + c * *y);
            }
        }
    }
    turned
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
                    row.iter_mut().zip(other).for_each(|(u, v)| *u -= along * v);
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
            for (weight, axis) in weights.iter().zip(old.chunks_exact(dim)) {
                new.iter_mut().zip(axis).for_each(|(n, a)| *n += weight * a);
            }
        }
        let old = variances[from..to].to_vec();
        for (variance, weights) in variances[from..to].iter_mut().zip(turn.chunks_exact(width)) {
            *variance = weights.iter().zip(&old).map(|(w, v)| w * w * v).sum();
        }
        from = to;
    }
}
