//! Rotations: fast random ones for RaBitQ, and dense ones (principal axes) in bytes or in floats for
//! allocated bits.

mod bytes;
#[cfg(target_arch = "x86_64")]
mod bytes_avx2;
#[cfg(target_arch = "x86_64")]
mod bytes_avx512;
mod dense;
mod hadamard;

use crate::kmeans::random::Random;
use crate::product::{Product, multiply};
use crate::quantize::code::QuantizeError;
use crate::quantize::code::bytes::{ByteReader, ByteWriter};
use bytes::ByteRotation;
pub(super) use bytes::QueryParts;
use dense::sum_columns;
use hadamard::{ROUNDS, add_partners, flip_signs, hadamard_block, rotate};

/// A rotation of vectors of `dim` values.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Rotation {
    /// Rounds of random signs and of two overlapping Hadamard blocks, whose sizes are powers of two:
    /// `O(d log d)`, any `d`.
    Hadamard { signs: Vec<u8>, dim: usize },
    /// A matrix of `kept` orthonormal rows of `dim` values, stored by columns: `dim x kept`.
    Dense { columns: Vec<f32>, dim: usize, kept: usize },
    /// A dense matrix that is rounded to bytes.
    Bytes(Box<ByteRotation>),
}

impl Rotation {
    pub(super) fn random(dim: usize, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let signs = (0..(ROUNDS * dim).div_ceil(8)).map(|_| random.next() as u8).collect();
        Rotation::Hadamard { signs, dim }
    }

    /// Creates a dense rotation of `dim x kept` weights. If `rounded`, it is stored in bytes, if these are
    /// precise enough.
    pub(super) fn dense(columns: Vec<f32>, dim: usize, kept: usize, rounded: bool) -> Self {
        let bytes = if rounded { ByteRotation::round(&columns, dim, kept) } else { None };
        bytes.map_or(Rotation::Dense { columns, dim, kept }, |bytes| Rotation::Bytes(Box::new(bytes)))
    }

    /// Returns the number of axes of a dense rotation; `None` for a Hadamard rotation.
    pub(super) fn axes(&self) -> Option<usize> {
        match self {
            Rotation::Hadamard { .. } => None,
            Rotation::Dense { kept, .. } => Some(*kept),
            Rotation::Bytes(rotation) => Some(rotation.kept()),
        }
    }

    /// Returns true if the matrix consists of bytes.
    pub(super) fn is_of_bytes(&self) -> bool {
        matches!(self, Rotation::Bytes(_))
    }

    /// Writes the rotated `row`, a query, to `out`. `out` holds at least the kept values; the rest of it
    /// becomes 0. `parts` is scratch memory.
    pub(super) fn apply(&self, row: &[f32], parts: &mut QueryParts, out: &mut [f32]) {
        match self {
            Rotation::Hadamard { signs, dim } => {
                out[..*dim].copy_from_slice(row);
                out[*dim..].fill(0.0);
                rotate(&mut out[..*dim], signs);
            }
            Rotation::Dense { columns, kept, .. } => {
                out.fill(0.0);
                sum_columns(row, columns, &mut out[..*kept]);
            }
            Rotation::Bytes(rotation) => {
                out[rotation.kept()..].fill(0.0);
                rotation.apply(row, parts, out);
            }
        }
    }

    /// Rotates the `n x dim` `rows`, which are vectors to encode. Rows of `out` are `stride` values apart.
    pub(super) fn apply_rows(&self, rows: &[f32], stride: usize, out: &mut [f32]) {
        match self {
            Rotation::Hadamard { dim, .. } => {
                let mut unused = QueryParts::default();
                for (row, out) in rows.chunks_exact(*dim).zip(out.chunks_exact_mut(stride)) {
                    self.apply(row, &mut unused, out);
                }
            }
            Rotation::Dense { columns, dim, kept } => {
                out.fill(0.0);
                multiply(&Product { rows, dim: *dim, columns, kept: *kept, stride }, out);
            }
            Rotation::Bytes(rotation) => {
                let (columns, dim, kept) = (rotation.columns(), rotation.dim(), rotation.kept());
                out.fill(0.0);
                multiply(&Product { rows, dim, columns, kept, stride }, out);
            }
        }
    }

