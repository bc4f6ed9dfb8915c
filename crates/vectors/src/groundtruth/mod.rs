//! Exact nearest neighbours by exhaustive search: the ground truth for recall and the overall ratio.
//!
//! Queries are processed in passes. Each pass reads all vectors once, in blocks that stay in a core's L2
//! cache while they are compared with every query of the pass. A 32-bit kernel (see `tile`) only screens out
//! vectors that are certainly too far. The remaining pairs, a few thousand for each query, are computed in
//! 64-bit arithmetic. So the results do not depend on the CPU, the number of threads, or the order of work.
//!
//! Memory: the results (`queries x k x 8` bytes), and some [`PASS_BYTES`] more, or the memory of one tile of
//! 16 queries if that is larger.

mod blocks;
mod exact;
mod ratio;
mod recall;
mod scan;
mod screened;
mod tile;

use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use bathyal_kernels::{Element, Metric, TopK, to_f32};

use crate::progress::Progress;
use crate::{IdFile, RowBlock, RowReader, VectorError, VectorFile};
pub use blocks::{Farthest, QueryTiles, RowPanels};
use exact::{ExactDistance, ExactQuery};
pub use ratio::{OverallRatio, ratio_of_query};
pub use recall::{MeanRecall, QueryRecall, check_exact, recall, recall_of_query};
pub use scan::scan;
pub use screened::{ScreenCapacity, ScreenError, Screener, Screening, exact_neighbors_screened};
use tile::{LANES, TileIsa};

/// Bytes of packed vectors in a block. A block and a tile of queries fit in L2 (512 KiB or more on today's
/// cores).
const BLOCK_BYTES: usize = 256 << 10;

/// Bytes for the packed queries and the neighbour lists of one pass. It is large, since every pass reads all
/// vectors again: 100 neighbours of 10,000 queries on 16 threads take one pass.
pub const PASS_BYTES: usize = 512 << 20;

/// Bytes of a neighbour in a list, including the unused capacity of a growing list.
const NEIGHBOR_BYTES: usize = 16;

/// The reason why exact neighbours were not computed.
#[derive(Debug, thiserror::Error)]
pub enum GroundTruthError {
    /// A file of vectors is invalid, or changed while it was read.
    #[error(transparent)]
    Vectors(#[from] VectorError),
    /// k is 0 or above the number of vectors.
    #[error("k = {k} neighbours were asked for, expected 1 to {count}, the number of vectors")]
    KOutside {
        /// Neighbours asked for.
        k: usize,
        /// Number of vectors.
        count: usize,
    },
    /// Queries and vectors have different dims.
    #[error("the queries have {queries} dimensions, the vectors {vectors}; the two must be equal")]
    Dimensions {
        /// Dim of the queries.
        queries: usize,
        /// Dim of the vectors.
        vectors: usize,
    },
    /// Queries and vectors have different elements.
    #[error("the queries hold {queries}, the vectors {vectors}; convert one of the two")]
    Elements {
        /// Element of the queries.
        queries: Element,
        /// Element of the vectors.
        vectors: Element,
    },
    /// A vector is all zeros, so it has no cosine distance.
    #[error("{path}: row {row} is all zeros, so it has no cosine distance; remove it or use another metric")]
    ZeroVector {
        /// The file.
        path: String,
        /// The row.
        row: u64,
    },
    /// The ground truth has another number of queries than the search.
    #[error(
        "{path}: holds the neighbours of {held} queries, but {searched} are searched; give the ground truth \
         of these queries"
    )]
    OtherQueries {
        /// The file.
        path: String,
        /// Queries in the file.
        held: usize,
        /// Queries of the search.
        searched: usize,
    },
    /// No query has an exact neighbour.
    #[error(
        "{path}: the first {k} ids of all {queries} queries are missing (-1), or k is 0, so recall is not \
         defined"
    )]
    NoNeighbors {
        /// The file.
        path: String,
        /// Neighbours of each query that were searched for.
        k: usize,
        /// Number of queries.
        queries: usize,
    },
    /// The ground truth has fewer neighbours of each query than the search asks for.
    #[error(
        "{path}: holds {held} neighbours a query, but {searched} are searched; lower -k or run \
         `bathyal groundtruth` with -k {searched}"
    )]
    FewNeighbors {
        /// The file.
        path: String,
        /// Neighbours of each query in the file.
        held: usize,
        /// Neighbours of each query that are searched for.
        searched: usize,
    },
    /// The device that screens pairs in place of the CPU has failed.
    #[error(transparent)]
    Screen(ScreenError),
    /// The progress receiver cancelled the work.
    #[error("cancelled")]
    Cancelled,
}

