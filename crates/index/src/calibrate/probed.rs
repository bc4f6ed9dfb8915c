//! Calibration points of families whose effort is two numbers: the probes that are scanned by codes, and the
//! candidates among them that are read.
//!
//! If each candidate is a read from a device, many probes and few candidates are cheapest; in memory, it is
//! the other way round. The tier's prices decide.

use super::solve::{CurvePoint, Question, Solved, Target, mix};
use super::{Calibration, Curve, Point};
use crate::query::Effort;
use serde::{Deserialize, Serialize};

/// The steps into which the interval between two measured numbers of probes is divided.
const BETWEEN: u32 = 4;

/// The recall at a number of probes and candidates.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ProbedPoint {
    /// Groups scanned, or blocks of each hash table.
    pub probes: u32,
    /// Candidates, each of which is read.
    pub search_list: u32,
    /// Mean recall@k.
    pub recall: f32,
    /// Mean overall ratio@k, at least 1; `None` if it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f32>,
}

impl Point for ProbedPoint {
    fn recall(&self) -> f32 {
        self.recall
    }

    fn rank(&self) -> (u32, u32, f32) {
        (self.probes, self.search_list, 0.0)
    }

    fn largest(&self) -> u32 {
        self.search_list.max(self.probes)
    }

    fn check(&self, probes: u32) -> Result<(), String> {
        if let Some(ratio) = self.ratio.filter(|ratio| !(*ratio >= 1.0 && ratio.is_finite())) {
            return Err(format!("an overall ratio of {ratio}"));
        }
        if (1..=probes).contains(&self.probes) && self.search_list > 0 {
            return Ok(());
        }
        Err(format!("{} probes of {probes}, a search list of {}", self.probes, self.search_list))
    }
}

impl Calibration<ProbedPoint> {
    /// Describes the ends of each curve; `probed` is the plural of what a probe reads, such as "groups".
    pub(crate) fn lines(&self, probed: &str) -> Vec<String> {
        let line = |(k, least, most): (u32, ProbedPoint, ProbedPoint)| {
            let ratio = |point: ProbedPoint| {
                point.ratio.map_or(String::new(), |ratio| format!(" and overall ratio {ratio:.3}"))
            };
            format!(
                "k {k}: recall {:.3}{} at {} candidates of {} {probed} to {:.3}{} at {} of {} ({} {})",
                least.recall,
                ratio(least),
                least.search_list,
                least.probes,
                most.recall,
                ratio(most),
                most.search_list,
                most.probes,
                self.queries,
                self.source
            )
        };
        self.ends().into_iter().map(line).collect()
    }
}

/// An effort, measured or interpolated.
#[derive(Debug, Clone, Copy)]
struct ProbedEffort {
    probes: f64,
    search_list: f64,
    /// The recall, or the reciprocal of the overall ratio: both rise with the effort, up to 1.
    value: f64,
    /// True if these probes are all that there are.
    is_all: bool,
}

impl ProbedEffort {
    /// Returns a measured effort; `None` if the target was not measured at it.
    fn measured(point: &ProbedPoint, target: Target, all: u32) -> Option<ProbedEffort> {
        let value = match target {
            Target::Recall(_) => f64::from(point.recall),
            Target::Ratio(_) => 1.0 / f64::from(point.ratio?),
        };
        let (probes, search_list) = (f64::from(point.probes), f64::from(point.search_list));
        Some(ProbedEffort { probes, search_list, value, is_all: point.probes >= all })
    }
}

impl CurvePoint for ProbedEffort {
    fn value(&self) -> f64 {
        self.value
    }

    fn between(&self, above: &ProbedEffort, share: f64) -> ProbedEffort {
        ProbedEffort {
            probes: above.probes,
            search_list: mix(self.search_list, above.search_list, share),
            value: mix(self.value, above.value, share),
            is_all: above.is_all,
        }
    }
}

/// Returns the cheapest candidate list and number of probes that reach `target`, by the `price` of probes and
/// candidates; `None` if the target was not measured. `all` is the number of probes that there are.
///
/// The recall between a number of probes and all of them is unknown: all find everything, and one less may
/// find hardly more than half. So no effort is interpolated there.
pub(crate) fn effort(
    curves: &[Curve<ProbedPoint>],
    k: usize,
    target: Target,
    all: u32,
    price: impl Fn(f64, f64) -> f64,
) -> Option<Solved> {
    let wanted = match target {
        Target::Recall(recall) => recall,
        Target::Ratio(ratio) => 1.0 / ratio,
    };
    let question = Question::new(curves, k, wanted)?;
    let measured = question.curve.points.chunk_by(|a, b| a.probes == b.probes);
    let measured = measured
        .map(|points| points.iter().filter_map(|point| ProbedEffort::measured(point, target, all)).collect());
    let measured: Vec<Vec<ProbedEffort>> =
        measured.filter(|points: &Vec<ProbedEffort>| !points.is_empty()).collect();
    let most = measured.iter().flatten().copied().max_by(|a, b| a.value.total_cmp(&b.value))?;
    let mut series: Vec<Vec<ProbedEffort>> = Vec::new();
    for (at, points) in measured.iter().enumerate() {
        series.push(points.clone());
        // Series at numbers of probes between two measured ones.
        if let Some(fewer) = at.checked_sub(1).map(|at| &measured[at]).filter(|_| !points[0].is_all) {
            let shares = (1..BETWEEN).map(|step| f64::from(step) / f64::from(BETWEEN));
            series.extend(shares.map(|share| series_between(fewer, points, share)));
        }
    }
    let cheapest = question.cheapest(series, |effort| price(effort.probes, effort.search_list));
    let (chosen, reached) = match cheapest {
        Some(effort) => (effort, true),
        None => (most, false),
    };
    let effort = Effort {
        search_list: question.stretched(chosen.search_list),
        probes: question.stretched(chosen.probes),
        prune: 0.0,
    };
    Some(Solved { effort, reached })
}

