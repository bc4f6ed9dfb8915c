//! Byte rotations with AVX-512 VNNI, which computes four products and their sum in one instruction.

use super::bytes::{LANES, PANEL, Panel, QUAD};
use std::arch::x86_64::*;

/// # Safety
/// The CPU has AVX-512 F and VNNI. The panel has `parts.len()` quads of its axes, `upper` and `lower` a value
/// for each axis.
#[target_feature(enable = "avx512f,avx512vnni")]
pub(super) unsafe fn sum(panel: &Panel<'_>, parts: &[[u8; 2 * QUAD]], upper: &mut [i32], lower: &mut [i32]) {
    let axes = panel.registers * LANES;
    assert!(panel.weights.len() >= parts.len() * axes * QUAD && upper.len().min(lower.len()) >= axes);
    // SAFETY: the caller guarantees the instructions; the lengths are checked above.
    unsafe {
        match panel.registers {
            1 => registers::<1>(panel, parts, upper, lower),
            2 => registers::<2>(panel, parts, upper, lower),
            3 => registers::<3>(panel, parts, upper, lower),
            4 => registers::<4>(panel, parts, upper, lower),
            5 => registers::<5>(panel, parts, upper, lower),
            6 => registers::<6>(panel, parts, upper, lower),
            7 => registers::<7>(panel, parts, upper, lower),
            _ => registers::<{ PANEL / LANES }>(panel, parts, upper, lower),
        }
    }
}

/// # Safety
/// As [`sum`], for a panel of `N` registers.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn registers<const N: usize>(
    panel: &Panel<'_>,
    parts: &[[u8; 2 * QUAD]],
    upper: &mut [i32],
    lower: &mut [i32],
) {
    let (mut uppers, mut lowers) = ([_mm512_setzero_si512(); N], [_mm512_setzero_si512(); N]);
    let mut weights = panel.weights.as_ptr();
    for parts in parts {
        let [high, low] = [0, QUAD].map(|at| {
            _mm512_set1_epi32(i32::from_le_bytes([parts[at], parts[at + 1], parts[at + 2], parts[at + 3]]))
        });
        for (register, (upper, lower)) in uppers.iter_mut().zip(&mut lowers).enumerate() {
            // SAFETY: the panel has `N` registers for each of the parts.
            let weight = unsafe { _mm512_loadu_si512(weights.add(register * 64).cast()) };
            *upper = _mm512_dpbusd_epi32(*upper, high, weight);
            *lower = _mm512_dpbusd_epi32(*lower, low, weight);
        }
        // SAFETY: the address is at most one past the end.
        weights = unsafe { weights.add(N * 64) };
    }
    for (register, sums) in uppers.into_iter().zip(lowers).enumerate() {
        // SAFETY: there is a value for each axis.
        unsafe {
            _mm512_storeu_si512(upper.as_mut_ptr().add(register * LANES).cast(), sums.0);
            _mm512_storeu_si512(lower.as_mut_ptr().add(register * LANES).cast(), sums.1);
        }
    }
}
