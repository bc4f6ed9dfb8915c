//! Halving one piece: two means on a sample, a projection of every vector, a cut at a whole number of units.

use super::project::{add, dot};
use super::{Placement, Points, read_all};
use bathyal_vectors::progress::Progress;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Vectors that the two means are found on: more moves the cut by less than the vectors' own scatter.
pub(super) const SAMPLE: usize = 1024;
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

/// The vectors of a small piece as floats, side by side: they are read from all over the set only once for all the
/// cuts that are still to come.
struct Gathered {
    rows: Vec<f32>,
    dim: usize,
}

impl Points for Gathered {
    fn dim(&self) -> usize {
        self.dim
    }

    fn read(&self, id: u32, out: &mut [f32]) {
        out.copy_from_slice(&self.rows[id as usize * self.dim..][..self.dim]);
    }

    fn project(&self, keys: &mut [(f32, u32)], normal: &[f32]) {
        for key in keys {
            key.0 = dot(&self.rows[key.1 as usize * self.dim..][..self.dim], normal);
        }
    }
}

/// What halving needs, reused from piece to piece.
pub(super) struct Halving<'a, P> {
    points: &'a P,
    placement: &'a Placement<'a>,
    /// The ids of a sample, and its vectors.
    drawn: Vec<u32>,
    sample: Vec<f32>,
    means: [Vec<f32>; 2],
    /// From the first mean to the second: the direction across the cut.
    pub(super) normal: Vec<f32>,
    side: Vec<(f32, u32)>,
    keys: Vec<(f32, u32)>,
    selected: Vec<(f32, u32)>,
}

/// A piece in two parts.
pub(super) struct Cut {
    /// Where the second part begins.
    pub(super) at: usize,
    /// The projection of the first vector beyond the cut; what lies below has a smaller one or the same.
    pub(super) threshold: f32,
}

impl<'a, P: Points> Halving<'a, P> {
    pub(super) fn new(points: &'a P, placement: &'a Placement<'a>) -> Self {
        let mean = || vec![0.0; points.dim()];
        Halving {
            points,
            placement,
            drawn: Vec::new(),
            sample: Vec::new(),
            means: [mean(), mean()],
            normal: mean(),
            side: Vec::new(),
            keys: Vec::new(),
            selected: Vec::new(),
        }
    }

    /// Orders one piece, whose ids rise, down to single units.
    pub(super) fn order(&mut self, path: u64, piece: &mut [u32], progress: &dyn Progress) {
        if piece.len() <= self.placement.least_unit() || progress.cancelled() {
            return;
        }
        if piece.len() <= SAMPLE {
            return self.order_gathered(path, piece);
        }
        let cut = self.cut(path, piece, 1).at;
        let (left, right) = piece.split_at_mut(cut);
        self.order(child(path, 0), left, progress);
        self.order(child(path, 1), right, progress);
    }

    fn order_gathered(&mut self, path: u64, piece: &mut [u32]) {
        let dim = self.points.dim();
        let mut rows = vec![0.0; piece.len() * dim];
        read_all(self.points, piece, &mut rows);
        let gathered = Gathered { rows, dim };
        let mut places: Vec<u32> = (0..piece.len() as u32).collect();
        Halving::new(&gathered, self.placement).order_all(path, &mut places);
        // Places rise with the ids, so they are cut as the ids would have been.
        let ids = piece.to_vec();
        piece.iter_mut().zip(places).for_each(|(id, place)| *id = ids[place as usize]);
    }

    fn order_all(&mut self, path: u64, piece: &mut [u32]) {
        if piece.len() > self.placement.least_unit() {
            let cut = self.cut(path, piece, 1).at;
            let (left, right) = piece.split_at_mut(cut);
            self.order_all(child(path, 0), left);
            self.order_all(child(path, 1), right);
        }
    }

