//! The one solver: the cheapest effort that reaches a recall.
//!
//! Points that differ in one number only (the length of a list of candidates, say) are a series. Along a series recall
//! rises, so the recall is reached at one place, between two points as a rule, and the cheapest of these places is taken.

use super::{Curve, Point};
use crate::query::Effort;

/// An effort that was found, and whether the calibration reaches the recall with it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Solved {
    pub(crate) effort: Effort,
    pub(crate) reached: bool,
}

/// What a search is to reach.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Target {
    /// A mean recall@k.
    Recall(f32),
    /// A mean overall ratio@k.
    Ratio(f32),
}

/// What a curve is asked for.
pub(crate) struct Question<'a, P> {
    pub(crate) curve: &'a Curve<P>,
    pub(crate) recall: f32,
    /// By how much efforts grow with k beyond the largest that was measured; 1 up to there.
    pub(crate) stretch: f64,
}

impl<'a, P: Point> Question<'a, P> {
    /// The question for recall@k: the curve of the next larger k is on the safe side; beyond the largest, efforts grow with
    /// k. `None` where nothing was measured.
    pub(crate) fn new(curves: &'a [Curve<P>], k: usize, recall: f32) -> Option<Question<'a, P>> {
        let curve = curves.iter().find(|curve| curve.k as usize >= k).or(curves.last())?;
        Some(Question { curve, recall, stretch: (k as f64 / f64::from(curve.k)).max(1.0) })
    }

    /// Whether so many neighbours were measured.
    pub(crate) fn is_measured(&self) -> bool {
        self.stretch <= 1.0
    }

    /// Two thirds of what the recall leaves out are added to it, for families whose efforts for the largest measured k, as often as
    /// k is larger, fall short.
    pub(crate) fn with_margin_beyond(self) -> Question<'a, P> {
        let recall = if self.is_measured() { self.recall } else { (2.0 + self.recall) / 3.0 };
        Question { recall, ..self }
    }

    /// A number of the effort for k, rounded up.
    pub(crate) fn stretched(&self, number: f64) -> usize {
        (number * self.stretch).ceil() as usize
    }

    /// The point of the most recall.
    pub(crate) fn best(&self) -> Option<P> {
        self.curve.points.iter().copied().max_by(|a, b| a.recall().total_cmp(&b.recall()))
    }

    /// The cheapest place where one of `series` (each by rising effort) reaches the recall: the place is made of the points
    /// around it by `between` (below, above, share of the way), and `cost` compares places. The first of equals wins.
    pub(crate) fn cheapest<Q: Place>(
        &self,
        series: impl IntoIterator<Item = impl IntoIterator<Item = Q>>,
        cost: impl Fn(&Q) -> f64,
    ) -> Option<Q> {
        let mut best: Option<(f64, Q)> = None;
        for points in series {
            let Some(place) = crossing(points, f64::from(self.recall)) else { continue };
            let total = cost(&place);
            if best.as_ref().is_none_or(|(least, _)| total < *least) {
                best = Some((total, place));
            }
        }
        best.map(|(_, place)| place)
    }
}

/// A point of a series, or a place between two.
pub(crate) trait Place: Copy {
    /// The recall there.
    fn reached(&self) -> f64;

    /// The place at `share` (0 to 1) of the way from here to `above`.
    fn between(&self, above: &Self, share: f64) -> Self;
}

/// Where a series first reaches a recall.
fn crossing<Q: Place>(points: impl IntoIterator<Item = Q>, recall: f64) -> Option<Q> {
    let mut below: Option<Q> = None;
    for point in points {
        if point.reached() >= recall {
            return Some(match below {
                Some(below) if point.reached() > below.reached() => {
                    let share = (recall - below.reached()) / (point.reached() - below.reached());
                    below.between(&point, share)
                }
                _ => point,
            });
        }
        below = Some(point);
    }
    None
}

/// `from` to `to` by `share`.
pub(crate) fn mix(from: f64, to: f64, share: f64) -> f64 {
    from + share * (to - from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, Copy, PartialEq)]
    struct At(f64, f64);

    impl Place for At {
        fn reached(&self) -> f64 {
            self.1
        }

        fn between(&self, above: &At, share: f64) -> At {
            At(mix(self.0, above.0, share), mix(self.1, above.1, share))
        }
    }

    #[test]
    fn a_recall_is_reached_between_two_points_or_at_the_first() {
        let series = [At(10.0, 0.5), At(20.0, 0.7), At(40.0, 0.9)];
        let at = |recall| crossing(series, recall).map(|place| place.0);
        assert_eq!(at(0.4), Some(10.0));
        assert_eq!(at(0.5), Some(10.0));
        assert!(at(0.8).is_some_and(|found| (found - 30.0).abs() < 1e-9));
        assert_eq!(at(0.95), None);
    }
}
