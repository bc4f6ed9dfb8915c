//! RaBitQ in its extended form (Gao & Long, SIGMOD'24; Gao et al., SIGMOD'25), and the same code with bits
//! allocated to principal axes.
//!
//! A vector is centred and rotated; each coordinate becomes one of `2^bits` levels, chosen together so that the
//! code points in the vector's direction; two factors, `|o|^2` and `|o|^2 / <code, o>`, make the estimate of the
//! inner product unbiased.

mod axes;
mod bound;
mod eigen;
pub(super) mod encode;
#[cfg(target_arch = "x86_64")]
mod encode_avx512;
pub(super) mod group;
#[cfg(target_arch = "x86_64")]
mod group_avx2;
#[cfg(target_arch = "x86_64")]
mod group_avx512;
mod layout;
mod rotation;
pub(super) mod score;
#[cfg(target_arch = "x86_64")]
mod score_avx2;
#[cfg(target_arch = "x86_64")]
mod score_avx512;
#[cfg(test)]
mod tests;

use super::bytes::{Reader, Writer};
use super::{CodeKind, CodeQuery, EncodeScratch, QuantizeError, held};
use crate::kmeans::random::{Random, sample_rows};
use crate::metric::Metric;
use layout::{GROUP, LEAST_BYTES, Layout, WORD};
use rotation::Rotation;
use score::{load_factors, store_factors};

/// Step of the best uniform grid of 1 to 8 bits for a Gaussian of variance 1 (Max, 1960).
const GAUSSIAN_STEP: [f32; 9] = [0.0, 1.596, 0.9957, 0.586, 0.3352, 0.1881, 0.1041, 0.0569, 0.0308];
/// Mean squared error of that grid; index 0: no bits.
const GAUSSIAN_ERROR: [f64; 9] =
    [1.0, 0.3634, 0.1188, 0.03744, 0.01154, 0.00349, 0.00104, 0.000304, 0.0000876];
/// From this many bits a dimension on, the error of f16 factors would show.
const FINE_BITS: usize = 5;
/// From this many bits in the widest dimension on, the error of an 8-bit query would show.
const FINE_QUERY_BITS: usize = 7;
/// Rows whose mean and axes are taken.
const TRAINING_ROWS: usize = 100_000;
/// Exponent of the variance in the bit allocation's weights: 1 fits queries that are spread as the data, 0 fits
/// the reconstruction. Between them: SIFT gains 1% of recall from 0 to 0.5, GloVe loses 1%.
const ALLOCATION_EXPONENT: f64 = 0.25;

/// A rotation, a grid for each kept coordinate and the layout of their bits.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PlaneQuantizer {
    dim: usize,
    mean: Vec<f32>,
    rotation: Rotation,
    /// Grid step of each kept dimension, for a vector of the sample's mean size.
    steps: Vec<f32>,
    /// Expected squared error of each kept dimension, for the bound.
    errors: Vec<f32>,
    /// Share of the variance in axes that are not kept.
    tail: f32,
    /// What a stored squared norm of 1 stands for, so that f16 holds it.
    norm_unit: f32,
    layout: Layout,
}

impl PlaneQuantizer {
    /// The same number of bits in every dimension after a random rotation.
    pub(super) fn train_uniform(
        bits: u8,
        code_bytes: usize,
        sample: &[f32],
        dim: usize,
        seed: u64,
    ) -> Result<Self, QuantizeError> {
        let factor_bytes = if usize::from(bits) >= FINE_BITS { 8 } else { 4 };
        let layout = Layout::new(vec![bits; dim.div_ceil(GROUP)], factor_bytes);
        if layout.code_bytes > code_bytes {
            let kind = CodeKind::RaBitQ { bits };
            return Err(QuantizeError::CodeBytes { code_bytes, kind, least: layout.code_bytes });
        }
        let (mean, centred) = centre(sample, dim, seed);
        let total = mean_square(&centred, dim);
        let variance = vec![total / dim as f64; layout.dims()];
        Self::assemble(mean, Rotation::random(dim, seed), variance, total, layout)
    }

