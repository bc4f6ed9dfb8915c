//! Growing the graph: passes of insertion over an order of vectors, then lists trimmed and all connected.

use super::adjacency::Adjacency;
use super::insert::Inserter;
use super::options::GraphOptions;
use super::repair;
use crate::allocate::try_with_capacity;
use crate::error::{IndexError, NoMemory};
use crate::partition::placement::Placement;
use crate::partition::space::Space;
use bathyal_vectors::progress::Progress;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Insertions between two looks at cancellation: each takes well under a millisecond.
const CHECK_EVERY: usize = 32;
/// Most insertions that a thread makes one after the other of vectors that are near each other, and the least share of a
/// thread's: far enough from those of other threads to change other lists, and few enough that all end together.
const MOST_RUN: usize = 4096;
const RUNS_A_THREAD: usize = 16;
/// The first pass only drafts a graph for the second to search: with this share of the candidates it takes a
/// third of the time, and the finished graph answers as well.
const DRAFT_SHARE: u32 = 3;
/// A pass sweeps over the set so many times, as near vectors follow each other, and inserts others each time: what one
/// insertion has read the next finds in the caches, and yet few of those that it should link to come right after it. Fewer
/// sweeps cost recall on GloVe (docs/decisions/graph.md).
const SWEEPS: usize = 64;
/// Vectors whose order among each other does not matter: what they read stays in the caches.
pub(super) const TOGETHER: usize = 16;
/// Candidates of the first pass at least.
const DRAFT_LEAST: u32 = 16;

/// A graph under construction.
pub(crate) struct Growth<'a> {
    pub(crate) space: &'a Space,
    pub(crate) graph: Adjacency,
    pub(crate) entry: u32,
    pub(crate) options: &'a GraphOptions,
    pub(crate) seed: u64,
    pub(crate) threads: usize,
    pub(crate) progress: &'a dyn Progress,
}

impl Growth<'_> {
    /// Bytes that growing a graph of `count` vectors takes besides these and their links.
    pub(crate) fn planned_bytes(count: u64, threads: u64) -> u64 {
        let walking = Inserter::planned_bytes(count) * threads;
        let ordering = Placement::KEY_BYTES * count;
        // The order stays to the end.
        4 * count + ordering.max(4 * count).max(repair::planned_bytes(count) + walking)
    }

    /// The two passes of Vamana over all vectors but those `held_out` (rising).
    pub(crate) fn passes(&self, held_out: &[u32]) -> Result<Vec<u32>, IndexError> {
        let order = self.sweeps(&self.near(held_out, vec![TOGETHER])?)?;
        let [draft, full] = self.search_lists();
        self.insert("first pass", &order, 1.0, draft)?;
        self.insert("second pass", &order, self.options.alpha, full)?;
        Ok(order)
    }

    /// All vectors but those `held_out` (rising), near ones beside each other in `units` (see [`Placement::units`]).
    pub(super) fn near(&self, held_out: &[u32], units: Vec<usize>) -> Result<Vec<u32>, IndexError> {
        let all = 0..self.space.count() as u32;
        let mut near: Vec<u32> = all.filter(|id| held_out.binary_search(id).is_err()).collect();
        self.progress.stage("ordering vectors", near.len() as u64);
        let (threads, seed) = (self.threads, self.seed);
        let placement = Placement { units, exchanged: None, threads, seed, card: None };
        placement.order(self.space, &mut near, self.progress)?;
        Ok(near)
    }

    /// The vectors of `near` in sweeps over all of them, each as they follow each other there. The first is shuffled.
    pub(super) fn sweeps(&self, near: &[u32]) -> Result<Vec<u32>, IndexError> {
        let mut sweeps = try_with_capacity("the order of insertion", near.len())?;
        for first in 0..SWEEPS {
            sweeps.extend(near.iter().skip(first).step_by(SWEEPS));
            if first == 0 {
                sweeps.shuffle(&mut rand::rngs::StdRng::seed_from_u64(self.seed));
            }
        }
        Ok(sweeps)
    }

    /// All vectors but those `held_out` (rising), shuffled.
    pub(super) fn shuffled(&self, held_out: &[u32]) -> Vec<u32> {
        let all = 0..self.space.count() as u32;
        let mut order: Vec<u32> = all.filter(|id| held_out.binary_search(id).is_err()).collect();
        order.shuffle(&mut rand::rngs::StdRng::seed_from_u64(self.seed));
        order
    }

    /// Candidates of the first pass and of the second.
    pub(super) fn search_lists(&self) -> [u32; 2] {
        let full = self.options.search_list;
        [full.div_ceil(DRAFT_SHARE).max(DRAFT_LEAST).min(full), full]
    }

    /// Inserts the vectors of `order`, or connects them anew.
    pub(crate) fn insert(
        &self,
        name: &str,
        order: &[u32],
        alpha: f32,
        search_list: u32,
    ) -> Result<(), IndexError> {
        self.progress.stage(name, order.len() as u64);
        self.each((order, 0), search_list, |id, inserter| inserter.insert(id, alpha))
    }

    /// Prunes lists back to the maximum degree and makes every vector of `order` reachable.
    pub(crate) fn finish(&self, order: &[u32]) -> Result<(), IndexError> {
        self.progress.stage("trimming", order.len() as u64);
        let limit = self.options.max_degree as usize;
        self.each((order, 0), self.options.search_list, |id, inserter| {
            if self.graph.degree(id) > limit {
                inserter.shrink(id, &[], self.options.alpha);
            }
        })?;
        let mut inserter = self.inserter(self.options.search_list)?;
        repair::connect(&self.graph, &mut inserter, order, self.entry, limit, self.progress)
    }

    /// What a thread searches and changes the graph with.
    pub(crate) fn inserter(&self, search_list: u32) -> Result<Inserter<'_>, NoMemory> {
        Inserter::new(self.space, &self.graph, self.entry, self.options.max_degree, search_list)
    }

    /// Runs `work` for every id of `order` on all threads, each with a state of its own. In order on one. So many are done `before`.
    pub(super) fn each(
        &self,
        (order, before): (&[u32], usize),
        search_list: u32,
        work: impl Fn(u32, &mut Inserter<'_>) + Sync,
    ) -> Result<(), IndexError> {
        let (next, done, work) = (&AtomicUsize::new(0), &AtomicUsize::new(0), &work);
        let run = (order.len() / (self.threads * RUNS_A_THREAD)).clamp(CHECK_EVERY, MOST_RUN);
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
