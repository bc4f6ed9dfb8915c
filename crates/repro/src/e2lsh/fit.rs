//! How a time grows: the exponent of a power, with its confidence.

use serde::Serialize;

/// The 97.5th percentile of Student's distribution with 1, 2, ... degrees of freedom; the last for all beyond.
const STUDENT: [f64; 11] = [12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 1.96];

/// `y` as a power of `x`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Growth {
    pub exponent: f64,
    /// By how much the exponent may be more or less, with a confidence of 95%; none of two points.
    pub within: Option<f64>,
}

impl Growth {
    /// Fits the logarithms of points with positive coordinates; `None` of fewer than two.
    pub(super) fn of(points: &[(f64, f64)]) -> Option<Growth> {
        let logs: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
        let count = logs.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| logs.iter().map(of).sum::<f64>() / count;
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let spread: f64 = logs.iter().map(|point| (point.0 - x).powi(2)).sum();
        if logs.len() < 2 || spread <= 0.0 || !(x + y).is_finite() {
            return None;
        }
        let exponent = logs.iter().map(|point| (point.0 - x) * (point.1 - y)).sum::<f64>() / spread;
        let free = logs.len() - 2;
        let left = |point: &(f64, f64)| (point.1 - y - exponent * (point.0 - x)).powi(2);
        let error = (logs.iter().map(left).sum::<f64>() / free.max(1) as f64 / spread).sqrt();
        let within = (free > 0).then(|| error * STUDENT[(free - 1).min(STUDENT.len() - 1)]);
        Some(Growth { exponent, within })
    }

    /// "0.43 ± 0.02".
    pub(super) fn words(&self) -> String {
        match self.within {
            Some(within) => format!("{:.2} ± {within:.2}", self.exponent),
            None => format!("{:.2}", self.exponent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_are_found_and_their_confidence_too() {
        let sizes = [1e4, 3e4, 1e5, 3e5, 1e6];
        let power: Vec<(f64, f64)> = sizes.iter().map(|n| (*n, 7.0 * f64::powf(*n, 0.4))).collect();
        let fitted = Growth::of(&power).unwrap();
        assert!((fitted.exponent - 0.4).abs() < 1e-9 && fitted.within.unwrap() < 1e-9, "{fitted:?}");
        // With a tenth more and less in turn the truth is within the confidence.
        let noisy = power.iter().zip([1.1, 0.9, 1.1, 0.9, 1.1]).map(|((n, t), by)| (*n, t * by));
        let fitted = Growth::of(&noisy.collect::<Vec<_>>()).unwrap();
        let within = fitted.within.unwrap();
        assert!((fitted.exponent - 0.4).abs() < within && (0.03..0.3).contains(&within), "{fitted:?}");
        assert_eq!(Growth::of(&power[..2]).unwrap().within, None);
        assert!(Growth::of(&power[..1]).is_none() && Growth::of(&[(1.0, 1.0), (1.0, 2.0)]).is_none());
    }
}
