//! Which of the groups near a query are scanned: of a calibrated effort the fewer, the sooner they are much farther than
//! the nearest.
//!
//! One number of groups is too many for most queries and too few for some, which then find less than half of what was asked
//! for. A query whose groups are all about equally far needs more of them (SPANN, section 3.3, leaves out posting lists by
//! the same sign). Figures: `docs/decisions/calibration.md`.

use crate::calibrate::solve::mix;
use crate::query::SearchParams;
use bathyal_kernels::Neighbor;
use serde::{Deserialize, Serialize};

/// What a query scans at least: a third of what queries scan on average.
const LEAST_SHARE: usize = 3;
/// What it scans at most, in averages: more is found of the worst queries with three, but has to be ranked for all.
const MOST_TIMES: usize = 2;
/// The group whose distance says with that of the nearest how far the near groups are: one alone is chance.
const NEAR_RANK: usize = 8;

/// Bits of a ratio that are counted apart: steps of a thousandth, since many groups are nearly equally far.
const RATIO_BITS: u32 = 10;
/// Bits below them.
const BITS_BELOW: u32 = f32::MANTISSA_DIGITS - 1 - RATIO_BITS;
/// Ratios of square distances are counted up to 2 to this power.
const MOST_DOUBLINGS: usize = 8;

/// How many groups a query scans.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Scope {
    /// On average, or each query where `prune` is 0.
    pub(crate) probes: usize,
    /// Groups more than `1 + prune` times as far as the near ones are left out; 0 leaves none out.
    pub(crate) prune: f32,
    /// Vectors that the groups hold, or else more are scanned.
    pub(crate) least: usize,
}

/// What was measured of a number of probes: where queries stop, so that they scan as many groups on average.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Pruned {
    /// Groups that queries of the calibration scanned on average.
    pub probes: u32,
    /// Groups more than `1 + prune` times as far as the near ones were left out.
    pub prune: f32,
}

impl Scope {
    /// Of a search. A list longer than its groups hold vectors is a shorter one: only as many as are asked for have to be
    /// there.
    pub(super) fn of(params: &SearchParams) -> Scope {
        Scope { probes: params.probes, prune: params.prune, least: params.k }
    }

    /// Groups that a query scans at most, of `groups`.
    pub(crate) fn most(&self, groups: usize) -> usize {
        let times = if self.prune > 0.0 { MOST_TIMES } else { 1 };
        self.probes.saturating_mul(times).min(groups)
    }

    /// Groups that a query scans at least, of `groups`.
    pub(crate) fn fewest(&self, groups: usize) -> usize {
        let share = if self.prune > 0.0 && self.probes < groups { LEAST_SHARE } else { 1 };
        self.probes.div_ceil(share).min(groups)
    }

    /// How many of `groups` a query scans, which are in no order and [`Scope::most`] or more; `square` makes square distances
    /// of theirs.
    pub(super) fn chosen(&self, groups: &mut [Neighbor], square: impl Fn(f32) -> f32) -> usize {
        let (fewest, most) = (self.fewest(groups.len()), self.most(groups.len()));
        if fewest == most {
            return most;
        }
        let farthest = (1.0 + self.prune) * (1.0 + self.prune) * near(groups, &square);
        let within = groups.iter().filter(|group| square(group.distance) <= farthest).count();
        within.clamp(fewest, most)
    }
}

/// The square distance of the near groups: the mean of that of the nearest and of that of the eighth.
fn near(groups: &mut [Neighbor], square: impl Fn(f32) -> f32) -> f32 {
    let rank = NEAR_RANK.min(groups.len()) - 1;
    let (nearer, eighth, _) = groups.select_nth_unstable(rank);
    let nearest = nearer.iter().min().unwrap_or(eighth);
    (square(nearest.distance) + square(eighth.distance)) / 2.0
}

