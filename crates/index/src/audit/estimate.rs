//! The recall of audited queries, and how well it is known.

use bathyal_vectors::groundtruth::{QueryRecall, recall_of_query};
use serde::Serialize;
use std::collections::BTreeMap;

/// The quantile of the normal distribution for intervals that hold in 95 of 100 cases.
const NORMAL: f64 = 1.96;

/// Returns the recall of one answer: `exact` are the nearest neighbours, at least `k` unless there are fewer,
/// and `found` those of the search, each with its distance, nearest first. `None` without neighbours.
///
/// Counts by [`recall_of_query`]. A found neighbour as far away as the last of the `k` nearest is correct,
/// since the order of equal distances is arbitrary.
pub fn recall_of_answer<Id: Ord + Copy>(
    exact: &[(Id, f32)],
    found: &[(Id, f32)],
    k: usize,
) -> Option<QueryRecall> {
    let (_, last) = *exact.get(exact.len().min(k).checked_sub(1)?)?;
    let tied = found.iter().filter(|(_, distance)| *distance == last);
    let mut numbers = BTreeMap::new();
    let mut number = |id: Id| {
        let next = numbers.len() as u32;
        *numbers.entry(id).or_insert(next)
    };
    let (truth, distances): (Vec<u32>, Vec<f32>) =
        exact.iter().chain(tied).map(|(id, distance)| (number(*id), *distance)).unzip();
    let found: Vec<u32> = found.iter().map(|(id, _)| number(*id)).collect();
    recall_of_query(&truth, Some(&distances), &found, k)
}

/// Sums over the recalls of queries.
#[derive(Debug, Clone, Copy, Default)]
pub struct RecallSums {
    queries: u64,
    poor: u64,
    sum: f64,
    squares: f64,
}

impl RecallSums {
    /// Adds a query.
    pub fn add(&mut self, recall: QueryRecall) {
        let share = recall.hits as f64 / recall.wanted.max(1) as f64;
        self.queries += 1;
        self.poor += u64::from(2 * recall.hits < recall.wanted);
        self.sum += share;
        self.squares += share * share;
    }

    /// Returns the sums of both.
    #[must_use]
    pub fn and(&self, other: &RecallSums) -> RecallSums {
        RecallSums {
            queries: self.queries + other.queries,
            poor: self.poor + other.poor,
            sum: self.sum + other.sum,
            squares: self.squares + other.squares,
        }
    }

    /// Returns the number of queries.
    pub fn queries(&self) -> u64 {
        self.queries
    }

    /// Returns the mean recall with its interval; `None` without queries.
    pub fn estimate(&self) -> Option<RecallEstimate> {
        if self.queries == 0 {
            return None;
        }
        let count = self.queries as f64;
        let mean = self.sum / count;
        // One query that found nothing is added to the variance alone: queries that all found the same do not
        // prove that others will.
        let variance = (self.squares / count - mean * mean).max(0.0) + mean * mean / count;
        // Student's quantile, by two terms of its expansion in 1 / (queries - 1).
        let free = (count - 1.0).max(1.0);
        let quantile = NORMAL + 2.37 / free + 2.82 / (free * free);
        let half = quantile * (variance / free).sqrt();
        Some(RecallEstimate {
            queries: self.queries,
            found: mean,
            low: (mean - half).max(0.0),
            high: (mean + half).min(1.0),
            poor: self.poor as f64 / count,
        })
    }
}

/// The mean recall of audited queries. A mean over other queries of the same kind lies between `low` and
/// `high` in 95 of 100 cases. The hits of one query depend on each other, so the interval is that of the
/// queries' recalls (Student's), not that of single hits.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RecallEstimate {
    /// Audited queries.
    pub queries: u64,
    /// Their mean recall, in 0..=1.
    pub found: f64,
    /// The lower end of the 95% confidence interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// The share of the queries that found less than half of their neighbours.
    pub poor: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};

    #[test]
    fn an_answer_is_counted_by_the_rule_of_recall() {
        let exact = [(7_u64, 1.0), (8, 2.0), (9, 2.0)];
        let hits = |found: &[(u64, f32)], k: usize| {
            recall_of_answer(&exact, found, k).map(|recall| (recall.hits, recall.wanted))
        };
        assert_eq!(hits(&[(7, 1.0), (8, 2.0)], 2), Some((2, 2)));
        assert_eq!(hits(&[(7, 1.0), (9, 2.0)], 2), Some((2, 2)), "as near as the last of the two nearest");
        assert_eq!(hits(&[(7, 1.0), (5, 2.0)], 2), Some((2, 2)), "also if the exact answer lacks it");
        assert_eq!(hits(&[(7, 1.0), (5, 2.5)], 2), Some((1, 2)));
        assert_eq!(hits(&[(7, 1.0), (7, 1.0)], 2), Some((1, 2)), "a repeated id counts once");
        assert_eq!(hits(&[(8, 2.0)], 1), Some((0, 1)));
        assert_eq!(hits(&[(7, 1.0)], 9), Some((1, 3)), "fewer neighbours than wanted");
        assert_eq!(recall_of_answer::<u32>(&[], &[(1, 0.0)], 3), None);
    }

    #[test]
    fn the_interval_holds_the_mean_in_95_of_100_cases() {
        let mut random = rand::rngs::StdRng::seed_from_u64(3);
        for queries in [20, 200] {
            let mut held = 0;
            for _ in 0..1000 {
                let mut sums = RecallSums::default();
                for _ in 0..queries {
                    // Hard and easy queries: the hits of one are not independent.
                    let mean = if random.random_bool(0.3) { 0.6 } else { 0.98 };
                    let hits = (0..10).filter(|_| random.random_bool(mean)).count();
                    sums.add(QueryRecall { hits, wanted: 10 });
                }
                let found = sums.estimate().unwrap();
                let (expected, width) = (0.3 * 0.6 + 0.7 * 0.98, found.high - found.low);
                held += u32::from(found.low <= expected && expected <= found.high);
                assert!(width < 4.0 / f64::from(queries).sqrt(), "{found:?}");
            }
            assert!((930..=999).contains(&held), "{queries} queries: {held} of 1000");
        }
    }

    #[test]
    fn few_queries_that_found_everything_prove_little() {
        let mut sums = RecallSums::default();
        assert_eq!(sums.estimate(), None);
        let mut lows = Vec::new();
        for _ in 0..400 {
            sums.add(QueryRecall { hits: 10, wanted: 10 });
            let found = sums.estimate().unwrap();
            assert_eq!((found.found, found.high, found.poor), (1.0, 1.0, 0.0));
            lows.push(found.low);
        }
        assert_eq!(lows[0], 0.0);
        assert!(lows.is_sorted() && lows[19] < 0.9 && lows[399] > 0.99, "{lows:?}");
        sums.add(QueryRecall { hits: 4, wanted: 10 });
        assert_eq!(sums.estimate().unwrap().poor, 1.0 / 401.0);
    }
}
