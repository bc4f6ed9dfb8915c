//! The two factors of a code: f16 or f32, read and written by bits.

use half::f16;

/// 2^112 moves the exponent of f16 to that of f32.
const HALF_TO_FLOAT: f32 = f32::from_bits((127 + 112) << 23);

/// Decodes a non-negative f16 by bits; its infinities and NaNs become large finite numbers.
#[inline(always)]
pub(super) fn from_half(bits: u32) -> f32 {
    f32::from_bits((bits & 0x7FFF) << 13) * HALF_TO_FLOAT
}

/// The two factors at the start of a code, as f16 where `narrow`, as f32 otherwise; finite for any bytes.
pub(super) fn load_factors(narrow: bool, code: &[u8]) -> (f32, f32) {
    let word = |i: usize| u32::from_le_bytes([code[i], code[i + 1], code[i + 2], code[i + 3]]);
    if narrow {
        return (from_half(word(0)), from_half(word(0) >> 16));
    }
    (from_float(word(0)), from_float(word(4)))
}

#[inline(always)]
pub(super) fn from_float(bits: u32) -> f32 {
    let value = f32::from_bits(bits);
    if value.abs() < f32::INFINITY { value } else { 0.0 }
}

/// Writes the factors; values that do not fit are cut off.
pub(super) fn store_factors(narrow: bool, norm: f32, gain: f32, code: &mut [u8]) {
    if narrow {
        let pack = |v: f32| f16::from_f32(v.clamp(0.0, 65504.0)).to_le_bytes();
        code[..2].copy_from_slice(&pack(norm));
        code[2..4].copy_from_slice(&pack(gain));
    } else {
        code[..4].copy_from_slice(&norm.min(f32::MAX).to_le_bytes());
        code[4..8].copy_from_slice(&gain.min(f32::MAX).to_le_bytes());
    }
}

/// `value` as f16, cut off at the largest finite one.
pub(super) fn half_of(value: f32) -> f16 {
    f16::from_f32(value.clamp(-65504.0, 65504.0))
}
