//! Principal axes of a sample.

use super::eigen::{add_scaled, dot, symmetric_eigen};
use super::layout::GROUP;
use crate::kmeans::random::Random;
use crate::product::{Product, multiply};

/// Rows from which the covariance is computed.
const COVARIANCE_ROWS: usize = 20_000;
/// Rows whose products are summed as f32 before they are added to f64 sums: fast, and exact enough.
const CHUNK_ROWS: usize = 256;

/// Most dimensions for which all axes are found exactly. The time is cubic: 0.3 s at 384.
const EXACT_DIM: usize = 512;
/// Axes to find for each byte of a code. Four to five of the eight bits of a byte go to different axes.
const AXES_A_BYTE: usize = 6;
/// Rounds of orthogonal iteration.
const ROUNDS: usize = 6;
/// Axes that are made orthogonal together to those before them.
const BLOCK: usize = 32;
/// Relative length below which the rest of a row of floats is only rounding error.
const ROUNDING: f64 = 1e-6;

/// The directions of greatest variance.
pub(super) struct Axes {
    /// Axes, row-major, `dim` values each: orthonormal, in order of falling variance.
    pub(super) rows: Vec<f64>,
    /// Variance along each axis.
    pub(super) variances: Vec<f64>,
    /// Variance along all directions together.
    pub(super) total: f64,
}

/// Finds the principal axes of a sample: all axes up to [`EXACT_DIM`] dimensions; above it, approximations of
/// those that codes of `plane_bytes` can use. The result does not depend on the number of threads.
pub(super) fn principal_axes(
    centred: &[f32],
    dim: usize,
    plane_bytes: usize,
    seed: u64,
    threads: usize,
) -> Axes {
    let mut covariance = covariance(centred, dim, threads);
    let total = (0..dim).map(|d| covariance[d * dim + d]).sum();
    let (rows, variances) = if dim <= EXACT_DIM {
        let (values, vectors) = symmetric_eigen(&mut covariance, dim);
        (vectors, values)
    } else {
        let wanted = (AXES_A_BYTE * plane_bytes).next_multiple_of(GROUP).min(dim);
        leading_axes(&covariance, dim, wanted, seed, threads)
    };
    let mut order: Vec<usize> = (0..variances.len()).collect();
    order.sort_by(|&a, &b| variances[b].total_cmp(&variances[a]).then(a.cmp(&b)));
    let sorted = order.iter().flat_map(|&r| &rows[r * dim..(r + 1) * dim]).copied().collect();
    Axes { rows: sorted, variances: order.iter().map(|&r| variances[r].max(0.0)).collect(), total }
}

/// Approximates the `count` eigenvectors of the greatest eigenvalues, as rows, and computes the variance
/// along each.
///
/// It is orthogonal iteration (Golub & Van Loan, section 8.2.4), which takes quadratic time in the dimensions
/// for each axis. Axes of nearly equal variance stay mixed, which makes codes no worse.
fn leading_axes(
    covariance: &[f64],
    dim: usize,
    count: usize,
    seed: u64,
    threads: usize,
) -> (Vec<f64>, Vec<f64>) {
    let largest = (0..dim).fold(f64::MIN_POSITIVE, |most, d| most.max(covariance[d * dim + d]));
    let matrix: Vec<f32> = covariance.iter().map(|v| (v / largest) as f32).collect();
    let mut random = Random::new(seed);
    let mut axes: Vec<f32> = (0..count * dim).map(|_| random.normal() as f32).collect();
    let mut products = vec![0.0_f32; count * dim];
    for _ in 0..ROUNDS {
        multiply_rows(&axes, dim, &matrix, dim, threads, &mut products);
        std::mem::swap(&mut axes, &mut products);
        orthonormalise_blocks(&mut axes, dim, threads);
    }
    multiply_rows(&axes, dim, &matrix, dim, threads, &mut products);
    let rows: Vec<f64> = axes.iter().map(|v| f64::from(*v)).collect();
    let variance_along = |(row, product): (&[f64], &[f32])| {
        largest * row.iter().zip(product).map(|(r, p)| r * f64::from(*p)).sum::<f64>()
    };
    let variances = rows.chunks_exact(dim).zip(products.chunks_exact(dim)).map(variance_along).collect();
    (rows, variances)
}

