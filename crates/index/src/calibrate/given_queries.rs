//! Calibrations of a finished index with queries of its user, in one form for all families.
//!
//! The build measures the recall of each effort with vectors of the data. Queries from another source find
//! less at the same effort. A calibration with such queries runs them at efforts that the calibration of the
//! build chooses for increasing recalls, and then at multiples of its largest effort. It keeps these efforts
//! with the recall that they found. A search takes the cheapest of them that found enough.

use super::{Calibration, Curve, Point};
use crate::query::Effort;
use serde::{Deserialize, Serialize};

/// The recalls for which the build's calibration chooses efforts to measure.
pub(crate) const MEASURED_RECALLS: [f32; 26] = [
    0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.84, 0.87, 0.89, 0.9, 0.91, 0.92, 0.93, 0.94, 0.95,
    0.96, 0.97, 0.98, 0.985, 0.99, 0.995, 1.0,
];
/// The factors on the largest effort that the build measured.
pub(crate) const MEASURED_FACTORS: [f32; 16] =
    [1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 12.0, 16.0, 32.0, 64.0, 256.0, 4096.0, MOST_FACTOR];
/// The largest factor. No index has an effort that this factor does not extend to all its vectors.
const MOST_FACTOR: f32 = 1_048_576.0;
/// The largest number of an effort.
const MOST_NUMBER: u32 = 1 << 20;
/// The recall from which on larger efforts are not measured: a difference to 1 is noise.
const ENOUGH_RECALL: f32 = 0.9985;

/// An effort that was measured with given queries.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct EffortPoint {
    /// Groups, lists or partitions that are searched; 0 for a graph.
    pub probes: u32,
    /// Length of the candidate list.
    pub search_list: u32,
    /// Groups or lists more than `1 + prune` times as far as the nearest are skipped; 0 skips none.
    pub prune: f32,
    /// Mean recall@k of this effort, or of a larger one if that found less.
    pub recall: f32,
    /// Up to 1, the recall for which the calibration of the build chose this effort; above 1, the factor on
    /// the largest effort that the build measured.
    pub asked: f32,
}

/// The conditions on which the recall of an effort depends, besides the queries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conditions {
    /// True if candidates are read alone. Otherwise whole pages are read, and other vectors on them are
    /// compared, too.
    pub reads_candidates_alone: bool,
    /// Bytes of codes that the memory budget leaves out because shorter codes are used.
    pub codes_left_out: u64,
}

impl Point for EffortPoint {
    fn recall(&self) -> f32 {
        self.recall
    }

    fn rank(&self) -> (u32, u32, f32) {
        (self.probes, self.search_list, self.prune)
    }

    fn largest(&self) -> u32 {
        self.search_list.max(self.probes)
    }

    fn check(&self, _probes: u32) -> Result<(), String> {
        if self.search_list > 0 && self.prune >= 0.0 && self.prune.is_finite() {
            return Ok(());
        }
        Err(format!("a search list of {} with prune {}", self.search_list, self.prune))
    }
}

impl EffortPoint {
    pub(crate) fn new(effort: Effort, recall: f32, asked: f32) -> EffortPoint {
        let number = |number: usize| u32::try_from(number).unwrap_or(MOST_NUMBER).min(MOST_NUMBER);
        let (probes, search_list) = (number(effort.probes), number(effort.search_list));
        EffortPoint { probes, search_list, prune: effort.prune, recall, asked }
    }

    pub(crate) fn effort(&self) -> Effort {
        Effort { search_list: self.search_list as usize, probes: self.probes as usize, prune: self.prune }
    }

    /// Returns true if this effort does all that `other` does.
    fn includes(&self, other: &EffortPoint) -> bool {
        let as_wide = self.prune == 0.0 || other.prune > 0.0 && self.prune >= other.prune;
        self.probes >= other.probes && self.search_list >= other.search_list && as_wide
    }
}

/// A calibration of a finished index with given queries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueryCalibration {
    /// Its name. An index has at most one calibration of a name.
    pub name: String,
    /// Seconds since 1970 (UTC) when it was measured.
    pub measured_at: u64,
    /// The conditions of the measurement. Under others, efforts for the same recall of the build's
    /// calibration are taken instead of the measured ones.
    #[serde(flatten)]
    pub conditions: Conditions,
    /// The measured efforts for each k, and the distances of the queries to their neighbours.
    #[serde(flatten)]
    pub calibration: Calibration<EffortPoint>,
}

/// The efforts from which a search may choose.
pub(crate) struct Reaching {
    /// All measured efforts that reach the recall, each with [`EffortPoint::asked`]. If none does, the one
    /// with the most recall.
    pub(crate) efforts: Vec<(Effort, f32)>,
    /// True if they reach the recall.
    pub(crate) reached: bool,
}

impl QueryCalibration {
    /// Returns the efforts that reach a recall@k. They are those of the next larger measured k, which are
    /// sufficient. Beyond the largest one they grow with k, and the recall is raised by two thirds of its
    /// distance to 1.
    pub(crate) fn reaching(&self, k: usize, recall: f32) -> Reaching {
        let curves = &self.calibration.curves;
        let Some(curve) = curves.iter().find(|curve| curve.k as usize >= k).or(curves.last()) else {
            return Reaching { efforts: Vec::new(), reached: false };
        };
        let stretch = (k as f64 / f64::from(curve.k)).max(1.0);
        let recall = if stretch > 1.0 { (2.0 + recall) / 3.0 } else { recall };
        let stretched = |point: &EffortPoint| {
            let Effort { search_list, probes, prune } = point.effort();
            let times = |number: usize| (number as f64 * stretch).ceil() as usize;
            let prune = if stretch > 1.0 { 0.0 } else { prune };
            (Effort { search_list: times(search_list), probes: times(probes), prune }, point.asked)
        };
        let efforts: Vec<(Effort, f32)> =
            curve.points.iter().filter(|point| point.recall >= recall).map(stretched).collect();
        if !efforts.is_empty() {
            return Reaching { efforts, reached: true };
        }
        let most = curve.points.iter().max_by(|a, b| a.recall.total_cmp(&b.recall));
        Reaching { efforts: most.map(stretched).into_iter().collect(), reached: false }
    }
}

