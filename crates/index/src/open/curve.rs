//! Recall against effort, as the calibrations of an open index have it.

use super::Index;
use crate::calibrate::given_queries::{EffortPoint, MEASURED_RECALLS};
use crate::calibrate::log::BUILD_NAME;
use crate::error::IndexError;
use crate::query::Effort;
use serde::Serialize;

/// The effort that a calibration takes for a recall.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct CurvePoint {
    /// The recall: measured with given queries, or asked of the calibration of the build.
    pub recall: f32,
    /// Groups, lists or partitions that are searched; 0 for a graph.
    pub probes: usize,
    /// Length of the candidate list.
    pub search_list: usize,
    /// Limit of distance beyond which groups or lists are skipped; 0 skips none.
    pub prune: f32,
    /// The price of such a query on this machine by the cost model, in nanoseconds.
    pub predicted_ns: f64,
}

/// Recall against effort by one calibration.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RecallCurve {
    /// The name of the calibration; `build` is that of the build.
    pub calibration: String,
    /// Number of neighbours. Of a calibration with given queries, the measured number that searches for the
    /// requested one use.
    pub k: usize,
    /// Number of queries measured; `None` for the build, whose measurement its family keeps to itself.
    pub queries: Option<u32>,
    /// Seconds since 1970 (UTC) when it was measured; `None` for the build.
    pub measured_at: Option<u64>,
    /// The points in ascending order of recall.
    pub points: Vec<CurvePoint>,
}

impl Index {
    /// Returns recall against effort for searches of `k` neighbours, by the calibration of the build and by
    /// those with given queries. Without any points, every search compares all vectors.
    ///
    /// # Errors
    /// Damage and errors of the store while the calibrations are read.
    pub fn recall_curves(&self, k: usize) -> Result<Vec<RecallCurve>, IndexError> {
        let mut curves = vec![self.curve_of_build(k)];
        for measured in self.calibrations()? {
            let all = &measured.calibration.curves;
            let Some(curve) = all.iter().find(|curve| curve.k as usize >= k).or(all.last()) else { continue };
            let point =
                |point: &EffortPoint| self.curve_point(point.recall, point.effort(), curve.k as usize);
            curves.push(RecallCurve {
                calibration: measured.name.clone(),
                k: curve.k as usize,
                queries: Some(measured.calibration.queries),
                measured_at: Some(measured.measured_at),
                points: rising(curve.points.iter().map(point).collect()),
            });
        }
        Ok(curves)
    }

    fn curve_of_build(&self, k: usize) -> RecallCurve {
        let mut points: Vec<CurvePoint> = Vec::new();
        for asked in MEASURED_RECALLS {
            let Some(effort) = self.effort_at(k, asked, self.loaded.profile()) else { break };
            let point = self.curve_point(asked, effort, k);
            let same = |last: &CurvePoint| {
                (last.probes, last.search_list, last.prune) == (point.probes, point.search_list, point.prune)
            };
            // Of several recalls that take the same effort, the largest counts.
            if points.last().is_some_and(same) {
                points.pop();
            }
            points.push(point);
        }
        RecallCurve { calibration: BUILD_NAME.into(), k, queries: None, measured_at: None, points }
    }

    fn curve_point(&self, recall: f32, effort: Effort, k: usize) -> CurvePoint {
        let Effort { search_list, probes, prune } = effort;
        CurvePoint { recall, probes, search_list, prune, predicted_ns: self.price(effort, k) }
    }
}

/// Returns the points that a search may choose: those for which no cheaper one has as much recall.
fn rising(mut points: Vec<CurvePoint>) -> Vec<CurvePoint> {
    points.sort_by(|a, b| a.predicted_ns.total_cmp(&b.predicted_ns).then(b.recall.total_cmp(&a.recall)));
    let mut most = f32::NEG_INFINITY;
    points.retain(|point| {
        let rises = point.recall > most;
        most = most.max(point.recall);
        rises
    });
    points
}
