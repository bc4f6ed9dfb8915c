//! The promise of hash tables: the probability that a query finds a vector at most `c` times as far away as
//! its nearest neighbour.
//!
//! (R, c)-near neighbour search (e2lsh-on-storage, section 2.3): if there is a vector within R of the query,
//! report one within cR. It succeeds if two things hold. A vector within R shares the query's bucket in at
//! least one table; this fails with a probability of at most `(1 - p1^m)^L`. And not all of the S scored
//! entries belong to vectors beyond cR. At most `L n p2^m` entries of such vectors are in the query's buckets
//! on average, so there are S or more with a probability of at most `L n p2^m / S` (Markov). Here p1 and p2
//! are the probabilities that one hash of width w collides at distances R and cR.
//!
//! The tables of this index have several widths, and a search reads the bucket of each width after that of
//! half the width. So the statement holds for each width that there is, and for a given R the best one
//! counts. There is a finest and a widest one. So a promise holds from one radius to another, and both are
//! part of it.
//!
//! The probability is over the random hashes, for any vectors and queries that do not depend on them.

use bathyal_kernels::lsh::{Buckets, collision_probability};
use serde::Serialize;

/// c, the ratio of the papers' (R, c)-near neighbour search.
pub const RATIO: f64 = 2.0;
/// The ratio at which few vectors are enough for a promise: c^2, the approximation that the paper states for
/// c = 2 (section 2.3).
pub const USEFUL_RATIO: f64 = RATIO * RATIO;
/// Intervals of an octave of radii. Within an interval, the bound takes p1 at its upper end and p2 at its
/// lower end, so it holds for all radii. With 128 intervals, that takes 1 to 5% more entries.
const INTERVALS: u32 = 128;
/// The smallest radius that is considered is finer than the finest width by this many octaves. For smaller
/// ones, a bucket of that width has far more vectors than can be read.
const OCTAVES_BELOW: u32 = 7;
/// The widths that [`Tables::exponent`] compares, in units of R.
const TRIED_WIDTHS: (u32, f64) = (200, 0.1);

/// The numbers that a promise follows from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tables {
    /// Number of vectors: n.
    pub vectors: f64,
    /// Number of tables: L.
    pub tables: f64,
    /// Number of values of a compound hash: m.
    pub hashes: f64,
}

/// The probability of success of (R, c)-near neighbour search, and its parts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Promise {
    /// A lower bound of the probability of success: `near - min(1, far / S)`, at least 0.
    pub probability: f64,
    /// A lower bound of the probability that a vector within R shares a bucket with the query.
    pub near: f64,
    /// An upper bound of the mean number of entries in the query's buckets that belong to vectors beyond cR.
    pub far: f64,
    /// The width of a hash (w), in units of R.
    pub width: f64,
}

/// Radii from the first to the second, both included.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Radii {
    /// The smallest radius.
    pub from: f64,
    /// The largest radius.
    pub to: f64,
}

/// The promises of tables for one ratio, for all radii.
#[derive(Debug)]
pub struct Promises {
    intervals: Vec<Interval>,
}

/// A range of radii, with the parts of the promise of each width that hold throughout.
#[derive(Debug)]
struct Interval {
    radii: Radii,
    widths: Vec<Promise>,
}

impl Promise {
    /// Promises nothing.
    const NONE: Promise = Promise { probability: 0.0, near: 0.0, far: f64::INFINITY, width: 0.0 };

    /// Returns the same hashes with the probability for `scored` entries (S).
    fn with_scored(self, scored: f64) -> Promise {
        let missed = if scored > 0.0 { (self.far / scored).min(1.0) } else { 1.0 };
        Promise { probability: (self.near - missed).max(0.0), ..self }
    }

    /// Returns the fewest scored entries that make `probability`; infinite if no number does.
    fn scored_for(&self, probability: f64) -> f64 {
        if self.near > probability { self.far / (self.near - probability) } else { f64::INFINITY }
    }
}

impl Tables {
    /// Returns the promise of hashes that collide with these probabilities at distances R and cR, before any
    /// entry is scored.
    fn of_collisions(&self, (p1, p2): (f64, f64), width: f64) -> Promise {
        let near = 1.0 - (1.0 - p1.powf(self.hashes)).powf(self.tables);
        let far = self.tables * self.vectors * p2.powf(self.hashes);
        Promise { probability: 0.0, near, far, width }
    }

    /// Returns the promise for vectors within `ratio` times a radius, if `scored` entries are scored (S).
    pub fn at(&self, buckets: &Buckets, ratio: f64, radius: f64, scored: f64) -> Promise {
        let radii = Radii { from: radius, to: radius };
        Interval::new(self, buckets, ratio, radii).best(scored)
    }

