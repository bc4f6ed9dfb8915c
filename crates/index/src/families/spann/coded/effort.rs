//! From a recall to the lists, the pruning and the candidates that it takes.

use crate::format::manifest::{Calibration, CalibrationPoint};

/// How hard lists of codes are searched.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CodedEffort {
    /// Candidates that are compared exactly.
    pub(crate) search_list: u32,
    /// Lists, at most.
    pub(crate) probes: u32,
    /// Lists more than `1 + prune` times as far as the nearest are left out; 0 leaves none out.
    pub(crate) prune: f32,
    /// Whether the calibration reaches the recall.
    pub(crate) reached: bool,
}

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

/// The cheapest effort for a recall.
pub(crate) fn effort(
    calibration: &Calibration,
    k: usize,
    recall: f32,
    cost: CodedCost,
) -> Option<CodedEffort> {
    let curves = &calibration.curves;
    let curve = curves.iter().find(|c| c.k as usize >= k).or(curves.last())?;
    let stretch = (k as f64 / f64::from(curve.k)).max(1.0);
    // As for lists of vectors: beyond what was measured half of what the recall leaves out is added to it, and no list
    // is left out for its distance.
    let measured = stretch <= 1.0;
    let wanted = if measured { recall } else { (1.0 + recall) / 2.0 };
    let taken = |point: &CalibrationPoint, candidates: f64, reached| CodedEffort {
        search_list: (candidates * stretch).ceil() as u32,
        probes: (f64::from(point.probes) * stretch).ceil() as u32,
        prune: if measured { point.prune } else { 0.0 },
        reached,
    };
    let mut best: Option<(f64, CodedEffort)> = None;
    for points in curve.points.chunk_by(|a, b| a.probes == b.probes) {
        for (at, point) in points.iter().enumerate() {
            if point.recall < wanted {
                continue;
            }
            // The longest shorter list of candidates of the same pruning: what is between them is interpolated.
            let below = points[..at].iter().rev().find(|below| below.prune == point.prune);
            let Some(candidates) = between(below, point, wanted) else { continue };
            let total = cost.total(f64::from(point.probes), f64::from(point.lists), candidates);
            if best.as_ref().is_none_or(|(least, _)| total < *least) {
                best = Some((total, taken(point, candidates, true)));
            }
        }
    }
    let most = || curve.points.iter().max_by(|a, b| a.recall.total_cmp(&b.recall));
    best.map(|(_, effort)| effort)
        .or_else(|| most().map(|point| taken(point, f64::from(point.search_list), false)))
}

/// The candidates at which `recall` is reached, from `below` to `point`; `None` if `below` reaches it already.
fn between(below: Option<&CalibrationPoint>, point: &CalibrationPoint, recall: f32) -> Option<f64> {
    let most = f64::from(point.search_list);
    let Some(below) = below else { return Some(most) };
    if below.recall >= recall {
        return None;
    }
    let share = f64::from((recall - below.recall) / (point.recall - below.recall));
    let least = f64::from(below.search_list);
    Some(least + share * (most - least))
}

/// The lists that are read for so many candidates when the caller names no number: enough that the candidates limit the
/// recall.
pub(crate) fn probes_for(search_list: u32) -> u32 {
    search_list.max(LEAST_PROBES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::manifest::CalibrationCurve;

    fn point(probes: u32, search_list: u32, prune: f32, lists: f32, recall: f32) -> CalibrationPoint {
        CalibrationPoint { search_list, probes, recall, prune, lists }
    }

    fn calibration() -> Calibration {
        let points = vec![
            point(10, 10, 0.0, 10.0, 0.70),
            point(10, 20, 0.0, 10.0, 0.80),
            point(10, 40, 0.0, 10.0, 0.85),
            point(20, 10, 0.0, 20.0, 0.75),
            point(20, 10, 0.2, 12.0, 0.74),
            point(20, 20, 0.0, 20.0, 0.95),
            point(20, 20, 0.2, 12.0, 0.86),
        ];
        let curves = vec![CalibrationCurve { k: 10, points }];
        Calibration { queries: 1, source: String::new(), curves, lone_curves: Vec::new() }
    }

    #[test]
    fn the_cheapest_pair_is_taken_and_depends_on_the_device() {
        let at = |k, recall, cost| effort(&calibration(), k, recall, cost).expect("an effort");
        let dear_lists = CodedCost { list: 100.0, candidate: 0.1 };
        let dear_candidates = CodedCost { list: 0.1, candidate: 100.0 };
        let of = |search_list, probes, prune, reached| CodedEffort { search_list, probes, prune, reached };
        assert_eq!(at(10, 0.824, dear_lists), of(30, 10, 0.0, true));
        assert_eq!(at(10, 0.849, dear_candidates), of(15, 20, 0.0, true));
        assert_eq!(at(10, 0.86, dear_lists), of(20, 20, 0.2, true));
        assert_eq!(at(10, 0.99, dear_lists), of(20, 20, 0.0, false));
        // Twice the k: twice the candidates and lists of the recall halfway to all, without pruning.
        assert_eq!(at(20, 0.70, dear_lists), of(80, 20, 0.0, true));
        assert_eq!(effort(&Calibration::default(), 10, 0.9, dear_lists), None);
    }
}
