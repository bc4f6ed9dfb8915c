//! How much farther away what was found lies than the true neighbours.

use bathyal_kernels::Metric;

use super::{GroundTruthError, check_exact};
use crate::{IdFile, NO_ID};

/// Cosine distances below this are taken as 0. They are one minus a sum of 32 bits, which is off by some 2^-22: the ratio
/// of two distances that are smaller would be one of rounding errors.
const COSINE_RESOLUTION: f32 = 1.0 / (1 << 20) as f32;

/// The share of queries that [`OverallRatio::p99`] is not below.
const MOST: f64 = 0.99;

/// The overall ratio of queries: how many times as far as the true neighbours what was found lies, 1 at best. Recall says
/// how many neighbours were missed, this says how bad the misses are.
///
/// Of a query it is `1/k sum |o_i, q| / |o*_i, q|` over i from 1 to k, where `o_i` is the i-th nearest of those found and
/// `o*_i` the true i-th nearest neighbour (Nakanishi et al., Implementing and Evaluating E2LSH on Storage, EDBT 2023,
/// section 3.2). Distances in it are Euclidean: the roots of ours under l2, and under cosine those of the vectors brought to
/// length 1, `sqrt(2 (1 - cosine))`. Under ip there is none, since an inner product is no distance.
///
/// * An answer's distance is that of the ground truth where this names its id, else the one that the search told, which is
///   rounded, and off where vectors are stored as something smaller.
/// * No term is below 1, since nothing is nearer than the nearest: what is, is rounding.
/// * Where the true distance is 0 (a query that is in the data), the term is 1 if the answer's is 0, too. If it is not, there
///   is no ratio, and the query is left out.
/// * A query with fewer than k answers or true neighbours (an id is [`NO_ID`], or named twice), or with distances that are not finite, is left out.
///
/// What was left out is counted by [`OverallRatio::left_out`] and belongs beside the mean: these may be the worst queries.
#[derive(Clone, Debug)]
pub struct OverallRatio {
    metric: Metric,
    of_queries: Vec<f64>,
    left_out: usize,
    /// The ids of a query that the ground truth names, in order, with their distances; reused.
    known: Vec<(u32, f32)>,
    /// The distances of a query's answers; reused.
    found: Vec<f32>,
}

impl OverallRatio {
    /// Starts with no queries; `None` where there can be no ratio: under ip, and where `exact` has no distances.
    ///
    /// Takes 8 bytes for each query of `exact`, so that the 99th percentile is exact.
    pub fn new(metric: Metric, exact: &IdFile) -> Option<OverallRatio> {
        let defined = metric != Metric::InnerProduct && exact.has_distances();
        defined.then(|| OverallRatio {
            metric,
            of_queries: Vec::with_capacity(exact.queries()),
            left_out: 0,
            known: Vec::with_capacity(exact.k()),
            found: Vec::new(),
        })
    }

    /// Adds `queries` queries whose exact neighbours are `exact`, and of which a search found `ids` at `distances`: both
    /// `queries x k`, row-major, distances as [`Metric`] defines them (l2: squared), as those of `exact` are.
    ///
    /// # Errors
    /// As [`check_exact`].
    pub fn add(
        &mut self,
        exact: &IdFile,
        ids: &[u32],
        distances: &[f32],
        k: usize,
        queries: usize,
    ) -> Result<(), GroundTruthError> {
        check_exact(exact, k, queries)?;
        for query in 0..queries {
            let row = query * k..(query + 1) * k;
            let answers = ids.get(row.clone()).zip(distances.get(row)).filter(|_| k > 0);
            let truth = exact.distances(query).map(|distances| (exact.ids(query), distances));
            match answers.zip(truth).and_then(|(answers, truth)| self.of_query(answers, truth)) {
                Some(ratio) => self.of_queries.push(ratio),
                None => self.left_out += 1,
            }
        }
        Ok(())
    }

    /// Mean over the queries that have a ratio, at least 1; `None` if none has.
    pub fn mean(&self) -> Option<f64> {
        let count = self.of_queries.len();
        (count > 0).then(|| self.of_queries.iter().sum::<f64>() / count as f64)
    }

    /// The 99th percentile over the queries that have a ratio, by nearest rank; `None` if none has.
    pub fn p99(&self) -> Option<f64> {
        let mut sorted = self.of_queries.clone();
        let rank = (MOST * sorted.len() as f64).ceil() as usize;
        let last = rank.checked_sub(1)?;
        Some(*sorted.select_nth_unstable_by(last, f64::total_cmp).1)
    }

