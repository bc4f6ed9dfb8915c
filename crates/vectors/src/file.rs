//! A matrix of vectors, mapped from a file or held in memory.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bathyal_kernels::{Element, Metric, MetricName};
use memmap2::Mmap;

use super::buffer::AppendOnlyBytes;
use super::error::VectorError;
use super::format::{FileFormat, MAX_DIM, RowLayout};
use super::npy_numbers;
use super::rows::RowBlock;

/// Name that messages give to vectors that are in no file, in place of a path.
pub(crate) const IN_MEMORY: &str = "(vectors in memory)";

/// A `count x dim` matrix of one element type, row-major, mapped from a file or owned.
///
/// Cloning shares the bytes. A mapped file takes address space, not memory: the operating system can drop its
/// pages and read them again at any time.
///
/// # Files that change
/// If another process truncates the file while it is mapped, reading the lost pages kills this process
/// (SIGBUS). No check at opening can prevent that. Do not write vector files in place. Write a new file and
/// rename it, as [`VectorWriter`](super::VectorWriter) does: a mapping keeps the old file alive. Before long
/// work call [`VectorFile::check_length`], which detects a file that is already truncated.
#[derive(Clone)]
pub struct VectorFile {
    storage: Arc<Storage>,
    layout: RowLayout,
}

/// Bytes that contain rows, and the name that messages give them.
pub(crate) struct Storage {
    pub(crate) bytes: FileBytes,
    pub(crate) path: PathBuf,
}

pub(crate) enum FileBytes {
    Mapped {
        map: Mmap,
        file: File,
    },
    Owned(Vec<u8>),
    External(ExternalBytes),
    Appended(AppendOnlyBytes),
    /// Rows that do not exist: only their shape is known.
    Absent,
}

/// Bytes that the caller owns. See [`VectorFile::from_lent`].
pub(crate) type ExternalBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

impl FileBytes {
    fn as_slice(&self) -> &[u8] {
        match self {
            FileBytes::Mapped { map, .. } => map,
            FileBytes::Owned(bytes) => bytes,
            FileBytes::External(bytes) => (**bytes).as_ref(),
            FileBytes::Appended(bytes) => bytes.as_slice(),
            FileBytes::Absent => &[],
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

/// Summary of the vectors in a file, the same in every format.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ContentSummary {
    /// Hash of the element type, the dim, the count and all elements.
    pub hash: u64,
    /// Largest value of f32 or bf16 vectors; `None` for other elements.
    pub largest: Option<LargestValue>,
}

/// Value of the largest magnitude in some rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LargestValue {
    /// First row with this value.
    pub row: usize,
    /// Magnitude of the value.
    pub value: f32,
}

/// Order in which the rows of a [`VectorFile`] are about to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// From first to last: the system reads far ahead.
    Sequential,
    /// In random order: the system does not read ahead.
    Random,
    /// All rows, soon and often: the system begins to load the whole file.
    Resident,
}

impl VectorFile {
    /// Maps `path`. Its extension determines the format (see the [module](super)).
    ///
    /// The header is checked against the length of the file. In `.fvecs` and `.bvecs` every row repeats the
    /// dim; a sample of the rows is checked here, and all of them by [`VectorFile::check_finite`].
    ///
    /// # Errors
    /// Any [`VectorError`] except those about values.
    pub fn open(path: impl AsRef<Path>) -> Result<VectorFile, VectorError> {
        let path = path.as_ref();
        let format = FileFormat::from_path(path)?;
        let (map, file) = map_file(path, "vectors")?;
        let layout = RowLayout::parse(format, &map, path)?;
        Ok(VectorFile::new(FileBytes::Mapped { map, file }, layout, path.to_path_buf()))
    }