/// Makes rows of floats orthonormal, block by block. Matrix products subtract from a block its projection on
/// the rows before it, then [`orthonormalise`] treats the block.
///
/// A row of which only rounding error is left becomes a random direction. The error itself may be within the
/// span of the rows before it, for example if the vectors use few of their dimensions and repeat values.
fn orthonormalise_blocks(rows: &mut [f32], dim: usize, threads: usize) {
    let (mut columns, mut coefficients, mut transposed) = (Vec::new(), Vec::new(), Vec::new());
    let (mut part, mut exact) = (vec![0.0_f32; BLOCK * dim], Vec::new());
    let mut random = Random::new(0x0A7E5);
    for first in (0..rows.len() / dim).step_by(BLOCK) {
        let (done, rest) = rows.split_at_mut(first * dim);
        let count = BLOCK.min(rest.len() / dim);
        let block = &mut rest[..count * dim];
        // Two rounds are enough after all rows have more than rounding error left.
        let mut rounds = 2;
        while rounds > 0 {
            rounds -= 1;
            if first > 0 {
                transpose(block, dim, &mut columns);
                coefficients.resize(first * count, 0.0);
                multiply_rows(done, dim, &columns, count, threads, &mut coefficients);
                transpose(&coefficients, count, &mut transposed);
                let part = &mut part[..count * dim];
                multiply_rows(&transposed, first, done, dim, threads, part);
                for (row, part) in block.chunks_exact_mut(dim).zip(part.chunks_exact(dim)) {
                    let before = length(row);
                    row.iter_mut().zip(part).for_each(|(value, part)| *value -= *part);
                    if length(row) <= ROUNDING * before {
                        row.iter_mut().for_each(|value| *value = random.normal() as f32);
                        rounds = 2;
                    }
                }
            }
            exact.clear();
            exact.extend(block.iter().map(|v| f64::from(*v)));
            orthonormalise(&mut exact, dim);
            block.iter_mut().zip(&exact).for_each(|(value, exact)| *value = *exact as f32);
        }
    }
}

fn length(row: &[f32]) -> f64 {
    row.iter().map(|v| f64::from(*v) * f64::from(*v)).sum::<f64>().sqrt()
}

/// Writes the columns of row-major `rows` of `dim` values to `out`, one after the other.
fn transpose(rows: &[f32], dim: usize, out: &mut Vec<f32>) {
    out.clear();
    out.extend((0..dim).flat_map(|d| rows.iter().skip(d).step_by(dim)));
}

/// Computes [`multiply`] of all rows (`dim` values each) and `kept` columns on `threads` threads.
fn multiply_rows(rows: &[f32], dim: usize, columns: &[f32], kept: usize, threads: usize, out: &mut [f32]) {
    let part = (rows.len() / dim).div_ceil(threads.max(1)).max(1);
    std::thread::scope(|scope| {
        for (rows, out) in rows.chunks(part * dim).zip(out.chunks_mut(part * kept)) {
            scope.spawn(move || multiply(&Product { rows, dim, columns, kept, stride: kept }, out));
        }
    });
}

fn covariance(centred: &[f32], dim: usize, threads: usize) -> Vec<f64> {
    let n = centred.len() / dim;
    let step = n.div_ceil(COVARIANCE_ROWS).max(1);
    let rows: Vec<&[f32]> = centred.chunks_exact(dim).step_by(step).collect();
    // A power of two that scales the largest value to nearly 1. Products then neither overflow nor vanish,
    // and the scaling itself rounds nothing.
    let largest = rows.iter().flat_map(|row| row.iter()).fold(f32::MIN_POSITIVE, |m, v| m.max(v.abs()));
    let shrink = f32::from_bits(254_u32.saturating_sub(largest.to_bits() >> 23).clamp(1, 253) << 23);
    let mut sums = vec![0.0f64; dim * dim];
    let (mut products, mut columns, mut transposed) = (vec![0.0f32; dim * dim], Vec::new(), Vec::new());
    for chunk in rows.chunks(CHUNK_ROWS) {
        columns.clear();
        chunk.iter().for_each(|row| columns.extend(row.iter().map(|v| v * shrink)));
        transposed.clear();
        (0..dim).for_each(|d| transposed.extend(chunk.iter().map(|row| row[d] * shrink)));
        multiply_rows(&transposed, chunk.len(), &columns, dim, threads, &mut products);
        sums.iter_mut().zip(&products).for_each(|(s, &p)| *s += f64::from(p));
    }
    let unit = f64::from(shrink) * f64::from(shrink) * rows.len().max(1) as f64;
    sums.iter_mut().for_each(|s| *s /= unit);
    sums
}

