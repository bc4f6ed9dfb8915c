//! Exact nearest neighbours, by measuring everything: what recall and the overall ratio are counted against.
//!
//! The vectors are streamed once a wave of queries, in blocks that stay in a core's L2 cache while every
//! query of the wave passes over them. A 32-bit kernel (see `tile`) only screens out what is certainly too
//! far; what is left, a few thousand pairs a query, is measured in 64-bit arithmetic. So the answers do not
//! depend on the CPU, the number of threads, or the order of work.
//!
//! Memory: the answers (`queries x k x 8` bytes) and at most some [`WAVE_BYTES`] besides, or what one tile of
//! 16 queries takes if that is more.

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
use exact::{Exact, Measured, limit, norm, row_terms};
pub use ratio::{OverallRatio, ratio_of_query};
pub use recall::{MeanRecall, QueryRecall, check_exact, recall, recall_of_query};
pub use scan::scan;
pub use screened::{ScreenError, ScreenRoom, Screener, Screening, exact_neighbors_screened};
use tile::{LANES, Packer, Panel, PanelTerms, QueryTile, Side, TileIsa, screen};

/// Bytes of packed vectors that one thread passes the queries over: they stay in L2 (512 KiB or more on
/// today's cores) beside a tile of queries.
const BLOCK_BYTES: usize = 256 << 10;

/// Bytes for the packed queries and lists of nearest neighbours of one wave. Every wave reads all vectors
/// again, so it is large: 100 neighbours of 10,000 queries on 16 threads take one wave.
pub const WAVE_BYTES: usize = 512 << 20;

/// Bytes of a neighbour in a list, counting the room that a growing list leaves unused.
const NEIGHBOR_BYTES: usize = 16;

/// Why exact neighbours were not computed.
#[derive(Debug, thiserror::Error)]
pub enum GroundTruthError {
    /// A file of vectors is bad, or changed while it was read.
    #[error(transparent)]
    Vectors(#[from] VectorError),
    /// k is 0 or there are fewer vectors.
    #[error("k = {k} neighbours were asked for, expected 1 to {count}, the number of vectors")]
    KOutside {
        /// Neighbours asked for.
        k: usize,
        /// Vectors that there are.
        count: usize,
    },
    /// Queries and vectors have different lengths.
    #[error("the queries have {queries} dimensions, the vectors {vectors}; they have to agree")]
    Dimensions {
        /// Dim of the queries.
        queries: usize,
        /// Dim of the vectors.
        vectors: usize,
    },
    /// Queries and vectors have different elements.
    #[error("the queries hold {queries}, the vectors {vectors}; convert one of the two")]
    Elements {
        /// Elements of the queries.
        queries: Element,
        /// Elements of the vectors.
        vectors: Element,
    },
    /// A vector without direction has no cosine.
    #[error("{path}: row {row} is all zeros, which has no cosine distance; remove it or use another metric")]
    ZeroVector {
        /// The file.
        path: String,
        /// The row.
        row: u64,
    },
    /// Exact neighbours of other queries than were searched.
    #[error(
        "{path}: holds the neighbours of {held} queries, but {searched} are searched; give the ground truth of these \
         queries"
    )]
    OtherQueries {
        /// The file.
        path: String,
        /// Queries in it.
        held: usize,
        /// Queries that are searched.
        searched: usize,
    },
    /// No query has an exact neighbour.
    #[error(
        "{path}: names no neighbour of any of {queries} queries among the first {k}, so there is no recall; every id is missing \
         (-1), or none was asked for"
    )]
    NoNeighbors {
        /// The file.
        path: String,
        /// Neighbours of each query that were searched for.
        k: usize,
        /// Queries.
        queries: usize,
    },
    /// Fewer exact neighbours a query than were searched for.
    #[error(
        "{path}: holds {held} neighbours a query, but {searched} are searched; lower -k or run `bathyal groundtruth` \
         with -k {searched}"
    )]
    FewNeighbors {
        /// The file.
        path: String,
        /// Neighbours a query in it.
        held: usize,
        /// Neighbours that are searched for.
        searched: usize,
    },
    /// What screens pairs in place of this processor has failed.
    #[error(transparent)]
    Screen(ScreenError),
    /// The progress receiver asked to stop.
    #[error("cancelled")]
    Cancelled,
}

