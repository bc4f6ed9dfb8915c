//! Grows the graph: passes of insertions over an order of the vectors. Then lists are trimmed to the maximum
//! degree, and all vectors are made reachable.

use super::adjacency::Adjacency;
use super::insert::Inserter;
use super::options::GrowthOptions;
use super::repair;
use crate::allocate::try_with_capacity;
use crate::error::{IndexError, NoMemory};
use crate::partition::placement::Placement;
use crate::partition::space::Space;
use bathyal_vectors::progress::Progress;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Insertions between two checks for cancellation. One insertion takes well under a millisecond.
const CHECK_EVERY: usize = 32;
/// Most consecutive vectors that a thread inserts in one run. A run is long, so that threads work far from
/// each other and change different lists.
const MAX_RUN: usize = 4096;
/// Runs of each thread, at least, so that all threads end at about the same time.
const RUNS_PER_THREAD: usize = 16;
/// Divisor of the candidate list in the first pass, which only builds a graph for the second pass to search.
/// It then takes a third of the time, and the finished graph is as good.
const DRAFT_SHARE: u32 = 3;
/// Sweeps of a pass over the vectors. Each sweep inserts every `SWEEPS`-th vector of an order in which near
/// vectors follow each other. So an insertion finds in the caches what the previous one has read, but few of
/// the vectors that it should link to come right after it. Fewer sweeps reduce the recall on GloVe
/// (`docs/decisions/graph.md`).
const SWEEPS: usize = 64;
/// Vectors whose order among each other does not matter, because the data that they read stays in the caches.
pub(super) const TOGETHER: usize = 16;
/// Smallest candidate list of the first pass.
const MIN_DRAFT_LIST: u32 = 16;

/// A graph under construction.
pub(crate) struct Growth<'a> {
    pub(crate) space: &'a Space,
    pub(crate) graph: Adjacency,
    pub(crate) entry: u32,
    pub(crate) options: GrowthOptions,
    pub(crate) seed: u64,
    pub(crate) threads: usize,
    pub(crate) progress: &'a dyn Progress,
}

