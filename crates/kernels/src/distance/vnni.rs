//! Byte kernels for AVX-512 VNNI: `vpdpbusd` multiplies unsigned by signed bytes and adds four products to
//! each 32-bit lane. One operand is shifted by 128 to have the other signedness, and the sum is corrected for
//! the shift at the end.
//!
//! With at most [`super::MAX_SIMD_DIM`] dimensions the final sum of any kernel fits 32 bits (unsigned if it
//! cannot be negative), so lanes may wrap before that.

use super::avx512::integer_moments;
use super::kernel::{self, Cosine, I8, InnerProduct, Kernel, Moments, SquaredL2, Table, U8};
use crate::element::Element;
use crate::metric::Metric;
use std::arch::x86_64::*;
use std::marker::PhantomData;

/// The operations that differ between unsigned and signed bytes. All need AVX-512 with VNNI.
trait Bytes {
    /// Returns the absolute differences, which fit an unsigned byte for both types.
    ///
    /// # Safety
    /// AVX-512 BW.
    unsafe fn difference(a: __m512i, b: __m512i) -> __m512i;
    /// Adds the products of `a` and `shifted_b` to `sum`. `shifted_b` is `b` shifted by 128.
    ///
    /// # Safety
    /// AVX-512 VNNI.
    unsafe fn products(sum: __m512i, a: __m512i, shifted_b: __m512i) -> __m512i;
    /// Adds the components of `a` to `sum`.
    ///
    /// # Safety
    /// AVX-512 VNNI.
    unsafe fn components(sum: __m512i, a: __m512i) -> __m512i;
    /// Corrects `products` for the shift: they are off by 128 times `components`.
    ///
    /// # Safety
    /// AVX-512 F.
    unsafe fn undo_shift(products: __m512i, components: __m512i) -> __m512i;
    /// True if a sum of products may be negative.
    const SIGNED: bool;
}

