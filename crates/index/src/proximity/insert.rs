//! Inserts a vector: searches for it, links it to the neighbours found, and links them back.

use super::adjacency::Adjacency;
use super::prune::robust_prune;
use super::walk::{VisitedBytes, Walk};
use crate::error::NoMemory;
use crate::partition::space::Space;
use bathyal_kernels::Neighbor;

/// The state of one thread of a build.
pub(crate) struct Inserter<'a> {
    space: &'a Space,
    graph: &'a Adjacency,
    entry: u32,
    max_degree: usize,
    search_list: usize,
    walk: Walk<VisitedBytes>,
    /// The vectors that the last search has expanded.
    expanded: Vec<Neighbor>,
    /// The result of the last pruning.
    chosen: Vec<Neighbor>,
    ids: Vec<u32>,
    scores: Vec<f32>,
    pool: Vec<Neighbor>,
}

impl<'a> Inserter<'a> {
    /// Returns the bytes of an inserter that grow with the number of vectors.
    pub(crate) fn planned_bytes(count: u64) -> u64 {
        count
    }

    pub(crate) fn new(
        space: &'a Space,
        graph: &'a Adjacency,
        entry: u32,
        max_degree: u32,
        search_list: u32,
    ) -> Result<Inserter<'a>, NoMemory> {
        Ok(Inserter {
            space,
            graph,
            entry,
            max_degree: max_degree as usize,
            search_list: search_list as usize,
            walk: Walk::with_visited(search_list as usize, VisitedBytes::new(graph.count())?),
            expanded: Vec::new(),
            chosen: Vec::new(),
            ids: Vec::new(),
            scores: Vec::new(),
            pool: Vec::new(),
        })
    }

    /// Runs the greedy search for vector `id` (DiskANN, algorithm 1). Returns the expanded vectors.
    pub(crate) fn search(&mut self, id: u32) -> &[Neighbor] {
        let (space, expanded) = (self.space, &mut self.expanded);
        expanded.clear();
        self.walk.run(
            self.graph,
            self.entry,
            self.search_list,
            |ids, scores| space.score(id, ids, scores),
            |nearest| expanded.push(nearest),
        );
        &self.expanded
    }

    /// Searches for vector `id`, and chooses its neighbours.
    pub(crate) fn choose(&mut self, id: u32, alpha: f32) -> &[Neighbor] {
        self.search(id);
        self.choose_among(id, std::iter::empty(), alpha)
    }

    /// Chooses the neighbours of vector `id` among the expanded vectors, its current neighbours, and
    /// `others`.
    fn choose_among(&mut self, id: u32, others: impl Iterator<Item = u32>, alpha: f32) -> &[Neighbor] {
        self.ids.clear();
        self.ids.extend(self.graph.neighbors(id).chain(others));
        self.scores.resize(self.ids.len(), 0.0);
        self.space.score(id, &self.ids, &mut self.scores);
        let present = self.ids.iter().zip(&self.scores).map(|(id, d)| Neighbor { distance: *d, id: *id });
        self.expanded.extend(present);
        robust_prune(self.space, id, &mut self.expanded, self.max_degree, alpha, &mut self.chosen);
        &self.chosen
    }

    /// Inserts vector `id`, with links in both directions.
    pub(crate) fn insert(&mut self, id: u32, alpha: f32) {
        self.choose(id, alpha);
        self.connect(id, alpha);
    }

    /// Inserts vector `id` without a search: chooses its neighbours among its current ones and `candidates`.
    pub(crate) fn insert_among(&mut self, id: u32, candidates: impl Iterator<Item = u32>, alpha: f32) {
        self.expanded.clear();
        self.choose_among(id, candidates, alpha);
        self.connect(id, alpha);
    }

    /// Sets the list of vector `id` to the chosen neighbours, and adds `id` to their lists.
    fn connect(&mut self, id: u32, alpha: f32) {
        let chosen = std::mem::take(&mut self.chosen);
        self.graph.lock(id).set(chosen.iter().map(|n| n.id));
        for neighbor in &chosen {
            self.link(neighbor.id, &[id], alpha);
        }
        self.chosen = chosen;
    }

    /// Adds `newcomers` to the list of `id`. If the list has no room for them, it is pruned.
    pub(crate) fn link(&mut self, id: u32, newcomers: &[u32], alpha: f32) {
        let list = self.graph.lock(id);
        let rest = newcomers.iter().position(|newcomer| !list.add(*newcomer));
        drop(list);
        if let Some(rest) = rest {
            self.shrink(id, &newcomers[rest..], alpha);
        }
    }

    /// Prunes the list of `id` and `newcomers` together to the maximum degree.
    pub(crate) fn shrink(&mut self, id: u32, newcomers: &[u32], alpha: f32) {
        self.ids.clear();
        self.ids.extend(self.graph.neighbors(id).chain(newcomers.iter().copied()));
        self.scores.resize(self.ids.len(), 0.0);
        self.space.score(id, &self.ids, &mut self.scores);
        self.pool.clear();
        self.pool.extend(self.ids.iter().zip(&self.scores).map(|(id, d)| Neighbor { distance: *d, id: *id }));
        let mut kept = Vec::with_capacity(self.max_degree);
        robust_prune(self.space, id, &mut self.pool, self.max_degree, alpha, &mut kept);
        self.graph.lock(id).set(kept.iter().map(|n| n.id));
    }
}
