//! Robust prune (DiskANN, algorithm 2): keeps a few of many candidates, in all directions.

use crate::partition::space::Space;
use bathyal_kernels::Neighbor;

/// Nearest candidates that are considered. More of them only take time (the DiskANN papers use 750).
const MOST_CANDIDATES: usize = 750;

/// Chooses up to `max_degree` neighbours of `id` from `pool`, nearest first. A candidate is dropped if a
/// chosen one is closer to it than `id` is, by the factor `alpha`. Sorts `pool`, and removes duplicates from
/// it.
///
/// If several candidates equal `id`, one of them is chosen. It drops no other candidate: it is as close to
/// all of them as `id` is, and if two copies dropped each other's neighbours, no link would lead away from
/// the two.
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
    let mut copy = None;
    for candidate in pool.iter().filter(|c| c.id != id) {
        if chosen.len() >= max_degree {
            break;
        }
        if space.row(candidate.id) == space.row(id) {
            if copy.is_none() {
                copy = Some(candidate.id);
                chosen.push(*candidate);
            }
            continue;
        }
        let hidden = chosen.iter().filter(|kept| Some(kept.id) != copy).any(|kept| {
            let between = space.between(kept.id, candidate.id);
            alpha * between <= candidate.distance
        });
        if !hidden {
            chosen.push(*candidate);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bathyal_kernels::{Element, Metric};

    #[test]
    fn a_copy_of_the_vector_drops_no_other_candidate() {
        for metric in [Metric::L2, Metric::InnerProduct, Metric::Cosine] {
            let rows = [[1.0_f32, 0.1], [1.0, 0.1], [1.0, 0.1], [1.0, 0.6], [1.0, 0.7], [1.0, -0.4]];
            let mut space = Space::blank(rows.len(), 2, Element::F32, metric).unwrap();
            for (id, row) in (0..).zip(rows) {
                let bytes: Vec<u8> = row.iter().flat_map(|value| value.to_le_bytes()).collect();
                space.row_mut(id).copy_from_slice(&bytes);
            }
            if metric == Metric::InnerProduct {
                space.lift(1.49);
            }
            let ids: Vec<u32> = (0..6).collect();
            let mut scores = vec![0.0; 6];
            space.score(0, &ids, &mut scores);
            let candidates = ids.iter().zip(&scores);
            let mut pool: Vec<Neighbor> =
                candidates.map(|(id, distance)| Neighbor { distance: *distance, id: *id }).collect();
            let mut chosen = Vec::new();
            robust_prune(&space, 0, &mut pool, 4, 1.0, &mut chosen);
            let mut chosen: Vec<u32> = chosen.iter().map(|chosen| chosen.id).collect();
            chosen.sort_unstable();
            // One copy, and one vector in each direction: 4 is dropped, because it is behind 3.
            assert_eq!(chosen.len(), 3, "{metric:?} {chosen:?}");
            assert_eq!(chosen[1..], [3, 5], "{metric:?} {chosen:?}");
        }
    }
}
