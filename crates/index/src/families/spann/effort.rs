//! From a recall to the lists, the pruning and, of lists of codes, the candidates that it takes.

use crate::calibrate::solve::{Place, Question, Solved, mix};
use crate::calibrate::{Curve, Point};
use crate::query::Effort;
use serde::{Deserialize, Serialize};

/// What the rounding of a mean may add to it.
const ROUNDING: f32 = 1e-3;
/// What looking for one list more costs beside reading one: a walk through centroids is short.
const NAVIGATION_SHARE: f64 = 0.1;
/// Lists that are read where a caller names the candidates alone, at least.
const LEAST_PROBES: u32 = 32;

/// Microseconds that a device takes for a read, about, whatever its length up to some blocks.
const READ_US: f64 = 5.0;
/// Share of the candidates that are a read of their own: the others share blocks with neighbours.
const OWN_READS: f64 = 0.6;
/// Microseconds that a byte takes on its way from a device, and from memory through a scan.
const DEVICE_BYTE_US: f64 = 4e-4;
const MEMORY_BYTE_US: f64 = 6e-5;
/// Microseconds for a list and for a candidate, about, where a read is a few loads.
const MEMORY_LIST_US: f64 = 0.4;
const MEMORY_CANDIDATE_US: f64 = 0.15;
/// Microseconds to find one list more.
const FIND_LIST_US: f64 = 0.3;

/// What the parts of a search cost, in microseconds, about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CodedCost {
    list: f64,
    candidate: f64,
}

impl CodedCost {
    /// On a device, or in memory, with lists of so many bytes in the mean.
    pub(crate) fn new(addressable: bool, list_bytes: f64) -> CodedCost {
        if addressable {
            CodedCost { list: MEMORY_LIST_US + MEMORY_BYTE_US * list_bytes, candidate: MEMORY_CANDIDATE_US }
        } else {
            CodedCost { list: READ_US + DEVICE_BYTE_US * list_bytes, candidate: OWN_READS * READ_US }
        }
    }

    fn total(&self, probes: f64, lists: f64, candidates: f64) -> f64 {
        probes * FIND_LIST_US + lists * self.list + candidates * self.candidate
    }
}

/// The recall of so many lists and candidates.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ListPoint {
    /// Posting lists that are looked for.
    pub probes: u32,
    /// Candidates that are compared exactly, of lists of codes; of lists of vectors it is `probes`.
    pub search_list: u32,
    /// Posting lists more than `1 + prune` times as far as the nearest were left out; 0 where none was.
    #[serde(default)]
    pub prune: f32,
    /// Mean number of posting lists that were scanned.
    #[serde(default)]
    pub lists: f32,
    /// Mean recall@k with these.
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
        let refuse = |what: String| Err(what);
        if !(1..=probes).contains(&self.probes) || self.search_list == 0 {
            return refuse(format!(
                "{} probes of {probes}, a search list of {}",
                self.probes, self.search_list
            ));
        }
        if !(0.0..=f32::MAX).contains(&self.prune) {
            return refuse(format!("lists pruned at {}", self.prune));
        }
        if !(0.0..=self.probes as f32 * (1.0 + ROUNDING)).contains(&self.lists) {
            return refuse(format!("{} lists scanned by {} probes", self.lists, self.probes));
        }
        Ok(())
    }
}

/// An effort between measured ones.
#[derive(Debug, Clone, Copy)]
struct At {
    probes: f64,
    search_list: f64,
    lists: f64,
    prune: f32,
    recall: f64,
}

impl From<&ListPoint> for At {
    fn from(point: &ListPoint) -> At {
        At {
            probes: f64::from(point.probes),
            search_list: f64::from(point.search_list),
            lists: f64::from(point.lists),
            prune: point.prune,
            recall: f64::from(point.recall),
        }
    }
}

impl Place for At {
    fn reached(&self) -> f64 {
        self.recall
    }

    fn between(&self, above: &At, share: f64) -> At {
        At {
            probes: mix(self.probes, above.probes, share),
            search_list: mix(self.search_list, above.search_list, share),
            lists: mix(self.lists, above.lists, share),
            prune: above.prune,
            recall: mix(self.recall, above.recall, share),
        }
    }
}

