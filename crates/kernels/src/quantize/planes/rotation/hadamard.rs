//! A fast random rotation without a matrix: rounds of random signs and Hadamard blocks.

#[cfg(target_arch = "x86_64")]
use crate::distance::Isa;

/// Rounds of signs and Hadamard blocks. After four, the coordinates of a unit vector are nearly Gaussian.
pub(super) const ROUNDS: usize = 4;
/// Values in an AVX-512 register.
const PART: usize = 16;

/// Applies the Hadamard rotation to `values`.
pub(super) fn rotate(values: &mut [f32], signs: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    match Isa::best() {
        // SAFETY: the CPU has the instructions. (Bench: `code_table`, prepare and encode.)
        Isa::Avx512 | Isa::Avx512Vnni => return unsafe { rotate_avx512(values, signs) },
        // SAFETY: as above.
        Isa::Avx2 => return unsafe { rotate_avx2(values, signs) },
        _ => {}
    }
    rotate_rounds(values, signs, |part| add_partners(part, 1));
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq")]
fn rotate_avx512(values: &mut [f32], signs: &[u8]) {
    use std::arch::x86_64::*;
    rotate_rounds(values, signs, |part| {
        // The lower of two partners becomes their sum, the upper one the lower minus the upper.
        let butterfly = |v, swapped, upper| _mm512_mask_sub_ps(_mm512_add_ps(v, swapped), upper, swapped, v);
        // SAFETY: a part fills a register.
        let v = unsafe { _mm512_loadu_ps(part.as_ptr()) };
        let v = butterfly(v, _mm512_permute_ps::<0xB1>(v), 0xAAAA);
        let v = butterfly(v, _mm512_permute_ps::<0x4E>(v), 0xCCCC);
        let v = butterfly(v, _mm512_shuffle_f32x4::<0xB1>(v, v), 0xF0F0);
        let v = butterfly(v, _mm512_shuffle_f32x4::<0x4E>(v, v), 0xFF00);
        // SAFETY: as above.
        unsafe { _mm512_storeu_ps(part.as_mut_ptr(), v) };
    });
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn rotate_avx2(values: &mut [f32], signs: &[u8]) {
    rotate_rounds(values, signs, |part| add_partners(part, 1));
}

/// Applies all rounds. `add_near` adds the partners that are less than [`PART`] apart, within a part of
/// [`PART`] values.
#[inline(always)]
pub(super) fn rotate_rounds(values: &mut [f32], signs: &[u8], add_near: impl Fn(&mut [f32; PART])) {
    for round in 0..ROUNDS {
        flip_signs(values, signs, round * values.len());
        hadamard_block(values, round % 2 == 1, &add_near);
    }
}

/// Changes the sign of value `i` if bit `first + i` is set.
#[inline(always)]
pub(super) fn flip_signs(values: &mut [f32], signs: &[u8], first: usize) {
    for (i, eight) in values.chunks_mut(8).enumerate() {
        let bit = first + 8 * i;
        let later = signs.get(bit / 8 + 1).copied().unwrap_or(0);
        let bits = u32::from(u16::from_le_bytes([signs[bit / 8], later])) >> (bit % 8);
        for (l, v) in eight.iter_mut().enumerate() {
            *v = f32::from_bits(v.to_bits() ^ (bits >> l & 1) << 31);
        }
    }
}

/// Applies the Hadamard transform to the largest power of two of `values`: the first ones, or with `from_end`
/// the last ones.
#[inline(always)]
pub(super) fn hadamard_block(values: &mut [f32], from_end: bool, add_near: impl Fn(&mut [f32; PART])) {
    let dim = values.len();
    let size = 1usize << dim.ilog2();
    let block = if from_end { &mut values[dim - size..] } else { &mut values[..size] };
    if size < PART {
        add_partners(block, 1);
    } else {
        block.as_chunks_mut::<PART>().0.iter_mut().for_each(add_near);
        add_partners(block, PART);
    }
    let unit = 1.0 / (size as f32).sqrt();
    block.iter_mut().for_each(|v| *v *= unit);
}

/// Replaces partners by their sums and differences. Partners are `half` apart, then twice `half`, and so on.
#[inline(always)]
pub(super) fn add_partners(block: &mut [f32], mut half: usize) {
    while half < block.len() {
        for pair in block.chunks_exact_mut(2 * half) {
            let (low, high) = pair.split_at_mut(half);
            for (a, b) in low.iter_mut().zip(high) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        half *= 2;
    }
}
