//! The greedy walk through a graph in memory (DiskANN, algorithm 1): of builders, and among centroids.

use crate::query::visited::VisitedSet;
use bathyal_kernels::{CandidateList, Neighbor};

/// The links of a graph in memory.
pub(crate) trait Links {
    /// The vectors that `id` links to, one by one.
    fn links(&self, id: u32) -> impl Iterator<Item = u32> + '_;

    /// Asks the processor to fetch the links of `id`.
    fn prefetch(&self, id: u32);
}

/// Memory of a walk, reused from walk to walk.
#[derive(Debug, Clone)]
pub(crate) struct Walk {
    candidates: CandidateList,
    visited: VisitedSet,
    ids: Vec<u32>,
    scores: Vec<f32>,
}

impl Walk {
    /// Room for a list of `search_list` candidates in a graph of `max_degree`.
    pub(crate) fn new(search_list: usize, max_degree: usize) -> Walk {
        Walk {
            candidates: CandidateList::new(search_list),
            visited: VisitedSet::new(search_list * max_degree / 2),
            ids: Vec::new(),
            scores: Vec::new(),
        }
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
        self.visited.clear();
        self.visited.insert(entry);
        let mut first = [0.0];
        score(&[entry], &mut first);
        self.candidates.insert(Neighbor { distance: first[0], id: entry });
        let mut scored = 1;
        while let Some(nearest) = self.candidates.next_unexpanded() {
            expanded(nearest);
            self.ids.clear();
            for neighbor in links.links(nearest.id) {
                if self.visited.insert(neighbor) {
                    self.ids.push(neighbor);
                }
            }
            // A third of this loop was the wait for the next list: fetch what will probably be next.
            if let Some(runner_up) = self.candidates.peek_unexpanded() {
                links.prefetch(runner_up.id);
            }
            self.scores.resize(self.ids.len(), 0.0);
            score(&self.ids, &mut self.scores);
            scored += self.ids.len();
            let nearest = self.scores.iter().copied().enumerate().min_by(|a, b| a.1.total_cmp(&b.1));
            if let Some((at, _)) = nearest {
                links.prefetch(self.ids[at]);
            }
            for (neighbor, distance) in self.ids.iter().zip(&self.scores) {
                if *distance <= self.candidates.threshold() {
                    self.candidates.insert(Neighbor { distance: *distance, id: *neighbor });
                }
            }
        }
        scored
    }

    /// The candidates of the last walk, the nearest first.
    pub(crate) fn found(&self) -> impl ExactSizeIterator<Item = Neighbor> + '_ {
        self.candidates.iter()
    }
}
