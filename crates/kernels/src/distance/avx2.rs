//! Kernels for AVX2 with FMA and F16C. Tails are read in overlapping pieces, never past the end.

use super::bits;
use super::kernel::{
    self, Bf16, Cosine, F16, F32, I8, InnerProduct, Kernel, Moments, SquaredL2, Table, U8, tail_bytes,
};
use crate::element::Element;
use crate::metric::Metric;
use std::arch::x86_64::*;
use std::marker::PhantomData;

/// [`tail_bytes`] as a vector.
///
/// # Safety
/// AVX2, and `count` bytes (1 to 15) readable at `at`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn load_bytes(at: *const u8, count: usize) -> __m128i {
    // SAFETY: this function has the same contract.
    let bytes = unsafe { tail_bytes(at, count) };
    _mm_set_epi64x((bytes >> 64) as i64, bytes as i64)
}

/// Eight components as floats.
trait FloatLanes {
    const SIZE: usize;
    /// # Safety
    /// AVX2, and 8 components readable at `at`.
    unsafe fn load(at: *const u8) -> __m256;
    /// # Safety
    /// AVX2, and `count` components (1 to 7) readable at `at`; the other lanes become zero.
    unsafe fn load_part(at: *const u8, count: usize) -> __m256;
}

/// Eight set lanes, then eight clear ones. A window of eight is the mask of a tail.
static TAIL_MASKS: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

impl FloatLanes for F32 {
    const SIZE: usize = 4;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn load(at: *const u8) -> __m256 {
        // SAFETY: the caller guarantees 32 bytes.
        unsafe { _mm256_loadu_ps(at.cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn load_part(at: *const u8, count: usize) -> __m256 {
        // SAFETY: `count` is at most 8, so the window is within the table. A masked load reads only the lanes
        // of the mask.
        unsafe {
            let mask = _mm256_loadu_si256(TAIL_MASKS.as_ptr().add(8 - count).cast());
            _mm256_maskload_ps(at.cast(), mask)
        }
    }
}

impl FloatLanes for F16 {
    const SIZE: usize = 2;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn load(at: *const u8) -> __m256 {
        // SAFETY: the caller guarantees 16 bytes.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(at.cast())) }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn load_part(at: *const u8, count: usize) -> __m256 {
        // SAFETY: the caller guarantees `count` components, which are fewer than 16 bytes.
        unsafe { _mm256_cvtph_ps(load_bytes(at, count * 2)) }
    }
}

/// Returns the eight floats whose upper halves are `halves`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn widened(halves: __m128i) -> __m256 {
    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(halves)))
}

