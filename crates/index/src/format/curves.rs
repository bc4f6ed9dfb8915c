//! What calibration curves can say: numbers that a measurement has, not only ones that can be computed with.

use super::manifest::{Calibration, CalibrationCurve, CalibrationPoint};

/// Longest list of candidates that a point may name: that of any search.
const MOST_CANDIDATES: u32 = 1 << 20;
/// What the rounding of a mean may add to it.
const ROUNDING: f32 = 1e-3;

/// What the points of an index can be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Number of vectors.
    pub(crate) vectors: u64,
    /// Groups or lists that there are; 0 of a graph.
    pub(crate) probes: u32,
    /// How points of rising effort are told from points of another kind of effort.
    pub(crate) effort: Effort,
}

/// In which order the recall of points may not fall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    /// Nothing is known: graphs of version 1 were measured with noise and not smoothed.
    Unordered,
    /// By candidates, for each number of probes and each pruning.
    Candidates,
    /// By posting lists, for each pruning: these hold what is compared, so that there are no candidates.
    Lists,
}

/// Checks that all curves could have been measured.
///
/// # Errors
/// A sentence that says which point could not.
pub(crate) fn check(calibration: &Calibration, limits: &Limits) -> Result<(), String> {
    let measured = !calibration.curves.is_empty();
    if measured != (calibration.queries > 0) || (!measured && !calibration.lone_curves.is_empty()) {
        return Err(format!(
            "the calibration has {} curves and {} queries",
            calibration.curves.len(),
            calibration.queries
        ));
    }
    for curves in [&calibration.curves, &calibration.lone_curves] {
        if !curves.windows(2).all(|pair| pair[0].k < pair[1].k) {
            return Err("the calibration curves are not by rising k".into());
        }
        for curve in curves {
            check_curve(curve, limits)
                .map_err(|reason| format!("the calibration of k {}: {reason}", curve.k))?;
        }
    }
    Ok(())
}

fn check_curve(curve: &CalibrationCurve, limits: &Limits) -> Result<(), String> {
    if curve.k == 0 || u64::from(curve.k) > limits.vectors || curve.points.is_empty() {
        return Err(format!("{} points of {} vectors", curve.points.len(), limits.vectors));
    }
    for point in &curve.points {
        check_point(point, limits)?;
    }
    let order = |point: &CalibrationPoint| (point.probes, point.search_list, point.prune);
    if !curve.points.windows(2).all(|pair| order(&pair[0]) < order(&pair[1])) {
        return Err("its points are not by rising effort".into());
    }
    match limits.effort {
        Effort::Unordered => Ok(()),
        effort => check_rising(&curve.points, effort),
    }
}

fn check_point(point: &CalibrationPoint, limits: &Limits) -> Result<(), String> {
    let refuse = |what: String| Err(what);
    if !(0.0..=1.0).contains(&point.recall) {
        return refuse(format!("a recall of {}", point.recall));
    }
    if !(1..=MOST_CANDIDATES).contains(&point.search_list) {
        return refuse(format!("a search list of {}", point.search_list));
    }
    if point.probes > limits.probes || (limits.probes > 0 && point.probes == 0) {
        return refuse(format!("{} probes of {}", point.probes, limits.probes));
    }
    if !(0.0..=f32::MAX).contains(&point.prune) || (limits.probes == 0 && point.prune > 0.0) {
        return refuse(format!("lists pruned at {}", point.prune));
    }
    let lists = point.probes as f32 * (1.0 + ROUNDING);
    if !(0.0..=lists).contains(&point.lists) {
        return refuse(format!("{} lists scanned by {} probes", point.lists, point.probes));
    }
    if limits.effort == Effort::Lists && point.search_list != point.probes {
        return refuse(format!("a search list of {} for {} lists", point.search_list, point.probes));
    }
    Ok(())
}

/// More of the same effort never finds less.
fn check_rising(points: &[CalibrationPoint], effort: Effort) -> Result<(), String> {
    let same = |a: &CalibrationPoint, b: &CalibrationPoint| {
        a.prune == b.prune && (effort == Effort::Lists || a.probes == b.probes)
    };
    for (at, point) in points.iter().enumerate() {
        let less = points[..at].iter().rev().find(|less| same(less, point));
        if let Some(less) = less.filter(|less| less.recall > point.recall) {
            return Err(format!(
                "recall falls from {} to {} as the search list grows from {} to {}",
                less.recall, point.recall, less.search_list, point.search_list
            ));
        }
    }
    Ok(())
}

