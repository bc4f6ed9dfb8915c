//! The greedy walk through a graph in memory (DiskANN, algorithm 1), for builds and for searches of
//! centroids.

use crate::allocate::try_zeros;
use crate::error::NoMemory;
use crate::query::visited::VisitedSet;
use bathyal_kernels::{CandidateList, Neighbor};

/// Vectors that are scored at once by [`Walk::look_at_all`].
const AT_ONCE: usize = 1024;

/// The links of a graph in memory.
pub(crate) trait Links {
    /// Returns the vectors that `id` links to.
    fn links(&self, id: u32) -> impl Iterator<Item = u32> + '_;

    /// Prefetches the links of `id` into the processor's caches.
    fn prefetch(&self, id: u32);
}

/// The vectors that a walk has visited.
pub(crate) trait Visited {
    /// Removes all vectors.
    fn clear(&mut self);

    /// Adds `ids`. Writes those that were not visited before to the front of `new`, which grows as needed,
    /// and returns their number.
    fn admit(&mut self, ids: impl Iterator<Item = u32>, new: &mut Vec<u32>) -> usize;
}

/// For searches: the memory does not depend on the number of vectors.
impl Visited for VisitedSet {
    fn clear(&mut self) {
        VisitedSet::clear(self);
    }

    #[inline]
    fn admit(&mut self, ids: impl Iterator<Item = u32>, new: &mut Vec<u32>) -> usize {
        new.clear();
        new.extend(ids.filter(|id| self.insert(*id)));
        new.len()
    }
}

/// One byte for each vector: the number of the last walk that has visited it. Numbers go from 1 to 255 and
/// start again. For builds: consecutive walks touch the same bytes, and the branches of a hash set would be
/// unpredictable.
#[derive(Debug, Clone)]
pub(crate) struct VisitedBytes {
    /// The number of the last walk that has visited each vector.
    walks: Vec<u8>,
    /// The number of the current walk; 0 before the first.
    current_walk: u8,
}

impl VisitedBytes {
    /// Creates the bytes for ids below `count`.
    pub(crate) fn new(count: usize) -> Result<VisitedBytes, NoMemory> {
        Ok(VisitedBytes { walks: try_zeros("the visited vectors of a walk", count)?, current_walk: 0 })
    }
}

impl Visited for VisitedBytes {
    fn clear(&mut self) {
        self.current_walk = self.current_walk.wrapping_add(1);
        if self.current_walk == 0 {
            self.walks.fill(0);
            self.current_walk = 1;
        }
    }

    #[inline]
    fn admit(&mut self, ids: impl Iterator<Item = u32>, new: &mut Vec<u32>) -> usize {
        let mut count = 0;
        for id in ids {
            if count == new.len() {
                new.push(0);
            }
            // Half of the ids are new, at random. Writing in any case avoids an unpredictable branch.
            new[count] = id;
            let walk = &mut self.walks[id as usize];
            count += usize::from(*walk != self.current_walk);
            *walk = self.current_walk;
        }
        count
    }
}

/// Buffers of a walk, which later walks reuse.
#[derive(Debug, Clone)]
pub(crate) struct Walk<S = VisitedSet> {
    candidates: CandidateList,
    visited: S,
    ids: Vec<u32>,
    scores: Vec<f32>,
}

impl Walk {
    /// Allocates a list of `search_list` candidates, for a graph with the maximum degree `max_degree`.
    pub(crate) fn new(search_list: usize, max_degree: usize) -> Walk {
        Walk::with_visited(search_list, VisitedSet::new(search_list * max_degree / 2))
    }
}

impl<S: Visited> Walk<S> {
    /// Allocates a list of `search_list` candidates, with a given set of visited vectors.
    pub(crate) fn with_visited(search_list: usize, visited: S) -> Walk<S> {
        Walk { candidates: CandidateList::new(search_list), visited, ids: Vec::new(), scores: Vec::new() }
    }

    /// Walks from `entry` with a list of `search_list` candidates. `score` computes the distances to some
    /// ids, and `expanded` is called with each vector whose links are followed. Returns the number of
    /// distances computed.
    pub(crate) fn run(
        &mut self,
        links: &impl Links,
        entry: u32,
        search_list: usize,
        mut score: impl FnMut(&[u32], &mut [f32]),
        mut expanded: impl FnMut(Neighbor),
    ) -> usize {
        self.candidates.reset(search_list);
        self.visited.clear();
        self.visited.admit(std::iter::once(entry), &mut self.ids);
        let mut first = [0.0];
        score(&[entry], &mut first);
        self.candidates.insert(Neighbor { distance: first[0], id: entry });
        let mut scored = 1;
        while let Some(nearest) = self.candidates.next_unexpanded() {
            expanded(nearest);
            let new = self.visited.admit(links.links(nearest.id), &mut self.ids);
            // Waiting for the next list took a third of this loop's time. Prefetch the list that is probably
            // next.
            if let Some(runner_up) = self.candidates.peek_unexpanded() {
                links.prefetch(runner_up.id);
            }
            if self.scores.len() < new {
                self.scores.resize(new, 0.0);
            }
            let (ids, scores) = (&self.ids[..new], &mut self.scores[..new]);
            score(ids, scores);
            scored += new;
            if let Some(at) = position_of_least(scores) {
                links.prefetch(ids[at]);
            }
            for (neighbor, distance) in ids.iter().zip(scores) {
                if *distance <= self.candidates.threshold() {
                    self.candidates.insert(Neighbor { distance: *distance, id: *neighbor });
                }
            }
        }
        scored
    }

    /// Scores all `count` vectors, and keeps the nearest `search_list` as candidates, for a graph whose links
    /// do not lead to as many. Returns the number of distances computed.
    pub(crate) fn look_at_all(
        &mut self,
        count: usize,
        search_list: usize,
        mut score: impl FnMut(&[u32], &mut [f32]),
    ) -> usize {
        self.candidates.reset(search_list);
        for first in (0..count).step_by(AT_ONCE) {
            self.ids.clear();
            self.ids.extend(first as u32..count.min(first + AT_ONCE) as u32);
            self.scores.resize(self.ids.len(), 0.0);
            score(&self.ids, &mut self.scores);
            for (id, distance) in self.ids.iter().zip(&self.scores) {
                self.candidates.insert(Neighbor { distance: *distance, id: *id });
            }
        }
        count
    }

    /// Returns the candidates of the last walk, nearest first.
    pub(crate) fn found(&self) -> impl ExactSizeIterator<Item = Neighbor> + '_ {
        self.candidates.iter()
    }
}

/// Returns the position of the least of `scores`.
fn position_of_least(scores: &[f32]) -> Option<usize> {
    let mut least = (0, *scores.first()?);
    for (at, score) in scores.iter().enumerate() {
        if *score < least.1 {
            least = (at, *score);
        }
    }
    Some(least.0)
}
