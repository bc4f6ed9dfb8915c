//! A file of an index as it is written: from front to back, with its checksum, and continued where it was left.

use super::manifest::FileEntry;
use crate::error::IndexError;
use bathyal_tier::TierError;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// How far a file was written, and the checksum up to there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Written {
    pub(crate) bytes: u64,
    pub(crate) crc32c: u32,
}

/// A file written from front to back, with its checksum.
///
/// It stands under its own name from the start: its directory is what has another name until all is complete.
pub(crate) struct Appender {
    file: File,
    path: PathBuf,
    name: String,
    written: Written,
}

impl Appender {
    pub(crate) fn create(directory: &Path, name: &str) -> Result<Appender, IndexError> {
        Appender::resume(directory, name, Written::default())
    }

    /// Continues a file after what is known to be written; anything beyond is dropped.
    pub(crate) fn resume(directory: &Path, name: &str, written: Written) -> Result<Appender, IndexError> {
        let path = directory.join(name);
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|e| TierError::io("create", &path, e))?;
        file.set_len(written.bytes).map_err(|e| TierError::io("cut", &path, e))?;
        Ok(Appender { file, path, name: name.into(), written })
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), IndexError> {
        let written = self.file.write_all_at(bytes, self.written.bytes);
        written.map_err(|e| TierError::io("write", &self.path, e))?;
        self.written.bytes += bytes.len() as u64;
        self.written.crc32c = crc32c::crc32c_append(self.written.crc32c, bytes);
        Ok(())
    }

    /// How far the file is written.
    pub(crate) fn written(&self) -> Written {
        self.written
    }

    /// Waits until what was written is on the device.
    pub(crate) fn sync(&self) -> Result<Written, IndexError> {
        self.file.sync_all().map_err(|e| TierError::io("sync", &self.path, e))?;
        Ok(self.written)
    }

    pub(crate) fn finish(self) -> Result<FileEntry, IndexError> {
        let Written { bytes, crc32c } = self.sync()?;
        Ok(FileEntry { name: self.name, bytes, crc32c })
    }
}
