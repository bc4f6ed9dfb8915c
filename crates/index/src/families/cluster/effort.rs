//! From a recall to the groups that are scanned and the candidates that are read.
//!
//! Many probes and few candidates where a candidate is a read, the other way round in memory: the tier's prices decide.

use crate::calibrate::solve::{Place, Question, Solved, mix};
use crate::calibrate::{Curve, Point};
use crate::query::Effort;
use serde::{Deserialize, Serialize};

/// Microseconds that a group takes to be found, about, in memory.
const FIND_GROUP_US: f64 = 0.08;
/// Microseconds that a byte of code takes to be scanned, about: the codes come from DRAM.
const SCAN_BYTE_US: f64 = 4.5e-5;
/// Microseconds that a vector takes which is read alone, about.
const LONE_VECTOR_US: f64 = 0.05;
/// Numbers of probes that are tried between two that were measured, where both lists and probes are cheap.
const BETWEEN: u32 = 4;

/// The recall of so many probes and candidates.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ClusterPoint {
    /// Groups scanned.
    pub probes: u32,
    /// Candidates, each of which is read.
    pub search_list: u32,
    /// Mean recall@k with these.
    pub recall: f32,
}

impl Point for ClusterPoint {
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
        if (1..=probes).contains(&self.probes) && self.search_list > 0 {
            return Ok(());
        }
        Err(format!("{} probes of {probes}, a search list of {}", self.probes, self.search_list))
    }
}

/// What the parts of a search cost, up to a common factor: a group scanned, a candidate read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EffortCost {
    probe: f64,
    candidate: f64,
    /// Whether candidates are read alone.
    lone: bool,
}

impl EffortCost {
    /// Where pages are read. Microseconds, about: a group of 96 codes takes 0.1 to scan and 0.05 to find; a page takes
    /// 5 to 10 of a device's time and a tenth of that in memory.
    pub(crate) fn of_pages(addressable: bool) -> EffortCost {
        EffortCost { probe: 0.15, candidate: if addressable { 0.3 } else { 8.0 }, lone: false }
    }

    /// Where candidates are read alone: of groups of so many bytes of codes.
    pub(crate) fn of_vectors(group_codes: u64) -> EffortCost {
        let probe = FIND_GROUP_US + SCAN_BYTE_US * group_codes as f64;
        EffortCost { probe, candidate: LONE_VECTOR_US, lone: true }
    }

    pub(crate) fn is_lone(&self) -> bool {
        self.lone
    }
}

/// An effort between measured ones.
#[derive(Debug, Clone, Copy)]
struct At {
    probes: f64,
    search_list: f64,
    recall: f64,
}

impl From<&ClusterPoint> for At {
    fn from(point: &ClusterPoint) -> At {
        At {
            probes: f64::from(point.probes),
            search_list: f64::from(point.search_list),
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
            probes: above.probes,
            search_list: mix(self.search_list, above.search_list, share),
            recall: mix(self.recall, above.recall, share),
        }
    }
}

/// The cheapest candidate list and number of probes for a recall.
pub(crate) fn effort(
    curves: &[Curve<ClusterPoint>],
    k: usize,
    recall: f32,
    cost: EffortCost,
) -> Option<Solved> {
    let question = Question::new(curves, k, recall)?;
    let measured: Vec<&[ClusterPoint]> =
        question.curve.points.chunk_by(|a, b| a.probes == b.probes).collect();
    let mut series: Vec<Vec<At>> = Vec::new();
    for (at, points) in measured.iter().enumerate() {
        series.push(points.iter().map(At::from).collect());
        // Probes that were not measured: where a candidate is a read, its number is what counts, and the last few
        // probes are not worth one more.
        let fewer = at.checked_sub(1).map(|at| measured[at]);
        if let Some(fewer) = fewer.filter(|_| cost.lone) {
            let shares = (1..BETWEEN).map(|step| f64::from(step) / f64::from(BETWEEN));
            series.extend(shares.map(|share| series_between(fewer, points, share)));
        }
    }
    let total = |at: &At| at.probes * cost.probe + at.search_list * cost.candidate;
    let (at, reached) = match question.cheapest(series, total) {
        Some(at) => (at, true),
        None => (At::from(&question.best()?), false),
    };
    let effort = Effort {
        search_list: question.stretched(at.search_list),
        probes: question.stretched(at.probes),
        prune: 0.0,
    };
    Some(Solved { effort, reached })
}

/// Points of a number of probes between those of `fewer` and of `more`. Recall rises ever less with the logarithm of the
/// probes, so the mean is no more than it will be.
fn series_between(fewer: &[ClusterPoint], more: &[ClusterPoint], share: f64) -> Vec<At> {
    let least = f64::from(fewer[0].probes);
    let probes = least * (f64::from(more[0].probes) / least).powf(share);
    let mean = |point: &ClusterPoint| At {
        probes,
        search_list: f64::from(point.search_list),
        recall: mix(recall_at(fewer, point.search_list), f64::from(point.recall), share),
    };
    more.iter().map(mean).collect()
}

/// The recall of a list by `points`, which end where it no longer rises.
fn recall_at(points: &[ClusterPoint], list: u32) -> f64 {
    let above = points.partition_point(|point| point.search_list < list);
    match (above.checked_sub(1).map(|below| points[below]), points.get(above)) {
        (_, Some(point)) if point.search_list == list => f64::from(point.recall),
        (Some(below), Some(above)) => {
            let share =
                f64::from(list - below.search_list) / f64::from(above.search_list - below.search_list);
            f64::from(below.recall) + share * f64::from(above.recall - below.recall)
        }
        (Some(below), None) => f64::from(below.recall),
        (None, _) => 0.0,
    }
}

/// Groups that are scanned for a candidate list when neither probes nor a recall were named: enough that the list,
/// not the probes, limits the recall.
pub(crate) fn probes_for(search_list: u32, groups: u32) -> u32 {
    search_list.saturating_mul(16).clamp(64, groups.max(64))
}
