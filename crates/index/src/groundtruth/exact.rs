//! Distances in 64-bit arithmetic, and the bound within which 32-bit arithmetic agrees with them.

use bathyal_kernels::{Distance, Element, Metric, to_f32};

use super::tile::LANES;

/// Independent sums of the 64-bit passes, so that they fill vector registers.
const SUMS: usize = 8;

/// Outside of these lengths (but for zero) squares of f32 lose digits or overflow, so that the bound below
/// does not hold: such vectors are always measured exactly.
const SAFE_NORMS: std::ops::RangeInclusive<f64> = 1e-15..=1e15;

/// Measures the distance of two vectors exactly: sums are 64-bit, the result is rounded once.
pub(super) struct Exact {
    metric: Metric,
    element: Element,
    /// For 8-bit l2 and ip, whose kernels sum integers and so are exact.
    integer: Option<Distance>,
    a: Vec<f32>,
    b: Vec<f32>,
}

impl Exact {
    pub(super) fn new(metric: Metric, element: Element, dim: usize) -> Exact {
        let integer = !element.is_float() && metric != Metric::Cosine;
        Exact {
            metric,
            element,
            integer: integer.then(|| Distance::new(element, metric, dim)),
            a: vec![0.0; dim],
            b: vec![0.0; dim],
        }
    }

    /// The distance of `a` and `b`, rounded to 32 bits. Symmetric, bit for bit.
    pub(super) fn between(&mut self, a: &[u8], b: &[u8]) -> f32 {
        if let Some(distance) = &self.integer {
            return distance.between(a, b);
        }
        to_f32(self.element, a, &mut self.a);
        to_f32(self.element, b, &mut self.b);
        let (a, b) = (&self.a, &self.b);
        let exact = match self.metric {
            Metric::L2 => sum(a, b, |x, y| (x - y) * (x - y)),
            Metric::InnerProduct => -sum(a, b, |x, y| x * y),
            Metric::Cosine => {
                let norms = sum(a, a, |x, y| x * y).sqrt() * sum(b, b, |x, y| x * y).sqrt();
                1.0 - (sum(a, b, |x, y| x * y) / norms).clamp(-1.0, 1.0)
            }
        };
        // Adding zero makes -0.0 of ip into 0.0, so that equal distances have equal bits and the id decides.
        (exact + 0.0) as f32
    }

    /// The Euclidean length of `row`.
    pub(super) fn norm(&mut self, row: &[u8]) -> f64 {
        to_f32(self.element, row, &mut self.a);
        sum(&self.a, &self.a, |x, y| x * y).sqrt()
    }
}

fn sum(a: &[f32], b: &[f32], term: impl Fn(f64, f64) -> f64) -> f64 {
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
/// A sum of `dim` products of f32 in any order is off by at most `dim x 2^-24 x |q| |b|` (Higham, Accuracy
/// and Stability of Numerical Algorithms, section 3.1). The slack doubles that, with a few steps more for
/// the norms, the scale, and the rounding of the distance itself.
pub(super) fn limit(metric: Metric, dim: usize, norm: f64, longest: f64, distance: f32) -> f32 {
    if norm != 0.0 && !SAFE_NORMS.contains(&norm) {
        return f32::NAN;
    }
    let unit = f64::from(f32::EPSILON);
    let slack = (dim + LANES) as f64 * unit;
    let distance = f64::from(distance) + unit * f64::from(distance).abs();
    let value = match metric {
        Metric::L2 => distance - norm * norm + slack * (norm + longest).powi(2),
        Metric::InnerProduct => distance + slack * norm * longest,
        Metric::Cosine => (distance - 1.0 + slack) * norm,
    };
    (value as f32).next_up()
}
