//! The number of groups that a query scans. With a calibrated effort, a query scans fewer groups if their
//! distances soon exceed that of the nearest ones by much.
//!
//! A fixed number of groups is too large for most queries and too small for some, which then find less than
//! half of their neighbours. A query whose groups are all at about the same distance needs more of them
//! (SPANN, section 3.3, prunes posting lists by the same criterion). Measurements:
//! `docs/decisions/calibration.md`.

use crate::calibrate::solve::mix;
use crate::query::SearchParams;
use bathyal_kernels::Neighbor;
use serde::{Deserialize, Serialize};

/// Divisor of the average number of groups that gives the least number that a query scans.
const LEAST_SHARE: usize = 3;
/// Factor of the average number of groups that gives the largest number that a query scans. With 3, the worst
/// queries find more, but all queries have to rank more groups.
const MOST_TIMES: usize = 2;
/// Rank of the group whose distance, averaged with that of the nearest, is the distance of the near groups.
/// The nearest alone varies too much.
const NEAR_RANK: usize = 8;

/// Bits of a ratio's mantissa that are counted separately. Steps are a thousandth, because many groups are at
/// nearly the same distance.
const RATIO_BITS: u32 = 10;
/// Bits of the mantissa below these.
const BITS_BELOW: u32 = f32::MANTISSA_DIGITS - 1 - RATIO_BITS;
/// Ratios of square distances are counted up to 2 to this power.
const MOST_DOUBLINGS: usize = 8;

/// The number of groups that a query scans.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Scope {
    /// Groups that queries scan on average; if `prune` is 0, the number for every query.
    pub(crate) probes: usize,
    /// Groups more than `1 + prune` times as far as the near ones are skipped; 0 skips none.
    pub(crate) prune: f32,
    /// Least number of vectors in the scanned groups. If they hold fewer, more groups are scanned.
    pub(crate) least: usize,
}

/// A measured prune: with it, queries scan `probes` groups on average.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MeasuredPrune {
    /// Groups that queries of the calibration scanned on average.
    pub probes: u32,
    /// Groups more than `1 + prune` times as far as the near ones are skipped.
    pub prune: f32,
}

impl Scope {
    /// Returns the scope of a search. Its groups need to hold only `k` vectors: a candidate list may be
    /// longer than the number of vectors scanned.
    pub(crate) fn from_params(params: &SearchParams) -> Scope {
        Scope { probes: params.probes, prune: params.prune, least: params.k }
    }

    /// Returns the largest number of groups that a query scans, of `groups` groups.
    pub(crate) fn most(&self, groups: usize) -> usize {
        let times = if self.prune > 0.0 { MOST_TIMES } else { 1 };
        self.probes.saturating_mul(times).min(groups)
    }

    /// Returns the least number of groups that a query scans, of `groups` groups.
    pub(crate) fn fewest(&self, groups: usize) -> usize {
        let share = if self.prune > 0.0 && self.probes < groups { LEAST_SHARE } else { 1 };
        self.probes.div_ceil(share).min(groups)
    }

    /// Returns the number of `groups` that a query scans. There must be [`Scope::most`] groups or more, in
    /// any order. `square` converts their distances to square distances.
    pub(crate) fn scan_count(&self, groups: &mut [Neighbor], square: impl Fn(f32) -> f32) -> usize {
        let (fewest, most) = (self.fewest(groups.len()), self.most(groups.len()));
        if fewest == most {
            return most;
        }
        let limit = (1.0 + self.prune) * (1.0 + self.prune) * near_distance(groups, &square);
        let within_limit = groups.iter().filter(|group| square(group.distance) <= limit).count();
        within_limit.clamp(fewest, most)
    }
}

/// Returns the square distance of the near groups: the mean of those of the nearest and of the eighth.
fn near_distance(groups: &mut [Neighbor], square: impl Fn(f32) -> f32) -> f32 {
    let rank = NEAR_RANK.min(groups.len()) - 1;
    let (nearer, eighth, _) = groups.select_nth_unstable(rank);
    let nearest = nearer.iter().min().unwrap_or(eighth);
    (square(nearest.distance) + square(eighth.distance)) / 2.0
}