/// The points of a curve that differ only in the lists, or of lists of codes only in the candidates.
fn series<K: PartialEq + PartialOrd>(points: &[ListPoint], key: impl Fn(&ListPoint) -> K) -> Vec<Vec<At>> {
    let mut series: Vec<(K, Vec<At>)> = Vec::new();
    for point in points {
        let key = key(point);
        match series.iter_mut().find(|(other, _)| *other == key) {
            Some((_, points)) => points.push(At::from(point)),
            None => series.push((key, vec![At::from(point)])),
        }
    }
    series.sort_by(|a, b| a.0.partial_cmp(&b.0).unwrap_or(std::cmp::Ordering::Equal));
    series.into_iter().map(|(_, points)| points).collect()
}

/// The effort for a recall: of lists of vectors the one that reads the fewest lists, of lists of codes the one that is
/// cheapest by `coded`.
///
/// Beyond what was measured lists farther away are needed, and how much farther nobody knows: half of what the recall leaves
/// out is added to it, and no list is left out for its distance.
pub(crate) fn effort(
    curves: &[Curve<ListPoint>],
    k: usize,
    recall: f32,
    coded: Option<CodedCost>,
) -> Option<Solved> {
    let question = Question::new(curves, k, recall)?.with_margin_beyond();
    let points = &question.curve.points;
    let found = match coded {
        Some(cost) => {
            let series = series(points, |point| (point.probes, point.prune));
            question.cheapest(series, |at| cost.total(at.probes, at.lists, at.search_list))
        }
        None => {
            let mut series = series(points, |point| point.prune);
            if !question.is_measured() && series.first().is_some_and(|points| points[0].prune == 0.0) {
                series.truncate(1);
            }
            question.cheapest(series, |at| at.lists + NAVIGATION_SHARE * at.probes)
        }
    };
    let (at, reached) = match found {
        Some(at) => (at, true),
        None => (At::from(&question.best()?), false),
    };
    let probes = question.stretched(at.probes);
    let effort = Effort {
        search_list: if coded.is_some() { question.stretched(at.search_list) } else { probes },
        probes,
        prune: if question.is_measured() { at.prune } else { 0.0 },
    };
    Some(Solved { effort, reached })
}

/// The lists that are read for so many candidates when the caller names no number: enough that the candidates limit the
/// recall.
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
    fn the_cheapest_way_to_a_recall_is_taken() {
        let points = vec![
            point(10, 10, 0.0, 10.0, 0.80),
            point(10, 10, 0.3, 8.0, 0.78),
            point(20, 20, 0.0, 20.0, 0.90),
            point(20, 20, 0.3, 12.0, 0.88),
            point(40, 40, 0.0, 40.0, 0.97),
            point(40, 40, 0.3, 16.0, 0.92),
        ];
        let curves = vec![Curve { k: 10, points }];
        let at = |k, recall| effort(&curves, k, recall, None).expect("an effort");
        assert_eq!(at(10, 0.90), solved(30, 30, 0.3, true));
        assert_eq!(at(10, 0.97), solved(40, 40, 0.0, true));
        assert_eq!(at(10, 0.99), solved(40, 40, 0.0, false));
        assert_eq!(at(15, 0.90), solved(52, 52, 0.0, true));
        assert_eq!(effort(&[], 10, 0.9, None), None);
    }

    #[test]
    fn the_cheapest_pair_is_taken_and_depends_on_the_device() {
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
        let at = |k, recall, cost| effort(&curves, k, recall, Some(cost)).expect("an effort");
        let dear_lists = CodedCost { list: 100.0, candidate: 0.1 };
        let dear_candidates = CodedCost { list: 0.1, candidate: 100.0 };
        assert_eq!(at(10, 0.824, dear_lists), solved(30, 10, 0.0, true));
        assert_eq!(at(10, 0.849, dear_candidates), solved(15, 20, 0.0, true));
        assert_eq!(at(10, 0.86, dear_lists), solved(20, 20, 0.2, true));
        assert_eq!(at(10, 0.99, dear_lists), solved(20, 20, 0.0, false));
        // Twice the k: twice the candidates and lists of the recall halfway to all, without pruning.
        assert_eq!(at(20, 0.70, dear_lists), solved(80, 20, 0.0, true));
        assert_eq!(effort(&[], 10, 0.9, Some(dear_lists)), None);
    }
}
