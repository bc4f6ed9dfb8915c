//! Kernels for AVX-512 F, BW, DQ and VL. Tails are masked loads, which read no byte past the end.

use super::kernel::{self, Bf16, Cosine, F16, F32, I8, InnerProduct, Kernel, Moments, SquaredL2, Table, U8};
use super::{bf16, bits};
use crate::element::Element;
use crate::metric::Metric;
use std::arch::x86_64::*;
use std::marker::PhantomData;

/// Sixteen components as floats.
trait FloatLanes {
    const SIZE: usize;
    /// # Safety
    /// AVX-512, and 16 components readable at `at`.
    unsafe fn load(at: *const u8) -> __m512;
    /// # Safety
    /// AVX-512, and the components of `mask` readable at `at`; the others become zero.
    unsafe fn load_masked(at: *const u8, mask: __mmask16) -> __m512;
}

impl FloatLanes for F32 {
    const SIZE: usize = 4;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
    unsafe fn load(at: *const u8) -> __m512 {
        // SAFETY: the caller guarantees 64 bytes.
        unsafe { _mm512_loadu_ps(at.cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
    unsafe fn load_masked(at: *const u8, mask: __mmask16) -> __m512 {
        // SAFETY: a masked load reads only the lanes of the mask.
        unsafe { _mm512_maskz_loadu_ps(mask, at.cast()) }
    }
}

impl FloatLanes for F16 {
    const SIZE: usize = 2;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
    unsafe fn load(at: *const u8) -> __m512 {
        // SAFETY: the caller guarantees 32 bytes.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(at.cast())) }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
    unsafe fn load_masked(at: *const u8, mask: __mmask16) -> __m512 {
        // SAFETY: a masked load reads only the lanes of the mask.
        unsafe { _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, at.cast())) }
    }
}

/// Returns the sixteen floats whose upper halves are `halves`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
fn widened(halves: __m256i) -> __m512 {
    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(halves)))
}

