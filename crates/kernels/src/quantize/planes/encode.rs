//! Encoding of vectors to levels and factors. Rows are rotated in batches; the levels of a row are those at
//! the best of several scales.
//!
//! The grid point with the greatest cosine with a vector is the rounding of the vector at some scale (Gao et
//! al., SIGMOD'25, section 3.2). So only the scale has to be searched, and each scale takes one pass over the
//! dimensions.

#[cfg(target_arch = "x86_64")]
use super::encode_avx512;
use super::factors::store_factors;
use super::layout::GROUP;
use super::quantizer::PlaneQuantizer;
use super::shorten::ShortenScratch;
#[cfg(target_arch = "x86_64")]
use crate::distance::Isa;

/// Rows that are rotated together.
const BATCH: usize = 32;
/// Dimensions in a step: the lanes of an AVX-512 register. Each lane has its own sum, so the sums are the
/// same on every CPU.
pub(super) const LANES: usize = 16;
/// Scales that are tried in one pass.
pub(super) const SCALES: usize = 8;
/// Multiples of the expected scale of a vector that are tried first.
const COARSE: [f32; SCALES] = [0.6, 0.72, 0.82, 0.91, 1.0, 1.1, 1.22, 1.4];
/// Multiples of the best scale so far that are tried next, coarse to fine.
const FINE: [[f32; SCALES]; 1] = [[0.94, 0.955, 0.97, 0.985, 1.015, 1.03, 1.045, 1.06]];

/// The grid of a codec by dimension, padded with zeros to whole steps.
#[derive(Clone, Debug, Default)]
pub(super) struct Grid {
    pub(super) steps: Vec<f32>,
    pub(super) inverse_steps: Vec<f32>,
    pub(super) middles: Vec<f32>,
}

/// Buffers of an encoder, one for each thread.
#[derive(Clone, Debug, Default)]
pub(in crate::quantize) struct PlaneScratch {
    centred: Vec<f32>,
    rotated: Vec<f32>,
    pub(super) levels: Vec<u8>,
    pub(super) trial: Vec<f32>,
    norms: Vec<f32>,
    pub(super) grid: Grid,
    /// The rotated centroid of a group.
    pub(super) centre: Vec<f32>,
    pub(super) shorten: ShortenScratch,
}

/// The code of one row before it is packed.
pub(super) struct EncodedRow<'a> {
    /// Squared length of the row minus the origin.
    pub(super) norm: f32,
    /// `|o|^2 / <point, o>`, or 0.
    pub(super) gain: f32,
    /// Level of each dimension, counted from 0.
    pub(super) levels: &'a [u8],
    /// Grid point of the levels.
    pub(super) point: &'a [f32],
}

impl PlaneQuantizer {
    /// Encodes whole rows.
    pub(in crate::quantize) fn encode(&self, vectors: &[f32], codes: &mut [u8], scratch: &mut PlaneScratch) {
        let bytes = self.code_bytes();
        self.encode_rows(vectors, None, scratch, |row, encoded| {
            let code = &mut codes[row * bytes..(row + 1) * bytes];
            code.fill(0);
            self.layout.pack(encoded.levels, |byte, value| code[self.layout.factor_bytes + byte] = value);
            let norm = encoded.norm / self.norm_unit;
            store_factors(self.layout.factor_bytes == 4, norm, encoded.gain, code);
        });
    }