/// Counts of the groups of many queries by the ratio of their square distance to that of the near groups.
/// Threads can add counts in any order with the same result.
#[derive(Clone)]
pub(crate) struct DistanceRatioCounts {
    scope: Scope,
    queries: u64,
    counts: Vec<u64>,
}

impl DistanceRatioCounts {
    /// Creates empty counts, for queries that are to scan `probes` groups on average.
    pub(crate) fn new(probes: usize) -> DistanceRatioCounts {
        // With any prune above 0, a query ranks as many groups as it may scan.
        let scope = Scope { probes, prune: f32::MAX, least: 1 };
        DistanceRatioCounts { scope, queries: 0, counts: vec![0; MOST_DOUBLINGS << RATIO_BITS] }
    }

    /// Returns the scope with which the queries must find their groups.
    pub(crate) fn scope(&self) -> Scope {
        self.scope
    }

    /// Counts the groups of a query: [`Scope::most`] groups, in any order.
    pub(crate) fn add(&mut self, groups: &mut [Neighbor], square: impl Fn(f32) -> f32) {
        self.queries += 1;
        let fewest = self.scope.fewest(usize::MAX);
        if groups.len() <= fewest {
            return;
        }
        let near = near_distance(groups, &square);
        // The nearest of them are always scanned.
        groups.select_nth_unstable(fewest - 1);
        for group in &groups[fewest..] {
            let ratio = (square(group.distance) / near).max(1.0);
            let step = (ratio.to_bits().saturating_sub(1.0_f32.to_bits()) >> BITS_BELOW) as usize;
            if let Some(count) = self.counts.get_mut(step).filter(|_| near > 0.0) {
                *count += 1;
            }
        }
    }

    /// Adds the counts of `other`.
    pub(crate) fn join(&mut self, other: &DistanceRatioCounts) {
        self.queries += other.queries;
        self.counts.iter_mut().zip(&other.counts).for_each(|(sum, part)| *sum += part);
    }

    /// Returns the prune at which the queries scan the wanted number of groups on average.
    pub(crate) fn prune(&self) -> MeasuredPrune {
        let beyond = (self.scope.probes - self.scope.fewest(usize::MAX)) as u64 * self.queries;
        let mut counted = 0;
        let step = self.counts.iter().position(|count| {
            counted += count;
            counted >= beyond
        });
        let step = step.unwrap_or(self.counts.len() - 1) as u32 + 1;
        let ratio = f32::from_bits(1.0_f32.to_bits() + (step << BITS_BELOW));
        MeasuredPrune { probes: self.scope.probes as u32, prune: ratio.sqrt() - 1.0 }
    }
}

/// Returns the prune for a number of probes, interpolated between the `measured` ones. It is 0 if nothing was
/// measured, or for more probes than were measured.
pub(crate) fn prune_of(measured: &[MeasuredPrune], probes: usize) -> f32 {
    let above = measured.partition_point(|at| (at.probes as usize) < probes);
    let Some(more) = measured.get(above) else {
        // Beyond the measured probes, all queries scan the same number of groups.
        return 0.0;
    };
    let Some(fewer) = above.checked_sub(1).map(|below| measured[below]) else { return more.prune };
    let log = |probes: f64| probes.ln();
    let (low, high) = (log(fewer.probes.into()), log(more.probes.into()));
    mix(fewer.prune.into(), more.prune.into(), (log(probes as f64) - low) / (high - low)) as f32
}

