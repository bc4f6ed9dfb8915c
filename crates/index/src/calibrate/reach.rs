//! The distances of queries to their neighbours, by which queries are detected that differ from those of the
//! calibration.
//!
//! A calibration holds for queries like the measured ones. Others may need far more effort: random directions
//! among word vectors find 0.63 of their neighbours at the effort for 0.90. They are also farther from the
//! vectors that they find than almost all measured queries, which can be checked at no cost once they are
//! answered. Figures: `docs/decisions/calibration.md`.

use bathyal_kernels::distance::squared_norm;
use bathyal_kernels::{Element, Metric};
use bathyal_vectors::VectorFile;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The share of the measured queries whose distance counts as usual.
const USUAL_SHARE: f64 = 0.98;
/// The fewest measured queries: with fewer, the distance of the farthest is due to chance.
const LEAST_MEASURED: usize = 200;
/// In batches of fewer queries, each query is compared with the largest measured distance.
const LEAST_BATCH: usize = 20;
/// A batch differs from the measured queries if more than this fraction (1/10) are farther away than usual.
/// One in 50 is expected.
const UNLIKE_SHARE: usize = 10;
/// A batch differs only if more than this number of queries are farther away. In one of 10,000 batches of 20
/// queries, as many are by chance.
const BY_CHANCE: usize = 4;

/// Distances of measured queries to their true neighbour number `k`; under the inner product for queries of
/// length 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Reach {
    /// The number of the neighbour, counted from 1.
    pub k: u32,
    /// The largest distance of the nearest 98% of the queries.
    pub usual: f32,
    /// The largest distance of all queries.
    pub most: f32,
}

impl Reach {
    /// Summarizes the `distances` of all queries; returns `None` if too few queries have so many neighbours.
    pub(crate) fn of(k: u32, distances: impl Iterator<Item = f32>) -> Option<Reach> {
        let mut distances: Vec<f32> = distances.filter(|distance| distance.is_finite()).collect();
        distances.sort_unstable_by(f32::total_cmp);
        let most = *distances.last().filter(|_| distances.len() >= LEAST_MEASURED)?;
        let usual = distances[((distances.len() - 1) as f64 * USUAL_SHARE) as usize];
        Some(Reach { k, usual, most })
    }

    /// Refuses values that cannot have been measured.
    ///
    /// # Errors
    /// A sentence.
    pub(super) fn check(all: &[Reach]) -> Result<(), String> {
        let possible = |reach: &Reach| {
            reach.k > 0 && reach.usual.is_finite() && reach.most.is_finite() && reach.usual <= reach.most
        };
        if all.is_sorted_by(|a, b| a.k < b.k) && all.iter().all(possible) {
            return Ok(());
        }
        Err("the distances of the calibration's queries are out of order".into())
    }
}

/// The lengths of queries under the inner product, whose distances grow with them. Under other metrics, and
/// for queries of zeros, they are 1.
#[derive(Debug, Clone, Default)]
pub struct QueryLengths(Vec<f32>);

impl QueryLengths {
    /// Returns the lengths of `queries`.
    pub fn of<'a>(metric: Metric, element: Element, queries: impl Iterator<Item = &'a [u8]>) -> QueryLengths {
        match metric {
            Metric::InnerProduct => QueryLengths(queries.map(|query| length(element, query)).collect()),
            Metric::L2 | Metric::Cosine => QueryLengths::default(),
        }
    }

    /// Returns the lengths of all queries of a file.
    pub fn of_file(metric: Metric, queries: &VectorFile) -> QueryLengths {
        QueryLengths::of(metric, queries.element(), (0..queries.count()).map(|query| queries.row(query)))
    }

    /// Returns the lengths of some of the queries.
    pub fn of_queries(&self, queries: Range<usize>) -> QueryLengths {
        QueryLengths(self.0.get(queries).unwrap_or_default().to_vec())
    }

    /// Returns the length of a query.
    pub(crate) fn get(&self, query: usize) -> f32 {
        self.0.get(query).copied().unwrap_or(1.0)
    }
}

/// Returns the length of a query, or 1 if it is 0.
fn length(element: Element, query: &[u8]) -> f32 {
    let length = squared_norm(element, query).sqrt();
    if length > 0.0 { length } else { 1.0 }
}

/// The queries of a batch that differ from the measured ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unlike {
    /// Number of queries that are farther from their neighbours than the measured ones.
    pub(crate) queries: usize,
    /// Number of queries in the batch.
    pub(crate) of: usize,
}

