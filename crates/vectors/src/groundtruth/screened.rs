//! Exact neighbours with something beside this processor that screens the pairs: a graphics card.
//!
//! Each block of vectors is screened as a whole, by the limits that were known when it was sent, while this processor measures what came
//! back of the block before. The first blocks are small and each is as large as all before, so that some twice as many pairs of a query
//! come back of each as neighbours are wanted; those of the very first are all measured.

use std::fmt::Debug;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use bathyal_kernels::{Element, Metric, TopK, to_f32};

use super::exact::{Exact, Measured, limit, norm, row_terms};
use super::{GroundTruthError, NEIGHBOR_BYTES, WAVE_BYTES, check, check_norm, in_waves, thread_count};
use crate::progress::Progress;
use crate::{IdFile, RowBlock, RowReader, VectorFile};

/// Bytes of a block of vectors: large enough that launching costs little beside copying, and small beside a build.
const BLOCK_BYTES: usize = 8 << 20;
/// Vectors that are measured before any are screened, if k is no more: without them all pairs of the first block would come back.
const FIRST_ROWS: usize = 256;
/// Pairs that there is room for, for each that is expected of a block: vectors may lie in an order that is not that of chance.
const ROOM_FACTOR: usize = 2;
/// Pairs that there is room for at least, and at most.
const PAIRS: std::ops::RangeInclusive<usize> = 1 << 16..=1 << 23;
/// Queries that a thread takes at a time to measure what came back of them, and vectors whose norms it takes.
const GROUP: usize = 64;

/// Why pairs were not screened.
pub type ScreenError = Box<dyn std::error::Error + Send + Sync>;

/// How much is screened at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScreenRoom {
    /// Queries.
    pub queries: usize,
    /// Vectors of a block, of which two are there.
    pub rows: usize,
    /// Pairs that come back, at least one a query.
    pub pairs: usize,
}

/// What screens pairs of queries and vectors in place of this processor.
pub trait Screener: Debug + Sync {
    /// Makes room for vectors of `dim` values: as `wanted`, or less.
    ///
    /// # Errors
    /// Whatever it has to say.
    fn begin(
        &self,
        element: Element,
        dim: usize,
        wanted: ScreenRoom,
    ) -> Result<Box<dyn Screening + '_>, ScreenError>;
}

/// A screen at work. A pair comes back unless its value, `bias - scale x product`, is above the limit of the query; what is not a number
/// is never above.
pub trait Screening {
    /// What there is room for.
    fn room(&self) -> ScreenRoom;

    /// How often the product of two vectors is rounded on its way, at most, to the precision of an f32.
    fn roundings(&self) -> usize;

    /// Takes the queries.
    ///
    /// # Errors
    /// Whatever it has to say.
    fn set_queries(&mut self, queries: RowBlock<'_>) -> Result<(), ScreenError>;

    /// Takes the vectors of block 0 or 1, with the bias and the scale of each.
    ///
    /// # Errors
    /// Whatever it has to say.
    fn set_rows(
        &mut self,
        block: usize,
        rows: RowBlock<'_>,
        biases: &[f32],
        scales: &[f32],
    ) -> Result<(), ScreenError>;

    /// Begins to screen some of a block, counted from its first vector; `limits` are those of the queries.
    ///
    /// # Errors
    /// Whatever it has to say.
    fn launch(&mut self, block: usize, rows: Range<usize>, limits: &[f32]) -> Result<(), ScreenError>;

    /// Waits for what was launched last of a block and tells its pairs, each a query and a vector of the block. False, and none, if they
    /// were more than there is room for.
    ///
    /// # Errors
    /// Whatever it has to say.
    fn pairs(&mut self, block: usize, pairs: &mut Vec<(u32, u32)>) -> Result<bool, ScreenError>;
}

/// The same as [`exact_neighbors`](super::exact_neighbors), byte for byte, with pairs screened by `screener`.
///
/// # Errors
/// As there, and [`GroundTruthError::Screen`].
pub fn exact_neighbors_screened(
    screener: &dyn Screener,
    base: &VectorFile,
    queries: &VectorFile,
    metric: Metric,
    k: usize,
    threads: Option<NonZeroUsize>,
    progress: &dyn Progress,
) -> Result<IdFile, GroundTruthError> {
    check(base, queries, k)?;
    let query_bytes = k * NEIGHBOR_BYTES + base.dim() * 4 + base.row_bytes();
    let wanted = queries.count().min(WAVE_BYTES / query_bytes).max(1);
    let rows = base.count().min(BLOCK_BYTES / base.row_bytes()).max(1);
    let expected = 2 * ROOM_FACTOR * k.saturating_mul(wanted);
    let pairs = expected.clamp(*PAIRS.start(), *PAIRS.end()).min(wanted.saturating_mul(rows));
    let wanted = ScreenRoom { queries: wanted, rows, pairs };
    let screening = screener.begin(base.element(), base.dim(), wanted).map_err(GroundTruthError::Screen)?;
    let (room, threads) = (screening.room(), thread_count(threads));
    let mut search =
        Search { base, queries, metric, k, threads, progress, screening, room, pairs: Vec::new(), done: 0 };
    let wave = room.queries.min(wanted.queries);
    in_waves(base, queries, k, wave, progress, |rows| search.run(rows))
}

/// What stays the same from wave to wave.
struct Search<'a> {
    base: &'a VectorFile,
    queries: &'a VectorFile,
    metric: Metric,
    k: usize,
    threads: usize,
    progress: &'a dyn Progress,
    screening: Box<dyn Screening + 'a>,
    room: ScreenRoom,
    /// Pairs that came back, reused.
    pairs: Vec<(u32, u32)>,
    /// Vectors done, over all waves.
    done: u64,
}

