//! Encoding with AVX-512, with the sums of all scales in registers.

use super::encode::{Grid, LANES, SCALES};
use std::arch::x86_64::*;

/// Sixteen dimensions of the grid and of a row.
struct Step {
    rotated: __m512,
    /// The row, in units of the grid's steps.
    units: __m512,
    steps: __m512,
    middles: __m512,
}

impl Step {
    /// # Safety
    /// The row and the grid have 16 values from `at` on.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn new(grid: &Grid, rotated: &[f32], at: usize) -> Self {
        // SAFETY: the caller guarantees it.
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

    /// Returns the nearest levels, counted from the middle of the grid.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn levels(&self, inverse_scale: __m512) -> __m512 {
        let floor = _mm512_roundscale_ps::<0x09>(_mm512_mul_ps(self.units, inverse_scale));
        let level = _mm512_add_ps(floor, _mm512_set1_ps(0.5));
        let least = _mm512_sub_ps(_mm512_setzero_ps(), self.middles);
        _mm512_min_ps(_mm512_max_ps(level, least), self.middles)
    }
}

/// Computes the same floats as [`super::encode::try_scales_scalar`].
///
/// # Safety
/// The CPU has AVX-512 F and DQ; `rotated` and the grid have the same whole number of steps of 16.
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) unsafe fn try_scales(
    grid: &Grid,
    rotated: &[f32],
    inverses: [f32; SCALES],
) -> ([f32; SCALES], [f32; SCALES]) {
    let mut dots = [_mm512_setzero_ps(); SCALES];
    let mut norms = [_mm512_setzero_ps(); SCALES];
    for at in (0..rotated.len()).step_by(LANES) {
        // SAFETY: the caller guarantees it.
        let step = unsafe { Step::new(grid, rotated, at) };
        for t in 0..SCALES {
            let point = _mm512_mul_ps(step.levels(_mm512_set1_ps(inverses[t])), step.steps);
            dots[t] = _mm512_add_ps(dots[t], _mm512_mul_ps(point, step.rotated));
            norms[t] = _mm512_add_ps(norms[t], _mm512_mul_ps(point, point));
        }
    }
    let mut out = ([0.0; SCALES], [0.0; SCALES]);
    for t in 0..SCALES {
        (out.0[t], out.1[t]) = (sum(dots[t]), sum(norms[t]));
    }
    out
}

/// Computes the same floats as [`super::encode::round_at_scale_scalar`].
///
/// # Safety
/// As [`try_scales`]; `point` and `levels` are as long as `rotated`.
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) unsafe fn round_at_scale(
    grid: &Grid,
    rotated: &[f32],
    inverse: f32,
    point: &mut [f32],
    levels: &mut [u8],
) -> f32 {
    let inverse = _mm512_set1_ps(inverse);
    let mut dots = _mm512_setzero_ps();
    for at in (0..rotated.len()).step_by(LANES) {
        // SAFETY: the caller guarantees it.
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

/// Returns the sum over lanes, in the order of the scalar function: halves added to halves.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn sum(v: __m512) -> f32 {
    let v = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v));
    let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
    let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
    _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
}