    /// Opens `path` as [`VectorFile::open`] does. Of `.npy` files, those are read, too, whose numbers are of
    /// another type or in another order: float64 and whole numbers become f32, in memory. Returns the
    /// vectors, and a note for the user if the conversion changes what they are.
    ///
    /// # Errors
    /// As [`VectorFile::open`]; [`VectorError::Argument`] for a number that f32 cannot hold.
    pub fn open_converted(path: impl AsRef<Path>) -> Result<(VectorFile, Option<String>), VectorError> {
        let path = path.as_ref();
        match VectorFile::open(path) {
            Err(refused @ VectorError::Npy { .. }) => npy_numbers::open(path)?.ok_or(refused),
            opened => Ok((opened?, None)),
        }
    }

    /// Takes rows that were converted from the file `path`, which messages name.
    pub(crate) fn from_converted(
        path: &Path,
        element: Element,
        dim: usize,
        rows: Vec<u8>,
    ) -> Result<VectorFile, VectorError> {
        let layout = RowLayout::dense(element, dim, rows.len(), path)?;
        Ok(VectorFile::new(FileBytes::Owned(rows), layout, path.to_path_buf()))
    }

    /// Maps an open file, as [`VectorFile::open`] does. `path` determines the format, and names the file in
    /// messages.
    ///
    /// # Errors
    /// As [`VectorFile::open`].
    pub fn from_file(file: File, path: &Path) -> Result<VectorFile, VectorError> {
        let format = FileFormat::from_path(path)?;
        let map = map_open(&file, path, "vectors")?;
        let layout = RowLayout::parse(format, &map, path)?;
        Ok(VectorFile::new(FileBytes::Mapped { map, file }, layout, path.to_path_buf()))
    }

    /// Maps a file that holds only rows, in the layout of [`VectorFile::from_rows`]. `path` names it in
    /// messages.
    ///
    /// # Errors
    /// As [`VectorFile::from_rows`]; [`VectorError::Io`] if the file cannot be mapped.
    pub fn from_rows_file(
        file: File,
        path: &Path,
        element: Element,
        dim: usize,
    ) -> Result<VectorFile, VectorError> {
        let map = map_open(&file, path, "vectors")?;
        let layout = RowLayout::dense(element, dim, map.len(), path)?;
        Ok(VectorFile::new(FileBytes::Mapped { map, file }, layout, path.to_path_buf()))
    }

    /// Takes `bytes`, a whole file of `format` in memory.
    ///
    /// # Errors
    /// As [`VectorFile::open`].
    pub fn from_file_bytes(format: FileFormat, bytes: Vec<u8>) -> Result<VectorFile, VectorError> {
        let path = PathBuf::from(IN_MEMORY);
        let layout = RowLayout::parse(format, &bytes, &path)?;
        Ok(VectorFile::new(FileBytes::Owned(bytes), layout, path))
    }

    /// Takes `rows`: little-endian elements, `count x dim`, row-major.
    ///
    /// # Errors
    /// [`VectorError::Empty`] without rows, [`VectorError::Header`] for a bad dim,
    /// [`VectorError::PartialRow`] if `rows` is not a whole number of rows.
    pub fn from_rows(element: Element, dim: usize, rows: Vec<u8>) -> Result<VectorFile, VectorError> {
        let path = PathBuf::from(IN_MEMORY);
        let layout = RowLayout::dense(element, dim, rows.len(), &path)?;
        Ok(VectorFile::new(FileBytes::Owned(rows), layout, path))
    }

    /// Takes rows in the layout of [`VectorFile::from_rows`] without copying them, for arrays of another
    /// language.
    ///
    /// `lent` has to return the same bytes at every call.
    ///
    /// # Errors
    /// As [`VectorFile::from_rows`].
    pub fn from_lent(element: Element, dim: usize, lent: ExternalBytes) -> Result<VectorFile, VectorError> {
        VectorFile::from_lent_as(IN_MEMORY, element, dim, lent)
    }

    /// Takes rows as [`VectorFile::from_lent`] does. Messages call the vectors `name`, such as the name of an
    /// argument.
    ///
    /// # Errors
    /// As [`VectorFile::from_rows`].
    pub fn from_lent_as(
        name: &str,
        element: Element,
        dim: usize,
        lent: ExternalBytes,
    ) -> Result<VectorFile, VectorError> {
        let path = PathBuf::from(name);
        let layout = RowLayout::dense(element, dim, (*lent).as_ref().len(), &path)?;
        Ok(VectorFile::new(FileBytes::External(lent), layout, path))
    }