    /// Bits by variance over the principal axes of the sample, rotated at random where they have equal bits.
    pub(super) fn train_allocated(
        code_bytes: usize,
        sample: &[f32],
        dim: usize,
        seed: u64,
    ) -> Result<Self, QuantizeError> {
        if code_bytes < LEAST_BYTES {
            let kind = CodeKind::Axes;
            return Err(QuantizeError::CodeBytes { code_bytes, kind, least: LEAST_BYTES });
        }
        let (mean, centred) = centre(sample, dim, seed);
        let (mut axes, mut variances) = axes::principal_axes(&centred, dim);
        let factor_bytes = if code_bytes * 8 >= FINE_BITS * dim { 8 } else { 4 };
        let group_bits = allocate(&variances, code_bytes.saturating_sub(factor_bytes).max(1));
        axes::mix_runs(&mut axes, &mut variances, &group_bits, dim, seed);
        let layout = Layout::new(group_bits, factor_bytes);
        let kept = layout.dims().min(dim);
        let mut columns = vec![0.0f32; dim * kept];
        for (a, axis) in axes.chunks_exact(dim).take(kept).enumerate() {
            axis.iter().enumerate().for_each(|(d, &v)| columns[d * kept + a] = v as f32);
        }
        let total = variances.iter().sum();
        let mut kept_variances = variances[..kept].to_vec();
        kept_variances.resize(layout.dims(), 0.0);
        Self::assemble(mean, Rotation::Dense { columns, dim, kept }, kept_variances, total, layout)
    }

    fn assemble(
        mean: Vec<f32>,
        rotation: Rotation,
        variances: Vec<f64>,
        total: f64,
        layout: Layout,
    ) -> Result<Self, QuantizeError> {
        // Data without any spread that a float holds still needs a grid that is not zero.
        let unit = if total >= f64::from(f32::MIN_POSITIVE) { total.min(f64::from(f32::MAX)) } else { 1.0 };
        let least = unit / variances.len() as f64 * 1e-6;
        let kept: f64 = variances.iter().sum();
        let bits = |d: usize| layout.bits(d) as usize;
        let grid = |(d, v): (usize, &f64)| GAUSSIAN_STEP[bits(d)] * v.max(least).sqrt() as f32;
        let error = |(d, v): (usize, &f64)| (GAUSSIAN_ERROR[bits(d)] * v) as f32;
        let steps: Vec<f32> = variances.iter().enumerate().map(grid).collect();
        let errors: Vec<f32> = variances.iter().enumerate().map(error).collect();
        // Such a codec could not be read again, and the distances overflow as these do.
        if !steps.iter().chain(&errors).all(|v| v.is_finite()) {
            return Err(QuantizeError::TooLarge);
        }
        let tail = ((unit - kept) / unit).clamp(0.0, 1.0) as f32;
        Ok(PlaneQuantizer {
            dim: mean.len(),
            mean,
            rotation,
            steps,
            errors,
            tail,
            norm_unit: unit as f32,
            layout,
        })
    }

    pub(super) fn code_bytes(&self) -> usize {
        self.layout.code_bytes
    }

    /// Bytes of the two factors of a code, and of its planes.
    pub(super) fn field_bytes(&self) -> (usize, usize) {
        (self.layout.factor_bytes, self.layout.plane_bytes)
    }

    pub(super) fn encode(&self, vectors: &[f32], codes: &mut [u8], scratch: &mut EncodeScratch) {
        let bytes = self.code_bytes();
        self.encode_rows(vectors, None, scratch, |row, chosen| {
            let code = &mut codes[row * bytes..(row + 1) * bytes];
            code.fill(0);
            self.layout.pack(chosen.levels, |byte, value| code[self.layout.factor_bytes + byte] = value);
            let norm = chosen.norm / self.norm_unit;
            store_factors(self.layout.factor_bytes == 4, norm, chosen.gain, code);
        });
    }

