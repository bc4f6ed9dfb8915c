//! What scores plane codes on another processor than this one: the layout of a code, and the numbers of a query. Whoever does the same
//! integer sums and the same operations on floats in the same order gets the same estimates, bit for bit.

use super::group::{GroupQuery, TableQuad};
use super::quantizer::PlaneQuantizer;
use super::query::PlaneQuery;

/// How codes of bit planes lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaneCodes {
    /// Bytes of a code.
    pub code_bytes: usize,
    /// Bytes of the two factors at its start: 4 (f16) or 8 (f32).
    pub factor_bytes: usize,
    /// Of each byte behind the factors its plane, and the group of 8 dimensions of which it holds a bit each.
    pub bytes: Vec<(u8, usize)>,
    /// Groups of 8 dimensions.
    pub groups: usize,
    /// Whether queries have a high byte for each dimension.
    pub fine: bool,
}

/// A query made ready: with `sum = low sum + 256 x high sum + offset`, where a set bit of plane p adds 2^p times its dimension's byte,
/// the estimate is `(bias + norm_factor x first) + gain_factor x (second x sum)`.
#[derive(Debug, Clone, Copy)]
pub struct PlaneNumbers<'a> {
    /// Low bytes, one a dimension.
    pub low: &'a [i8],
    /// High bytes; of no meaning to codes that are not [fine](PlaneCodes::fine).
    pub high: &'a [i8],
    /// Added to the sums.
    pub offset: f32,
    /// The estimate where all factors are 0.
    pub bias: f32,
    /// What the first factor counts.
    pub norm_factor: f32,
    /// What the second factor counts.
    pub gain_factor: f32,
}

/// A query made ready for groups: with `sum` over all half bytes of a code of `weight x entry`, the estimate is
/// `((centroid distance + mean_term) + norm_unit x first) + second x (offset + scale x sum)`.
#[derive(Debug, Clone, Copy)]
pub struct ScanNumbers<'a> {
    /// Added to every centroid's distance.
    pub mean_term: f32,
    /// What the first factor counts.
    pub norm_unit: f32,
    /// Added to the scaled sum.
    pub offset: f32,
    /// What a sum counts.
    pub scale: f32,
    /// For each word of four bytes the tables of its low halves, then of its high halves: 4 tables of 16 entries each.
    pub tables: &'a [[u8; 64]],
    /// The weights of each four tables.
    pub weights: &'a [[u8; 4]],
}

impl GroupQuery {
    pub(in crate::quantize) fn numbers(&self, quantizer: &PlaneQuantizer) -> ScanNumbers<'_> {
        let finish = self.finish(0.0, quantizer.norm_unit);
        ScanNumbers {
            mean_term: finish.base,
            norm_unit: finish.norm_unit,
            offset: finish.offset,
            scale: finish.scale,
            tables: TableQuad::all(&self.tables),
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
