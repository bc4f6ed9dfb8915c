//! Products of few rows and many columns, with sums that are the same on every instruction set.

#[cfg(target_arch = "x86_64")]
mod avx512;

use crate::distance::Isa;

/// Rows times columns.
#[derive(Debug, Clone, Copy)]
pub struct Product<'a> {
    /// The rows, row-major.
    pub rows: &'a [f32],
    /// Values of a row, at least 1, and columns' length.
    pub dim: usize,
    /// The columns, interleaved: value `i` of all, then value `i + 1`.
    pub columns: &'a [f32],
    /// Number of columns.
    pub kept: usize,
    /// Values from one row of the result to the next, at least `kept`.
    pub stride: usize,
}

/// Sets the first `kept` values of each of the rows of `out`. The same floats as row by row, on every instruction set: each sum
/// runs over the inputs in order, nothing is fused.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kmeans::random::Random;

    #[test]
    fn sums_run_in_order_on_every_instruction_set() {
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
                // SAFETY: the instructions were found a line above.
                unsafe { multiply_avx2(&product, &mut out) };
                assert_eq!(out, expected, "{rows} x {dim} x {kept}, avx2");
            }
        }
    }
}
