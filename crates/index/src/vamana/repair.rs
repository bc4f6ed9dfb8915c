//! Every vector must be reachable from the entry point, or searches for many neighbours would come back with
//! fewer than there are. Pruning does not promise that, so what it cut off is tied on again.

use super::adjacency::Adjacency;
use super::insert::Inserter;

/// Adds edges until every vector is reachable from `entry`, and returns how many were added.
///
/// A vector that is cut off hangs on the nearest reachable one with room below `max_degree`; where none that a
/// search finds has room, on any that has. Returns `None` if the degrees leave no room at all.
pub(crate) fn connect(
    graph: &Adjacency,
    inserter: &mut Inserter<'_>,
    entry: u32,
    max_degree: usize,
) -> Option<u64> {
    let mut reached = vec![false; graph.count()];
    let mut order = Vec::new();
    flood(graph, entry, &mut reached, &mut order);
    let mut added = 0;
    let mut with_room = 0;
    for id in 0..graph.count() as u32 {
        if reached[id as usize] {
            continue;
        }
        let mut near = inserter.search(id).to_vec();
        near.sort_unstable();
        let mut anchor = near.iter().map(|n| n.id).find(|n| graph.degree(*n) < max_degree);
        while anchor.is_none() {
            let candidate = *order.get(with_room)?;
            if graph.degree(candidate) < max_degree {
                anchor = Some(candidate);
            } else {
                with_room += 1;
            }
        }
        graph.lock(anchor?).add(id);
        added += 1;
        flood(graph, id, &mut reached, &mut order);
    }
    Some(added)
}

/// Marks everything reachable from `start`.
fn flood(graph: &Adjacency, start: u32, reached: &mut [bool], order: &mut Vec<u32>) {
    let mut next = order.len();
    reached[start as usize] = true;
    order.push(start);
    while next < order.len() {
        let id = order[next];
        next += 1;
        for neighbor in graph.neighbors(id) {
            if !std::mem::replace(&mut reached[neighbor as usize], true) {
                order.push(neighbor);
            }
        }
    }
}
