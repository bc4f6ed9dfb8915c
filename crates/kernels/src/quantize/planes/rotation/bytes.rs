//! A rotation whose matrix consists of bytes. It takes a quarter of the memory of floats, and a query reads a
//! quarter of the bytes.
//!
//! Each axis is rounded to 8 bits with its own scale, and a query to 14 bits, so sums are whole numbers, the
//! same with every instruction set. Codes are far less precise: below five bits a dimension, the rounding is
//! below a hundredth of the error of a code.

#[cfg(target_arch = "x86_64")]
use super::{bytes_avx2, bytes_avx512};
#[cfg(target_arch = "x86_64")]
use crate::distance::Isa;
use crate::quantize::code::bytes::{ByteReader, ByteWriter};
use crate::quantize::code::{QuantizeError, finite_or_zero, nearest_whole};
use std::sync::OnceLock;

/// Inputs whose weights are contiguous.
pub(super) const QUAD: usize = 4;
/// Axes in a register of AVX-512.
pub(super) const LANES: usize = 16;
/// Axes that are summed in one pass over a query. Their two sums each fill the registers.
pub(super) const PANEL: usize = 8 * LANES;
/// Largest weight.
const MOST_WEIGHT: f32 = 127.0;
/// Largest value of a rounded query.
const MOST_VALUE: f32 = 8191.0;
/// Bits of the lower part of a query value.
const LOW_BITS: u32 = 7;
/// Constant that is added to the upper part of a query value, so that it is not negative.
const UPPER_OFFSET: i32 = 64;
/// Largest squared rounding error of an axis, relative to its squared length. Weights of similar size have
/// 0.0001. On an axis along few inputs the small weights would vanish.
const MOST_ERROR: f64 = 1e-3;

/// A rotation whose matrix consists of bytes.
#[derive(Clone, Debug)]
pub(in super::super) struct ByteRotation {
    dim: usize,
    kept: usize,
    /// Panels of up to [`PANEL`] axes, padded with zeros to a multiple of [`LANES`]. For each four inputs a
    /// panel has the four weights of each axis.
    panels: Vec<i8>,
    /// Scale of the weights of each axis.
    scales: Vec<f32>,
    /// Sum of the weights of each axis.
    sums: Vec<i32>,
    /// The matrix as floats; computed by the first encoding.
    floats: OnceLock<Vec<f32>>,
}

impl PartialEq for ByteRotation {
    fn eq(&self, other: &Self) -> bool {
        (self.dim, self.kept, &self.panels, &self.scales)
            == (other.dim, other.kept, &other.panels, &other.scales)
    }
}

/// The weights of up to [`PANEL`] axes.
pub(super) struct Panel<'a> {
    pub(super) weights: &'a [i8],
    /// First axis of the panel.
    pub(super) first: usize,
    /// Registers that its axes take.
    pub(super) registers: usize,
}

impl ByteRotation {
    /// Rounds the weights of a rotation (`dim x kept`, input by input); `None` if the error of an axis would
    /// be too large.
    pub(super) fn round(columns: &[f32], dim: usize, kept: usize) -> Option<Self> {
        let mut largest = vec![0.0_f32; kept];
        let by_input = || columns.chunks_exact(kept);
        by_input().for_each(|column| largest.iter_mut().zip(column).for_each(|(l, w)| *l = l.max(w.abs())));
        let scales: Vec<f32> = largest.iter().map(|l| l / MOST_WEIGHT).collect();
        let round =
            |(weight, scale): (&f32, &f32)| ((weight / scale).round_ties_even() as i8).cast_unsigned();
        let weights: Vec<u8> = by_input().flat_map(|column| column.iter().zip(&scales).map(round)).collect();
        let (mut squares, mut errors) = (vec![0.0_f64; kept], vec![0.0_f64; kept]);
        for (column, rounded) in by_input().zip(weights.chunks_exact(kept)) {
            for axis in 0..kept {
                let (exact, rounded) = (column[axis], f32::from(rounded[axis].cast_signed()) * scales[axis]);
                squares[axis] += f64::from(exact).powi(2);
                errors[axis] += f64::from(exact - rounded).powi(2);
            }
        }
        let is_precise = errors.iter().zip(&squares).all(|(error, square)| *error <= MOST_ERROR * square);
        let has_scales = scales.iter().all(|scale| *scale > 0.0);
        (is_precise && has_scales).then(|| ByteRotation::new(dim, scales, &weights))
    }

    /// Creates a rotation of weights in their serialised order: `dim x kept`, input by input.
    fn new(dim: usize, scales: Vec<f32>, weights: &[u8]) -> Self {
        let kept = scales.len();
        let (width, quads) = (kept.next_multiple_of(LANES), dim.div_ceil(QUAD));
        let mut panels = vec![0_i8; width * quads * QUAD];
        let mut sums = vec![0_i32; kept];
        for (input, column) in weights.chunks_exact(kept).enumerate() {
            for (axis, weight) in column.iter().enumerate() {
                let first = axis / PANEL * PANEL;
                let panel_width = (width - first).min(PANEL);
                let at = first * quads + input / QUAD * panel_width + axis - first;
                panels[at * QUAD + input % QUAD] = weight.cast_signed();
                sums[axis] += i32::from(weight.cast_signed());
            }
        }
        ByteRotation { dim, kept, panels, scales, sums, floats: OnceLock::new() }
    }

