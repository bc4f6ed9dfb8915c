//! Shortening of codes without their vectors: the point of the long code takes the place of the vector and is
//! encoded again.
//!
//! The highest bits of the long code alone would be a code, too, with the same allocation of bits. But its
//! error is a quarter larger than that of a code whose levels and scale are chosen for the fewer bits.

use super::encode::{PlaneScratch, dot};
use super::layout::{GROUP, GROUP_WORD, PlaneLayout};
use super::quantizer::{GAUSSIAN_ERROR, GAUSSIAN_STEP, PlaneQuantizer};
use super::train::{allocate, factor_bytes, weight};
use crate::quantize::code::block::SCAN_BLOCK;

/// Buffers of [`PlaneQuantizer::shorten_group`], one for each thread.
#[derive(Clone, Debug, Default)]
pub(super) struct ShortenScratch {
    levels: Vec<u8>,
    point: Vec<f32>,
}

impl PlaneQuantizer {
    /// Returns the quantizer for shorter codes of at most `code_bytes` bytes; `None` if that is not
    /// shorter, or too short.
    pub(in crate::quantize) fn shortened(&self, code_bytes: usize) -> Option<PlaneQuantizer> {
        let factor_bytes = factor_bytes(code_bytes, self.dim).min(self.layout.factor_bytes);
        let plane_bytes = code_bytes.checked_sub(factor_bytes)?;
        if plane_bytes < GROUP_WORD || plane_bytes >= self.layout.plane_bytes {
            return None;
        }
        let variance = |(d, step): (usize, &f32)| {
            let deviation = f64::from(step / GAUSSIAN_STEP[self.layout.bits(d) as usize]);
            deviation * deviation
        };
        let variances: Vec<f64> = self.steps.iter().enumerate().map(variance).collect();
        let weights: Vec<f64> =
            variances.chunks(GROUP).map(|group| group.iter().map(|v| weight(*v)).sum()).collect();
        // No group gets more bits than in the long code, which could not fill them.
        let group_bits = allocate(&weights, plane_bytes, |g| self.layout.group_bits[g]);
        let layout = PlaneLayout::new(group_bits, factor_bytes);
        let kept = &variances[..layout.dims()];
        let bits = |d: usize| layout.bits(d) as usize;
        let step = |(d, v): (usize, &f64)| GAUSSIAN_STEP[bits(d)] * v.sqrt() as f32;
        let error = |(d, v): (usize, &f64)| (GAUSSIAN_ERROR[bits(d)] * v) as f32;
        let coded: f64 = kept.iter().sum();
        Some(PlaneQuantizer {
            steps: kept.iter().enumerate().map(step).collect(),
            errors: kept.iter().enumerate().map(error).collect(),
            tail: (1.0 - coded / f64::from(self.norm_unit)).clamp(0.0, 1.0) as f32,
            layout,
            ..self.clone()
        })
    }

    /// Writes the codes of `shorter` ([`PlaneQuantizer::shortened`]) for the first `count` codes of a group
    /// to `out`.
    pub(in crate::quantize) fn shorten_group(
        &self,
        shorter: &PlaneQuantizer,
        is_l2: bool,
        (blocks, count): (&[u8], usize),
        centroid: &[f32],
        out: &mut [u8],
        scratch: &mut PlaneScratch,
    ) {
        let (long, short) = (&self.layout, &shorter.layout);
        out.fill(0);
        let PlaneScratch { centre, shorten, grid, trial, levels: short_levels, .. } = scratch;
        let ShortenScratch { levels, point } = shorten;
        centre.resize(long.dims().max(self.dim), 0.0);
        let stride = centre.len();
        self.rotation.apply_rows(centroid, stride, centre);
        shorter.fill_grid(grid);
        levels.resize(long.dims(), 0);
        let coded = grid.steps.len();
        point.resize(long.dims().max(coded), 0.0);
        trial.resize(coded, 0.0);
        short_levels.resize(coded, 0);
        for number in 0..count {
            let (block, lane) = (number / SCAN_BLOCK, number % SCAN_BLOCK);
            let code = &blocks[block * SCAN_BLOCK * long.code_bytes..];
            long.load_lane(lane, code, levels);
            let (norm, gain) = long.lane_factors(lane, code);
            decode_point(long, levels, &self.steps, gain, point);
            let long_dot = dot(&point[..long.dims()], &centre[..long.dims()]);
            // The grid is padded; the padding belongs to no dimension.
            point[short.dims()..coded].fill(0.0);
            let short_gain = short.stored_factor(shorter.choose(grid, &point[..coded], trial, short_levels));
            let dims = short.dims();
            let difference = short_gain * dot(&trial[..dims], &centre[..dims]) - long_dot;
            let factor = if is_l2 { norm + 2.0 * difference / self.norm_unit } else { 0.0 };
            let out = &mut out[block * SCAN_BLOCK * short.code_bytes..];
            short.store_lane(&short_levels[..dims], factor, short_gain, lane, out);
        }
    }
}

/// Writes the grid point of `levels`, scaled by `gain`, to `point`.
fn decode_point(layout: &PlaneLayout, levels: &[u8], steps: &[f32], gain: f32, point: &mut [f32]) {
    let grid = levels.chunks_exact(GROUP).zip(steps.chunks_exact(GROUP)).zip(point.chunks_exact_mut(GROUP));
    for (g, ((levels, steps), point)) in grid.enumerate() {
        let middle = layout.middle(g * GROUP);
        for ((level, step), value) in levels.iter().zip(steps).zip(point) {
            *value = (f32::from(*level) - middle) * step * gain;
        }
    }
}