    /// Mean plus the code's point, at the length that the factors give it.
    pub(super) fn decode(&self, code: &[u8], out: &mut [f32]) {
        let gain = self.factors(code).1;
        let dims = self.layout.dims();
        let mut point = vec![0.0; dims.max(self.dim)];
        for (d, p) in point[..dims].iter_mut().enumerate() {
            *p = (f32::from(self.layout.level(code, d)) - self.layout.middle(d)) * self.steps[d] * gain;
        }
        self.rotation.invert(&point, out);
        out.iter_mut().zip(&self.mean).for_each(|(o, m)| *o += m);
    }

    /// `|o|^2` and `|o|^2 / <point, o>` of a code.
    fn factors(&self, code: &[u8]) -> (f32, f32) {
        let (norm, gain) = load_factors(self.layout.factor_bytes == 4, code);
        (norm * self.norm_unit, gain)
    }

    pub(super) fn prepare(&self, metric: Metric, query: &[f32], prepared: &mut CodeQuery) {
        let dims = self.layout.dims();
        let p = &mut prepared.planes;
        p.centred.clear();
        match metric {
            Metric::L2 => p.centred.extend(query.iter().zip(&self.mean).map(|(q, m)| q - m)),
            _ => p.centred.extend_from_slice(query),
        }
        p.rotated.resize(dims.max(self.dim), 0.0);
        self.rotation.apply(&p.centred, &mut p.rotated);
        let norm: f32 = p.centred.iter().map(|v| v * v).sum();
        let kept_norm: f32 = p.rotated[..dims].iter().map(|v| v * v).sum();
        let unkept = self.dim.saturating_sub(dims).max(1) as f32;
        p.tail_error = self.tail * (norm - kept_norm).max(0.0) / unkept;
        p.point_error = p.rotated[..dims].iter().zip(&self.errors).map(|(q, e)| q * q * e).sum();
        p.query_norm = norm;
        p.rotated[..dims].iter_mut().zip(&self.steps).for_each(|(q, s)| *q *= s);
        p.set_bytes(self.is_fine(), &self.layout);
        let mean_dot = || query.iter().zip(&self.mean).map(|(q, m)| q * m).sum::<f32>();
        (p.norm_factor, p.bias, p.gain_factor) = match metric {
            Metric::L2 => (self.norm_unit, norm, -2.0 * p.scale),
            Metric::InnerProduct => (0.0, -mean_dot(), -p.scale),
            Metric::Cosine => (0.0, 1.0 - mean_dot(), -p.scale),
        };
    }

    /// True where an 8-bit query would add visible error.
    fn is_fine(&self) -> bool {
        self.layout.group_bits.first().is_some_and(|&b| usize::from(b) >= FINE_QUERY_BITS)
    }

    pub(super) fn write(&self, writer: &mut Writer) {
        writer.u32(self.layout.factor_bytes as u32);
        writer.u32(self.layout.group_bits.len() as u32);
        writer.bytes(&self.layout.group_bits);
        writer.floats(&[self.norm_unit, self.tail]);
        writer.floats(&self.mean);
        writer.floats(&self.steps);
        writer.floats(&self.errors);
        self.rotation.write(writer);
    }

    pub(super) fn read(dim: usize, reader: &mut Reader<'_>) -> Result<Self, QuantizeError> {
        let factor_bytes = reader.u32()? as usize;
        let groups = reader.u32()? as usize;
        if !matches!(factor_bytes, 4 | 8) {
            return Err(QuantizeError::Malformed("factors of neither 4 nor 8 bytes"));
        }
        if groups == 0 || groups > dim.div_ceil(GROUP) {
            return Err(QuantizeError::Malformed("number of coded dimensions out of range"));
        }
        let group_bits = reader.take(groups)?.to_vec();
        if group_bits.iter().any(|b| !(1..=8).contains(b)) || group_bits.windows(2).any(|w| w[0] < w[1]) {
            return Err(QuantizeError::Malformed("bits a dimension are not 1 to 8, falling"));
        }
        let layout = Layout::new(group_bits, factor_bytes);
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
        let rotation = Rotation::read(dim, layout.dims(), reader)?;
        Ok(PlaneQuantizer { dim, mean, rotation, steps, errors, tail: units[1], norm_unit: units[0], layout })
    }
}

