//! The overall ratio: how much farther the found neighbours are than the true ones.

use bathyal_kernels::Metric;

use super::{GroundTruthError, check_exact};
use crate::{IdFile, NO_ID};

/// Cosine distances below this count as 0. They are one minus a 32-bit sum, which has an error of some 2^-22,
/// so the ratio of two smaller distances would be a ratio of rounding errors.
const COSINE_RESOLUTION: f32 = 1.0 / (1 << 20) as f32;

/// The share of queries whose ratio is at most [`OverallRatio::p99`].
const P99_SHARE: f64 = 0.99;

/// The overall ratio of queries: the distance of the found neighbours divided by that of the true ones, 1 at
/// best. Recall counts the neighbours that a search missed; the ratio shows how far off the misses are.
///
/// The ratio of one query is `1/k sum |o_i, q| / |o*_i, q|` over i from 1 to k, where `o_i` is the i-th
/// nearest of the found vectors and `o*_i` the true i-th nearest neighbour (Nakanishi et al., Implementing
/// and Evaluating E2LSH on Storage, EDBT 2023, section 3.2). Its distances are Euclidean. Under l2 they are
/// the roots of the distances of [`Metric`]. Under cosine they are those of the vectors scaled to length 1,
/// `sqrt(2 (1 - cosine))`. Under ip there is no ratio, since an inner product is not a distance.
///
/// * The distance of a found vector is that of the ground truth if the ground truth names its id. Otherwise
///   it is the distance that the search returned, which is rounded, and inexact if vectors are stored in a
///   smaller form.
/// * A term is at least 1. No vector is nearer than the nearest, so a smaller term comes from rounding.
/// * If the true distance is 0 (the query is in the data), the term is 1 if the found distance is 0, too.
///   Otherwise the query has no ratio and is left out.
/// * A query is left out if it has fewer than k found or true neighbours (an id is [`NO_ID`], or named
///   twice), or a distance that is not finite.
///
/// [`OverallRatio::left_out`] counts the queries that are left out. Report it beside the mean: these may be
/// the worst queries.
#[derive(Clone, Debug)]
pub struct OverallRatio {
    metric: Metric,
    ratios: Vec<f64>,
    left_out: usize,
    /// The true neighbours of a query and their distances, sorted by id; reused.
    known: Vec<(u32, f32)>,
    /// The distances of the vectors found for a query; reused.
    found: Vec<f32>,
}

impl OverallRatio {
    /// Starts with no queries. `None` if there is no ratio: under ip, and if `exact` has no distances.
    ///
    /// Takes 8 bytes for each query of `exact`, so that the 99th percentile is exact.
    pub fn new(metric: Metric, exact: &IdFile) -> Option<OverallRatio> {
        let defined = metric != Metric::InnerProduct && exact.has_distances();
        defined.then(|| OverallRatio {
            metric,
            ratios: Vec::with_capacity(exact.queries()),
            left_out: 0,
            known: Vec::with_capacity(exact.k()),
            found: Vec::new(),
        })
    }

    /// Adds `queries` queries with the exact neighbours `exact`, for which a search found `ids` at
    /// `distances`.
    ///
    /// Both are `queries x k`, row-major. Distances are as [`Metric`] defines them (l2: squared), as are
    /// those of `exact`.
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
                Some(ratio) => self.ratios.push(ratio),
                None => self.left_out += 1,
            }
        }
        Ok(())
    }

    /// Returns the mean over the queries that have a ratio, at least 1; `None` if none has.
    pub fn mean(&self) -> Option<f64> {
        let count = self.ratios.len();
        (count > 0).then(|| self.ratios.iter().sum::<f64>() / count as f64)
    }

    /// Returns the 99th percentile over the queries that have a ratio, by nearest rank; `None` if none has.
    pub fn p99(&self) -> Option<f64> {
        let mut sorted = self.ratios.clone();
        let rank = (P99_SHARE * sorted.len() as f64).ceil() as usize;
        let last = rank.checked_sub(1)?;
        Some(*sorted.select_nth_unstable_by(last, f64::total_cmp).1)
    }

    /// Returns the number of queries without a ratio.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// Computes the ratio of one query from the ids and distances of the k found vectors and of the exact
    /// neighbours.
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
        for (id, returned) in answers.0.iter().zip(answers.1) {
            let known = self.known.binary_search_by_key(id, |(id, _)| *id);
            self.found.push(known.map_or(*returned, |at| self.known[at].1));
        }
        // The distances of the ground truth may have another order than those that the search returned.
        self.found.sort_unstable_by(f32::total_cmp);
        ratio_of_query(self.metric, &self.found, truth.1)
    }
}

