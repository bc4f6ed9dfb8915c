//! Residual codes of a group, and the tables that score blocks of 32 of them.
//!
//! Four bytes of a code are contiguous. Each of their eight half bytes selects an entry of a table of 16. An
//! entry is a byte, and each table has its own weight, so that the tables of low bit planes, whose values are
//! small, have fine steps. The sums are whole numbers, the same with every instruction set.

use super::encode::{PlaneScratch, dot};
use super::layout::{GROUP, GROUP_WORD, PlaneLayout};
use super::quantizer::{GAUSSIAN_ERROR, GAUSSIAN_STEP, PlaneQuantizer};
use super::rotation::QueryParts;
#[cfg(target_arch = "x86_64")]
use super::{group_avx2, group_avx512};
use crate::distance::Isa;
use crate::quantize::code::block::GroupScan;
use crate::quantize::code::block::SCAN_BLOCK;
use crate::quantize::code::finite_or_zero;
use crate::topk::Neighbor;

/// Largest weight of a table. Two entries times the weight still fit a 16-bit number, which AVX2 needs.
const MOST_WEIGHT: usize = 64;
/// Tables of a word: one for each half byte.
const WORD_TABLES: usize = 2 * GROUP_WORD;

/// Four tables of 16 entries, which fill an AVX-512 register.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct TableQuad(pub(super) [u8; 64]);

impl TableQuad {
    /// Returns the bytes of each quad.
    pub(super) fn as_bytes(quads: &[TableQuad]) -> &[[u8; 64]] {
        // SAFETY: a quad consists of 64 bytes, with a stricter alignment than bytes.
        unsafe { std::slice::from_raw_parts(quads.as_ptr().cast(), quads.len()) }
    }
}

/// Tables of one query for scanning groups; reusable.
#[derive(Clone, Debug, Default)]
pub(in crate::quantize) struct GroupQuery {
    /// Tables of each word of a code: those of its four low halves, then those of its four high halves.
    pub(super) tables: Vec<TableQuad>,
    /// Weights of each four tables.
    pub(super) weights: Vec<[u8; GROUP_WORD]>,
    /// Constant of the inner product: `<q, p>` is `bias + unit * sum`.
    bias: f32,
    unit: f32,
    /// Term of every score from the mean of the residuals.
    mean_term: f32,
    gain_factor: f32,
    rotated: Vec<f32>,
    parts: QueryParts,
}

/// Terms that turn sums into scores: `base + norm_unit * norm + gain * (offset + scale * sum)`.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScoreTerms {
    pub(super) base: f32,
    pub(super) norm_unit: f32,
    pub(super) offset: f32,
    pub(super) scale: f32,
}

impl GroupQuery {
    /// Returns the terms for a group whose centroid is at `centroid_distance`.
    pub(super) fn score_terms(&self, centroid_distance: f32, norm_unit: f32) -> ScoreTerms {
        ScoreTerms {
            base: centroid_distance + self.mean_term,
            norm_unit,
            offset: self.gain_factor * self.bias,
            scale: self.gain_factor * self.unit,
        }
    }
}

impl PlaneQuantizer {
    pub(in crate::quantize) fn encode_group(
        &self,
        is_l2: bool,
        vectors: &[f32],
        centroid: &[f32],
        blocks: &mut [u8],
        scratch: &mut PlaneScratch,
    ) {
        blocks.fill(0);
        let mut centre = std::mem::take(&mut scratch.centre);
        centre.resize(self.layout.dims().max(self.dim), 0.0);
        let stride = centre.len();
        self.rotation.apply_rows(centroid, stride, &mut centre);
        let mean_dot = dot(centroid, &self.mean);
        self.encode_rows(vectors, Some(centroid), scratch, |row, encoded| {
            let block = &mut blocks[row / SCAN_BLOCK * SCAN_BLOCK * self.code_bytes()..];
            // The gain is rounded as in storage, so that the term of the centroid cancels in the score.
            let gain = self.layout.stored_factor(encoded.gain);
            let centroid_dot = mean_dot + gain * dot(encoded.point, &centre[..encoded.point.len()]);
            let factor = if is_l2 { (encoded.norm + 2.0 * centroid_dot) / self.norm_unit } else { 0.0 };
            self.layout.store_lane(encoded.levels, factor, gain, row % SCAN_BLOCK, block);
        });
        scratch.centre = centre;
    }

