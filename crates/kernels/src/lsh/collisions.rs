//! The probability that two points share a bucket, for widths that a key has.

use super::{MOST_HASHES, levels};
use std::f64::consts::{PI, TAU};

/// Distances below this share of the circle are as if on a line: a step that goes round it is eight standard
/// deviations or more, which the precision of the numbers here does not express.
const LINE_SHARE: f64 = 1.0 / 16.0;
/// Terms of the series of the probability on a circle. The next is below 1e-20 for all distances from
/// [`LINE_SHARE`] on.
const TERMS: u32 = 24;
/// Widest bucket of [`Ends::Clamped`] of which something is stated, as a share of all cells.
const CLAMPED_WIDEST: f64 = 1.0 / 8.0;
/// Largest distance of a query from the centre for which something is stated under [`Ends::Clamped`], as a
/// share of all cells. It is twice the root of the mean squared distance of the data.
const CLAMPED_REACH: f64 = 1.0 / 16.0;
/// Half the range from which offsets are drawn, as a share of all cells.
const HALF_OFFSETS: f64 = 1.0 / 4.0;

/// The cells of values beyond the outermost ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// Behind the last cell comes the first.
    Circle,
    /// The outermost cells contain all values beyond them, in indexes of earlier versions.
    Clamped,
}

/// The buckets of a key: their widths, and the probabilities that two points share one.
///
/// All distances are in the units of the points. `level` counts widths from the finest: `cell x 2^level`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Buckets {
    cell: f64,
    levels: u32,
    ends: Ends,
}

impl Buckets {
    /// Returns the buckets of the keys of `hashes` values whose finest cell is `cell`.
    ///
    /// # Panics
    /// Unless `hashes` is between 1 and [`MOST_HASHES`].
    pub fn new(cell: f64, hashes: usize, ends: Ends) -> Buckets {
        assert!((1..=MOST_HASHES).contains(&hashes), "{hashes} hashes");
        Buckets { cell, levels: levels(hashes) as u32, ends }
    }

    /// Returns the number of widths about which something is stated.
    pub fn widths(&self) -> u32 {
        match self.ends {
            Ends::Circle => self.levels,
            Ends::Clamped => self.levels.saturating_sub(CLAMPED_WIDEST.recip().log2() as u32 - 1),
        }
    }

    /// Returns the width of a bucket.
    pub fn width(&self, level: u32) -> f64 {
        self.cell * f64::from(level).exp2()
    }

    /// Returns the largest distance of a query from the centre of the hashes for which [`Buckets::far`]
    /// holds; infinite if it holds for all.
    pub fn reach(&self) -> f64 {
        match self.ends {
            Ends::Circle => f64::INFINITY,
            Ends::Clamped => self.all() * CLAMPED_REACH,
        }
    }

    /// Returns a lower bound of the probability that one hash of two points at most `distance` apart is
    /// equal.
    pub fn near(&self, level: u32, distance: f64) -> f64 {
        match self.ends {
            Ends::Circle => on_circle(self.width(level) / self.all(), distance / self.all()),
            Ends::Clamped => collision_probability(self.width(level) / distance),
        }
    }

    /// Returns an upper bound of the probability that one hash of two points at least `distance` apart is
    /// equal.
    ///
    /// On a circle it is the probability itself, since this decreases with the distance: see `on_circle`.
    ///
    /// With clamped values, let H be half the range of the offsets, and x the projection of the query. Inside
    /// of H, the boundaries are a grid with a random phase. So the points are apart if `|x| <= H - w` and
    /// they are apart on an endless line. Otherwise they share a bucket with an additional probability of at
    /// most `(|x| - (H - w)) / w`, however far away the other point is. The mean of this over x, which is
    /// normally distributed, is added.
    pub fn far(&self, level: u32, distance: f64) -> f64 {
        let (width, all) = (self.width(level), self.all());
        match self.ends {
            Ends::Circle => on_circle(width / all, distance / all),
            Ends::Clamped => {
                let deviation = self.reach();
                let from = (all * HALF_OFFSETS - width) / deviation;
                let density = (-from * from / 2.0).exp() / TAU.sqrt();
                let beyond = 2.0 * density - from * (1.0 - normal_within(from));
                (collision_probability(width / distance) + beyond * deviation / width).min(1.0)
            }
        }
    }

    /// Returns the width of all cells together.
    fn all(&self) -> f64 {
        self.width(self.levels)
    }
}