/// Finds the `k` nearest vectors of `base` for each of `queries`, sorted by distance, then by id.
///
/// Distances are as [`Metric`] defines them: l2 is **squared**, ip is negated, cosine is one minus the
/// cosine. They are summed in 64 bits and rounded once to 32. `threads` is the number of threads, `None` for
/// one for each core. Cancellation is noticed within milliseconds.
///
/// # Errors
/// [`GroundTruthError`]: queries that do not match the vectors, a k that is 0 or above the number of vectors,
/// a vector that is not finite or (cosine) zero, a file that was truncated, cancellation.
pub fn exact_neighbors(
    base: &VectorFile,
    queries: &VectorFile,
    metric: Metric,
    k: usize,
    threads: Option<NonZeroUsize>,
    progress: &dyn Progress,
) -> Result<IdFile, GroundTruthError> {
    check_inputs(base, queries, k)?;
    let isa = TileIsa::best(base.element(), base.dim());
    let search = Search::new(base, queries, metric, k, isa, thread_count(threads), progress);
    search_in_passes(base, queries, k, search.queries_per_pass(), progress, |rows| search.run(rows))
}

/// Returns `threads`, or one for each core.
fn thread_count(threads: Option<NonZeroUsize>) -> usize {
    threads.or(std::thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get)
}

/// Calls `run` with all queries, `per_pass` of them at a time, and returns the neighbours of all.
fn search_in_passes(
    base: &VectorFile,
    queries: &VectorFile,
    k: usize,
    per_pass: usize,
    progress: &dyn Progress,
    mut run: impl FnMut(Range<usize>) -> Result<Vec<TopK>, GroundTruthError>,
) -> Result<IdFile, GroundTruthError> {
    let passes = queries.count().div_ceil(per_pass);
    progress.stage("exact neighbours", passes as u64 * base.count() as u64);
    let mut ids = Vec::with_capacity(queries.count() * k);
    let mut distances = Vec::with_capacity(queries.count() * k);
    for first in (0..queries.count()).step_by(per_pass) {
        let rows = first..(first + per_pass).min(queries.count());
        for nearest in run(rows)? {
            for neighbor in nearest.into_sorted() {
                ids.push(neighbor.id);
                distances.push(neighbor.distance);
            }
        }
    }
    Ok(IdFile::from_parts(k, ids, Some(distances))?)
}

/// Refuses queries that do not match the vectors, and a bad k, before any work.
fn check_inputs(base: &VectorFile, queries: &VectorFile, k: usize) -> Result<(), GroundTruthError> {
    if queries.dim() != base.dim() {
        return Err(GroundTruthError::Dimensions { queries: queries.dim(), vectors: base.dim() });
    }
    if queries.element() != base.element() {
        return Err(GroundTruthError::Elements { queries: queries.element(), vectors: base.element() });
    }
    if k == 0 || k > base.count() {
        return Err(GroundTruthError::KOutside { k, count: base.count() });
    }
    queries.check_finite()?;
    Ok(base.check_length()?)
}

/// The parameters and the state that all passes share.
struct Search<'a> {
    base: &'a VectorFile,
    queries: &'a VectorFile,
    metric: Metric,
    k: usize,
    isa: TileIsa,
    threads: usize,
    progress: &'a dyn Progress,
    /// Vectors of a block, a multiple of [`LANES`].
    block: usize,
    /// Vectors done, over all passes.
    done: AtomicU64,
}

/// The queries of one pass, and their search radii.
struct PassQueries {
    tiles: QueryTiles,
    /// `queries x dim`, decoded.
    values: Vec<f32>,
    /// The smallest k-th distance that any thread has found for each query. A vector farther than that is not
    /// among the k nearest.
    farthest: Farthest,
}

