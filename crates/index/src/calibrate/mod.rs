//! From a recall to an effort: what was measured when an index was built, and how an effort is read off it.
//!
//! Every family measures points of its own shape ([`Point`]); they are kept in curves by k ([`Calibration`]), and one
//! solver finds the cheapest effort that reaches a recall (`solve`). The queries of a measurement, and what should be
//! found for them, are a `trial`.

pub mod list;
pub mod probed;
pub mod reach;
pub(crate) mod solve;
pub(crate) mod trial;

use reach::Reach;
use serde::{Deserialize, Serialize};
use std::fmt::Debug;

/// Most of any kind of effort that a point may name: that of any search.
const MOST_EFFORT: u32 = 1 << 20;

/// What was measured at one effort.
pub trait Point: Copy + Debug + PartialEq {
    /// Mean recall@k.
    fn recall(&self) -> f32;

    /// By which points of a curve rise: no two have the same.
    fn rank(&self) -> (u32, u32, f32);

    /// The largest whole number in it that stands for an effort.
    fn largest(&self) -> u32;

    /// Refuses other numbers that cannot have been measured of an index of so many groups or lists.
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
    /// Points by rising [`Point::rank`].
    pub points: Vec<P>,
}

/// What was measured when the index was built.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Calibration<P> {
    /// Number of queries measured.
    pub queries: u32,
    /// Where they came from: "held-out vectors", "vectors of the data" or "given queries".
    pub source: String,
    /// Curves by rising k; none where there were too few vectors to measure anything.
    pub curves: Vec<Curve<P>>,
    /// How far these queries are from their neighbours, by rising k; none under the inner product, whose distances grow with
    /// the queries, and of an index that was built before this was measured.
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    pub reach: Vec<Reach>,
}

impl<P> Default for Calibration<P> {
    fn default() -> Self {
        Calibration { queries: 0, source: String::new(), curves: Vec::new(), reach: Vec::new() }
    }
}

impl<P: Point> Calibration<P> {
    /// The ends of each curve, for people: k, and the points of least and of most recall.
    pub(crate) fn ends(&self) -> Vec<(u32, P, P)> {
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
    /// Drops points whose recall is below that of less effort of the same `series`: noise of the measurement, which no search
    /// would choose.
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

/// What the points of an index can be.
pub(crate) struct Limits<S> {
    /// Number of vectors.
    pub(crate) vectors: u64,
    /// Groups or lists that there are; 0 of a graph.
    pub(crate) probes: u32,
    /// What points have in common that differ in one number only, by which recall then rises; `None` where that is not known,
    /// as of graphs of version 1, which were measured with noise and not smoothed.
    pub(crate) series: Option<S>,
}

/// Refuses a calibration that no build can have measured: numbers that a measurement does not have, not only those that
/// cannot be computed with.
///
/// # Errors
/// A sentence that says which point could not be.
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

/// The same of some curves.
pub(crate) fn check_curves<P: Point, K: PartialEq, S: Fn(&P) -> K>(
    curves: &[Curve<P>],
    limits: &Limits<S>,
) -> Result<(), String> {
    if !curves.is_sorted_by(|a, b| a.k < b.k) {
        return Err("the calibration curves are not by rising k".into());
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
        return Err("its points are not by rising effort".into());
    }
    match &limits.series {
        Some(series) => check_rising(&curve.points, series),
        None => Ok(()),
    }
}

/// More of the same effort never finds less.
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