/// Returns the probability that two points collide in one hash on a circle. The width and the distance are in
/// units of the circumference; the width is one over an integer.
///
/// For two values d apart it is a sum of triangles around the multiples of the circumference. Its Fourier
/// series is `w (1 + 2 sum of sinc^2(n w) cos(2 pi n d))`. If d is normally distributed with deviation s, the
/// mean of a cosine is `exp(-2 (pi n s)^2)`. No term is negative and each decreases with s, so the
/// probability decreases with the distance.
fn on_circle(width: f64, distance: f64) -> f64 {
    if distance < LINE_SHARE {
        return collision_probability(width / distance);
    }
    let term = |n: u32| {
        let angle = PI * f64::from(n) * width;
        (angle.sin() / angle).powi(2) * (-2.0 * (PI * f64::from(n) * distance).powi(2)).exp()
    };
    (width * (1.0 + 2.0 * (1..=TERMS).map(term).sum::<f64>())).clamp(0.0, 1.0)
}

/// Returns the probability that two points collide in one hash on an endless line, whose width is `widths`
/// times their distance (p_w in the paper; Datar et al., section 3.2).
pub fn collision_probability(widths: f64) -> f64 {
    if widths <= 0.0 {
        return 0.0;
    }
    if !widths.is_finite() {
        return 1.0;
    }
    let outside = (1.0 - normal_within(widths)).max(0.0);
    let edges = 2.0 / (TAU.sqrt() * widths) * (1.0 - (-widths * widths / 2.0).exp());
    (1.0 - outside - edges).clamp(0.0, 1.0)
}

/// Returns the share of a standard normal distribution within `x` of its mean: erf(x / sqrt 2), computed by
/// its series or its continued fraction, to 1e-10.
fn normal_within(x: f64) -> f64 {
    if x < 3.0 {
        // erf(z) = 2 z / sqrt(pi) * exp(-z^2) * sum of (2 z^2)^n / (1 * 3 * 5 ...).
        let square = x * x;
        let (mut term, mut sum, mut odd) = (1.0, 1.0, 1.0);
        while term > 1e-16 * sum {
            odd += 2.0;
            term *= square / odd;
            sum += term;
        }
        return (2.0 / PI).sqrt() * x * (-square / 2.0).exp() * sum;
    }
    // The tail: exp(-x^2/2) / sqrt(2 pi) / (x + 1 / (x + 2 / (x + 3 / ...))).
    let fraction = (1..=60).rev().fold(x, |below, n| x + f64::from(n) / below);
    1.0 - 2.0 * (-x * x / 2.0).exp() / (TAU.sqrt() * fraction)
}

#[cfg(test)]
mod tests {
    use super::super::{CompoundHashes, HashScratch};
    use super::*;

    #[test]
    fn collision_probabilities_equal_published_values() {
        // The normal distribution to ten digits, and p_w for w = 4.
        for (x, share) in [(1.0, 0.6826894921), (2.0, 0.9544997361), (3.0, 0.9973002039), (5.0, 0.9999994267)]
        {
            assert!((normal_within(x) - share).abs() < 1e-9, "{x}: {}", normal_within(x));
        }
        assert!((collision_probability(4.0) - 0.800_532_4).abs() < 1e-6, "{}", collision_probability(4.0));
        assert_eq!(
            (collision_probability(0.0), collision_probability(-1.0), collision_probability(f64::INFINITY)),
            (0.0, 0.0, 1.0)
        );
        let rising: Vec<f64> = (1..1000).map(|i| collision_probability(f64::from(i) / 50.0)).collect();
        assert!(rising.is_sorted() && rising[0] > 0.0 && rising[998] < 1.0);
    }

    #[test]
    fn far_points_share_a_bucket_no_more_often_than_nearer_ones() {
        for (hashes, ends) in [(1, Ends::Circle), (16, Ends::Circle), (32, Ends::Circle), (16, Ends::Clamped)]
        {
            let buckets = Buckets::new(0.25, hashes, ends);
            for level in 0..buckets.widths() {
                let distances = (-40..200).map(|step| buckets.width(level) * (f64::from(step) / 20.0).exp2());
                let far: Vec<f64> = distances.clone().map(|distance| buckets.far(level, distance)).collect();
                assert!(far.is_sorted_by(|a, b| *a >= *b - 1e-10), "{hashes} {ends:?} {level}: {far:?}");
                for (distance, far) in distances.zip(far) {
                    let line = collision_probability(buckets.width(level) / distance);
                    assert!(far >= line - 1e-10 && buckets.near(level, distance) <= far + 1e-10);
                }
            }
        }
        let clamped = Buckets::new(1.0, 16, Ends::Clamped);
        assert_eq!((clamped.widths(), clamped.width(5), clamped.reach()), (6, 32.0, 16.0));
    }

    /// Two points, `distance` apart. The first is `off` from the centre.
    #[derive(Debug, Clone, Copy)]
    struct Pair {
        off: f32,
        distance: f32,
    }

