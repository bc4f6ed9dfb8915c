//! Every vector must be reachable from the entry point, or searches for many neighbours would come back with
//! fewer than there are. Pruning does not promise that, so what it cut off is tied on again.

use super::adjacency::Adjacency;
use super::insert::Inserter;
use crate::error::IndexError;
use bathyal_vectors::progress::Progress;

/// Marks a vector that the flood has not reached.
const UNREACHED: u32 = u32::MAX;

/// Vectors between two looks at cancellation.
const CHECK_EVERY: usize = 16_384;

/// The vectors reached so far, as a tree: from where each was reached first.
struct Flood {
    parent: Vec<u32>,
    order: Vec<u32>,
}

impl Flood {
    /// Reaches everything that can be reached from `start`, which hangs on `parent`.
    fn run(
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

    /// Links `anchor`, which has been reached, to `id`: on a free place, or instead of the last neighbour that
    /// was reached from elsewhere. False if all places are taken by links that others hang on.
    fn tie(&self, graph: &Adjacency, anchor: u32, id: u32, max_degree: usize) -> bool {
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

/// Bytes that [`connect`] takes for `count` vectors.
pub(crate) fn planned_bytes(count: u64) -> u64 {
    count * 8
}

/// Adds links until every vector of `ids` is reachable from `entry`. No list grows beyond `max_degree`.
///
/// A vector that is cut off hangs on the nearest reachable one that can take it; where none that a search finds
/// can, on any.
///
/// # Errors
/// [`IndexError::Parameter`] if no vector can take it, which needs a maximum degree of 1; cancellation.
pub(crate) fn connect(
    graph: &Adjacency,
    inserter: &mut Inserter<'_>,
    ids: &[u32],
    entry: u32,
    max_degree: usize,
    progress: &dyn Progress,
) -> Result<(), IndexError> {
    let mut flood =
        Flood { parent: vec![UNREACHED; graph.count()], order: Vec::with_capacity(graph.count()) };
    flood.run(graph, (entry, entry), progress)?;
    for &id in ids {
        if flood.parent[id as usize] != UNREACHED {
            continue;
        }
        let mut near = inserter.search(id).to_vec();
        near.sort_unstable();
        let anchors = near.iter().map(|n| n.id).chain(flood.order.iter().rev().copied());
        let anchor = anchors.into_iter().find(|anchor| flood.tie(graph, *anchor, id, max_degree));
        let Some(anchor) = anchor else { return Err(no_room(max_degree)) };
        flood.run(graph, (id, anchor), progress)?;
    }
    Ok(())
}

/// The error of a graph whose links do not suffice to reach all.
pub(crate) fn no_room(max_degree: usize) -> IndexError {
    IndexError::Parameter(format!("max_degree {max_degree} leaves no room to connect all vectors; raise it"))
}
