//! A fast random rotation: rounds of signs and Hadamard blocks, without a matrix.

#[cfg(target_arch = "x86_64")]
use crate::distance::Isa;

/// Rounds of signs and Hadamard blocks; after the fourth, coordinates of a unit vector are as good as Gaussian.
pub(super) const ROUNDS: usize = 4;
/// Values of an AVX-512 register.
const PART: usize = 16;

/// The rounds of a Hadamard rotation.
pub(super) fn turn(values: &mut [f32], signs: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    match Isa::best() {
        // SAFETY: the CPU has the instructions. (Bench: `code_table`, prepare and encode.)
        Isa::Avx512 | Isa::Avx512Vnni => return unsafe { turn_avx512(values, signs) },
        // SAFETY: as above.
        Isa::Avx2 => return unsafe { turn_avx2(values, signs) },
        _ => {}
    }
    turn_rounds(values, signs, |part| add_partners(part, 1));
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq")]
fn turn_avx512(values: &mut [f32], signs: &[u8]) {
    use std::arch::x86_64::*;
    turn_rounds(values, signs, |part| {
        // The upper of two partners takes the lower minus itself.
        let differ = |v, swapped, upper| _mm512_mask_sub_ps(_mm512_add_ps(v, swapped), upper, swapped, v);
        // SAFETY: a part is a register.
        let v = unsafe { _mm512_loadu_ps(part.as_ptr()) };
        let v = differ(v, _mm512_permute_ps::<0xB1>(v), 0xAAAA);
        let v = differ(v, _mm512_permute_ps::<0x4E>(v), 0xCCCC);
        let v = differ(v, _mm512_shuffle_f32x4::<0xB1>(v, v), 0xF0F0);
        let v = differ(v, _mm512_shuffle_f32x4::<0x4E>(v, v), 0xFF00);
        // SAFETY: as above.
        unsafe { _mm512_storeu_ps(part.as_mut_ptr(), v) };
    });
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn turn_avx2(values: &mut [f32], signs: &[u8]) {
    turn_rounds(values, signs, |part| add_partners(part, 1));
}

/// `near` adds up the partners that lie less than [`PART`] apart, in a part of that many values.
#[inline(always)]
pub(super) fn turn_rounds(values: &mut [f32], signs: &[u8], near: impl Fn(&mut [f32; PART])) {
    for round in 0..ROUNDS {
        flip(values, signs, round * values.len());
        blocks(values, round % 2 == 1, &near);
    }
}

/// Changes the sign of value `i` where bit `first + i` is set.
#[inline(always)]
pub(super) fn flip(values: &mut [f32], signs: &[u8], first: usize) {
    for (i, eight) in values.chunks_mut(8).enumerate() {
        let bit = first + 8 * i;
        let later = signs.get(bit / 8 + 1).copied().unwrap_or(0);
        let bits = u32::from(u16::from_le_bytes([signs[bit / 8], later])) >> (bit % 8);
        for (l, v) in eight.iter_mut().enumerate() {
            *v = f32::from_bits(v.to_bits() ^ (bits >> l & 1) << 31);
        }
    }
}

/// One Hadamard block over the first (or, `from_end`, the last) power of two of `values`.
#[inline(always)]
pub(super) fn blocks(values: &mut [f32], from_end: bool, near: impl Fn(&mut [f32; PART])) {
    let dim = values.len();
    let size = 1usize << dim.ilog2();
    let block = if from_end { &mut values[dim - size..] } else { &mut values[..size] };
    if size < PART {
        add_partners(block, 1);
    } else {
        block.as_chunks_mut::<PART>().0.iter_mut().for_each(near);
        add_partners(block, PART);
    }
    let unit = 1.0 / (size as f32).sqrt();
    block.iter_mut().for_each(|v| *v *= unit);
}

/// Sums and differences of partners, which lie `half` apart, then twice that, and so on.
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