/// Makes the curve of measured points. A larger effort finds no less, except by chance, so each point gets
/// the least recall of all efforts that include it. Points for which a smaller effort found as much are
/// dropped.
pub(crate) fn curve(k: u32, mut points: Vec<EffortPoint>) -> Curve<EffortPoint> {
    points.sort_unstable_by(|a, b| {
        (a.probes, a.search_list).cmp(&(b.probes, b.search_list)).then(a.prune.total_cmp(&b.prune))
    });
    points.dedup_by_key(|point| (point.probes, point.search_list, point.prune.to_bits()));
    let all = points.clone();
    for point in &mut points {
        let larger = all.iter().filter(|other| other.includes(point));
        point.recall = larger.map(|other| other.recall).fold(point.recall, f32::min);
    }
    let all = points.clone();
    let is_smaller = |other: &EffortPoint, point: &EffortPoint| {
        point.includes(other) && !other.includes(point) && other.recall >= point.recall
    };
    points.retain(|point| !all.iter().any(|other| is_smaller(other, point)));
    Curve { k, points }
}

/// Returns true if so much was found that larger efforts need not be measured.
pub(crate) fn is_enough(recall: f32) -> bool {
    recall >= ENOUGH_RECALL
}

/// Returns `largest`, the largest effort that the build measured, times `factor`. A search of so much effort
/// leaves out nothing by its distance.
pub(crate) fn extended(largest: Effort, factor: f32, vectors: usize, most_list: usize) -> Effort {
    let times = |number: usize| (number as f64 * f64::from(factor)).ceil() as usize;
    Effort {
        search_list: times(largest.search_list).min(vectors.max(1)).min(most_list),
        probes: times(largest.probes).min(MOST_NUMBER as usize),
        prune: 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(probes: u32, search_list: u32, prune: f32, recall: f32) -> EffortPoint {
        EffortPoint { probes, search_list, prune, recall, asked: 0.5 }
    }

    fn calibration(curves: Vec<Curve<EffortPoint>>) -> QueryCalibration {
        let calibration = Calibration { queries: 100, source: "given queries".into(), curves, reach: vec![] };
        QueryCalibration {
            name: "default".into(),
            measured_at: 0,
            conditions: Conditions::default(),
            calibration,
        }
    }

    #[test]
    fn an_effort_has_no_more_recall_than_a_larger_one() {
        let noisy = vec![
            point(4, 10, 0.5, 0.6),
            point(8, 10, 0.0, 0.5),
            point(2, 10, 0.0, 0.4),
            point(8, 20, 0.0, 0.9),
        ];
        let points = curve(10, noisy).points;
        // The first is included by the second, which found less: so it counts as no better, and the second,
        // which does more for as much, is dropped.
        assert_eq!(points, [point(2, 10, 0.0, 0.4), point(4, 10, 0.5, 0.5), point(8, 20, 0.0, 0.9)]);
    }

    #[test]
    fn all_efforts_that_reach_a_recall_are_offered() {
        let few = curve(10, vec![point(2, 10, 0.0, 0.5), point(4, 30, 0.0, 0.9), point(8, 20, 0.0, 0.92)]);
        let many = curve(100, vec![point(16, 100, 0.25, 0.8), point(32, 100, 0.0, 0.97)]);
        let all = calibration(vec![few, many]);
        let efforts = |k: usize, recall: f32| -> (Vec<(usize, usize)>, bool) {
            let Reaching { efforts, reached } = all.reaching(k, recall);
            (efforts.iter().map(|(effort, _)| (effort.probes, effort.search_list)).collect(), reached)
        };
        assert_eq!(efforts(10, 0.9), (vec![(4, 30), (8, 20)], true));
        assert_eq!(efforts(10, 0.95), (vec![(8, 20)], false));
        assert_eq!(efforts(11, 0.5), (vec![(16, 100), (32, 100)], true));
        // Beyond the largest k, 0.8 takes the effort for 0.93, twice.
        assert_eq!(efforts(200, 0.8), (vec![(64, 200)], true));
        assert_eq!(all.reaching(200, 0.8).efforts[0].0.prune, 0.0);
        assert_eq!(calibration(vec![]).reaching(10, 0.9).efforts.len(), 0);
    }

    #[test]
    fn the_largest_effort_is_extended_up_to_all_vectors() {
        let largest = Effort { search_list: 10, probes: 7, prune: 0.5 };
        let more = extended(largest, 1.5, 1000, 1 << 20);
        assert_eq!((more.search_list, more.probes, more.prune), (15, 11, 0.0));
        assert_eq!(extended(largest, MOST_FACTOR, 1000, 1 << 20).search_list, 1000);
        assert_eq!(extended(largest, MOST_FACTOR, 1 << 30, 1 << 10).search_list, 1 << 10);
    }

    #[test]
    fn a_calibration_survives_being_written() {
        let all = calibration(vec![curve(10, vec![point(2, 10, 0.25, 0.5)])]);
        let text = serde_json::to_string(&all).expect("JSON");
        assert_eq!(serde_json::from_str::<QueryCalibration>(&text).expect("a calibration"), all);
    }
}