/// The `k` nearest of `base` for each of `queries`, nearest first, equal distances in order of id.
///
/// Distances are as [`Metric`] defines them: l2 is **squared**, ip is negated, cosine is one minus the
/// cosine. They are summed in 64 bits (8-bit elements: in integers) and rounded once to 32.
/// `threads` is the number of threads, `None` for one a core. Cancellation is noticed within milliseconds.
///
/// # Errors
/// [`GroundTruthError`]: queries that do not match the vectors, a k that is 0 or above the number of
/// vectors, a vector that is not finite or (cosine) zero, a file that was cut, cancellation.
pub fn exact_neighbors(
    base: &VectorFile,
    queries: &VectorFile,
    metric: Metric,
    k: usize,
    threads: Option<NonZeroUsize>,
    progress: &dyn Progress,
) -> Result<IdFile, GroundTruthError> {
    check(base, queries, k)?;
    let isa = TileIsa::best(base.element(), base.dim());
    let search = Search::new(base, queries, metric, k, isa, thread_count(threads), progress);
    in_waves(base, queries, k, search.wave(), progress, |rows| search.run(rows))
}

/// Threads to use; one a core if nothing is said.
fn thread_count(threads: Option<NonZeroUsize>) -> usize {
    threads.or(std::thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get)
}

/// The neighbours of all queries, `wave` of them at a time.
fn in_waves(
    base: &VectorFile,
    queries: &VectorFile,
    k: usize,
    wave: usize,
    progress: &dyn Progress,
    mut run: impl FnMut(Range<usize>) -> Result<Vec<TopK>, GroundTruthError>,
) -> Result<IdFile, GroundTruthError> {
    let waves = queries.count().div_ceil(wave);
    progress.stage("exact neighbours", waves as u64 * base.count() as u64);
    let mut ids = Vec::with_capacity(queries.count() * k);
    let mut distances = Vec::with_capacity(queries.count() * k);
    for first in (0..queries.count()).step_by(wave) {
        let rows = first..(first + wave).min(queries.count());
        for nearest in run(rows)? {
            for neighbor in nearest.into_sorted() {
                ids.push(neighbor.id);
                distances.push(neighbor.distance);
            }
        }
    }
    Ok(IdFile::from_parts(k, ids, Some(distances))?)
}

/// Refuses what cannot be searched, before any work.
fn check(base: &VectorFile, queries: &VectorFile, k: usize) -> Result<(), GroundTruthError> {
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

/// What stays the same from wave to wave.
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
    /// Vectors done, over all waves.
    done: AtomicU64,
}

/// The queries of one wave, and how far each has to look.
struct Wave {
    tiles: Vec<QueryTile>,
    /// `queries x dim`, decoded.
    values: Vec<f32>,
    norms: Vec<f64>,
    /// For each query the smallest k-th distance that any thread has found, as bits that order like the
    /// floats: no vector farther than that can be among the k nearest.
    farthest: Vec<AtomicU64>,
}