/// Returns true if an id appears twice.
fn has_repeats(ids: &[u32]) -> bool {
    let mut sorted = ids.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).any(|two| two[0] == two[1])
}

/// Returns the overall ratio of one query.
///
/// `found` holds the distances of the found vectors and `exact` those of the true neighbours, at least as
/// many. Both are ascending and as `metric`, which is not ip, defines them. `None` if there is no ratio, by
/// the rules of [`OverallRatio`], or if `found` is empty.
pub fn ratio_of_query(metric: Metric, found: &[f32], exact: &[f32]) -> Option<f64> {
    let mut sum = 0.0;
    for (found, exact) in found.iter().zip(exact) {
        sum += term(length(metric, *found)?, length(metric, *exact)?)?;
    }
    (!found.is_empty()).then(|| sum / found.len() as f64)
}

/// Converts `distance` to a Euclidean distance; `None` if it is not finite.
///
/// Under cosine the result lacks a factor of the root of 2, which cancels out in every ratio.
fn length(metric: Metric, distance: f32) -> Option<f64> {
    let least = if metric == Metric::Cosine { COSINE_RESOLUTION } else { 0.0 };
    let distance = if distance < least { 0.0 } else { distance };
    distance.is_finite().then(|| f64::from(distance).sqrt())
}

/// Returns `found / exact`, at least 1; `None` if only `exact` is 0.
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

    /// Returns the ratio of queries with two found neighbours each. The exact ones are at `truth`, four for
    /// each query, with the ids 0, 1, ....
    fn ratio(metric: Metric, truth: &[f32], ids: &[u32], distances: &[f32]) -> OverallRatio {
        let exact = IdFile::from_parts(4, (0..truth.len() as u32).collect(), Some(truth.to_vec())).unwrap();
        let mut ratio = OverallRatio::new(metric, &exact).unwrap();
        ratio.add(&exact, ids, distances, 2, truth.len() / 4).unwrap();
        ratio
    }

    #[test]
    fn distances_are_compared_without_their_squares() {
        // The true roots are 1 and 2; the found ones are 1 and 5, then 3 and 6.
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
        // Returned in another order and with inexact distances, as from vectors stored as bytes.
        let exact = ratio(Metric::L2, &truth, &[1, 0], &[0.9, 1.3]);
        assert_eq!((exact.mean(), exact.p99(), exact.left_out()), (Some(1.0), Some(1.0), 0));
        assert_eq!(ratio(Metric::L2, &truth, &[0, 2], &[1.0, 4.5]).mean(), Some((1.0 + 1.5) / 2.0));
        // A vector that the ground truth does not name cannot be nearer than what it names.
        assert_eq!(ratio(Metric::L2, &truth, &[0, 9], &[1.0, 3.9]).mean(), Some(1.0));
    }

    #[test]
    fn a_query_with_a_true_distance_of_zero_is_exact_or_left_out() {
        let truth = [0.0, 4.0, 9.0, 16.0, 0.0, 4.0, 9.0, 16.0];
        let zeros = ratio(Metric::L2, &truth, &[0, 2, 5, 6], &[0.0, 9.0, 4.0, 9.0]);
        assert_eq!((zeros.mean(), zeros.left_out()), (Some((1.0 + 1.5) / 2.0), 1));
        // Distances below the resolution of 32 bits count as 0.
        let near = ratio(Metric::Cosine, &[1e-16, 0.5, 0.5, 0.5], &[7, 1], &[6e-8, 0.5]);
        assert_eq!((near.mean(), near.left_out()), (Some(1.0), 0));
        let below = ratio(Metric::Cosine, &[0.0, 0.5, 0.5, 0.5], &[7, 1], &[-6e-8, 0.5]);
        assert_eq!((below.mean(), below.left_out()), (Some(1.0), 0));
    }

    #[test]
    fn queries_without_a_ratio_are_counted_and_no_result_is_nan() {
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
    fn the_percentile_is_by_nearest_rank() {
        let truth: Vec<f32> = [1.0; 4].repeat(200);
        let ids: Vec<u32> = (1000..1400).collect();
        let far: Vec<f32> = (1..=200).flat_map(|times| [(times * times) as f32; 2]).collect();
        let found = ratio(Metric::L2, &truth, &ids, &far);
        assert_eq!((found.mean(), found.p99()), (Some(100.5), Some(198.0)));
    }

    #[test]
    fn undefined_ratios_are_none_or_errors() {
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
