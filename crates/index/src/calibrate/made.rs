//! Queries that are made from vectors of the data, vectors that are queries because they are outlying, and
//! the misses by which both raise the effort.
//!
//! Vectors of the data stand for queries of users. If the data has many near copies, a vector finds its own
//! copies easily, but a query that has no copies finds less: 0.69 of ten neighbours instead of 0.90 in ten
//! slightly perturbed copies of SIFT descriptors. Made queries lie between a vector and one of its
//! neighbours, or beyond it, where there are no copies. In data without copies they are about as hard as
//! queries of users, and raise the effort little. Outlying vectors are far from the mean of all, such as a
//! few far points beside near-duplicates, which a mean over all vectors hardly counts. Figures:
//! `docs/decisions/calibration.md`.

use crate::error::IndexError;
use bathyal_kernels::Metric;

/// The largest number of copies of a stand-in that are removed from its neighbours.
pub(crate) const MOST_COPIES: usize = 64;

/// The way from a vector to one of its neighbours, on which a query is made. The vector counts as absent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Way {
    /// The number of the neighbour, from 0.
    pub(crate) neighbor: usize,
    /// The share of the way; below 0, the way leads away from the neighbour.
    pub(crate) share: f32,
}

/// The kinds of made queries.
pub(crate) const WAYS: [Way; 2] = [
    // Nearly the middle, so that copies of both vectors are about equally far away. Exactly in the middle,
    // the nearest two would be equally far away in any data.
    Way { neighbor: 99, share: 0.495 },
    Way { neighbor: 0, share: -0.6 },
];
/// The fewest vectors with made queries.
pub(crate) const LEAST_VECTORS: usize = 1000;
/// Made queries may miss so many times as many neighbours as plain ones, because in data without copies they
/// are a little harder than queries of users.
const TOLERATED_RATIO: f64 = 1.4;
/// Neighbours nearer than a gap of this ratio of distances are copies.
const COPY_GAP: f32 = 1.5;

/// Returns the number of the nearest vectors of a stand-in, the nearest first, that are copies of it or
/// itself: those before the last gap between the distances of neighbours, and all at its own place. `own` is
/// its id.
pub(crate) fn count_copies(nearest: &[(u32, f32)], own: u32, metric: Metric) -> usize {
    let own_distance = nearest.iter().find(|(id, _)| *id == own).map(|(_, distance)| *distance);
    let equal = nearest.iter().take_while(|(_, distance)| Some(*distance) == own_distance).count();
    if metric == Metric::InnerProduct {
        return equal;
    }
    // Distances are squares, or grow like squares.
    let limit = COPY_GAP * COPY_GAP;
    let first = equal.max(1);
    let pairs = nearest.windows(2).enumerate().take(MOST_COPIES).skip(first);
    let gaps = pairs.filter(|(_, pair)| pair[1].1 > limit * pair[0].1);
    gaps.map(|(at, _)| at + 1).next_back().unwrap_or(equal)
}

/// Returns the number of queries of each kind that is made, out of `queries` in all.
pub(crate) fn count(queries: usize) -> usize {
    queries * 3 / 20
}

/// Returns the number of stand-ins out of `queries` in all.
pub(crate) fn stand_in_count(queries: usize) -> usize {
    queries - WAYS.len() * count(queries)
}

/// Returns the number of outlying vectors among so many stand-ins.
pub(crate) fn outlying_count(stand_ins: usize) -> usize {
    stand_ins / 7
}