/// A block of vectors, packed; reused from block to block.
struct Block {
    cells: Vec<u32>,
    panels: Vec<PanelTerms>,
    longest: f64,
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
        // Small inputs are cut finer, so that every thread gets some.
        let share = base.count().div_ceil(threads).div_ceil(LANES);
        let block = (BLOCK_BYTES / panel_bytes).min(share).max(1) * LANES;
        let threads = threads.min(base.count().div_ceil(block));
        Search { base, queries, metric, k, isa, threads, progress, block, done: AtomicU64::new(0) }
    }

    /// Queries of a wave, a multiple of [`LANES`].
    fn wave(&self) -> usize {
        let packed_bytes = (self.isa.steps(self.base.dim()) + self.base.dim()) * 4;
        let query_bytes = self.threads * self.k * NEIGHBOR_BYTES + packed_bytes + 32;
        (WAVE_BYTES / query_bytes / LANES).max(1) * LANES
    }

    /// The nearest neighbours of the queries `rows`.
    fn run(&self, rows: Range<usize>) -> Result<Vec<TopK>, GroundTruthError> {
        let wave = self.pack_queries(rows)?;
        let next = AtomicUsize::new(0);
        let stop = AtomicBool::new(false);
        // The error of the earliest block, so that the row it names does not depend on the threads.
        let failed: Mutex<Option<(usize, GroundTruthError)>> = Mutex::new(None);
        let work = || {
            let mut worker = Worker::new(self, &wave);
            let mut reader = RowReader::new(self.base, 0);
            loop {
                let block = next.fetch_add(1, Ordering::Relaxed);
                let start = block.saturating_mul(self.block);
                if start >= self.base.count() || stop.load(Ordering::Relaxed) {
                    return worker.nearest;
                }
                let rows = start..(start + self.block).min(self.base.count());
                // Sets may be larger than memory, so they are read and not mapped.
                let passed = reader.block(rows).map_err(GroundTruthError::from);
                if let Err(error) = passed.and_then(|rows| worker.pass(rows)) {
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
                // A worker has no way to panic; were there one, it goes on in this thread.
                lists.push(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            lists
        });
        if let Some((_, error)) = failed.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
            return Err(error);
        }
        let mut nearest = lists.pop().unwrap_or_default();
        for other in lists {
            for (all, some) in nearest.iter_mut().zip(other) {
                for neighbor in some.into_sorted() {
                    all.push(neighbor.id, neighbor.distance);
                }
            }
        }
        Ok(nearest)
    }

    fn pack_queries(&self, rows: Range<usize>) -> Result<Wave, GroundTruthError> {
        self.queries.check_length()?;
        let mut packer = Packer::new(self.isa, self.base.element(), self.base.dim());
        let dim = self.base.dim();
        let cells = self.isa.steps(self.base.dim()) * LANES;
        let mut wave = Wave {
            tiles: Vec::new(),
            values: vec![0.0; rows.len() * dim],
            norms: Vec::new(),
            farthest: Vec::new(),
        };
        for start in rows.clone().step_by(LANES) {
            if self.progress.cancelled() {
                return Err(GroundTruthError::Cancelled);
            }
            let count = LANES.min(rows.end - start);
            let mut tile = QueryTile { cells: vec![0; cells], offset: [0; LANES], count };
            for lane in 0..count {
                let row = self.queries.row(start + lane);
                tile.offset[lane] = packer.pack(Side::Query, row, lane, &mut tile.cells);
                let values = &mut wave.values[(start + lane - rows.start) * dim..][..dim];
                to_f32(self.queries.element(), row, values);
                let norm = norm(values);
                check_norm(self.metric, self.queries, start + lane, norm)?;
                wave.norms.push(norm);
                wave.farthest.push(AtomicU64::new(ordered_bits(f32::INFINITY)));
            }
            wave.tiles.push(tile);
        }
        Ok(wave)
    }
}

/// Refuses a vector without direction where directions are compared.
fn check_norm(metric: Metric, file: &VectorFile, row: usize, norm: f64) -> Result<(), GroundTruthError> {
    if metric == Metric::Cosine && norm == 0.0 {
        let path = file.path().display().to_string();
        return Err(GroundTruthError::ZeroVector { path, row: row as u64 });
    }
    Ok(())
}

/// One thread of one wave.
struct Worker<'a> {
    search: &'a Search<'a>,
    wave: &'a Wave,
    packer: Packer,
    exact: Exact,
    block: Block,
    nearest: Vec<TopK>,
}

