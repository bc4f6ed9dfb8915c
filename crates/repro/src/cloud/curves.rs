//! Curves over recall: what an index takes for a recall that lies between two efforts, and where one overtakes another.

use super::points::Point;
use super::subjects::Subject;

/// Recalls at which two curves are compared: from, to, and the step.
const GRID: (f64, f64, f64) = (0.5, 0.995, 0.005);

/// What is counted of a point.
pub(super) type Counter = fn(&Point) -> f64;
/// Values by recall, rising.
pub(super) type Values = Vec<(f64, f64)>;

/// The points of an index of a set, of a graph with this W; by recall.
pub(super) fn of<'p>(
    points: &'p [Point],
    set: &str,
    subject: Subject,
    beam_width: Option<u32>,
) -> Vec<&'p Point> {
    let name = subject.name();
    let same =
        |point: &&Point| point.set == set && point.index == name && point.effort.beam_width() == beam_width;
    let mut found: Vec<&Point> = points.iter().filter(same).collect();
    found.sort_by(|a, b| a.recall.total_cmp(&b.recall));
    found
}

/// A counter of each point.
pub(super) fn counters(points: &[&Point], of: impl Fn(&Point) -> f64) -> Values {
    points.iter().map(|point| (point.recall, of(point))).collect()
}

/// Queries a second of each point with so many at once.
pub(super) fn speeds(points: &[&Point], concurrency: usize) -> Values {
    points.iter().filter_map(|point| Some((point.recall, point.at(concurrency)?.qps))).collect()
}

/// The value at a recall, between two points by its logarithm; that of the first where even the least effort reaches more,
/// `None` beyond the last.
pub(super) fn at(values: &[(f64, f64)], recall: f64) -> Option<f64> {
    let (first, last) = (values.first()?, values.last()?);
    if recall <= first.0 {
        return Some(first.1);
    }
    if recall > last.0 {
        return None;
    }
    let pair = values.windows(2).find(|pair| recall <= pair[1].0)?;
    let (low, high) = (pair[0], pair[1]);
    let share = (recall - low.0) / (high.0 - low.0).max(1e-12);
    let logarithm = |value: f64| value.max(1e-12).ln();
    Some((logarithm(low.1) * (1.0 - share) + logarithm(high.1) * share).exp())
}

/// How many times the value of `b` that of `a` is at a recall.
pub(super) fn ratio(a: &[(f64, f64)], b: &[(f64, f64)], recall: f64) -> Option<f64> {
    Some(at(a, recall)? / at(b, recall)?.max(1e-12))
}

/// The highest recall that both reach.
pub(super) fn top(a: &[(f64, f64)], b: &[(f64, f64)]) -> Option<f64> {
    Some(a.last()?.0.min(b.last()?.0))
}

/// The lowest recall that both were measured at.
pub(super) fn bottom(a: &[(f64, f64)], b: &[(f64, f64)]) -> Option<f64> {
    Some(a.first()?.0.max(b.first()?.0))
}

/// From which recall on one is ahead of another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Crossing {
    Everywhere,
    From(f64),
    Nowhere,
    /// There is no recall that both reach.
    Unknown,
}

impl Crossing {
    /// As tables have it.
    pub(super) fn words(self) -> String {
        match self {
            Crossing::Everywhere => "at every recall".into(),
            Crossing::From(recall) => format!("from {recall:.3} on"),
            Crossing::Nowhere => "nowhere".into(),
            Crossing::Unknown => "-".into(),
        }
    }

    /// Its recall, so that they can be compared; 0 of everywhere, above 1 of nowhere.
    pub(super) fn recall(self) -> Option<f64> {
        match self {
            Crossing::Everywhere => Some(0.0),
            Crossing::From(recall) => Some(recall),
            Crossing::Nowhere => Some(2.0),
            Crossing::Unknown => None,
        }
    }
}

/// From which recall on `a` is above `b`, up to the highest that both reach.
pub(super) fn crossing(a: &[(f64, f64)], b: &[(f64, f64)]) -> Crossing {
    let (Some(low), Some(high)) = (bottom(a, b), top(a, b)) else { return Crossing::Unknown };
    let steps = ((GRID.1 - GRID.0) / GRID.2).round() as usize;
    let grid = (0..=steps).map(|step| GRID.0 + step as f64 * GRID.2);
    let mut recalls: Vec<f64> = grid.filter(|recall| (low..high).contains(recall)).collect();
    recalls.push(high);
    let ahead = |recall: &f64| ratio(a, b, *recall).is_some_and(|ratio| ratio > 1.0);
    match recalls.iter().rposition(|recall| !ahead(recall)) {
        None => Crossing::Everywhere,
        Some(last) => recalls.get(last + 1).map_or(Crossing::Nowhere, |recall| Crossing::From(*recall)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_lie_between_their_neighbours() {
        let curve = [(0.8, 100.0), (0.9, 10.0)];
        assert_eq!(at(&curve, 0.5), Some(100.0));
        assert!((at(&curve, 0.85).unwrap() - 1000_f64.sqrt()).abs() < 1e-9);
        assert!((at(&curve, 0.9).unwrap() - 10.0).abs() < 1e-9);
        assert_eq!((at(&curve, 0.91), at(&[], 0.5)), (None, None));
    }

    #[test]
    fn curves_cross_where_one_overtakes_for_good() {
        let flat = [(0.6, 50.0), (0.99, 50.0)];
        let falling = [(0.6, 500.0), (0.99, 5.0)];
        // Halfway, by the logarithm, both are 50.
        let Crossing::From(recall) = crossing(&flat, &falling) else { panic!("they cross") };
        assert!((0.79..=0.81).contains(&recall), "{recall}");
        assert_eq!(crossing(&flat, &[(0.6, 1.0), (0.99, 1.0)]), Crossing::Everywhere);
        assert_eq!(crossing(&[(0.6, 1.0), (0.99, 1.0)], &flat), Crossing::Nowhere);
        assert_eq!(crossing(&[], &flat), Crossing::Unknown);
    }
}