    pub(super) fn dim(&self) -> usize {
        self.dim
    }

    pub(super) fn kept(&self) -> usize {
        self.kept
    }

    fn quads(&self) -> usize {
        self.dim.div_ceil(QUAD)
    }

    fn panels(&self) -> impl Iterator<Item = Panel<'_>> {
        let panels = self.panels.chunks(PANEL * self.quads() * QUAD);
        panels.enumerate().map(|(number, weights)| Panel {
            weights,
            first: number * PANEL,
            registers: weights.len() / (self.quads() * QUAD * LANES),
        })
    }

    /// Returns the weight of input `input` in axis `axis`.
    fn weight(&self, input: usize, axis: usize) -> i8 {
        let (first, quads) = (axis / PANEL * PANEL, self.quads());
        let panel_width = (self.kept.next_multiple_of(LANES) - first).min(PANEL);
        self.panels[(first * quads + input / QUAD * panel_width + axis - first) * QUAD + input % QUAD]
    }

    /// Returns the matrix as floats, `dim x kept`, which encoders multiply with.
    pub(super) fn columns(&self) -> &[f32] {
        self.floats.get_or_init(|| {
            let row = |input| {
                (0..self.kept).map(move |axis| f32::from(self.weight(input, axis)) * self.scales[axis])
            };
            (0..self.dim).flat_map(row).collect()
        })
    }

    /// Writes the rotated `row` to the first values of `out`. `parts` is scratch memory.
    pub(super) fn apply(&self, row: &[f32], parts: &mut QueryParts, out: &mut [f32]) {
        parts.split(row);
        let QueryParts { unit, parts, upper, lower } = parts;
        let width = self.kept.next_multiple_of(LANES);
        upper.resize(width, 0);
        lower.resize(width, 0);
        for panel in self.panels() {
            let axes = panel.first..panel.first + panel.registers * LANES;
            sum(&panel, parts, &mut upper[axes.clone()], &mut lower[axes]);
        }
        let sums = upper.iter().zip(lower.iter()).zip(&self.sums);
        for ((out, scale), ((upper, lower), sum)) in out.iter_mut().zip(&self.scales).zip(sums) {
            let upper = (upper - UPPER_OFFSET * sum) as f32 * (1 << LOW_BITS) as f32;
            *out = (upper + *lower as f32) * (*unit * scale);
        }
    }

    pub(super) fn write(&self, writer: &mut ByteWriter) {
        writer.u32(self.kept as u32);
        writer.floats(&self.scales);
        let column = |input| (0..self.kept).map(move |axis| self.weight(input, axis).cast_unsigned());
        writer.bytes(&(0..self.dim).flat_map(column).collect::<Vec<u8>>());
    }

    /// Reads the bytes of [`ByteRotation::write`] after the number of axes.
    pub(super) fn read(dim: usize, kept: usize, reader: &mut ByteReader<'_>) -> Result<Self, QuantizeError> {
        let scales = reader.floats(kept)?;
        let weights = reader.take(dim * kept)?;
        if weights.contains(&i8::MIN.cast_unsigned()) || scales.iter().any(|scale| *scale <= 0.0) {
            return Err(QuantizeError::Malformed("a weight of a rotation is out of range"));
        }
        Ok(ByteRotation::new(dim, scales, weights))
    }
}

/// A rounded vector to rotate, and its sums; scratch memory.
#[derive(Clone, Debug, Default)]
pub(in crate::quantize) struct QueryParts {
    /// Scale of the rounded values.
    unit: f32,
    /// For each four values, their upper parts plus [`UPPER_OFFSET`], then their lower parts: 7 bits each.
    parts: Vec<[u8; 2 * QUAD]>,
    upper: Vec<i32>,
    lower: Vec<i32>,
}

impl QueryParts {
    fn split(&mut self, row: &[f32]) {
        let largest = row.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
        let inverse;
        (self.unit, inverse) = finite_or_zero(largest / MOST_VALUE, MOST_VALUE / largest);
        self.parts.clear();
        self.parts.extend(row.chunks(QUAD).map(|values| {
            let upper_zero = UPPER_OFFSET as u8;
            let mut parts = [upper_zero, upper_zero, upper_zero, upper_zero, 0, 0, 0, 0];
            for (i, value) in values.iter().enumerate() {
                let rounded = nearest_whole(value * inverse);
                parts[i] = ((rounded >> LOW_BITS) + UPPER_OFFSET) as u8;
                parts[QUAD + i] = (rounded & ((1 << LOW_BITS) - 1)) as u8;
            }
            parts
        }));
    }
}