impl Growth<'_> {
    /// Returns the bytes that growing a graph of `count` vectors takes, without the vectors and their links.
    pub(crate) fn planned_bytes(count: u64, threads: u64) -> u64 {
        let walking = Inserter::planned_bytes(count) * threads;
        let ordering = Placement::KEY_BYTES * count;
        // The order of insertion is kept to the end.
        4 * count + ordering.max(4 * count).max(repair::planned_bytes(count) + walking)
    }

    /// Runs the two passes of Vamana over all vectors that are not in `held_out` (rising). Returns the order
    /// of insertion.
    pub(crate) fn passes(&self, held_out: &[u32]) -> Result<Vec<u32>, IndexError> {
        let order = self.split_into_sweeps(&self.near_order(held_out, vec![TOGETHER])?)?;
        let [draft, full] = self.search_lists();
        self.insert("first pass", &order, 1.0, draft)?;
        self.insert("second pass", &order, self.options.alpha, full)?;
        Ok(order)
    }

    /// Returns all vectors that are not in `held_out` (rising), with near ones beside each other in `units`
    /// (see
    /// [`Placement::units`]).
    pub(super) fn near_order(&self, held_out: &[u32], units: Vec<usize>) -> Result<Vec<u32>, IndexError> {
        let all = 0..self.space.count() as u32;
        let mut near: Vec<u32> = all.filter(|id| held_out.binary_search(id).is_err()).collect();
        self.progress.stage("ordering vectors", near.len() as u64);
        let (threads, seed) = (self.threads, self.seed);
        let placement = Placement { units, exchanged: None, threads, seed, card: None };
        placement.order(self.space, &mut near, self.progress)?;
        Ok(near)
    }

    /// Returns the vectors of `near` in [`SWEEPS`] sweeps. Each keeps the order of `near`, except the first,
    /// which is shuffled.
    pub(super) fn split_into_sweeps(&self, near: &[u32]) -> Result<Vec<u32>, IndexError> {
        let mut sweeps = try_with_capacity("the order of insertion", near.len())?;
        for first in 0..SWEEPS {
            sweeps.extend(near.iter().skip(first).step_by(SWEEPS));
            if first == 0 {
                sweeps.shuffle(&mut rand::rngs::StdRng::seed_from_u64(self.seed));
            }
        }
        Ok(sweeps)
    }

    /// Returns all vectors that are not in `held_out` (rising), shuffled.
    pub(super) fn shuffled(&self, held_out: &[u32]) -> Vec<u32> {
        let all = 0..self.space.count() as u32;
        let mut order: Vec<u32> = all.filter(|id| held_out.binary_search(id).is_err()).collect();
        order.shuffle(&mut rand::rngs::StdRng::seed_from_u64(self.seed));
        order
    }

    /// Returns the length of the candidate list of the first pass and of the second.
    pub(super) fn search_lists(&self) -> [u32; 2] {
        let full = self.options.search_list;
        [full.div_ceil(DRAFT_SHARE).max(MIN_DRAFT_LIST).min(full), full]
    }

    /// Inserts the vectors of `order`. Vectors that are in the graph already are connected again.
    pub(crate) fn insert(
        &self,
        name: &str,
        order: &[u32],
        alpha: f32,
        search_list: u32,
    ) -> Result<(), IndexError> {
        self.progress.stage(name, order.len() as u64);
        self.for_each((order, 0), search_list, |id, inserter| inserter.insert(id, alpha))
    }

    /// Prunes the lists to the maximum degree, and makes every vector of `order` reachable.
    pub(crate) fn finish(&self, order: &[u32]) -> Result<(), IndexError> {
        self.progress.stage("trimming", order.len() as u64);
        let limit = self.options.max_degree as usize;
        self.for_each((order, 0), self.options.search_list, |id, inserter| {
            if self.graph.degree(id) > limit {
                inserter.shrink(id, &[], self.options.alpha);
            }
        })?;
        let mut inserter = self.inserter(self.options.search_list)?;
        repair::connect(&self.graph, &mut inserter, order, self.entry, limit, self.progress)
    }

    /// Creates the state of a thread that searches and changes the graph.
    pub(crate) fn inserter(&self, search_list: u32) -> Result<Inserter<'_>, NoMemory> {
        Inserter::new(self.space, &self.graph, self.entry, self.options.max_degree, search_list)
    }

    /// Calls `work` for every id of `order` on all threads, each with its own inserter. A single thread
    /// follows the order. Progress is reported as if `before` ids had been done before.
    pub(super) fn for_each(
        &self,
        (order, before): (&[u32], usize),
        search_list: u32,
        work: impl Fn(u32, &mut Inserter<'_>) + Sync,
    ) -> Result<(), IndexError> {
        let (next, done, work) = (&AtomicUsize::new(0), &AtomicUsize::new(0), &work);
        let run = (order.len() / (self.threads * RUNS_PER_THREAD)).clamp(CHECK_EVERY, MAX_RUN);
        let progress = self.progress;
        let inserters = (0..self.threads.min(order.len())).map(|_| self.inserter(search_list));
        let inserters = inserters.collect::<Result<Vec<_>, _>>()?;
        std::thread::scope(|scope| {
            for mut inserter in inserters {
                scope.spawn(move || {
                    loop {
                        let start = next.fetch_add(run, Ordering::Relaxed);
                        if start >= order.len() {
                            return;
                        }
                        for ids in order[start..order.len().min(start + run)].chunks(CHECK_EVERY) {
                            if progress.cancelled() {
                                return;
                            }
                            ids.iter().for_each(|id| work(*id, &mut inserter));
                            let earlier = before + done.fetch_add(ids.len(), Ordering::Relaxed);
                            progress.advance((earlier + ids.len()) as u64);
                        }
                    }
                });
            }
        });
        if progress.cancelled() {
            return Err(IndexError::Cancelled);
        }
        progress.advance((before + order.len()) as u64);
        Ok(())
    }
}
