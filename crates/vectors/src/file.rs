//! A matrix of vectors, mapped from a file or held in memory.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bathyal_kernels::{Element, first_non_finite, to_f32};
use memmap2::{Advice, Mmap};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::error::VectorError;
use super::format::{FileFormat, Layout, check_prefix};

/// What stands for the path of vectors that are in no file, in messages.
const IN_MEMORY: &str = "(vectors in memory)";

/// Bytes of vectors that one thread of [`VectorFile::check_finite`] takes at a time: large enough that
/// taking costs nothing, small enough that the threads end together.
const CHECK_BYTES: usize = 4 << 20;

/// A `count x dim` matrix of one element type, row-major, mapped from a file or owned.
///
/// Cloning shares the bytes. A mapped file takes address space, not memory: the system drops and re-reads
/// its pages as it likes.
///
/// # Files that change
/// If another process cuts the file while it is mapped, touching the lost pages kills this process (SIGBUS);
/// no check at opening can prevent that. Do not write vector files in place: write beside and rename, as
/// [`VectorWriter`](super::VectorWriter) does, since a mapped file that is renamed over stays whole. Before
/// long work call [`VectorFile::check_length`], which finds a file that was already cut.
#[derive(Clone)]
pub struct VectorFile {
    shared: Arc<Shared>,
}

struct Shared {
    bytes: Bytes,
    layout: Layout,
    path: PathBuf,
}

enum Bytes {
    Mapped { map: Mmap, file: File },
    Owned(Vec<u8>),
    Lent(Lent),
}

/// Bytes that someone else keeps. See [`VectorFile::from_lent`].
type Lent = Arc<dyn AsRef<[u8]> + Send + Sync>;

impl Bytes {
    fn as_slice(&self) -> &[u8] {
        match self {
            Bytes::Mapped { map, .. } => map,
            Bytes::Owned(bytes) => bytes,
            Bytes::Lent(bytes) => (**bytes).as_ref(),
        }
    }
}

impl std::fmt::Debug for VectorFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "VectorFile({}, {} x {} {})",
            self.path().display(),
            self.count(),
            self.dim(),
            self.element().name()
        )
    }
}

/// What a file of vectors holds, whatever its format.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Content {
    /// A hash of all elements, and of how many there are.
    pub hash: u64,
    /// The largest value, of f32.
    pub largest: Option<Largest>,
}

/// The largest value of some rows, by its magnitude.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Largest {
    /// The first row that has it.
    pub row: usize,
    /// Its magnitude.
    pub value: f32,
}

/// How the rows of a [`VectorFile`] are about to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// From first to last: the system reads far ahead.
    Sequential,
    /// Here and there: the system does not read ahead.
    Random,
    /// Soon and often: the system begins to load the whole file.
    Resident,
}

impl VectorFile {
    /// Maps `path`; its extension says the format (see the [module](super)).
    ///
    /// The header is checked against the length of the file. Of `.fvecs` and `.bvecs`, whose rows each
    /// repeat the dim, a spread of rows is checked here and all of them by [`VectorFile::check_finite`].
    ///
    /// # Errors
    /// Any [`VectorError`] but the ones about values.
    pub fn open(path: impl AsRef<Path>) -> Result<VectorFile, VectorError> {
        let path = path.as_ref();
        let format = FileFormat::of(path)?;
        let (map, file) = map_file(path, "vectors")?;
        let layout = Layout::parse(format, &map, path)?;
        Ok(VectorFile::of(Bytes::Mapped { map, file }, layout, path.to_path_buf()))
    }

    /// Maps a file that is open, as [`VectorFile::open`] does; `path` says its format, and names it in messages.
    ///
    /// # Errors
    /// As [`VectorFile::open`].
    pub fn from_file(file: File, path: &Path) -> Result<VectorFile, VectorError> {
        let format = FileFormat::of(path)?;
        let map = map_open(&file, path, "vectors")?;
        let layout = Layout::parse(format, &map, path)?;
        Ok(VectorFile::of(Bytes::Mapped { map, file }, layout, path.to_path_buf()))
    }

    /// Takes `bytes`, a whole file of `format`, as [`VectorFile::open`] does.
    ///
    /// # Errors
    /// As [`VectorFile::open`].
    pub fn from_file_bytes(format: FileFormat, bytes: Vec<u8>) -> Result<VectorFile, VectorError> {
        let path = PathBuf::from(IN_MEMORY);
        let layout = Layout::parse(format, &bytes, &path)?;
        Ok(VectorFile::of(Bytes::Owned(bytes), layout, path))
    }