/// The queries of one wave, and the nearest of each so far.
struct Wave {
    /// `queries x dim`, decoded.
    values: Vec<f32>,
    norms: Vec<f64>,
    nearest: Vec<TopK>,
}

/// A block that is being screened.
struct Sent {
    block: usize,
    rows: Range<usize>,
    longest: f64,
}

impl Search<'_> {
    /// The nearest neighbours of the queries `rows`.
    fn run(&mut self, rows: Range<usize>) -> Result<Vec<TopK>, GroundTruthError> {
        let mut wave = self.wave(rows.clone())?;
        self.screening.set_queries(self.queries.block(rows)).map_err(GroundTruthError::Screen)?;
        let mut readers = [(); 2].map(|()| RowReader::new(self.base, 0));
        let count = self.base.count();
        let first = FIRST_ROWS.max(self.k).min(count);
        for start in (0..first).step_by(self.room.rows) {
            let block = readers[0].block(start..first.min(start + self.room.rows))?;
            self.terms(block)?;
            self.measure_all(&mut wave, block)?;
        }
        let (mut next, mut block, mut sent) = (first, 0, None);
        while next < count || sent.is_some() {
            let rows = next..count.min(next + next.min(self.room.rows));
            next = rows.end;
            let launched = match rows.is_empty() {
                true => None,
                false => Some(self.send(&wave, readers[block].block(rows)?, block)?),
            };
            block = 1 - block;
            if let Some(Sent { rows, block, longest }) = std::mem::replace(&mut sent, launched) {
                self.receive(&mut wave, readers[block].block(rows)?, (block, longest))?;
            }
        }
        Ok(wave.nearest)
    }

    fn wave(&self, rows: Range<usize>) -> Result<Wave, GroundTruthError> {
        self.queries.check_length()?;
        let dim = self.base.dim();
        let mut wave = Wave {
            values: vec![0.0; rows.len() * dim],
            norms: Vec::with_capacity(rows.len()),
            nearest: vec![TopK::new(self.k); rows.len()],
        };
        for (row, values) in rows.zip(wave.values.chunks_exact_mut(dim)) {
            if row % 4096 == 0 {
                self.go_on()?;
            }
            to_f32(self.queries.element(), self.queries.row(row), values);
            let norm = norm(values);
            check_norm(self.metric, self.queries, row, norm)?;
            wave.norms.push(norm);
        }
        Ok(wave)
    }

    fn go_on(&self) -> Result<(), GroundTruthError> {
        if self.progress.cancelled() { Err(GroundTruthError::Cancelled) } else { Ok(()) }
    }

    /// Counts vectors as done.
    fn advance(&mut self, rows: usize) {
        self.done += rows as u64;
        self.progress.advance(self.done);
    }

    /// Checks the vectors of a block; their biases, their scales, and the length of the longest.
    fn terms(&self, block: RowBlock<'_>) -> Result<(Vec<f32>, Vec<f32>, f64), GroundTruthError> {
        let (rows, metric, base) = (block.rows(), self.metric, self.base);
        let (mut biases, mut scales) = (vec![0.0; rows.len()], vec![0.0; rows.len()]);
        let longest = Mutex::new(0.0_f64);
        // The error of the earliest rows, so that the row it names does not depend on the threads.
        let failed: Mutex<Option<(usize, GroundTruthError)>> = Mutex::new(None);
        let parts = biases.chunks_mut(GROUP).zip(scales.chunks_mut(GROUP)).zip(rows.step_by(GROUP));
        share(self.threads, parts, |((biases, scales), first)| {
            let (part, mut exact) =
                (block.part(first..first + biases.len()), Exact::new(metric, base.element(), base.dim()));
            let passed = part.check().map_err(GroundTruthError::from).and_then(|()| {
                let mut most = 0.0_f64;
                for (row, (bias, scale)) in part.rows().zip(biases.iter_mut().zip(scales)) {
                    let norm = exact.norm(part.row(row));
                    check_norm(metric, base, row, norm)?;
                    most = most.max(norm);
                    (*bias, *scale) = row_terms(metric, norm);
                }
                let mut longest = locked(&longest);
                *longest = longest.max(most);
                Ok(())
            });
            if let Err(error) = passed {
                let mut failed = locked(&failed);
                if failed.as_ref().is_none_or(|(earlier, _)| first < *earlier) {
                    *failed = Some((first, error));
                }
            }
        });
        match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some((_, error)) => Err(error),
            None => Ok((biases, scales, longest.into_inner().unwrap_or_else(PoisonError::into_inner))),
        }
    }

    /// Measures all queries against all vectors of a block.
    fn measure_all(&mut self, wave: &mut Wave, block: RowBlock<'_>) -> Result<(), GroundTruthError> {
        self.measure(wave, |_, measure| block.rows().for_each(|row| measure(row, block.row(row))))?;
        self.advance(block.rows().len());
        Ok(())
    }

    /// Hands over a block, to be screened by what is known now.
    fn send(&mut self, wave: &Wave, rows: RowBlock<'_>, block: usize) -> Result<Sent, GroundTruthError> {
        self.go_on()?;
        let (biases, scales, longest) = self.terms(rows)?;
        let limits = self.limits(wave, longest);
        let count = rows.rows().len();
        self.screening
            .set_rows(block, rows, &biases, &scales)
            .and_then(|()| self.screening.launch(block, 0..count, &limits))
            .map_err(GroundTruthError::Screen)?;
        Ok(Sent { block, rows: rows.rows(), longest })
    }

    /// Measures what came back of a block. Where that is more than there is room for, the block is screened again in halves.
    fn receive(
        &mut self,
        wave: &mut Wave,
        rows: RowBlock<'_>,
        (block, longest): (usize, f64),
    ) -> Result<(), GroundTruthError> {
        let whole = 0..rows.rows().len();
        let (mut pieces, mut launched) = (vec![whole], true);
        while let Some(piece) = pieces.pop() {
            self.go_on()?;
            if !std::mem::take(&mut launched) {
                let limits = self.limits(wave, longest);
                self.screening.launch(block, piece.clone(), &limits).map_err(GroundTruthError::Screen)?;
            }
            let mut pairs = std::mem::take(&mut self.pairs);
            if self.screening.pairs(block, &mut pairs).map_err(GroundTruthError::Screen)? {
                self.measure_pairs(wave, rows, &pairs)?;
            } else if piece.len() > 1 {
                let middle = piece.start + piece.len() / 2;
                pieces.extend([middle..piece.end, piece.start..middle]);
            } else {
                let reason = "the pairs of one vector are more than there is room for";
                return Err(GroundTruthError::Screen(reason.into()));
            }
            self.pairs = pairs;
        }
        self.advance(rows.rows().len());
        Ok(())
    }

    /// Measures pairs of queries and vectors of `block`.
    fn measure_pairs(
        &self,
        wave: &mut Wave,
        block: RowBlock<'_>,
        pairs: &[(u32, u32)],
    ) -> Result<(), GroundTruthError> {
        // The vectors of each query side by side: a count each, then places by what came before.
        let mut ends = vec![0_usize; wave.norms.len() + 1];
        pairs.iter().for_each(|(query, _)| ends[*query as usize + 1] += 1);
        (1..ends.len()).for_each(|query| ends[query] += ends[query - 1]);
        let mut by_query = vec![0; pairs.len()];
        for (query, row) in pairs {
            let end = &mut ends[*query as usize];
            by_query[*end] = *row;
            *end += 1;
        }
        let first = block.rows().start;
        self.measure(wave, |query, measure| {
            let start = query.checked_sub(1).map_or(0, |before| ends[before]);
            for row in &by_query[start..ends[query]] {
                measure(first + *row as usize, block.row(first + *row as usize));
            }
        })
    }

    /// Lets `rows_of` name the vectors that each query of the wave is measured against.
    fn measure(
        &self,
        wave: &mut Wave,
        rows_of: impl Fn(usize, &mut dyn FnMut(usize, &[u8])) + Sync,
    ) -> Result<(), GroundTruthError> {
        let (metric, element, dim) = (self.metric, self.base.element(), self.base.dim());
        let (values, norms, progress) = (&wave.values, &wave.norms, self.progress);
        share(self.threads, wave.nearest.chunks_mut(GROUP).enumerate(), |(group, lists)| {
            let mut exact = Exact::new(metric, element, dim);
            for (query, nearest) in (group * GROUP..).zip(lists) {
                if progress.cancelled() {
                    return;
                }
                let measured = Measured { values: &values[query * dim..][..dim], norm: norms[query] };
                // Opening refused files with more rows than a u32 can name.
                rows_of(query, &mut |row, vector| {
                    nearest.push(row as u32, exact.distance(&measured, vector));
                });
            }
        });
        self.go_on()
    }

    /// What the value of a vector of a block may be at most, for each query of the wave.
    fn limits(&self, wave: &Wave, longest: f64) -> Vec<f32> {
        let roundings = self.screening.roundings();
        let queries = wave.norms.iter().zip(&wave.nearest);
        queries
            .map(|(norm, nearest)| limit(self.metric, roundings, *norm, longest, nearest.threshold()))
            .collect()
    }
}

/// Does `work` for all pieces on so many threads, each of which takes the next as it is done with one.
fn share<T: Send>(threads: usize, pieces: impl Iterator<Item = T> + Send, work: impl Fn(T) + Sync) {
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
