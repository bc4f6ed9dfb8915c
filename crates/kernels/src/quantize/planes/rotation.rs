//! Orthogonal maps: fast random ones for RaBitQ, dense ones (principal axes) for allocated bits.

use crate::distance::Isa;
use crate::kmeans::random::Random;
use crate::quantize::QuantizeError;
use crate::quantize::bytes::{Reader, Writer};

/// Rounds of signs and Hadamard blocks; after the fourth, coordinates of a unit vector are as good as Gaussian.
const ROUNDS: usize = 4;

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
                for round in 0..ROUNDS {
                    flip(&mut out[..*dim], signs, round * dim);
                    blocks(&mut out[..*dim], round % 2 == 1);
                }
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
                    blocks(out, round % 2 == 1);
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

/// Rows times columns, of which the result's rows are `stride` apart.
pub(super) struct Product<'a> {
    pub(super) rows: &'a [f32],
    pub(super) dim: usize,
    pub(super) columns: &'a [f32],
    pub(super) kept: usize,
    pub(super) stride: usize,
}

/// The same floats as row by row, on every instruction set: each sum runs over the inputs in order, nothing is fused.
pub(super) fn multiply(product: &Product<'_>, out: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    match Isa::best() {
        // SAFETY: the CPU has the instructions. (Bench: `group_table`, encode.)
        Isa::Avx512 | Isa::Avx512Vnni => return unsafe { super::encode_avx512::multiply(product, out) },
        // SAFETY: as above.
        Isa::Avx2 => return unsafe { multiply_avx2(product, out) },
        _ => {}
    }
    product.tiles::<2, 8>(out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn multiply_avx2(product: &Product<'_>, out: &mut [f32]) {
    product.tiles::<4, 16>(out);
}

impl Product<'_> {
    /// All results, in tiles of `R` rows and `W` columns whose sums stay in registers; what is left over in narrow
    /// ones.
    #[inline(always)]
    fn tiles<const R: usize, const W: usize>(&self, out: &mut [f32]) {
        let mut at = 0;
        while at + W <= self.kept {
            self.panel::<R, W>(at, out);
            at += W;
        }
        while at + 8 <= self.kept {
            self.panel::<R, 8>(at, out);
            at += 8;
        }
        while at < self.kept {
            self.panel::<R, 1>(at, out);
            at += 1;
        }
    }

    #[inline(always)]
    fn panel<const R: usize, const W: usize>(&self, at: usize, out: &mut [f32]) {
        let rows = self.rows.len() / self.dim;
        let mut row = 0;
        while row + R <= rows {
            self.tile::<R, W>(row, at, out);
            row += R;
        }
        while row < rows {
            self.tile::<1, W>(row, at, out);
            row += 1;
        }
    }

    #[inline(always)]
    fn tile<const R: usize, const W: usize>(&self, row: usize, at: usize, out: &mut [f32]) {
        let mut sums = [[0.0f32; W]; R];
        let rows: [&[f32]; R] = std::array::from_fn(|r| &self.rows[(row + r) * self.dim..][..self.dim]);
        for (i, column) in self.columns.chunks_exact(self.kept).enumerate().take(self.dim) {
            let column = &column[at..at + W];
            for r in 0..R {
                let x = rows[r][i];
                sums[r].iter_mut().zip(column).for_each(|(s, c)| *s += x * c);
            }
        }
        for (r, sums) in sums.iter().enumerate() {
            out[(row + r) * self.stride + at..][..W].copy_from_slice(sums);
        }
    }
}

fn flip(values: &mut [f32], signs: &[u8], first: usize) {
    for (i, v) in values.iter_mut().enumerate() {
        let bit = first + i;
        if signs[bit / 8] >> (bit % 8) & 1 == 1 {
            *v = -*v;
        }
    }
}

/// One Hadamard block over the first (or, `from_end`, the last) power of two of `values`.
fn blocks(values: &mut [f32], from_end: bool) {
    let dim = values.len();
    let size = 1usize << dim.ilog2();
    let block = if from_end { &mut values[dim - size..] } else { &mut values[..size] };
    let mut half = 1;
    while half < size {
        for pair in block.chunks_exact_mut(2 * half) {
            let (low, high) = pair.split_at_mut(half);
            for (a, b) in low.iter_mut().zip(high) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        half *= 2;
    }
    let unit = 1.0 / (size as f32).sqrt();
    block.iter_mut().for_each(|v| *v *= unit);
}
