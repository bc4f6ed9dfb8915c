//! Products of few rows and many columns. The sums are the same with every instruction set.

#[cfg(target_arch = "x86_64")]
mod avx512;

#[cfg(target_arch = "x86_64")]
use crate::distance::Isa;

/// The operands and shape of a product of rows and columns.
#[derive(Debug, Clone, Copy)]
pub struct Product<'a> {
    /// The rows, row-major.
    pub rows: &'a [f32],
    /// Number of values in a row and in a column, at least 1.
    pub dim: usize,
    /// The columns, `dim x kept`, interleaved: value `i` of all, then value `i + 1`.
    pub columns: &'a [f32],
    /// Number of columns.
    pub kept: usize,
    /// Values from one row of the result to the next, at least `kept`.
    pub stride: usize,
}

/// Sets the first `kept` values of each row of `out` to the products of a row with the columns.
///
/// Each sum runs over the inputs in order, and multiplications and additions are not fused. So the floats are
/// the same with every instruction set.
///
/// # Panics
/// If `out` or the columns are too short.
pub fn multiply(product: &Product<'_>, out: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    match Isa::best() {
        // SAFETY: the CPU has the instructions. (Bench: `group_table`, encode.)
        Isa::Avx512 | Isa::Avx512Vnni => return unsafe { avx512::multiply(product, out) },
        // SAFETY: as above.
        Isa::Avx2 => return unsafe { multiply_avx2(product, out) },
        _ => {}
    }
    product.tiles::<2, 8>(out);
}

