//! The trained quantizer, which encoding, scoring and scanning share.

use super::factors::load_factors;
use super::layout::{GROUP, PlaneLayout};
use super::rotation::Rotation;
use crate::quantize::code::QuantizeError;
use crate::quantize::code::bytes::{ByteReader, ByteWriter};
use std::sync::Arc;

/// Step of the best uniform grid of 1 to 8 bits for a Gaussian of variance 1 (Max, 1960). Index 0: no bits.
pub(super) const GAUSSIAN_STEP: [f32; 9] =
    [0.0, 1.596, 0.9957, 0.586, 0.3352, 0.1881, 0.1041, 0.0569, 0.0308];
/// Mean squared error of that grid. Index 0: no bits.
pub(super) const GAUSSIAN_ERROR: [f64; 9] =
    [1.0, 0.3634, 0.1188, 0.03744, 0.01154, 0.00349, 0.00104, 0.000304, 0.0000876];
/// Bits of the widest dimension from which queries have 16 bits. The error of an 8-bit query would be visible
/// there.
const FINE_QUERY_BITS: usize = 7;

/// A rotation, a grid for each kept coordinate, and the layout of their bits.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::quantize) struct PlaneQuantizer {
    pub(super) dim: usize,
    pub(super) mean: Vec<f32>,
    /// The rotation, shared with the codecs of shorter codes.
    pub(super) rotation: Arc<Rotation>,
    /// Grid step of each kept dimension, for a vector of the sample's mean length.
    pub(super) steps: Vec<f32>,
    /// Expected squared error of each kept dimension, for the bound.
    pub(super) errors: Vec<f32>,
    /// Share of the variance in axes that are not kept.
    pub(super) tail: f32,
    /// Unit of stored squared norms, so that they fit f16.
    pub(super) norm_unit: f32,
    pub(super) layout: PlaneLayout,
}

impl PlaneQuantizer {
    pub(in crate::quantize) fn code_bytes(&self) -> usize {
        self.layout.code_bytes
    }

    /// Returns the bytes of the two factors of a code, and those of its planes.
    pub(in crate::quantize) fn field_bytes(&self) -> (usize, usize) {
        (self.layout.factor_bytes, self.layout.plane_bytes)
    }

    /// Writes the reconstruction of a code to `out`: the mean plus the grid point, scaled by the gain.
    pub(in crate::quantize) fn decode(&self, code: &[u8], out: &mut [f32]) {
        let gain = self.factors(code).1;
        let dims = self.layout.dims();
        let mut point = vec![0.0; dims.max(self.dim)];
        for (d, p) in point[..dims].iter_mut().enumerate() {
            *p = (f32::from(self.layout.level(code, d)) - self.layout.middle(d)) * self.steps[d] * gain;
        }
        self.rotation.invert(&point, out);
        out.iter_mut().zip(&self.mean).for_each(|(o, m)| *o += m);
    }

    /// Returns the factors of a code: `|o|^2` and `|o|^2 / <point, o>`.
    fn factors(&self, code: &[u8]) -> (f32, f32) {
        let (norm, gain) = load_factors(self.layout.factor_bytes == 4, code);
        (norm * self.norm_unit, gain)
    }

    /// Returns true if an 8-bit query would add a visible error.
    pub(super) fn is_fine(&self) -> bool {
        self.layout.group_bits.first().is_some_and(|&b| usize::from(b) >= FINE_QUERY_BITS)
    }

    pub(in crate::quantize) fn write(&self, writer: &mut ByteWriter) {
        writer.u32(self.layout.factor_bytes as u32);
        writer.u32(self.layout.group_bits.len() as u32);
        writer.bytes(&self.layout.group_bits);
        writer.floats(&[self.norm_unit, self.tail]);
        writer.floats(&self.mean);
        writer.floats(&self.steps);
        writer.floats(&self.errors);
        self.rotation.write(writer);
    }

    /// Returns true if the rotation is stored in bytes.
    pub(in crate::quantize) fn has_byte_rotation(&self) -> bool {
        self.rotation.is_of_bytes()
    }

    /// Reads a quantizer. `byte_rotation` is true if a dense rotation is stored in bytes.
    pub(in crate::quantize) fn read(
        dim: usize,
        byte_rotation: bool,
        reader: &mut ByteReader<'_>,
    ) -> Result<Self, QuantizeError> {
        let factor_bytes = reader.u32()? as usize;
        let groups = reader.u32()? as usize;
        if !matches!(factor_bytes, 4 | 8) {
            return Err(QuantizeError::Malformed("the factors have neither 4 nor 8 bytes"));
        }
        if groups == 0 || groups > dim.div_ceil(GROUP) {
            return Err(QuantizeError::Malformed("number of coded dimensions out of range"));
        }
        let group_bits = reader.take(groups)?.to_vec();
        if group_bits.iter().any(|b| !(1..=8).contains(b)) || group_bits.windows(2).any(|w| w[0] < w[1]) {
            return Err(QuantizeError::Malformed(
                "the bits of the dimensions are not 1 to 8 in falling order",
            ));
        }
        let layout = PlaneLayout::new(group_bits, factor_bytes);
        let units = reader.floats(2)?;
        let mean = reader.floats(dim)?;
        let steps = reader.floats(layout.dims())?;
        let errors = reader.floats(layout.dims())?;
        if units[0] <= 0.0
            || units[1] < 0.0
            || steps.iter().any(|&s| s <= 0.0)
            || errors.iter().any(|&e| e < 0.0)
        {
            return Err(QuantizeError::Malformed("a scale is not positive"));
        }
        let rotation = Arc::new(Rotation::read(dim, layout.dims(), byte_rotation, reader)?);
        Ok(PlaneQuantizer { dim, mean, rotation, steps, errors, tail: units[1], norm_unit: units[0], layout })
    }
}
