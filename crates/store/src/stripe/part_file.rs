//! A part of a striped object that is a file.

use crate::contract::{Backing, Object};
use crate::disk::{DiskFile, read_exact};
use crate::error::StoreError;
use bathyal_tier::Tier;
use bathyal_tier::backend::dram::DramTier;
use bathyal_tier::backend::file::{FileOptions, FileTier};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// See the module's description.
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

impl Object for PartFile {
    fn address(&self) -> &Path {
        &self.path
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        let wanted = out.len() as u64;
        read_exact(self.file.as_ref(), out, offset).map_err(|e| match (e.kind(), self.file.length()) {
            // It was cut since.
            (ErrorKind::UnexpectedEof, Ok(len)) => {
                StoreError::Short { path: self.path.clone(), offset, wanted, len }
            }
            _ => StoreError::io("read", &self.path, e),
        })
    }

    fn backing(&self) -> Result<Backing, StoreError> {
        let Some(file) = self.file.file() else { return Ok(Backing::Elsewhere) };
        let file = file.try_clone().map_err(|e| StoreError::io("open", &self.path, e))?;
        Ok(Backing::File(file))
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
