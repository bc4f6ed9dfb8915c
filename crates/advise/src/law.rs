//! The growth of a counter with the number of vectors: a power law, fitted to pilot indexes of several sizes.
//!
//! The slope is estimated by least squares in logarithms, and drawn towards the slopes that searches usually
//! have (a normal prior), because three sizes that are near each other say little about a size that is fifty
//! times as large. The interval follows from the residuals and from the distance of the extrapolation.

use crate::interval::Interval;

/// The usual slope of a counter of searches at a fixed recall.
pub(crate) const USUAL_SLOPE: f64 = 0.3;
/// The standard deviation of slopes around [`USUAL_SLOPE`]. On small sets, the slopes of graphs are about
/// 0.05 and those of posting lists 0.5 to 0.6, and both approach the usual one as sets grow (measured on SIFT
/// descriptors, 5,000 to 1,000,000: `docs/decisions/advice.md`).
const SLOPE_DEVIATION: f64 = 0.1;
/// The slopes that are possible: a search looks at no more than all vectors, and the effort for a recall
/// hardly falls as a set grows.
const SLOPES: std::ops::RangeInclusive<f64> = -0.05..=1.0;
/// The standard deviation of the logarithm of a counter that calibration causes, if the residuals of the fit
/// do not say otherwise. Efforts of the same set differ by some percent between seeds.
const USUAL_NOISE: f64 = 0.06;
/// The number of residuals as which [`SlopePrior::noise`] counts.
const NOISE_WEIGHT: f64 = 2.0;
/// Standard deviations from the middle to an end of an interval. Two contain 16 of 18 counters of a million
/// vectors: slopes change as sets grow.
const DEVIATIONS: f64 = 2.5;
/// Counters whose share of the vectors differs by less than this are proportional to the vectors. The last
/// page of a small index is a part of a tenth of its pages at most.
const SAME_SHARE: f64 = 0.08;

/// Counters that differ by less than this do not depend on the vectors, as the rounds of a search that reads
/// once.
const SAME_COUNT: f64 = 1e-3;

/// A pilot's size and its counter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LawPoint {
    /// Number of vectors.
    pub vectors: f64,
    /// The mean of the counter over the queries.
    pub count: f64,
}

/// The law of a counter: `count = scale * vectors ^ slope`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GrowthLaw {
    /// The mean logarithm of the pilots' sizes.
    middle: f64,
    /// The mean logarithm of the counter.
    level: f64,
    /// The exponent.
    pub slope: f64,
    /// Variance of `level`.
    level_variance: f64,
    /// Variance of the slope.
    slope_variance: f64,
}

/// The usual slopes of what a law describes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SlopePrior {
    /// The usual slope.
    pub slope: f64,
    /// The standard deviation of slopes around it.
    pub deviation: f64,
    /// The largest possible slope.
    pub most: f64,
    /// The standard deviation of the logarithm of a pilot's number, if the residuals do not say otherwise.
    pub noise: f64,
}

impl SlopePrior {
    /// The slopes of counters of searches.
    pub const COUNTER: SlopePrior = SlopePrior {
        slope: USUAL_SLOPE,
        deviation: SLOPE_DEVIATION,
        most: *SLOPES.end(),
        noise: USUAL_NOISE,
    };
    /// The slopes of the memory of a search thread: most of it are read buffers, whose bytes hardly depend on
    /// the vectors, and it has no noise but that of the effort.
    pub const MEMORY: SlopePrior =
        SlopePrior { slope: 0.15, deviation: 0.1, most: *SLOPES.end(), noise: 0.04 };
    /// The slopes of the time of a build.
    pub const BUILD: SlopePrior = SlopePrior { slope: 1.0, deviation: 0.3, most: 1.3, noise: USUAL_NOISE };
}

impl GrowthLaw {
    /// Fits a law to `points`; `None` without a positive counter.
    pub fn fit(points: &[LawPoint], prior: &SlopePrior) -> Option<GrowthLaw> {
        let usable = |point: &&LawPoint| point.vectors > 0.0 && point.count > 0.0 && point.count.is_finite();
        let logs: Vec<(f64, f64)> =
            points.iter().filter(usable).map(|point| (point.vectors.ln(), point.count.ln())).collect();
        if logs.is_empty() {
            return None;
        }
        let count = logs.len() as f64;
        let middle = logs.iter().map(|(size, _)| size).sum::<f64>() / count;
        let level = logs.iter().map(|(_, value)| value).sum::<f64>() / count;
        let spread: f64 = logs.iter().map(|(size, _)| (size - middle).powi(2)).sum();
        let shared: f64 = logs.iter().map(|(size, value)| (size - middle) * (value - level)).sum();
        let measured = if spread > 0.0 { shared / spread } else { prior.slope };
        let residual = |(size, value): &(f64, f64)| (value - level - measured * (size - middle)).powi(2);
        let squares: f64 = logs.iter().map(residual).sum();
        let freedom = (count - 2.0).max(0.0);
        let noise = (NOISE_WEIGHT * prior.noise.powi(2) + squares) / (NOISE_WEIGHT + freedom);
        let (weight, usual) = (spread / noise, prior.deviation.powi(-2));
        let slope = (measured * weight + prior.slope * usual) / (weight + usual);
        let several = logs.len() > 1;
        let (is_share, is_constant) = (several && proportional(points), several && constant(points));
        let is_known = is_share || is_constant;
        Some(GrowthLaw {
            middle,
            level,
            slope: match (is_share, is_constant) {
                (true, _) => 1.0,
                (_, true) => 0.0,
                _ => slope.clamp(*SLOPES.start(), prior.most),
            },
            level_variance: if is_known { 0.0 } else { noise / count },
            slope_variance: if is_known { 0.0 } else { 1.0 / (weight + usual) },
        })
    }

