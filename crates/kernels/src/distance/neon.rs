//! Kernels for NEON of 64-bit Arm. Bytes use its dot-product instructions if the CPU has them. Tails are read
//! in overlapping pieces, never past the end.
//!
//! Some instructions are inline assembly, because the oldest supported compiler lacks their intrinsics. Every
//! 64-bit Arm has `fcvtl`; `udot` and `sdot` are detected at run time.

use super::bits;
use super::kernel::{
    self, Bf16, Cosine, F16, F32, I8, InnerProduct, Kernel, Moments, SquaredL2, Table, U8, tail_bytes,
};
use crate::element::Element;
use crate::metric::Metric;
use std::arch::aarch64::*;
use std::arch::asm;
use std::marker::PhantomData;

/// Four components as floats.
trait FloatLanes {
    const SIZE: usize;
    /// # Safety
    /// 4 components are readable at `at`.
    unsafe fn load(at: *const u8) -> float32x4_t;
    /// # Safety
    /// `count` components (1 to 3) are readable at `at`; the other lanes become zero.
    unsafe fn load_part(at: *const u8, count: usize) -> float32x4_t;
}

impl FloatLanes for F32 {
    const SIZE: usize = 4;

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn load(at: *const u8) -> float32x4_t {
        // SAFETY: the caller guarantees 16 bytes; a load of bytes needs no alignment.
        unsafe { vreinterpretq_f32_u8(vld1q_u8(at)) }
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn load_part(at: *const u8, count: usize) -> float32x4_t {
        // SAFETY: the caller guarantees `count` components, which are fewer than 16 bytes.
        vreinterpretq_f32_u8(lanes(unsafe { tail_bytes(at, count * 4) }))
    }
}

impl FloatLanes for F16 {
    const SIZE: usize = 2;

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn load(at: *const u8) -> float32x4_t {
        // SAFETY: the caller guarantees 8 bytes; a load of bytes needs no alignment.
        widen_halves(unsafe { vld1_u8(at) })
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn load_part(at: *const u8, count: usize) -> float32x4_t {
        // SAFETY: the caller guarantees `count` components, which are fewer than 8 bytes.
        let bytes = unsafe { tail_bytes(at, count * 2) };
        widen_halves(vcreate_u8(bytes as u64))
    }
}

impl FloatLanes for Bf16 {
    const SIZE: usize = 2;

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn load(at: *const u8) -> float32x4_t {
        // SAFETY: the caller guarantees 8 bytes; a load of bytes needs no alignment.
        widen_upper_halves(unsafe { vld1_u8(at) })
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn load_part(at: *const u8, count: usize) -> float32x4_t {
        // SAFETY: the caller guarantees `count` components, which are fewer than 8 bytes.
        let bytes = unsafe { tail_bytes(at, count * 2) };
        widen_upper_halves(vcreate_u8(bytes as u64))
    }
}

/// Returns the four floats whose upper halves are `halves`.
#[inline]
#[target_feature(enable = "neon")]
fn widen_upper_halves(halves: uint8x8_t) -> float32x4_t {
    vreinterpretq_f32_u32(vshll_n_u16::<16>(vreinterpret_u16_u8(halves)))
}

/// Returns sixteen bytes as lanes, the lowest byte first.
#[inline]
#[target_feature(enable = "neon")]
fn lanes(bytes: u128) -> uint8x16_t {
    vcombine_u8(vcreate_u8(bytes as u64), vcreate_u8((bytes >> 64) as u64))
}

/// Converts four f16 to floats.
#[inline]
#[target_feature(enable = "neon")]
fn widen_halves(halves: uint8x8_t) -> float32x4_t {
    let floats: float32x4_t;
    // SAFETY: `fcvtl` is in the base instruction set and changes only its output register.
    unsafe {
        asm!(
            "fcvtl {floats:v}.4s, {halves:v}.4h",
            floats = lateout(vreg) floats,
            halves = in(vreg) halves,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    floats
}

macro_rules! byte_lanes {
    ($name:ident, $floats:ident) => {
        impl FloatLanes for $name {
            const SIZE: usize = 1;

            #[inline]
            #[target_feature(enable = "neon")]
            unsafe fn load(at: *const u8) -> float32x4_t {
                // SAFETY: the caller guarantees 4 bytes.
                $floats(unsafe { at.cast::<u32>().read_unaligned() })
            }

            #[inline]
            #[target_feature(enable = "neon")]
            unsafe fn load_part(at: *const u8, count: usize) -> float32x4_t {
                // SAFETY: the caller guarantees `count` components, which are fewer than 4 bytes.
                $floats(unsafe { tail_bytes(at, count) } as u32)
            }
        }
    };
}

byte_lanes!(U8, unsigned_floats);
byte_lanes!(I8, signed_floats);

/// Converts four unsigned bytes to floats, the lowest first.
#[inline]
#[target_feature(enable = "neon")]
fn unsigned_floats(bytes: u32) -> float32x4_t {
    let wide = vmovl_u8(vcreate_u8(u64::from(bytes)));
    vcvtq_f32_u32(vmovl_u16(vget_low_u16(wide)))
}

/// Converts four signed bytes to floats, the lowest first.
#[inline]
#[target_feature(enable = "neon")]
fn signed_floats(bytes: u32) -> float32x4_t {
    let wide = vmovl_s8(vcreate_s8(u64::from(bytes)));
    vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide)))
}

/// Kernels of components `A` and `B`, both used as floats.
struct Float<A, B>(PhantomData<(A, B)>);

/// Passes 16 components a round to four independent steps, then the rest to the same steps.
macro_rules! float_pass {
    ($of_a:ident, $of_b:ident, $a:ident, $b:ident, $dim:ident, $step:expr) => {{
        let a = |index: usize| $a.wrapping_add(index * $of_a::SIZE);
        let b = |index: usize| $b.wrapping_add(index * $of_b::SIZE);
        let mut index = 0;
        while index + 16 <= $dim {
            for lane in 0..4 {
                let offset = index + 4 * lane;
                $step(lane, $of_a::load(a(offset)), $of_b::load(b(offset)));
            }
            index += 16;
        }
        while index + 4 <= $dim {
            $step(index / 4 % 4, $of_a::load(a(index)), $of_b::load(b(index)));
            index += 4;
        }
        if index < $dim {
            let count = $dim - index;
            $step(3, $of_a::load_part(a(index), count), $of_b::load_part(b(index), count));
        }
    }};
}

#[inline]
#[target_feature(enable = "neon")]
fn sum_of(sums: [float32x4_t; 4]) -> f32 {
    vaddvq_f32(vaddq_f32(vaddq_f32(sums[0], sums[1]), vaddq_f32(sums[2], sums[3])))
}

impl<A: FloatLanes, B: FloatLanes> Kernel for Float<A, B> {
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn squared_l2(a: *const u8, b: *const u8, dim: usize) -> f32 {
        let mut sums = [vdupq_n_f32(0.0); 4];
        let mut step = |lane: usize, x: float32x4_t, y: float32x4_t| {
            let difference = vsubq_f32(x, y);
            sums[lane] = vfmaq_f32(sums[lane], difference, difference);
        };
        // SAFETY: the caller guarantees `dim` components, and no more are read.
        unsafe { float_pass!(A, B, a, b, dim, step) };
        sum_of(sums)
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn dot(a: *const u8, b: *const u8, dim: usize) -> f32 {
        let mut sums = [vdupq_n_f32(0.0); 4];
        let mut step = |lane: usize, x: float32x4_t, y: float32x4_t| {
            sums[lane] = vfmaq_f32(sums[lane], x, y);
        };
        // SAFETY: the caller guarantees `dim` components, and no more are read.
        unsafe { float_pass!(A, B, a, b, dim, step) };
        sum_of(sums)
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn moments(a: *const u8, b: *const u8, dim: usize) -> Moments {
        let mut ab = [vdupq_n_f32(0.0); 4];
        let mut aa = [vdupq_n_f32(0.0); 4];
        let mut bb = [vdupq_n_f32(0.0); 4];
        let mut step = |lane: usize, x: float32x4_t, y: float32x4_t| {
            ab[lane] = vfmaq_f32(ab[lane], x, y);
            aa[lane] = vfmaq_f32(aa[lane], x, x);
            bb[lane] = vfmaq_f32(bb[lane], y, y);
        };
        // SAFETY: the caller guarantees `dim` components, and no more are read.
        unsafe { float_pass!(A, B, a, b, dim, step) };
        Moments { ab: sum_of(ab), aa: sum_of(aa), bb: sum_of(bb) }
    }
}

/// A way to add sixteen products of bytes to four lanes of 32 bits.
trait Multiply {
    /// # Safety
    /// The CPU has the instructions.
    unsafe fn unsigned(sum: uint32x4_t, a: uint8x16_t, b: uint8x16_t) -> uint32x4_t;
    /// # Safety
    /// The CPU has the instructions.
    unsafe fn signed(sum: uint32x4_t, a: uint8x16_t, b: uint8x16_t) -> uint32x4_t;
}

/// Multiplication to 16 bits, with pairs of products added.
struct Widening;
/// Multiplication with the dot-product instructions of Armv8.2.
struct DotProduct;

impl Multiply for Widening {
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn unsigned(sum: uint32x4_t, a: uint8x16_t, b: uint8x16_t) -> uint32x4_t {
        let sum = vpadalq_u16(sum, vmull_u8(vget_low_u8(a), vget_low_u8(b)));
        vpadalq_u16(sum, vmull_high_u8(a, b))
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn signed(sum: uint32x4_t, a: uint8x16_t, b: uint8x16_t) -> uint32x4_t {
        let (a, b) = (vreinterpretq_s8_u8(a), vreinterpretq_s8_u8(b));
        let sum = vreinterpretq_s32_u32(sum);
        let sum = vpadalq_s16(sum, vmull_s8(vget_low_s8(a), vget_low_s8(b)));
        vreinterpretq_u32_s32(vpadalq_s16(sum, vmull_high_s8(a, b)))
    }
}

macro_rules! dot_product {
    ($name:ident, $instruction:literal) => {
        #[inline]
        #[target_feature(enable = "neon")]
        unsafe fn $name(mut sum: uint32x4_t, a: uint8x16_t, b: uint8x16_t) -> uint32x4_t {
            // SAFETY: the caller guarantees the instruction, which changes only its output register.
            unsafe {
                asm!(
                    ".arch_extension dotprod",
                    concat!($instruction, " {sum:v}.4s, {a:v}.16b, {b:v}.16b"),
                    sum = inlateout(vreg) sum,
                    a = in(vreg) a,
                    b = in(vreg) b,
                    options(pure, nomem, nostack, preserves_flags)
                );
            }
            sum
        }
    };
}

impl Multiply for DotProduct {
    dot_product!(unsigned, "udot");
    dot_product!(signed, "sdot");
}

/// The operations that differ between unsigned and signed bytes.
trait Bytes {
    /// Returns the absolute differences, which fit an unsigned byte for both types.
    ///
    /// # Safety
    /// The CPU has NEON.
    unsafe fn difference(a: uint8x16_t, b: uint8x16_t) -> uint8x16_t;
    /// # Safety
    /// The CPU has the instructions of `M`.
    unsafe fn products<M: Multiply>(sum: uint32x4_t, a: uint8x16_t, b: uint8x16_t) -> uint32x4_t;
    /// Converts a sum of products to a float.
    fn to_float(sum: u32) -> f32;
}

impl Bytes for U8 {
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn difference(a: uint8x16_t, b: uint8x16_t) -> uint8x16_t {
        vabdq_u8(a, b)
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn products<M: Multiply>(sum: uint32x4_t, a: uint8x16_t, b: uint8x16_t) -> uint32x4_t {
        // SAFETY: this function has the same contract.
        unsafe { M::unsigned(sum, a, b) }
    }

    #[inline]
    fn to_float(sum: u32) -> f32 {
        sum as f32
    }
}

impl Bytes for I8 {
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn difference(a: uint8x16_t, b: uint8x16_t) -> uint8x16_t {
        // The instruction keeps the low eight bits, which are the difference as an unsigned byte.
        vreinterpretq_u8_s8(vabdq_s8(vreinterpretq_s8_u8(a), vreinterpretq_s8_u8(b)))
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn products<M: Multiply>(sum: uint32x4_t, a: uint8x16_t, b: uint8x16_t) -> uint32x4_t {
        // SAFETY: this function has the same contract.
        unsafe { M::signed(sum, a, b) }
    }

    #[inline]
    fn to_float(sum: u32) -> f32 {
        sum as i32 as f32
    }
}

struct Integer<B, M>(PhantomData<(B, M)>);

/// Passes 32 components a round to two independent steps, then the rest to the same steps.
macro_rules! byte_pass {
    ($a:ident, $b:ident, $dim:ident, $step:expr) => {{
        let mut index = 0;
        while index + 32 <= $dim {
            $step(0, vld1q_u8($a.add(index)), vld1q_u8($b.add(index)));
            $step(1, vld1q_u8($a.add(index + 16)), vld1q_u8($b.add(index + 16)));
            index += 32;
        }
        if index + 16 <= $dim {
            $step(0, vld1q_u8($a.add(index)), vld1q_u8($b.add(index)));
            index += 16;
        }
        if index < $dim {
            let part = |base: *const u8| lanes(tail_bytes(base.add(index), $dim - index));
            $step(1, part($a), part($b));
        }
    }};
}

/// Returns the sum of all lanes. Additions may wrap, but the final 32 bits are correct: see
/// [`super::MAX_SIMD_DIM`].
#[inline]
#[target_feature(enable = "neon")]
fn total(sums: [uint32x4_t; 2]) -> u32 {
    vaddvq_u32(vaddq_u32(sums[0], sums[1]))
}

impl<B: Bytes, M: Multiply> Kernel for Integer<B, M> {
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn squared_l2(a: *const u8, b: *const u8, dim: usize) -> f32 {
        let mut sums = [vdupq_n_u32(0); 2];
        // SAFETY: the caller guarantees the CPU and `dim` components, and no more are read.
        unsafe {
            let mut step = |lane: usize, x: uint8x16_t, y: uint8x16_t| {
                let difference = B::difference(x, y);
                sums[lane] = M::unsigned(sums[lane], difference, difference);
            };
            byte_pass!(a, b, dim, step);
        }
        total(sums) as f32
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn dot(a: *const u8, b: *const u8, dim: usize) -> f32 {
        let mut sums = [vdupq_n_u32(0); 2];
        // SAFETY: the caller guarantees the CPU and `dim` components, and no more are read.
        unsafe {
            let mut step = |lane: usize, x: uint8x16_t, y: uint8x16_t| {
                sums[lane] = B::products::<M>(sums[lane], x, y);
            };
            byte_pass!(a, b, dim, step);
        }
        B::to_float(total(sums))
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn moments(a: *const u8, b: *const u8, dim: usize) -> Moments {
        let mut ab = [vdupq_n_u32(0); 2];
        let mut aa = [vdupq_n_u32(0); 2];
        let mut bb = [vdupq_n_u32(0); 2];
        // SAFETY: the caller guarantees the CPU and `dim` components, and no more are read.
        unsafe {
            let mut step = |lane: usize, x: uint8x16_t, y: uint8x16_t| {
                ab[lane] = B::products::<M>(ab[lane], x, y);
                aa[lane] = B::products::<M>(aa[lane], x, x);
                bb[lane] = B::products::<M>(bb[lane], y, y);
            };
            byte_pass!(a, b, dim, step);
        }
        Moments { ab: B::to_float(total(ab)), aa: total(aa) as f32, bb: total(bb) as f32 }
    }
}

kernel::batch_loop!("neon");

/// Returns the NEON kernels of an element type and a metric.
pub(super) fn table(element: Element, metric: Metric) -> Table {
    let dot_product = std::arch::is_aarch64_feature_detected!("dotprod");
    match (element, dot_product) {
        (Element::F32, _) => for_metric::<Float<F32, F32>>(metric),
        (Element::F16, _) => for_metric::<Float<F16, F16>>(metric),
        (Element::U8, true) => for_metric::<Integer<U8, DotProduct>>(metric),
        (Element::I8, true) => for_metric::<Integer<I8, DotProduct>>(metric),
        (Element::U8, false) => for_metric::<Integer<U8, Widening>>(metric),
        (Element::I8, false) => for_metric::<Integer<I8, Widening>>(metric),
        (Element::Bf16, _) => for_metric::<Float<Bf16, Bf16>>(metric),
        // The compiler counts bits with NEON.
        (Element::B1, _) => bits::table(metric),
    }
}

/// Returns the NEON kernels for f32 queries and rows of an element type.
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
