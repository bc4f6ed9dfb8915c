//! From a recall to the candidates that are compared.

use super::section::FlatEntry;
use crate::calibrate::solve::{Place, Question, Solved, mix};
use crate::calibrate::{Calibration, Point};
use crate::query::{Effort, SearchParams};
use serde::{Deserialize, Serialize};

/// Probes of a search that compares all vectors; those of one that compares candidates are 0.
pub(super) const ALL: usize = 1;

/// Whether a search of an index of so many vectors compares all of them.
pub(super) fn scans(entry: &FlatEntry, vectors: usize, params: &SearchParams) -> bool {
    entry.codes.is_none() || params.probes >= ALL || params.wanted() >= vectors
}

/// The recall of so many candidates.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct FlatPoint {
    /// Vectors that are compared, at most.
    pub search_list: u32,
    /// Mean recall@k with these.
    pub recall: f32,
}

impl Point for FlatPoint {
    fn recall(&self) -> f32 {
        self.recall
    }

    fn rank(&self) -> (u32, u32, f32) {
        (self.search_list, 0, 0.0)
    }

    fn largest(&self) -> u32 {
        self.search_list
    }

    fn check(&self, _probes: u32) -> Result<(), String> {
        Ok(())
    }
}

#[derive(Debug, Clone, Copy)]
struct At {
    search_list: f64,
    recall: f64,
}

impl Place for At {
    fn reached(&self) -> f64 {
        self.recall
    }

    fn between(&self, above: &At, share: f64) -> At {
        At { search_list: mix(self.search_list, above.search_list, share), recall: above.recall }
    }
}

/// Candidates for a recall, of `vectors` vectors: all of them, so that the answer is exact, where fewer were never seen to
/// reach it, or where so many are not `worth` reading one by one.
pub(super) fn effort(
    calibration: &Calibration<FlatPoint>,
    vectors: u32,
    k: usize,
    recall: f32,
    worth: impl Fn(usize) -> bool,
) -> Solved {
    let found = Question::new(&calibration.curves, k, recall).and_then(|question| {
        let question = question.with_margin_beyond();
        let points = question.curve.points.iter();
        let series = points
            .map(|point| At { search_list: f64::from(point.search_list), recall: f64::from(point.recall) });
        let at = question.cheapest([series], |at| at.search_list)?;
        Some(question.stretched(at.search_list))
    });
    // More candidates than there are vectors are all of them.
    let effort = match found.filter(|found| *found < vectors as usize && worth(*found)) {
        Some(search_list) => Effort { search_list, probes: 0, prune: 0.0 },
        None => Effort { search_list: k, probes: ALL, prune: 0.0 },
    };
    Solved { effort, reached: true }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::Curve;

    #[test]
    fn what_candidates_do_not_reach_is_left_to_an_exact_scan() {
        let points = [(10, 0.5), (20, 0.9), (40, 0.98)];
        let points = points.map(|(search_list, recall)| FlatPoint { search_list, recall }).to_vec();
        let curves = vec![Curve { k: 10, points }];
        let measured = Calibration { queries: 9, source: "given queries".into(), curves };
        let list = |recall, k| {
            let solved = effort(&measured, 1000, k, recall, |list| list < 300);
            assert!(solved.reached);
            (solved.effort.search_list, solved.effort.probes)
        };
        assert_eq!((list(0.9, 10), list(0.97, 10)), ((20, 0), (38, 0)));
        assert_eq!((list(0.99, 10), list(1.0, 10)), ((10, ALL), (10, ALL)));
        assert!(list(0.9, 20).0 > 40, "more neighbours take more candidates");
        assert_eq!(effort(&Calibration::default(), 77, 10, 0.9, |_| true).effort.probes, ALL);
        assert_eq!(effort(&measured, 1000, 10, 0.9, |_| false).effort.probes, ALL);
    }
}