impl Unlike {
    /// Checks the `distances` (`queries x k`, row-major, nearest first) of a batch of answers, which are
    /// about `ratio` times as far away as the true neighbours. Returns `None` if the batch is like the
    /// measured queries, or nothing was measured. Answers may be merged from several indexes: `measured`
    /// returns the distances for the index by which a query is judged.
    pub(crate) fn find<'a>(
        k: usize,
        distances: &[f32],
        lengths: &QueryLengths,
        ratio: f32,
        measured: impl Fn(usize) -> &'a [Reach],
    ) -> Option<Unlike> {
        let of = distances.len().checked_div(k)?;
        let beyond = |limit: fn(&Reach) -> f32| {
            let is_beyond = |(query, row): (usize, &[f32])| {
                let reach = measured(query).iter().rev().find(|reach| reach.k as usize <= k)?;
                // The ratio is a mean over neighbours and queries: the k-th neighbour may exceed it, and so
                // may single queries, so the excess is doubled. It is squared since distances are squares,
                // and one minus cosine is half of a square.
                let limit = limit(reach) * (2.0 * ratio - 1.0).powi(2);
                Some(row[reach.k as usize - 1] / lengths.get(query) > limit)
            };
            let queries =
                distances.chunks_exact(k).enumerate().filter(|row| is_beyond(*row) == Some(true)).count();
            Unlike { queries, of }
        };
        let (found, most) = match of < LEAST_BATCH {
            true => (beyond(|reach| reach.most), 0),
            false => (beyond(|reach| reach.usual), (of / UNLIKE_SHARE).max(BY_CHANCE)),
        };
        (found.queries > most).then_some(found)
    }

    /// Returns the note for a caller that asked for the recall or the ratio `asked` of `calibrated`.
    pub(crate) fn note(&self, asked: &str, calibrated: Calibrated) -> String {
        let Unlike { queries, of } = self;
        let (what, advice) = match calibrated {
            Calibrated::Index => {
                ("this index was", "calibrate it with some of them (`calibrate`), or ask for more")
            }
            Calibrated::Indexes => (
                "these indexes were",
                "calibrate them with some of these queries (`calibrate`), or ask for more",
            ),
            Calibrated::Segments => ("the segments of the collection were", "ask for more"),
        };
        format!(
            "{queries} of {of} queries are farther from all vectors than the queries that {what} calibrated \
             with: {asked} is not promised for such; {advice}"
        )
    }
}

/// The indexes whose calibration chose the effort of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Calibrated {
    /// One index.
    Index,
    /// Several indexes, whose answers are merged.
    Indexes,
    /// Segments of collections, which no user calibrates.
    Segments,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_farther_away_than_the_measured_ones_are_found() {
        let measured = [
            Reach::of(1, (0..1000).map(|i| i as f32 / 2.0)).expect("distances"),
            Reach::of(10, (0..1000).map(|i| i as f32)).expect("distances"),
        ];
        assert_eq!(measured[1], Reach { k: 10, usual: 979.0, most: 999.0 });
        assert_eq!(Reach::check(&measured), Ok(()));
        let batch = |tenth: &[f32]| {
            let row = |last: &f32| (1..=10).map(|i| last * i as f32 / 10.0).collect::<Vec<f32>>();
            tenth.iter().flat_map(row).collect::<Vec<f32>>()
        };
        let one = QueryLengths::default();
        let unlike = |measured: &[Reach], k, distances: &[f32], ratio| {
            Unlike::find(k, distances, &one, ratio, |_| measured)
        };
        let find = |tenth: &[f32]| unlike(&measured, 10, &batch(tenth), 1.0).map(|unlike| unlike.queries);
        assert_eq!(find(&[500.0; 30]), None);
        assert_eq!((find(&[990.0]), find(&[999.0]), find(&[1000.0])), (None, None, Some(1)));
        let mut some = [500.0; 30];
        some[..4].fill(990.0);
        assert_eq!(find(&some), None);
        some[4] = 1e9;
        assert_eq!(find(&some), Some(5));
        let many = |beyond: usize| (0..200).map(|i| if i < beyond { 990.0 } else { 5.0 }).collect::<Vec<_>>();
        assert_eq!((find(&many(20)), find(&many(21))), (None, Some(21)));
        // For a k that was not measured, the next smaller one is used, if there is any.
        assert_eq!(unlike(&measured, 3, &[400.0, 450.0, 800.0], 1.0), None);
        assert_eq!(unlike(&measured, 3, &[500.0, 550.0, 800.0], 1.0), Some(Unlike { queries: 1, of: 1 }));
        assert_eq!(unlike(&measured[1..], 3, &[1e9; 3], 1.0), None);
        assert_eq!(unlike(&[], 1, &[1e9], 1.0), None);
        assert_eq!(unlike(&measured, 10, &[], 1.0), None);
        assert_eq!(unlike(&measured, 0, &[], 1.0), None);
        // Each query is judged by the index that holds its neighbours.
        let far = [Reach { usual: 1e4, most: 1e4, ..measured[1] }];
        let merged = |query: usize| if query < 15 { &measured[..] } else { &far[..] };
        let thousands = batch(&[2000.0; 30]);
        assert_eq!(Unlike::find(10, &thousands, &one, 1.0, merged), Some(Unlike { queries: 15, of: 30 }));
        assert_eq!(Unlike::find(10, &thousands, &one, 1.0, |_| &far), None);
        // An overall ratio of 1.2 allows larger distances.
        assert_eq!(unlike(&measured, 3, &[500.0, 550.0, 800.0], 1.2), None);
    }

    #[test]
    fn values_that_cannot_have_been_measured_are_refused() {
        let good = Reach { k: 1, usual: 1.0, most: 2.0 };
        assert_eq!(Reach::of(1, [f32::INFINITY, f32::NAN].into_iter().cycle().take(500)), None);
        assert_eq!(Reach::of(1, [1.0; 199].into_iter()), None);
        for bad in [
            Reach { k: 0, ..good },
            Reach { usual: 3.0, ..good },
            Reach { most: f32::INFINITY, ..good },
            Reach { usual: f32::NAN, ..good },
        ] {
            assert!(Reach::check(&[bad]).is_err(), "{bad:?}");
        }
        assert!(Reach::check(&[good, good]).is_err());
        assert!(Reach::check(&[good, Reach { k: 2, ..good }]).is_ok());
    }
}
