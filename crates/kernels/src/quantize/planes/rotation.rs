//! Orthogonal maps: fast random ones for RaBitQ, dense ones (principal axes) for allocated bits.

use crate::distance::Isa;
use crate::kmeans::random::Random;
use crate::product::{Product, multiply};
use crate::quantize::code::QuantizeError;
use crate::quantize::code::bytes::{Reader, Writer};

/// Rounds of signs and Hadamard blocks; after the fourth, coordinates of a unit vector are as good as Gaussian.
const ROUNDS: usize = 4;
/// Values of an AVX-512 register.
const PART: usize = 16;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Rotation {
    /// Rounds of random signs and two overlapping Hadamard blocks of a power of two: `O(d log d)`, any `d`.
    Hadamard { signs: Vec<u8>, dim: usize },
    /// `kept` orthonormal rows of `dim`, stored by columns: `dim x kept`.
    Dense { columns: Vec<f32>, dim: usize, kept: usize },
}

impl Rotation {
    pub(super) fn random(dim: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let signs = (0..(ROUNDS * dim).div_ceil(8)).map(|_| random.next() as u8).collect();
        Rotation::Hadamard { signs, dim }
    }

    /// Writes the rotated `row` to `out` (at least as long as the rows that are kept; the rest becomes 0).
    pub(super) fn apply(&self, row: &[f32], out: &mut [f32]) {
        match self {
            Rotation::Hadamard { signs, dim } => {
                out[..*dim].copy_from_slice(row);
                out[*dim..].fill(0.0);
                turn(&mut out[..*dim], signs);
            }
            Rotation::Dense { columns, kept, .. } => {
                out.fill(0.0);
                sum_columns(row, columns, &mut out[..*kept]);
            }
        }
    }

    /// Rotates the `n x dim` `rows` as [`Rotation::apply`] does; rows of `out` are `stride` values apart.
    pub(super) fn apply_rows(&self, rows: &[f32], stride: usize, out: &mut [f32]) {
        match self {
            Rotation::Hadamard { dim, .. } => {
                for (row, out) in rows.chunks_exact(*dim).zip(out.chunks_exact_mut(stride)) {
                    self.apply(row, out);
                }
            }
            Rotation::Dense { columns, dim, kept } => {
                out.fill(0.0);
                multiply(&Product { rows, dim: *dim, columns, kept: *kept, stride }, out);
            }
        }
    }

    /// Writes the inverse (transpose) applied to `rotated` to `out` (`dim` values).
    pub(super) fn invert(&self, rotated: &[f32], out: &mut [f32]) {
        match self {
            Rotation::Hadamard { signs, dim } => {
                out.copy_from_slice(&rotated[..*dim]);
                for round in (0..ROUNDS).rev() {
                    blocks(out, round % 2 == 1, |part| add_partners(part, 1));
                    flip(out, signs, round * dim);
                }
            }
            Rotation::Dense { columns, kept, .. } => {
                for (o, column) in out.iter_mut().zip(columns.chunks_exact(*kept)) {
                    *o = rotated.iter().zip(column).map(|(r, c)| r * c).sum();
                }
            }
        }
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        match self {
            Rotation::Hadamard { signs, .. } => {
                writer.u32(0);
                writer.bytes(signs);
            }
            Rotation::Dense { columns, kept, .. } => {
                writer.u32(*kept as u32);
                writer.floats(columns);
            }
        }
    }

    /// Reads a rotation of `dim` dimensions that keeps at most `room` of them.
    pub(super) fn read(dim: usize, room: usize, reader: &mut Reader<'_>) -> Result<Self, QuantizeError> {
        let kept = reader.u32()? as usize;
        if kept == 0 {
            if dim > room {
                return Err(QuantizeError::Malformed("fewer coded dimensions than rotated ones"));
            }
            let signs = reader.take((ROUNDS * dim).div_ceil(8))?.to_vec();
            return Ok(Rotation::Hadamard { signs, dim });
        }
        if kept > room || kept > dim {
            return Err(QuantizeError::Malformed("more rotated dimensions than coded ones"));
        }
        let columns = reader.floats(dim * kept)?;
        Ok(Rotation::Dense { columns, dim, kept })
    }
}

/// Adds `row[i]` times column `i` to `out`; the same floats on every instruction set, as nothing is fused.
fn sum_columns(row: &[f32], columns: &[f32], out: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    match Isa::best() {
        // SAFETY: the CPU has the instructions. (Bench: `code_table`, prepare.)
        Isa::Avx512 | Isa::Avx512Vnni => return unsafe { sum_columns_avx512(row, columns, out) },
        // SAFETY: as above.
        Isa::Avx2 => return unsafe { sum_columns_avx2(row, columns, out) },
        _ => {}
    }
    sum_columns_loop(row, columns, out);
}

#[inline(always)]
fn sum_columns_loop(row: &[f32], columns: &[f32], out: &mut [f32]) {
    for (&x, column) in row.iter().zip(columns.chunks_exact(out.len())) {
        out.iter_mut().zip(column).for_each(|(o, c)| *o += x * c);
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn sum_columns_avx512(row: &[f32], columns: &[f32], out: &mut [f32]) {
    sum_columns_loop(row, columns, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn sum_columns_avx2(row: &[f32], columns: &[f32], out: &mut [f32]) {
    sum_columns_loop(row, columns, out);
}

/// The rounds of a Hadamard rotation.
fn turn(values: &mut [f32], signs: &[u8]) {
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
fn turn_rounds(values: &mut [f32], signs: &[u8], near: impl Fn(&mut [f32; PART])) {
    for round in 0..ROUNDS {
        flip(values, signs, round * values.len());
        blocks(values, round % 2 == 1, &near);
    }
}

/// Changes the sign of value `i` where bit `first + i` is set.
#[inline(always)]
fn flip(values: &mut [f32], signs: &[u8], first: usize) {
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
fn blocks(values: &mut [f32], from_end: bool, near: impl Fn(&mut [f32; PART])) {
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
fn add_partners(block: &mut [f32], mut half: usize) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_the_same_on_this_cpu_as_on_any_and_can_be_undone() {
        for dim in [1, 2, 7, 15, 16, 17, 31, 33, 64, 100, 130, 300] {
            let mut random = Random::new(dim as u64);
            let row: Vec<f32> = (0..dim).map(|_| random.normal() as f32).collect();
            let rotation = Rotation::random(dim, 3);
            let (mut here, mut anywhere, mut back) = (vec![0.0; dim], row.clone(), vec![0.0; dim]);
            rotation.apply(&row, &mut here);
            let Rotation::Hadamard { signs, .. } = &rotation else { panic!("another rotation") };
            turn_rounds(&mut anywhere, signs, |part| add_partners(part, 1));
            assert_eq!(here, anywhere);
            rotation.invert(&here, &mut back);
            assert!(row.iter().zip(&back).all(|(a, b)| (a - b).abs() < 1e-5), "{dim}");
        }
    }
}
