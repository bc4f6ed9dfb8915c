//! Halving one piece: two means on a sample, a projection of every vector, a cut at a whole number of units.

use super::{Placement, Points};
use crate::progress::Progress;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Vectors that the two means are found on: more moves the cut by less than the vectors' own scatter.
const SAMPLE: usize = 1024;
/// Rounds of two-means; later ones move nothing.
const ROUNDS: usize = 6;
/// Smallest share of a piece that a cut leaves on one side. A free cut follows the data, an even one keeps the
/// tree shallow.
const LEAST_SHARE: f64 = 0.3;
/// Vectors that one thread projects at least.
const LEAST_A_THREAD: usize = 16_384;

/// The place of a child in the tree of pieces, from which its sample is drawn: the same for any number of threads.
pub(super) fn child(path: u64, side: u64) -> u64 {
    (path ^ (side + 1)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

/// What halving needs, reused from piece to piece.
pub(super) struct Halving<'a, P> {
    points: &'a P,
    placement: &'a Placement,
    sample: Vec<f32>,
    means: [Vec<f32>; 2],
    side: Vec<(f32, u32)>,
    keys: Vec<(f32, u32)>,
}

impl<'a, P: Points> Halving<'a, P> {
    pub(super) fn new(points: &'a P, placement: &'a Placement) -> Self {
        let mean = || vec![0.0; points.dim()];
        Halving {
            points,
            placement,
            sample: Vec::new(),
            means: [mean(), mean()],
            side: Vec::new(),
            keys: Vec::new(),
        }
    }

    /// Orders one piece down to single units.
    pub(super) fn order(&mut self, path: u64, piece: &mut [u32], progress: &dyn Progress) {
        if piece.len() <= self.placement.least_unit() || progress.cancelled() {
            return;
        }
        let cut = self.cut(path, piece, 1);
        let (left, right) = piece.split_at_mut(cut);
        self.order(child(path, 0), left, progress);
        self.order(child(path, 1), right, progress);
    }

    /// Reorders `piece`, which is longer than a unit, so that its first part lies on one side of a plane; returns
    /// where the second part begins.
    pub(super) fn cut(&mut self, path: u64, piece: &mut [u32], threads: usize) -> usize {
        self.two_means(path, piece);
        let [a, b] = &self.means;
        let normal: Vec<f32> = a.iter().zip(b).map(|(a, b)| b - a).collect();
        let middle = a.iter().zip(b).map(|(a, b)| (b * b - a * a) * 0.5).sum::<f32>();
        self.project(piece, &normal, threads);
        let before = self.keys.iter().filter(|key| key.0 < middle).count();
        let cut = self.whole_units(piece.len(), before);
        self.keys.select_nth_unstable_by(cut, |a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        // The parts are put into the order of their ids, so that the next level reads them forwards.
        self.keys[..cut].sort_unstable_by_key(|key| key.1);
        self.keys[cut..].sort_unstable_by_key(|key| key.1);
        piece.iter_mut().zip(&self.keys).for_each(|(id, key)| *id = key.1);
        cut
    }

    /// The whole number of units, of the largest kind that the piece has more than one of, nearest to `wanted` that
    /// leaves neither side too small.
    fn whole_units(&self, length: usize, wanted: usize) -> usize {
        let fitting = self.placement.units.iter().rev().find(|unit| length > **unit);
        let step = fitting.map_or(self.placement.least_unit(), |unit| (*unit).max(1));
        let steps = length.div_ceil(step);
        let low = ((steps as f64 * LEAST_SHARE) as usize).max(1);
        let high = (steps - 1).min((steps as f64 * (1.0 - LEAST_SHARE)).ceil() as usize).max(low);
        ((wanted as f64 / step as f64).round() as usize).clamp(low, high) * step
    }

    fn project(&mut self, piece: &[u32], normal: &[f32], threads: usize) {
        self.keys.clear();
        self.keys.extend(piece.iter().map(|id| (0.0, *id)));
        let points = self.points;
        let project = |keys: &mut [(f32, u32)]| {
            let mut row = vec![0.0; points.dim()];
            for key in keys {
                points.read(key.1, &mut row);
                key.0 = dot(&row, normal);
            }
        };
        let part = piece.len().div_ceil(threads).max(LEAST_A_THREAD);
        if part >= piece.len() {
            return project(&mut self.keys);
        }
        let project = &project;
        std::thread::scope(|scope| {
            self.keys.chunks_mut(part).for_each(|keys| {
                scope.spawn(move || project(keys));
            });
        });
    }

    /// Two means of a sample of `piece`: from a vector and the one farthest from it, with neither side ever below a
    /// quarter, so that outliers do not become a side.
    fn two_means(&mut self, path: u64, piece: &[u32]) {
        let dim = self.points.dim();
        let mut random = StdRng::seed_from_u64(self.placement.seed ^ path);
        let count = piece.len().min(SAMPLE);
        self.sample.resize(count * dim, 0.0);
        for (i, row) in self.sample.chunks_exact_mut(dim).enumerate() {
            let at = if count == piece.len() { i } else { random.random_range(0..piece.len()) };
            self.points.read(piece[at], row);
        }
        let sample = &self.sample[..];
        let row = |i: usize| &sample[i * dim..(i + 1) * dim];
        let [a, b] = &mut self.means;
        a.copy_from_slice(row(0));
        let far =
            (0..count).map(|i| (squared(a, row(i)), i)).fold((-1.0, 0), |x, y| if y.0 > x.0 { y } else { x });
        b.copy_from_slice(row(far.1));
        for _ in 0..ROUNDS {
            self.side.clear();
            self.side.extend((0..count).map(|i| (squared(a, row(i)) - squared(b, row(i)), i as u32)));
            self.side.sort_unstable_by(|x, y| x.0.total_cmp(&y.0).then(x.1.cmp(&y.1)));
            let nearer = self.side.partition_point(|s| s.0 < 0.0);
            let cut = nearer.clamp(count / 4, count - count / 4).clamp(1, count - 1);
            for (mean, part) in [(&mut *a, &self.side[..cut]), (&mut *b, &self.side[cut..])] {
                mean.fill(0.0);
                for (_, i) in part {
                    mean.iter_mut().zip(row(*i as usize)).for_each(|(m, v)| *m += v);
                }
                let share = 1.0 / part.len() as f32;
                mean.iter_mut().for_each(|m| *m *= share);
            }
        }
    }
}

/// Sums in 16 lanes, which the compiler turns into vectors.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    sum_lanes(a, b, |a, b| a * b)
}

fn squared(a: &[f32], b: &[f32]) -> f32 {
    sum_lanes(a, b, |a, b| (a - b) * (a - b))
}

fn sum_lanes(a: &[f32], b: &[f32], term: impl Fn(f32, f32) -> f32) -> f32 {
    let (a_lanes, a_rest) = a.as_chunks::<16>();
    let (b_lanes, b_rest) = b.as_chunks::<16>();
    let mut sums = [0.0_f32; 16];
    for (a, b) in a_lanes.iter().zip(b_lanes) {
        for lane in 0..16 {
            sums[lane] += term(a[lane], b[lane]);
        }
    }
    sums.iter().sum::<f32>() + a_rest.iter().zip(b_rest).map(|(a, b)| term(*a, *b)).sum::<f32>()
}
