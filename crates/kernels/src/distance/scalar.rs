//! The reference kernels: plain loops over little-endian bytes, one component at a time.
//!
//! Integers are summed in 64 bits, so these kernels also serve vectors with too many dimensions for the
//! 32-bit lanes of the SIMD kernels.

use super::bits;
use super::kernel::{self, Bf16, Cosine, F16, F32, I8, InnerProduct, Kernel, Moments, SquaredL2, Table, U8};
use crate::element::Element;
use crate::metric::Metric;
use half::{bf16, f16};
use std::marker::PhantomData;

/// Operations of the scalar loops on one component type.
trait Component {
    const SIZE: usize;
    type Sum: Copy + Default + std::ops::AddAssign;

    fn value(bytes: &[u8]) -> f32;
    fn product(a: &[u8], b: &[u8]) -> Self::Sum;
    fn squared_difference(a: &[u8], b: &[u8]) -> Self::Sum;
    fn round(sum: Self::Sum) -> f32;
}

macro_rules! float_component {
    ($name:ident, $size:literal, $read:expr) => {
        impl Component for $name {
            const SIZE: usize = $size;
            type Sum = f32;

            #[inline(always)]
            fn value(bytes: &[u8]) -> f32 {
                $read(bytes)
            }

            #[inline(always)]
            fn product(a: &[u8], b: &[u8]) -> f32 {
                $read(a) * $read(b)
            }

            #[inline(always)]
            fn squared_difference(a: &[u8], b: &[u8]) -> f32 {
                let difference = $read(a) - $read(b);
                difference * difference
            }

            #[inline(always)]
            fn round(sum: f32) -> f32 {
                sum
            }
        }
    };
}

float_component!(F32, 4, |x: &[u8]| f32::from_le_bytes([x[0], x[1], x[2], x[3]]));
float_component!(F16, 2, |x: &[u8]| f16::from_le_bytes([x[0], x[1]]).to_f32());
float_component!(Bf16, 2, |x: &[u8]| bf16::from_le_bytes([x[0], x[1]]).to_f32());

macro_rules! integer_component {
    ($name:ident, $native:ty) => {
        impl Component for $name {
            const SIZE: usize = 1;
            type Sum = i64;

            #[inline(always)]
            fn value(bytes: &[u8]) -> f32 {
                f32::from(bytes[0] as $native)
            }

            #[inline(always)]
            fn product(a: &[u8], b: &[u8]) -> i64 {
                i64::from(a[0] as $native) * i64::from(b[0] as $native)
            }

            #[inline(always)]
            fn squared_difference(a: &[u8], b: &[u8]) -> i64 {
                let difference = i64::from(a[0] as $native) - i64::from(b[0] as $native);
                difference * difference
            }

            #[inline(always)]
            fn round(sum: i64) -> f32 {
                sum as f32
            }
        }
    };
}

integer_component!(U8, u8);
integer_component!(I8, i8);

/// Kernels of one component type.
struct Plain<C>(PhantomData<C>);

/// # Safety
/// `dim` components are readable at `a` and at `b`.
#[inline(always)]
unsafe fn pairs<'a, C: Component>(
    a: *const u8,
    b: *const u8,
    dim: usize,
) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
    // SAFETY: the caller guarantees `dim` components of `SIZE` bytes at both.
    let (a, b) = unsafe {
        (std::slice::from_raw_parts(a, dim * C::SIZE), std::slice::from_raw_parts(b, dim * C::SIZE))
    };
    a.chunks_exact(C::SIZE).zip(b.chunks_exact(C::SIZE))
}

impl<C: Component> Kernel for Plain<C> {
    #[inline]
    unsafe fn squared_l2(a: *const u8, b: *const u8, dim: usize) -> f32 {
        let mut sum = C::Sum::default();
        // SAFETY: this function has the same contract.
        for (x, y) in unsafe { pairs::<C>(a, b, dim) } {
            sum += C::squared_difference(x, y);
        }
        C::round(sum)
    }