    /// Makes `count` vectors that do not exist, for plans, which need nothing but their shape.
    ///
    /// # Errors
    /// As [`VectorFile::from_rows`].
    ///
    /// # Panics
    /// Every method that reads rows panics, as for a row that is not below [`VectorFile::count`].
    pub fn of_shape(element: Element, dim: usize, count: u64) -> Result<VectorFile, VectorError> {
        let path = PathBuf::from("(planned vectors)");
        let layout = RowLayout::of_shape(element, dim, count, &path)?;
        Ok(VectorFile::new(FileBytes::Absent, layout, path))
    }

    fn new(bytes: FileBytes, layout: RowLayout, path: PathBuf) -> VectorFile {
        VectorFile { storage: Arc::new(Storage { bytes, path }), layout }
    }

    /// Returns the vectors at `layout` within `storage`.
    pub(crate) fn view(storage: Arc<Storage>, layout: RowLayout) -> VectorFile {
        VectorFile { storage, layout }
    }

    /// Joins these vectors and the `next` ones, without copying them. `None` unless `next` begins where these
    /// end, in the same [`VectorBuffer`](super::VectorBuffer).
    pub fn followed_by(&self, next: &VectorFile) -> Option<VectorFile> {
        let (one, two) = (&self.layout, &next.layout);
        let adjacent = Arc::ptr_eq(&self.storage, &next.storage)
            && (one.element, one.dim, one.stride) == (two.element, two.dim, two.stride)
            && one.start + one.count * one.stride == two.start;
        let layout = RowLayout { count: one.count + two.count, ..self.layout };
        adjacent.then(|| VectorFile { storage: self.storage.clone(), layout })
    }

    /// Returns u8 vectors as bits, eight in each byte, and vectors of bits unchanged. `None` for other
    /// elements, and for more than [`MAX_DIM`](super::MAX_DIM) bits.
    ///
    /// The [`Metric::L2`](bathyal_kernels::Metric) of bits is the Hamming distance.
    pub fn as_bits(&self) -> Option<VectorFile> {
        let mut bits = self.clone();
        if self.element() == Element::U8 {
            bits.layout.element = Element::B1;
            bits.layout.dim = Element::B1.components_in(self.layout.dim);
        }
        (bits.element() == Element::B1 && bits.dim() <= MAX_DIM).then_some(bits)
    }

    /// Returns the vectors in the form that `metric` compares, and the metric that compares this form. For
    /// [`MetricName::Hamming`] these are [`VectorFile::as_bits`] and L2; for others the vectors stay
    /// unchanged.
    ///
    /// # Errors
    /// [`VectorError::Argument`] if the metric is Hamming and the vectors cannot be taken as bits.
    pub fn for_metric(self, metric: MetricName) -> Result<(VectorFile, Metric), VectorError> {
        let MetricName::Metric(metric) = metric else {
            let Some(bits) = self.as_bits() else {
                let reason = match self.element() {
                    Element::U8 => format!(
                        "has {} bytes a vector, but the metric hamming takes at most {} (of 8 bits each)",
                        self.dim(),
                        MAX_DIM / 8
                    ),
                    element => format!(
                        "holds {element}, and the metric hamming compares bits: pack eight bits into each \
                         byte with numpy.packbits, or use another metric"
                    ),
                };
                return Err(VectorError::Argument { path: self.path().to_path_buf(), reason });
            };
            return Ok((bits, Metric::L2));
        };
        Ok((self, metric))
    }

    /// Returns the number of vectors, at least 1.
    pub fn count(&self) -> usize {
        self.layout.count
    }

    /// Returns the number of elements of each vector, 1 to [`MAX_DIM`](super::MAX_DIM).
    pub fn dim(&self) -> usize {
        self.layout.dim
    }

    /// Returns the type of the elements.
    pub fn element(&self) -> Element {
        self.layout.element
    }