impl<'a> Search<'a> {
    fn new(
        base: &'a VectorFile,
        queries: &'a VectorFile,
        metric: Metric,
        k: usize,
        isa: TileIsa,
        threads: usize,
        progress: &'a dyn Progress,
    ) -> Search<'a> {
        let panel_bytes = isa.steps(base.dim()) * LANES * 4;
        // Small inputs have smaller blocks, so that every thread gets some.
        let share = base.count().div_ceil(threads).div_ceil(LANES);
        let block = (BLOCK_BYTES / panel_bytes).min(share).max(1) * LANES;
        let threads = threads.min(base.count().div_ceil(block));
        Search { base, queries, metric, k, isa, threads, progress, block, done: AtomicU64::new(0) }
    }

    /// Returns the number of queries of a pass, a multiple of [`LANES`].
    fn queries_per_pass(&self) -> usize {
        let packed_bytes = (self.isa.steps(self.base.dim()) + self.base.dim()) * 4;
        let query_bytes = self.threads * self.k * NEIGHBOR_BYTES + packed_bytes + 32;
        (PASS_BYTES / query_bytes / LANES).max(1) * LANES
    }

    /// Finds the nearest neighbours of the queries `rows`.
    fn run(&self, rows: Range<usize>) -> Result<Vec<TopK>, GroundTruthError> {
        let pass = self.pack_queries(rows)?;
        let next = AtomicUsize::new(0);
        let stop = AtomicBool::new(false);
        // The error of the earliest block, so that the row in it does not depend on the threads.
        let failed: Mutex<Option<(usize, GroundTruthError)>> = Mutex::new(None);
        let work = || {
            let mut worker = Worker::new(self, &pass);
            let mut reader = RowReader::new(self.base, 0);
            loop {
                let block = next.fetch_add(1, Ordering::Relaxed);
                let start = block.saturating_mul(self.block);
                if start >= self.base.count() || stop.load(Ordering::Relaxed) {
                    return worker.nearest;
                }
                let rows = start..(start + self.block).min(self.base.count());
                // The vectors may be larger than memory, so they are read and not mapped.
                let read = reader.block(rows).map_err(GroundTruthError::from);
                if let Err(error) = read.and_then(|rows| worker.search_block(rows)) {
                    stop.store(true, Ordering::Relaxed);
                    let mut failed = failed.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    if failed.as_ref().is_none_or(|(earlier, _)| block < *earlier) {
                        *failed = Some((block, error));
                    }
                }
            }
        };
        let mut lists: Vec<Vec<TopK>> = std::thread::scope(|scope| {
            let others: Vec<_> = (1..self.threads).map(|_| scope.spawn(work)).collect();
            let mut lists = vec![work()];
            for other in others {
                // Workers do not panic. If one does, the panic continues in this thread.
                lists.push(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            lists
        });
        if let Some((_, error)) = failed.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
            return Err(error);
        }
        let mut nearest = lists.pop().unwrap_or_default();
        for other in lists {
            for (merged, list) in nearest.iter_mut().zip(other) {
                for neighbor in list.into_sorted() {
                    merged.push(neighbor.id, neighbor.distance);
                }
            }
        }
        Ok(nearest)
    }

    fn pack_queries(&self, rows: Range<usize>) -> Result<PassQueries, GroundTruthError> {
        self.queries.check_length()?;
        let (element, dim) = (self.base.element(), self.base.dim());
        let mut pass = PassQueries {
            tiles: QueryTiles::with_isa(self.metric, (element, element), dim, self.isa),
            values: vec![0.0; rows.len() * dim],
            farthest: Farthest::new(rows.len()),
        };
        for (query, values) in rows.zip(pass.values.chunks_exact_mut(dim)) {
            if self.progress.cancelled() {
                return Err(GroundTruthError::Cancelled);
            }
            let row = self.queries.row(query);
            to_f32(element, row, values);
            check_norm(self.metric, self.queries, query, pass.tiles.push(row))?;
        }
        Ok(pass)
    }
}

/// Refuses a vector of length zero under the cosine metric.
fn check_norm(metric: Metric, file: &VectorFile, row: usize, norm: f64) -> Result<(), GroundTruthError> {
    if metric == Metric::Cosine && norm == 0.0 {
        let path = file.path().display().to_string();
        return Err(GroundTruthError::ZeroVector { path, row: row as u64 });
    }
    Ok(())
}

/// The state of one thread in one pass.
struct Worker<'a> {
    search: &'a Search<'a>,
    pass: &'a PassQueries,
    exact: ExactDistance,
    block: RowPanels,
    nearest: Vec<TopK>,
}

impl<'a> Worker<'a> {
    fn new(search: &'a Search<'a>, pass: &'a PassQueries) -> Worker<'a> {
        Worker {
            search,
            pass,
            exact: ExactDistance::new(search.metric, search.base.element(), search.base.dim()),
            block: pass.tiles.block(search.block),
            nearest: vec![TopK::new(search.k); pass.values.len() / search.base.dim()],
        }
    }

    /// Compares all queries of the pass with the vectors `rows`.
    fn search_block(&mut self, rows: RowBlock<'_>) -> Result<(), GroundTruthError> {
        let search = self.search;
        rows.check()?;
        self.block.clear();
        for row in rows.rows() {
            check_norm(search.metric, search.base, row, self.block.push(rows.row(row)))?;
        }
        for tile in 0..self.pass.tiles.tiles() {
            if search.progress.cancelled() {
                return Err(GroundTruthError::Cancelled);
            }
            self.search_tile(tile, rows);
        }
        let count = rows.rows().len() as u64;
        search.progress.advance(search.done.fetch_add(count, Ordering::Relaxed) + count);
        Ok(())
    }

    /// Compares the queries of one tile with the packed block of `vectors`.
    fn search_tile(&mut self, tile: usize, vectors: RowBlock<'_>) {
        let Worker { search, pass, exact, block, nearest } = self;
        let (start, dim) = (vectors.rows().start, search.base.dim());
        let farthest = |query: usize| pass.farthest.get(query);
        pass.tiles.compare(tile, block, farthest, |query, first, mut mask| {
            let values = &pass.values[query * dim..][..dim];
            let exact_query = ExactQuery { values, norm: pass.tiles.norm(query) };
            let nearest = &mut nearest[query];
            while mask != 0 {
                let row = start + first + mask.trailing_zeros() as usize;
                mask &= mask - 1;
                // The cast loses nothing: opening refuses files with more rows than a u32 can name.
                nearest.push(row as u32, exact.distance(&exact_query, vectors.row(row)));
            }
            pass.farthest.lower(query, nearest.threshold())
        });
    }
}
