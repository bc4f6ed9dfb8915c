//! Kernels of vectors of bits: distances are counts of ones. The squared Euclidean distance is the Hamming
//! distance.
//!
//! Counts are exact at every dimension, so all instruction sets agree to the last bit. `dim` counts bits; a
//! row has this number of bits rounded up to bytes, with zeros after the last component.

use super::kernel::{Moments, Table, tail_word};
use crate::metric::Metric;

/// Bytes in a step of the plain loop.
const WORD: usize = 8;

/// Calls `count` with the words of two rows of `bytes` bytes. The last word is padded with zeros.
///
/// # Safety
/// `bytes` bytes are readable at `a` and at `b`.
#[inline(always)]
unsafe fn words(a: *const u8, b: *const u8, bytes: usize, mut count: impl FnMut(u64, u64)) {
    let whole = bytes / WORD * WORD;
    for at in (0..whole).step_by(WORD) {
        // SAFETY: a whole word is within the row.
        unsafe { count(a.add(at).cast::<u64>().read_unaligned(), b.add(at).cast::<u64>().read_unaligned()) };
    }
    if whole < bytes {
        // SAFETY: the rest is within the row and shorter than a word.
        unsafe { count(tail_word(a.add(whole), bytes - whole), tail_word(b.add(whole), bytes - whole)) };
    }
}

