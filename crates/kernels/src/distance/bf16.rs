//! bf16 kernels for AVX-512. A load has 32 components; a shift turns the even ones into floats and a mask the
//! odd ones. CPUs with products of bf16 (`vdpbf16ps`) use those for everything except differences.
//!
//! The products treat numbers below 2^-126 as zeros. No float that an index accepts is near that.

use super::kernel::Table;
use crate::metric::Metric;
use std::arch::x86_64::*;

/// Passes 64 components a round to two independent steps, then the rest to the same steps.
macro_rules! pass {
    ($a:ident, $b:ident, $dim:ident, $step:expr) => {{
        let mut index = 0;
        while index + 64 <= $dim {
            let load = |base: *const u8, from: usize| _mm512_loadu_si512(base.add(2 * (index + from)).cast());
            $step(0, load($a, 0), load($b, 0));
            $step(1, load($a, 32), load($b, 32));
            index += 64;
        }
        if index + 32 <= $dim {
            let load = |base: *const u8| _mm512_loadu_si512(base.add(2 * index).cast());
            $step(0, load($a), load($b));
            index += 32;
        }
        if index < $dim {
            let mask = ((1_u64 << ($dim - index)) - 1) as __mmask32;
            let load = |base: *const u8| _mm512_maskz_loadu_epi16(mask, base.add(2 * index).cast());
            $step(1, load($a), load($b));
        }
    }};
}