    /// Takes `rows`: little-endian elements, `dim` of them a row, rows one after the other.
    ///
    /// # Errors
    /// [`VectorError::Empty`] without rows, [`VectorError::Header`] for a bad dim,
    /// [`VectorError::PartialRow`] if `rows` is not a whole number of rows.
    pub fn from_rows(element: Element, dim: usize, rows: Vec<u8>) -> Result<VectorFile, VectorError> {
        let path = PathBuf::from(IN_MEMORY);
        let layout = Layout::dense(element, dim, rows.len(), &path)?;
        Ok(VectorFile::of(Bytes::Owned(rows), layout, path))
    }

    /// Takes the rows of `lent` as [`VectorFile::from_rows`] does, without copying them: for the arrays of
    /// another language. `lent` has to give the same bytes at every call.
    ///
    /// # Errors
    /// As [`VectorFile::from_rows`].
    pub fn from_lent(
        element: Element,
        dim: usize,
        lent: Arc<dyn AsRef<[u8]> + Send + Sync>,
    ) -> Result<VectorFile, VectorError> {
        let path = PathBuf::from(IN_MEMORY);
        let layout = Layout::dense(element, dim, (*lent).as_ref().len(), &path)?;
        Ok(VectorFile::of(Bytes::Lent(lent), layout, path))
    }

    fn of(bytes: Bytes, layout: Layout, path: PathBuf) -> VectorFile {
        VectorFile { shared: Arc::new(Shared { bytes, layout, path }) }
    }

    /// Number of vectors, at least 1.
    pub fn count(&self) -> usize {
        self.shared.layout.count
    }

    /// Elements of each vector, 1 to [`MAX_DIM`](super::MAX_DIM).
    pub fn dim(&self) -> usize {
        self.shared.layout.dim
    }

    /// Type of the elements.
    pub fn element(&self) -> Element {
        self.shared.layout.element
    }

    /// Bytes of one vector: `dim` x the size of an element.
    pub fn row_bytes(&self) -> usize {
        self.shared.layout.row_bytes()
    }

    /// Bytes from the start of one vector to the start of the next; more than [`VectorFile::row_bytes`]
    /// where the format puts a length before every row.
    pub fn stride(&self) -> usize {
        self.shared.layout.stride
    }

    /// `count x dim x` the size of an element: what the vectors alone take.
    pub fn data_bytes(&self) -> u64 {
        self.count() as u64 * self.row_bytes() as u64
    }

    /// The file, or a name in brackets for vectors that are in none.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// Vector `row`: little-endian elements, at any alignment.
    ///
    /// # Panics
    /// If `row` is not below [`VectorFile::count`], as indexing a slice does.
    #[inline]
    pub fn row(&self, row: usize) -> &[u8] {
        let layout = &self.shared.layout;
        assert!(row < layout.count, "row {row} of {} vectors", layout.count);
        let start = layout.start + row * layout.stride;
        &self.shared.bytes.as_slice()[start..start + layout.row_bytes()]
    }

    /// The vectors `rows`, one after the other without gaps; `None` if the format has gaps between rows
    /// (`.fvecs`, `.bvecs`: use [`VectorFile::strided`]) or if `rows` is not within the vectors.
    pub fn rows(&self, rows: Range<usize>) -> Option<&[u8]> {
        if self.stride() != self.row_bytes() {
            return None;
        }
        self.strided(rows)
    }

    /// The bytes from the first element of the first of `rows` to the last element of its last: vector `i`
    /// of them begins at `i x` [`VectorFile::stride`]. `None` if `rows` is not within the vectors.
    pub fn strided(&self, rows: Range<usize>) -> Option<&[u8]> {
        let layout = &self.shared.layout;
        if rows.start > rows.end || rows.end > layout.count {
            return None;
        }
        if rows.is_empty() {
            return Some(&[]);
        }
        let start = layout.start + rows.start * layout.stride;
        let end = layout.start + (rows.end - 1) * layout.stride + layout.row_bytes();
        self.shared.bytes.as_slice().get(start..end)
    }

    /// Tells the system how the vectors are about to be read. A hint: failure changes only speed.
    pub fn advise(&self, access: Access) {
        if let Bytes::Mapped { map, .. } = &self.shared.bytes {
            let advice = match access {
                Access::Sequential => Advice::Sequential,
                Access::Random => Advice::Random,
                Access::Resident => Advice::WillNeed,
            };
            let _ = map.advise(advice);
        }
    }