/// The mean of a subsample and the subsample without it.
fn centre(sample: &[f32], dim: usize, seed: u64) -> (Vec<f32>, Vec<f32>) {
    let rows = sample_rows(sample.len() / dim, TRAINING_ROWS, &mut Random::new(seed));
    let mut sums = vec![0.0f64; dim];
    for &r in &rows {
        sums.iter_mut().zip(&sample[r * dim..(r + 1) * dim]).for_each(|(s, &v)| *s += f64::from(v));
    }
    let mean: Vec<f32> = sums.iter().map(|s| (s / rows.len() as f64) as f32).collect();
    let centred = rows
        .iter()
        .flat_map(|r| sample[r * dim..(r + 1) * dim].iter().zip(&mean))
        .map(|(v, m)| (v - m).clamp(f32::MIN, f32::MAX))
        .collect();
    (mean, centred)
}

fn mean_square(centred: &[f32], dim: usize) -> f64 {
    centred.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>() / (centred.len() / dim).max(1) as f64
}

/// Gives each byte of `plane_bytes` to the group of 8 axes whose weighted error it lowers most.
fn allocate(variances: &[f64], plane_bytes: usize) -> Vec<u8> {
    let weight = |v: f64| v * v.max(0.0).powf(ALLOCATION_EXPONENT);
    let weights: Vec<f64> =
        variances.chunks(GROUP).map(|g| g.iter().map(|&v| weight(v)).sum::<f64>()).collect();
    let mut bits = vec![0u8; weights.len()];
    for _ in 0..plane_bytes {
        let gain = |(g, &b): (usize, &u8)| {
            let b = usize::from(b);
            if b >= 8 { -1.0 } else { weights[g] * (GAUSSIAN_ERROR[b] - GAUSSIAN_ERROR[b + 1]) }
        };
        let gains = bits.iter().enumerate().map(gain);
        let best = gains.enumerate().fold((usize::MAX, -1.0), |a, (g, v)| if v > a.1 { (g, v) } else { a });
        match bits.get_mut(best.0) {
            Some(chosen) => *chosen += 1,
            None => break,
        }
    }
    // Rising variances cannot occur, but the layout's order must not hang on rounding.
    bits.sort_unstable_by(|a, b| b.cmp(a));
    bits.retain(|&b| b > 0);
    bits
}

/// What a [`CodeQuery`] holds for plane codes.
#[derive(Clone, Debug, Default)]
pub(super) struct PlaneQuery {
    centred: Vec<f32>,
    rotated: Vec<f32>,
    /// Low and high halves of the query's value in each dimension.
    unit_low: Vec<i8>,
    unit_high: Vec<i8>,
    /// Low halves in the order of the code's bits.
    low: Vec<i8>,
    /// High halves in that order; empty for an 8-bit query.
    high: Vec<i8>,
    /// What a query unit stands for.
    scale: f32,
    /// Minus the query's sum over the middles of all grids.
    offset: f32,
    bias: f32,
    norm_factor: f32,
    gain_factor: f32,
    query_norm: f32,
    point_error: f32,
    tail_error: f32,
}

impl PlaneQuery {
    fn set_bytes(&mut self, fine: bool, layout: &Layout) {
        let values = &self.rotated[..layout.dims()];
        let widest = values.iter().fold(0.0f32, |a, v| a.max(v.abs()));
        // 126.5 high units leave room for the carry of a low half that rounds up.
        let limit = if fine { 126.5 * 256.0 } else { 127.0 };
        let inverse;
        (self.scale, inverse) = held(widest / limit, limit / widest);
        self.unit_low.clear();
        self.unit_high.clear();
        let mut offset = 0.0f64;
        for (d, v) in values.iter().enumerate() {
            let unit = (v * inverse).clamp(-limit, limit).round_ties_even() as i32;
            offset -= f64::from(unit) * f64::from(layout.middle(d));
            self.unit_low.push(unit as i8);
            self.unit_high.push(((unit - i32::from(unit as i8)) >> 8) as i8);
        }
        layout.spread(&self.unit_low, &mut self.low);
        self.high.clear();
        if fine {
            layout.spread(&self.unit_high, &mut self.high);
        }
        self.offset = offset as f32;
    }
}
