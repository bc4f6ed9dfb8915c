//! Streaming writers of files of vectors and ids. A file appears complete or not at all.

use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use bathyal_kernels::Element;
use tempfile::NamedTempFile;

use super::error::VectorError;
use super::format::{FileFormat, check_dim, check_whole_bytes};
use super::ids::{IdFile, IdFormat, check_signed};
use super::npy;

/// Bytes that are buffered before a write: few system calls even for short rows.
const BUFFER_BYTES: usize = 1 << 20;

/// A writer of vectors, row by row. It takes the memory of one buffer for any number of vectors.
///
/// Rows go to a temporary file in the same folder. [`VectorWriter::finish`] fills in the count, syncs the
/// file, and renames it to `path`. Until then (after an error, a cancellation, a crash) a file that was at
/// `path` stays unchanged. Dropping the writer removes the temporary file.
#[derive(Debug)]
pub struct VectorWriter {
    output: AtomicFile,
    format: FileFormat,
    element: Element,
    dim: usize,
    count: u64,
}

impl VectorWriter {
    /// Begins the file `path`, whose extension determines the format, for vectors of `dim` elements.
    ///
    /// # Errors
    /// [`VectorError::UnknownExtension`], [`VectorError::WrongElement`] if the format has another element,
    /// [`VectorError::Header`] for a bad dim, [`VectorError::Io`] if the folder cannot be written.
    pub fn create(path: impl AsRef<Path>, element: Element, dim: usize) -> Result<VectorWriter, VectorError> {
        let path = path.as_ref();
        let format = FileFormat::from_path(path)?;
        match format.element() {
            Some(found) if found != element => {
                return Err(VectorError::WrongElement { path: path.to_path_buf(), found, expected: element });
            }
            _ => {}
        }
        check_dim(dim as u64, path)?;
        check_whole_bytes(element, dim as u64, path)?;
        if format == FileFormat::Npy {
            npy::check_element(element, path)?;
        }
        let mut writer = VectorWriter { output: AtomicFile::create(path)?, format, element, dim, count: 0 };
        let header = writer.header();
        writer.output.append(&header)?;
        Ok(writer)
    }

    /// Appends `rows`: any number of vectors, one after the other, little-endian.
    ///
    /// # Errors
    /// [`VectorError::PartialRow`] if it is not a whole number of vectors, [`VectorError::Header`] if the
    /// count no longer fits 32 bits, [`VectorError::Io`] (a full disk).
    pub fn push_rows(&mut self, rows: &[u8]) -> Result<(), VectorError> {
        let row_bytes = self.element.row_bytes(self.dim);
        let path = &self.output.path;
        if !rows.len().is_multiple_of(row_bytes) {
            let (found, row_bytes) = (rows.len() as u64, row_bytes as u64);
            return Err(VectorError::PartialRow { path: path.clone(), found, row_bytes });
        }
        let count = self.count + (rows.len() / row_bytes) as u64;
        if count > u64::from(u32::MAX) {
            return Err(VectorError::Header {
                path: path.clone(),
                field: "count",
                found: count,
                expected: format!("1 to {}, what a 32-bit id can name", u32::MAX),
            });
        }
        match self.format {
            FileFormat::Bin(_) | FileFormat::Npy => self.output.append(rows)?,
            FileFormat::Vecs(_) => {
                let prefix = (self.dim as u32).to_le_bytes();
                for row in rows.chunks_exact(row_bytes) {
                    self.output.append(&prefix)?;
                    self.output.append(row)?;
                }
            }
        }
        self.count = count;
        Ok(())
    }

    /// Returns the number of vectors pushed so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Completes the file and moves it to its final path, replacing any file there. Returns the path.
    ///
    /// # Errors
    /// [`VectorError::Empty`] if nothing was pushed, [`VectorError::Io`].
    pub fn finish(self) -> Result<PathBuf, VectorError> {
        if self.count == 0 {
            return Err(VectorError::Empty { path: self.output.path, what: "vectors" });
        }
        let header = self.header();
        self.output.finish(&header)
    }

    /// Returns the header for the current count.
    fn header(&self) -> Vec<u8> {
        match self.format {
            FileFormat::Bin(_) => bin_header_bytes(self.count as u32, self.dim as u32),
            FileFormat::Vecs(_) => Vec::new(),
            FileFormat::Npy => npy::header(self.element, self.count, self.dim),
        }
    }
}

