//! Exact neighbours with a device, such as a graphics card, that screens the pairs in place of the CPU.
//!
//! The device screens one block of vectors with the limits known at launch. Meanwhile the CPU computes the
//! exact distances of the pairs that the block before returned. The first block is small and is computed on
//! the CPU whole. Each later block is as large as all before it together, up to the capacity, so it returns
//! some 2 k pairs for each query.

use std::fmt::Debug;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use bathyal_kernels::{Element, Metric, TopK, to_f32};

use super::exact::{ExactDistance, ExactQuery, limit, norm, row_terms};
use super::{
    GroundTruthError, NEIGHBOR_BYTES, PASS_BYTES, check_inputs, check_norm, search_in_passes, thread_count,
};
use crate::progress::Progress;
use crate::{IdFile, RowBlock, RowReader, VectorFile};

/// Bytes of a block of vectors: large enough that a launch costs little compared with the copy, and small
/// compared with the memory of a build.
const BLOCK_BYTES: usize = 8 << 20;
/// Vectors that the CPU compares with all queries before the first launch (at least k). Without them there
/// would be no limits, and the first block would return all its pairs.
const FIRST_ROWS: usize = 256;
/// Capacity for pairs, divided by the number expected from a block. The margin is for vectors that are not in
/// random order.
const PAIRS_FACTOR: usize = 2;
/// Bounds of the capacity for pairs.
const PAIRS_RANGE: std::ops::RangeInclusive<usize> = 1 << 16..=1 << 23;
/// Queries, or vectors, that a thread takes at a time.
const GROUP: usize = 64;

/// Error of the device that screens pairs.
pub type ScreenError = Box<dyn std::error::Error + Send + Sync>;

/// Capacity of a screening device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScreenCapacity {
    /// Queries of a pass.
    pub queries: usize,
    /// Vectors of a block. The device holds two blocks.
    pub rows: usize,
    /// Pairs that a launch can return, at least one for each query.
    pub pairs: usize,
}

/// A device that screens pairs of queries and vectors in place of the CPU.
pub trait Screener: Debug + Sync {
    /// Reserves memory for vectors of `dim` values: for the capacity `wanted`, or a smaller one.
    ///
    /// # Errors
    /// Any error of the device.
    fn begin(
        &self,
        element: Element,
        dim: usize,
        wanted: ScreenCapacity,
    ) -> Result<Box<dyn Screening + '_>, ScreenError>;
}

/// A screening session on a device.
///
/// A launch returns each pair whose value, `bias - scale x product`, is not above the limit of its query. A
/// value or limit that is NaN is never above.
pub trait Screening {
    /// Returns the reserved capacity.
    fn capacity(&self) -> ScreenCapacity;

    /// Returns the most roundings, to the precision of an f32, in the product of two vectors.
    fn roundings(&self) -> usize;

