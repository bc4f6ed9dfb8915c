//! Calibration of posting lists: from a recall to the lists that it takes.

use crate::format::manifest::{Calibration, CalibrationPoint};

/// How hard posting lists are searched.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ListEffort {
    /// Lists, at most.
    pub(crate) probes: u32,
    /// Lists more than `1 + prune` times as far as the nearest are left out; 0 leaves none out.
    pub(crate) prune: f32,
    /// Whether the calibration reaches the recall.
    pub(crate) reached: bool,
}

/// What looking for one list more costs beside reading one: a walk through centroids is short.
const NAVIGATION_SHARE: f64 = 0.1;

/// The effort that reads the fewest lists for a recall.
pub(crate) fn effort(calibration: &Calibration, k: usize, recall: f32) -> Option<ListEffort> {
    let curves = &calibration.curves;
    let curve = curves.iter().find(|c| c.k as usize >= k).or(curves.last())?;
    let stretch = (k as f64 / f64::from(curve.k)).max(1.0);
    let stretched = |probes: f64| (probes * stretch).ceil() as u32;
    let mut prunes: Vec<f32> = curve.points.iter().map(|point| point.prune).collect();
    prunes.sort_unstable_by(f32::total_cmp);
    prunes.dedup();
    // Beyond what was measured lists farther away are needed, and how much farther nobody knows: half of what the recall
    // leaves out is added to it, since so many times the lists for the largest measured k fall short of it.
    let measured = stretch <= 1.0;
    let recall = if measured { recall } else { (1.0 + recall) / 2.0 };
    if !measured && prunes.first() == Some(&0.0) {
        prunes.truncate(1);
    }
    let kept = |prune: f32| if measured { prune } else { 0.0 };
    let mut best: Option<(f64, ListEffort)> = None;
    for prune in prunes {
        let points: Vec<&CalibrationPoint> = curve.points.iter().filter(|p| p.prune == prune).collect();
        let Some((probes, lists)) = least(&points, recall) else { continue };
        let cost = lists + NAVIGATION_SHARE * probes;
        if best.as_ref().is_none_or(|(least, _)| cost < *least) {
            best = Some((cost, ListEffort { probes: stretched(probes), prune: kept(prune), reached: true }));
        }
    }
    let most = || curve.points.iter().max_by(|a, b| a.recall.total_cmp(&b.recall));
    best.map(|(_, effort)| effort).or_else(|| {
        let (probes, prune) = most().map(|p| (stretched(f64::from(p.probes)), p.prune))?;
        Some(ListEffort { probes, prune: kept(prune), reached: false })
    })
}

/// The probes at which `points`, of one `prune` and by rising probes, reach `recall`, and the lists that are read then.
fn least(points: &[&CalibrationPoint], recall: f32) -> Option<(f64, f64)> {
    let at = points.iter().position(|point| point.recall >= recall)?;
    let above = points[at];
    let Some(below) = at.checked_sub(1).map(|at| points[at]) else {
        return Some((f64::from(above.probes), f64::from(above.lists)));
    };
    let share = f64::from((recall - below.recall) / (above.recall - below.recall));
    let between = |from: f64, to: f64| from + share * (to - from);
    Some((
        between(f64::from(below.probes), f64::from(above.probes)),
        between(f64::from(below.lists), f64::from(above.lists)),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::manifest::CalibrationCurve;

    #[test]
    fn the_cheapest_way_to_a_recall_is_taken() {
        let point = |probes, prune, lists, recall| CalibrationPoint {
            search_list: probes,
            probes,
            prune,
            lists,
            recall,
        };
        let points = vec![
            point(10, 0.0, 10.0, 0.80),
            point(10, 0.3, 8.0, 0.78),
            point(20, 0.0, 20.0, 0.90),
            point(20, 0.3, 12.0, 0.88),
            point(40, 0.0, 40.0, 0.97),
            point(40, 0.3, 16.0, 0.92),
        ];
        let calibration = Calibration {
            queries: 1,
            source: String::new(),
            lone_curves: Vec::new(),
            curves: vec![CalibrationCurve { k: 10, points }],
        };
        let at = |recall| effort(&calibration, 10, recall).expect("an effort");
        assert_eq!(at(0.90), ListEffort { probes: 30, prune: 0.3, reached: true });
        assert_eq!(at(0.97), ListEffort { probes: 40, prune: 0.0, reached: true });
        assert_eq!(at(0.99), ListEffort { probes: 40, prune: 0.0, reached: false });
        assert_eq!(
            effort(&calibration, 15, 0.90),
            Some(ListEffort { probes: 52, prune: 0.0, reached: true })
        );
        assert_eq!(effort(&Calibration::default(), 10, 0.9), None);
    }
}
