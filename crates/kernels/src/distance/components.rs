//! Passes over one vector: conversion, norms, the check for NaN.

use super::Distance;
use super::bits::bit;
use crate::element::Element;
use crate::metric::Metric;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// Converts `vector` to `f32`, component by component; the shorter of the two slices counts.
pub fn to_f32(element: Element, vector: &[u8], out: &mut [f32]) {
    match element {
        Element::F32 => {
            for (value, bytes) in out.iter_mut().zip(vector.as_chunks::<4>().0) {
                *value = f32::from_le_bytes(*bytes);
            }
        }
        Element::F16 => halves_to_f32(vector.as_chunks::<2>().0, out),
        Element::U8 => {
            for (value, &byte) in out.iter_mut().zip(vector) {
                *value = f32::from(byte);
            }
        }
        Element::I8 => {
            for (value, &byte) in out.iter_mut().zip(vector) {
                *value = f32::from(byte as i8);
            }
        }
        Element::Bf16 => {
            for (value, bytes) in out.iter_mut().zip(vector.as_chunks::<2>().0) {
                *value = bf16::from_le_bytes(*bytes).to_f32();
            }
        }
        Element::B1 => {
            for (values, &byte) in out.chunks_mut(8).zip(vector) {
                for (at, value) in values.iter_mut().enumerate() {
                    *value = f32::from(bit(byte, at));
                }
            }
        }
    }
}

/// The inverse of [`to_f32`]: writes `values` as `element`, rounded to what it can hold. Floats are rounded to the
/// nearest, ties to even; whole numbers half away from zero, and what is beyond them becomes the nearest that there is;
/// a bit is 1 from one half on. As many values as `out` has room for; the shorter of the two slices counts.
pub fn from_f32(element: Element, values: &[f32], out: &mut [u8]) {
    fn each<const N: usize>(values: &[f32], out: &mut [u8], one: impl Fn(f32) -> [u8; N]) {
        for (value, bytes) in values.iter().zip(out.as_chunks_mut::<N>().0) {
            *bytes = one(*value);
        }
    }
    match element {
        Element::F32 => each(values, out, f32::to_le_bytes),
        Element::F16 => each(values, out, |value| f16::from_f32(value).to_le_bytes()),
        Element::Bf16 => each(values, out, |value| bf16::from_f32(value).to_le_bytes()),
        Element::U8 => each(values, out, |value| [value.round() as u8]),
        Element::I8 => each(values, out, |value| [value.round() as i8 as u8]),
        Element::B1 => {
            for (values, byte) in values.chunks(8).zip(out) {
                *byte = 0;
                for (at, value) in values.iter().enumerate() {
                    *byte |= u8::from(*value >= 0.5) << (7 - at);
                }
            }
        }
    }
}

/// By blocks that lie aligned on the stack, which the library converts with the CPU's instructions.
fn halves_to_f32(halves: &[[u8; 2]], out: &mut [f32]) {
    const BLOCK: usize = 64;
    let mut block = [f16::ZERO; BLOCK];
    for (halves, out) in halves.chunks(BLOCK).zip(out.chunks_mut(BLOCK)) {
        let count = halves.len().min(out.len());
        for (half, bytes) in block.iter_mut().zip(halves) {
            *half = f16::from_le_bytes(*bytes);
        }
        block[..count].convert_to_f32_slice(&mut out[..count]);
    }
}

/// Index of the first component that is NaN or infinite; always `None` for integers.
pub fn first_non_finite(element: Element, vector: &[u8]) -> Option<usize> {
    // A float is finite unless its exponent is all ones, which the bits show without a conversion.
    match element {
        Element::F32 => first_match(vector.as_chunks::<4>().0, |bytes| {
            u32::from_le_bytes(bytes) & 0x7f80_0000 == 0x7f80_0000
        }),
        Element::F16 => {
            first_match(vector.as_chunks::<2>().0, |bytes| u16::from_le_bytes(bytes) & 0x7c00 == 0x7c00)
        }
        Element::Bf16 => {
            first_match(vector.as_chunks::<2>().0, |bytes| u16::from_le_bytes(bytes) & 0x7f80 == 0x7f80)
        }
        Element::U8 | Element::I8 | Element::B1 => None,
    }
}

/// Whole blocks are tested without a branch a component, so that they become SIMD.
fn first_match<const N: usize>(components: &[[u8; N]], matches: impl Fn([u8; N]) -> bool) -> Option<usize> {
    const BLOCK: usize = 32;
    let block = components
        .chunks(BLOCK)
        .position(|block| block.iter().fold(false, |found, &bytes| found | matches(bytes)))?;
    let start = block * BLOCK;
    let within = components[start..].iter().position(|&bytes| matches(bytes))?;
    Some(start + within)
}

/// The inner product of two vectors of equal length in bytes; NaN where the lengths differ.
pub fn dot(element: Element, a: &[u8], b: &[u8]) -> f32 {
    let dim = element.components_in(a.len());
    -Distance::new(element, Metric::InnerProduct, dim).between(a, b)
}

/// The squared Euclidean norm of a vector.
pub fn squared_norm(element: Element, vector: &[u8]) -> f32 {
    dot(element, vector, vector)
}

/// Scales `vector` to length 1. False, and the vector left as it is, where it has no direction:
/// all zeros, or not finite.
pub fn normalize_f32(vector: &mut [f32]) -> bool {
    // In 64 bits neither tiny nor huge components lose their squares.
    let norm = vector.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt();
    if norm == 0.0 || !norm.is_finite() {
        return false;
    }
    for component in vector {
        *component = (f64::from(*component) / norm) as f32;
    }
    true
}