    /// Gives the memory of mapped pages back to the system; reading them again fetches them again. Afterwards
    /// they do not count as this process's memory. A hint: nothing happens to vectors that are in no file.
    pub fn release(&self) {
        if let Bytes::Mapped { map, .. } = &self.shared.bytes {
            // SAFETY: the map is read-only and backed by the file, so dropped pages come back with the same
            // content as long as the file is not changed, which mapping it asks for already.
            let _ = unsafe { map.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) };
        }
    }

    /// What tells this file from others and from itself once it was changed: path, length, time of change, inode.
    /// `None` for vectors that are in no file.
    pub fn identity(&self) -> Option<String> {
        let Bytes::Mapped { file, .. } = &self.shared.bytes else { return None };
        let found = file.metadata().ok()?;
        let path = self.path().canonicalize().ok()?;
        let (seconds, nanoseconds) = (found.mtime(), found.mtime_nsec());
        Some(format!("{path:?} {} {seconds}.{nanoseconds:09} {}", found.len(), found.ino()))
    }

    /// Asks whether the file still has the length that it had at opening (see "Files that change").
    ///
    /// # Errors
    /// [`VectorError::Changed`]; [`VectorError::Io`] if the system does not say.
    pub fn check_length(&self) -> Result<(), VectorError> {
        let Bytes::Mapped { map, file } = &self.shared.bytes else { return Ok(()) };
        let found = file.metadata().map_err(VectorError::io(self.path(), "ask for the length"))?.len();
        let expected = map.len() as u64;
        if found == expected {
            return Ok(());
        }
        Err(VectorError::Changed { path: self.path().to_path_buf(), found, expected })
    }

    /// Refuses NaN, infinity, and (`.fvecs`, `.bvecs`) a row of another length, in any row.
    ///
    /// Streams through the file once with all cores. For 8-bit elements in formats with one header there
    /// is nothing to look at.
    ///
    /// # Errors
    /// [`VectorError::NotFinite`] or [`VectorError::RowLength`] for the first bad row;
    /// [`VectorError::Changed`] if the file was cut.
    pub fn check_finite(&self) -> Result<(), VectorError> {
        self.check_length()?;
        let prefixed = self.stride() != self.row_bytes();
        if !prefixed && matches!(self.element(), Element::U8 | Element::I8) {
            return Ok(());
        }
        self.each_block(&|| false, |rows| self.check_rows(rows)).map(|_| ())
    }

    /// Checks every row as [`VectorFile::check_finite`] does, and says what the rows hold. `None` soon after `cancelled`
    /// says so.
    ///
    /// # Errors
    /// As [`VectorFile::check_finite`].
    pub fn check_content(
        &self,
        cancelled: &(dyn Fn() -> bool + Sync),
    ) -> Option<Result<Content, VectorError>> {
        let checked = self.check_length().and_then(|()| {
            self.each_block(cancelled, |rows| {
                self.check_rows(rows.clone())?;
                Ok((self.hash_rows(rows.clone()), self.largest(rows)))
            })
        });
        if cancelled() {
            return None;
        }
        let shape = [self.element().size() as u64, self.dim() as u64, self.count() as u64];
        Some(checked.map(|blocks| {
            let numbers = shape.into_iter().chain(blocks.iter().map(|(hash, _)| *hash));
            let hash = xxh3_64(&numbers.flat_map(u64::to_le_bytes).collect::<Vec<u8>>());
            let values = blocks.into_iter().filter_map(|(_, largest)| largest);
            Content { hash, largest: values.reduce(|a, b| if b.value > a.value { b } else { a }) }
        }))
    }

    /// The largest value of some f32 rows, by its magnitude; `None` for other elements, whose squares all fit f32, and for
    /// no rows.
    pub fn largest(&self, rows: Range<usize>) -> Option<Largest> {
        if self.element() != Element::F32 {
            return None;
        }
        // Magnitudes are ordered like their bits.
        let largest_of = |row: usize| {
            let bits = self.row(row).as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b) & 0x7fff_ffff);
            bits.fold(0, u32::max)
        };
        let largest = rows.map(|row| (largest_of(row), row)).reduce(|a, b| if b.0 > a.0 { b } else { a });
        largest.map(|(bits, row)| Largest { row, value: f32::from_bits(bits) })
    }

    /// Hash of the elements of `rows`.
    fn hash_rows(&self, rows: Range<usize>) -> u64 {
        if let Some(bytes) = self.rows(rows.clone()) {
            return xxh3_64(bytes);
        }
        let mut hash = Xxh3::new();
        rows.for_each(|row| hash.update(self.row(row)));
        hash.digest()
    }

    /// Calls `each` with all rows, block by block and on all cores, and returns what it makes of the blocks, in their
    /// order; all of a block's memory is given back after it. Incomplete once `cancelled` says so.
    ///
    /// # Errors
    /// That of the first block that has one.
    fn each_block<T: Send>(
        &self,
        cancelled: &(dyn Fn() -> bool + Sync),
        each: impl Fn(Range<usize>) -> Result<T, VectorError> + Sync,
    ) -> Result<Vec<T>, VectorError> {
        // By the bytes of rows, not of the file, so that blocks are the same in every format.
        let block = (CHECK_BYTES / self.row_bytes()).max(1);
        let blocks = self.count().div_ceil(block);
        let rows = |at: usize| at * block..((at + 1) * block).min(self.count());
        if blocks == 1 {
            return each(rows(0)).map(|made| vec![made]);
        }
        let next = AtomicUsize::new(0);
        // Blocks are handed out in order, so once a block was found bad no later one matters, and the
        // earliest bad block is always looked at.
        let bad = AtomicUsize::new(usize::MAX);
        let made = Mutex::new(Vec::with_capacity(blocks));
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(blocks);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        if at >= blocks || at > bad.load(Ordering::Relaxed) || cancelled() {
                            break;
                        }
                        let outcome = each(rows(at));
                        if outcome.is_err() {
                            bad.fetch_min(at, Ordering::Relaxed);
                        }
                        if let Ok(mut made) = made.lock() {
                            made.push((at, outcome));
                        }
                        // What was looked at need not stay in this process's memory.
                        self.release();
                    }
                });
            }
        });
        let mut made = made.into_inner().unwrap_or_default();
        made.sort_unstable_by_key(|(at, _)| *at);
        made.into_iter().map(|(_, outcome)| outcome).collect()
    }

    /// Checks `rows` from first to last.
    pub fn check_rows(&self, rows: Range<usize>) -> Result<(), VectorError> {
        let prefixed = self.stride() != self.row_bytes();
        // Over the gaps too, so that a block is one pass: a right prefix, read as an f32, is finite, and a
        // wrong one is found row by row below.
        let bytes = self.strided(rows.clone()).unwrap_or_default();
        if all_finite(self.element(), bytes) {
            return if prefixed { self.check_prefixes(rows) } else { Ok(()) };
        }
        for row in rows {
            if prefixed {
                self.check_prefixes(row..row + 1)?;
            }
            if first_non_finite(self.element(), self.row(row)).is_some() {
                return Err(self.not_finite(row));
            }
        }
        Ok(())
    }

    /// Checks that each of `rows` begins with the dim; only for formats where rows do.
    pub(crate) fn check_prefixes(&self, mut rows: Range<usize>) -> Result<(), VectorError> {
        let bytes = self.shared.bytes.as_slice();
        rows.try_for_each(|row| check_prefix(bytes, row, self.stride(), self.dim(), self.path()))
    }

    /// The error that names the first value of `row` that is not finite.
    pub fn not_finite(&self, row: usize) -> VectorError {
        let bytes = self.row(row);
        let dimension = first_non_finite(self.element(), bytes).unwrap_or_default();
        let mut value = [f32::NAN];
        to_f32(self.element(), &bytes[dimension * self.element().size()..], &mut value);
        VectorError::NotFinite {
            path: self.path().to_path_buf(),
            row: row as u64,
            dimension,
            value: value[0],
        }
    }
}

