//! Distances in 64-bit arithmetic, and the bound within which 32-bit arithmetic agrees with them.

use bathyal_kernels::{Element, Metric, to_f32};

/// Independent sums of the 64-bit passes, so that they fill vector registers.
const SUMS: usize = 8;

/// Outside of these lengths (but for zero) squares of f32 lose digits or overflow, so that the bound below
/// does not hold: such vectors are always measured exactly.
const SAFE_NORMS: std::ops::RangeInclusive<f64> = 1e-15..=1e15;

/// Measures the distance of two vectors exactly: sums are 64-bit, the result is rounded once.
pub(super) struct Exact {
    metric: Metric,
    element: Element,
    values: Vec<f32>,
}

/// A query, ready to be measured.
pub(super) struct Measured<'a> {
    pub values: &'a [f32],
    pub norm: f64,
}

impl Exact {
    pub(super) fn new(metric: Metric, element: Element, dim: usize) -> Exact {
        Exact { metric, element, values: vec![0.0; dim] }
    }

    /// The distance from `query` to `row`, rounded to 32 bits.
    pub(super) fn distance(&mut self, query: &Measured<'_>, row: &[u8]) -> f32 {
        to_f32(self.element, row, &mut self.values);
        let (a, b) = (query.values, &self.values);
        let exact = match self.metric {
            Metric::L2 => sum(Term::Square, a, b),
            Metric::InnerProduct => -sum(Term::Product, a, b),
            Metric::Cosine => 1.0 - (sum(Term::Product, a, b) / (query.norm * norm(b))).clamp(-1.0, 1.0),
        };
        // Adding zero makes -0.0 of ip into 0.0, so that equal distances have equal bits and the id decides.
        exact as f32 + 0.0
    }

    /// The Euclidean length of `row`.
    pub(super) fn norm(&mut self, row: &[u8]) -> f64 {
        to_f32(self.element, row, &mut self.values);
        norm(&self.values)
    }
}

/// The Euclidean length of `values`.
pub(super) fn norm(values: &[f32]) -> f64 {
    sum(Term::Product, values, values).sqrt()
}

/// What is summed.
#[derive(Clone, Copy)]
enum Term {
    /// `(x - y)^2`.
    Square,
    /// `x y`.
    Product,
}

/// The sum over all pairs of values, the same bit for bit whatever the processor knows: the order of the sums is given.
fn sum(term: Term, a: &[f32], b: &[f32]) -> f64 {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor knows these instructions.
            return unsafe { sum_avx512(term, a, b) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: as above.
            return unsafe { sum_avx2(term, a, b) };
        }
    }
    sum_of(term, a, b)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn sum_avx512(term: Term, a: &[f32], b: &[f32]) -> f64 {
    sum_of(term, a, b)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn sum_avx2(term: Term, a: &[f32], b: &[f32]) -> f64 {
    sum_of(term, a, b)
}

#[inline(always)]
fn sum_of(term: Term, a: &[f32], b: &[f32]) -> f64 {
    match term {
        Term::Square => add_up(a, b, |x, y| (x - y) * (x - y)),
        Term::Product => add_up(a, b, |x, y| x * y),
    }
}

#[inline(always)]
fn add_up(a: &[f32], b: &[f32], term: impl Fn(f64, f64) -> f64) -> f64 {
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

/// The terms of one vector's value in [`super::tile`]: `bias - scale * product`.
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

/// The largest value of [`row_terms`] that a vector no longer than `longest` can have if its distance from
/// a query of length `norm`, rounded to 32 bits, is at most `distance`.
///
/// A sum of `roundings` products of f32 in any order is off by at most `roundings x 2^-24 x |q| |b|`, and a
/// little more (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1); integer products are
/// not off at all. A few roundings more come from the norms, the scale, and the distance itself.
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
    fn sums_are_the_same_on_every_processor() {
        let mut random = StdRng::seed_from_u64(3);
        for dim in [1, 7, 8, 9, 63, 384, 1001] {
            let mut some = || -> Vec<f32> { (0..dim).map(|_| random.random_range(-2.0..2.0)).collect() };
            let (a, b) = (some(), some());
            for term in [Term::Square, Term::Product] {
                assert_eq!(sum(term, &a, &b).to_bits(), sum_of(term, &a, &b).to_bits(), "{dim}");
            }
        }
    }
}
