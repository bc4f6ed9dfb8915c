//! The greedy walk through a graph in memory (DiskANN, algorithm 1): of builders, and among centroids.

use crate::allocate::try_zeros;
use crate::error::NoMemory;
use crate::query::visited::VisitedSet;
use bathyal_kernels::{CandidateList, Neighbor};

/// Vectors that are compared at once where all are looked at.
const AT_ONCE: usize = 1024;

/// The links of a graph in memory.
pub(crate) trait Links {
    /// The vectors that `id` links to, one by one.
    fn links(&self, id: u32) -> impl Iterator<Item = u32> + '_;

    /// Asks the processor to fetch the links of `id`.
    fn prefetch(&self, id: u32);
}

/// The vectors that a walk has seen.
pub(crate) trait Seen {
    /// Forgets all.
    fn clear(&mut self);

    /// Writes those of `ids` that are new to the front of `new`, which grows where it must, and returns how many these are.
    fn admit(&mut self, ids: impl Iterator<Item = u32>, new: &mut Vec<u32>) -> usize;
}

/// Little memory, whatever the number of vectors: for searches.
impl Seen for VisitedSet {
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

/// A byte a vector: the number of the walk that has seen it. For builders, whose walks one after the other touch the same
/// bytes and whose processor cannot guess what a hash set answers.
#[derive(Debug, Clone)]
pub(crate) struct SeenBytes {
    walks: Vec<u8>,
    now: u8,
}

impl SeenBytes {
    /// For ids below `count`.
    pub(crate) fn new(count: usize) -> Result<SeenBytes, NoMemory> {
        Ok(SeenBytes { walks: try_zeros("what a walk has seen", count)?, now: 0 })
    }
}

impl Seen for SeenBytes {
    fn clear(&mut self) {
        self.now = self.now.wrapping_add(1);
        if self.now == 0 {
            self.walks.fill(0);
            self.now = 1;
        }
    }

    #[inline]
    fn admit(&mut self, ids: impl Iterator<Item = u32>, new: &mut Vec<u32>) -> usize {
        let mut count = 0;
        for id in ids {
            if count == new.len() {
                new.push(0);
            }
            // Half of the ids are new, at random: written in any case, without a branch to guess.
            new[count] = id;
            let walk = &mut self.walks[id as usize];
            count += usize::from(*walk != self.now);
            *walk = self.now;
        }
        count
    }
}

/// Memory of a walk, reused from walk to walk.
#[derive(Debug, Clone)]
pub(crate) struct Walk<S = VisitedSet> {
    candidates: CandidateList,
    seen: S,
    ids: Vec<u32>,
    scores: Vec<f32>,
}

impl Walk {
    /// Room for a list of `search_list` candidates in a graph of `max_degree`.
    pub(crate) fn new(search_list: usize, max_degree: usize) -> Walk {
        Walk::with(search_list, VisitedSet::new(search_list * max_degree / 2))
    }
}

impl<S: Seen> Walk<S> {
    /// Room for a list of `search_list` candidates, and for what was `seen`.
    pub(crate) fn with(search_list: usize, seen: S) -> Walk<S> {
        Walk { candidates: CandidateList::new(search_list), seen, ids: Vec::new(), scores: Vec::new() }
    }

    /// Walks from `entry` with a list of `search_list` candidates; `score` gives the distances to some ids, and
    /// `expanded` hears of each vector whose links were followed. Returns how many distances were computed.
    pub(crate) fn run(
        &mut self,
        links: &impl Links,
        entry: u32,
        search_list: usize,
        mut score: impl FnMut(&[u32], &mut [f32]),
        mut expanded: impl FnMut(Neighbor),
    ) -> usize {
        self.candidates.reset(search_list);
        self.seen.clear();
        self.seen.admit(std::iter::once(entry), &mut self.ids);
        let mut first = [0.0];
        score(&[entry], &mut first);
        self.candidates.insert(Neighbor { distance: first[0], id: entry });
        let mut scored = 1;
        while let Some(nearest) = self.candidates.next_unexpanded() {
            expanded(nearest);
            let new = self.seen.admit(links.links(nearest.id), &mut self.ids);
            // A third of this loop was the wait for the next list: fetch what will probably be next.
            if let Some(runner_up) = self.candidates.peek_unexpanded() {
                links.prefetch(runner_up.id);
            }
            if self.scores.len() < new {
                self.scores.resize(new, 0.0);
            }
            let (ids, scores) = (&self.ids[..new], &mut self.scores[..new]);
            score(ids, scores);
            scored += new;
            if let Some(at) = least(scores) {
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

    /// Looks at all `count` vectors and keeps the nearest `search_list` of them as candidates: for a graph whose links do not lead
    /// to as many. Returns how many distances were computed.
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

    /// The candidates of the last walk, the nearest first.
    pub(crate) fn found(&self) -> impl ExactSizeIterator<Item = Neighbor> + '_ {
        self.candidates.iter()
    }
}

/// Where the least of `scores` is.
fn least(scores: &[f32]) -> Option<usize> {
    let mut least = (0, *scores.first()?);
    for (at, score) in scores.iter().enumerate() {
        if *score < least.1 {
            least = (at, *score);
        }
    }
    Some(least.0)
}
