//! From a recall to the candidates that are compared.

use super::section::FlatEntry;
use crate::calibrate::Calibration;
use crate::calibrate::list::ListPoint;
use crate::calibrate::solve::{Question, Solved};
use crate::query::{Effort, SearchParams};

/// Probes of a search that compares all vectors; those of one that compares candidates are 0.
pub(super) const ALL: usize = 1;

/// Whether a search of an index of so many vectors compares all of them.
pub(super) fn scans(entry: &FlatEntry, vectors: usize, params: &SearchParams) -> bool {
    entry.codes.is_none() || params.probes >= ALL || params.wanted() >= vectors
}

/// Candidates for a recall, of `vectors` vectors: all of them, so that the answer is exact, where fewer were never seen to
/// reach it, or where so many are not `worth` reading one by one.
pub(super) fn effort(
    calibration: &Calibration<ListPoint>,
    vectors: u32,
    k: usize,
    recall: f32,
    worth: impl Fn(usize) -> bool,
) -> Solved {
    let found = Question::new(&calibration.curves, k, recall).and_then(|question| {
        let question = question.with_margin_beyond();
        // The logarithms may have come out a hair above a whole number.
        Some(question.stretched(question.list()? * (1.0 - 1e-9)))
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
