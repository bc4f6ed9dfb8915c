//! Products with AVX-512, in tiles of rows and columns whose sums are in registers.

use super::Product;
use std::arch::x86_64::*;

/// Values in a register.
const LANES: usize = 16;
/// Rows in a tile. With two registers for each row, 16 sums hide the latency of an addition.
const ROWS: usize = 8;

/// Computes the same floats as [`Product::tiles`].
///
/// # Safety
/// The CPU has AVX-512 F; `out` holds `stride` values for each row, at least `kept`.
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn multiply(product: &Product<'_>, out: &mut [f32]) {
    let count = product.rows.len() / product.dim;
    assert!(product.columns.len() >= product.dim * product.kept && out.len() >= count * product.stride);
    for at in (0..product.kept).step_by(2 * LANES) {
        for first in (0..count).step_by(ROWS) {
            // SAFETY: rows and columns are within the slices, as was checked above.
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
        // SAFETY: the mask keeps the loads within column `i`; each row has `dim` values.
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
            // SAFETY: the mask keeps the stores within the row's `kept` values.
            unsafe {
                let to = out.as_mut_ptr().add((first + r) * product.stride + at + w * LANES);
                _mm512_mask_storeu_ps(to, masks[w], sums[w]);
            }
        }
    }
}