    /// Queries without a ratio.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// The ratio of a query from ids and distances of as many answers as are wanted, and of its exact neighbours.
    fn of_query(&mut self, answers: (&[u32], &[f32]), truth: (&[u32], &[f32])) -> Option<f64> {
        let missing = |ids: &[u32]| ids.contains(&NO_ID);
        let k = answers.0.len();
        if missing(answers.0) || truth.0.get(..k).is_none_or(missing) || has_repeats(answers.0) {
            return None;
        }
        self.known.clear();
        self.known.extend(truth.0.iter().copied().zip(truth.1.iter().copied()));
        self.known.sort_unstable_by_key(|(id, _)| *id);
        self.found.clear();
        for (id, told) in answers.0.iter().zip(answers.1) {
            let known = self.known.binary_search_by_key(id, |(id, _)| *id);
            self.found.push(known.map_or(*told, |at| self.known[at].1));
        }
        // The ground truth may order answers otherwise than what the search told of them.
        self.found.sort_unstable_by(f32::total_cmp);
        ratio_of_query(self.metric, &self.found, truth.1)
    }
}

/// Whether an id is named twice, and so fewer vectors were found than ids.
fn has_repeats(ids: &[u32]) -> bool {
    let mut sorted = ids.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).any(|two| two[0] == two[1])
}

/// The overall ratio of one query of which vectors were found at the distances `found`, rising, whose nearest lie at `exact`,
/// rising, at least as many: both as `metric` defines them, which is not ip. `None` where there is no ratio, as
/// [`OverallRatio`] says, and of nothing found.
pub fn ratio_of_query(metric: Metric, found: &[f32], exact: &[f32]) -> Option<f64> {
    let mut sum = 0.0;
    for (found, exact) in found.iter().zip(exact) {
        sum += term(length(metric, *found)?, length(metric, *exact)?)?;
    }
    (!found.is_empty()).then(|| sum / found.len() as f64)
}

/// The Euclidean distance that `distance` stands for; `None` if that is no number.
///
/// Under cosine it is short of a factor of root 2, which every ratio is without.
fn length(metric: Metric, distance: f32) -> Option<f64> {
    let least = if metric == Metric::Cosine { COSINE_RESOLUTION } else { 0.0 };
    let distance = if distance < least { 0.0 } else { distance };
    distance.is_finite().then(|| f64::from(distance).sqrt())
}