    /// Applies the inverse (the transpose) to `rotated` and writes the result to `out` (`dim` values).
    pub(super) fn invert(&self, rotated: &[f32], out: &mut [f32]) {
        match self {
            Rotation::Hadamard { signs, dim } => {
                out.copy_from_slice(&rotated[..*dim]);
                for round in (0..ROUNDS).rev() {
                    hadamard_block(out, round % 2 == 1, |part| add_partners(part, 1));
                    flip_signs(out, signs, round * dim);
                }
            }
            Rotation::Dense { columns, kept, .. } => apply_transpose(columns, *kept, rotated, out),
            Rotation::Bytes(rotation) => apply_transpose(rotation.columns(), rotation.kept(), rotated, out),
        }
    }

    pub(super) fn write(&self, writer: &mut ByteWriter) {
        match self {
            Rotation::Hadamard { signs, .. } => {
                writer.u32(0);
                writer.bytes(signs);
            }
            Rotation::Dense { columns, kept, .. } => {
                writer.u32(*kept as u32);
                writer.floats(columns);
            }
            Rotation::Bytes(rotation) => rotation.write(writer),
        }
    }

    /// Reads a rotation of `dim` dimensions that keeps at most `most` of them. `byte_rotation` is true if a
    /// dense rotation is stored in bytes.
    pub(super) fn read(
        dim: usize,
        most: usize,
        byte_rotation: bool,
        reader: &mut ByteReader<'_>,
    ) -> Result<Self, QuantizeError> {
        let kept = reader.u32()? as usize;
        if kept == 0 {
            if dim > most {
                return Err(QuantizeError::Malformed("fewer coded dimensions than rotated ones"));
            }
            let signs = reader.take((ROUNDS * dim).div_ceil(8))?.to_vec();
            return Ok(Rotation::Hadamard { signs, dim });
        }
        if kept > most || kept > dim {
            return Err(QuantizeError::Malformed("more rotated dimensions than coded ones"));
        }
        if byte_rotation {
            return Ok(Rotation::Bytes(Box::new(ByteRotation::read(dim, kept, reader)?)));
        }
        let columns = reader.floats(dim * kept)?;
        Ok(Rotation::Dense { columns, dim, kept })
    }
}

/// Applies the transpose of a dense rotation.
fn apply_transpose(columns: &[f32], kept: usize, rotated: &[f32], out: &mut [f32]) {
    for (o, column) in out.iter_mut().zip(columns.chunks_exact(kept)) {
        *o = rotated.iter().zip(column).map(|(r, c)| r * c).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::hadamard::rotate_rounds;
    use super::*;

    #[test]
    fn hadamard_rotations_equal_those_of_the_scalar_function_and_can_be_inverted() {
        for dim in [1, 2, 7, 15, 16, 17, 31, 33, 64, 100, 130, 300] {
            let mut random = Random::new(dim as u64);
            let row: Vec<f32> = (0..dim).map(|_| random.normal() as f32).collect();
            let rotation = Rotation::random(dim, 3);
            let (mut rotated, mut expected, mut back) = (vec![0.0; dim], row.clone(), vec![0.0; dim]);
            rotation.apply(&row, &mut QueryParts::default(), &mut rotated);
            let Rotation::Hadamard { signs, .. } = &rotation else { panic!("another rotation") };
            rotate_rounds(&mut expected, signs, |part| add_partners(part, 1));
            assert_eq!(rotated, expected);
            rotation.invert(&rotated, &mut back);
            assert!(row.iter().zip(&back).all(|(a, b)| (a - b).abs() < 1e-5), "{dim}");
        }
    }
}