    /// Encodes the `n x dim` `vectors` and calls `store` with each row, in order.
    ///
    /// With an `origin`, the code is that of the vector minus the origin minus the mean, and the norm is that
    /// of the vector minus the origin. Without one, both are of the vector minus the mean.
    pub(super) fn encode_rows(
        &self,
        vectors: &[f32],
        origin: Option<&[f32]>,
        scratch: &mut PlaneScratch,
        mut store: impl FnMut(usize, EncodedRow<'_>),
    ) {
        let stride = self.layout.dims().max(self.dim).next_multiple_of(LANES);
        let PlaneScratch { centred, rotated, levels, trial, norms, grid, .. } = scratch;
        self.fill_grid(grid);
        centred.resize(BATCH * self.dim, 0.0);
        rotated.resize(BATCH * stride, 0.0);
        norms.resize(BATCH, 0.0);
        levels.resize(grid.steps.len(), 0);
        trial.resize(grid.steps.len(), 0.0);
        for (batch, rows) in vectors.chunks(BATCH * self.dim).enumerate() {
            let centred = &mut centred[..rows.len()];
            for ((row, out), norm) in
                rows.chunks_exact(self.dim).zip(centred.chunks_exact_mut(self.dim)).zip(norms.iter_mut())
            {
                *norm = match origin {
                    Some(origin) => {
                        subtract(row, origin, out);
                        let norm = squared_length(out);
                        out.iter_mut().zip(&self.mean).for_each(|(o, m)| *o -= m);
                        norm
                    }
                    None => {
                        subtract(row, &self.mean, out);
                        squared_length(out)
                    }
                };
            }
            self.rotation.apply_rows(centred, stride, rotated);
            for (r, row) in rotated.chunks_exact_mut(stride).take(rows.len() / self.dim).enumerate() {
                row[self.layout.dims()..].fill(0.0);
                let gain = self.choose(grid, &row[..grid.steps.len()], trial, levels);
                let norm = norms[r];
                let dims = self.layout.dims();
                store(
                    batch * BATCH + r,
                    EncodedRow { norm, gain, levels: &levels[..dims], point: &trial[..dims] },
                );
            }
        }
    }

    pub(super) fn fill_grid(&self, grid: &mut Grid) {
        let padded = self.layout.dims().next_multiple_of(LANES);
        for values in [&mut grid.steps, &mut grid.inverse_steps, &mut grid.middles] {
            values.clear();
        }
        grid.steps.extend_from_slice(&self.steps);
        grid.inverse_steps.extend(self.steps.iter().map(|s| 1.0 / s));
        for &bits in &self.layout.group_bits {
            grid.middles.extend([((1u32 << bits) - 1) as f32 * 0.5; GROUP]);
        }
        for values in [&mut grid.steps, &mut grid.inverse_steps, &mut grid.middles] {
            values.resize(padded, 0.0);
        }
    }

    /// Chooses levels whose grid point has nearly the greatest cosine with `rotated`. Returns `|o|^2 /
    /// <point, o>`.
    pub(super) fn choose(&self, grid: &Grid, rotated: &[f32], point: &mut [f32], levels: &mut [u8]) -> f32 {
        let norm = squared_length(rotated);
        let expected = self.norm_unit * (1.0 - self.tail);
        let expected_scale = if expected > 0.0 { (norm / expected).sqrt() } else { 0.0 };
        if !(expected_scale > 0.0 && expected_scale.is_finite()) {
            levels.fill(0);
            point.fill(0.0);
            return 0.0;
        }
        let scale = best_scale(expected_scale, |scales| try_scales(grid, rotated, scales.map(|s| 1.0 / s)));
        let dot = round_at_scale(grid, rotated, 1.0 / scale, point, levels);
        if dot > 0.0 { norm / dot } else { 0.0 }
    }
}

/// Returns the scale whose grid point has the greatest cosine, of those tried, coarse to fine. `try_scales`
/// returns `<point, o>` and `|point|^2` at each scale.
#[inline]
fn best_scale(
    expected_scale: f32,
    try_scales: impl Fn([f32; SCALES]) -> ([f32; SCALES], [f32; SCALES]),
) -> f32 {
    let (mut best, mut scale) = (0.0f32, expected_scale);
    for factors in std::iter::once(COARSE).chain(FINE) {
        let from = scale;
        let scales = factors.map(|f| f * from);
        let (dots, norms) = try_scales(scales);
        for t in 0..SCALES {
            // The squared cosine has the order of the cosine, since rounding changes no sign. The dot
            // products are squares already, so their squares may overflow or vanish in f32.
            let square = match dots[t] * dots[t] {
                square if norms[t] > 0.0 && square.is_normal() => square / norms[t],
                _ if norms[t] > 0.0 => dots[t] / norms[t] * dots[t],
                _ => 0.0,
            };
            if square > best {
                (best, scale) = (square, scales[t]);
            }
        }
    }
    scale
}

/// Returns `<point, o>` and `|point|^2` of the rounded row at each scale.
#[inline]
pub(super) fn try_scales(
    grid: &Grid,
    rotated: &[f32],
    inverses: [f32; SCALES],
) -> ([f32; SCALES], [f32; SCALES]) {
    #[cfg(target_arch = "x86_64")]
    if matches!(Isa::best(), Isa::Avx512 | Isa::Avx512Vnni) {
        // SAFETY: the CPU has the instructions; rows and grid are padded to the same length. (Bench:
        // `group_table`, encode.)
        return unsafe { encode_avx512::try_scales(grid, rotated, inverses) };
    }
    try_scales_scalar(grid, rotated, inverses)
}

/// Writes the grid point at a scale and its levels; returns `<point, o>`.
#[inline]
pub(super) fn round_at_scale(
    grid: &Grid,
    rotated: &[f32],
    inverse: f32,
    point: &mut [f32],
    levels: &mut [u8],
) -> f32 {
    #[cfg(target_arch = "x86_64")]
    if matches!(Isa::best(), Isa::Avx512 | Isa::Avx512Vnni) {
        // SAFETY: as above; point and levels have the length of the grid.
        return unsafe { encode_avx512::round_at_scale(grid, rotated, inverse, point, levels) };
    }
    round_at_scale_scalar(grid, rotated, inverse, point, levels)
}

/// The reference for [`try_scales`].
pub(super) fn try_scales_scalar(
    grid: &Grid,
    rotated: &[f32],
    inverses: [f32; SCALES],
) -> ([f32; SCALES], [f32; SCALES]) {
    let (mut dots, mut norms) = ([0.0; SCALES], [0.0; SCALES]);
    for ((&inverse, dot), norm) in inverses.iter().zip(&mut dots).zip(&mut norms) {
        let (mut dot_lanes, mut norm_lanes) = ([0.0f32; LANES], [0.0f32; LANES]);
        for at in (0..rotated.len()).step_by(LANES) {
            let step = GridStep::new(grid, rotated, at);
            for i in 0..LANES {
                let value = step.level(i, inverse) * step.steps[i];
                dot_lanes[i] += value * step.rotated[i];
                norm_lanes[i] += value * value;
            }
        }
        (*dot, *norm) = (sum(dot_lanes), sum(norm_lanes));
    }
    (dots, norms)
}

/// The reference for [`round_at_scale`].
pub(super) fn round_at_scale_scalar(
    grid: &Grid,
    rotated: &[f32],
    inverse: f32,
    point: &mut [f32],
    levels: &mut [u8],
) -> f32 {
    let mut dots = [0.0f32; LANES];
    for at in (0..rotated.len()).step_by(LANES) {
        let step = GridStep::new(grid, rotated, at);
        for i in 0..LANES {
            let level = step.level(i, inverse);
            let value = level * step.steps[i];
            dots[i] += value * step.rotated[i];
            point[at + i] = value;
            levels[at + i] = (level + step.middles[i]) as u8;
        }
    }
    sum(dots)
}

/// Sixteen dimensions of the grid and of a row.
struct GridStep<'a> {
    rotated: &'a [f32],
    steps: &'a [f32],
    inverse_steps: &'a [f32],
    middles: &'a [f32],
}