/// Returns the components at even positions, and those at odd positions, as floats.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
fn floats(halves: __m512i) -> [__m512; 2] {
    let upper = _mm512_set1_epi32(0xffff_0000_u32 as i32);
    [
        _mm512_castsi512_ps(_mm512_slli_epi32::<16>(halves)),
        _mm512_castsi512_ps(_mm512_and_si512(halves, upper)),
    ]
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
fn total<const N: usize>(sums: [__m512; N]) -> f32 {
    let mut sum = sums[0];
    for other in &sums[1..] {
        sum = _mm512_add_ps(sum, *other);
    }
    _mm512_reduce_add_ps(sum)
}

/// # Safety
/// AVX-512, and `dim` components readable at `a` and at `b`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
unsafe fn squared_l2(a: *const u8, b: *const u8, dim: usize) -> f32 {
    let mut sums = [_mm512_setzero_ps(); 4];
    let mut step = |lane: usize, x: __m512i, y: __m512i| {
        let (x, y) = (floats(x), floats(y));
        for at in 0..2 {
            let difference = _mm512_sub_ps(x[at], y[at]);
            sums[2 * lane + at] = _mm512_fmadd_ps(difference, difference, sums[2 * lane + at]);
        }
    };
    // SAFETY: the caller guarantees `dim` components; the tail is masked.
    unsafe { pass!(a, b, dim, step) };
    total(sums)
}

/// Kernels that multiply floats.
mod by_floats {
    use super::{floats, total};
    use crate::distance::kernel::{self, Cosine, InnerProduct, Kernel, Moments, SquaredL2, Table};
    use std::arch::x86_64::*;

    struct Halves;

    impl Kernel for Halves {
        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
        unsafe fn squared_l2(a: *const u8, b: *const u8, dim: usize) -> f32 {
            // SAFETY: this function has the same contract.
            unsafe { super::squared_l2(a, b, dim) }
        }

        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
        unsafe fn dot(a: *const u8, b: *const u8, dim: usize) -> f32 {
            let mut sums = [_mm512_setzero_ps(); 4];
            let mut step = |lane: usize, x: __m512i, y: __m512i| {
                let (x, y) = (floats(x), floats(y));
                for at in 0..2 {
                    sums[2 * lane + at] = _mm512_fmadd_ps(x[at], y[at], sums[2 * lane + at]);
                }
            };
            // SAFETY: the caller guarantees `dim` components; the tail is masked.
            unsafe { pass!(a, b, dim, step) };
            total(sums)
        }

        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
        unsafe fn moments(a: *const u8, b: *const u8, dim: usize) -> Moments {
            let mut ab = [_mm512_setzero_ps(); 2];
            let mut aa = [_mm512_setzero_ps(); 2];
            let mut bb = [_mm512_setzero_ps(); 2];
            let mut step = |_: usize, x: __m512i, y: __m512i| {
                let (x, y) = (floats(x), floats(y));
                for at in 0..2 {
                    ab[at] = _mm512_fmadd_ps(x[at], y[at], ab[at]);
                    aa[at] = _mm512_fmadd_ps(x[at], x[at], aa[at]);
                    bb[at] = _mm512_fmadd_ps(y[at], y[at], bb[at]);
                }
            };
            // SAFETY: the caller guarantees `dim` components; the tail is masked.
            unsafe { pass!(a, b, dim, step) };
            Moments { ab: total(ab), aa: total(aa), bb: total(bb) }
        }
    }

    kernel::batch_loop!("avx512f,avx512bw,avx512dq,avx512vl,fma,f16c");

    pub(super) fn table(metric: crate::metric::Metric) -> Table {
        for_metric::<Halves>(metric)
    }
}

/// Kernels that multiply bf16, two in each lane at once.
mod by_pairs {
    use super::total;
    use crate::distance::kernel::{self, Cosine, InnerProduct, Kernel, Moments, SquaredL2, Table};
    use std::arch::x86_64::*;

    struct Pairs;

    /// Adds the products of `x` and `y` to `sum`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma,f16c")]
    fn products(sum: __m512, x: __m512i, y: __m512i) -> __m512 {
        // SAFETY: both types are 512 bits, and all bit patterns are valid.
        let halves = |bits: __m512i| unsafe { std::mem::transmute::<__m512i, __m512bh>(bits) };
        _mm512_dpbf16_ps(sum, halves(x), halves(y))
    }

    impl Kernel for Pairs {
        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma,f16c")]
        unsafe fn squared_l2(a: *const u8, b: *const u8, dim: usize) -> f32 {
            // SAFETY: this function has the same contract.
            unsafe { super::squared_l2(a, b, dim) }
        }

        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma,f16c")]
        unsafe fn dot(a: *const u8, b: *const u8, dim: usize) -> f32 {
            let mut sums = [_mm512_setzero_ps(); 2];
            let mut step = |lane: usize, x: __m512i, y: __m512i| sums[lane] = products(sums[lane], x, y);
            // SAFETY: the caller guarantees `dim` components; the tail is masked.
            unsafe { pass!(a, b, dim, step) };
            total(sums)
        }

        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma,f16c")]
        unsafe fn moments(a: *const u8, b: *const u8, dim: usize) -> Moments {
            let mut ab = [_mm512_setzero_ps(); 2];
            let mut aa = [_mm512_setzero_ps(); 2];
            let mut bb = [_mm512_setzero_ps(); 2];
            let mut step = |lane: usize, x: __m512i, y: __m512i| {
                ab[lane] = products(ab[lane], x, y);
                aa[lane] = products(aa[lane], x, x);
                bb[lane] = products(bb[lane], y, y);
            };
            // SAFETY: the caller guarantees `dim` components; the tail is masked.
            unsafe { pass!(a, b, dim, step) };
            Moments { ab: total(ab), aa: total(aa), bb: total(bb) }
        }
    }

    kernel::batch_loop!("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma,f16c");

    pub(super) fn table(metric: crate::metric::Metric) -> Table {
        for_metric::<Pairs>(metric)
    }
}

/// Returns the kernels for a CPU with AVX-512, which may or may not have products of bf16.
pub(super) fn avx512_table(metric: Metric) -> Table {
    let has_products = std::is_x86_feature_detected!("avx512bf16");
    if has_products { by_pairs::table(metric) } else { by_floats::table(metric) }
}