    #[inline]
    unsafe fn dot(a: *const u8, b: *const u8, dim: usize) -> f32 {
        let mut sum = C::Sum::default();
        // SAFETY: this function has the same contract.
        for (x, y) in unsafe { pairs::<C>(a, b, dim) } {
            sum += C::product(x, y);
        }
        C::round(sum)
    }

    #[inline]
    unsafe fn moments(a: *const u8, b: *const u8, dim: usize) -> Moments {
        let (mut ab, mut aa, mut bb) = Default::default();
        // SAFETY: this function has the same contract.
        for (x, y) in unsafe { pairs::<C>(a, b, dim) } {
            ab += C::product(x, y);
            aa += C::product(x, x);
            bb += C::product(y, y);
        }
        Moments { ab: C::round(ab), aa: C::round(aa), bb: C::round(bb) }
    }
}

/// Kernels of f32 queries and rows of one component type. All components are used as floats.
struct OfFloats<C>(PhantomData<C>);

/// # Safety
/// `dim` floats are readable at `a`, and `dim` components at `b`.
#[inline(always)]
unsafe fn float_pairs<C: Component>(
    a: *const u8,
    b: *const u8,
    dim: usize,
) -> impl Iterator<Item = (f32, f32)> {
    // SAFETY: the caller guarantees `dim` components of their sizes at both.
    let (a, b) = unsafe {
        (std::slice::from_raw_parts(a, dim * F32::SIZE), std::slice::from_raw_parts(b, dim * C::SIZE))
    };
    a.chunks_exact(F32::SIZE).zip(b.chunks_exact(C::SIZE)).map(|(x, y)| (F32::value(x), C::value(y)))
}

impl<C: Component> Kernel for OfFloats<C> {
    #[inline]
    unsafe fn squared_l2(a: *const u8, b: *const u8, dim: usize) -> f32 {
        // SAFETY: this function has the same contract.
        unsafe { float_pairs::<C>(a, b, dim) }.fold(0.0, |sum, (x, y)| sum + (x - y) * (x - y))
    }

    #[inline]
    unsafe fn dot(a: *const u8, b: *const u8, dim: usize) -> f32 {
        // SAFETY: this function has the same contract.
        unsafe { float_pairs::<C>(a, b, dim) }.fold(0.0, |sum, (x, y)| sum + x * y)
    }

    #[inline]
    unsafe fn moments(a: *const u8, b: *const u8, dim: usize) -> Moments {
        let mut sums = Moments { ab: 0.0, aa: 0.0, bb: 0.0 };
        // SAFETY: this function has the same contract.
        for (x, y) in unsafe { float_pairs::<C>(a, b, dim) } {
            sums.ab += x * y;
            sums.aa += x * x;
            sums.bb += y * y;
        }
        sums
    }
}

kernel::batch_loop!();

/// Returns the scalar kernels of an element type and a metric.
pub(super) fn table(element: Element, metric: Metric) -> Table {
    match element {
        Element::F32 => for_metric::<Plain<F32>>(metric),
        Element::F16 => for_metric::<Plain<F16>>(metric),
        Element::U8 => for_metric::<Plain<U8>>(metric),
        Element::I8 => for_metric::<Plain<I8>>(metric),
        Element::Bf16 => for_metric::<Plain<Bf16>>(metric),
        Element::B1 => bits::table(metric),
    }
}

/// Returns the scalar kernels for f32 queries and rows of an element type.
pub(super) fn table_of_floats(rows: Element, metric: Metric) -> Table {
    match rows {
        Element::F32 => for_metric::<Plain<F32>>(metric),
        Element::F16 => for_metric::<OfFloats<F16>>(metric),
        Element::U8 => for_metric::<OfFloats<U8>>(metric),
        Element::I8 => for_metric::<OfFloats<I8>>(metric),
        Element::Bf16 => for_metric::<OfFloats<Bf16>>(metric),
        Element::B1 => bits::table_of_floats(metric),
    }
}