impl<'a> Worker<'a> {
    fn new(search: &'a Search<'a>, wave: &'a Wave) -> Worker<'a> {
        let (element, dim) = (search.base.element(), search.base.dim());
        let panels = search.block / LANES;
        Worker {
            search,
            wave,
            packer: Packer::new(search.isa, element, dim),
            exact: Exact::new(search.metric, element, dim),
            block: Block {
                cells: vec![0; panels * search.isa.steps(dim) * LANES],
                panels: Vec::with_capacity(panels),
                longest: 0.0,
            },
            nearest: vec![TopK::new(search.k); wave.norms.len()],
        }
    }

    /// Passes all queries over the vectors `rows`.
    fn pass(&mut self, rows: RowBlock<'_>) -> Result<(), GroundTruthError> {
        let search = self.search;
        rows.check()?;
        self.pack(rows)?;
        for index in 0..self.wave.tiles.len() {
            if search.progress.cancelled() {
                return Err(GroundTruthError::Cancelled);
            }
            self.pass_tile(index, rows);
        }
        let passed = rows.rows().len() as u64;
        search.progress.advance(search.done.fetch_add(passed, Ordering::Relaxed) + passed);
        Ok(())
    }

    fn pack(&mut self, vectors: RowBlock<'_>) -> Result<(), GroundTruthError> {
        let (search, rows) = (self.search, vectors.rows());
        let cells = search.isa.steps(search.base.dim()) * LANES;
        self.block.panels.clear();
        self.block.longest = 0.0;
        for (panel, start) in rows.clone().step_by(LANES).enumerate() {
            let count = LANES.min(rows.end - start);
            let mut terms = PanelTerms {
                bias: [0.0; LANES],
                scale: [0.0; LANES],
                offset: [0; LANES],
                valid: ((1u32 << count) - 1) as u16,
            };
            let cells = &mut self.block.cells[panel * cells..][..cells];
            for lane in 0..count {
                let row = vectors.row(start + lane);
                let norm = self.exact.norm(row);
                check_norm(search.metric, search.base, start + lane, norm)?;
                self.block.longest = self.block.longest.max(norm);
                (terms.bias[lane], terms.scale[lane]) = row_terms(search.metric, norm);
                terms.offset[lane] = self.packer.pack(Side::Base, row, lane, cells);
            }
            self.block.panels.push(terms);
        }
        Ok(())
    }

    /// Passes the queries of one tile over the packed block of `vectors`.
    fn pass_tile(&mut self, index: usize, vectors: RowBlock<'_>) {
        let start = vectors.rows().start;
        let tile = &self.wave.tiles[index];
        let cells = tile.cells.len();
        let mut limits = [f32::NEG_INFINITY; LANES];
        for (lane, limit) in limits[..tile.count].iter_mut().enumerate() {
            *limit = self.limit(index * LANES + lane);
        }
        for at in 0..self.block.panels.len() {
            let panel =
                Panel { cells: &self.block.cells[at * cells..][..cells], terms: &self.block.panels[at] };
            let masks = screen(self.search.isa, panel, tile, &limits);
            if masks == [0; LANES] {
                continue;
            }
            for (lane, mask) in masks[..tile.count].iter().enumerate() {
                if *mask != 0 {
                    self.measure(index * LANES + lane, vectors, start + at * LANES, *mask);
                    limits[lane] = self.limit(index * LANES + lane);
                }
            }
        }
    }

    /// Measures query `query` of the wave against those of `vectors` that are in `mask`, whose bit 0 is vector `first`.
    fn measure(&mut self, query: usize, vectors: RowBlock<'_>, first: usize, mut mask: u16) {
        let dim = self.search.base.dim();
        let values = &self.wave.values[query * dim..][..dim];
        let measured = Measured { values, norm: self.wave.norms[query] };
        let nearest = &mut self.nearest[query];
        while mask != 0 {
            let row = first + mask.trailing_zeros() as usize;
            mask &= mask - 1;
            // Opening refused files with more rows than a u32 can name.
            nearest.push(row as u32, self.exact.distance(&measured, vectors.row(row)));
        }
        self.wave.farthest[query].fetch_min(ordered_bits(nearest.threshold()), Ordering::Relaxed);
    }

    /// What the value of a vector of this block may be at most for query `query` of the wave.
    fn limit(&self, query: usize) -> f32 {
        let farthest = from_ordered_bits(self.wave.farthest[query].load(Ordering::Relaxed));
        limit(
            self.search.metric,
            self.search.isa.roundings(self.search.base.dim()),
            self.wave.norms[query],
            self.block.longest,
            farthest,
        )
    }
}

/// Bits of a float that is not NaN, such that the order of the bits is the order of the floats.
fn ordered_bits(value: f32) -> u64 {
    let bits = value.to_bits();
    u64::from(if bits >> 31 == 1 { !bits } else { bits | 1 << 31 })
}

/// The inverse of [`ordered_bits`].
fn from_ordered_bits(bits: u64) -> f32 {
    let bits = bits as u32;
    f32::from_bits(if bits >> 31 == 1 { bits & !(1 << 31) } else { !bits })
}
