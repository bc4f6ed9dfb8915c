//! The product of one vector and a matrix of floats.

#[cfg(target_arch = "x86_64")]
use crate::distance::Isa;

/// Adds `row[i]` times column `i` to `out`, for each `i`. Multiplications and additions are not fused, so the
/// floats are the same with every instruction set.
pub(super) fn sum_columns(row: &[f32], columns: &[f32], out: &mut [f32]) {
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
