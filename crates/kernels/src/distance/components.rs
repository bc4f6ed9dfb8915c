//! Operations on one vector: conversion, norms, the check for NaN.

use super::Distance;
use super::bits::bit;
use crate::element::Element;
use crate::metric::Metric;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// Converts `vector` to `f32`, component by component, as far as both slices reach.
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

/// Converts `values` to `element`, as far as both slices reach. Inverts [`to_f32`] for values that `element`
/// can hold.
///
/// Other values are rounded. f16 and bf16 round to the nearest, ties to even. u8 and i8 round half away from
/// zero, and values outside their range become its nearest end. A bit is 1 for values of at least one half.
pub fn from_f32(element: Element, values: &[f32], out: &mut [u8]) {
    fn convert<const N: usize>(values: &[f32], out: &mut [u8], to_bytes: impl Fn(f32) -> [u8; N]) {
        for (value, bytes) in values.iter().zip(out.as_chunks_mut::<N>().0) {
            *bytes = to_bytes(*value);
        }
    }
    match element {
        Element::F32 => convert(values, out, f32::to_le_bytes),
        Element::F16 => convert(values, out, |value| f16::from_f32(value).to_le_bytes()),
        Element::Bf16 => convert(values, out, |value| bf16::from_f32(value).to_le_bytes()),
        Element::U8 => convert(values, out, |value| [value.round() as u8]),
        Element::I8 => convert(values, out, |value| [value.round() as i8 as u8]),
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

/// Converts f16 to f32, in blocks that are copied to aligned memory on the stack. `half` converts those with
/// the instructions of the CPU.
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

/// Returns the index of the first component that is NaN or infinite; always `None` for integers.
pub fn first_non_finite(element: Element, vector: &[u8]) -> Option<usize> {
    // A float is NaN or infinite if all bits of its exponent are set.
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

/// Returns the index of the first component that `matches`. Blocks are tested without a branch for each
/// component, so that the compiler uses SIMD.
fn first_match<const N: usize>(components: &[[u8; N]], matches: impl Fn([u8; N]) -> bool) -> Option<usize> {
    const BLOCK: usize = 32;
    let block = components
        .chunks(BLOCK)
        .position(|block| block.iter().fold(false, |any, &bytes| any | matches(bytes)))?;
    let start = block * BLOCK;
    let within = components[start..].iter().position(|&bytes| matches(bytes))?;
    Some(start + within)
}

/// Returns the inner product of two vectors; NaN if their lengths in bytes differ.
pub fn dot(element: Element, a: &[u8], b: &[u8]) -> f32 {
    let dim = element.components_in(a.len());
    -Distance::new(element, Metric::InnerProduct, dim).between(a, b)
}

/// Returns the squared Euclidean norm of a vector.
pub fn squared_norm(element: Element, vector: &[u8]) -> f32 {
    dot(element, vector, vector)
}

/// Scales `vector` to length 1. Returns false and leaves the vector unchanged if it is all zeros or not
/// finite.
pub fn normalize_f32(vector: &mut [f32]) -> bool {
    // In 64 bits the squares of tiny and huge components neither vanish nor overflow.
    let norm = vector.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt();
    if norm == 0.0 || !norm.is_finite() {
        return false;
    }
    for component in vector {
        *component = (f64::from(*component) / norm) as f32;
    }
    true
}