    /// Returns the number of values of a compound hash in units of `log n / log(1/p2)` of hashes of `width`
    /// (in units of R): gamma in the paper.
    pub fn gamma(&self, width: f64) -> f64 {
        self.hashes * (1.0 / collision_probability(width / RATIO)).ln() / self.vectors.max(2.0).ln()
    }

    /// Returns the least exponent rho = ln(1/p1) / ln(1/p2) over all widths: equation 5 requires n^rho
    /// tables.
    pub fn exponent() -> f64 {
        let (count, step) = TRIED_WIDTHS;
        let rho = |i: u32| {
            let width = f64::from(i) * step;
            collision_probability(width).ln() / collision_probability(width / RATIO).ln()
        };
        (1..=count).map(rho).fold(f64::INFINITY, f64::min)
    }
}

impl Interval {
    fn new(tables: &Tables, buckets: &Buckets, ratio: f64, radii: Radii) -> Interval {
        let width = |level: u32| {
            let collisions = (buckets.near(level, radii.to), buckets.far(level, ratio * radii.from));
            tables.of_collisions(collisions, buckets.width(level) / radii.from)
        };
        Interval { radii, widths: (0..buckets.widths()).map(width).collect() }
    }

    /// Returns the promise of the best width for `scored` entries.
    fn best(&self, scored: f64) -> Promise {
        let promises = self.widths.iter().map(|promise| promise.with_scored(scored));
        promises.fold(Promise::NONE, |best, one| if one.probability > best.probability { one } else { best })
    }

    /// Returns the fewest scored entries that make `probability`; infinite if no number does.
    fn scored_for(&self, probability: f64) -> f64 {
        self.widths.iter().map(|width| width.scored_for(probability)).fold(f64::INFINITY, f64::min)
    }
}

impl Promises {
    /// Computes the promises of finding a vector within `ratio` times the distance of the nearest.
    pub fn new(tables: &Tables, buckets: &Buckets, ratio: f64) -> Promises {
        let end = |step: u32| {
            buckets.width(0) * (f64::from(step) / f64::from(INTERVALS) - f64::from(OCTAVES_BELOW)).exp2()
        };
        let count = (OCTAVES_BELOW + buckets.widths()) * INTERVALS;
        let radii = (0..count).map(|step| Radii { from: end(step), to: end(step + 1) });
        Promises { intervals: radii.map(|radii| Interval::new(tables, buckets, ratio, radii)).collect() }
    }

    /// Returns the promise for `scored` entries: the largest that holds for an octave of radii or more.
    pub fn promise(&self, scored: f64) -> Promise {
        let all: Vec<Promise> = self.intervals.iter().map(|interval| interval.best(scored)).collect();
        let worst = all.windows(INTERVALS as usize).map(|octave| {
            octave
                .iter()
                .fold(octave[0], |worst, one| if one.probability < worst.probability { *one } else { worst })
        });
        worst.fold(Promise::NONE, |best, one| if one.probability > best.probability { one } else { best })
    }

    /// Returns the fewest scored entries (S) that promise `probability` for an octave of radii or more;
    /// infinite if no number does.
    pub fn scored_for(&self, probability: f64) -> f64 {
        let all: Vec<f64> = self.intervals.iter().map(|interval| interval.scored_for(probability)).collect();
        let most = all.windows(INTERVALS as usize).map(|octave| octave.iter().copied().fold(0.0, f64::max));
        most.fold(f64::INFINITY, f64::min)
    }

