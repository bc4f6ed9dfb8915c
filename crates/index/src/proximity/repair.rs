//! Makes every vector reachable from the entry point. Pruning does not guarantee that, and a search for many
//! neighbours would otherwise return fewer than there are. Vectors that pruning has cut off get a link again.

use super::adjacency::Adjacency;
use super::insert::Inserter;
use crate::error::IndexError;
use bathyal_vectors::progress::Progress;

/// Parent of a vector that has not been reached.
const UNREACHED: u32 = u32::MAX;

/// Vectors between two checks for cancellation.
const CHECK_EVERY: usize = 16_384;

/// The vectors that have been reached so far, as a tree.
struct ReachedTree {
    /// The vector from which each vector was reached first, by id.
    parent: Vec<u32>,
    /// The reached vectors, in the order in which they were reached.
    order: Vec<u32>,
}

impl ReachedTree {
    /// Adds `start` as a child of `parent`, and then every vector that can be reached from it.
    fn extend(
        &mut self,
        graph: &Adjacency,
        (start, parent): (u32, u32),
        progress: &dyn Progress,
    ) -> Result<(), IndexError> {
        let mut next = self.order.len();
        self.parent[start as usize] = parent;
        self.order.push(start);
        while next < self.order.len() {
            if next.is_multiple_of(CHECK_EVERY) && progress.cancelled() {
                return Err(IndexError::Cancelled);
            }
            let id = self.order[next];
            next += 1;
            for neighbor in graph.neighbors(id) {
                if self.parent[neighbor as usize] == UNREACHED {
                    self.parent[neighbor as usize] = id;
                    self.order.push(neighbor);
                }
            }
        }
        Ok(())
    }

    /// Adds a link from `anchor` to `id`. If the list is full, the link replaces the last one that is not an
    /// edge of the tree. Returns false if `anchor` has not been reached, or if all its links are edges of the
    /// tree.
    fn attach(&self, graph: &Adjacency, anchor: u32, id: u32, max_degree: usize) -> bool {
        if self.parent[anchor as usize] == UNREACHED {
            return false;
        }
        let list = graph.lock(anchor);
        if graph.degree(anchor) < max_degree {
            return list.add(id);
        }
        let mut neighbors: Vec<u32> = graph.neighbors(anchor).collect();
        let spare = neighbors.iter().rposition(|n| self.parent[*n as usize] != anchor);
        let Some(spare) = spare else { return false };
        neighbors[spare] = id;
        list.set(neighbors.into_iter());
        true
    }
}

/// Returns the bytes that [`connect`] takes for `count` vectors.
pub(crate) fn planned_bytes(count: u64) -> u64 {
    count * 8
}

/// Adds links until every vector of `ids` is reachable from `entry`. No list grows beyond `max_degree`.
///
/// An unreachable vector gets a link from the nearest reachable vector that [`ReachedTree::attach`] accepts:
/// first among the vectors that a search for it expands, then among all.
///
/// # Errors
/// [`IndexError::Parameter`] if no vector can take the link, which happens only with a maximum degree of 1;
/// cancellation.
pub(crate) fn connect(
    graph: &Adjacency,
    inserter: &mut Inserter<'_>,
    ids: &[u32],
    entry: u32,
    max_degree: usize,
    progress: &dyn Progress,
) -> Result<(), IndexError> {
    let mut tree =
        ReachedTree { parent: vec![UNREACHED; graph.count()], order: Vec::with_capacity(graph.count()) };
    tree.extend(graph, (entry, entry), progress)?;
    for &id in ids {
        if tree.parent[id as usize] != UNREACHED {
            continue;
        }
        let mut near = inserter.search(id).to_vec();
        near.sort_unstable();
        let anchors = near.iter().map(|n| n.id).chain(tree.order.iter().rev().copied());
        let anchor = anchors.into_iter().find(|anchor| tree.attach(graph, *anchor, id, max_degree));
        let Some(anchor) = anchor else { return Err(degree_too_small(max_degree)) };
        tree.extend(graph, (id, anchor), progress)?;
    }
    Ok(())
}

/// Returns the error of a graph whose maximum degree is too small to connect all vectors.
pub(crate) fn degree_too_small(max_degree: usize) -> IndexError {
    IndexError::Parameter(format!("max_degree {max_degree} is too small to connect all vectors; raise it"))
}
