//! Chooses the number of candidates for a recall.

use super::section::FlatEntry;
use crate::calibrate::Calibration;
use crate::calibrate::list::ListPoint;
use crate::calibrate::solve::{Question, Solved};
use crate::query::{Effort, SearchParams};

/// The probes of a search that compares all vectors. A search that compares candidates has 0 probes.
pub(super) const ALL: usize = 1;

/// Returns true if a search of an index of `vectors` vectors compares all of them.
pub(super) fn scans(entry: &FlatEntry, vectors: usize, params: &SearchParams) -> bool {
    entry.codes.is_none() || params.probes >= ALL || params.wanted() >= vectors
}

/// Returns the effort for a recall: the number of candidates that reached it in the calibration. It is all
/// `vectors` vectors, so that the answer is exact, if no number reached the recall or if that number is not
/// `worth` reading one by one.
pub(super) fn effort(
    calibration: &Calibration<ListPoint>,
    vectors: u32,
    k: usize,
    recall: f32,
    worth: impl Fn(usize) -> bool,
) -> Solved {
    let found = Question::new(&calibration.curves, k, recall).and_then(|question| {
        let question = question.with_margin_beyond();
        // Rounding of the logarithms may lift the result slightly above a whole number.
        Some(question.stretched(question.list()? * (1.0 - 1e-9)))
    });
    // A search for as many candidates as there are vectors compares all vectors.
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
    fn a_recall_that_candidates_do_not_reach_takes_an_exact_scan() {
        let points = [(10, 0.5), (20, 0.9), (40, 0.98)];
        let points = points.map(|(search_list, recall)| ListPoint { search_list, recall }).to_vec();
        let curves = vec![Curve { k: 10, points }];
        let measured = Calibration { queries: 9, source: "given queries".into(), curves, reach: Vec::new() };
        let list = |recall, k| {
            let solved = effort(&measured, 1000, k, recall, |list| list < 300);
            assert!(solved.reached);
            (solved.effort.search_list, solved.effort.probes)
        };
        assert_eq!((list(0.9, 10), list(0.97, 10)), ((20, 0), (37, 0)));
        assert_eq!((list(0.99, 10), list(1.0, 10)), ((10, ALL), (10, ALL)));
        assert!(list(0.9, 20).0 > 40, "more neighbours take more candidates");
        assert_eq!(effort(&Calibration::default(), 77, 10, 0.9, |_| true).effort.probes, ALL);
        assert_eq!(effort(&measured, 1000, 10, 0.9, |_| false).effort.probes, ALL);
    }
}