/// Returns points at a number of probes between those of `fewer` and of `more`. The recall is a concave
/// function of the logarithm of the probes, so that linear interpolation does not overestimate it.
fn series_between(fewer: &[ProbedEffort], more: &[ProbedEffort], share: f64) -> Vec<ProbedEffort> {
    let least = fewer[0].probes;
    let probes = least * (more[0].probes / least).powf(share);
    let interpolated = |point: &ProbedEffort| ProbedEffort {
        probes,
        search_list: point.search_list,
        value: mix(value_at(fewer, point.search_list), point.value, share),
        is_all: false,
    };
    more.iter().map(interpolated).collect()
}

/// Returns the value at a candidate list of `list`. Beyond the last of `points`, the value no longer rises.
fn value_at(points: &[ProbedEffort], list: f64) -> f64 {
    let above = points.partition_point(|point| point.search_list < list);
    match (above.checked_sub(1).map(|below| points[below]), points.get(above)) {
        (_, Some(point)) if point.search_list == list => point.value,
        (Some(below), Some(above)) => {
            let share = (list - below.search_list) / (above.search_list - below.search_list);
            mix(below.value, above.value, share)
        }
        (Some(below), None) => below.value,
        (None, _) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn no_effort_lies_between_some_probes_and_all() {
        let point = |probes, recall| ProbedPoint { probes, search_list: 10, recall, ratio: None };
        let curves = [Curve { k: 10, points: vec![point(8, 0.5), point(16, 0.6), point(20, 1.0)] }];
        let probes = |recall, all| {
            let found = effort(&curves, 10, Target::Recall(recall), all, |probes, _| probes);
            found.map(|solved| solved.effort.probes)
        };
        assert_eq!((probes(0.55, 20), probes(0.7, 20)), (Some(12), Some(20)));
        assert!(probes(0.7, u32::MAX).is_some_and(|probes| probes < 20));
    }

    proptest! {
        #[test]
        fn no_measured_effort_that_reaches_a_recall_is_cheaper(
            gains in prop::collection::vec((0.0..0.2_f32, 0.0..0.1_f32), 4..20), wanted in 0.1..0.9_f32,
            probe in 0.01..10.0_f64, candidate in 0.01..10.0_f64,
        ) {
            // Each number of probes has four lists. Recall rises with both.
            let mut points = Vec::new();
            let mut base = 0.1_f32;
            let ratio = |recall: f32| Some(recall.recip());
            for (step, (more_probes, longer)) in gains.iter().enumerate() {
                base = (base + more_probes).min(0.9);
                for list in 0..4 {
                    let recall = (base + longer * list as f32).min(1.0);
                    let (probes, search_list) = (4 << step.min(20), 10 << list);
                    points.push(ProbedPoint { probes, search_list, recall, ratio: ratio(recall) });
                }
            }
            points.dedup_by_key(|point| point.rank());
            let curves = [Curve { k: 10, points }];
            let price = |probes: f64, candidates: f64| probe * probes + candidate * candidates;
            let found = effort(&curves, 10, Target::Recall(wanted), u32::MAX, price).expect("a calibration");
            // The effort for a ratio is found as that for a recall.
            let ratio = Target::Ratio(wanted.recip());
            let by_ratio = effort(&curves, 10, ratio, u32::MAX, price).expect("a calibration");
            let total =
                |solved: &Solved| price(solved.effort.probes as f64, solved.effort.search_list as f64);
            let apart = (total(&found) - total(&by_ratio)).abs();
            prop_assert!(apart <= 1.01 * (probe + candidate), "{found:?} {by_ratio:?}");
            let reaching = curves[0].points.iter().filter(|point| point.recall >= wanted);
            let least = reaching.map(|point| price(point.probes.into(), point.search_list.into()));
            let least = least.fold(f64::INFINITY, f64::min);
            prop_assert_eq!(found.reached, least.is_finite());
            // Efforts are whole numbers, rounded up.
            let chosen = price(found.effort.probes as f64, found.effort.search_list as f64);
            prop_assert!(!found.reached || chosen <= least + probe + candidate, "{chosen} {least}");
        }
    }
}
