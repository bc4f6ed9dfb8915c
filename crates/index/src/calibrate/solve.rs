//! The solver of all families, which finds the cheapest effort that reaches a recall.
//!
//! Points that differ in one number only, such as the length of the candidate list, are a series. Recall
//! rises along a series, so that each series first reaches the recall at one point, usually interpolated
//! between two. The solver returns the cheapest of these points.

use super::{Curve, Point};
use crate::query::Effort;

/// The effort that the solver has found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Solved {
    pub(crate) effort: Effort,
    /// True if the calibration reaches the target with this effort.
    pub(crate) reached: bool,
}

/// The target of a search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Target {
    /// A mean recall@k.
    Recall(f32),
    /// A mean overall ratio@k.
    Ratio(f32),
}

/// A recall at some k, and the curve by which its effort is found.
pub(crate) struct Question<'a, P> {
    pub(crate) curve: &'a Curve<P>,
    pub(crate) recall: f32,
    /// Factor of efforts for a k beyond the largest that was measured; otherwise 1.
    pub(crate) stretch: f64,
}

impl<'a, P: Point> Question<'a, P> {
    /// Chooses the curve for recall@k: that of the next larger k, whose efforts are sufficient. Beyond the
    /// largest k, efforts grow with k. Returns `None` if nothing was measured.
    pub(crate) fn new(curves: &'a [Curve<P>], k: usize, recall: f32) -> Option<Question<'a, P>> {
        let curve = curves.iter().find(|curve| curve.k as usize >= k).or(curves.last())?;
        Some(Question { curve, recall, stretch: (k as f64 / f64::from(curve.k)).max(1.0) })
    }

    /// Returns true if k is within the measured range.
    pub(crate) fn is_measured(&self) -> bool {
        self.stretch <= 1.0
    }

    /// Beyond the measured range of k, raises the recall by two thirds of its distance to 1: for families
    /// whose efforts, scaled from the largest measured k, are not sufficient.
    pub(crate) fn with_margin_beyond(self) -> Question<'a, P> {
        let recall = if self.is_measured() { self.recall } else { (2.0 + self.recall) / 3.0 };
        Question { recall, ..self }
    }

    /// Scales a number of an effort to k, rounded up.
    pub(crate) fn stretched(&self, number: f64) -> usize {
        (number * self.stretch).ceil() as usize
    }

    /// Returns the point with the most recall.
    pub(crate) fn best(&self) -> Option<P> {
        self.curve.points.iter().copied().max_by(|a, b| a.recall().total_cmp(&b.recall()))
    }

    /// Returns the cheapest point by `cost` at which one of `series`, each in ascending order of effort,
    /// reaches the recall. Of equal costs, the first is returned.
    pub(crate) fn cheapest<Q: CurvePoint>(
        &self,
        series: impl IntoIterator<Item = impl IntoIterator<Item = Q>>,
        cost: impl Fn(&Q) -> f64,
    ) -> Option<Q> {
        let mut best: Option<(f64, Q)> = None;
        for points in series {
            let Some(point) = first_reaching(points, f64::from(self.recall)) else { continue };
            let total = cost(&point);
            if best.as_ref().is_none_or(|(least, _)| total < *least) {
                best = Some((total, point));
            }
        }
        best.map(|(_, point)| point)
    }
}

/// A point of a series, measured or interpolated.
pub(crate) trait CurvePoint: Copy {
    /// Returns the recall at this point, or another value that rises with the effort.
    fn value(&self) -> f64;

    /// Interpolates at `share` (0 to 1) of the way from this point to `above`.
    fn between(&self, above: &Self, share: f64) -> Self;
}

/// Returns the point at which a series first reaches a recall.
fn first_reaching<Q: CurvePoint>(points: impl IntoIterator<Item = Q>, recall: f64) -> Option<Q> {
    let mut below: Option<Q> = None;
    for point in points {
        if point.value() >= recall {
            return Some(match below {
                Some(below) if point.value() > below.value() => {
                    let share = (recall - below.value()) / (point.value() - below.value());
                    below.between(&point, share)
                }
                _ => point,
            });
        }
        below = Some(point);
    }
    None
}

/// Interpolates linearly from `from` to `to`.
pub(crate) fn mix(from: f64, to: f64, share: f64) -> f64 {
    from + share * (to - from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, Copy, PartialEq)]
    struct TestPoint {
        effort: f64,
        recall: f64,
    }

    impl CurvePoint for TestPoint {
        fn value(&self) -> f64 {
            self.recall
        }

        fn between(&self, above: &TestPoint, share: f64) -> TestPoint {
            TestPoint {
                effort: mix(self.effort, above.effort, share),
                recall: mix(self.recall, above.recall, share),
            }
        }
    }

    #[test]
    fn a_recall_is_reached_between_two_points_or_at_the_first() {
        let series =
            [(10.0, 0.5), (20.0, 0.7), (40.0, 0.9)].map(|(effort, recall)| TestPoint { effort, recall });
        let effort_for = |recall| first_reaching(series, recall).map(|point| point.effort);
        assert_eq!(effort_for(0.4), Some(10.0));
        assert_eq!(effort_for(0.5), Some(10.0));
        assert!(effort_for(0.8).is_some_and(|found| (found - 30.0).abs() < 1e-9));
        assert_eq!(effort_for(0.95), None);
    }
}