/// How many times as far as `exact` lies what is at `found`; `None` for infinitely many times.
fn term(found: f64, exact: f64) -> Option<f64> {
    match (found, exact) {
        (0.0, 0.0) => Some(1.0),
        (_, 0.0) => None,
        _ => Some((found / exact).max(1.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ratio of queries of two neighbours each, of exact ones at `truth` with the ids 0, 1, ..., four a query.
    fn ratio(metric: Metric, truth: &[f32], ids: &[u32], distances: &[f32]) -> OverallRatio {
        let exact = IdFile::from_parts(4, (0..truth.len() as u32).collect(), Some(truth.to_vec())).unwrap();
        let mut ratio = OverallRatio::new(metric, &exact).unwrap();
        ratio.add(&exact, ids, distances, 2, truth.len() / 4).unwrap();
        ratio
    }

    #[test]
    fn distances_are_compared_without_their_squares() {
        // Roots 1 and 2; what was found lies at 1 and 5, then at 3 and 6.
        let truth = [1.0, 4.0, 4.0, 100.0];
        assert_eq!(ratio(Metric::L2, &truth, &[0, 9], &[1.0, 25.0]).mean(), Some((1.0 + 2.5) / 2.0));
        assert_eq!(ratio(Metric::L2, &truth, &[8, 9], &[9.0, 36.0]).mean(), Some(3.0));
        // One minus cosine: sqrt(2 x 0.5) and sqrt(2 x 0.125) are 1 and 1/2.
        let truth = [0.125, 0.125, 0.5, 0.5];
        assert_eq!(ratio(Metric::Cosine, &truth, &[0, 9], &[0.125, 0.5]).mean(), Some(1.5));
    }

    #[test]
    fn known_ids_have_their_exact_distances() {
        let truth = [1.0, 4.0, 9.0, 100.0];
        // Told in another order and too near or too far, as vectors of bytes would be.
        let exact = ratio(Metric::L2, &truth, &[1, 0], &[0.9, 1.3]);
        assert_eq!((exact.mean(), exact.p99(), exact.left_out()), (Some(1.0), Some(1.0), 0));
        assert_eq!(ratio(Metric::L2, &truth, &[0, 2], &[1.0, 4.5]).mean(), Some((1.0 + 1.5) / 2.0));
        // A vector that the ground truth does not name cannot be nearer than what it names.
        assert_eq!(ratio(Metric::L2, &truth, &[0, 9], &[1.0, 3.9]).mean(), Some(1.0));
    }

    #[test]
    fn a_true_distance_of_zero_is_found_or_left_out() {
        let truth = [0.0, 4.0, 9.0, 16.0, 0.0, 4.0, 9.0, 16.0];
        let zeros = ratio(Metric::L2, &truth, &[0, 2, 5, 6], &[0.0, 9.0, 4.0, 9.0]);
        assert_eq!((zeros.mean(), zeros.left_out()), (Some((1.0 + 1.5) / 2.0), 1));
        // As near as 32 bits can tell.
        let near = ratio(Metric::Cosine, &[1e-16, 0.5, 0.5, 0.5], &[7, 1], &[6e-8, 0.5]);
        assert_eq!((near.mean(), near.left_out()), (Some(1.0), 0));
        let below = ratio(Metric::Cosine, &[0.0, 0.5, 0.5, 0.5], &[7, 1], &[-6e-8, 0.5]);
        assert_eq!((below.mean(), below.left_out()), (Some(1.0), 0));
    }

    #[test]
    fn what_is_missing_is_counted_and_no_number_is_ever_nan() {
        let truth = [1.0, 4.0, 9.0, 16.0, 1.0, 4.0, 9.0, 16.0];
        let short = ratio(Metric::L2, &truth, &[0, 1, 4], &[1.0, 4.0, 1.0]);
        assert_eq!((short.mean(), short.left_out()), (Some(1.0), 1));
        for bad in [f32::NAN, f32::INFINITY, -f32::NAN] {
            let bad = ratio(Metric::L2, &truth, &[0, 9, 8, 9], &[1.0, bad, bad, bad]);
            assert_eq!((bad.mean(), bad.p99(), bad.left_out()), (None, None, 2));
        }
        for missing in [[0, NO_ID], [NO_ID, NO_ID], [0, 0]] {
            let missing = ratio(Metric::L2, &truth[..4], &missing, &[1.0, 4.0]);
            assert_eq!((missing.mean(), missing.left_out()), (None, 1));
        }
        let exact = IdFile::from_parts(2, vec![0, NO_ID], Some(vec![1.0, 4.0])).unwrap();
        let mut short = OverallRatio::new(Metric::L2, &exact).unwrap();
        short.add(&exact, &[0, 1], &[1.0, 4.0], 2, 1).unwrap();
        assert_eq!((short.mean(), short.left_out()), (None, 1));
        let truth = [f32::NAN; 4];
        assert_eq!(ratio(Metric::L2, &truth, &[0, 1], &[1.0, 4.0]).left_out(), 1);
    }

    #[test]
    fn the_percentile_is_that_of_nearest_rank() {
        let truth: Vec<f32> = [1.0; 4].repeat(200);
        let ids: Vec<u32> = (1000..1400).collect();
        let far: Vec<f32> = (1..=200).flat_map(|times| [(times * times) as f32; 2]).collect();
        let found = ratio(Metric::L2, &truth, &ids, &far);
        assert_eq!((found.mean(), found.p99()), (Some(100.5), Some(198.0)));
    }

    #[test]
    fn where_there_is_no_ratio_none_is_made() {
        let ids = vec![1, 2, 3, 4];
        let exact = IdFile::from_parts(4, ids.clone(), None).unwrap();
        assert!(OverallRatio::new(Metric::L2, &exact).is_none());
        let exact = IdFile::from_parts(4, ids, Some(vec![-3.0, -2.0, -1.0, 0.0])).unwrap();
        assert!(OverallRatio::new(Metric::InnerProduct, &exact).is_none());
        let mut ratio = OverallRatio::new(Metric::L2, &exact).unwrap();
        assert!(ratio.add(&exact, &[1; 5], &[0.0; 5], 5, 1).is_err());
        assert!(ratio.add(&exact, &[1; 4], &[0.0; 4], 2, 2).is_err());
        ratio.add(&exact, &[], &[], 0, 1).unwrap();
        assert_eq!((ratio.mean(), ratio.left_out()), (None, 1));
    }
}
