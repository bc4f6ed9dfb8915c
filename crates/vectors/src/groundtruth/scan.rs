//! Exhaustive search for one query on one thread: the baseline that an index has to beat.

use bathyal_kernels::distance::Distance;
use bathyal_kernels::{Metric, Neighbor, TopK};

use crate::VectorFile;

/// Vectors whose distances are computed before the nearest are selected.
const AT_ONCE: usize = 256;

/// Finds the `k` vectors of `data` nearest to `query`, sorted by distance, then by id. `query` has the
/// element and dim of `data`.
///
/// Distances come from the kernels that searches use. [`exact_neighbors`](super::exact_neighbors) is faster
/// for many queries, and computes in 64 bits.
pub fn scan(data: &VectorFile, metric: Metric, query: &[u8], k: usize) -> Vec<Neighbor> {
    let distance = Distance::new(data.element(), metric, data.dim());
    let (mut nearest, mut distances) = (TopK::new(k), [0.0; AT_ONCE]);
    for first in (0..data.count()).step_by(AT_ONCE) {
        let rows = first..(first + AT_ONCE).min(data.count());
        let distances = &mut distances[..rows.len()];
        match data.rows(rows.clone()) {
            Some(block) => distance.score_block(query, block, distances),
            None => {
                let pairs = distances.iter_mut().zip(rows.clone());
                pairs.for_each(|(out, row)| *out = distance.between(query, data.row(row)));
            }
        }
        for (row, distance) in rows.zip(distances.iter()) {
            nearest.push(row as u32, *distance);
        }
    }
    nearest.into_sorted()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bathyal_kernels::Element;

    #[test]
    fn the_nearest_are_found_in_order() {
        // More than AT_ONCE, and not a multiple of it.
        let rows: Vec<u8> = (0..700_u32).flat_map(|row| [(row % 251) as u8, (row / 251) as u8]).collect();
        let data = VectorFile::from_rows(Element::U8, 2, rows).unwrap();
        let found = scan(&data, Metric::L2, &[100, 1], 4);
        let found: Vec<(u32, f32)> = found.iter().map(|found| (found.id, found.distance)).collect();
        assert_eq!(found, [(351, 0.0), (100, 1.0), (350, 1.0), (352, 1.0)]);
        assert_eq!(scan(&data, Metric::L2, &[0, 0], 701).len(), 700);
    }
}