/// Writes `neighbors` to `path`: to `.ibin` with their distances, if they have any, or to `.ivecs` without.
///
/// The file appears complete or not at all, as with [`VectorWriter`].
///
/// # Errors
/// [`VectorError::UnknownExtension`], [`VectorError::Argument`] if the number of queries does not fit 32
/// bits, [`VectorError::IdSigned`] for ids that `.ivecs` cannot hold, [`VectorError::Io`].
pub fn write_ids(path: impl AsRef<Path>, neighbors: &IdFile) -> Result<(), VectorError> {
    let path = path.as_ref();
    let format = IdFormat::from_path(path)?;
    let (Ok(queries), Ok(k)) = (u32::try_from(neighbors.queries()), u32::try_from(neighbors.k())) else {
        let (queries, k) = (neighbors.queries(), neighbors.k());
        let reason = format!("got {queries} queries x {k} ids; both numbers must fit 32 bits");
        return Err(VectorError::Argument { path: path.to_path_buf(), reason });
    };
    let mut output = AtomicFile::create(path)?;
    match format {
        IdFormat::Ibin => {
            let header = bin_header_bytes(queries, k);
            output.append(&header)?;
            neighbors.all_ids().iter().try_for_each(|id| output.append(&id.to_le_bytes()))?;
            let distances = neighbors.all_distances().unwrap_or_default();
            distances.iter().try_for_each(|d| output.append(&d.to_le_bytes()))?;
        }
        IdFormat::Ivecs => {
            check_signed(neighbors.all_ids(), neighbors.k(), 0, path)?;
            for row in neighbors.all_ids().chunks_exact(neighbors.k()) {
                output.append(&k.to_le_bytes())?;
                row.iter().try_for_each(|id| output.append(&id.to_le_bytes()))?;
            }
        }
    }
    output.finish(&[])?;
    Ok(())
}

/// Returns the 8-byte header of a `.?bin` file: count and dim.
pub fn bin_header_bytes(count: u32, dim: u32) -> Vec<u8> {
    [count.to_le_bytes(), dim.to_le_bytes()].concat()
}

/// A file that appears at its path complete or not at all.
///
/// Its bytes go to a temporary file in the same folder, which is removed if this is dropped before
/// [`AtomicFile::finish`].
#[derive(Debug)]
pub struct AtomicFile {
    path: PathBuf,
    folder: PathBuf,
    output: BufWriter<NamedTempFile>,
}

impl AtomicFile {
    /// Begins the file `path`.
    ///
    /// # Errors
    /// [`VectorError::Io`] if the folder cannot be written.
    pub fn create(path: &Path) -> Result<AtomicFile, VectorError> {
        let folder = match path.parent() {
            Some(folder) if folder != Path::new("") => folder.to_path_buf(),
            _ => PathBuf::from("."),
        };
        let mut builder = tempfile::Builder::new();
        builder.prefix(".bathyal-").suffix(".partial");
        // A temporary file is private by default. This one gets the permissions of any new file, less the
        // umask.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let file = builder.tempfile_in(&folder).map_err(VectorError::io(path, "create the file"))?;
        let output = BufWriter::with_capacity(BUFFER_BYTES, file);
        Ok(AtomicFile { path: path.to_path_buf(), folder, output })
    }

    /// Returns the final path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the folder of the file.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the writer of the temporary file.
    pub(super) fn writer(&mut self) -> &mut impl Write {
        &mut self.output
    }

    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), VectorError> {
        self.output.write_all(bytes).map_err(VectorError::io(&self.path, "write the file"))
    }

    /// Writes `header` over the first bytes, makes everything durable, and moves the file to its final path,
    /// replacing any file there. Returns the path.
    ///
    /// # Errors
    /// [`VectorError::Io`], such as a full disk.
    pub fn finish(mut self, header: &[u8]) -> Result<PathBuf, VectorError> {
        self.write_header_and_sync(header).map_err(VectorError::io(&self.path, "write the file"))?;
        let failed = |e: std::io::IntoInnerError<_>| VectorError::Io {
            path: self.path.clone(),
            action: "write the file",
            source: e.into_error(),
        };
        let file = self.output.into_inner().map_err(failed)?;
        file.persist(&self.path).map_err(|e| VectorError::Io {
            path: self.path.clone(),
            action: "rename the finished file to its name",
            source: e.error,
        })?;
        // The rename is durable only after the folder is synced.
        File::open(&self.folder)
            .and_then(|folder| folder.sync_all())
            .map_err(VectorError::io(&self.path, "sync the folder of the file"))?;
        Ok(self.path)
    }

    fn write_header_and_sync(&mut self, header: &[u8]) -> std::io::Result<()> {
        self.output.flush()?;
        let file = self.output.get_mut().as_file_mut();
        file.seek(SeekFrom::Start(0))?;
        file.write_all(header)?;
        file.sync_all()
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.output.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.output.flush()
    }
}