    /// Returns the counter of an index of `vectors` vectors.
    pub fn at(&self, vectors: f64) -> Interval {
        let distance = vectors.max(1.0).ln() - self.middle;
        let variance = self.level_variance + self.slope_variance * distance * distance;
        let value = (self.level + self.slope * distance).exp();
        Interval::within_factor(value, (DEVIATIONS * variance.sqrt()).exp())
    }
}

/// Returns the counter of an index of `vectors` vectors: 0 if the pilots never counted.
pub fn extrapolate(points: &[LawPoint], vectors: f64, prior: &SlopePrior) -> Interval {
    GrowthLaw::fit(points, prior).map_or(Interval::exactly(0.0), |law| law.at(vectors))
}

/// Returns true if each counter is the same.
fn constant(points: &[LawPoint]) -> bool {
    let counts = points.iter().map(|point| point.count);
    let (least, most) =
        counts.fold((f64::INFINITY, 0.0_f64), |(least, most), count| (least.min(count), most.max(count)));
    most - least <= SAME_COUNT * most
}

/// Returns true if each counter is the same share of the vectors.
fn proportional(points: &[LawPoint]) -> bool {
    let shares = points.iter().map(|point| point.count / point.vectors);
    let (least, most) =
        shares.fold((f64::INFINITY, 0.0_f64), |(least, most), share| (least.min(share), most.max(share)));
    most > 0.0 && most - least <= SAME_SHARE * most
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn points(scale: f64, slope: f64) -> Vec<LawPoint> {
        let sizes = [5_000.0_f64, 10_000.0, 20_000.0];
        sizes.iter().map(|n| LawPoint { vectors: *n, count: scale * n.powf(slope) }).collect()
    }

    #[test]
    fn a_power_law_is_found_and_its_interval_grows_with_the_distance() {
        let law = GrowthLaw::fit(&points(3.0, 0.5), &SlopePrior::COUNTER).unwrap();
        assert!((USUAL_SLOPE..0.5).contains(&law.slope) && law.slope > 0.43, "{}", law.slope);
        let (near, far) = (law.at(40_000.0), law.at(1e6));
        assert!(far.contains(3.0 * 1e3), "{far:?}");
        assert!(near.factor() < 1.4 && far.factor() > near.factor() && far.factor() < 2.0, "{far:?}");
    }

    #[test]
    fn a_scan_of_everything_is_known() {
        let law = GrowthLaw::fit(&points(1.0, 1.0), &SlopePrior::COUNTER).unwrap();
        let whole = law.at(1e6);
        assert!((whole.value / 1e6 - 1.0).abs() < 1e-9 && whole.factor() < 1.0 + 1e-9, "{whole:?}");
    }

    #[test]
    fn a_counter_that_does_not_change_is_known() {
        let law = GrowthLaw::fit(&points(1.0, 0.0), &SlopePrior::COUNTER).unwrap();
        assert_eq!(law.at(1e9), Interval::exactly(law.at(1e9).value));
        assert!((law.at(1e9).value - 1.0).abs() < 1e-9);
    }

    #[test]
    fn nothing_is_extrapolated_from_nothing() {
        let none = [LawPoint { vectors: 10.0, count: 0.0 }, LawPoint { vectors: 20.0, count: f64::NAN }];
        assert_eq!(extrapolate(&none, 1e6, &SlopePrior::COUNTER), Interval::exactly(0.0));
        let one = [LawPoint { vectors: 1000.0, count: 8.0 }];
        let far = extrapolate(&one, 1e6, &SlopePrior::COUNTER);
        assert!((far.value / (8.0 * 1e3_f64.powf(USUAL_SLOPE)) - 1.0).abs() < 1e-9, "{far:?}");
        assert!(far.factor() > 3.0, "the slope is not known: {far:?}");
    }

    proptest! {
        #[test]
        fn intervals_contain_their_numbers(
            counts in prop::collection::vec(0.1..1e6_f64, 1..5), vectors in 1.0..1e10_f64,
        ) {
            let points: Vec<LawPoint> = counts.iter().enumerate()
                .map(|(at, count)| LawPoint { vectors: 1000.0 * (at + 1) as f64, count: *count }).collect();
            let found = extrapolate(&points, vectors, &SlopePrior::COUNTER);
            prop_assert!(found.low <= found.value && found.value <= found.high && found.high.is_finite());
            prop_assert!(found.low > 0.0);
        }
    }
}