    /// Reorders `piece`, which is longer than a unit and whose ids rise, so that its first part lies on one side of a
    /// plane; the ids of both parts rise.
    pub(super) fn cut(&mut self, path: u64, piece: &mut [u32], threads: usize) -> Cut {
        self.two_means(path, piece);
        let middle = self.turn();
        self.project(piece, threads);
        let before = self.keys.iter().filter(|key| key.0 < middle).count();
        let at = self.whole_units(piece.len(), before);
        self.selected.clear();
        self.selected.extend_from_slice(&self.keys);
        let (_, pivot, _) = self.selected.select_nth_unstable_by(at, |a, b| ordered(*a, *b));
        let pivot = *pivot;
        // Both parts stay in the order of their ids, so that the next level reads them forwards.
        let (left, right) = piece.split_at_mut(at);
        let (mut left, mut right) = (left.iter_mut(), right.iter_mut());
        for key in &self.keys {
            let slot = if ordered(*key, pivot).is_lt() { left.next() } else { right.next() };
            if let Some(slot) = slot {
                *slot = key.1;
            }
        }
        Cut { at, threshold: pivot.0 }
    }

    /// Sets the direction from mean to mean and returns where along it the middle between them lies. The largest
    /// coordinate of the direction is 1, so that products with numbers of any size neither overflow nor vanish.
    fn turn(&mut self) -> f32 {
        let [a, b] = &self.means;
        self.normal.iter_mut().zip(a.iter().zip(b)).for_each(|(n, (a, b))| *n = b - a);
        let largest = self.normal.iter().fold(0.0_f32, |largest, n| largest.max(n.abs()));
        if largest.is_normal() {
            self.normal.iter_mut().for_each(|n| *n /= largest);
        }
        let middle = a.iter().zip(b).map(|(a, b)| a * 0.5 + b * 0.5);
        self.normal.iter().zip(middle).map(|(n, m)| n * m).sum()
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

    fn project(&mut self, piece: &[u32], threads: usize) {
        self.keys.clear();
        self.keys.extend(piece.iter().map(|id| (0.0, *id)));
        let (points, normal) = (self.points, &self.normal[..]);
        let part = piece.len().div_ceil(threads).max(LEAST_A_THREAD);
        if part >= piece.len() {
            return points.project(&mut self.keys, normal);
        }
        std::thread::scope(|scope| {
            self.keys.chunks_mut(part).for_each(|keys| {
                scope.spawn(move || points.project(keys, normal));
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
        let mut drawn = |i| if count == piece.len() { i } else { random.random_range(0..piece.len()) };
        self.drawn.clear();
        self.drawn.extend((0..count).map(|i| piece[drawn(i)]));
        read_all(self.points, &self.drawn, &mut self.sample);
        let row = |i: usize| i * dim..(i + 1) * dim;
        let first = &self.sample[row(0)];
        let far = (0..count).map(|i| (squared(first, &self.sample[row(i)]), i));
        let far = far.fold((-1.0, 0), |x, y| if y.0 > x.0 { y } else { x });
        self.means[0].copy_from_slice(&self.sample[row(0)]);
        self.means[1].copy_from_slice(&self.sample[row(far.1)]);
        let mut before = None;
        for _ in 0..ROUNDS {
            let middle = self.turn();
            self.side.clear();
            let normal = &self.normal;
            self.side.extend((0..count).map(|i| (dot(&self.sample[row(i)], normal), i as u32)));
            let nearer = self.side.iter().filter(|side| side.0 < middle).count();
            let cut = nearer.clamp(count / 4, count - count / 4).clamp(1, count - 1);
            self.side.select_nth_unstable_by(cut, |x, y| ordered(*x, *y));
            for (mean, part) in self.means.iter_mut().zip([&self.side[..cut], &self.side[cut..]]) {
                mean.fill(0.0);
                part.iter().for_each(|(_, i)| add(mean, &self.sample[row(*i as usize)]));
                let share = 1.0 / part.len() as f32;
                mean.iter_mut().for_each(|m| *m *= share);
            }
            // The same vectors on each side as before: nothing would move any more.
            let members: u64 = self.side[..cut].iter().map(|side| u64::from(side.1).pow(2) + 1).sum();
            if before == Some(members) {
                break;
            }
            before = Some(members);
        }
    }
}

/// The order of projections, equal ones by id.
fn ordered(a: (f32, u32), b: (f32, u32)) -> std::cmp::Ordering {
    a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))
}

fn squared(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}