    /// Sets the queries of the next launches.
    ///
    /// # Errors
    /// Any error of the device.
    fn set_queries(&mut self, queries: RowBlock<'_>) -> Result<(), ScreenError>;

    /// Sets the vectors of block 0 or 1, with the bias and the scale of each.
    ///
    /// # Errors
    /// Any error of the device.
    fn set_rows(
        &mut self,
        block: usize,
        rows: RowBlock<'_>,
        biases: &[f32],
        scales: &[f32],
    ) -> Result<(), ScreenError>;

    /// Starts screening the vectors `rows` of a block, counted from its first vector. `limits` holds one
    /// limit for each query.
    ///
    /// # Errors
    /// Any error of the device.
    fn launch(&mut self, block: usize, rows: Range<usize>, limits: &[f32]) -> Result<(), ScreenError>;

    /// Waits for the last launch of a block and fills `pairs` with its pairs, each a query and a vector of
    /// the block. Returns false, and no pairs, if they exceed the capacity.
    ///
    /// # Errors
    /// Any error of the device.
    fn pairs(&mut self, block: usize, pairs: &mut Vec<(u32, u32)>) -> Result<bool, ScreenError>;
}

/// Finds the same neighbours as [`exact_neighbors`](super::exact_neighbors), byte for byte, with pairs
/// screened by `screener`.
///
/// # Errors
/// As [`exact_neighbors`](super::exact_neighbors), and [`GroundTruthError::Screen`].
pub fn exact_neighbors_screened(
    screener: &dyn Screener,
    base: &VectorFile,
    queries: &VectorFile,
    metric: Metric,
    k: usize,
    threads: Option<NonZeroUsize>,
    progress: &dyn Progress,
) -> Result<IdFile, GroundTruthError> {
    check_inputs(base, queries, k)?;
    let query_bytes = k * NEIGHBOR_BYTES + base.dim() * 4 + base.row_bytes();
    let per_pass = queries.count().min(PASS_BYTES / query_bytes).max(1);
    let rows = base.count().min(BLOCK_BYTES / base.row_bytes()).max(1);
    let expected = 2 * PAIRS_FACTOR * k.saturating_mul(per_pass);
    let pairs = expected.clamp(*PAIRS_RANGE.start(), *PAIRS_RANGE.end()).min(per_pass.saturating_mul(rows));
    let wanted = ScreenCapacity { queries: per_pass, rows, pairs };
    let screening = screener.begin(base.element(), base.dim(), wanted).map_err(GroundTruthError::Screen)?;
    let (capacity, threads) = (screening.capacity(), thread_count(threads));
    let (pairs, done) = (Vec::new(), 0);
    let mut search = Search { base, queries, metric, k, threads, progress, screening, capacity, pairs, done };
    let per_pass = capacity.queries.min(wanted.queries);
    search_in_passes(base, queries, k, per_pass, progress, |rows| search.run(rows))
}

/// The parameters and the state that all passes share.
struct Search<'a> {
    base: &'a VectorFile,
    queries: &'a VectorFile,
    metric: Metric,
    k: usize,
    threads: usize,
    progress: &'a dyn Progress,
    screening: Box<dyn Screening + 'a>,
    capacity: ScreenCapacity,
    /// Pairs that a launch returned; reused.
    pairs: Vec<(u32, u32)>,
    /// Vectors done, over all passes.
    done: u64,
}

/// The queries of one pass, and the nearest vectors found for each so far.
struct PassQueries {
    /// `queries x dim`, decoded.
    values: Vec<f32>,
    norms: Vec<f64>,
    nearest: Vec<TopK>,
}

/// A block of vectors that the device is screening.
struct LaunchedBlock {
    /// Number of the block on the device: 0 or 1.
    block: usize,
    rows: Range<usize>,
    /// Length of the longest vector of the block.
    longest: f64,
}

/// Terms of the vectors of a block.
struct BlockTerms {
    biases: Vec<f32>,
    scales: Vec<f32>,
    /// Length of the longest vector of the block.
    longest: f64,
}