impl FloatLanes for Bf16 {
    const SIZE: usize = 2;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn load(at: *const u8) -> __m256 {
        // SAFETY: the caller guarantees 16 bytes.
        widened(unsafe { _mm_loadu_si128(at.cast()) })
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn load_part(at: *const u8, count: usize) -> __m256 {
        // SAFETY: the caller guarantees `count` components, which are fewer than 16 bytes.
        widened(unsafe { load_bytes(at, count * 2) })
    }
}

macro_rules! byte_lanes {
    ($name:ident, $widen:ident) => {
        impl FloatLanes for $name {
            const SIZE: usize = 1;

            #[inline]
            #[target_feature(enable = "avx2,fma,f16c")]
            unsafe fn load(at: *const u8) -> __m256 {
                // SAFETY: the caller guarantees 8 bytes.
                unsafe { _mm256_cvtepi32_ps($widen(_mm_loadl_epi64(at.cast()))) }
            }

            #[inline]
            #[target_feature(enable = "avx2,fma,f16c")]
            unsafe fn load_part(at: *const u8, count: usize) -> __m256 {
                // SAFETY: the caller guarantees `count` components, which are fewer than 16 bytes.
                unsafe { _mm256_cvtepi32_ps($widen(load_bytes(at, count))) }
            }
        }
    };
}

byte_lanes!(U8, _mm256_cvtepu8_epi32);
byte_lanes!(I8, _mm256_cvtepi8_epi32);

/// Kernels of components `A` and `B`, both used as floats.
struct Float<A, B>(PhantomData<(A, B)>);

/// Passes 32 components a round to four independent steps, then the rest to the same steps.
macro_rules! float_pass {
    ($of_a:ident, $of_b:ident, $a:ident, $b:ident, $dim:ident, $step:expr) => {{
        let a = |index: usize| $a.wrapping_add(index * $of_a::SIZE);
        let b = |index: usize| $b.wrapping_add(index * $of_b::SIZE);
        let mut index = 0;
        while index + 32 <= $dim {
            $step(0, $of_a::load(a(index)), $of_b::load(b(index)));
            $step(1, $of_a::load(a(index + 8)), $of_b::load(b(index + 8)));
            $step(2, $of_a::load(a(index + 16)), $of_b::load(b(index + 16)));
            $step(3, $of_a::load(a(index + 24)), $of_b::load(b(index + 24)));
            index += 32;
        }
        if index + 16 <= $dim {
            $step(0, $of_a::load(a(index)), $of_b::load(b(index)));
            $step(1, $of_a::load(a(index + 8)), $of_b::load(b(index + 8)));
            index += 16;
        }
        if index + 8 <= $dim {
            $step(2, $of_a::load(a(index)), $of_b::load(b(index)));
            index += 8;
        }
        if index < $dim {
            let count = $dim - index;
            $step(3, $of_a::load_part(a(index), count), $of_b::load_part(b(index), count));
        }
    }};
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn sum_of(sums: [__m256; 4]) -> f32 {
    let sum = _mm256_add_ps(_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3]));
    let four = _mm_add_ps(_mm256_castps256_ps128(sum), _mm256_extractf128_ps::<1>(sum));
    let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
}

impl<A: FloatLanes, B: FloatLanes> Kernel for Float<A, B> {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn squared_l2(a: *const u8, b: *const u8, dim: usize) -> f32 {
        let mut sums = [_mm256_setzero_ps(); 4];
        let mut step = |lane: usize, x: __m256, y: __m256| {
            let difference = _mm256_sub_ps(x, y);
            sums[lane] = _mm256_fmadd_ps(difference, difference, sums[lane]);
        };
        // SAFETY: the caller guarantees `dim` components, and no more are read.
        unsafe { float_pass!(A, B, a, b, dim, step) };
        sum_of(sums)
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn dot(a: *const u8, b: *const u8, dim: usize) -> f32 {
        let mut sums = [_mm256_setzero_ps(); 4];
        let mut step = |lane: usize, x: __m256, y: __m256| {
            sums[lane] = _mm256_fmadd_ps(x, y, sums[lane]);
        };
        // SAFETY: the caller guarantees `dim` components, and no more are read.
        unsafe { float_pass!(A, B, a, b, dim, step) };
        sum_of(sums)
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn moments(a: *const u8, b: *const u8, dim: usize) -> Moments {
        let mut ab = [_mm256_setzero_ps(); 4];
        let mut aa = [_mm256_setzero_ps(); 4];
        let mut bb = [_mm256_setzero_ps(); 4];
        let mut step = |lane: usize, x: __m256, y: __m256| {
            ab[lane] = _mm256_fmadd_ps(x, y, ab[lane]);
            aa[lane] = _mm256_fmadd_ps(x, x, aa[lane]);
            bb[lane] = _mm256_fmadd_ps(y, y, bb[lane]);
        };
        // SAFETY: the caller guarantees `dim` components, and no more are read.
        unsafe { float_pass!(A, B, a, b, dim, step) };
        Moments { ab: sum_of(ab), aa: sum_of(aa), bb: sum_of(bb) }
    }
}

/// Sixteen components as 16-bit integers.
trait WideLanes {
    /// # Safety
    /// AVX2.
    unsafe fn widen(bytes: __m128i) -> __m256i;
    /// Converts a sum of products to a float.
    fn to_float(sum: i32) -> f32;
}

impl WideLanes for U8 {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn widen(bytes: __m128i) -> __m256i {
        _mm256_cvtepu8_epi16(bytes)
    }

    #[inline]
    fn to_float(sum: i32) -> f32 {
        sum as u32 as f32
    }
}

impl WideLanes for I8 {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn widen(bytes: __m128i) -> __m256i {
        _mm256_cvtepi8_epi16(bytes)
    }