    /// Returns the bytes of one vector: see [`Element::row_bytes`].
    pub fn row_bytes(&self) -> usize {
        self.layout.row_bytes()
    }

    /// Returns the bytes from the start of one vector to the start of the next. They are more than
    /// [`VectorFile::row_bytes`] if the format puts a length before every row.
    pub fn stride(&self) -> usize {
        self.layout.stride
    }

    /// Returns the bytes of all vectors, without headers and prefixes.
    pub fn data_bytes(&self) -> u64 {
        self.count() as u64 * self.row_bytes() as u64
    }

    /// Returns the path of the file; for vectors that are in no file, the name that messages give them.
    pub fn path(&self) -> &Path {
        &self.storage.path
    }

    /// Returns vector `row`: little-endian elements, at any alignment.
    ///
    /// # Panics
    /// If `row` is not below [`VectorFile::count`], as indexing a slice does.
    #[inline]
    pub fn row(&self, row: usize) -> &[u8] {
        let layout = &self.layout;
        assert!(row < layout.count, "row {row} of {} vectors", layout.count);
        let start = layout.start + row * layout.stride;
        &self.storage.bytes.as_slice()[start..start + layout.row_bytes()]
    }

    /// Returns the vectors `rows`, without gaps. `None` if the format has gaps between rows (`.fvecs`,
    /// `.bvecs`: use [`VectorFile::strided`]) or if `rows` is not within the vectors.
    pub fn rows(&self, rows: Range<usize>) -> Option<&[u8]> {
        if self.stride() != self.row_bytes() {
            return None;
        }
        self.strided(rows)
    }