    /// Returns the longest range of radii for which `scored` entries promise `probability`, if there is one.
    pub fn radii(&self, probability: f64, scored: f64) -> Option<Radii> {
        let holds = |interval: &Interval| interval.scored_for(probability) <= scored;
        let runs = self.intervals.chunk_by(|a, b| holds(a) == holds(b)).filter(|run| holds(&run[0]));
        let run = runs.max_by_key(|run| run.len())?;
        Some(Radii { from: run.first()?.radii.from, to: run.last()?.radii.to })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bathyal_kernels::lsh::Ends;

    fn buckets(hashes: usize) -> Buckets {
        Buckets::new(1.0, hashes, Ends::Circle)
    }

    #[test]
    fn the_theory_requires_hundreds_of_tables() {
        // No width gives an exponent below 0.449 at c = 2: 495 tables of a million vectors, where the paper
        // takes 25.
        let rho = Tables::exponent();
        assert!((rho - 0.449).abs() < 0.001, "{rho}");
        assert!((1e6_f64.powf(rho) - 495.0).abs() < 5.0);
    }

    #[test]
    fn the_number_of_tables_of_the_theory_promises_its_probability() {
        // Equation 5 with the best width: success of 1/2 - 1/e at least.
        let (width, n) = (3.8, 1e6_f64);
        let (p1, p2) = (collision_probability(width), collision_probability(width / RATIO));
        let hashes = n.ln() / (1.0 / p2).ln();
        let tables = n.powf(p1.ln() / p2.ln());
        let theory = Tables { vectors: n, tables, hashes };
        let promise = theory.of_collisions((p1, p2), width).with_scored(2.0 * tables);
        assert!(promise.probability >= 0.5 - 1.0 / std::f64::consts::E - 1e-9, "{promise:?}");
        assert!((promise.far - tables).abs() < 1e-6 * tables && (theory.gamma(width) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn more_entries_or_tables_never_promise_less() {
        let base = Tables { vectors: 1e6, tables: 16.0, hashes: 16.0 };
        let promise =
            |tables: Tables, s: f64| Promises::new(&tables, &buckets(16), RATIO).promise(s).probability;
        let mut last = 0.0;
        for s in [0.0, 1e3, 1e4, 1e5, 1e6, 1e7] {
            let now = promise(base, s);
            assert!(now >= last && (0.0..=1.0).contains(&now), "{s}: {now}");
            last = now;
        }
        assert!(last > 0.5, "{last}");
        // More tables, with equally many scored entries of each.
        assert!(promise(Tables { tables: 64.0, ..base }, 4e6) >= promise(base, 1e6));
        assert!(promise(Tables { vectors: 1e5, ..base }, 1e5) >= promise(base, 1e5));
        assert_eq!(promise(base, 0.0), 0.0);
    }

    #[test]
    fn a_promise_holds_for_every_radius_in_its_range_and_hardly_less_could_be_scored() {
        for (hashes, ends) in [(1, Ends::Circle), (12, Ends::Circle), (32, Ends::Circle), (16, Ends::Clamped)]
        {
            let buckets = Buckets::new(3.0, hashes, ends);
            let tables = Tables { vectors: 3000.0, tables: 16.0, hashes: hashes as f64 };
            for (ratio, probability) in [(2.0, 0.1), (2.0, 0.5), (4.0, 0.5), (4.0, 0.9), (1.1, 0.3)] {
                let promises = Promises::new(&tables, &buckets, ratio);
                let scored = promises.scored_for(probability);
                if hashes > 1 {
                    assert!(scored.is_finite(), "{hashes} {ends:?} {ratio} {probability}");
                }
                let Some(radii) = promises.radii(probability, scored).filter(|_| scored.is_finite()) else {
                    continue;
                };
                assert!(radii.to >= radii.from * 1.9999, "{radii:?}");
                assert!(promises.promise(scored).probability >= probability - 1e-9);
                let octaves = (radii.to / radii.from).log2();
                // Radii that are no ends of intervals.
                let at = |i: u32| radii.from * (octaves * f64::from(i) / 997.0).exp2();
                let least = |scored: f64| {
                    let of = |i| tables.at(&buckets, ratio, at(i), scored).probability;
                    (0..=997).map(of).fold(1.0, f64::min)
                };
                assert!(
                    least(scored) >= probability - 1e-9,
                    "{hashes} {ratio} {probability} {}",
                    least(scored)
                );
                assert!(least(scored / 1.2) < probability, "{hashes} {ratio} {probability}");
                // Far below the range nothing is promised, unless all entries are scored. The radii of a
                // single hash are larger than its widths.
                if hashes == 1 {
                    continue;
                }
                for outside in [radii.from / 1e3, radii.from / 1e9] {
                    let promise = tables.at(&buckets, ratio, outside, scored.min(3000.0 * 15.0));
                    assert_eq!(promise.probability, 0.0, "{hashes} {ratio} {probability} {outside}");
                }
            }
        }
    }

    #[test]
    fn half_of_the_queries_are_promised_something_within_four_times_the_distance_at_three_percent() {
        let tables = Tables { vectors: 1e6, tables: 16.0, hashes: 16.0 };
        let share = |ratio| Promises::new(&tables, &buckets(16), ratio).scored_for(0.5) / tables.vectors;
        assert!((share(USEFUL_RATIO) - 0.0306).abs() < 0.0005, "{}", share(USEFUL_RATIO));
        assert!((share(RATIO) - 1.465).abs() < 0.01, "{}", share(RATIO));
    }
}