    #[inline]
    fn to_float(sum: i32) -> f32 {
        sum as f32
    }
}

struct Integer<L>(PhantomData<L>);

/// Passes 32 components a round to two independent steps, then the rest to the same steps.
macro_rules! integer_pass {
    ($lanes:ident, $a:ident, $b:ident, $dim:ident, $step:expr) => {{
        let load = |base: *const u8, index: usize| $lanes::widen(_mm_loadu_si128(base.add(index).cast()));
        let mut index = 0;
        while index + 32 <= $dim {
            $step(0, load($a, index), load($b, index));
            $step(1, load($a, index + 16), load($b, index + 16));
            index += 32;
        }
        if index + 16 <= $dim {
            $step(0, load($a, index), load($b, index));
            index += 16;
        }
        if index < $dim {
            let part = |base: *const u8| $lanes::widen(load_bytes(base.add(index), $dim - index));
            $step(1, part($a), part($b));
        }
    }};
}

/// Returns the sum of all lanes. Additions may wrap, but the final 32 bits are correct: see
/// [`super::MAX_SIMD_DIM`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn total(sums: [__m256i; 2]) -> i32 {
    let sum = _mm256_add_epi32(sums[0], sums[1]);
    let four = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256::<1>(sum));
    let two = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
    _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32::<1>(two)))
}

impl<L: WideLanes> Kernel for Integer<L> {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn squared_l2(a: *const u8, b: *const u8, dim: usize) -> f32 {
        let mut sums = [_mm256_setzero_si256(); 2];
        let mut step = |lane: usize, x: __m256i, y: __m256i| {
            let difference = _mm256_sub_epi16(x, y);
            sums[lane] = _mm256_add_epi32(sums[lane], _mm256_madd_epi16(difference, difference));
        };
        // SAFETY: the caller guarantees `dim` components, and no more are read.
        unsafe { integer_pass!(L, a, b, dim, step) };
        total(sums) as u32 as f32
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn dot(a: *const u8, b: *const u8, dim: usize) -> f32 {
        let mut sums = [_mm256_setzero_si256(); 2];
        let mut step = |lane: usize, x: __m256i, y: __m256i| {
            sums[lane] = _mm256_add_epi32(sums[lane], _mm256_madd_epi16(x, y));
        };
        // SAFETY: the caller guarantees `dim` components, and no more are read.
        unsafe { integer_pass!(L, a, b, dim, step) };
        L::to_float(total(sums))
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn moments(a: *const u8, b: *const u8, dim: usize) -> Moments {
        let mut ab = [_mm256_setzero_si256(); 2];
        let mut aa = [_mm256_setzero_si256(); 2];
        let mut bb = [_mm256_setzero_si256(); 2];
        let mut step = |lane: usize, x: __m256i, y: __m256i| {
            ab[lane] = _mm256_add_epi32(ab[lane], _mm256_madd_epi16(x, y));
            aa[lane] = _mm256_add_epi32(aa[lane], _mm256_madd_epi16(x, x));
            bb[lane] = _mm256_add_epi32(bb[lane], _mm256_madd_epi16(y, y));
        };
        // SAFETY: the caller guarantees `dim` components, and no more are read.
        unsafe { integer_pass!(L, a, b, dim, step) };
        Moments { ab: L::to_float(total(ab)), aa: total(aa) as u32 as f32, bb: total(bb) as u32 as f32 }
    }
}

kernel::batch_loop!("avx2,fma,f16c");

/// Returns the AVX2 kernels of an element type and a metric.
pub(super) fn table(element: Element, metric: Metric) -> Table {
    match element {
        Element::F32 => for_metric::<Float<F32, F32>>(metric),
        Element::F16 => for_metric::<Float<F16, F16>>(metric),
        Element::U8 => for_metric::<Integer<U8>>(metric),
        Element::I8 => for_metric::<Integer<I8>>(metric),
        Element::Bf16 => for_metric::<Float<Bf16, Bf16>>(metric),
        Element::B1 => bits::avx2_table(metric),
    }
}

/// Returns the AVX2 kernels for f32 queries and rows of an element type.
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
