//! The promise of hash tables: the probability that a query finds a vector about as near as its nearest
//! neighbour.
//!
//! (R, c)-near neighbour search (e2lsh-on-storage, section 2.3): if there is a vector within R of the query,
//! report one within cR. It succeeds if two things hold. A vector within R shares the query's bucket in at
//! least one table; this fails with a probability of at most `(1 - p1^m)^L`. And not all of the S scored
//! entries belong to vectors beyond cR. At most `L n p2^m` entries of such vectors are in the query's buckets
//! on average, so there are more than S with a probability of at most `L n p2^m / S` (Markov). Here p1 and p2
//! are the probabilities that one hash of width w collides at distances R and cR.
//!
//! The tables of this index have all widths `cell x 2^i` at once, and a search reads the bucket of each width
//! after that of half the width. So the statement holds for each width, and for a given R the best width
//! counts.

use bathyal_kernels::lsh::collision_probability;
use serde::Serialize;

/// c, the ratio of the papers: R doubles from one radius to the next.
pub const RATIO: f64 = 2.0;
/// Number of radii within an octave at which the worst promise is computed.
const STEPS: u32 = 32;
/// Octaves of widths around a radius that may be the best.
const WIDTHS: std::ops::RangeInclusive<i32> = -2..=6;
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

/// The probability of success of (R, c)-near neighbour search with c = 2, and its parts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Promise {
    /// A lower bound of the probability of success: `near - min(1, far / S)`, at least 0.
    pub probability: f64,
    /// The probability that a vector within R shares a bucket with the query.
    pub near: f64,
    /// An upper bound of the mean number of entries in the query's buckets that belong to vectors beyond cR.
    pub far: f64,
    /// The width of a hash (w), in units of R.
    pub width: f64,
}

impl Tables {
    /// Returns the promise of hashes of `width` (in units of R) if `scored` entries are scored (S).
    pub fn at_width(&self, width: f64, scored: f64) -> Promise {
        let (p1, p2) = (collision_probability(width), collision_probability(width / RATIO));
        let near = 1.0 - (1.0 - p1.powf(self.hashes)).powf(self.tables);
        let far = self.tables * self.vectors * p2.powf(self.hashes);
        let missed = if scored > 0.0 { (far / scored).min(1.0) } else { 1.0 };
        Promise { probability: (near - missed).max(0.0), near, far, width }
    }

    /// Returns the promise for any R: the least over an octave of radii, where each radius takes the best of
    /// the available widths. It holds for radii up to the one whose width is the widest: see
    /// [`Tables::widest`].
    pub fn promise(&self, scored: f64) -> Promise {
        let all = (0..STEPS).map(|step| self.for_radius(step, scored));
        let worst = all.min_by(|a, b| a.probability.total_cmp(&b.probability));
        worst.unwrap_or(Promise { probability: 0.0, near: 0.0, far: 0.0, width: 0.0 })
    }

    /// Returns the widest hash, in units of R, that [`Tables::promise`] uses for any R.
    pub fn widest(&self, scored: f64) -> f64 {
        (0..STEPS).map(|step| self.for_radius(step, scored).width).fold(0.0, f64::max)
    }

    /// Returns the best promise over the available widths for one of the radii within an octave.
    fn for_radius(&self, step: u32, scored: f64) -> Promise {
        let aligned = (f64::from(step) / f64::from(STEPS)).exp2();
        let widths = WIDTHS.map(|octave| aligned * f64::from(octave).exp2());
        best(widths.map(|width| self.at_width(width, scored)))
    }

    /// Returns the number of values of a compound hash in units of `log n / log(1/p2)` of the promise's
    /// width: gamma in the paper.
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

fn best(promises: impl Iterator<Item = Promise>) -> Promise {
    let none = Promise { probability: -1.0, near: 0.0, far: 0.0, width: 0.0 };
    promises.fold(none, |best, one| if one.probability > best.probability { one } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let promise = theory.at_width(width, 2.0 * tables);
        assert!(promise.probability >= 0.5 - 1.0 / std::f64::consts::E - 1e-9, "{promise:?}");
        assert!((promise.far - tables).abs() < 1e-6 * tables && (theory.gamma(width) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn more_entries_or_tables_never_promise_less() {
        let base = Tables { vectors: 1e6, tables: 16.0, hashes: 16.0 };
        let promise = |tables: Tables, s: f64| tables.promise(s).probability;
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
}
