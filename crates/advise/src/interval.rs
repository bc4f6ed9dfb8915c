//! A predicted number with its interval.

use serde::{Deserialize, Serialize};

/// The relative error of a number that is known and was calculated.
const ROUNDING: f64 = 1e-9;

/// A predicted number, and the interval in which the true one is expected in about 19 of 20 cases.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The predicted number.
    pub value: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Interval {
    /// Returns a number that is known.
    pub fn exactly(value: f64) -> Interval {
        Interval { value, low: value, high: value }
    }

    /// Returns `value` with the interval from `value / factor` to `value * factor`; a factor below 1 counts
    /// as 1.
    pub fn within_factor(value: f64, factor: f64) -> Interval {
        let factor = if factor.is_finite() { factor.max(1.0) } else { f64::MAX.sqrt() };
        Interval { value, low: value / factor, high: value * factor }
    }

    /// Returns the largest ratio between the number and an end of its interval; 1 if it is known.
    pub fn factor(&self) -> f64 {
        let ratio = |above: f64, below: f64| if below > 0.0 { above / below } else { 1.0 };
        ratio(self.high, self.value).max(ratio(self.value, self.low)).max(1.0)
    }

    /// Returns the number and its ends times `by`, which is not negative.
    pub fn times(&self, by: f64) -> Interval {
        Interval { value: self.value * by, low: self.low * by, high: self.high * by }
    }

    /// Returns the number with ends that are farther away by `factor`, which is at least 1.
    pub fn widened(&self, factor: f64) -> Interval {
        Interval { value: self.value, low: self.low / factor, high: self.high * factor }
    }

    /// Returns the sum of two numbers, whose errors may go the same way.
    pub fn plus(&self, other: &Interval) -> Interval {
        Interval { value: self.value + other.value, low: self.low + other.low, high: self.high + other.high }
    }

    /// Returns true if `value` is in the interval, or is its end but for the rounding of a calculation.
    pub fn contains(&self, value: f64) -> bool {
        let rounding = ROUNDING * value.abs();
        (self.low - rounding..=self.high + rounding).contains(&value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_keep_their_ends_in_order() {
        let number = Interval::within_factor(10.0, 2.0);
        assert_eq!((number.low, number.high, number.factor()), (5.0, 20.0, 2.0));
        assert_eq!(Interval::within_factor(10.0, 0.5), Interval::exactly(10.0));
        let sum = number.plus(&Interval::exactly(1.0)).times(2.0);
        assert_eq!((sum.low, sum.value, sum.high), (12.0, 22.0, 42.0));
        assert_eq!(number.widened(2.0), Interval::within_factor(10.0, 4.0));
        assert!(sum.contains(12.0) && !sum.contains(42.1));
        assert!(Interval::exactly(16_000.000_000_000_002).contains(16_000.0));
        assert_eq!(Interval::exactly(0.0).factor(), 1.0);
        assert!(Interval::within_factor(1.0, f64::INFINITY).high.is_finite());
    }
}
