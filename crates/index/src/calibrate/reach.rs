//! How far queries are from their neighbours, so that those unlike the queries of a calibration can be told.
//!
//! A calibration promises a recall to queries such as it measured. Others may need far more effort: random directions among
//! word vectors find 0.63 of their neighbours where 0.90 was asked for. They also lie farther from what they find than almost
//! all queries that were measured, which is seen for nothing once they are answered. Figures: `docs/decisions/calibration.md`.

use serde::{Deserialize, Serialize};

/// Share of the measured queries that are as near to their neighbours as is usual.
const USUAL_SHARE: f64 = 0.98;
/// Of fewer measured queries it is chance how far the farthest are.
const LEAST_MEASURED: usize = 200;
/// Fewer queries are told apart one by one.
const LEAST_BATCH: usize = 20;
/// A batch is unlike the measured queries if more than one in so many are farther away than usual (one in 50 is expected),
const UNLIKE_SHARE: usize = 10;
/// and more than so many: of 20 as many are by chance in one batch of 10,000.
const BY_CHANCE: usize = 4;

/// Distances of measured queries to their true neighbour number `k`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Reach {
    /// Counted from 1.
    pub k: u32,
    /// That of 98% of the queries at most.
    pub usual: f32,
    /// That of all.
    pub most: f32,
}

impl Reach {
    /// Of the `distances` of all queries; `None` where too few have so many neighbours.
    pub(crate) fn of(k: u32, distances: impl Iterator<Item = f32>) -> Option<Reach> {
        let mut distances: Vec<f32> = distances.filter(|distance| distance.is_finite()).collect();
        distances.sort_unstable_by(f32::total_cmp);
        let most = *distances.last().filter(|_| distances.len() >= LEAST_MEASURED)?;
        let usual = distances[((distances.len() - 1) as f64 * USUAL_SHARE) as usize];
        Some(Reach { k, usual, most })
    }

    /// Refuses what cannot have been measured.
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

/// Queries that no recall was measured for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unlike {
    /// How many are farther from their neighbours than what was measured.
    pub(crate) queries: usize,
    /// All that were asked.
    pub(crate) of: usize,
}

impl Unlike {
    /// Looks at the `distances` (`queries x k`, nearest first) of a batch of answers that lie `ratio` times as far away as the
    /// true neighbours; `None` where it is like what was measured, or nothing is known.
    pub(crate) fn find(measured: &[Reach], k: usize, distances: &[f32], ratio: f32) -> Option<Unlike> {
        let reach = measured.iter().rev().find(|reach| reach.k as usize <= k)?;
        let of = distances.len() / k;
        let beyond = |limit: f32| {
            // The last of k is farther away than the mean of them, and some queries than others. Distances are squared, and
            // one minus cosine is half of a square.
            let limit = limit * (2.0 * ratio - 1.0).powi(2);
            let queries = distances.chunks_exact(k).filter(|row| row[reach.k as usize - 1] > limit).count();
            Unlike { queries, of }
        };
        let (found, most) = match of < LEAST_BATCH {
            true => (beyond(reach.most), 0),
            false => (beyond(reach.usual), (of / UNLIKE_SHARE).max(BY_CHANCE)),
        };
        (found.queries > most).then_some(found)
    }

    /// What its caller is told, who asked for this.
    pub(crate) fn note(&self, asked: &str) -> String {
        let Unlike { queries, of } = self;
        format!(
            "{queries} of {of} queries are farther from all vectors than the queries that this index was calibrated with: {asked} is not promised for such; build it with some of them as calibration queries, or ask for more"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_beyond_what_was_measured_are_told() {
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
        let find =
            |tenth: &[f32]| Unlike::find(&measured, 10, &batch(tenth), 1.0).map(|unlike| unlike.queries);
        assert_eq!(find(&[500.0; 30]), None);
        assert_eq!((find(&[990.0]), find(&[999.0]), find(&[1000.0])), (None, None, Some(1)));
        let mut some = [500.0; 30];
        some[..4].fill(990.0);
        assert_eq!(find(&some), None);
        some[4] = 1e9;
        assert_eq!(find(&some), Some(5));
        let many = |beyond: usize| (0..200).map(|i| if i < beyond { 990.0 } else { 5.0 }).collect::<Vec<_>>();
        assert_eq!((find(&many(20)), find(&many(21))), (None, Some(21)));
        // Neighbours that were not measured: by those that were, if there are.
        assert_eq!(Unlike::find(&measured, 3, &[400.0, 450.0, 800.0], 1.0), None);
        assert_eq!(
            Unlike::find(&measured, 3, &[500.0, 550.0, 800.0], 1.0),
            Some(Unlike { queries: 1, of: 1 })
        );
        assert_eq!(Unlike::find(&measured[1..], 3, &[1e9; 3], 1.0), None);
        assert_eq!(Unlike::find(&[], 1, &[1e9], 1.0), None);
        assert_eq!(Unlike::find(&measured, 10, &[], 1.0), None);
        // At 1.2 times the distance of what was measured.
        assert_eq!(Unlike::find(&measured, 3, &[500.0, 550.0, 800.0], 1.2), None);
    }

    #[test]
    fn what_cannot_have_been_measured_is_refused() {
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
