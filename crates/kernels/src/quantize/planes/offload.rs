//! The data for scoring plane codes on another processor, such as a graphics card: the layout of a code, and
//! the numbers of a query. A kernel that computes the same integer sums, and the same operations on floats in
//! the same order, gets the same estimates bit for bit.

use super::group::{GroupQuery, TableQuad};
use super::quantizer::PlaneQuantizer;
use super::query::PlaneQuery;

/// Layout of codes of bit planes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaneCodes {
    /// Bytes of a code.
    pub code_bytes: usize,
    /// Bytes of the two factors at its start: 4 (f16) or 8 (f32).
    pub factor_bytes: usize,
    /// For each byte after the factors, its plane and its group. The byte holds one bit of each of the 8
    /// dimensions of the group.
    pub bytes: Vec<(u8, usize)>,
    /// Number of groups of 8 dimensions.
    pub groups: usize,
    /// True if queries have a high byte for each dimension.
    pub fine: bool,
}

/// Numbers of a query for scoring codes.
///
/// A set bit of plane p adds 2^p times the byte of its dimension to the low sum and to the high sum. With
/// `sum = low sum + 256 x high sum + offset`, the estimate is
/// `(bias + norm_factor x first factor) + gain_factor x (second factor x sum)`.
#[derive(Debug, Clone, Copy)]
pub struct PlaneNumbers<'a> {
    /// Low bytes, one for each dimension.
    pub low: &'a [i8],
    /// High bytes, one for each dimension; not used for codes that are not [fine](PlaneCodes::fine).
    pub high: &'a [i8],
    /// Constant that is added to the sums.
    pub offset: f32,
    /// Estimate of a code whose factors are 0.
    pub bias: f32,
    /// Multiplier of the first factor.
    pub norm_factor: f32,
    /// Multiplier of the second factor.
    pub gain_factor: f32,
}

/// Numbers of a query for scoring the codes of groups.
///
/// With `sum` the sum of `weight x entry` over all half bytes of a code, the estimate is
/// `((centroid distance + mean_term) + norm_unit x first factor) + second factor x (offset + scale x sum)`.
#[derive(Debug, Clone, Copy)]
pub struct ScanNumbers<'a> {
    /// Constant that is added to the distance of every centroid.
    pub mean_term: f32,
    /// Multiplier of the first factor.
    pub norm_unit: f32,
    /// Constant that is added to the scaled sum.
    pub offset: f32,
    /// Multiplier of the sum.
    pub scale: f32,
    /// Tables of each word of four bytes: 4 tables of 16 entries for its low halves, then 4 for its high
    /// halves.
    pub tables: &'a [[u8; 64]],
    /// Weights of each four tables.
    pub weights: &'a [[u8; 4]],
}

impl GroupQuery {
    pub(in crate::quantize) fn numbers(&self, quantizer: &PlaneQuantizer) -> ScanNumbers<'_> {
        let terms = self.score_terms(0.0, quantizer.norm_unit);
        ScanNumbers {
            mean_term: terms.base,
            norm_unit: terms.norm_unit,
            offset: terms.offset,
            scale: terms.scale,
            tables: TableQuad::as_bytes(&self.tables),
            weights: &self.weights,
        }
    }
}

impl PlaneQuantizer {
    pub(in crate::quantize) fn plane_codes(&self) -> PlaneCodes {
        PlaneCodes {
            code_bytes: self.code_bytes(),
            factor_bytes: self.layout.factor_bytes,
            bytes: self.layout.plane_content().collect(),
            groups: self.layout.group_bits.len(),
            fine: self.is_fine(),
        }
    }
}

impl PlaneQuery {
    pub(in crate::quantize) fn numbers(&self) -> PlaneNumbers<'_> {
        PlaneNumbers {
            low: &self.unit_low,
            high: &self.unit_high,
            offset: self.offset,
            bias: self.bias,
            norm_factor: self.norm_factor,
            gain_factor: self.gain_factor,
        }
    }
}
