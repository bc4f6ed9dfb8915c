//! Placement: an order of the vectors in which near ones lie together.
//!
//! What shares a page is read at once, and what shares a group is scanned at once, so both index families place
//! their vectors by this order. It comes from halving: two means are found on a sample, the vectors are sorted by
//! which mean is nearer, and the cut is moved to a whole number of units, so that in the end every unit is full
//! (balanced clustering as SPANN, section 3.2.1, wants it, at the cost of one projection a vector and level). Groups may
//! then exchange members ([`exchange`]), which brings them as near together as k-means would.

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

/// Pieces a thread of the second phase: enough that the threads end together.
const PIECES_A_THREAD: usize = 16;

/// Reads of vectors before which one is asked for: some latencies of memory pass meanwhile.
pub(crate) const READS_AHEAD: usize = 16;

/// Vectors that can be placed.
pub(crate) trait Points: Sync {
    /// Number of coordinates.
    fn dim(&self) -> usize;
    /// Writes the coordinates of vector `id` to `out` (`dim` values).
    fn read(&self, id: u32, out: &mut [f32]);
    /// Says that vector `id` will be read soon, so that it is fetched into the caches meanwhile; a hint.
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

/// Reads some vectors into `rows`, row-major.
fn read_all(points: &impl Points, ids: &[u32], rows: &mut [f32]) {
    ids.iter().take(READS_AHEAD).for_each(|id| points.expect(*id));
    for (at, (id, row)) in ids.iter().zip(rows.chunks_exact_mut(points.dim())).enumerate() {
        if let Some(later) = ids.get(at + READS_AHEAD) {
            points.expect(*later);
        }
        points.read(*id, row);
    }
}

/// How vectors are placed.
#[derive(Debug, Clone)]
pub(crate) struct Placement<'a> {
    /// Vectors that belong together, by rising level (pages, groups of pages, runs of groups), each number a multiple
    /// of the one before. Counted from the first vector, every unit of every level is full; only the last may have fewer.
    pub(crate) units: Vec<usize>,
    /// Of these, the units that exchange members.
    pub(crate) exchanged: Option<usize>,
    /// Threads.
    pub(crate) threads: usize,
    /// Seed of the samples. The order depends on it and not on the threads.
    pub(crate) seed: u64,
    /// What helps to exchange members; the order does not depend on it.
    pub(crate) card: Option<&'a dyn Card>,
}

impl Placement<'_> {
    /// Bytes a vector while the largest piece is cut.
    pub(crate) const KEY_BYTES: u64 = 16;

    /// Vectors of the smallest unit.
    fn least_unit(&self) -> usize {
        self.units.first().map_or(1, |unit| (*unit).max(1))
    }

    /// Permutes `ids`, which rise, so that near vectors lie together.
    ///
    /// # Errors
    /// [`IndexError::Cancelled`], and what goes wrong with the card.
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
        let third = |number| Third { all: progress, number, count: ids.len() as u64 };
        let [halving, exchanging, within] = [0, 1, 2].map(third);
        Placement { units: coarse, exchanged: None, ..*self }.halve(points, ids, &halving)?;
        exchange::exchange(points, ids, unit, (threads, self.card), &exchanging)?;
        Placement { units: fine, exchanged: None, ..*self }.order_within(points, ids, unit, &within)
    }

    /// Orders each `unit` of `ids` for itself.
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
                        // What is halved rises.
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

    /// Halves until every unit is full.
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
        // Large pieces are cut one after the other by all threads, small ones side by side by one thread each.
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

/// A third of the work.
struct Third<'a> {
    all: &'a dyn Progress,
    /// 0, 1 or 2.
    number: u64,
    /// All that is to be done.
    count: u64,
}

impl Progress for Third<'_> {
    fn stage(&self, _name: &str, _total: u64) {}

    fn advance(&self, done: u64) {
        self.all.advance((self.number * self.count + done) / 3);
    }

    fn cancelled(&self) -> bool {
        self.all.cancelled()
    }
}