impl FloatLanes for Bf16 {
    const SIZE: usize = 2;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
    unsafe fn load(at: *const u8) -> __m512 {
        // SAFETY: the caller guarantees 32 bytes.
        widened(unsafe { _mm256_loadu_si256(at.cast()) })
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
    unsafe fn load_masked(at: *const u8, mask: __mmask16) -> __m512 {
        // SAFETY: a masked load reads only the lanes of the mask.
        widened(unsafe { _mm256_maskz_loadu_epi16(mask, at.cast()) })
    }
}

macro_rules! byte_lanes {
    ($name:ident, $widen:ident) => {
        impl FloatLanes for $name {
            const SIZE: usize = 1;

            #[inline]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
            unsafe fn load(at: *const u8) -> __m512 {
                // SAFETY: the caller guarantees 16 bytes.
                unsafe { _mm512_cvtepi32_ps($widen(_mm_loadu_si128(at.cast()))) }
            }

            #[inline]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
            unsafe fn load_masked(at: *const u8, mask: __mmask16) -> __m512 {
                // SAFETY: a masked load reads only the lanes of the mask.
                unsafe { _mm512_cvtepi32_ps($widen(_mm_maskz_loadu_epi8(mask, at.cast()))) }
            }
        }
    };
}

byte_lanes!(U8, _mm512_cvtepu8_epi32);
byte_lanes!(I8, _mm512_cvtepi8_epi32);

/// Kernels of components `A` and `B`, both used as floats.
struct Float<A, B>(PhantomData<(A, B)>);

/// Passes 64 components a round to four independent steps, then the rest to the same steps.
macro_rules! float_pass {
    ($of_a:ident, $of_b:ident, $a:ident, $b:ident, $dim:ident, $step:expr) => {{
        let a = |index: usize| $a.wrapping_add(index * $of_a::SIZE);
        let b = |index: usize| $b.wrapping_add(index * $of_b::SIZE);
        let mut index = 0;
        while index + 64 <= $dim {
            $step(0, $of_a::load(a(index)), $of_b::load(b(index)));
            $step(1, $of_a::load(a(index + 16)), $of_b::load(b(index + 16)));
            $step(2, $of_a::load(a(index + 32)), $of_b::load(b(index + 32)));
            $step(3, $of_a::load(a(index + 48)), $of_b::load(b(index + 48)));
            index += 64;
        }
        if index + 32 <= $dim {
            $step(0, $of_a::load(a(index)), $of_b::load(b(index)));
            $step(1, $of_a::load(a(index + 16)), $of_b::load(b(index + 16)));
            index += 32;
        }
        if index + 16 <= $dim {
            $step(2, $of_a::load(a(index)), $of_b::load(b(index)));
            index += 16;
        }
        if index < $dim {
            let mask = ((1_u32 << ($dim - index)) - 1) as __mmask16;
            $step(3, $of_a::load_masked(a(index), mask), $of_b::load_masked(b(index), mask));
        }
    }};
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
fn sum_of(sums: [__m512; 4]) -> f32 {
    let pair = _mm512_add_ps(_mm512_add_ps(sums[0], sums[1]), _mm512_add_ps(sums[2], sums[3]));
    _mm512_reduce_add_ps(pair)
}

/// Reduces three sums together, which takes half the steps of three separate reductions.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
fn moments_of(ab: [__m512; 4], aa: [__m512; 4], bb: [__m512; 4]) -> Moments {
    let halves = |sums: [__m512; 4]| {
        let sum = _mm512_add_ps(_mm512_add_ps(sums[0], sums[1]), _mm512_add_ps(sums[2], sums[3]));
        _mm256_add_ps(_mm512_castps512_ps256(sum), _mm512_extractf32x8_ps::<1>(sum))
    };
    let (ab, aa, bb) = (halves(ab), halves(aa), halves(bb));
    let all = _mm256_hadd_ps(_mm256_hadd_ps(ab, aa), _mm256_hadd_ps(bb, bb));
    let all = _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps::<1>(all));
    Moments {
        ab: _mm_cvtss_f32(all),
        aa: _mm_cvtss_f32(_mm_movehdup_ps(all)),
        bb: _mm_cvtss_f32(_mm_movehl_ps(all, all)),
    }
}

impl<A: FloatLanes, B: FloatLanes> Kernel for Float<A, B> {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
    unsafe fn squared_l2(a: *const u8, b: *const u8, dim: usize) -> f32 {
        let mut sums = [_mm512_setzero_ps(); 4];
        let mut step = |lane: usize, x: __m512, y: __m512| {
            let difference = _mm512_sub_ps(x, y);
            sums[lane] = _mm512_fmadd_ps(difference, difference, sums[lane]);
        };
        // SAFETY: the caller guarantees `dim` components; the tail is masked.
        unsafe { float_pass!(A, B, a, b, dim, step) };
        sum_of(sums)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
    unsafe fn dot(a: *const u8, b: *const u8, dim: usize) -> f32 {
        let mut sums = [_mm512_setzero_ps(); 4];
        let mut step = |lane: usize, x: __m512, y: __m512| {
            sums[lane] = _mm512_fmadd_ps(x, y, sums[lane]);
        };
        // SAFETY: the caller guarantees `dim` components; the tail is masked.
        unsafe { float_pass!(A, B, a, b, dim, step) };
        sum_of(sums)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
    unsafe fn moments(a: *const u8, b: *const u8, dim: usize) -> Moments {
        let mut ab = [_mm512_setzero_ps(); 4];
        let mut aa = [_mm512_setzero_ps(); 4];
        let mut bb = [_mm512_setzero_ps(); 4];
        let mut step = |lane: usize, x: __m512, y: __m512| {
            ab[lane] = _mm512_fmadd_ps(x, y, ab[lane]);
            aa[lane] = _mm512_fmadd_ps(x, x, aa[lane]);
            bb[lane] = _mm512_fmadd_ps(y, y, bb[lane]);
        };
        // SAFETY: the caller guarantees `dim` components; the tail is masked.
        unsafe { float_pass!(A, B, a, b, dim, step) };
        moments_of(ab, aa, bb)
    }
}

/// Thirty-two components as 16-bit integers.
trait WideLanes {
    /// # Safety
    /// AVX-512, and 32 components readable at `at`.
    unsafe fn load(at: *const u8) -> __m512i;
    /// # Safety
    /// AVX-512, and the components of `mask` readable at `at`; the others become zero.
    unsafe fn load_masked(at: *const u8, mask: __mmask32) -> __m512i;
    /// True if a sum of products may be negative.
    const SIGNED: bool;
}

macro_rules! wide_lanes {
    ($name:ident, $widen:ident, $signed:literal) => {
        impl WideLanes for $name {
            const SIGNED: bool = $signed;

            #[inline]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
            unsafe fn load(at: *const u8) -> __m512i {
                // SAFETY: the caller guarantees 32 bytes.
                unsafe { $widen(_mm256_loadu_si256(at.cast())) }
            }

            #[inline]
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
            unsafe fn load_masked(at: *const u8, mask: __mmask32) -> __m512i {
                // SAFETY: a masked load reads only the lanes of the mask.
                unsafe { $widen(_mm256_maskz_loadu_epi8(mask, at.cast())) }
            }
        }
    };
}

wide_lanes!(U8, _mm512_cvtepu8_epi16, false);
wide_lanes!(I8, _mm512_cvtepi8_epi16, true);

struct Integer<L>(PhantomData<L>);

/// Passes 64 components a round to two independent steps, then the rest to the same steps.
macro_rules! integer_pass {
    ($lanes:ident, $a:ident, $b:ident, $dim:ident, $step:expr) => {{
        let mut index = 0;
        while index + 64 <= $dim {
            $step(0, $lanes::load($a.add(index)), $lanes::load($b.add(index)));
            $step(1, $lanes::load($a.add(index + 32)), $lanes::load($b.add(index + 32)));
            index += 64;
        }
        if index + 32 <= $dim {
            $step(0, $lanes::load($a.add(index)), $lanes::load($b.add(index)));
            index += 32;
        }
        if index < $dim {
            let mask = ((1_u64 << ($dim - index)) - 1) as __mmask32;
            $step(1, $lanes::load_masked($a.add(index), mask), $lanes::load_masked($b.add(index), mask));
        }
    }};
}

/// Returns the sum of all lanes. Additions may wrap, but the final 32 bits are correct: see
/// [`super::MAX_SIMD_DIM`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
fn total(sums: [__m512i; 2]) -> i32 {
    _mm512_reduce_add_epi32(_mm512_add_epi32(sums[0], sums[1]))
}

/// Reduces three sums together, in half the steps of three separate reductions. `signed` is true if `ab` may
/// be negative.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
pub(super) fn integer_moments(ab: __m512i, aa: __m512i, bb: __m512i, signed: bool) -> Moments {
    let halves =
        |sum: __m512i| _mm256_add_epi32(_mm512_castsi512_si256(sum), _mm512_extracti64x4_epi64::<1>(sum));
    let (ab, aa, bb) = (halves(ab), halves(aa), halves(bb));
    let all = _mm256_hadd_epi32(_mm256_hadd_epi32(ab, aa), _mm256_hadd_epi32(bb, bb));
    let all = _mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256::<1>(all));
    let product = _mm_cvtsi128_si32(all);
    Moments {
        ab: if signed { product as f32 } else { product as u32 as f32 },
        aa: _mm_extract_epi32::<1>(all) as u32 as f32,
        bb: _mm_extract_epi32::<2>(all) as u32 as f32,
    }
}

impl<L: WideLanes> Kernel for Integer<L> {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
    unsafe fn squared_l2(a: *const u8, b: *const u8, dim: usize) -> f32 {
        let mut sums = [_mm512_setzero_si512(); 2];
        let mut step = |lane: usize, x: __m512i, y: __m512i| {
            let difference = _mm512_sub_epi16(x, y);
            sums[lane] = _mm512_add_epi32(sums[lane], _mm512_madd_epi16(difference, difference));
        };
        // SAFETY: the caller guarantees `dim` components; the tail is masked.
        unsafe { integer_pass!(L, a, b, dim, step) };
        total(sums) as u32 as f32
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
    unsafe fn dot(a: *const u8, b: *const u8, dim: usize) -> f32 {
        let mut sums = [_mm512_setzero_si512(); 2];
        let mut step = |lane: usize, x: __m512i, y: __m512i| {
            sums[lane] = _mm512_add_epi32(sums[lane], _mm512_madd_epi16(x, y));
        };
        // SAFETY: the caller guarantees `dim` components; the tail is masked.
        unsafe { integer_pass!(L, a, b, dim, step) };
        let sum = total(sums);
        if L::SIGNED { sum as f32 } else { sum as u32 as f32 }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
    unsafe fn moments(a: *const u8, b: *const u8, dim: usize) -> Moments {
        let mut ab = [_mm512_setzero_si512(); 2];
        let mut aa = [_mm512_setzero_si512(); 2];
        let mut bb = [_mm512_setzero_si512(); 2];
        let mut step = |lane: usize, x: __m512i, y: __m512i| {
            ab[lane] = _mm512_add_epi32(ab[lane], _mm512_madd_epi16(x, y));
            aa[lane] = _mm512_add_epi32(aa[lane], _mm512_madd_epi16(x, x));
            bb[lane] = _mm512_add_epi32(bb[lane], _mm512_madd_epi16(y, y));
        };
        // SAFETY: the caller guarantees `dim` components; the tail is masked.
        unsafe { integer_pass!(L, a, b, dim, step) };
        let add_pair = |sums: [__m512i; 2]| _mm512_add_epi32(sums[0], sums[1]);
        integer_moments(add_pair(ab), add_pair(aa), add_pair(bb), L::SIGNED)
    }
}

kernel::batch_loop!("avx512f,avx512bw,avx512dq,avx512vl,fma,f16c");

/// Returns the AVX-512 kernels of an element type and a metric.
pub(super) fn table(element: Element, metric: Metric) -> Table {
    match element {
        Element::F32 => for_metric::<Float<F32, F32>>(metric),
        Element::F16 => for_metric::<Float<F16, F16>>(metric),
        Element::U8 => for_metric::<Integer<U8>>(metric),
        Element::I8 => for_metric::<Integer<I8>>(metric),
        Element::Bf16 => bf16::avx512_table(metric),
        Element::B1 => bits::avx512_table(metric),
    }
}

/// Returns the AVX-512 kernels for f32 queries and rows of an element type.
pub(super) fn table_of_floats(rows: Element, metric: Metric) -> Table {
    match rows {
        Element::F32 => for_metric::<Float<F32, F32>>(metric),
        Element::F16 => for_metric::<Float<F32, F16>>(metric),
        Element::U8 => for_metric::<Float<F32, U8>>(metric),
        Element::I8 => for_metric::<Float<F32, I8>>(metric),
        Element::Bf16 => for_metric::<Float<F32, Bf16>>(metric),
        Element::B1 => bits::table_of_floats(metric),
    }
}