impl CalibrationCurve {
    /// Drops points whose recall is below that of less effort: noise of the measurement, which no search would choose.
    pub(crate) fn keep_rising(&mut self) {
        let mut most = 0.0_f32;
        self.points.retain(|point| {
            let rises = point.recall >= most;
            most = most.max(point.recall);
            rises
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(probes: u32, search_list: u32, recall: f32) -> CalibrationPoint {
        CalibrationPoint { search_list, probes, recall, prune: 0.0, lists: 0.0 }
    }

    fn calibration(k: u32, points: Vec<CalibrationPoint>) -> Calibration {
        let curves = vec![CalibrationCurve { k, points }];
        Calibration { queries: 9, source: "a test".into(), curves, lone_curves: Vec::new() }
    }

    const GROUPS: Limits = Limits { vectors: 500, probes: 40, effort: Effort::Candidates };
    const LISTS: Limits = Limits { effort: Effort::Lists, ..GROUPS };
    const GRAPH: Limits = Limits { probes: 0, ..GROUPS };

    #[test]
    fn what_can_be_measured_is_taken() {
        let groups = vec![point(8, 10, 0.5), point(8, 20, 0.6), point(40, 10, 0.4), point(40, 20, 0.6)];
        assert_eq!(check(&calibration(10, groups), &GROUPS), Ok(()));
        let list = |n: u32, prune: f32, recall: f32| CalibrationPoint {
            prune,
            lists: n as f32,
            ..point(n, n, recall)
        };
        let lists = vec![list(1, 0.0, 0.5), list(2, 0.0, 0.7), list(2, 0.1, 0.6), list(4, 0.0, 0.7)];
        assert_eq!(check(&calibration(10, lists), &LISTS), Ok(()));
        assert_eq!(check(&calibration(10, vec![point(0, 10, 0.0), point(0, 20, 1.0)]), &GRAPH), Ok(()));
        assert_eq!(check(&Calibration::default(), &GRAPH), Ok(()));
        let mut noisy = calibration(10, vec![point(0, 10, 0.5), point(0, 20, 0.49), point(0, 30, 0.6)]);
        assert!(check(&noisy, &GRAPH).is_err());
        assert_eq!(check(&noisy, &Limits { effort: Effort::Unordered, ..GRAPH }), Ok(()));
        noisy.curves[0].keep_rising();
        assert_eq!(check(&noisy, &GRAPH), Ok(()));
        assert_eq!(noisy.curves[0].points.len(), 2);
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        let of = |point| calibration(10, vec![point]);
        let sound = point(8, 10, 0.5);
        for bad in [
            CalibrationPoint { recall: f32::NAN, ..sound },
            CalibrationPoint { recall: 1.01, ..sound },
            CalibrationPoint { recall: -0.01, ..sound },
            CalibrationPoint { search_list: 0, ..sound },
            CalibrationPoint { search_list: 1 << 31, ..sound },
            CalibrationPoint { probes: 0, ..sound },
            CalibrationPoint { probes: 41, ..sound },
            CalibrationPoint { prune: -0.1, ..sound },
            CalibrationPoint { prune: f32::NAN, ..sound },
            CalibrationPoint { prune: f32::INFINITY, ..sound },
            CalibrationPoint { lists: f32::NAN, ..sound },
            CalibrationPoint { lists: -1.0, ..sound },
            CalibrationPoint { lists: 9.0, ..sound },
        ] {
            assert!(check(&of(bad), &GROUPS).is_err(), "{bad:?}");
            assert!(check(&Calibration { lone_curves: of(bad).curves, ..of(sound) }, &GROUPS).is_err());
        }
        assert_eq!(check(&of(sound), &GROUPS), Ok(()));
        assert!(check(&of(sound), &GRAPH).is_err(), "a graph has no groups");
        assert!(check(&of(sound), &LISTS).is_err(), "lists have no candidates");
        for (k, points) in [
            (10, vec![]),
            (0, vec![sound]),
            (501, vec![sound]),
            (10, vec![point(8, 20, 0.5), point(8, 10, 0.6)]),
            (10, vec![point(8, 10, 0.5), point(8, 10, 0.5)]),
            (10, vec![point(16, 10, 0.5), point(8, 20, 0.6)]),
            (10, vec![point(8, 10, 0.6), point(8, 20, 0.5)]),
        ] {
            assert!(check(&calibration(k, points.clone()), &GROUPS).is_err(), "{k} {points:?}");
        }
        assert!(check(&Calibration { queries: 0, ..of(sound) }, &GROUPS).is_err(), "measured with nothing");
        assert!(check(&Calibration { curves: Vec::new(), ..of(sound) }, &GROUPS).is_err());
        let twice = Calibration { curves: [of(sound).curves, of(sound).curves].concat(), ..of(sound) };
        assert!(check(&twice, &GROUPS).is_err(), "one k twice");
    }
}
