//! A matrix of vectors, mapped from a file or held in memory.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bathyal_kernels::{Element, Metric, MetricName};
use memmap2::Mmap;

use super::error::VectorError;
use super::format::{FileFormat, Layout, MAX_DIM};
use super::room::Filling;
use super::rows::RowBlock;

/// What stands for the path of vectors that are in no file, in messages.
pub(crate) const IN_MEMORY: &str = "(vectors in memory)";

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
    layout: Layout,
}

pub(crate) struct Shared {
    pub(crate) bytes: Bytes,
    pub(crate) path: PathBuf,
}

pub(crate) enum Bytes {
    Mapped { map: Mmap, file: File },
    Owned(Vec<u8>),
    Lent(Lent),
    Filling(Filling),
}

/// Bytes that someone else keeps. See [`VectorFile::from_lent`].
pub(crate) type Lent = Arc<dyn AsRef<[u8]> + Send + Sync>;

impl Bytes {
    fn as_slice(&self) -> &[u8] {
        match self {
            Bytes::Mapped { map, .. } => map,
            Bytes::Owned(bytes) => bytes,
            Bytes::Lent(bytes) => (**bytes).as_ref(),
            Bytes::Filling(bytes) => bytes.as_slice(),
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

    /// Maps a file that holds nothing but rows, as [`VectorFile::from_rows`] takes them; `path` names it in messages.
    ///
    /// # Errors
    /// As [`VectorFile::from_rows`]; [`VectorError::Io`] if it cannot be mapped.
    pub fn from_rows_file(
        file: File,
        path: &Path,
        element: Element,
        dim: usize,
    ) -> Result<VectorFile, VectorError> {
        let map = map_open(&file, path, "vectors")?;
        let layout = Layout::dense(element, dim, map.len(), path)?;
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
        VectorFile::from_lent_as(IN_MEMORY, element, dim, lent)
    }

    /// The same of vectors that messages call by the `name` that the caller has for them: of an argument.
    ///
    /// # Errors
    /// As [`VectorFile::from_rows`].
    pub fn from_lent_as(
        name: &str,
        element: Element,
        dim: usize,
        lent: Arc<dyn AsRef<[u8]> + Send + Sync>,
    ) -> Result<VectorFile, VectorError> {
        let path = PathBuf::from(name);
        let layout = Layout::dense(element, dim, (*lent).as_ref().len(), &path)?;
        Ok(VectorFile::of(Bytes::Lent(lent), layout, path))
    }

    fn of(bytes: Bytes, layout: Layout, path: PathBuf) -> VectorFile {
        VectorFile { shared: Arc::new(Shared { bytes, path }), layout }
    }

    /// The vectors that `layout` says lie within `shared`.
    pub(crate) fn view(shared: Arc<Shared>, layout: Layout) -> VectorFile {
        VectorFile { shared, layout }
    }

    /// These vectors and the `next` ones, where those lie behind these in the same [`VectorRoom`](super::VectorRoom): nothing is
    /// copied.
    pub fn followed_by(&self, next: &VectorFile) -> Option<VectorFile> {
        let (one, two) = (&self.layout, &next.layout);
        let follows = Arc::ptr_eq(&self.shared, &next.shared)
            && (one.element, one.dim, one.stride) == (two.element, two.dim, two.stride)
            && one.start + one.count * one.stride == two.start;
        let layout = Layout { count: one.count + two.count, ..self.layout };
        follows.then(|| VectorFile { shared: self.shared.clone(), layout })
    }

    /// The same vectors as bits, eight in each byte, where they are of u8: what [`Metric::L2`](bathyal_kernels::Metric)
    /// then counts is the Hamming distance. Vectors of bits are as they are. `None` for all others, and for more bits than
    /// [`MAX_DIM`](super::MAX_DIM).
    pub fn as_bits(&self) -> Option<VectorFile> {
        let mut bits = self.clone();
        if self.element() == Element::U8 {
            bits.layout.element = Element::B1;
            bits.layout.dim = Element::B1.components_in(self.layout.dim);
        }
        (bits.element() == Element::B1 && bits.dim() <= MAX_DIM).then_some(bits)
    }

    /// The vectors as `metric` compares them, and what compares them: under [`MetricName::Hamming`] those that
    /// [`VectorFile::as_bits`] makes.
    ///
    /// # Errors
    /// [`VectorError::Argument`] for vectors that are not bits, under a metric of bits.
    pub fn under(self, metric: MetricName) -> Result<(VectorFile, Metric), VectorError> {
        let MetricName::Of(metric) = metric else {
            let Some(bits) = self.as_bits() else {
                let reason = match self.element() {
                    Element::U8 => format!(
                        "has {} bytes a vector, and the metric hamming takes at most {}, of 8 bits each",
                        self.dim(),
                        MAX_DIM / 8
                    ),
                    element => format!(
                        "holds {element}, and the metric hamming compares bits: pack eight of them into each byte, as \
                         numpy.packbits does, or take another metric"
                    ),
                };
                return Err(VectorError::Argument { path: self.path().to_path_buf(), reason });
            };
            return Ok((bits, Metric::L2));
        };
        Ok((self, metric))
    }

    /// Number of vectors, at least 1.
    pub fn count(&self) -> usize {
        self.layout.count
    }

    /// Elements of each vector, 1 to [`MAX_DIM`](super::MAX_DIM).
    pub fn dim(&self) -> usize {
        self.layout.dim
    }

    /// Type of the elements.
    pub fn element(&self) -> Element {
        self.layout.element
    }

    /// Bytes of one vector: see [`Element::row_bytes`].
    pub fn row_bytes(&self) -> usize {
        self.layout.row_bytes()
    }

    /// Bytes from the start of one vector to the start of the next; more than [`VectorFile::row_bytes`]
    /// where the format puts a length before every row.
    pub fn stride(&self) -> usize {
        self.layout.stride
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
        let layout = &self.layout;
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
        let layout = &self.layout;
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
        #[cfg(unix)]
        if let Bytes::Mapped { map, .. } = &self.shared.bytes {
            use memmap2::Advice;
            let advice = match access {
                Access::Sequential => Advice::Sequential,
                Access::Random => Advice::Random,
                Access::Resident => Advice::WillNeed,
            };
            let _ = map.advise(advice);
        }
        #[cfg(not(unix))]
        let _ = access;
    }

    /// Gives the memory of mapped pages back to the system; reading them again fetches them again. Afterwards
    /// they do not count as this process's memory. A hint: nothing happens to vectors that are in no file.
    pub fn release(&self) {
        #[cfg(unix)]
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
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            let (seconds, nanoseconds) = (found.mtime(), found.mtime_nsec());
            Some(format!("{path:?} {} {seconds}.{nanoseconds:09} {}", found.len(), found.ino()))
        }
        // In the place of an inode, when it was made.
        #[cfg(windows)]
        {
            use std::os::windows::fs::MetadataExt;
            let (changed, made) = (found.last_write_time(), found.creation_time());
            Some(format!("{path:?} {} {changed} {made}", found.len()))
        }
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

    /// Checks `rows` from first to last as [`VectorFile::check_finite`](VectorFile::check_finite) checks all.
    ///
    /// # Errors
    /// As [`RowBlock::check`].
    ///
    /// # Panics
    /// If `rows` is not within the vectors.
    pub fn check_rows(&self, rows: Range<usize>) -> Result<(), VectorError> {
        self.block(rows).check()
    }

    /// The rows `rows` where they are, mapped or in memory.
    ///
    /// # Panics
    /// If `rows` is not within the vectors.
    pub fn block(&self, rows: Range<usize>) -> RowBlock<'_> {
        RowBlock::new(self, &self.shared.bytes.as_slice()[self.range_bytes(&rows)], &rows)
    }

    /// Whether the rows are in this process's memory anyway, and not in a file.
    pub(crate) fn is_in_memory(&self) -> bool {
        !matches!(self.shared.bytes, Bytes::Mapped { .. })
    }

    /// Bytes before each row that say its length.
    pub(crate) fn prefix_bytes(&self) -> usize {
        self.layout.stride - self.layout.row_bytes()
    }

    /// Where `rows` are in the file, each with its prefix.
    ///
    /// # Panics
    /// If `rows` is not within the vectors.
    pub(crate) fn range_bytes(&self, rows: &Range<usize>) -> Range<usize> {
        let layout = &self.layout;
        assert!(rows.start <= rows.end && rows.end <= layout.count, "rows {rows:?} of {}", layout.count);
        let start = layout.start - self.prefix_bytes() + rows.start * layout.stride;
        start..start + rows.len() * layout.stride
    }

    /// Reads what [`VectorFile::range_bytes`] says of a mapped file.
    pub(crate) fn read_rows(&self, rows: &Range<usize>, out: &mut [u8]) -> Result<(), VectorError> {
        let range = self.range_bytes(rows);
        match &self.shared.bytes {
            Bytes::Mapped { file, .. } => read_exact_at(file, out, range.start as u64).or_else(|error| {
                self.check_length()?;
                Err(VectorError::io(self.path(), "read the vectors")(error))
            }),
            Bytes::Owned(_) | Bytes::Lent(_) | Bytes::Filling(_) => {
                out.copy_from_slice(&self.shared.bytes.as_slice()[range]);
                Ok(())
            }
        }
    }
}

/// Fills `out` with the bytes of `file` from `offset` on, from any thread.
fn read_exact_at(file: &File, out: &mut [u8], offset: u64) -> io::Result<()> {
    #[cfg(unix)]
    return std::os::unix::fs::FileExt::read_exact_at(file, out, offset);
    #[cfg(windows)]
    {
        use std::os::windows::fs::FileExt;
        let mut done = 0;
        while done < out.len() {
            match file.seek_read(&mut out[done..], offset + done as u64) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
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