/// True if no element of `bytes` is NaN or infinite. Unlike [`first_non_finite`] it never leaves early,
/// which lets the compiler use vector registers: several times faster where all is well.
fn all_finite(element: Element, bytes: &[u8]) -> bool {
    match element {
        Element::F32 => !bytes
            .as_chunks::<4>()
            .0
            .iter()
            .fold(false, |bad, b| bad | (u32::from_le_bytes(*b) & 0x7f80_0000 == 0x7f80_0000)),
        Element::F16 => !bytes
            .as_chunks::<2>()
            .0
            .iter()
            .fold(false, |bad, b| bad | (u16::from_le_bytes(*b) & 0x7c00 == 0x7c00)),
        Element::U8 | Element::I8 => true,
    }
}

/// Maps the whole of `path`, which has to be a regular file that is not empty.
pub(crate) fn map_file(path: &Path, what: &'static str) -> Result<(Mmap, File), VectorError> {
    // Asked before opening, since opening a pipe would wait for a writer.
    let found = std::fs::metadata(path).map_err(VectorError::io(path, "find the file"))?;
    if !found.is_file() {
        return Err(VectorError::NotAFile { path: path.to_path_buf() });
    }
    let file = File::open(path).map_err(VectorError::io(path, "open the file"))?;
    let map = map_open(&file, path, what)?;
    Ok((map, file))
}

/// Maps the whole of an open file, which has to be regular and not empty.
fn map_open(file: &File, path: &Path, what: &'static str) -> Result<Mmap, VectorError> {
    let len = file.metadata().map_err(VectorError::io(path, "ask for the length"))?.len();
    if len == 0 {
        return Err(VectorError::Empty { path: path.to_path_buf(), what });
    }
    // SAFETY: the map is read-only and private to this process. Rust cannot rule out that another process
    // changes the file; bytes that change give wrong distances but are never used as a length or an
    // address (the layout is copied out at opening), and a file that is cut ends the process with SIGBUS,
    // which `VectorFile` documents together with how to avoid it.
    unsafe { Mmap::map(file) }.map_err(VectorError::io(path, "map the file"))
}
