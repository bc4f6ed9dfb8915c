//! Halves one piece: two means on a sample, a projection of every vector, a cut at a whole number of units.

use super::project::{add, dot};
use super::{Placement, Points, read_all};
use bathyal_vectors::progress::Progress;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Vectors of the sample for the two means: more would move the cut by less than the vectors' own scatter.
pub(super) const SAMPLE: usize = 1024;
/// Rounds of two-means; further rounds change nothing.
const ROUNDS: usize = 6;
/// Smallest share of a piece on one side of a cut. A free cut follows the data, an even one keeps the tree
/// shallow.
const LEAST_SHARE: f64 = 0.3;
/// Fewest vectors that one thread projects.
const LEAST_A_THREAD: usize = 16_384;

/// Returns the path of a child in the tree of pieces. It seeds the child's sample, so the sample is the same
/// for any number of threads.
pub(super) fn child(path: u64, side: u64) -> u64 {
    (path ^ (side + 1)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

/// The vectors of a small piece as floats, side by side. They are read from the whole set only once for all
/// the cuts to come.
struct GatheredPoints {
    rows: Vec<f32>,
    dim: usize,
}

impl Points for GatheredPoints {
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

/// Memory for halving, reused from piece to piece.
pub(super) struct Halving<'a, P> {
    points: &'a P,
    placement: &'a Placement<'a>,
    /// The ids of the sample.
    sample_ids: Vec<u32>,
    /// The vectors of the sample, row-major.
    sample: Vec<f32>,
    means: [Vec<f32>; 2],
    /// The vector from the first mean to the second: the direction across the cut.
    pub(super) normal: Vec<f32>,
    side: Vec<(f32, u32)>,
    keys: Vec<(f32, u32)>,
    selected: Vec<(f32, u32)>,
}

/// The cut of a piece in two parts.
pub(super) struct Cut {
    /// The start of the second part.
    pub(super) at: usize,
    /// The projection of the first vector beyond the cut; vectors before the cut have a smaller or an equal
    /// one.
    pub(super) threshold: f32,
}

impl<'a, P: Points> Halving<'a, P> {
    pub(super) fn new(points: &'a P, placement: &'a Placement<'a>) -> Self {
        let mean = || vec![0.0; points.dim()];
        Halving {
            points,
            placement,
            sample_ids: Vec::new(),
            sample: Vec::new(),
            means: [mean(), mean()],
            normal: mean(),
            side: Vec::new(),
            keys: Vec::new(),
            selected: Vec::new(),
        }
    }

    /// Orders one piece, whose ids ascend, down to single units.
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
        let gathered = GatheredPoints { rows, dim };
        let mut places: Vec<u32> = (0..piece.len() as u32).collect();
        Halving::new(&gathered, self.placement).order_all(path, &mut places);
        // Places ascend with the ids, so they are cut as the ids would be.
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

    /// Reorders `piece`, which is longer than a unit and whose ids ascend, so that its first part is on one
    /// side of a plane. The ids of both parts ascend.
    pub(super) fn cut(&mut self, path: u64, piece: &mut [u32], threads: usize) -> Cut {
        self.two_means(path, piece);
        let middle = self.set_normal();
        self.project(piece, threads);
        let before = self.keys.iter().filter(|key| key.0 < middle).count();
        let at = self.whole_units(piece.len(), before);
        self.selected.clear();
        self.selected.extend_from_slice(&self.keys);
        let (_, pivot, _) = self.selected.select_nth_unstable_by(at, |a, b| compare_keys(*a, *b));
        let pivot = *pivot;
        // Both parts keep the order of their ids, so that the next level reads vectors in file order.
        let (left, right) = piece.split_at_mut(at);
        let (mut left, mut right) = (left.iter_mut(), right.iter_mut());
        for key in &self.keys {
            let slot = if compare_keys(*key, pivot).is_lt() { left.next() } else { right.next() };
            if let Some(slot) = slot {
                *slot = key.1;
            }
        }
        Cut { at, threshold: pivot.0 }
    }

    /// Sets the direction from mean to mean, and returns the position of the middle between them along it.
    /// The largest coordinate of the direction is 1, so that products with numbers of any size neither
    /// overflow nor vanish.
    fn set_normal(&mut self) -> f32 {
        let [a, b] = &self.means;
        self.normal.iter_mut().zip(a.iter().zip(b)).for_each(|(n, (a, b))| *n = b - a);
        let largest = self.normal.iter().fold(0.0_f32, |largest, n| largest.max(n.abs()));
        if largest.is_normal() {
            self.normal.iter_mut().for_each(|n| *n /= largest);
        }
        let middle = a.iter().zip(b).map(|(a, b)| a * 0.5 + b * 0.5);
        self.normal.iter().zip(middle).map(|(n, m)| n * m).sum()
    }

    /// Returns the whole number of units nearest to `wanted` vectors that makes neither side too small. The
    /// units are the largest that the piece has more than one of.
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

    /// Finds two means of a sample of `piece`. They start from one vector and the vector farthest from it.
    /// Neither side ever has less than a quarter of the sample, so that outliers do not become a side.
    fn two_means(&mut self, path: u64, piece: &[u32]) {
        let dim = self.points.dim();
        let mut random = StdRng::seed_from_u64(self.placement.seed ^ path);
        let count = piece.len().min(SAMPLE);
        self.sample.resize(count * dim, 0.0);
        let mut draw = |i| if count == piece.len() { i } else { random.random_range(0..piece.len()) };
        self.sample_ids.clear();
        self.sample_ids.extend((0..count).map(|i| piece[draw(i)]));
        read_all(self.points, &self.sample_ids, &mut self.sample);
        let row = |i: usize| i * dim..(i + 1) * dim;
        let first = &self.sample[row(0)];
        let far = (0..count).map(|i| (squared(first, &self.sample[row(i)]), i));
        let far = far.fold((-1.0, 0), |x, y| if y.0 > x.0 { y } else { x });
        self.means[0].copy_from_slice(&self.sample[row(0)]);
        self.means[1].copy_from_slice(&self.sample[row(far.1)]);
        let mut before = None;
        for _ in 0..ROUNDS {
            let middle = self.set_normal();
            self.side.clear();
            let normal = &self.normal;
            self.side.extend((0..count).map(|i| (dot(&self.sample[row(i)], normal), i as u32)));
            let nearer = self.side.iter().filter(|side| side.0 < middle).count();
            let cut = nearer.clamp(count / 4, count - count / 4).clamp(1, count - 1);
            self.side.select_nth_unstable_by(cut, |x, y| compare_keys(*x, *y));
            for (mean, part) in self.means.iter_mut().zip([&self.side[..cut], &self.side[cut..]]) {
                mean.fill(0.0);
                part.iter().for_each(|(_, i)| add(mean, &self.sample[row(*i as usize)]));
                let share = 1.0 / part.len() as f32;
                mean.iter_mut().for_each(|m| *m *= share);
            }
            // Each side has the same vectors as before, so nothing would change any more.
            let members: u64 = self.side[..cut].iter().map(|side| u64::from(side.1).pow(2) + 1).sum();
            if before == Some(members) {
                break;
            }
            before = Some(members);
        }
    }
}

/// Compares projections, equal ones by id.
fn compare_keys(a: (f32, u32), b: (f32, u32)) -> std::cmp::Ordering {
    a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))
}

fn squared(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum()
}
