//! Distances in 64-bit arithmetic, and the bound within which 32-bit arithmetic agrees with them.

use bathyal_kernels::{Element, Metric, to_f32};

/// Number of independent 64-bit sums: enough to fill a vector register.
const SUMS: usize = 8;

/// Lengths of vectors for which the bound of [`limit`] holds. Beyond them (except for zero) squares of f32
/// lose digits or overflow, so the distances of such vectors are always computed exactly.
const SAFE_NORMS: std::ops::RangeInclusive<f64> = 1e-15..=1e15;

/// Computes distances exactly: in 64-bit sums, rounded once.
pub(super) struct ExactDistance {
    metric: Metric,
    element: Element,
    values: Vec<f32>,
}

/// A decoded query and its Euclidean length.
pub(super) struct ExactQuery<'a> {
    pub values: &'a [f32],
    pub norm: f64,
}

impl ExactDistance {
    pub(super) fn new(metric: Metric, element: Element, dim: usize) -> ExactDistance {
        ExactDistance { metric, element, values: vec![0.0; dim] }
    }

    /// Returns the distance from `query` to `row`, rounded to 32 bits.
    pub(super) fn distance(&mut self, query: &ExactQuery<'_>, row: &[u8]) -> f32 {
        to_f32(self.element, row, &mut self.values);
        let (a, b) = (query.values, &self.values);
        let exact = match self.metric {
            Metric::L2 => sum(Term::Square, a, b),
            Metric::InnerProduct => -sum(Term::Product, a, b),
            Metric::Cosine => 1.0 - (sum(Term::Product, a, b) / (query.norm * norm(b))).clamp(-1.0, 1.0),
        };
        // Adding zero turns the -0.0 of ip into 0.0, so that equal distances have equal bits and are ordered
        // by id.
        exact as f32 + 0.0
    }

    /// Returns the Euclidean length of `row`.
    pub(super) fn norm(&mut self, row: &[u8]) -> f64 {
        to_f32(self.element, row, &mut self.values);
        norm(&self.values)
    }
}

/// Returns the Euclidean length of `values`.
pub(super) fn norm(values: &[f32]) -> f64 {
    sum(Term::Product, values, values).sqrt()
}

/// Term of a sum over pairs of values.
#[derive(Clone, Copy)]
enum Term {
    /// `(x - y)^2`.
    Square,
    /// `x y`.
    Product,
}

/// Sums the terms of all pairs of values. The order of the additions is fixed, so the result is the same, bit
/// for bit, with every instruction set.
fn sum(term: Term, a: &[f32], b: &[f32]) -> f64 {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the CPU has these instructions.
            return unsafe { sum_avx512(term, a, b) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: as above.
            return unsafe { sum_avx2(term, a, b) };
        }
    }
    sum_portable(term, a, b)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn sum_avx512(term: Term, a: &[f32], b: &[f32]) -> f64 {
    sum_portable(term, a, b)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn sum_avx2(term: Term, a: &[f32], b: &[f32]) -> f64 {
    sum_portable(term, a, b)
}

#[inline(always)]
fn sum_portable(term: Term, a: &[f32], b: &[f32]) -> f64 {
    match term {
        Term::Square => sum_in_lanes(a, b, |x, y| (x - y) * (x - y)),
        Term::Product => sum_in_lanes(a, b, |x, y| x * y),
    }
}

#[inline(always)]
fn sum_in_lanes(a: &[f32], b: &[f32], term: impl Fn(f64, f64) -> f64) -> f64 {
    let (a_chunks, a_rest) = a.as_chunks::<SUMS>();
    let (b_chunks, b_rest) = b.as_chunks::<SUMS>();
    let mut sums = [0.0; SUMS];
    for (x, y) in a_chunks.iter().zip(b_chunks) {
        for lane in 0..SUMS {
            sums[lane] += term(f64::from(x[lane]), f64::from(y[lane]));
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(x, y)| term(f64::from(*x), f64::from(*y))).sum();
    sums.iter().sum::<f64>() + rest
}

/// Returns the bias and the scale of one vector, for its value `bias - scale * product` in [`super::tile`].
///
/// | metric | value | equals |
/// |---|---|---|
/// | l2 | `\|b\|^2 - 2 q.b` | distance - `\|q\|^2` |
/// | ip | `-q.b` | distance |
/// | cosine | `-q.b / \|b\|` | (distance - 1) `\|q\|` |
pub(super) fn row_terms(metric: Metric, norm: f64) -> (f32, f32) {
    if norm != 0.0 && !SAFE_NORMS.contains(&norm) {
        return (f32::NAN, 0.0);
    }
    match metric {
        Metric::L2 => ((norm * norm) as f32, 2.0),
        Metric::InnerProduct => (0.0, 1.0),
        Metric::Cosine => (0.0, (1.0 / norm) as f32),
    }
}

/// Returns a bound on the value, as defined by [`row_terms`], of any vector of length at most `longest` whose
/// distance from a query of length `norm`, rounded to 32 bits, is at most `distance`.
///
/// The error of a sum of `roundings` products of f32, in any order, is at most `roundings x 2^-24 x |q| |b|`,
/// and a little more (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1). Integer products
/// have no error. The norms, the scale, and the distance itself add a few roundings.
pub(super) fn limit(metric: Metric, roundings: usize, norm: f64, longest: f64, distance: f32) -> f32 {
    if norm != 0.0 && !SAFE_NORMS.contains(&norm) {
        return f32::NAN;
    }
    let unit = f64::from(f32::EPSILON) / 2.0;
    let product = unit * 1.1 * roundings as f64;
    let few = unit * 8.0;
    let distance = f64::from(distance) + few * f64::from(distance).abs();
    let value = match metric {
        Metric::L2 => {
            distance - norm * norm + 2.0 * product * norm * longest + few * (norm + longest).powi(2)
        }
        Metric::InnerProduct => distance + (product + few) * norm * longest,
        Metric::Cosine => (distance - 1.0 + product + few) * norm,
    };
    (value as f32).next_up()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    #[test]
    fn sums_are_the_same_with_every_instruction_set() {
        let mut random = StdRng::seed_from_u64(3);
        for dim in [1, 7, 8, 9, 63, 384, 1001] {
            let mut vector = || -> Vec<f32> { (0..dim).map(|_| random.random_range(-2.0..2.0)).collect() };
            let (a, b) = (vector(), vector());
            for term in [Term::Square, Term::Product] {
                assert_eq!(sum(term, &a, &b).to_bits(), sum_portable(term, &a, &b).to_bits(), "{dim}");
            }
        }
    }
}
