//! Vectors that are equal, byte for byte. The first of them is linked in the graph like any vector, and the
//! others form a tree below it. A walk that reaches a copy reaches the first in one step, and as many of the
//! others as fit into the list of the copy.
//!
//! If copies were inserted like other vectors, they would displace all other links: with as many copies as
//! the candidate list is long, the lists would contain copies only.

use crate::error::IndexError;
use crate::partition::space::Space;
use crate::proximity::grow::Growth;
use std::collections::HashMap;

/// Links of a list that children do not use: one to the first of the equal vectors, one for a vector that is
/// otherwise unreachable.
const OTHER_LINKS: usize = 2;

/// The equal vectors of a layer.
pub(super) struct Copies {
    /// Each vector that equals an earlier one, and the first vector that it equals, in ascending order.
    by_copy: Vec<(u32, u32)>,
}

impl Copies {
    /// Returns the bytes of memory for finding the copies among `count` vectors.
    pub(super) fn planned_bytes(count: u64) -> u64 {
        // The map, at least half full, of slices and numbers; the pairs, and the pairs ordered by their first
        // vector.
        count * (2 * 25 + 2 * 8)
    }

    /// Finds the copies among the vectors `order` (ascending).
    pub(super) fn find(space: &Space, order: &[u32]) -> Copies {
        let mut firsts: HashMap<&[u8], u32> = HashMap::with_capacity(order.len());
        let mut by_copy = Vec::new();
        for number in order {
            let first = *firsts.entry(space.row(*number)).or_insert(*number);
            if first != *number {
                by_copy.push((*number, first));
            }
        }
        Copies { by_copy }
    }

    /// Returns true if the vector equals an earlier one.
    pub(super) fn contains(&self, number: u32) -> bool {
        self.by_copy.binary_search_by_key(&number, |(copy, _)| *copy).is_ok()
    }

    /// Links all copies to the first vector that they equal, which is in the graph.
    pub(super) fn link(&self, growth: &Growth<'_>) -> Result<(), IndexError> {
        if self.by_copy.is_empty() {
            return Ok(());
        }
        let mut by_first: Vec<(u32, u32)> =
            self.by_copy.iter().map(|(copy, first)| (*first, *copy)).collect();
        by_first.sort_unstable();
        let children = (growth.options.max_degree as usize).saturating_sub(OTHER_LINKS).max(1);
        let mut inserter = growth.inserter(growth.options.search_list)?;
        for group in by_first.chunk_by(|a, b| a.0 == b.0) {
            let first = group[0].0;
            for (at, (_, copy)) in group.iter().enumerate() {
                let below = group.iter().skip(at * children + 1).take(children).map(|(_, copy)| *copy);
                let links: Vec<u32> = std::iter::once(first).chain(below).collect();
                growth.graph.lock(*copy).set(links.into_iter());
            }
            inserter.link(first, &[group[0].1], growth.options.alpha);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::hnsw::{Hnsw, arrange};
    use super::super::options::PartitionedOptions;
    use super::*;
    use bathyal_kernels::{Element, Metric};
    use bathyal_vectors::progress::Silent;

    /// Checks that every vector of the bottom layer is reachable from every other, for several numbers of
    /// copies.
    #[test]
    fn all_vectors_are_reachable_from_each() {
        let options = PartitionedOptions { links: 4, construction_list: 20, ..PartitionedOptions::default() };
        let times: [&dyn Fn(u32) -> usize; 4] =
            [&|_| 2, &|_| 20, &|row| if row == 7 { 1000 } else { 1 }, &|row| if row == 0 { 500 } else { 0 }];
        for (number, times) in times.into_iter().enumerate() {
            let rows: Vec<u32> = (0..60_u32).flat_map(|row| std::iter::repeat_n(row, times(row))).collect();
            let mut members: Vec<u32> = (0..rows.len() as u32).map(|at| at * 7 % rows.len() as u32).collect();
            members.sort_unstable_by_key(|member| member.wrapping_mul(2_654_435_761));
            let held = |member: u32| member % 9 == 4;
            let sizes = arrange(&mut members, held, &options, 1);
            for metric in [Metric::L2, Metric::InnerProduct, Metric::Cosine] {
                let mut space = Space::blank(members.len(), 2, Element::F32, metric).expect("memory");
                for (to, from) in (0..).zip(&members) {
                    let row = rows[*from as usize];
                    let values = [1.0 + (row % 8) as f32, (row / 8) as f32 - 3.5];
                    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                    space.row_mut(to).copy_from_slice(&bytes);
                }
                if metric == Metric::InnerProduct {
                    space.lift(100.0);
                }
                let held_count = members.iter().filter(|member| held(**member)).count();
                let mut hnsw = Hnsw::grow(&space, &sizes, held_count, &options, &Silent).expect("grown");
                hnsw.complete(members.len() - held_count).expect("completed");
                let bottom = &hnsw.layers[0];
                for start in (0..members.len() as u32).step_by(17) {
                    let (mut seen, mut waiting) = (vec![false; members.len()], vec![start]);
                    while let Some(at) = waiting.pop() {
                        if !std::mem::replace(&mut seen[at as usize], true) {
                            waiting.extend(bottom.neighbors(at));
                        }
                    }
                    let reached = seen.iter().filter(|seen| **seen).count();
                    assert_eq!(reached, members.len(), "set {number} as {metric}, from {start}");
                }
            }
        }
    }
}
