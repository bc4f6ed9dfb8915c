//! Calibration: the measurement during the build of the recall at several efforts, and the choice of the
//! effort for a recall.
//!
//! Every family measures points of its own type ([`Point`]). They are stored in curves by k
//! ([`Calibration`]), and one solver finds the cheapest effort that reaches a recall (`solve`). The queries
//! of a calibration with their true neighbours are a `trial`.

pub mod choice;
pub mod given_queries;
pub mod list;
pub mod log;
pub(crate) mod made;
pub mod probed;
pub mod reach;
pub(crate) mod solve;
pub(crate) mod trial;

use reach::Reach;
use serde::{Deserialize, Serialize};
use std::fmt::Debug;

/// The largest effort of a point, which is also that of any search.
const MOST_EFFORT: u32 = 1 << 20;

/// The measurement at one effort.
pub trait Point: Copy + Debug + PartialEq {
    /// Returns the mean recall@k.
    fn recall(&self) -> f32;

    /// Returns the key by which the points of a curve ascend. No two points have the same.
    fn rank(&self) -> (u32, u32, f32);

    /// Returns the largest whole number of its effort.
    fn largest(&self) -> u32;

    /// Refuses other numbers that are impossible for an index with `probes` groups or lists.
    ///
    /// # Errors
    /// A sentence.
    fn check(&self, probes: u32) -> Result<(), String>;
}

/// The curve from recall to effort for one k.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Curve<P> {
    /// Number of neighbours asked for.
    pub k: u32,
    /// The points in ascending order of [`Point::rank`].
    pub points: Vec<P>,
}

/// The calibration of an index.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Calibration<P> {
    /// Number of queries measured.
    pub queries: u32,
    /// Their source: "held-out vectors", "vectors of the data" or "given queries".
    pub source: String,
    /// The curves in ascending order of k; empty if there were too few vectors to measure.
    pub curves: Vec<Curve<P>>,
    /// The distances of these queries to their neighbours, in ascending order of k; empty in an index that
    /// was built before they were measured.
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    pub reach: Vec<Reach>,
}

impl<P> Default for Calibration<P> {
    fn default() -> Self {
        Calibration { queries: 0, source: String::new(), curves: Vec::new(), reach: Vec::new() }
    }
}

impl<P: Point> Calibration<P> {
    /// Returns the ends of each curve for a description: k, and the points with the least and the most
    /// recall.
    pub fn ends(&self) -> Vec<(u32, P, P)> {
        let by_recall = |a: &&P, b: &&P| a.recall().total_cmp(&b.recall());
        let ends = |curve: &Curve<P>| {
            let (least, most) =
                (curve.points.iter().min_by(by_recall), curve.points.iter().max_by(by_recall));
            least.zip(most).map(|(least, most)| (curve.k, *least, *most))
        };
        self.curves.iter().filter_map(ends).collect()
    }
}

impl<P: Point> Curve<P> {
    /// Drops points whose recall is below that of a smaller effort of the same `series`. Such points are
    /// noise, and no search would choose them.
    pub(crate) fn keep_rising<K: PartialEq>(&mut self, series: impl Fn(&P) -> K) {
        let mut most: Vec<(K, f32)> = Vec::new();
        self.points.retain(|point| {
            let (key, recall) = (series(point), point.recall());
            let Some((_, best)) = most.iter_mut().find(|(other, _)| *other == key) else {
                most.push((key, recall));
                return true;
            };
            let rises = recall >= *best;
            *best = best.max(recall);
            rises
        });
    }
}

/// The limits of the points of an index.
pub(crate) struct Limits<S> {
    /// Number of vectors.
    pub(crate) vectors: u64,
    /// Number of groups or lists; 0 for a graph.
    pub(crate) probes: u32,
    /// Returns the key of a point's series. The points of a series differ in one number only, with which
    /// recall rises. `None` if recall may fall, as in graphs of version 1, whose noisy measurements were not
    /// smoothed.
    pub(crate) series: Option<S>,
}

/// Refuses a calibration that cannot be the result of a build, including numbers that could be used but
/// cannot have been measured.
///
/// # Errors
/// A sentence with the impossible point.
pub(crate) fn check<P: Point, K: PartialEq, S: Fn(&P) -> K>(
    calibration: &Calibration<P>,
    limits: &Limits<S>,
) -> Result<(), String> {
    let Calibration { queries, curves, reach, .. } = calibration;
    Reach::check(reach)?;
    if curves.is_empty() == (*queries > 0) {
        return Err(format!("the calibration has {} curves and {queries} queries", curves.len()));
    }
    check_curves(curves, limits)
}

/// Refuses curves that cannot have been measured.
pub(crate) fn check_curves<P: Point, K: PartialEq, S: Fn(&P) -> K>(
    curves: &[Curve<P>],
    limits: &Limits<S>,
) -> Result<(), String> {
    if !curves.is_sorted_by(|a, b| a.k < b.k) {
        return Err("the calibration curves are not in ascending order of k".into());
    }
    for curve in curves {
        check_curve(curve, limits).map_err(|reason| format!("the calibration of k {}: {reason}", curve.k))?;
    }
    Ok(())
}

fn check_curve<P: Point, K: PartialEq, S: Fn(&P) -> K>(
    curve: &Curve<P>,
    limits: &Limits<S>,
) -> Result<(), String> {
    if curve.k == 0 || u64::from(curve.k) > limits.vectors || curve.points.is_empty() {
        return Err(format!("{} points of {} vectors", curve.points.len(), limits.vectors));
    }
    for point in &curve.points {
        let largest = point.largest();
        if !(0.0..=1.0).contains(&point.recall()) {
            return Err(format!("a recall of {}", point.recall()));
        }
        if !(1..=MOST_EFFORT).contains(&largest) {
            return Err(format!("an effort of {largest}"));
        }
        point.check(limits.probes)?;
    }
    if !curve.points.is_sorted_by(|a, b| a.rank() < b.rank()) {
        return Err("its points are not in ascending order of effort".into());
    }
    match &limits.series {
        Some(series) => check_rising(&curve.points, series),
        None => Ok(()),
    }
}

/// Refuses points whose recall is below that of a smaller effort in the same series.
fn check_rising<P: Point, K: PartialEq>(points: &[P], series: &impl Fn(&P) -> K) -> Result<(), String> {
    for (at, point) in points.iter().enumerate() {
        let less = points[..at].iter().rev().find(|less| series(less) == series(point));
        if let Some(less) = less.filter(|less| less.recall() > point.recall()) {
            return Err(format!(
                "recall falls from {} to {} as the effort grows from {} to {}",
                less.recall(),
                point.recall(),
                less.largest(),
                point.largest()
            ));
        }
    }
    Ok(())
}
