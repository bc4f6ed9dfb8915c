//! Growing an HNSW (Malkov and Yashunin, TPAMI 2020) by the insertion and pruning of the graph family: a graph a layer, each
//! over the first vectors of the one below it.

use super::copies::Copies;
use super::options::PartitionedOptions;
use super::{MOST_LAYERS, SubIndex};
use crate::error::IndexError;
use crate::families::graph::GraphOptions;
use crate::families::graph::adjacency::Adjacency;
use crate::families::graph::grow::Growth;
use crate::families::graph::walk::Links;
use crate::partition::space::Space;
use bathyal_vectors::progress::{CancelOnly, Progress};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// What hides a neighbour from another is nearer to it than they are to each other (HNSW, algorithm 4), by more than arithmetic may
/// be wrong: two that are equally far from all others would hide all these from each other.
const ALPHA: f32 = 1.000_01;

/// Puts those of `members` first that are in upper layers, and those that are `held` back last; otherwise they stay in
/// order. Returns how many vectors each layer has, the bottom first (HNSW, algorithm 1, line 4).
pub(in super::super) fn arrange(
    members: &mut [u32],
    held: impl Fn(u32) -> bool,
    own: &PartitionedOptions,
    seed: u64,
) -> Vec<usize> {
    let mut random = StdRng::seed_from_u64(seed);
    let scale = 1.0 / f64::from(own.links).ln();
    let mut drawn: Vec<(usize, u32)> = Vec::with_capacity(members.len());
    for member in members.iter() {
        // 0 is as likely as any other number, and has no logarithm.
        let uniform: f64 = 1.0 - random.random::<f64>();
        let above = (-uniform.ln() * scale) as usize;
        drawn.push((if held(*member) { 0 } else { 1 + above.min(MOST_LAYERS - 1) }, *member));
    }
    drawn.sort_by_key(|(above, _)| std::cmp::Reverse(*above));
    members.iter_mut().zip(&drawn).for_each(|(member, (_, drawn))| *member = *drawn);
    let highest = drawn.first().map_or(1, |(above, _)| (*above).max(1));
    let reaching = |least: usize| drawn.partition_point(|(above, _)| *above >= least);
    std::iter::once(members.len()).chain((2..=highest).map(reaching)).collect()
}

/// The layers of an HNSW while it grows, of a single thread.
pub(in super::super) struct Hnsw<'a> {
    space: &'a Space,
    own: &'a PartitionedOptions,
    progress: CancelOnly<'a>,
    /// The bottom first.
    pub(in super::super) layers: Vec<Adjacency>,
}

impl<'a> Hnsw<'a> {
    /// Bytes of memory that one over `count` vectors takes, besides these.
    pub(in super::super) fn planned_bytes(count: u64, own: &PartitionedOptions) -> u64 {
        // The upper layers are a geometric series of at most half of it.
        2 * Adjacency::planned_bytes(count, 2 * own.links)
            + Growth::planned_bytes(count, 1)
            + Copies::planned_bytes(count)
    }

    /// Grows one over the vectors of `space`, of which the layers of `sizes` take the first each, and the bottom layer all
    /// but the last `held`.
    pub(in super::super) fn grow(
        space: &'a Space,
        sizes: &[usize],
        held: usize,
        own: &'a PartitionedOptions,
        progress: &'a dyn Progress,
    ) -> Result<Hnsw<'a>, IndexError> {
        let mut hnsw = Hnsw { space, own, progress: CancelOnly(progress), layers: Vec::new() };
        for (layer, size) in sizes.iter().enumerate() {
            let degree = if layer == 0 { 2 * own.links } else { own.links };
            let graph = Adjacency::new(*size, degree)?;
            let order: Vec<u32> = (0..(*size - if layer == 0 { held } else { 0 }) as u32).collect();
            let graph = hnsw.insert(graph, degree, order.get(1..).unwrap_or(&[]), &order)?;
            hnsw.layers.push(graph);
        }
        Ok(hnsw)
    }

    /// Grows one further that was read: over its vectors, which `space` begins with, and all others, which are in the bottom layer
    /// alone.
    pub(in super::super) fn extend(
        space: &'a Space,
        grown: &SubIndex<'_>,
        own: &'a PartitionedOptions,
        progress: &'a dyn Progress,
    ) -> Result<Hnsw<'a>, IndexError> {
        let mut hnsw = Hnsw { space, own, progress: CancelOnly(progress), layers: Vec::new() };
        for number in 0..grown.layers() {
            let layer = grown.layer(number);
            let count = if number == 0 { space.count() } else { layer.count() };
            let degree = if number == 0 { 2 * own.links } else { own.links };
            let graph = Adjacency::new(count, degree)?;
            let mut links: Vec<u32> = Vec::new();
            for vector in 0..layer.count() as u32 {
                links.clear();
                links.extend(layer.links(vector).take(degree as usize));
                graph.lock(vector).set(links.iter().copied());
            }
            hnsw.layers.push(graph);
        }
        hnsw.complete(grown.count())?;
        Ok(hnsw)
    }

    /// Inserts what was held back: all of the bottom layer from the number `first` on.
    pub(in super::super) fn complete(&mut self, first: usize) -> Result<(), IndexError> {
        let Some(bottom) = self.layers.first_mut() else { return Ok(()) };
        let bottom = std::mem::replace(bottom, Adjacency::new(0, 1)?);
        let order: Vec<u32> = (0..bottom.count() as u32).collect();
        let bottom = self.insert(bottom, 2 * self.own.links, &order[first..], &order)?;
        self.layers[0] = bottom;
        Ok(())
    }

    /// Inserts `new` vectors into the graph of a layer; all of `order` are reachable then. Of equal vectors the first is inserted, and
    /// the others hang on it.
    fn insert(
        &self,
        graph: Adjacency,
        max_degree: u32,
        new: &[u32],
        order: &[u32],
    ) -> Result<Adjacency, IndexError> {
        let search_list = self.own.construction_list;
        let options = GraphOptions { max_degree, search_list, alpha: ALPHA, ..GraphOptions::default() };
        let progress: &dyn Progress = &self.progress;
        let growth =
            Growth { space: self.space, graph, entry: 0, options: &options, seed: 0, threads: 1, progress };
        let copies = Copies::find(self.space, order);
        let distinct: Vec<u32> = new.iter().copied().filter(|number| !copies.contains(*number)).collect();
        growth.insert("growing a sub-index", &distinct, options.alpha, search_list)?;
        copies.link(&growth)?;
        growth.finish(order)?;
        Ok(growth.graph)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_shrink_by_the_links_and_what_is_held_back_comes_last() {
        let own = PartitionedOptions { links: 8, ..PartitionedOptions::default() };
        let mut members: Vec<u32> = (0..20_000).collect();
        let sizes = arrange(&mut members, |id| id % 10 == 3, &own, 7);
        assert!(sizes.len() >= 4 && sizes[0] == 20_000, "{sizes:?}");
        for pair in sizes.windows(2).take(2) {
            let ratio = pair[0] as f64 / pair[1] as f64;
            assert!((6.0..11.0).contains(&ratio), "{sizes:?}");
        }
        assert!(
            members[18_000..].iter().all(|id| id % 10 == 3)
                && members[..18_000].iter().all(|id| id % 10 != 3)
        );
        assert!(members[sizes[1]..18_000].is_sorted());
        assert_eq!(arrange(&mut [5], |_| false, &own, 1).first(), Some(&1));
        assert_eq!(arrange(&mut [5, 6], |_| true, &own, 1), [2]);
    }
}