    /// Returns the bytes from the first element of `rows` to their last element. Vector `i` of them begins at
    /// `i x` [`VectorFile::stride`]. `None` if `rows` is not within the vectors.
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
        self.storage.bytes.as_slice().get(start..end)
    }

    /// Hints to the operating system how the vectors are about to be read. A failure changes only the speed.
    pub fn advise(&self, access: Access) {
        #[cfg(unix)]
        if let FileBytes::Mapped { map, .. } = &self.storage.bytes {
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

    /// Releases the memory of mapped pages, which then no longer count as memory of this process. Later reads
    /// load the pages again. Does nothing for vectors that are in no file.
    pub fn release(&self) {
        #[cfg(unix)]
        if let FileBytes::Mapped { map, .. } = &self.storage.bytes {
            // SAFETY: the map is read-only and backed by the file, so dropped pages come back with the same
            // content as long as the file is not changed, which mapping it requires already.
            let _ = unsafe { map.unchecked_advise(memmap2::UncheckedAdvice::DontNeed) };
        }
    }

    /// Returns a string that differs between files, and between states of a file that was changed: path,
    /// length, time of change, inode. `None` for vectors that are in no file.
    pub fn identity(&self) -> Option<String> {
        let FileBytes::Mapped { file, .. } = &self.storage.bytes else { return None };
        let metadata = file.metadata().ok()?;
        let path = self.path().canonicalize().ok()?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            let (seconds, nanoseconds) = (metadata.mtime(), metadata.mtime_nsec());
            Some(format!("{path:?} {} {seconds}.{nanoseconds:09} {}", metadata.len(), metadata.ino()))
        }
        // The time of creation takes the place of the inode.
        #[cfg(windows)]
        {
            use std::os::windows::fs::MetadataExt;
            let (changed, created) = (metadata.last_write_time(), metadata.creation_time());
            Some(format!("{path:?} {} {changed} {created}", metadata.len()))
        }
    }

    /// Checks that the file still has the length that it had at opening (see "Files that change").
    ///
    /// # Errors
    /// [`VectorError::Changed`] if not; [`VectorError::Io`] if its length cannot be read.
    pub fn check_length(&self) -> Result<(), VectorError> {
        let FileBytes::Mapped { map, file } = &self.storage.bytes else { return Ok(()) };
        let found =
            file.metadata().map_err(VectorError::io(self.path(), "read the length of the file"))?.len();
        let expected = map.len() as u64;
        if found == expected {
            return Ok(());
        }
        Err(VectorError::Changed { path: self.path().to_path_buf(), found, expected })
    }

    /// Checks `rows` from first to last, as [`VectorFile::check_finite`] checks all rows.
    ///
    /// # Errors
    /// As [`RowBlock::check`].
    ///
    /// # Panics
    /// If `rows` is not within the vectors.
    pub fn check_rows(&self, rows: Range<usize>) -> Result<(), VectorError> {
        self.block(rows).check()
    }

    /// Returns the rows `rows` without copying them.
    ///
    /// # Panics
    /// If `rows` is not within the vectors.
    pub fn block(&self, rows: Range<usize>) -> RowBlock<'_> {
        RowBlock::new(self, &self.storage.bytes.as_slice()[self.range_bytes(&rows)], &rows)
    }

    /// Returns true if the rows are in the memory of this process, not in a mapped file.
    pub(crate) fn is_in_memory(&self) -> bool {
        !matches!(self.storage.bytes, FileBytes::Mapped { .. } | FileBytes::Absent)
    }

    /// Returns the bytes of the length prefix of each row; 0 if the format has none.
    pub(crate) fn prefix_bytes(&self) -> usize {
        self.layout.stride - self.layout.row_bytes()
    }

    /// Returns the bytes of the file that hold `rows`, each with its prefix.
    ///
    /// # Panics
    /// If `rows` is not within the vectors.
    pub(crate) fn range_bytes(&self, rows: &Range<usize>) -> Range<usize> {
        let layout = &self.layout;
        assert!(rows.start <= rows.end && rows.end <= layout.count, "rows {rows:?} of {}", layout.count);
        let start = layout.start - self.prefix_bytes() + rows.start * layout.stride;
        start..start + rows.len() * layout.stride
    }

    /// Reads the bytes at [`VectorFile::range_bytes`] into `out`, which has their length. Mapped files are
    /// read with read calls.
    pub(crate) fn read_rows(&self, rows: &Range<usize>, out: &mut [u8]) -> Result<(), VectorError> {
        let range = self.range_bytes(rows);
        match &self.storage.bytes {
            FileBytes::Mapped { file, .. } => read_exact_at(file, out, range.start as u64).or_else(|error| {
                self.check_length()?;
                Err(VectorError::io(self.path(), "read the vectors")(error))
            }),
            FileBytes::Owned(_) | FileBytes::External(_) | FileBytes::Appended(_) | FileBytes::Absent => {
                out.copy_from_slice(&self.storage.bytes.as_slice()[range]);
                Ok(())
            }
        }
    }
}

/// Fills `out` with the bytes of `file` from `offset` on. Does not move the file's position, so any thread
/// may call it.
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

/// Maps the file `path`, which has to be a regular file that is not empty.
pub(crate) fn map_file(path: &Path, what: &'static str) -> Result<(Mmap, File), VectorError> {
    // This check precedes opening, since opening a pipe would wait for a writer.
    let metadata = std::fs::metadata(path).map_err(VectorError::io(path, "find the file"))?;
    if !metadata.is_file() {
        return Err(VectorError::NotAFile { path: path.to_path_buf() });
    }
    let file = File::open(path).map_err(VectorError::io(path, "open the file"))?;
    let map = map_open(&file, path, what)?;
    Ok((map, file))
}

/// Maps an open file, which has to be regular and not empty.
fn map_open(file: &File, path: &Path, what: &'static str) -> Result<Mmap, VectorError> {
    let len = file.metadata().map_err(VectorError::io(path, "read the length of the file"))?.len();
    if len == 0 {
        return Err(VectorError::Empty { path: path.to_path_buf(), what });
    }
    // SAFETY: the map is read-only and private to this process. Rust cannot rule out that another process
    // changes the file. Bytes that change give wrong distances, but they are never used as a length or an
    // address (the layout is copied out at opening). A file that is truncated ends the process with SIGBUS,
    // which `VectorFile` documents together with how to avoid it.
    unsafe { Mmap::map(file) }.map_err(VectorError::io(path, "map the file"))
}
