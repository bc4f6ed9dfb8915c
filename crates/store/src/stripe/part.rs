//! The bytes of a part of a striped object: a file, or an object of any store.

use crate::disk::{DiskFile, read_exact};
use crate::error::StoreError;
use bathyal_tier::Tier;
use bathyal_tier::backend::dram::DramTier;
use bathyal_tier::backend::file::{FileOptions, FileTier};
use std::fmt::Debug;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes per read of a file.
const READ_BYTES: usize = 1 << 20;

/// The bytes of a part, including its header.
pub trait PartBytes: Debug + Send + Sync {
    /// Returns its address, for messages.
    fn address(&self) -> &Path;

    /// Returns its length in bytes at the time it was opened.
    fn len(&self) -> u64;

    /// Returns true if it has no bytes.
    fn is_empty(&self) -> bool;

    /// Returns the number of bytes to request per read when reading the whole part.
    fn piece_bytes(&self) -> usize;

    /// Fills `out` with the bytes from `offset` on.
    ///
    /// # Errors
    /// [`StoreError::Short`] if the part ends before `out` is filled.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), StoreError>;

    /// Opens its bytes as a tier for queries. `options` apply to files only.
    ///
    /// # Errors
    /// [`StoreError`].
    fn tier(&self, options: FileOptions) -> Result<Arc<dyn Tier>, StoreError>;
}

/// A part that is a file.
#[derive(Debug)]
pub(super) struct PartFile {
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    len: u64,
}

impl PartFile {
    pub(super) fn new(path: PathBuf, file: Arc<dyn DiskFile>) -> Result<PartFile, StoreError> {
        let len = file.length().map_err(|e| StoreError::io("read the length of", &path, e))?;
        Ok(PartFile { path, file, len })
    }
}

impl PartBytes for PartFile {
    fn address(&self) -> &Path {
        &self.path
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn piece_bytes(&self) -> usize {
        READ_BYTES
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        let wanted = out.len() as u64;
        read_exact(self.file.as_ref(), out, offset).map_err(|e| match (e.kind(), self.file.length()) {
            // The file was truncated after it was opened.
            (ErrorKind::UnexpectedEof, Ok(len)) => {
                StoreError::Short { path: self.path.clone(), offset, wanted, len }
            }
            _ => StoreError::io("read", &self.path, e),
        })
    }

    fn tier(&self, options: FileOptions) -> Result<Arc<dyn Tier>, StoreError> {
        if self.file.file().is_some() {
            return Ok(Arc::new(FileTier::open(&self.path, options)?));
        }
        let mut bytes = vec![0; self.len as usize];
        self.read_at(0, &mut bytes)?;
        Ok(Arc::new(DramTier::new(bytes)))
    }
}