/// How many times as far as the near ones the groups of many queries are: counts, so that threads may add in any order.
#[derive(Clone)]
pub(crate) struct Farness {
    scope: Scope,
    queries: u64,
    counts: Vec<u64>,
}

impl Farness {
    /// Of no query yet; `probes` is what they are to scan on average.
    pub(super) fn new(probes: usize) -> Farness {
        // Any prune above 0 has a query rank as many groups as it may scan.
        let scope = Scope { probes, prune: f32::MAX, least: 1 };
        Farness { scope, queries: 0, counts: vec![0; MOST_DOUBLINGS << RATIO_BITS] }
    }

    /// What a query is to be navigated by.
    pub(super) fn scope(&self) -> Scope {
        self.scope
    }

    /// Counts the groups of a query, [`Scope::most`] in any order.
    pub(super) fn add(&mut self, groups: &mut [Neighbor], square: impl Fn(f32) -> f32) {
        self.queries += 1;
        let fewest = self.scope.fewest(usize::MAX);
        if groups.len() <= fewest {
            return;
        }
        let near = near(groups, &square);
        // Up to here all are scanned however far they are.
        groups.select_nth_unstable(fewest - 1);
        for group in &groups[fewest..] {
            let ratio = (square(group.distance) / near).max(1.0);
            let step = (ratio.to_bits().saturating_sub(1.0_f32.to_bits()) >> BITS_BELOW) as usize;
            if let Some(count) = self.counts.get_mut(step).filter(|_| near > 0.0) {
                *count += 1;
            }
        }
    }

    /// Adds the queries of another count.
    pub(super) fn join(&mut self, other: &Farness) {
        self.queries += other.queries;
        self.counts.iter_mut().zip(&other.counts).for_each(|(sum, part)| *sum += part);
    }

    /// The prune at which the queries scan as many groups on average as they are to.
    pub(super) fn pruned(&self) -> Pruned {
        let beyond = (self.scope.probes - self.scope.fewest(usize::MAX)) as u64 * self.queries;
        let mut counted = 0;
        let step = self.counts.iter().position(|count| {
            counted += count;
            counted >= beyond
        });
        let step = step.unwrap_or(self.counts.len() - 1) as u32 + 1;
        let ratio = f32::from_bits(1.0_f32.to_bits() + (step << BITS_BELOW));
        Pruned { probes: self.scope.probes as u32, prune: ratio.sqrt() - 1.0 }
    }
}

/// The prune of a number of probes, between what was `measured` as a rule; 0 where nothing was.
pub(super) fn prune_of(measured: &[Pruned], probes: usize) -> f32 {
    let above = measured.partition_point(|at| (at.probes as usize) < probes);
    let Some(more) = measured.get(above) else {
        // More probes than were measured are scanned by all queries.
        return 0.0;
    };
    let Some(fewer) = above.checked_sub(1).map(|below| measured[below]) else { return more.prune };
    let log = |probes: f64| probes.ln();
    let (low, high) = (log(fewer.probes.into()), log(more.probes.into()));
    mix(fewer.prune.into(), more.prune.into(), (log(probes as f64) - low) / (high - low)) as f32
}

