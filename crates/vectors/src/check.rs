//! Checking all vectors of a file in one pass on all cores, in little memory.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::error::VectorError;
use super::file::{Content, VectorFile};
use super::rows::RowReader;

/// Bytes of vectors that one thread takes at a time: large enough that taking costs nothing, small enough that the threads
/// end together. Hashes are of such blocks, so that another number would give every set another hash.
const CHECK_BYTES: usize = 4 << 20;
/// Bytes of the buffers of all threads together, and of each at most and at least.
const WINDOWS_BYTES: usize = 8 << 20;
const WINDOW_BYTES: std::ops::RangeInclusive<usize> = 64 << 10..=1 << 20;

/// Cores that this process may use. To ask reads files of the system, which takes half as long as a search of one query, and
/// every search checks its queries.
fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

impl VectorFile {
    /// Refuses NaN, infinity, and (`.fvecs`, `.bvecs`) a row of another length, in any row.
    ///
    /// Streams through the file once with all cores. For elements that are not floats, in formats with one
    /// header, there is nothing to look at.
    ///
    /// # Errors
    /// [`VectorError::NotFinite`] or [`VectorError::RowLength`] for the first bad row;
    /// [`VectorError::Changed`] if the file was cut.
    pub fn check_finite(&self) -> Result<(), VectorError> {
        self.check_length()?;
        let prefixed = self.stride() != self.row_bytes();
        if !prefixed && !self.element().is_float() {
            return Ok(());
        }
        let threads = cores();
        let check = |reader: &mut RowReader<'_>, rows| reader.block(rows)?.check();
        self.each_block(threads, &|| false, |reader, rows, window| {
            windows(rows, window).try_for_each(|rows| check(reader, rows))
        })
        .map(|_| ())
    }

    /// Checks every row as [`VectorFile::check_finite`] does, on `threads` threads, and says what the rows hold. `None` soon
    /// after `cancelled` says so.
    ///
    /// Takes some 8 MiB and 64 KiB a thread, however large the file is.
    ///
    /// # Errors
    /// As [`VectorFile::check_finite`].
    pub fn check_content(
        &self,
        threads: usize,
        cancelled: &(dyn Fn() -> bool + Sync),
    ) -> Option<Result<Content, VectorError>> {
        let checked = self.check_length().and_then(|()| {
            self.each_block(threads, cancelled, |reader, rows, window| {
                let (mut hash, mut most) = (Xxh3::new(), None);
                for rows in windows(rows, window) {
                    let block = reader.block(rows)?;
                    block.check()?;
                    block.hash(&mut hash);
                    most = larger(most, block.largest());
                }
                Ok((hash.digest(), most))
            })
        });
        if cancelled() {
            return None;
        }
        let shape = [self.element().bits() as u64 / 8, self.dim() as u64, self.count() as u64];
        Some(checked.map(|blocks| {
            let numbers = shape.into_iter().chain(blocks.iter().map(|(hash, _)| *hash));
            let hash = xxh3_64(&numbers.flat_map(u64::to_le_bytes).collect::<Vec<u8>>());
            Content { hash, largest: blocks.into_iter().fold(None, |most, block| larger(most, block.1)) }
        }))
    }

    /// Calls `each` with all rows, block by block and on `threads` threads, and returns what it makes of the blocks, in
    /// their order. It is given the thread's reader, and how many rows it should read at once. Incomplete once `cancelled`
    /// says so.
    ///
    /// # Errors
    /// That of the first block that has one.
    fn each_block<T: Send>(
        &self,
        threads: usize,
        cancelled: &(dyn Fn() -> bool + Sync),
        each: impl Fn(&mut RowReader<'_>, Range<usize>, usize) -> Result<T, VectorError> + Sync,
    ) -> Result<Vec<T>, VectorError> {
        // By the bytes of rows, not of the file, so that blocks are the same in every format.
        let block = (CHECK_BYTES / self.row_bytes()).max(1);
        let blocks = self.count().div_ceil(block);
        let threads = threads.clamp(1, blocks);
        let window = (WINDOWS_BYTES / threads).clamp(*WINDOW_BYTES.start(), *WINDOW_BYTES.end());
        let window = (window / self.stride()).max(1);
        let next = AtomicUsize::new(0);
        // Blocks are handed out in order, so once a block was found bad no later one matters, and the
        // earliest bad block is always looked at.
        let bad = AtomicUsize::new(usize::MAX);
        let made = Mutex::new(Vec::with_capacity(blocks));
        let work = || {
            let mut reader = RowReader::new(self, 0);
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                if at >= blocks || at > bad.load(Ordering::Relaxed) || cancelled() {
                    return;
                }
                let rows = at * block..((at + 1) * block).min(self.count());
                let outcome = each(&mut reader, rows, window);
                if outcome.is_err() {
                    bad.fetch_min(at, Ordering::Relaxed);
                }
                if let Ok(mut made) = made.lock() {
                    made.push((at, outcome));
                }
            }
        };
        std::thread::scope(|scope| {
            (1..threads).for_each(|_| drop(scope.spawn(work)));
            work();
        });
        let mut made = made.into_inner().unwrap_or_default();
        made.sort_unstable_by_key(|(at, _)| *at);
        made.into_iter().map(|(_, outcome)| outcome).collect()
    }
}

/// `rows` in parts of `window`, the last one shorter.
fn windows(rows: Range<usize>, window: usize) -> impl Iterator<Item = Range<usize>> {
    rows.clone().step_by(window).map(move |start| start..rows.end.min(start + window))
}

/// The larger of two; the earlier of equals.
fn larger(a: Option<super::Largest>, b: Option<super::Largest>) -> Option<super::Largest> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if b.value > a.value { b } else { a }),
        (a, b) => a.or(b),
    }
}
