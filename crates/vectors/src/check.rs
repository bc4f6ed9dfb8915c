//! Checks of all vectors of a file, in one pass on all cores and in little memory.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::error::VectorError;
use super::file::{ContentSummary, VectorFile};
use super::rows::RowReader;

/// Bytes of vectors that one thread takes at a time: large enough that taking a block costs nothing, small
/// enough that the threads end together. Each block is hashed by itself, so another size would give every
/// file another hash.
const CHECK_BYTES: usize = 4 << 20;
/// Bytes of the read buffers of all threads together.
const WINDOWS_BYTES: usize = 8 << 20;
/// Bytes of the read buffer of one thread.
const WINDOW_BYTES: std::ops::RangeInclusive<usize> = 64 << 10..=1 << 20;

/// Returns the number of cores that this process may use.
///
/// It is cached: finding it reads system files, which takes half as long as a search of one query, and every
/// search checks its queries.
fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

impl VectorFile {
    /// Refuses NaN, infinity, and (`.fvecs`, `.bvecs`) a row with another length.
    ///
    /// Reads the file once with all cores. Elements that are not floats, in formats with one header, need no
    /// reading.
    ///
    /// # Errors
    /// [`VectorError::NotFinite`] or [`VectorError::RowLength`] for the first bad row;
    /// [`VectorError::Changed`] if the file was truncated.
    pub fn check_finite(&self) -> Result<(), VectorError> {
        self.check_length()?;
        let prefixed = self.stride() != self.row_bytes();
        if !prefixed && !self.element().is_float() {
            return Ok(());
        }
        let threads = cores();
        let check = |reader: &mut RowReader<'_>, rows| reader.block(rows)?.check();
        self.map_blocks(threads, &|| false, |reader, rows, window| {
            windows(rows, window).try_for_each(|rows| check(reader, rows))
        })
        .map(|_| ())
    }

    /// Checks every row as [`VectorFile::check_finite`] does, on `threads` threads, and returns a summary of
    /// the rows. Returns `None` soon after `cancelled` returns true.
    ///
    /// Takes some 8 MiB and 64 KiB a thread, for files of any size.
    ///
    /// # Errors
    /// As [`VectorFile::check_finite`].
    pub fn check_content(
        &self,
        threads: usize,
        cancelled: &(dyn Fn() -> bool + Sync),
    ) -> Option<Result<ContentSummary, VectorError>> {
        let checked = self.check_length().and_then(|()| {
            self.map_blocks(threads, cancelled, |reader, rows, window| {
                let (mut hash, mut largest) = (Xxh3::new(), None);
                for rows in windows(rows, window) {
                    let block = reader.block(rows)?;
                    block.check()?;
                    block.hash(&mut hash);
                    largest = larger(largest, block.largest());
                }
                Ok((hash.digest(), largest))
            })
        });
        if cancelled() {
            return None;
        }
        let shape = [self.element().bits() as u64 / 8, self.dim() as u64, self.count() as u64];
        Some(checked.map(|blocks| {
            let numbers = shape.into_iter().chain(blocks.iter().map(|(hash, _)| *hash));
            let hash = xxh3_64(&numbers.flat_map(u64::to_le_bytes).collect::<Vec<u8>>());
            let largest = blocks.into_iter().fold(None, |largest, block| larger(largest, block.1));
            ContentSummary { hash, largest }
        }))
    }

    /// Calls `process` with all rows, block by block on `threads` threads, and returns its results in the
    /// order of the blocks. `process` takes the reader of the thread, the rows, and the number of rows to
    /// read at once.
    ///
    /// Once `cancelled` returns true, the remaining blocks are skipped.
    ///
    /// # Errors
    /// The error of the first block that fails.
    fn map_blocks<T: Send>(
        &self,
        threads: usize,
        cancelled: &(dyn Fn() -> bool + Sync),
        process: impl Fn(&mut RowReader<'_>, Range<usize>, usize) -> Result<T, VectorError> + Sync,
    ) -> Result<Vec<T>, VectorError> {
        // Counted in bytes of rows without prefixes, so that blocks are the same in every format.
        let block = (CHECK_BYTES / self.row_bytes()).max(1);
        let blocks = self.count().div_ceil(block);
        let threads = threads.clamp(1, blocks);
        let window = (WINDOWS_BYTES / threads).clamp(*WINDOW_BYTES.start(), *WINDOW_BYTES.end());
        let window = (window / self.stride()).max(1);
        let next = AtomicUsize::new(0);
        // Threads take blocks in order. So no block after a bad one matters, and the earliest bad block is
        // always processed.
        let first_bad = AtomicUsize::new(usize::MAX);
        let outcomes = Mutex::new(Vec::with_capacity(blocks));
        let work = || {
            let mut reader = RowReader::new(self, 0);
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                if at >= blocks || at > first_bad.load(Ordering::Relaxed) || cancelled() {
                    return;
                }
                let rows = at * block..((at + 1) * block).min(self.count());
                let outcome = process(&mut reader, rows, window);
                if outcome.is_err() {
                    first_bad.fetch_min(at, Ordering::Relaxed);
                }
                if let Ok(mut outcomes) = outcomes.lock() {
                    outcomes.push((at, outcome));
                }
            }
        };
        std::thread::scope(|scope| {
            (1..threads).for_each(|_| drop(scope.spawn(work)));
            work();
        });
        let mut outcomes = outcomes.into_inner().unwrap_or_default();
        outcomes.sort_unstable_by_key(|(at, _)| *at);
        outcomes.into_iter().map(|(_, outcome)| outcome).collect()
    }
}

/// Splits `rows` into parts of `window` rows; the last part may be shorter.
fn windows(rows: Range<usize>, window: usize) -> impl Iterator<Item = Range<usize>> {
    rows.clone().step_by(window).map(move |start| start..rows.end.min(start + window))
}

/// Returns the larger of two values; the first one if they are equal.
fn larger(a: Option<super::LargestValue>, b: Option<super::LargestValue>) -> Option<super::LargestValue> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if b.value > a.value { b } else { a }),
        (a, b) => a.or(b),
    }
}