/// Checks that a build can have measured these prunes on an index of `groups` groups.
///
/// # Errors
/// A sentence.
pub(crate) fn check(measured: &[MeasuredPrune], groups: u32) -> Result<(), String> {
    let possible =
        |at: &MeasuredPrune| (1..groups).contains(&at.probes) && at.prune > 0.0 && at.prune.is_finite();
    if measured.iter().all(possible) && measured.is_sorted_by(|a, b| a.probes < b.probes) {
        return Ok(());
    }
    Err("the prunes are not in the order of rising probes, or are out of range".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups_at(distances: impl IntoIterator<Item = f32>) -> Vec<Neighbor> {
        distances.into_iter().zip(0..).map(|(distance, id)| Neighbor { distance, id }).collect()
    }

    #[test]
    fn a_query_with_many_groups_at_the_same_distance_scans_more() {
        let scope = Scope { probes: 30, prune: 0.1, least: 1 };
        let scan_count = |distances: Vec<f32>| scope.scan_count(&mut groups_at(distances), |square| square);
        assert_eq!((scope.fewest(1000), scope.most(1000), scope.most(40)), (10, 60, 40));
        // The square distances of the near groups are 1 and 1, so the limit is 1.21.
        assert_eq!(scan_count((0..100).map(|i| if i < 45 { 1.0 } else { 1.3 }).rev().collect()), 45);
        assert_eq!(scan_count(vec![1.0; 100]), 60);
        assert_eq!(scan_count((1..=100).map(|i| (i * i) as f32).collect()), 10);
        // The query is on a centroid, far outside, or its distances are not numbers.
        assert_eq!(scan_count(vec![0.0; 100]), 60);
        assert_eq!(scan_count((0..100).map(|i| if i < 8 { 0.0 } else { 1.0 }).collect()), 10);
        assert_eq!(scan_count(vec![f32::INFINITY; 100]), 60);
        assert_eq!(scan_count(vec![f32::NAN; 100]), 10);
        // With as many probes as groups, all are scanned. Without a prune, every query scans the same number.
        assert_eq!(scan_count((1..=30).map(|i| (i * i) as f32).collect()), 30);
        let plain = Scope { prune: 0.0, ..scope };
        assert_eq!(plain.scan_count(&mut groups_at((1..=100).map(|i| (i * i) as f32)), |square| square), 30);
    }

    #[test]
    fn the_measured_prune_gives_the_wanted_average() {
        // The distances of some queries grow slowly, those of others fast.
        let queries: Vec<Vec<f32>> = (1..=400)
            .map(|query| (0..300).map(|rank| 1.0 + (rank * query) as f32 / 20_000.0).collect())
            .collect();
        for probes in [8, 30, 100] {
            let (mut one, mut other) = (DistanceRatioCounts::new(probes), DistanceRatioCounts::new(probes));
            let most = one.scope().most(300);
            for (query, distances) in queries.iter().enumerate() {
                let counts = if query % 3 == 0 { &mut one } else { &mut other };
                counts.add(&mut groups_at(distances[..most].to_vec()), |square| square);
            }
            one.join(&other);
            let MeasuredPrune { probes: measured, prune } = one.prune();
            assert_eq!(measured as usize, probes);
            let scope = Scope { probes, prune, least: 1 };
            let sum: usize = queries
                .iter()
                .map(|distances| scope.scan_count(&mut groups_at(distances.clone()), |square| square))
                .sum();
            let average = sum as f64 / queries.len() as f64;
            assert!((average / probes as f64 - 1.0).abs() < 0.03, "{average} instead of {probes}");
        }
    }

    #[test]
    fn the_prune_is_interpolated_between_measured_probes() {
        let measured = [MeasuredPrune { probes: 8, prune: 0.1 }, MeasuredPrune { probes: 32, prune: 0.3 }];
        let prune = |probes| prune_of(&measured, probes);
        assert_eq!((prune(1), prune(8), prune(32), prune(33)), (0.1, 0.1, 0.3, 0.0));
        assert!((prune(16) - 0.2).abs() < 1e-6, "{}", prune(16));
        assert_eq!(prune_of(&[], 8), 0.0);
    }

    #[test]
    fn prunes_that_no_build_measures_are_refused() {
        let good = MeasuredPrune { probes: 8, prune: 0.1 };
        assert_eq!(check(&[good, MeasuredPrune { probes: 9, ..good }], 10), Ok(()));
        assert_eq!(check(&[], 1), Ok(()));
        for bad in [
            MeasuredPrune { probes: 0, ..good },
            MeasuredPrune { probes: 10, ..good },
            MeasuredPrune { prune: 0.0, ..good },
            MeasuredPrune { prune: -1.0, ..good },
            MeasuredPrune { prune: f32::NAN, ..good },
            MeasuredPrune { prune: f32::INFINITY, ..good },
        ] {
            assert!(check(&[bad], 10).is_err(), "{bad:?}");
        }
        assert!(check(&[good, good], 10).is_err());
    }
}