impl Search<'_> {
    /// Finds the nearest neighbours of the queries `rows`.
    fn run(&mut self, rows: Range<usize>) -> Result<Vec<TopK>, GroundTruthError> {
        let mut pass = self.decode_queries(rows.clone())?;
        self.screening.set_queries(self.queries.block(rows)).map_err(GroundTruthError::Screen)?;
        let mut readers = [(); 2].map(|()| RowReader::new(self.base, 0));
        let count = self.base.count();
        let first = FIRST_ROWS.max(self.k).min(count);
        for start in (0..first).step_by(self.capacity.rows) {
            let block = readers[0].block(start..first.min(start + self.capacity.rows))?;
            self.block_terms(block)?;
            self.measure_block(&mut pass, block)?;
        }
        let (mut next, mut block, mut pending) = (first, 0, None);
        while next < count || pending.is_some() {
            let rows = next..count.min(next + next.min(self.capacity.rows));
            next = rows.end;
            let launched = match rows.is_empty() {
                true => None,
                false => Some(self.launch_block(&pass, readers[block].block(rows)?, block)?),
            };
            block = 1 - block;
            if let Some(finished) = std::mem::replace(&mut pending, launched) {
                let rows = readers[finished.block].block(finished.rows.clone())?;
                self.finish_block(&mut pass, rows, &finished)?;
            }
        }
        Ok(pass.nearest)
    }

    fn decode_queries(&self, rows: Range<usize>) -> Result<PassQueries, GroundTruthError> {
        self.queries.check_length()?;
        let dim = self.base.dim();
        let mut pass = PassQueries {
            values: vec![0.0; rows.len() * dim],
            norms: Vec::with_capacity(rows.len()),
            nearest: vec![TopK::new(self.k); rows.len()],
        };
        for (row, values) in rows.zip(pass.values.chunks_exact_mut(dim)) {
            if row % 4096 == 0 {
                self.check_cancelled()?;
            }
            to_f32(self.queries.element(), self.queries.row(row), values);
            let norm = norm(values);
            check_norm(self.metric, self.queries, row, norm)?;
            pass.norms.push(norm);
        }
        Ok(pass)
    }

    fn check_cancelled(&self) -> Result<(), GroundTruthError> {
        if self.progress.cancelled() { Err(GroundTruthError::Cancelled) } else { Ok(()) }
    }

    /// Reports `rows` more vectors as done.
    fn advance(&mut self, rows: usize) {
        self.done += rows as u64;
        self.progress.advance(self.done);
    }

    /// Checks the vectors of a block and computes their terms.
    fn block_terms(&self, block: RowBlock<'_>) -> Result<BlockTerms, GroundTruthError> {
        let (rows, metric, base) = (block.rows(), self.metric, self.base);
        let (mut biases, mut scales) = (vec![0.0; rows.len()], vec![0.0; rows.len()]);
        let longest = Mutex::new(0.0_f64);
        // The error of the earliest rows, so that the row in it does not depend on the threads.
        let failed: Mutex<Option<(usize, GroundTruthError)>> = Mutex::new(None);
        let parts = biases.chunks_mut(GROUP).zip(scales.chunks_mut(GROUP)).zip(rows.step_by(GROUP));
        for_each_parallel(self.threads, parts, |((biases, scales), first)| {
            let part = block.part(first..first + biases.len());
            let mut exact = ExactDistance::new(metric, base.element(), base.dim());
            let checked = part.check().map_err(GroundTruthError::from).and_then(|()| {
                let mut part_longest = 0.0_f64;
                for (row, (bias, scale)) in part.rows().zip(biases.iter_mut().zip(scales)) {
                    let norm = exact.norm(part.row(row));
                    check_norm(metric, base, row, norm)?;
                    part_longest = part_longest.max(norm);
                    (*bias, *scale) = row_terms(metric, norm);
                }
                let mut longest = locked(&longest);
                *longest = longest.max(part_longest);
                Ok(())
            });
            if let Err(error) = checked {
                let mut failed = locked(&failed);
                if failed.as_ref().is_none_or(|(earlier, _)| first < *earlier) {
                    *failed = Some((first, error));
                }
            }
        });
        match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some((_, error)) => Err(error),
            None => {
                let longest = longest.into_inner().unwrap_or_else(PoisonError::into_inner);
                Ok(BlockTerms { biases, scales, longest })
            }
        }
    }

    /// Computes the exact distances of all queries to all vectors of a block.
    fn measure_block(&mut self, pass: &mut PassQueries, block: RowBlock<'_>) -> Result<(), GroundTruthError> {
        self.measure(pass, |_, measure| block.rows().for_each(|row| measure(row, block.row(row))))?;
        self.advance(block.rows().len());
        Ok(())
    }

    /// Copies a block to the device and launches its screening with the current limits.
    fn launch_block(
        &mut self,
        pass: &PassQueries,
        rows: RowBlock<'_>,
        block: usize,
    ) -> Result<LaunchedBlock, GroundTruthError> {
        self.check_cancelled()?;
        let BlockTerms { biases, scales, longest } = self.block_terms(rows)?;
        let limits = self.limits(pass, longest);
        let count = rows.rows().len();
        self.screening
            .set_rows(block, rows, &biases, &scales)
            .and_then(|()| self.screening.launch(block, 0..count, &limits))
            .map_err(GroundTruthError::Screen)?;
        Ok(LaunchedBlock { block, rows: rows.rows(), longest })
    }

    /// Computes the exact distances of the pairs of a block. If the pairs exceed the capacity, the block is
    /// screened again in halves.
    fn finish_block(
        &mut self,
        pass: &mut PassQueries,
        rows: RowBlock<'_>,
        launched_block: &LaunchedBlock,
    ) -> Result<(), GroundTruthError> {
        let LaunchedBlock { block, longest, .. } = *launched_block;
        let whole = 0..rows.rows().len();
        let (mut pieces, mut launched) = (vec![whole], true);
        while let Some(piece) = pieces.pop() {
            self.check_cancelled()?;
            if !std::mem::take(&mut launched) {
                let limits = self.limits(pass, longest);
                self.screening.launch(block, piece.clone(), &limits).map_err(GroundTruthError::Screen)?;
            }
            let mut pairs = std::mem::take(&mut self.pairs);
            if self.screening.pairs(block, &mut pairs).map_err(GroundTruthError::Screen)? {
                self.measure_pairs(pass, rows, &pairs)?;
            } else if piece.len() > 1 {
                let middle = piece.start + piece.len() / 2;
                pieces.extend([middle..piece.end, piece.start..middle]);
            } else {
                let reason = "the pairs of one vector exceed the capacity of the screening device";
                return Err(GroundTruthError::Screen(reason.into()));
            }
            self.pairs = pairs;
        }
        self.advance(rows.rows().len());
        Ok(())
    }

    /// Computes the exact distances of pairs of queries and vectors of `block`.
    fn measure_pairs(
        &self,
        pass: &mut PassQueries,
        block: RowBlock<'_>,
        pairs: &[(u32, u32)],
    ) -> Result<(), GroundTruthError> {
        // Sort the vectors by query: count them for each query, turn the counts into offsets, then scatter.
        let mut ends = vec![0_usize; pass.norms.len() + 1];
        pairs.iter().for_each(|(query, _)| ends[*query as usize + 1] += 1);
        (1..ends.len()).for_each(|query| ends[query] += ends[query - 1]);
        let mut by_query = vec![0; pairs.len()];
        for (query, row) in pairs {
            let end = &mut ends[*query as usize];
            by_query[*end] = *row;
            *end += 1;
        }
        let first = block.rows().start;
        self.measure(pass, |query, measure| {
            let start = query.checked_sub(1).map_or(0, |before| ends[before]);
            for row in &by_query[start..ends[query]] {
                measure(first + *row as usize, block.row(first + *row as usize));
            }
        })
    }

    /// Computes exact distances for all queries of the pass. `for_each_row` takes a query and a callback, and
    /// calls the callback with each vector, its number and its bytes, to compare with the query.
    fn measure(
        &self,
        pass: &mut PassQueries,
        for_each_row: impl Fn(usize, &mut dyn FnMut(usize, &[u8])) + Sync,
    ) -> Result<(), GroundTruthError> {
        let (metric, element, dim) = (self.metric, self.base.element(), self.base.dim());
        let (values, norms, progress) = (&pass.values, &pass.norms, self.progress);
        for_each_parallel(self.threads, pass.nearest.chunks_mut(GROUP).enumerate(), |(group, lists)| {
            let mut exact = ExactDistance::new(metric, element, dim);
            for (query, nearest) in (group * GROUP..).zip(lists) {
                if progress.cancelled() {
                    return;
                }
                let exact_query = ExactQuery { values: &values[query * dim..][..dim], norm: norms[query] };
                // The cast loses nothing: opening refuses files with more rows than a u32 can name.
                for_each_row(query, &mut |row, vector| {
                    nearest.push(row as u32, exact.distance(&exact_query, vector));
                });
            }
        });
        self.check_cancelled()
    }

    /// Returns the largest value that a vector of a block may have, for each query of the pass (see
    /// [`limit`]).
    fn limits(&self, pass: &PassQueries, longest: f64) -> Vec<f32> {
        let roundings = self.screening.roundings();
        let queries = pass.norms.iter().zip(&pass.nearest);
        queries
            .map(|(norm, nearest)| limit(self.metric, roundings, *norm, longest, nearest.threshold()))
            .collect()
    }
}

/// Calls `work` with all `pieces` on `threads` threads. Each thread takes the next piece when it has finished
/// one.
fn for_each_parallel<T: Send>(
    threads: usize,
    pieces: impl Iterator<Item = T> + Send,
    work: impl Fn(T) + Sync,
) {
    let pieces = Mutex::new(pieces);
    let next = || locked(&pieces).next();
    let run = || {
        while let Some(piece) = next() {
            work(piece);
        }
    };
    std::thread::scope(|scope| {
        (1..threads).for_each(|_| {
            scope.spawn(run);
        });
        run();
    });
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