    const DIM: usize = 4;
    /// Hashes of each test: the standard error of a share is at most 0.004.
    const DRAWN: usize = 16_384;
    /// The root of the mean squared distance of the data, so that the finest cell of 16 bits is 1/2048.
    const SPREAD: f64 = 1.0;

    /// Returns the share of the hashes of one value each in which a pair is in one bucket of a level.
    fn share(hashes: &CompoundHashes, pair: Pair, level: u32) -> f64 {
        let mut points = vec![0.0; 2 * DIM];
        points[0] = pair.off;
        // Half in the direction away from the centre.
        points[DIM..].copy_from_slice(&[
            pair.off + pair.distance * 0.5_f32.sqrt(),
            0.0,
            0.0,
            pair.distance * 0.5_f32.sqrt(),
        ]);
        let (mut keys, mut scratch) = (Vec::new(), HashScratch::default());
        let collided = (0..hashes.tables()).filter(|table| {
            hashes.keys(*table, &points, &mut scratch, &mut keys);
            keys[0] >> level == keys[1] >> level
        });
        collided.count() as f64 / hashes.tables() as f64
    }

    /// Pairs from near to far, near the centre and beyond the cells.
    fn pairs() -> impl Iterator<Item = Pair> {
        [0.0, 1.0, 20.0]
            .into_iter()
            .flat_map(|off| [0.3, 2.0, 9.0, 40.0, 1000.0].map(move |distance| Pair { off, distance }))
    }

    /// Returns how many standard errors the shares of pairs in any width are off the probability, at most.
    fn error(hashes: &CompoundHashes) -> f64 {
        let buckets = Buckets::new(hashes.cell().into(), hashes.hashes(), Ends::Circle);
        let of_pair = |pair: Pair| {
            (8..buckets.widths()).map(move |level| {
                let expected = buckets.near(level, pair.distance.into());
                let deviation = (expected * (1.0 - expected) / DRAWN as f64).sqrt().max(1.0 / DRAWN as f64);
                (share(hashes, pair, level) - expected).abs() / deviation
            })
        };
        pairs().flat_map(of_pair).fold(0.0, f64::max)
    }

    /// Hashes with the numbers of the drawn ones after a change of their cell, offsets and directions.
    fn changed(change: impl Fn(usize, f32) -> f32) -> CompoundHashes {
        let bytes = CompoundHashes::draw(&[0.0; DIM], SPREAD, DRAWN, 1, 3).to_bytes();
        let numbers = bytes.as_chunks::<4>().0.iter().map(|number| f32::from_le_bytes(*number));
        let changed = numbers.enumerate().flat_map(|(at, number)| change(at, number).to_le_bytes());
        CompoundHashes::from_bytes(&changed.collect::<Vec<u8>>(), DIM, DRAWN, 1).unwrap()
    }

    #[test]
    fn pairs_share_a_bucket_with_the_computed_probability_and_wrong_hashes_are_detected() {
        let (offsets, directions) = (1 + DIM..1 + DIM + DRAWN, 1 + DIM + DRAWN..usize::MAX);
        let cells = 65_536.0_f32;
        assert!(error(&changed(|_, number| number)) < 4.5, "{}", error(&changed(|_, number| number)));
        let one = changed(|at, number| if offsets.contains(&at) { cells / 2.0 } else { number });
        let eighth =
            changed(
                |at, number| {
                    if offsets.contains(&at) { cells / 2.0 + (number - cells / 2.0) / 4.0 } else { number }
                },
            );
        let wide = changed(|at, number| if directions.contains(&at) { number / 1.2 } else { number });
        let narrow = changed(|at, number| if directions.contains(&at) { number * 1.2 } else { number });
        let clamped = changed(|_, number| number).clamped();
        for (what, wrong) in
            [("offsets", one), ("range", eighth), ("wide", wide), ("narrow", narrow), ("clamped", clamped)]
        {
            assert!(error(&wrong) > 10.0, "{what}: {}", error(&wrong));
        }
    }

    #[test]
    fn clamped_values_share_a_bucket_as_stated() {
        let hashes = CompoundHashes::draw(&[0.0; DIM], SPREAD, DRAWN, 1, 5).clamped();
        let buckets = Buckets::new(hashes.cell().into(), 1, Ends::Clamped);
        for pair in pairs().map(|pair| Pair { off: pair.off.min(buckets.reach() as f32), ..pair }) {
            for level in 0..buckets.widths() {
                let (share, slack) = (share(&hashes, pair, level), 4.5 * 0.5 / (DRAWN as f64).sqrt());
                let distance = f64::from(pair.distance);
                assert!(share <= buckets.far(level, distance) + slack, "{pair:?} {level}: {share}");
                assert!(share >= buckets.near(level, distance) - slack, "{pair:?} {level}: {share}");
            }
        }
    }
}