/// Sums the weights times the upper parts, and times the lower parts, for each axis.
fn sum(panel: &Panel<'_>, parts: &[[u8; 2 * QUAD]], upper: &mut [i32], lower: &mut [i32]) {
    #[cfg(target_arch = "x86_64")]
    match Isa::best() {
        // SAFETY: the CPU has the instructions; the slices have the lengths of the panel. (Bench:
        // `group_table`, prepare.)
        Isa::Avx512Vnni => return unsafe { bytes_avx512::sum(panel, parts, upper, lower) },
        // SAFETY: as above.
        Isa::Avx2 | Isa::Avx512 => return unsafe { bytes_avx2::sum(panel, parts, upper, lower) },
        _ => {}
    }
    sum_scalar(panel, parts, upper, lower);
}

/// The reference kernel, and the kernel for CPUs without another.
fn sum_scalar(panel: &Panel<'_>, parts: &[[u8; 2 * QUAD]], upper: &mut [i32], lower: &mut [i32]) {
    upper.fill(0);
    lower.fill(0);
    for (parts, weights) in parts.iter().zip(panel.weights.chunks_exact(panel.registers * LANES * QUAD)) {
        let weights = weights.as_chunks::<QUAD>().0;
        for ((upper, lower), weights) in upper.iter_mut().zip(lower.iter_mut()).zip(weights) {
            for (i, weight) in weights.iter().enumerate() {
                *upper += i32::from(*weight) * i32::from(parts[i]);
                *lower += i32::from(*weight) * i32::from(parts[QUAD + i]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kmeans::random::Random;

    fn columns(dim: usize, kept: usize) -> Vec<f32> {
        let mut random = Random::new((dim * kept) as u64);
        (0..dim * kept).map(|_| random.normal() as f32 / (dim as f32).sqrt()).collect()
    }

    #[test]
    fn sums_equal_those_of_the_rounded_matrix_with_every_instruction_set() {
        for (dim, kept) in [(1, 1), (3, 2), (16, 16), (33, 17), (100, 96), (130, 129), (300, 290), (64, 400)]
        {
            let rotation = ByteRotation::round(&columns(dim, kept), dim, kept).expect("even weights");
            let mut random = Random::new(dim as u64);
            let row: Vec<f32> = (0..dim).map(|_| random.normal() as f32 * 1e3).collect();
            let (mut parts, mut out) = (QueryParts::default(), vec![0.0; kept]);
            rotation.apply(&row, &mut parts, &mut out);
            let length = row.iter().map(|v| v * v).sum::<f32>().sqrt();
            for (axis, value) in out.iter().enumerate() {
                let exact: f32 = (0..dim).map(|i| row[i] * rotation.columns()[i * kept + axis]).sum();
                assert!((value - exact).abs() < 1e-3 * length, "{dim} {kept}: {value} {exact}");
            }
            for panel in rotation.panels() {
                let axes = panel.registers * LANES;
                let (mut upper, mut lower) = (vec![7; axes], vec![7; axes]);
                sum_scalar(&panel, &parts.parts, &mut upper, &mut lower);
                let expected = (upper.clone(), lower.clone());
                #[cfg(target_arch = "x86_64")]
                for isa in [Isa::Avx2, Isa::Avx512Vnni].into_iter().filter(|isa| isa.is_available()) {
                    // SAFETY: the CPU has the instructions.
                    unsafe {
                        match isa {
                            Isa::Avx2 => bytes_avx2::sum(&panel, &parts.parts, &mut upper, &mut lower),
                            _ => bytes_avx512::sum(&panel, &parts.parts, &mut upper, &mut lower),
                        }
                    }
                    assert_eq!((&upper, &lower), (&expected.0, &expected.1), "{isa} {dim} {kept}");
                }
                assert_eq!((upper, lower), expected);
            }
        }
    }

    #[test]
    fn the_largest_sums_do_not_overflow() {
        let dim = 65_536;
        let columns: Vec<f32> = (0..dim * 2).map(|i| if i % 2 == 0 { 1.0 } else { -1.0 }).collect();
        let rotation = ByteRotation::round(&columns, dim, 2).expect("even weights");
        let (mut parts, mut out) = (QueryParts::default(), [0.0; 2]);
        for value in [1.0_f32, -1.0, 1e30, 1e-30, 0.0] {
            rotation.apply(&vec![value; dim], &mut parts, &mut out);
            let expected = [value * dim as f32, -value * dim as f32];
            for (found, expected) in out.iter().zip(expected) {
                assert!((found - expected).abs() <= expected.abs() * 1e-6, "{found} {expected}");
            }
        }
    }

    #[test]
    fn axes_that_rounding_would_change_too_much_are_not_rounded() {
        let mut columns = columns(400, 8);
        columns[5] = 10.0;
        assert!(ByteRotation::round(&columns, 400, 8).is_none());
        assert!(ByteRotation::round(&[0.0; 4], 2, 2).is_none());
    }
}