/// Returns the numbers of the `count` rows, out of `rows`, that are farthest from the mean of all, in
/// ascending order. `load` reads a row of `dim` components; it is called twice for each.
pub(crate) fn outlying(
    dim: usize,
    rows: usize,
    count: usize,
    mut load: impl FnMut(usize, &mut [f32]) -> Result<(), IndexError>,
) -> Result<Vec<usize>, IndexError> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let (mut values, mut mean) = (vec![0.0_f32; dim], vec![0.0_f64; dim]);
    for row in 0..rows {
        load(row, &mut values)?;
        mean.iter_mut().zip(&values).for_each(|(sum, value)| *sum += f64::from(*value));
    }
    mean.iter_mut().for_each(|sum| *sum /= rows as f64);
    let mut distances = Vec::with_capacity(rows);
    for row in 0..rows {
        load(row, &mut values)?;
        let squares = values.iter().zip(&mean).map(|(value, mean)| (f64::from(*value) - mean).powi(2));
        distances.push((squares.sum::<f64>(), row));
    }
    distances.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let mut numbers: Vec<usize> = distances.into_iter().take(count).map(|(_, row)| row).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Returns the share of neighbours that counts as missed if so many of `queries` made queries were `missed`,
/// each with `k` neighbours. The tolerance and the standard error are taken off, so that made queries raise
/// the effort only if they are clearly harder than others.
pub(crate) fn counted_misses(missed: f64, queries: usize, k: u32) -> f64 {
    let error = (missed * (1.0 - missed) / (queries.max(1) as f64)).max(0.0).sqrt();
    // The neighbours of a query are found or missed together only in part.
    let error = if k == 1 { error } else { error / 2.0 };
    ((missed - error) / TOLERATED_RATIO).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_queries_count_if_they_miss_clearly_more_than_others() {
        assert!(counted_misses(0.15, 150, 10) < 0.1);
        assert!(counted_misses(0.2, 150, 10) > 0.12);
        assert!(counted_misses(0.2, 150, 1) < counted_misses(0.2, 150, 10));
        assert_eq!(counted_misses(0.0, 150, 10), 0.0);
        assert!((counted_misses(0.7, 1 << 40, 1) - 0.5).abs() < 1e-5);
        assert_eq!(counted_misses(0.001, 2, 1), 0.0);
    }

    #[test]
    fn the_rows_farthest_from_the_mean_are_outlying() {
        let rows = [[1.0, 0.0], [9.0, 9.0], [1.0, 1.0], [-5.0, 0.0], [0.9, 1.0]];
        let outlying = |count| {
            let load = |row: usize, values: &mut [f32]| {
                values.copy_from_slice(&rows[row]);
                Ok(())
            };
            outlying(2, rows.len(), count, load).unwrap()
        };
        assert_eq!((outlying(2), outlying(1), outlying(0)), (vec![1, 3], vec![1], vec![]));
    }

    #[test]
    fn copies_are_the_vectors_before_a_gap() {
        let near = |squares: &[f32]| (0..).zip(squares.iter().copied()).collect::<Vec<(u32, f32)>>();
        let count = |squares: &[f32]| count_copies(&near(squares), 0, Metric::L2);
        assert_eq!(count(&[0.0, 4.0, 4.1, 4.2]), 1);
        assert_eq!(count(&[0.0, 0.0, 0.0, 4.2]), 3);
        assert_eq!(count(&[0.0, 1.0, 1.1, 2.6, 2.7]), 3);
        assert_eq!(count(&[0.0, 1.0, 2.3, 6.0, 7.0]), 3);
        let spread: Vec<f32> = (0..200).map(|at| if at < 100 { at as f32 / 1e4 } else { 9.0 }).collect();
        assert!(count(&spread) <= 3, "a gap behind {MOST_COPIES} vectors is none");
        // Under the inner product, only equal distances are those of copies.
        assert_eq!(count_copies(&near(&[-9.0, -9.0, -1.0]), 0, Metric::InnerProduct), 2);
        assert_eq!(count_copies(&near(&[-9.0, -8.0]), 7, Metric::InnerProduct), 0);
    }

    #[test]
    fn all_queries_are_stand_ins_or_made() {
        for queries in [1, 6, 7, 200, 1000] {
            assert_eq!(stand_in_count(queries) + WAYS.len() * count(queries), queries);
            assert!(stand_in_count(queries) > outlying_count(stand_in_count(queries)));
        }
    }
}
