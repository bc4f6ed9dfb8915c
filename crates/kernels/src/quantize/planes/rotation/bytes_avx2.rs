//! Byte rotations with AVX2. Sums of two products of 7 and 8 bits are 16-bit numbers.

use super::bytes::{LANES, Panel, QUAD};
use std::arch::x86_64::*;

/// Registers in a pass.
const AT_ONCE: usize = 4;
/// Axes in a register.
const AXES: usize = 8;

/// # Safety
/// The CPU has AVX2. The panel has `parts.len()` quads of its axes, `upper` and `lower` a value for each
/// axis.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn sum(panel: &Panel<'_>, parts: &[[u8; 2 * QUAD]], upper: &mut [i32], lower: &mut [i32]) {
    let axes = panel.registers * LANES;
    assert!(panel.weights.len() >= parts.len() * axes * QUAD && upper.len().min(lower.len()) >= axes);
    let mut first = 0;
    while first < axes {
        // SAFETY: the axes from `first` on are within the panel.
        unsafe {
            if first + AT_ONCE * AXES <= axes {
                registers::<AT_ONCE>(panel, parts, first, upper, lower);
                first += AT_ONCE * AXES;
            } else {
                registers::<{ AT_ONCE / 2 }>(panel, parts, first, upper, lower);
                first += AT_ONCE / 2 * AXES;
            }
        }
    }
}

/// # Safety
/// As [`sum`]; the panel has `N` times [`AXES`] axes from `first` on.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn registers<const N: usize>(
    panel: &Panel<'_>,
    parts: &[[u8; 2 * QUAD]],
    first: usize,
    upper: &mut [i32],
    lower: &mut [i32],
) {
    let stride = panel.registers * LANES * QUAD;
    let ones = _mm256_set1_epi16(1);
    let (mut uppers, mut lowers) = ([_mm256_setzero_si256(); N], [_mm256_setzero_si256(); N]);
    // The sum of two products of 127 and 127 is less than 2^15.
    let products = |part, weight| _mm256_madd_epi16(_mm256_maddubs_epi16(part, weight), ones);
    for (quad, parts) in parts.iter().enumerate() {
        let [high, low] = [0, QUAD].map(|at| {
            _mm256_set1_epi32(i32::from_le_bytes([parts[at], parts[at + 1], parts[at + 2], parts[at + 3]]))
        });
        for (register, (upper, lower)) in uppers.iter_mut().zip(&mut lowers).enumerate() {
            // SAFETY: the panel has the weights of these axes for each of the parts.
            let weight = unsafe {
                let at = quad * stride + (first + register * AXES) * QUAD;
                _mm256_loadu_si256(panel.weights.as_ptr().add(at).cast())
            };
            *upper = _mm256_add_epi32(*upper, products(high, weight));
            *lower = _mm256_add_epi32(*lower, products(low, weight));
        }
    }
    for (register, sums) in uppers.into_iter().zip(lowers).enumerate() {
        let at = first + register * AXES;
        // SAFETY: there is a value for each axis.
        unsafe {
            _mm256_storeu_si256(upper.as_mut_ptr().add(at).cast(), sums.0);
            _mm256_storeu_si256(lower.as_mut_ptr().add(at).cast(), sums.1);
        }
    }
}