    /// Returns the relative error of the scores of a group. It assumes queries halfway between two
    /// distributions: the same variance in every direction, and the variances of the data.
    pub(in crate::quantize) fn group_error(&self) -> f32 {
        let total = f64::from(self.norm_unit);
        let uniform_share = 1.0 / self.dim as f64;
        let mut coded = 0.0;
        let mut square = 0.0;
        for d in 0..self.layout.dims() {
            let bits = self.layout.bits(d) as usize;
            let variance = f64::from(self.steps[d] / GAUSSIAN_STEP[bits]).powi(2);
            let weight = 0.5 * (uniform_share + variance / total);
            square += weight * variance * GAUSSIAN_ERROR[bits];
            coded += variance;
        }
        if let Some(kept) = self.rotation.axes().filter(|kept| *kept < self.dim) {
            let rest = (total - coded).max(0.0);
            let mean_variance = rest / (self.dim - kept) as f64;
            square += 0.5 * (uniform_share + mean_variance / total) * rest;
        }
        (square / total).sqrt() as f32
    }

    pub(in crate::quantize) fn prepare_groups(&self, is_l2: bool, query: &[f32], group: &mut GroupQuery) {
        let dims = self.layout.dims();
        group.rotated.resize(dims.max(self.dim), 0.0);
        self.rotation.apply(query, &mut group.parts, &mut group.rotated);
        group.rotated[..dims].iter_mut().zip(&self.steps).for_each(|(q, s)| *q *= s);
        let mean_dot: f32 = query.iter().zip(&self.mean).map(|(q, m)| q * m).sum();
        group.gain_factor = if is_l2 { -2.0 } else { -1.0 };
        group.mean_term = group.gain_factor * mean_dot;
        self.fill_tables(group);
    }

    fn fill_tables(&self, group: &mut GroupQuery) {
        #[cfg(target_arch = "x86_64")]
        match Isa::best() {
            // SAFETY: the CPU has the instructions.
            Isa::Avx512 | Isa::Avx512Vnni => return unsafe { group_avx512::fill_tables(self, group) },
            // SAFETY: as above.
            Isa::Avx2 => return unsafe { group_avx2::fill_tables(self, group) },
            _ => {}
        }
        self.fill_tables_by(group, sums_of);
    }

    /// Fills the tables. It is compiled once for each instruction set, whose implementation of [`sums_of`] is
    /// `sums_of`.
    #[inline(always)]
    pub(super) fn fill_tables_by(
        &self,
        group: &mut GroupQuery,
        sums_of: impl Fn(&[f32; 4], f32, f32) -> [u8; 16],
    ) {
        let words = self.layout.group_words();
        group.tables.clear();
        group.tables.resize(2 * words, TableQuad([0; 64]));
        group.weights.clear();
        group.weights.resize(2 * words, [0; GROUP_WORD]);
        let values = &group.rotated;
        let most = MOST_WEIGHT.min(i32::MAX as usize / (255 * WORD_TABLES * words.max(1)));
        let half_values = |plane: u8, g: usize, half: usize| -> [f32; 4] {
            let at = g * GROUP + 4 * half;
            std::array::from_fn(|i| values[at + i] * f32::from(1u8 << plane))
        };
        // The highest plane of a dimension has the largest values, and the width of a table is the sum of
        // their magnitudes.
        let mut widest = 0.0f32;
        for (g, &bits) in self.layout.group_bits.iter().enumerate() {
            for half in 0..2 {
                widest = widest.max(half_values(bits - 1, g, half).iter().map(|v| v.abs()).sum());
            }
        }
        let unit = widest / (255 * most) as f32;
        let (unit, inverse) = finite_or_zero(unit, 1.0 / unit);
        let mut bias = 0.0f64;
        for (d, v) in values[..self.layout.dims()].iter().enumerate() {
            bias -= f64::from(v * self.layout.middle(d));
        }
        for (byte, (plane, g)) in self.layout.plane_content().enumerate() {
            for half in 0..2 {
                let scaled = half_values(plane, g, half);
                let least: f32 = scaled.iter().map(|v| v.min(0.0)).sum();
                let width: f32 = scaled.iter().map(|v| v.abs()).sum();
                let weight = rounded_up(width * inverse / 255.0).clamp(1, most as i32);
                let quad = 2 * (byte / GROUP_WORD) + half;
                let table = &mut group.tables[quad].0[byte % GROUP_WORD * 16..][..16];
                table.copy_from_slice(&sums_of(&scaled, -least, inverse / weight as f32));
                group.weights[quad][byte % GROUP_WORD] = weight as u8;
                bias += f64::from(least);
            }
        }
        (group.unit, group.bias) = (unit, bias as f32);
    }

