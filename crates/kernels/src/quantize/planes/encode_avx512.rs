//! Encoding with AVX-512: the products of rows and axes, and passes over scales, with their sums in registers.

use super::encode::{Grid, LANES, TRIED};
use super::rotation::Product;
use std::arch::x86_64::*;

/// Rows of a tile; with two registers a row, 16 sums hide the latency of an addition.
const ROWS: usize = 8;

/// [`Product::tiles`] with the same floats.
///
/// # Safety
/// The CPU has AVX-512 F; `out` holds `stride` values for each row, at least `kept`.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn multiply(product: &Product<'_>, out: &mut [f32]) {
    let count = product.rows.len() / product.dim;
    assert!(product.columns.len() >= product.dim * product.kept && out.len() >= count * product.stride);
    for at in (0..product.kept).step_by(2 * LANES) {
        for first in (0..count).step_by(ROWS) {
            // SAFETY: rows and columns lie inside the slices, as was checked above.
            unsafe {
                if product.kept - at > LANES {
                    tile::<2>(product, at, first, count, out);
                } else {
                    tile::<1>(product, at, first, count, out);
                }
            }
        }
    }
}

/// # Safety
/// As [`multiply`]; `at` is below `kept` and `first` below `count`, the number of rows.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn tile<const WIDE: usize>(
    product: &Product<'_>,
    at: usize,
    first: usize,
    count: usize,
    out: &mut [f32],
) {
    // A short last tile repeats its last row.
    let rows: [*const f32; ROWS] = std::array::from_fn(|r| {
        let row = (first + r).min(count - 1);
        product.rows[row * product.dim..].as_ptr()
    });
    let masks: [__mmask16; WIDE] = std::array::from_fn(|w| {
        let left = (product.kept - at).saturating_sub(w * LANES).min(LANES);
        ((1u32 << left) - 1) as u16
    });
    let mut sums = [[_mm512_setzero_ps(); WIDE]; ROWS];
    for i in 0..product.dim {
        let mut column = [_mm512_setzero_ps(); WIDE];
        // SAFETY: the mask keeps the loads inside column `i`; each row has `dim` values.
        unsafe {
            let from = product.columns.as_ptr().add(i * product.kept + at);
            for w in 0..WIDE {
                column[w] = _mm512_maskz_loadu_ps(masks[w], from.add(w * LANES));
            }
            for r in 0..ROWS {
                let x = _mm512_set1_ps(*rows[r].add(i));
                for w in 0..WIDE {
                    sums[r][w] = _mm512_add_ps(sums[r][w], _mm512_mul_ps(x, column[w]));
                }
            }
        }
    }
    for (r, sums) in sums.iter().enumerate().take(count - first) {
        for w in 0..WIDE {
            // SAFETY: the mask keeps the stores inside the row's `kept` values.
            unsafe {
                let to = out.as_mut_ptr().add((first + r) * product.stride + at + w * LANES);
                _mm512_mask_storeu_ps(to, masks[w], sums[w]);
            }
        }
    }
}

/// Sixteen dimensions of the grid and of a row.
struct Step {
    rotated: __m512,
    /// The row in units of the grid's steps.
    units: __m512,
    steps: __m512,
    middles: __m512,
}

impl Step {
    /// # Safety
    /// There are 16 values from `at` on in the row and in the grid.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn new(grid: &Grid, rotated: &[f32], at: usize) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            let rotated = _mm512_loadu_ps(rotated.as_ptr().add(at));
            let inverse = _mm512_loadu_ps(grid.inverse_steps.as_ptr().add(at));
            Step {
                rotated,
                units: _mm512_mul_ps(rotated, inverse),
                steps: _mm512_loadu_ps(grid.steps.as_ptr().add(at)),
                middles: _mm512_loadu_ps(grid.middles.as_ptr().add(at)),
            }
        }
    }

    /// The nearest levels, counted from the middle.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn levels(&self, inverse_scale: __m512) -> __m512 {
        let floor = _mm512_roundscale_ps::<0x09>(_mm512_mul_ps(self.units, inverse_scale));
        let level = _mm512_add_ps(floor, _mm512_set1_ps(0.5));
        let least = _mm512_sub_ps(_mm512_setzero_ps(), self.middles);
        _mm512_min_ps(_mm512_max_ps(level, least), self.middles)
    }
}

/// [`super::encode::pass`] with the same floats.
///
/// # Safety
/// The CPU has AVX-512 F and DQ; `rotated` and the grid have the same whole number of steps of 16.
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) unsafe fn pass(
    grid: &Grid,
    rotated: &[f32],
    inverses: [f32; TRIED],
) -> ([f32; TRIED], [f32; TRIED]) {
    let mut dots = [_mm512_setzero_ps(); TRIED];
    let mut norms = [_mm512_setzero_ps(); TRIED];
    for at in (0..rotated.len()).step_by(LANES) {
        // SAFETY: the caller's promise.
        let step = unsafe { Step::new(grid, rotated, at) };
        for t in 0..TRIED {
            let point = _mm512_mul_ps(step.levels(_mm512_set1_ps(inverses[t])), step.steps);
            dots[t] = _mm512_add_ps(dots[t], _mm512_mul_ps(point, step.rotated));
            norms[t] = _mm512_add_ps(norms[t], _mm512_mul_ps(point, point));
        }
    }
    let mut out = ([0.0; TRIED], [0.0; TRIED]);
    for t in 0..TRIED {
        (out.0[t], out.1[t]) = (sum(dots[t]), sum(norms[t]));
    }
    out
}

/// [`super::encode::settle`] with the same floats.
///
/// # Safety
/// As [`pass`]; `point` and `levels` are as long as `rotated`.
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) unsafe fn settle(
    grid: &Grid,
    rotated: &[f32],
    inverse: f32,
    point: &mut [f32],
    levels: &mut [u8],
) -> f32 {
    let inverse = _mm512_set1_ps(inverse);
    let mut dots = _mm512_setzero_ps();
    for at in (0..rotated.len()).step_by(LANES) {
        // SAFETY: the caller's promise.
        unsafe {
            let step = Step::new(grid, rotated, at);
            let level = step.levels(inverse);
            let value = _mm512_mul_ps(level, step.steps);
            dots = _mm512_add_ps(dots, _mm512_mul_ps(value, step.rotated));
            _mm512_storeu_ps(point.as_mut_ptr().add(at), value);
            let whole = _mm512_cvttps_epi32(_mm512_add_ps(level, step.middles));
            _mm_storeu_si128(levels.as_mut_ptr().add(at).cast(), _mm512_cvtepi32_epi8(whole));
        }
    }
    sum(dots)
}

/// The sum over lanes, in the order of the scalar one: halves onto halves.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn sum(v: __m512) -> f32 {
    let v = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v));
    let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
    let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
    _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
}
