//! Robust prune (DiskANN, algorithm 2): of many candidates keep few that point in all directions.

use crate::partition::space::Space;
use bathyal_kernels::Neighbor;

/// Candidates that are looked at, nearest first; more only cost time (the DiskANN papers use 750).
const MOST_CANDIDATES: usize = 750;

/// Chooses up to `max_degree` neighbours of `id` from `pool`, nearest first: a candidate is dropped when a
/// chosen one is closer to it, by the factor `alpha`, than `id` is. Sorts `pool` and removes doubles from it.
pub(crate) fn robust_prune(
    space: &Space,
    id: u32,
    pool: &mut Vec<Neighbor>,
    max_degree: usize,
    alpha: f32,
    chosen: &mut Vec<Neighbor>,
) {
    pool.sort_unstable();
    pool.dedup_by_key(|n| n.id);
    pool.truncate(MOST_CANDIDATES);
    chosen.clear();
    for candidate in pool.iter().filter(|c| c.id != id) {
        if chosen.len() >= max_degree {
            break;
        }
        let hidden = chosen.iter().any(|kept| {
            let between = space.between(kept.id, candidate.id);
            alpha * between <= candidate.distance
        });
        if !hidden {
            chosen.push(*candidate);
        }
    }
}