impl Bytes for U8 {
    const SIGNED: bool = false;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
    unsafe fn difference(a: __m512i, b: __m512i) -> __m512i {
        _mm512_sub_epi8(_mm512_max_epu8(a, b), _mm512_min_epu8(a, b))
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
    unsafe fn products(sum: __m512i, a: __m512i, shifted_b: __m512i) -> __m512i {
        _mm512_dpbusd_epi32(sum, a, shifted_b)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
    unsafe fn components(sum: __m512i, a: __m512i) -> __m512i {
        _mm512_dpbusd_epi32(sum, a, _mm512_set1_epi8(1))
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
    unsafe fn undo_shift(products: __m512i, components: __m512i) -> __m512i {
        _mm512_add_epi32(products, _mm512_slli_epi32::<7>(components))
    }
}

impl Bytes for I8 {
    const SIGNED: bool = true;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
    unsafe fn difference(a: __m512i, b: __m512i) -> __m512i {
        _mm512_sub_epi8(_mm512_max_epi8(a, b), _mm512_min_epi8(a, b))
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
    unsafe fn products(sum: __m512i, a: __m512i, shifted_b: __m512i) -> __m512i {
        _mm512_dpbusd_epi32(sum, shifted_b, a)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
    unsafe fn components(sum: __m512i, a: __m512i) -> __m512i {
        _mm512_dpbusd_epi32(sum, _mm512_set1_epi8(1), a)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
    unsafe fn undo_shift(products: __m512i, components: __m512i) -> __m512i {
        _mm512_sub_epi32(products, _mm512_slli_epi32::<7>(components))
    }
}

struct Quads<B>(PhantomData<B>);

/// Passes 128 components a round to two independent steps, then the rest to the same steps. Components past
/// the end are zeros in both operands.
macro_rules! byte_pass {
    ($a:ident, $b:ident, $dim:ident, $step:expr) => {{
        let mut index = 0;
        while index + 128 <= $dim {
            let load = |base: *const u8, offset: usize| _mm512_loadu_si512(base.add(index + offset).cast());
            $step(0, load($a, 0), load($b, 0));
            $step(1, load($a, 64), load($b, 64));
            index += 128;
        }
        if index + 64 <= $dim {
            let load = |base: *const u8| _mm512_loadu_si512(base.add(index).cast());
            $step(0, load($a), load($b));
            index += 64;
        }
        if index < $dim {
            let mask = (1_u64 << ($dim - index)) - 1;
            let load = |base: *const u8| _mm512_maskz_loadu_epi8(mask, base.add(index).cast());
            $step(1, load($a), load($b));
        }
    }};
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
fn add_pair(sums: [__m512i; 2]) -> __m512i {
    _mm512_add_epi32(sums[0], sums[1])
}

/// Shifts bytes by 128, between the signed and the unsigned range.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
fn shift_by_128(bytes: __m512i) -> __m512i {
    _mm512_xor_si512(bytes, _mm512_set1_epi8(-128))
}

impl<B: Bytes> Kernel for Quads<B> {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
    unsafe fn squared_l2(a: *const u8, b: *const u8, dim: usize) -> f32 {
        let mut squares = [_mm512_setzero_si512(); 2];
        let mut components = [_mm512_setzero_si512(); 2];
        // SAFETY: the caller guarantees the ISA and `dim` components; the tail is masked.
        unsafe {
            let mut step = |lane: usize, x: __m512i, y: __m512i| {
                // The absolute difference is an unsigned byte for both types.
                let difference = B::difference(x, y);
                squares[lane] = U8::products(squares[lane], difference, shift_by_128(difference));
                components[lane] = U8::components(components[lane], difference);
            };
            byte_pass!(a, b, dim, step);
            let sum = _mm512_reduce_add_epi32(U8::undo_shift(add_pair(squares), add_pair(components)));
            sum as u32 as f32
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
    unsafe fn dot(a: *const u8, b: *const u8, dim: usize) -> f32 {
        let mut products = [_mm512_setzero_si512(); 2];
        let mut components = [_mm512_setzero_si512(); 2];
        // SAFETY: the caller guarantees the ISA and `dim` components; the tail is masked.
        unsafe {
            let mut step = |lane: usize, x: __m512i, y: __m512i| {
                products[lane] = B::products(products[lane], x, shift_by_128(y));
                components[lane] = B::components(components[lane], x);
            };
            byte_pass!(a, b, dim, step);
            let sum = _mm512_reduce_add_epi32(B::undo_shift(add_pair(products), add_pair(components)));
            if B::SIGNED { sum as f32 } else { sum as u32 as f32 }
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c")]
    unsafe fn moments(a: *const u8, b: *const u8, dim: usize) -> Moments {
        let mut ab = [_mm512_setzero_si512(); 2];
        let mut aa = [_mm512_setzero_si512(); 2];
        let mut bb = [_mm512_setzero_si512(); 2];
        let mut sum_a = [_mm512_setzero_si512(); 2];
        let mut sum_b = [_mm512_setzero_si512(); 2];
        // SAFETY: the caller guarantees the ISA and `dim` components; the tail is masked.
        unsafe {
            let mut step = |lane: usize, x: __m512i, y: __m512i| {
                let (shifted_x, shifted_y) = (shift_by_128(x), shift_by_128(y));
                ab[lane] = B::products(ab[lane], x, shifted_y);
                aa[lane] = B::products(aa[lane], x, shifted_x);
                bb[lane] = B::products(bb[lane], y, shifted_y);
                sum_a[lane] = B::components(sum_a[lane], x);
                sum_b[lane] = B::components(sum_b[lane], y);
            };
            byte_pass!(a, b, dim, step);
            let (sum_a, sum_b) = (add_pair(sum_a), add_pair(sum_b));
            integer_moments(
                B::undo_shift(add_pair(ab), sum_a),
                B::undo_shift(add_pair(aa), sum_a),
                B::undo_shift(add_pair(bb), sum_b),
                B::SIGNED,
            )
        }
    }
}

kernel::batch_loop!("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma,f16c");

/// Returns the VNNI kernels for bytes, and the AVX-512 kernels for all other elements.
pub(super) fn table(element: Element, metric: Metric) -> Table {
    match element {
        Element::F32 | Element::F16 | Element::Bf16 | Element::B1 => super::avx512::table(element, metric),
        Element::U8 => for_metric::<Quads<U8>>(metric),
        Element::I8 => for_metric::<Quads<I8>>(metric),
    }
}

/// Returns the AVX-512 kernels for f32 queries. VNNI has no float instructions.
pub(super) fn table_of_floats(rows: Element, metric: Metric) -> Table {
    super::avx512::table_of_floats(rows, metric)
}