    pub(in crate::quantize) fn scan_group(
        &self,
        isa: Isa,
        query: &GroupQuery,
        group: &GroupScan<'_>,
        hits: &mut Vec<Neighbor>,
    ) {
        assert_eq!(query.tables.len(), 2 * self.layout.group_words(), "prepared by another codec");
        let terms = query.score_terms(group.centroid_distance, self.norm_unit);
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Vnni if std::is_x86_feature_detected!("avx512vbmi") => {
                // SAFETY: the CPU has the instructions, the blocks hold the codes, the tables fit the layout.
                unsafe { group_avx512::scan(&self.layout, query, terms, group, hits) }
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 | Isa::Avx512 | Isa::Avx512Vnni => {
                // SAFETY: as above.
                unsafe { group_avx2::scan(&self.layout, query, terms, group, hits) }
            }
            _ => scan_scalar(&self.layout, query, terms, group, hits),
        }
    }
}

/// Rounds `value`, which is far within the range of an `i32`, up to a whole number.
#[inline(always)]
fn rounded_up(value: f32) -> i32 {
    let whole = value as i32;
    whole + i32::from(value > whole as f32)
}

/// Returns the table of 16 entries: for each set of four bits, `first` plus the sum of the values whose bits
/// are set, times `step`, rounded to a byte.
#[inline(always)]
pub(super) fn sums_of(values: &[f32; 4], first: f32, step: f32) -> [u8; 16] {
    let mut sums = [first; 16];
    for (bit, value) in values.iter().enumerate() {
        // All 16 sums at once, which fit a register; some add nothing.
        sums = std::array::from_fn(|set| if set >> bit & 1 == 1 { sums[set] + value } else { sums[set] });
    }
    sums.map(|sum| (sum * step + 0.5).min(255.0) as i32 as u8)
}

/// The reference kernel, and the kernel for CPUs without another.
fn scan_scalar(
    layout: &PlaneLayout,
    query: &GroupQuery,
    terms: ScoreTerms,
    group: &GroupScan<'_>,
    hits: &mut Vec<Neighbor>,
) {
    for number in 0..group.count {
        let block = &group.blocks[number / SCAN_BLOCK * SCAN_BLOCK * layout.code_bytes..];
        let lane = number % SCAN_BLOCK;
        let mut sum = 0u32;
        for byte in 0..layout.plane_bytes {
            let code = block[layout.lane_byte(byte, lane)];
            for (half, label) in [code & 15, code >> 4].into_iter().enumerate() {
                let (quad, table) = (2 * (byte / GROUP_WORD) + half, byte % GROUP_WORD);
                let entry = query.tables[quad].0[table * 16 + usize::from(label)];
                sum += u32::from(entry) * u32::from(query.weights[quad][table]);
            }
        }
        let (norm, gain) = layout.lane_factors(lane, block);
        let distance =
            (terms.base + terms.norm_unit * norm) + gain * (terms.offset + terms.scale * sum as f32);
        if distance < group.threshold {
            hits.push(Neighbor { distance, id: group.first.wrapping_add(number as u32) });
        }
    }
}