/// Generates kernels over 64-bit words, for an instruction set with its own way to count ones.
macro_rules! by_words {
    ($($feature:literal)?) => {
        use super::{Moments, words};
        use crate::distance::kernel::{self, Cosine, InnerProduct, Kernel, SquaredL2, Table};

        pub(super) struct Words;

        impl Kernel for Words {
            #[inline]
            $(#[target_feature(enable = $feature)])?
            unsafe fn squared_l2(a: *const u8, b: *const u8, dim: usize) -> f32 {
                let mut ones = 0_u64;
                // SAFETY: this function has the same contract.
                unsafe { words(a, b, dim.div_ceil(8), |x, y| ones += u64::from((x ^ y).count_ones())) };
                ones as f32
            }

            #[inline]
            $(#[target_feature(enable = $feature)])?
            unsafe fn dot(a: *const u8, b: *const u8, dim: usize) -> f32 {
                let mut ones = 0_u64;
                // SAFETY: this function has the same contract.
                unsafe { words(a, b, dim.div_ceil(8), |x, y| ones += u64::from((x & y).count_ones())) };
                ones as f32
            }

            #[inline]
            $(#[target_feature(enable = $feature)])?
            unsafe fn moments(a: *const u8, b: *const u8, dim: usize) -> Moments {
                let (mut ab, mut aa, mut bb) = (0_u64, 0_u64, 0_u64);
                let count = |x: u64, y: u64| {
                    ab += u64::from((x & y).count_ones());
                    aa += u64::from(x.count_ones());
                    bb += u64::from(y.count_ones());
                };
                // SAFETY: this function has the same contract.
                unsafe { words(a, b, dim.div_ceil(8), count) };
                Moments { ab: ab as f32, aa: aa as f32, bb: bb as f32 }
            }
        }

        kernel::batch_loop!($($feature)?);

        pub(super) fn table(metric: crate::metric::Metric) -> Table {
            for_metric::<Words>(metric)
        }
    };
}

mod plain {
    by_words!();
}

#[cfg(target_arch = "x86_64")]
mod popcnt {
    by_words!("popcnt");
}

/// Kernels with `vpopcntdq`, which counts the ones of eight words at once.
#[cfg(target_arch = "x86_64")]
mod vpopcnt {
    use super::Moments;
    use crate::distance::kernel::{self, Cosine, InnerProduct, Kernel, SquaredL2, Table};
    use std::arch::x86_64::*;

    struct Lines;

    /// Passes 64 bytes a round to `step`, then the rest, masked.
    macro_rules! line_pass {
        ($a:ident, $b:ident, $bytes:expr, $step:expr) => {{
            let bytes: usize = $bytes;
            let mut index = 0;
            while index + 64 <= bytes {
                let load = |base: *const u8| _mm512_loadu_si512(base.add(index).cast());
                $step(load($a), load($b));
                index += 64;
            }
            if index < bytes {
                let mask = (1_u64 << (bytes - index)) - 1;
                let load = |base: *const u8| _mm512_maskz_loadu_epi8(mask, base.add(index).cast());
                $step(load($a), load($b));
            }
        }};
    }

    impl Kernel for Lines {
        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512vpopcntdq")]
        unsafe fn squared_l2(a: *const u8, b: *const u8, dim: usize) -> f32 {
            let mut sum = _mm512_setzero_si512();
            // SAFETY: the caller guarantees the ISA and `dim` bits; the tail is masked.
            unsafe {
                let mut step = |x: __m512i, y: __m512i| {
                    sum = _mm512_add_epi64(sum, _mm512_popcnt_epi64(_mm512_xor_si512(x, y)));
                };
                line_pass!(a, b, dim.div_ceil(8), step);
                _mm512_reduce_add_epi64(sum) as f32
            }
        }

        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512vpopcntdq")]
        unsafe fn dot(a: *const u8, b: *const u8, dim: usize) -> f32 {
            let mut sum = _mm512_setzero_si512();
            // SAFETY: the caller guarantees the ISA and `dim` bits; the tail is masked.
            unsafe {
                let mut step = |x: __m512i, y: __m512i| {
                    sum = _mm512_add_epi64(sum, _mm512_popcnt_epi64(_mm512_and_si512(x, y)));
                };
                line_pass!(a, b, dim.div_ceil(8), step);
                _mm512_reduce_add_epi64(sum) as f32
            }
        }

        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512vpopcntdq")]
        unsafe fn moments(a: *const u8, b: *const u8, dim: usize) -> Moments {
            let mut ab = _mm512_setzero_si512();
            let mut aa = _mm512_setzero_si512();
            let mut bb = _mm512_setzero_si512();
            // SAFETY: the caller guarantees the ISA and `dim` bits; the tail is masked.
            unsafe {
                let mut step = |x: __m512i, y: __m512i| {
                    ab = _mm512_add_epi64(ab, _mm512_popcnt_epi64(_mm512_and_si512(x, y)));
                    aa = _mm512_add_epi64(aa, _mm512_popcnt_epi64(x));
                    bb = _mm512_add_epi64(bb, _mm512_popcnt_epi64(y));
                };
                line_pass!(a, b, dim.div_ceil(8), step);
                let total = |sum: __m512i| _mm512_reduce_add_epi64(sum) as f32;
                Moments { ab: total(ab), aa: total(aa), bb: total(bb) }
            }
        }
    }

    kernel::batch_loop!("avx512f,avx512bw,avx512vpopcntdq");

    pub(super) fn table(metric: crate::metric::Metric) -> Table {
        for_metric::<Lines>(metric)
    }
}

/// Kernels of f32 queries and rows of bits. No index stores floats as bits, so they are not optimized.
mod of_floats {
    use super::Moments;
    use crate::distance::kernel::{self, Cosine, InnerProduct, Kernel, SquaredL2, Table};

    struct Floats;

    /// # Safety
    /// `dim` floats are readable at `a`, and `dim` bits at `b`.
    unsafe fn pairs(a: *const u8, b: *const u8, dim: usize) -> impl Iterator<Item = (f32, f32)> {
        (0..dim).map(move |at| {
            // SAFETY: the caller guarantees `dim` components at both.
            unsafe {
                let x = a.add(at * 4).cast::<f32>().read_unaligned();
                (x, f32::from(super::bit(*b.add(at / 8), at)))
            }
        })
    }

    impl Kernel for Floats {
        #[inline]
        unsafe fn squared_l2(a: *const u8, b: *const u8, dim: usize) -> f32 {
            // SAFETY: this function has the same contract.
            unsafe { pairs(a, b, dim) }.fold(0.0, |sum, (x, y)| sum + (x - y) * (x - y))
        }

        #[inline]
        unsafe fn dot(a: *const u8, b: *const u8, dim: usize) -> f32 {
            // SAFETY: this function has the same contract.
            unsafe { pairs(a, b, dim) }.fold(0.0, |sum, (x, y)| sum + x * y)
        }

        #[inline]
        unsafe fn moments(a: *const u8, b: *const u8, dim: usize) -> Moments {
            let mut sums = Moments { ab: 0.0, aa: 0.0, bb: 0.0 };
            // SAFETY: this function has the same contract.
            for (x, y) in unsafe { pairs(a, b, dim) } {
                sums.ab += x * y;
                sums.aa += x * x;
                sums.bb += y * y;
            }
            sums
        }
    }

    kernel::batch_loop!();

    pub(super) fn table(metric: crate::metric::Metric) -> Table {
        for_metric::<Floats>(metric)
    }
}

/// Returns the bit of component `at` from the byte that holds it. The first component is the highest bit, as
/// with `numpy.packbits`.
#[inline(always)]
pub(super) fn bit(byte: u8, at: usize) -> u8 {
    byte >> (7 - at % 8) & 1
}

/// Returns the kernels for any CPU.
pub(super) fn table(metric: Metric) -> Table {
    plain::table(metric)
}

/// Returns the kernels for a CPU with AVX2.
#[cfg(target_arch = "x86_64")]
pub(super) fn avx2_table(metric: Metric) -> Table {
    if std::is_x86_feature_detected!("popcnt") { popcnt::table(metric) } else { table(metric) }
}

/// Returns the kernels for a CPU with AVX-512, which may or may not count ones in vectors.
#[cfg(target_arch = "x86_64")]
pub(super) fn avx512_table(metric: Metric) -> Table {
    let has_popcnt = std::is_x86_feature_detected!("avx512vpopcntdq");
    if has_popcnt { vpopcnt::table(metric) } else { avx2_table(metric) }
}

/// Returns the kernels for f32 queries and rows of bits.
pub(super) fn table_of_floats(metric: Metric) -> Table {
    of_floats::table(metric)
}
