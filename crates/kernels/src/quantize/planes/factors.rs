//! The two factors of a code, stored as f16 or f32.

use half::f16;

/// 2^112: the factor that turns the exponent of an f16 into that of an f32.
const HALF_TO_FLOAT: f32 = f32::from_bits((127 + 112) << 23);

/// Converts the bits of a non-negative f16 to f32. Infinities and NaNs become large finite numbers.
#[inline(always)]
pub(super) fn from_half(bits: u32) -> f32 {
    f32::from_bits((bits & 0x7FFF) << 13) * HALF_TO_FLOAT
}

/// Reads the two factors at the start of a code: f16 if `narrow`, otherwise f32. The results are finite for
/// any bytes.
pub(super) fn load_factors(narrow: bool, code: &[u8]) -> (f32, f32) {
    let word = |i: usize| u32::from_le_bytes([code[i], code[i + 1], code[i + 2], code[i + 3]]);
    if narrow {
        return (from_half(word(0)), from_half(word(0) >> 16));
    }
    (from_float(word(0)), from_float(word(4)))
}

/// Converts the bits of an f32. Infinities and NaNs become 0.
#[inline(always)]
pub(super) fn from_float(bits: u32) -> f32 {
    let value = f32::from_bits(bits);
    if value.abs() < f32::INFINITY { value } else { 0.0 }
}

/// Writes the factors. Values that do not fit are clamped.
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

/// Converts `value` to f16, clamped to its finite numbers.
pub(super) fn half_of(value: f32) -> f16 {
    f16::from_f32(value.clamp(-65504.0, 65504.0))
}