/// Refuses what cannot have been measured of so many groups.
///
/// # Errors
/// A sentence.
pub(super) fn check(measured: &[Pruned], groups: u32) -> Result<(), String> {
    let possible = |at: &Pruned| (1..groups).contains(&at.probes) && at.prune > 0.0 && at.prune.is_finite();
    if measured.iter().all(possible) && measured.is_sorted_by(|a, b| a.probes < b.probes) {
        return Ok(());
    }
    Err("the prunes are not by rising probes, or are none that a build measures".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(distances: impl IntoIterator<Item = f32>) -> Vec<Neighbor> {
        distances.into_iter().zip(0..).map(|(distance, id)| Neighbor { distance, id }).collect()
    }

    #[test]
    fn queries_with_many_groups_equally_far_scan_more() {
        let scope = Scope { probes: 30, prune: 0.1, least: 1 };
        let chosen = |distances: Vec<f32>| scope.chosen(&mut at(distances), |square| square);
        assert_eq!((scope.fewest(1000), scope.most(1000), scope.most(40)), (10, 60, 40));
        // The near groups are 1 and 1; 1.21 times as far in squares is the limit.
        assert_eq!(chosen((0..100).map(|i| if i < 45 { 1.0 } else { 1.3 }).rev().collect()), 45);
        assert_eq!(chosen(vec![1.0; 100]), 60);
        assert_eq!(chosen((1..=100).map(|i| (i * i) as f32).collect()), 10);
        // A query on a centroid, far out, or among numbers that are none.
        assert_eq!(chosen(vec![0.0; 100]), 60);
        assert_eq!(chosen((0..100).map(|i| if i < 8 { 0.0 } else { 1.0 }).collect()), 10);
        assert_eq!(chosen(vec![f32::INFINITY; 100]), 60);
        assert_eq!(chosen(vec![f32::NAN; 100]), 10);
        // All groups are all groups, and without a prune every query scans as many.
        assert_eq!(chosen((1..=30).map(|i| (i * i) as f32).collect()), 30);
        let plain = Scope { prune: 0.0, ..scope };
        assert_eq!(plain.chosen(&mut at((1..=100).map(|i| (i * i) as f32)), |square| square), 30);
    }

    #[test]
    fn the_measured_prune_gives_the_average_that_was_wanted() {
        // Queries of all kinds: distances that grow slowly or soon.
        let queries: Vec<Vec<f32>> = (1..=400)
            .map(|query| (0..300).map(|rank| 1.0 + (rank * query) as f32 / 20_000.0).collect())
            .collect();
        for probes in [8, 30, 100] {
            let (mut one, mut other) = (Farness::new(probes), Farness::new(probes));
            let most = one.scope().most(300);
            for (query, distances) in queries.iter().enumerate() {
                let counted = if query % 3 == 0 { &mut one } else { &mut other };
                counted.add(&mut at(distances[..most].to_vec()), |square| square);
            }
            one.join(&other);
            let Pruned { probes: measured, prune } = one.pruned();
            assert_eq!(measured as usize, probes);
            let scope = Scope { probes, prune, least: 1 };
            let sum: usize = queries
                .iter()
                .map(|distances| scope.chosen(&mut at(distances.clone()), |square| square))
                .sum();
            let average = sum as f64 / queries.len() as f64;
            assert!((average / probes as f64 - 1.0).abs() < 0.03, "{average} instead of {probes}");
        }
    }

    #[test]
    fn the_prune_between_measured_probes_lies_between_theirs() {
        let measured = [Pruned { probes: 8, prune: 0.1 }, Pruned { probes: 32, prune: 0.3 }];
        let prune = |probes| prune_of(&measured, probes);
        assert_eq!((prune(1), prune(8), prune(32), prune(33)), (0.1, 0.1, 0.3, 0.0));
        assert!((prune(16) - 0.2).abs() < 1e-6, "{}", prune(16));
        assert_eq!(prune_of(&[], 8), 0.0);
    }

    #[test]
    fn what_no_build_measures_is_refused() {
        let good = Pruned { probes: 8, prune: 0.1 };
        assert_eq!(check(&[good, Pruned { probes: 9, ..good }], 10), Ok(()));
        assert_eq!(check(&[], 1), Ok(()));
        for bad in [
            Pruned { probes: 0, ..good },
            Pruned { probes: 10, ..good },
            Pruned { prune: 0.0, ..good },
            Pruned { prune: -1.0, ..good },
            Pruned { prune: f32::NAN, ..good },
            Pruned { prune: f32::INFINITY, ..good },
        ] {
            assert!(check(&[bad], 10).is_err(), "{bad:?}");
        }
        assert!(check(&[good, good], 10).is_err());
    }
}
