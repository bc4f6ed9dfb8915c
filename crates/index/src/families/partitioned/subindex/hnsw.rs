//! The build of an HNSW (Malkov and Yashunin, TPAMI 2020) with the insertion and pruning of all proximity
//! graphs. There is one graph for each layer, over a prefix of the vectors of the layer below.

use super::copies::Copies;
use super::options::PartitionedOptions;
use super::{MOST_LAYERS, SubIndex};
use crate::error::IndexError;
use crate::partition::space::Space;
use crate::proximity::adjacency::Adjacency;
use crate::proximity::grow::Growth;
use crate::proximity::options::GrowthOptions;
use crate::proximity::walk::Links;
use bathyal_vectors::progress::{CancelOnly, Progress};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// The alpha of robust pruning. A link hides a neighbour if it is nearer to it than the two ends are to each
/// other (HNSW, algorithm 4), by more than a rounding error. Otherwise two vectors that are equally far from
/// all others would hide these from each other.
const ALPHA: f32 = 1.000_01;

/// Orders `members`: those in upper layers first, those for which `held_out` is true last, and the rest in
/// their order. Returns the number of vectors in each layer, the bottom first (HNSW, algorithm 1, line 4).
pub(in super::super) fn arrange(
    members: &mut [u32],
    held_out: impl Fn(u32) -> bool,
    options: &PartitionedOptions,
    seed: u64,
) -> Vec<usize> {
    let mut random = StdRng::seed_from_u64(seed);
    let scale = 1.0 / f64::from(options.links).ln();
    let mut drawn: Vec<(usize, u32)> = Vec::with_capacity(members.len());
    for member in members.iter() {
        // 0 is a possible number, and has no logarithm.
        let uniform: f64 = 1.0 - random.random::<f64>();
        let above = (-uniform.ln() * scale) as usize;
        drawn.push((if held_out(*member) { 0 } else { 1 + above.min(MOST_LAYERS - 1) }, *member));
    }
    drawn.sort_by_key(|(above, _)| std::cmp::Reverse(*above));
    members.iter_mut().zip(&drawn).for_each(|(member, (_, drawn))| *member = *drawn);
    let highest = drawn.first().map_or(1, |(above, _)| (*above).max(1));
    let reaching = |least: usize| drawn.partition_point(|(above, _)| *above >= least);
    std::iter::once(members.len()).chain((2..=highest).map(reaching)).collect()
}

/// An HNSW that a single thread builds.
pub(in super::super) struct Hnsw<'a> {
    space: &'a Space,
    options: &'a PartitionedOptions,
    progress: CancelOnly<'a>,
    /// The bottom first.
    pub(in super::super) layers: Vec<Adjacency>,
}

impl<'a> Hnsw<'a> {
    /// Returns the bytes of memory for building an HNSW over `count` vectors, without the vectors.
    pub(in super::super) fn planned_bytes(count: u64, options: &PartitionedOptions) -> u64 {
        // The upper layers form a geometric series, at most as large as the bottom layer.
        2 * Adjacency::planned_bytes(count, 2 * options.links)
            + Growth::planned_bytes(count, 1)
            + Copies::planned_bytes(count)
    }

    /// Builds an HNSW over the vectors of `space`. Layer `i` contains the first `sizes[i]` vectors. The last
    /// `held_out` vectors are left out of the bottom layer.
    pub(in super::super) fn grow(
        space: &'a Space,
        sizes: &[usize],
        held_out: usize,
        options: &'a PartitionedOptions,
        progress: &'a dyn Progress,
    ) -> Result<Hnsw<'a>, IndexError> {
        let mut hnsw = Hnsw { space, options, progress: CancelOnly(progress), layers: Vec::new() };
        for (layer, size) in sizes.iter().enumerate() {
            let degree = if layer == 0 { 2 * options.links } else { options.links };
            let graph = Adjacency::new(*size, degree)?;
            let order: Vec<u32> = (0..(*size - if layer == 0 { held_out } else { 0 }) as u32).collect();
            let graph = hnsw.insert(graph, degree, order.get(1..).unwrap_or(&[]), &order)?;
            hnsw.layers.push(graph);
        }
        Ok(hnsw)
    }

    /// Extends an encoded HNSW. Its vectors are the first of `space`; the others are inserted into the bottom
    /// layer only.
    pub(in super::super) fn extend(
        space: &'a Space,
        grown: &SubIndex<'_>,
        options: &'a PartitionedOptions,
        progress: &'a dyn Progress,
    ) -> Result<Hnsw<'a>, IndexError> {
        let mut hnsw = Hnsw { space, options, progress: CancelOnly(progress), layers: Vec::new() };
        for number in 0..grown.layers() {
            let layer = grown.layer(number);
            let count = if number == 0 { space.count() } else { layer.count() };
            let degree = if number == 0 { 2 * options.links } else { options.links };
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

    /// Inserts the vectors that were left out of the bottom layer: those from number `first` on.
    pub(in super::super) fn complete(&mut self, first: usize) -> Result<(), IndexError> {
        let Some(bottom) = self.layers.first_mut() else { return Ok(()) };
        let bottom = std::mem::replace(bottom, Adjacency::new(0, 1)?);
        let order: Vec<u32> = (0..bottom.count() as u32).collect();
        let bottom = self.insert(bottom, 2 * self.options.links, &order[first..], &order)?;
        self.layers[0] = bottom;
        Ok(())
    }

    /// Inserts the vectors `new` into the graph of a layer. All of `order` are reachable afterwards. Of equal
    /// vectors only the first is inserted, and the others are linked to it.
    fn insert(
        &self,
        graph: Adjacency,
        max_degree: u32,
        new: &[u32],
        order: &[u32],
    ) -> Result<Adjacency, IndexError> {
        let search_list = self.options.construction_list;
        let (space, options) = (self.space, GrowthOptions { max_degree, search_list, alpha: ALPHA });
        let progress: &dyn Progress = &self.progress;
        let growth = Growth { space, graph, entry: 0, options, seed: 0, threads: 1, progress };
        let copies = Copies::find(self.space, order);
        let distinct: Vec<u32> = new.iter().copied().filter(|number| !copies.contains(*number)).collect();
        growth.insert("growing a sub-index", &distinct, ALPHA, search_list)?;
        copies.link(&growth)?;
        growth.finish(order)?;
        Ok(growth.graph)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_shrink_by_the_links_and_held_out_vectors_come_last() {
        let options = PartitionedOptions { links: 8, ..PartitionedOptions::default() };
        let mut members: Vec<u32> = (0..20_000).collect();
        let sizes = arrange(&mut members, |id| id % 10 == 3, &options, 7);
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
        assert_eq!(arrange(&mut [5], |_| false, &options, 1).first(), Some(&1));
        assert_eq!(arrange(&mut [5, 6], |_| true, &options, 1), [2]);
    }
}
