//! The conversion of a recall to an effort: the number of lists, the pruning and, for lists of codes, the
//! number of candidates.

use crate::calibrate::solve::{CurvePoint, Question, Solved, mix};
use crate::calibrate::{Curve, Point};
use crate::query::Effort;
use serde::{Deserialize, Serialize};

/// The relative error that the rounding of a mean may add.
const ROUNDING: f32 = 1e-3;
/// The least number of lists of a search that gives only a number of candidates.
const LEAST_PROBES: u32 = 32;

/// A measured effort and its recall.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ListPoint {
    /// Posting lists that the search finds.
    pub probes: u32,
    /// For lists of codes: candidates that are compared exactly. For lists of vectors it equals `probes`.
    pub search_list: u32,
    /// Posting lists more than `1 + prune` times as far as the nearest are left out; 0 leaves out none.
    #[serde(default)]
    pub prune: f32,
    /// Mean number of posting lists that were scanned.
    #[serde(default)]
    pub lists: f32,
    /// Mean recall@k.
    pub recall: f32,
}

impl Point for ListPoint {
    fn recall(&self) -> f32 {
        self.recall
    }

    fn rank(&self) -> (u32, u32, f32) {
        (self.probes, self.search_list, self.prune)
    }

    fn largest(&self) -> u32 {
        self.search_list.max(self.probes)
    }

    fn check(&self, probes: u32) -> Result<(), String> {
        let refuse = |reason: String| Err(reason);
        if !(1..=probes).contains(&self.probes) || self.search_list == 0 {
            return refuse(format!(
                "probes is {}, which must be 1 to {probes}, and search_list is {}, which must be above 0",
                self.probes, self.search_list
            ));
        }
        if !(0.0..=f32::MAX).contains(&self.prune) {
            return refuse(format!("prune is {}, which must be 0 or more", self.prune));
        }
        if !(0.0..=self.probes as f32 * (1.0 + ROUNDING)).contains(&self.lists) {
            return refuse(format!(
                "lists is {}, which must be at most the {} probes",
                self.lists, self.probes
            ));
        }
        Ok(())
    }
}

/// An effort that is measured, or interpolated between two measured ones.
#[derive(Debug, Clone, Copy)]
struct InterpolatedEffort {
    probes: f64,
    search_list: f64,
    lists: f64,
    prune: f32,
    recall: f64,
    /// True if these are all lists.
    is_all: bool,
}

impl InterpolatedEffort {
    fn measured(point: &ListPoint, all: u32) -> InterpolatedEffort {
        InterpolatedEffort {
            probes: f64::from(point.probes),
            search_list: f64::from(point.search_list),
            lists: f64::from(point.lists),
            prune: point.prune,
            recall: f64::from(point.recall),
            is_all: point.probes >= all,
        }
    }
}

impl CurvePoint for InterpolatedEffort {
    fn value(&self) -> f64 {
        self.recall
    }

    fn between(&self, above: &InterpolatedEffort, share: f64) -> InterpolatedEffort {
        if above.is_all && !self.is_all {
            // All lists find everything, and one less may find hardly more than these.
            return *above;
        }
        InterpolatedEffort {
            probes: mix(self.probes, above.probes, share),
            search_list: mix(self.search_list, above.search_list, share),
            lists: mix(self.lists, above.lists, share),
            prune: above.prune,
            recall: mix(self.recall, above.recall, share),
            is_all: above.is_all,
        }
    }
}

/// Groups the points of a curve by `key`. The points of a group differ only in the number of lists or, for
/// lists of codes, of candidates.
fn series<K: PartialEq + PartialOrd>(
    points: &[ListPoint],
    all: u32,
    key: impl Fn(&ListPoint) -> K,
) -> Vec<Vec<InterpolatedEffort>> {
    let mut series: Vec<(K, Vec<InterpolatedEffort>)> = Vec::new();
    for point in points {
        let key = key(point);
        match series.iter_mut().find(|(other, _)| *other == key) {
            Some((_, points)) => points.push(InterpolatedEffort::measured(point, all)),
            None => series.push((key, vec![InterpolatedEffort::measured(point, all)])),
        }
    }
    series.sort_by(|a, b| a.0.partial_cmp(&b.0).unwrap_or(std::cmp::Ordering::Equal));
    series.into_iter().map(|(_, points)| points).collect()
}

/// Returns the cheapest effort for a recall, by the `price` of a number of probes, lists and candidates.
/// `coded` is true for lists of codes; only these have candidates. `all` is the number of lists.
///
/// Beyond the measured k, more distant lists are needed, and it is unknown how distant they are. The effort
/// is then that for a recall closer to 1 by two thirds of the remainder, without pruning.
pub(crate) fn effort(
    curves: &[Curve<ListPoint>],
    k: usize,
    recall: f32,
    (coded, all): (bool, u32),
    price: impl Fn(f64, f64, f64) -> f64,
) -> Option<Solved> {
    let question = Question::new(curves, k, recall)?.with_margin_beyond();
    let points = &question.curve.points;
    let price =
        |at: &InterpolatedEffort| price(at.probes, at.lists, if coded { at.search_list } else { 0.0 });
    let found = if coded {
        question.cheapest(series(points, all, |point| (point.probes, point.prune)), price)
    } else {
        let mut series = series(points, all, |point| point.prune);
        if !question.is_measured() && series.first().is_some_and(|points| points[0].prune == 0.0) {
            series.truncate(1);
        }
        question.cheapest(series, price)
    };
    let (at, reached) = match found {
        Some(at) => (at, true),
        None => (InterpolatedEffort::measured(&question.best()?, all), false),
    };
    let probes = question.stretched(at.probes);
    let effort = Effort {
        search_list: if coded { question.stretched(at.search_list) } else { probes },
        probes,
        prune: if question.is_measured() { at.prune } else { 0.0 },
    };
    Some(Solved { effort, reached })
}