/// Sets `out` to the products of one row with the columns of several matrices. `matrices` holds them one
/// after the other, `kept` interleaved columns each.
///
/// The floats are those of [`multiply`] for each matrix. It is faster, because it computes the sums of
/// several matrices at once; the additions of one sum have to wait for each other.
///
/// # Panics
/// If `matrices` is too short for `out`.
pub fn multiply_each(row: &[f32], matrices: &[f32], kept: usize, out: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    match Isa::best() {
        // SAFETY: the CPU has the instructions. (Bench: `hashes`.)
        Isa::Avx512 | Isa::Avx512Vnni => return unsafe { multiply_each_avx512(row, matrices, kept, out) },
        // SAFETY: as above.
        Isa::Avx2 => return unsafe { multiply_each_avx2(row, matrices, kept, out) },
        _ => {}
    }
    multiply_each_by::<2>(row, matrices, kept, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn multiply_each_avx512(row: &[f32], matrices: &[f32], kept: usize, out: &mut [f32]) {
    multiply_each_by::<8>(row, matrices, kept, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn multiply_each_avx2(row: &[f32], matrices: &[f32], kept: usize, out: &mut [f32]) {
    multiply_each_by::<4>(row, matrices, kept, out);
}

/// Computes [`multiply_each`] with `M` matrices at once, and the remaining matrices one by one.
#[inline(always)]
fn multiply_each_by<const M: usize>(row: &[f32], matrices: &[f32], kept: usize, out: &mut [f32]) {
    let size = (row.len() * kept).max(1);
    let whole = out.len() / kept / M * M;
    let (grouped, rest) = out.split_at_mut(whole * kept);
    for (out, matrices) in grouped.chunks_exact_mut(M * kept).zip(matrices.chunks(M * size)) {
        multiply_group::<M>(row, matrices, kept, out);
    }
    for (out, matrix) in rest.chunks_exact_mut(kept).zip(matrices[whole * size..].chunks(size)) {
        multiply_group::<1>(row, matrix, kept, out);
    }
}

/// Computes the products with `M` matrices, in tiles of 16 columns, then of 8, then of 1.
#[inline(always)]
fn multiply_group<const M: usize>(row: &[f32], matrices: &[f32], kept: usize, out: &mut [f32]) {
    let size = row.len() * kept;
    let matrices: [&[f32]; M] = std::array::from_fn(|m| &matrices[m * size..][..size]);
    let mut at = 0;
    while at + 16 <= kept {
        multiply_columns::<M, 16>(row, matrices, kept, at, out);
        at += 16;
    }
    while at + 8 <= kept {
        multiply_columns::<M, 8>(row, matrices, kept, at, out);
        at += 8;
    }
    while at < kept {
        multiply_columns::<M, 1>(row, matrices, kept, at, out);
        at += 1;
    }
}

#[inline(always)]
fn multiply_columns<const M: usize, const W: usize>(
    row: &[f32],
    matrices: [&[f32]; M],
    kept: usize,
    at: usize,
    out: &mut [f32],
) {
    let mut sums = [[0.0_f32; W]; M];
    for (i, x) in row.iter().enumerate() {
        for (sums, matrix) in sums.iter_mut().zip(&matrices) {
            let column = &matrix[i * kept + at..][..W];
            sums.iter_mut().zip(column).for_each(|(sum, value)| *sum += x * value);
        }
    }
    for (sums, out) in sums.iter().zip(out.chunks_exact_mut(kept)) {
        out[at..at + W].copy_from_slice(sums);
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn multiply_avx2(product: &Product<'_>, out: &mut [f32]) {
    product.tiles::<4, 16>(out);
}

impl Product<'_> {
    /// Computes all results, in tiles of `R` rows and `W` columns whose sums stay in registers. Remaining
    /// rows and columns take narrower tiles.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kmeans::random::Random;

    #[test]
    fn a_product_with_several_matrices_equals_those_with_each() {
        for (dim, kept, count) in [(1, 1, 1), (7, 5, 9), (100, 16, 16), (33, 32, 3), (65, 12, 21), (20, 9, 0)]
        {
            let mut random = Random::new((count * dim) as u64);
            let mut floats = |count: usize| (0..count).map(|_| random.normal() as f32).collect::<Vec<f32>>();
            let (row, matrices) = (floats(dim), floats(count * dim * kept));
            let mut expected = vec![0.0; count * kept];
            for (matrix, out) in matrices.chunks(dim * kept).zip(expected.chunks_mut(kept)) {
                multiply(&Product { rows: &row, dim, columns: matrix, kept, stride: kept }, out);
            }
            let mut out = vec![0.0; count * kept];
            multiply_each(&row, &matrices, kept, &mut out);
            assert_eq!(out, expected, "{dim} x {kept}, {count} times");
            out.fill(0.0);
            multiply_each_by::<2>(&row, &matrices, kept, &mut out);
            assert_eq!(out, expected, "{dim} x {kept}, {count} times, any instruction set");
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx2") {
                out.fill(0.0);
                // SAFETY: the line above detected the instructions.
                unsafe { multiply_each_avx2(&row, &matrices, kept, &mut out) };
                assert_eq!(out, expected, "{dim} x {kept}, {count} times, avx2");
            }
        }
    }

    #[test]
    fn sums_run_in_order_with_every_instruction_set() {
        for (rows, dim, kept, stride) in
            [(1, 1, 1, 1), (3, 7, 5, 9), (5, 100, 32, 32), (13, 33, 67, 70), (9, 260, 129, 129)]
        {
            let mut random = Random::new((rows * dim) as u64);
            let mut floats = |count: usize| (0..count).map(|_| random.normal() as f32).collect::<Vec<f32>>();
            let (left, columns) = (floats(rows * dim), floats(dim * kept));
            let product = Product { rows: &left, dim, columns: &columns, kept, stride };
            let mut expected = vec![0.0; rows * stride];
            for (row, out) in left.chunks(dim).zip(expected.chunks_mut(stride)) {
                for (column, sum) in out.iter_mut().enumerate().take(kept) {
                    *sum =
                        row.iter().enumerate().fold(0.0, |sum, (i, x)| sum + x * columns[i * kept + column]);
                }
            }
            let mut out = vec![0.0; rows * stride];
            multiply(&product, &mut out);
            assert_eq!(out, expected, "{rows} x {dim} x {kept}");
            out.fill(0.0);
            product.tiles::<2, 8>(&mut out);
            assert_eq!(out, expected, "{rows} x {dim} x {kept}, any instruction set");
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx2") {
                out.fill(0.0);
                // SAFETY: the line above detected the instructions.
                unsafe { multiply_avx2(&product, &mut out) };
                assert_eq!(out, expected, "{rows} x {dim} x {kept}, avx2");
            }
        }
    }
}
