//! Placement: an order in which near vectors are close together.
//!
//! A page is read at once, and a group is scanned at once, so both index families place their vectors in this
//! order. It comes from halving: two means are found on a sample, the vectors are sorted by the nearer mean,
//! and the cut is moved to a whole number of units, so that in the end every unit is full (balanced
//! clustering, as in SPANN, section 3.2.1, at the cost of one projection per vector and level). Groups may
//! then exchange members ([`exchange`]), which makes them as compact as those of k-means.

pub(crate) mod exchange;
mod halve;
mod on_card;
pub(crate) mod planes;
pub(crate) mod project;
#[cfg(test)]
mod tests;

use crate::error::IndexError;
use bathyal_gpu::Card;
use bathyal_vectors::progress::Progress;
use halve::Halving;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Pieces per thread in the second phase: enough that all threads end at about the same time.
const PIECES_A_THREAD: usize = 16;

/// A vector is prefetched this many reads ahead: some memory latencies pass meanwhile.
pub(crate) const READS_AHEAD: usize = 16;

/// Vectors that can be placed.
pub(crate) trait Points: Sync {
    /// Returns the number of coordinates.
    fn dim(&self) -> usize;
    /// Writes the coordinates of vector `id` to `out` (`dim` values).
    fn read(&self, id: u32, out: &mut [f32]);
    /// Prefetches vector `id` into the caches, as a hint that it will be read soon.
    fn expect(&self, _id: u32) {}
    /// Sets each key to the product of its vector with `normal` (`dim` values).
    fn project(&self, keys: &mut [(f32, u32)], normal: &[f32]) {
        let mut row = vec![0.0; self.dim()];
        for key in keys {
            self.read(key.1, &mut row);
            key.0 = project::dot(&row, normal);
        }
    }
}

/// Reads the vectors `ids` into `rows`, row-major (ids x dim).
fn read_all(points: &impl Points, ids: &[u32], rows: &mut [f32]) {
    ids.iter().take(READS_AHEAD).for_each(|id| points.expect(*id));
    for (at, (id, row)) in ids.iter().zip(rows.chunks_exact_mut(points.dim())).enumerate() {
        if let Some(later) = ids.get(at + READS_AHEAD) {
            points.expect(*later);
        }
        points.read(*id, row);
    }
}

/// The parameters of an order.
#[derive(Debug, Clone)]
pub(crate) struct Placement<'a> {
    /// Sizes of the units, by ascending level (pages, groups of pages, runs of groups). Each is a multiple of
    /// the one before. Counted from the first vector, every unit of every level is full; only the last may
    /// have fewer vectors.
    pub(crate) units: Vec<usize>,
    /// The size of the units that exchange members; one of `units`.
    pub(crate) exchanged: Option<usize>,
    /// Number of threads.
    pub(crate) threads: usize,
    /// Seed of the samples. The order depends on the seed and not on the threads.
    pub(crate) seed: u64,
    /// A graphics card that speeds up the exchange; the order does not depend on it.
    pub(crate) card: Option<&'a dyn Card>,
}

impl Placement<'_> {
    /// Bytes per vector while the largest piece is cut.
    pub(crate) const KEY_BYTES: u64 = 16;

    /// Returns the size of the smallest unit.
    fn least_unit(&self) -> usize {
        self.units.first().map_or(1, |unit| (*unit).max(1))
    }

    /// Permutes `ids`, which ascend, so that near vectors are close together.
    ///
    /// # Errors
    /// [`IndexError::Cancelled`], and errors of the card.
    pub(crate) fn order(
        &self,
        points: &impl Points,
        ids: &mut [u32],
        progress: &dyn Progress,
    ) -> Result<(), IndexError> {
        let Some(unit) = self.exchanged.filter(|unit| *unit < ids.len()) else {
            return self.halve(points, ids, progress);
        };
        let threads = self.threads.max(1);
        let (coarse, fine): (Vec<usize>, _) = self.units.iter().partition(|other| **other >= unit);
        let third = |number| ThirdOfProgress { all: progress, number, count: ids.len() as u64 };
        let [halving, exchanging, within] = [0, 1, 2].map(third);
        Placement { units: coarse, exchanged: None, ..*self }.halve(points, ids, &halving)?;
        exchange::exchange(points, ids, unit, (threads, self.card), &exchanging)?;
        Placement { units: fine, exchanged: None, ..*self }.order_within(points, ids, unit, &within)
    }

    /// Orders each unit of `unit` ids on its own.
    fn order_within(
        &self,
        points: &impl Points,
        ids: &mut [u32],
        unit: usize,
        progress: &dyn Progress,
    ) -> Result<(), IndexError> {
        let part = ids.len().div_ceil(unit).div_ceil(self.threads.max(1)) * unit;
        std::thread::scope(|scope| {
            for ids in ids.chunks_mut(part) {
                scope.spawn(|| {
                    let mut halving = Halving::new(points, self);
                    for ids in ids.chunks_mut(unit).take_while(|_| !progress.cancelled()) {
                        // Halving requires ascending ids.
                        ids.sort_unstable();
                        if !self.units.is_empty() {
                            halving.order(1, ids, progress);
                        }
                    }
                });
            }
        });
        if progress.cancelled() { Err(IndexError::Cancelled) } else { Ok(()) }
    }

    /// Halves pieces until every unit is full.
    fn halve(
        &self,
        points: &impl Points,
        ids: &mut [u32],
        progress: &dyn Progress,
    ) -> Result<(), IndexError> {
        let count = ids.len();
        let threads = self.threads.max(1);
        let done = AtomicUsize::new(0);
        let finished = |vectors: usize| {
            let before = done.fetch_add(vectors, Ordering::Relaxed);
            progress.advance((before + vectors) as u64);
        };
        // All threads cut large pieces one after the other; small pieces are cut by one thread each.
        let small = (count / (PIECES_A_THREAD * threads)).max(self.least_unit());
        let pieces = Mutex::new(Vec::new());
        let mut large = vec![(0_u64, ids)];
        let mut halving = Halving::new(points, self);
        while let Some((path, piece)) = large.pop() {
            if progress.cancelled() {
                return Err(IndexError::Cancelled);
            }
            if piece.len() <= small {
                if let Ok(mut pieces) = pieces.lock() {
                    pieces.push((path, piece));
                }
                continue;
            }
            let cut = halving.cut(path, piece, threads).at;
            let (left, right) = piece.split_at_mut(cut);
            large.push((halve::child(path, 0), left));
            large.push((halve::child(path, 1), right));
        }
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let mut halving = Halving::new(points, self);
                    let next = || pieces.lock().ok().and_then(|mut pieces| pieces.pop());
                    while let Some((path, piece)) = next() {
                        let length = piece.len();
                        halving.order(path, piece, progress);
                        if progress.cancelled() {
                            return;
                        }
                        finished(length);
                    }
                });
            }
        });
        if progress.cancelled() { Err(IndexError::Cancelled) } else { Ok(()) }
    }
}

/// The progress of one third of the work.
struct ThirdOfProgress<'a> {
    all: &'a dyn Progress,
    /// The number of the third: 0, 1 or 2.
    number: u64,
    /// Number of vectors, the work of each third.
    count: u64,
}

impl Progress for ThirdOfProgress<'_> {
    fn stage(&self, _name: &str, _total: u64) {}

    fn advance(&self, done: u64) {
        self.all.advance((self.number * self.count + done) / 3);
    }

    fn cancelled(&self) -> bool {
        self.all.cancelled()
    }
}