/// Returns the number of lists that `probes` probes scan with a pruning, from the most similar measurement;
/// all of them if nothing was measured.
pub(crate) fn scanned_lists(curves: &[Curve<ListPoint>], probes: usize, prune: f32) -> f64 {
    let probes = probes as f64;
    let prune_difference = |point: &&ListPoint| (point.prune - prune).abs();
    let nearest = |a: &&ListPoint, b: &&ListPoint| {
        let probe_difference = |point: &&ListPoint| (f64::from(point.probes) - probes).abs();
        prune_difference(a)
            .total_cmp(&prune_difference(b))
            .then(probe_difference(a).total_cmp(&probe_difference(b)))
    };
    let most_similar = curves.iter().flat_map(|curve| &curve.points).min_by(nearest);
    most_similar.map_or(probes, |point| probes * f64::from(point.lists) / f64::from(point.probes.max(1)))
}

/// Returns the number of lists for a number of candidates, if the caller gives no number of lists. It is
/// large enough that the candidates limit the recall.
pub(crate) fn probes_for(search_list: u32) -> u32 {
    search_list.max(LEAST_PROBES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(probes: u32, search_list: u32, prune: f32, lists: f32, recall: f32) -> ListPoint {
        ListPoint { search_list, probes, recall, prune, lists }
    }

    fn solved(search_list: usize, probes: usize, prune: f32, reached: bool) -> Solved {
        Solved { effort: Effort { search_list, probes, prune }, reached }
    }

    #[test]
    fn the_cheapest_effort_for_a_recall_is_chosen() {
        let points = vec![
            point(10, 10, 0.0, 10.0, 0.80),
            point(10, 10, 0.3, 8.0, 0.78),
            point(20, 20, 0.0, 20.0, 0.90),
            point(20, 20, 0.3, 12.0, 0.88),
            point(40, 40, 0.0, 40.0, 0.97),
            point(40, 40, 0.3, 16.0, 0.92),
        ];
        let curves = vec![Curve { k: 10, points }];
        let fewest = |probes: f64, lists: f64, _: f64| lists + 0.1 * probes;
        let at = |k, recall| effort(&curves, k, recall, (false, u32::MAX), fewest).expect("an effort");
        assert_eq!(at(10, 0.90), solved(30, 30, 0.3, true));
        assert_eq!(at(10, 0.97), solved(40, 40, 0.0, true));
        assert_eq!(at(10, 0.99), solved(40, 40, 0.0, false));
        assert_eq!(at(15, 0.90), solved(59, 59, 0.0, true));
        assert_eq!(effort(&[], 10, 0.9, (false, u32::MAX), fewest), None);
        assert_eq!(
            (scanned_lists(&curves, 20, 0.3), scanned_lists(&curves, 80, 0.25), scanned_lists(&[], 7, 0.0)),
            (12.0, 32.0, 7.0)
        );
    }

    #[test]
    fn the_cheapest_pair_of_probes_and_candidates_depends_on_the_price() {
        let points = vec![
            point(10, 10, 0.0, 10.0, 0.70),
            point(10, 20, 0.0, 10.0, 0.80),
            point(10, 40, 0.0, 10.0, 0.85),
            point(20, 10, 0.0, 20.0, 0.75),
            point(20, 10, 0.2, 12.0, 0.74),
            point(20, 20, 0.0, 20.0, 0.95),
            point(20, 20, 0.2, 12.0, 0.86),
        ];
        let curves = vec![Curve { k: 10, points }];
        let price = |list: f64, candidate: f64| {
            move |probes: f64, lists: f64, candidates: f64| {
                0.3 * probes + list * lists + candidate * candidates
            }
        };
        let at = |k, recall, (list, candidate)| {
            effort(&curves, k, recall, (true, u32::MAX), price(list, candidate)).expect("an effort")
        };
        let (dear_lists, dear_candidates) = ((100.0, 0.1), (0.1, 100.0));
        assert_eq!(at(10, 0.824, dear_lists), solved(30, 10, 0.0, true));
        assert_eq!(at(10, 0.849, dear_candidates), solved(15, 20, 0.0, true));
        assert_eq!(at(10, 0.86, dear_lists), solved(20, 20, 0.2, true));
        assert_eq!(at(10, 0.99, dear_lists), solved(20, 20, 0.0, false));
        // Twice the k: twice the candidates and lists of the recall that is closer to 1 by two thirds,
        // without pruning.
        assert_eq!(at(20, 0.70, dear_lists), solved(36, 40, 0.0, true));
        assert_eq!(effort(&[], 10, 0.9, (true, u32::MAX), price(1.0, 1.0)), None);
    }
}
