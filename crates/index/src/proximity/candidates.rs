//! The second pass of a build with a graphics card. The card finds the nearest vectors of each vector among
//! those in near clusters, and they replace the result of a graph search. Links from the first pass, which
//! may lead farther, stay among the candidates.
//!
//! Vectors are divided into clusters. The vectors of a cluster are compared with those of the clusters near
//! it, in the space in which the graph is built. Measurements: `docs/decisions/gpu.md`.

use super::grow::{Growth, TOGETHER};
use crate::error::IndexError;
use crate::exact::{exact_neighbors_on, index_error};
use crate::partition::placement::Points;
use bathyal_gpu::Card;
use bathyal_kernels::{Element, Metric};
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::CancelOnly;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Arc;

/// Clusters that a cluster is compared with, including itself.
const NEAR_CLUSTERS: usize = 32;
/// Number of clusters that a small set is divided into: a cluster has at most one in `MIN_CLUSTERS` of the
/// vectors.
const MIN_CLUSTERS: usize = 64;
/// Smallest and largest number of vectors of a cluster.
const CLUSTER_SIZES: Range<usize> = 64..2048;
/// Most bytes of the vectors of all clusters near a cluster, as f32.
const NEAR_BYTES: usize = 32 << 20;

impl Growth<'_> {
    /// Runs the two passes of Vamana over all vectors that are not in `held_out` (rising), the second with
    /// `card`. Returns the order of insertion.
    pub(crate) fn passes_on_card(
        &self,
        card: &Arc<dyn Card>,
        held_out: &[u32],
    ) -> Result<Vec<u32>, IndexError> {
        let fitting = NEAR_BYTES / (4 * self.space.point_dim() * NEAR_CLUSTERS);
        let cluster = (self.space.count() / MIN_CLUSTERS).clamp(CLUSTER_SIZES.start, CLUSTER_SIZES.end);
        let cluster = (cluster.min(fitting) / TOGETHER).max(1) * TOGETHER;
        let near = self.near_order(held_out, vec![TOGETHER, cluster])?;
        let order = self.split_into_sweeps(&near)?;
        let [draft, full] = self.search_lists();
        self.insert("first pass", &order, 1.0, draft)?;
        self.progress.stage("second pass", near.len() as u64);
        let clusters = self.near_clusters(&near, cluster)?;
        for (number, ids) in near.chunks(cluster).enumerate() {
            let others: Vec<u32> = clusters[number]
                .iter()
                .flat_map(|other| near.chunks(cluster).nth(*other).unwrap_or_default())
                .copied()
                .collect();
            let (rows, others_rows) = (self.floats(ids)?, self.floats(&others)?);
            // One more, because each vector is nearest to itself.
            let neighbor_count = (full as usize + 1).min(others.len());
            let (threads, silent) = (NonZeroUsize::new(self.threads), CancelOnly(self.progress));
            let found = exact_neighbors_on(
                Some(card),
                &others_rows,
                &rows,
                Metric::L2,
                neighbor_count,
                threads,
                &silent,
            )
            .map_err(index_error)?;
            let places: Vec<u32> = (0..ids.len() as u32).collect();
            self.for_each((&places, number * cluster), full, |place, inserter| {
                let candidates = found.ids(place as usize).iter().map(|at| others[*at as usize]);
                inserter.insert_among(ids[place as usize], candidates, self.options.alpha);
            })?;
        }
        Ok(order)
    }

    /// Returns the numbers of the clusters near each cluster, by the distances of their means, with the
    /// cluster itself first. A cluster is `cluster` consecutive vectors of `near`.
    fn near_clusters(&self, near: &[u32], cluster: usize) -> Result<Vec<Vec<usize>>, IndexError> {
        let dim = self.space.point_dim();
        let mut means = vec![0.0_f32; near.len().div_ceil(cluster) * dim];
        let part = means.len().div_ceil(dim).div_ceil(self.threads).max(1);
        std::thread::scope(|scope| {
            for (means, ids) in means.chunks_mut(part * dim).zip(near.chunks(part * cluster)) {
                scope.spawn(|| {
                    let mut row = vec![0.0; dim];
                    for (mean, ids) in means.chunks_exact_mut(dim).zip(ids.chunks(cluster)) {
                        for id in ids {
                            self.space.read(*id, &mut row);
                            let share = 1.0 / ids.len() as f32;
                            mean.iter_mut().zip(&row).for_each(|(mean, value)| *mean += share * value);
                        }
                    }
                });
            }
        });
        let squared_distance =
            |a: &[f32], b: &[f32]| -> f32 { a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum() };
        let nearest_to = |(number, own_mean): (usize, &[f32])| {
            if self.progress.cancelled() {
                return Err(IndexError::Cancelled);
            }
            // A cluster is always the nearest to itself.
            let distance = |other: usize, mean: &[f32]| {
                if other == number { -1.0 } else { squared_distance(own_mean, mean) }
            };
            let mut all: Vec<(f32, usize)> = means
                .chunks_exact(dim)
                .enumerate()
                .map(|(other, mean)| (distance(other, mean), other))
                .collect();
            all.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            Ok(all.iter().take(NEAR_CLUSTERS).map(|(_, other)| *other).collect())
        };
        means.chunks_exact(dim).enumerate().map(nearest_to).collect()
    }

    /// Returns the vectors `ids` as f32 points of the space in which the graph is built.
    fn floats(&self, ids: &[u32]) -> Result<VectorFile, IndexError> {
        let dim = self.space.point_dim();
        let mut bytes = vec![0; 4 * dim * ids.len()];
        let part = ids.len().div_ceil(self.threads).max(1);
        std::thread::scope(|scope| {
            for (ids, bytes) in ids.chunks(part).zip(bytes.chunks_mut(4 * dim * part)) {
                scope.spawn(|| {
                    let mut row = vec![0.0_f32; dim];
                    for (id, out) in ids.iter().zip(bytes.chunks_exact_mut(4 * dim)) {
                        self.space.read(*id, &mut row);
                        let values = out.as_chunks_mut::<4>().0.iter_mut().zip(&row);
                        values.for_each(|(out, value)| *out = value.to_le_bytes());
                    }
                });
            }
        });
        Ok(VectorFile::from_rows(Element::F32, dim, bytes)?)
    }
}