/// Makes rows orthonormal by the Gram-Schmidt process, applied twice to each row. A row without length
/// becomes a random direction.
pub(super) fn orthonormalise(rows: &mut [f64], dim: usize) {
    let mut random = Random::new(0x0A7E5);
    for r in 0..rows.len() / dim {
        let (done, rest) = rows.split_at_mut(r * dim);
        let row = &mut rest[..dim];
        loop {
            let before: f64 = row.iter().map(|v| v * v).sum();
            for _ in 0..2 {
                for other in done.chunks_exact(dim) {
                    let projection = dot(row, other);
                    add_scaled(row, -projection, other);
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

/// Mixes the axes of each run of equal bits by a random rotation, so that their coordinates have similar
/// variances.
pub(super) fn mix_runs(axes: &mut [f64], variances: &mut [f64], bits: &[u8], dim: usize, seed: u64) {
    let mut random = Random::new(seed);
    let mut from = 0;
    for run in bits.chunk_by(|a, b| a == b) {
        let to = (from + run.len() * GROUP).min(dim);
        let width = to - from;
        let mut rotation: Vec<f64> = (0..width * width).map(|_| random.normal()).collect();
        orthonormalise(&mut rotation, width);
        let old = axes[from * dim..to * dim].to_vec();
        let new_axes = axes[from * dim..to * dim].chunks_exact_mut(dim);
        for (new, weights) in new_axes.zip(rotation.chunks_exact(width)) {
            new.fill(0.0);
            weights.iter().zip(old.chunks_exact(dim)).for_each(|(&w, axis)| add_scaled(new, w, axis));
        }
        let old = variances[from..to].to_vec();
        for (variance, weights) in variances[from..to].iter_mut().zip(rotation.chunks_exact(width)) {
            *variance = weights.iter().zip(&old).map(|(w, v)| w * w * v).sum();
        }
        from = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leading_axes_have_nearly_the_variance_of_the_exact_ones() {
        // Variances fall slowly, along directions that are not coordinates. One case has more dimensions than
        // vectors. In the last case each vector is repeated, so that half of the dimensions have no variance,
        // and rounding errors are symmetric, too.
        for (rows, dim, wanted, copies) in
            [(3000, 96, 48, 1), (3000, 96, 96, 1), (40, 96, 64, 1), (3000, 96, 160, 2)]
        {
            let mut random = Random::new(7);
            let mut directions: Vec<f64> = (0..dim * dim).map(|_| random.normal()).collect();
            orthonormalise(&mut directions, dim);
            let mut centred = vec![0.0_f32; rows * dim];
            for row in centred.chunks_exact_mut(dim) {
                for (d, axis) in directions.chunks_exact(dim).enumerate() {
                    let value = random.normal() / (1.0 + d as f64 / 8.0);
                    row.iter_mut().zip(axis).for_each(|(r, a)| *r += (value * a) as f32);
                }
            }
            let centred: Vec<f32> = centred.chunks_exact(dim).flat_map(|row| row.repeat(copies)).collect();
            let dim = dim * copies;
            let matrix = covariance(&centred, dim, 1);
            let (values, _) = symmetric_eigen(&mut matrix.clone(), dim);
            let (axes, variances) = leading_axes(&matrix, dim, wanted, 3, 2);
            assert_eq!((axes.clone(), variances.clone()), leading_axes(&matrix, dim, wanted, 3, 1));
            for (a, one) in axes.chunks_exact(dim).enumerate() {
                for (b, other) in axes.chunks_exact(dim).enumerate() {
                    let expected = if a == b { 1.0 } else { 0.0 };
                    assert!((dot(one, other) - expected).abs() < 1e-5, "{a} {b}: {}", dot(one, other));
                }
            }
            let mut exact = values;
            exact.sort_by(|a, b| b.total_cmp(a));
            for count in [8, wanted / 2, wanted] {
                let (found, best): (f64, f64) =
                    (variances[..count].iter().sum(), exact[..count].iter().sum());
                assert!(found > 0.97 * best && found < 1.001 * best, "{count}: {found} of {best}");
            }
        }
    }
}
