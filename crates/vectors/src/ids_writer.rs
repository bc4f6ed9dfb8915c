//! A streaming writer of files of ids.

use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::error::VectorError;
use super::ids::{IdFormat, check_signed};
use super::writer::{AtomicFile, bin_header_bytes};

/// Bytes of distances that are buffered before a write to the temporary file.
const BUFFER_BYTES: usize = 1 << 20;

/// A writer of ids and distances, query by query. It takes the memory of two buffers for any number of
/// queries.
///
/// As with [`VectorWriter`](super::VectorWriter), the final name exists only after [`IdWriter::finish`]. In
/// an `.ibin` all distances come after all ids, so until then they are kept in a second temporary file in the
/// same folder.
#[derive(Debug)]
pub struct IdWriter {
    output: AtomicFile,
    /// The temporary file of the distances; `None` for `.ivecs`.
    distances: Option<BufWriter<File>>,
    format: IdFormat,
    k: usize,
    queries: u64,
}

impl IdWriter {
    /// Begins the file `path` (`.ibin`, with distances, or `.ivecs`, without) for `k` ids a query.
    ///
    /// # Errors
    /// [`VectorError::UnknownExtension`], [`VectorError::Argument`] if k is 0 or too large,
    /// [`VectorError::Io`].
    pub fn create(path: impl AsRef<Path>, k: usize) -> Result<IdWriter, VectorError> {
        let path = path.as_ref();
        let format = IdFormat::from_path(path)?;
        if k == 0 || u32::try_from(k).is_err() {
            let reason = format!("{k} ids a query; expected 1 to {}", u32::MAX);
            return Err(VectorError::Argument { path: path.to_path_buf(), reason });
        }
        let mut output = AtomicFile::create(path)?;
        let distances = match format {
            IdFormat::Ibin => {
                output.append(&bin_header_bytes(0, k as u32))?;
                let spool = tempfile::tempfile_in(output.folder());
                let spool = spool.map_err(VectorError::io(path, "create a temporary file beside"))?;
                Some(BufWriter::with_capacity(BUFFER_BYTES, spool))
            }
            IdFormat::Ivecs => None,
        };
        Ok(IdWriter { output, distances, format, k, queries: 0 })
    }

    /// Appends the ids and distances of any number of queries, `queries x k` each.
    ///
    /// # Errors
    /// [`VectorError::Argument`] if `ids` and `distances` differ in length or are not a whole number of
    /// queries, or if the number of queries no longer fits 32 bits; [`VectorError::IdSigned`] for ids that
    /// `.ivecs` cannot hold; [`VectorError::Io`] (a full disk).
    pub fn push(&mut self, ids: &[u32], distances: &[f32]) -> Result<(), VectorError> {
        let queries = self.queries + (ids.len() / self.k) as u64;
        let consistent = ids.len().is_multiple_of(self.k) && ids.len() == distances.len();
        if !consistent || queries > u64::from(u32::MAX) {
            let (k, ids, distances) = (self.k, ids.len(), distances.len());
            let reason = format!("got {ids} ids and {distances} distances; expected queries x {k} of each");
            return Err(VectorError::Argument { path: self.output.path().to_path_buf(), reason });
        }
        if self.format == IdFormat::Ivecs {
            check_signed(ids, self.k, self.queries, self.output.path())?;
        }
        let prefix = (self.k as u32).to_le_bytes();
        for row in ids.chunks_exact(self.k) {
            if self.format == IdFormat::Ivecs {
                self.output.append(&prefix)?;
            }
            row.iter().try_for_each(|id| self.output.append(&id.to_le_bytes()))?;
        }
        if let Some(spool) = &mut self.distances {
            let path = self.output.path();
            let mut written = distances.iter().map(|distance| spool.write_all(&distance.to_le_bytes()));
            written.try_for_each(|done| done).map_err(VectorError::io(path, "write the file"))?;
        }
        self.queries = queries;
        Ok(())
    }

    /// Completes the file and moves it to its final path, replacing any file there. Returns the path.
    ///
    /// # Errors
    /// [`VectorError::Empty`] if nothing was pushed, [`VectorError::Io`].
    pub fn finish(mut self) -> Result<PathBuf, VectorError> {
        if self.queries == 0 {
            return Err(VectorError::Empty { path: self.output.path().to_path_buf(), what: "ids" });
        }
        let Some(spool) = self.distances.take() else { return self.output.finish(&[]) };
        let path = self.output.path().to_path_buf();
        let mut spool = spool.into_inner().map_err(|e| VectorError::Io {
            path: path.clone(),
            action: "write the file",
            source: e.into_error(),
        })?;
        spool.seek(SeekFrom::Start(0)).map_err(VectorError::io(&path, "read the distances of"))?;
        let failed = VectorError::io(&path, "write the file");
        std::io::copy(&mut spool, self.output.writer()).map_err(failed)?;
        self.output.finish(&bin_header_bytes(self.queries as u32, self.k as u32))
    }
}
