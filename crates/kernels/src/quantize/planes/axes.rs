//! Principal axes of a sample and how many bits each of them gets.

use super::eigen::{add_scaled, dot, symmetric_eigen};
use super::layout::GROUP;
use crate::kmeans::random::Random;
use crate::product::{Product, multiply};

/// Rows the covariance is taken from.
const COVARIANCE_ROWS: usize = 20_000;
/// Rows whose products are summed in floats before they are added to doubles: fast, and exact enough.
const CHUNK_ROWS: usize = 256;

/// Up to so many dimensions all axes are found, exactly: cubic, 0.3 s at 384.
const EXACT_DIM: usize = 512;
/// Axes that are looked for, for each byte of a code: of a byte's eight bits four to five go to an axis of their own.
const AXES_A_BYTE: usize = 6;
/// Rounds of orthogonal iteration.
const ROUNDS: usize = 6;
/// Axes that are made orthogonal to the ones before them at once.
const BLOCK: usize = 32;
/// The part of a row of floats that is no more than rounding.
const ROUNDING: f64 = 1e-6;

/// Directions of great variance.
pub(super) struct Axes {
    /// Row-major, `dim` values each, orthonormal, variance falling.
    pub(super) rows: Vec<f64>,
    /// The variance along each.
    pub(super) variances: Vec<f64>,
    /// The variance along all directions together.
    pub(super) total: f64,
}

/// The principal axes of a sample: all of them where dimensions are few, else nearly those that codes of `plane_bytes` can
/// use. The same whatever the number of threads.
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

/// Nearly the `wanted` eigenvectors of the greatest values, as rows, and the variance along each: orthogonal iteration (Golub &
/// Van Loan, section 8.2.4), quadratic in the dimensions for each axis. Axes of nearly equal variance stay mixed, which
/// costs a code nothing.
fn leading_axes(
    covariance: &[f64],
    dim: usize,
    wanted: usize,
    seed: u64,
    threads: usize,
) -> (Vec<f64>, Vec<f64>) {
    let largest = (0..dim).fold(f64::MIN_POSITIVE, |most, d| most.max(covariance[d * dim + d]));
    let matrix: Vec<f32> = covariance.iter().map(|v| (v / largest) as f32).collect();
    let mut random = Random::new(seed);
    let mut axes: Vec<f32> = (0..wanted * dim).map(|_| random.normal() as f32).collect();
    let mut turned = vec![0.0_f32; wanted * dim];
    for _ in 0..ROUNDS {
        multiply_rows(&axes, dim, &matrix, dim, threads, &mut turned);
        std::mem::swap(&mut axes, &mut turned);
        orthonormalise_blocks(&mut axes, dim, threads);
    }
    multiply_rows(&axes, dim, &matrix, dim, threads, &mut turned);
    let rows: Vec<f64> = axes.iter().map(|v| f64::from(*v)).collect();
    let along = |(row, turned): (&[f64], &[f32])| {
        largest * row.iter().zip(turned).map(|(r, t)| r * f64::from(*t)).sum::<f64>()
    };
    let variances = rows.chunks_exact(dim).zip(turned.chunks_exact(dim)).map(along).collect();
    (rows, variances)
}

/// [`orthonormalise`] of floats, by blocks: what a block has of the rows before it is taken away by products of matrices. A row of
/// which nothing but rounding is left becomes a fresh direction: rounding need not lead out of what the rows before it span, where
/// vectors lie in few of their dimensions and repeat themselves.
fn orthonormalise_blocks(rows: &mut [f32], dim: usize, threads: usize) {
    let (mut columns, mut along, mut turned) = (Vec::new(), Vec::new(), Vec::new());
    let (mut part, mut exact) = (vec![0.0_f32; BLOCK * dim], Vec::new());
    let mut random = Random::new(0x0A7E5);
    for first in (0..rows.len() / dim).step_by(BLOCK) {
        let (done, rest) = rows.split_at_mut(first * dim);
        let count = BLOCK.min(rest.len() / dim);
        let block = &mut rest[..count * dim];
        // Twice is enough, from where all rows have something left.
        let mut rounds = 2;
        while rounds > 0 {
            rounds -= 1;
            if first > 0 {
                transpose(block, dim, &mut columns);
                along.resize(first * count, 0.0);
                multiply_rows(done, dim, &columns, count, threads, &mut along);
                transpose(&along, count, &mut turned);
                let part = &mut part[..count * dim];
                multiply_rows(&turned, first, done, dim, threads, part);
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

/// The columns of row-major `rows` of `dim` values, one after the other.
fn transpose(rows: &[f32], dim: usize, out: &mut Vec<f32>) {
    out.clear();
    out.extend((0..dim).flat_map(|d| rows.iter().skip(d).step_by(dim)));
}

/// [`multiply`] of all rows (`dim` values each) and `kept` columns.
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
        multiply_rows(&turned, chunk.len(), &columns, dim, threads, &mut products);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leading_axes_hold_what_the_exact_ones_do() {
        // Variances that fall slowly, along directions that are no coordinates; more dimensions than vectors at last.
        // The last twice behind itself, so that half of the dimensions are empty, and rounding is as symmetric.
        for (rows, dim, wanted, copies) in
            [(3000, 96, 48, 1), (3000, 96, 96, 1), (40, 96, 64, 1), (3000, 96, 160, 2)]
        {
            let mut random = Random::new(7);
            let mut turn: Vec<f64> = (0..dim * dim).map(|_| random.normal()).collect();
            orthonormalise(&mut turn, dim);
            let mut centred = vec![0.0_f32; rows * dim];
            for row in centred.chunks_exact_mut(dim) {
                for (d, axis) in turn.chunks_exact(dim).enumerate() {
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
                let (held, most): (f64, f64) = (variances[..count].iter().sum(), exact[..count].iter().sum());
                assert!(held > 0.97 * most && held < 1.001 * most, "{count}: {held} of {most}");
            }
        }
    }
}