impl<'a> GridStep<'a> {
    #[inline(always)]
    fn new(grid: &'a Grid, rotated: &'a [f32], at: usize) -> Self {
        GridStep {
            rotated: &rotated[at..at + LANES],
            steps: &grid.steps[at..at + LANES],
            inverse_steps: &grid.inverse_steps[at..at + LANES],
            middles: &grid.middles[at..at + LANES],
        }
    }

    /// Returns the nearest level of dimension `i`, counted from the middle of the grid: a whole number and a
    /// half.
    #[inline(always)]
    fn level(&self, i: usize, inverse_scale: f32) -> f32 {
        let level = (self.rotated[i] * self.inverse_steps[i] * inverse_scale).floor() + 0.5;
        // Comparisons with the NaN behaviour of the vector instructions.
        let level = if level > -self.middles[i] { level } else { -self.middles[i] };
        if level < self.middles[i] { level } else { self.middles[i] }
    }
}

#[inline(always)]
fn sum(mut lanes: [f32; LANES]) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
        width /= 2;
    }
    lanes[0]
}

fn subtract(row: &[f32], origin: &[f32], out: &mut [f32]) {
    out.iter_mut().zip(row.iter().zip(origin)).for_each(|(o, (v, c))| *o = v - c);
}

fn squared_length(values: &[f32]) -> f32 {
    dot(values, values)
}

/// Returns a dot product, summed by lanes.
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let (a_parts, a_tail) = a.as_chunks::<LANES>();
    let (b_parts, b_tail) = b.as_chunks::<LANES>();
    for (x, y) in a_parts.iter().zip(b_parts) {
        for i in 0..LANES {
            lanes[i] += x[i] * y[i];
        }
    }
    let tail: f32 = a_tail.iter().zip(b_tail).map(|(u, v)| u * v).sum();
    sum(lanes) + tail
}
