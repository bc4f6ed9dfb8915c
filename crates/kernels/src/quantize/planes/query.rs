//! A query that is prepared for scoring plane codes.

use super::layout::PlaneLayout;
use super::quantizer::PlaneQuantizer;
use super::rotation::QueryParts;
use crate::metric::Metric;
use crate::quantize::code::{finite_or_zero, nearest_whole};

/// A query that is prepared for scoring plane codes; reusable.
#[derive(Clone, Debug, Default)]
pub(in crate::quantize) struct PlaneQuery {
    centred: Vec<f32>,
    rotated: Vec<f32>,
    parts: QueryParts,
    /// Low halves of the query's value in each dimension.
    pub(super) unit_low: Vec<i8>,
    /// High halves of the query's value in each dimension.
    pub(super) unit_high: Vec<i8>,
    /// Low halves in the order of the code's bits.
    pub(super) low: Vec<i8>,
    /// High halves in the order of the code's bits; empty for an 8-bit query.
    pub(super) high: Vec<i8>,
    /// Value of a unit of the query's bytes.
    pub(super) scale: f32,
    /// Minus the sum of the query's units times the middles of the grids.
    pub(super) offset: f32,
    pub(super) bias: f32,
    pub(super) norm_factor: f32,
    pub(super) gain_factor: f32,
    pub(super) query_norm: f32,
    pub(super) point_error: f32,
    pub(super) tail_error: f32,
}

impl PlaneQuery {
    fn set_bytes(&mut self, fine: bool, layout: &PlaneLayout) {
        let values = &self.rotated[..layout.dims()];
        let widest = values.iter().fold(0.0f32, |a, v| a.max(v.abs()));
        // 126.5 high units leave space for the carry of a low half that is rounded up.
        let limit = if fine { 126.5 * 256.0 } else { 127.0 };
        let inverse;
        (self.scale, inverse) = finite_or_zero(widest / limit, limit / widest);
        self.unit_low.clear();
        self.unit_high.clear();
        let mut offset = 0.0f64;
        for (d, v) in values.iter().enumerate() {
            let unit = nearest_whole((v * inverse).clamp(-limit, limit));
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

impl PlaneQuantizer {
    /// Prepares `p` for scoring codes against `query`.
    pub(in crate::quantize) fn prepare(&self, metric: Metric, query: &[f32], p: &mut PlaneQuery) {
        let dims = self.layout.dims();
        p.centred.clear();
        match metric {
            Metric::L2 => p.centred.extend(query.iter().zip(&self.mean).map(|(q, m)| q - m)),
            _ => p.centred.extend_from_slice(query),
        }
        p.rotated.resize(dims.max(self.dim), 0.0);
        self.rotation.apply(&p.centred, &mut p.parts, &mut p.rotated);
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
}
