//! The meta index (d-HNSW, section 3.1): an HNSW over the pivots. A pivot's number in it is the number of its
//! partition.

use super::build::Work;
use super::subindex::hnsw::{Hnsw, arrange};
use super::subindex::{META, SubIndex, SubIndexParts};
use crate::error::IndexError;
use crate::partition::space::Space;
use crate::proximity::walk::Walk;
use crate::query::set::Exact;
use bathyal_kernels::Neighbor;
use bathyal_vectors::RowReader;

/// The least number of candidates of a walk in addition to the requested partitions.
const LEAST_MORE: usize = 24;
/// Partitions that a vector is compared with in addition to its replicas, so that the nearest one is among
/// them.
const CONSIDERED: usize = 32;

/// Returns the length of the candidate list for finding `probes` partitions: a quarter more than `probes`,
/// which costs little compared with a sub-index.
pub(super) fn navigation_list(probes: usize) -> usize {
    probes.saturating_add(probes / 4).saturating_add(LEAST_MORE)
}

/// Finds the `probes` partitions nearest to a query, and leaves them in `found`, the nearest first. If
/// `probes` is at least the number of partitions, all are compared, independent of links. Returns the number
/// of computed distances.
pub(super) fn nearest(
    meta: &SubIndex<'_>,
    exact: &Exact,
    query: &[u8],
    probes: usize,
    walk: &mut Walk,
    found: &mut Vec<Neighbor>,
) -> usize {
    found.clear();
    if probes >= meta.count() {
        let ids: Vec<u32> = (0..meta.count() as u32).collect();
        let mut scores = vec![0.0; ids.len()];
        exact.score_block(query, meta.rows, &mut scores);
        found.extend(ids.iter().zip(&scores).map(|(id, distance)| Neighbor { distance: *distance, id: *id }));
        found.sort_unstable();
        return ids.len();
    }
    let score = |ids: &[u32], scores: &mut [f32]| exact.score_some(query, meta.rows, ids, scores);
    let scored = meta.search(walk, navigation_list(probes), score);
    found.extend(walk.found().take(probes));
    scored
}

/// The meta index during a build.
pub(super) struct MetaIndex {
    /// The pivots: for each partition, the row of its vector in the data.
    pub(super) pivots: Vec<u32>,
    pub(super) space: Space,
    /// The encoded sub-index, as it is stored.
    pub(super) bytes: Vec<u8>,
}

impl MetaIndex {
    /// Returns the bytes of memory that the meta index of `partitions` partitions takes.
    pub(super) fn planned_bytes(partitions: u64, row_bytes: usize, work: &super::PartitionedOptions) -> u64 {
        let rows = 3 * row_bytes as u64 + 256;
        partitions * (rows + 16 * u64::from(work.links)) + Hnsw::planned_bytes(partitions, work)
    }

    /// Builds the meta index over some vectors of the data. `longest` is the largest squared length of all
    /// vectors, for the inner product.
    pub(super) fn grow(
        work: &Work<'_>,
        mut pivots: Vec<u32>,
        longest: Option<f32>,
    ) -> Result<MetaIndex, IndexError> {
        pivots.sort_unstable();
        let sizes = arrange(&mut pivots, |_| false, work.own, work.options.seed ^ u64::from(META));
        let space = load(work, &pivots, longest)?;
        let hnsw = Hnsw::grow(&space, &sizes, 0, work.own, work.progress)?;
        let mut bytes = Vec::new();
        let parts = SubIndexParts { number: META, layers: &hnsw.layers, ids: &pivots };
        parts.encode(work.identity, |number| space.row(number), &mut bytes);
        Ok(MetaIndex { pivots, space, bytes })
    }

    /// Finds the partitions nearest to a stored row, by the distances that graphs are built with, and leaves
    /// them in `walk`, the nearest first. There are more than `wanted`, if that many partitions exist.
    pub(super) fn near(&self, row: &[u8], wanted: usize, walk: &mut Walk) -> Result<(), IndexError> {
        let index = SubIndex::read(&self.bytes, self.space.row_bytes()).map_err(IndexError::Internal)?;
        index.search(walk, wanted + CONSIDERED, |ids, scores| self.space.score_row(row, ids, scores));
        Ok(())
    }
}

/// Loads the vectors `ids` of the data in the form in which the index stores them.
///
/// # Errors
/// [`IndexError::ZeroVectors`], and data that cannot be read.
pub(super) fn load(work: &Work<'_>, ids: &[u32], longest: Option<f32>) -> Result<Space, IndexError> {
    let data = work.data;
    let mut space = Space::blank(ids.len(), data.dim(), data.element(), work.options.metric)?;
    let mut rows = RowReader::new(data.given(), 0);
    for (number, id) in ids.iter().enumerate() {
        if !data.form().take(rows.row(*id as usize)?, space.row_mut(number as u32)) {
            return Err(IndexError::ZeroVectors { count: 1, rows: vec![u64::from(*id)] });
        }
    }
    if let Some(longest) = longest {
        space.lift(longest);
    }
    Ok(space)
}
