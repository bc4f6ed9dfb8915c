//! The log of a generation: a file in its folder, locked by its writer.

use super::folder::Folder;
use crate::contract::{Durability, Log, LogWriter};
use crate::disk::{DiskFile, Locked, write_all};
use crate::error::StoreError;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A log in a folder; its file may not exist yet.
#[derive(Debug)]
pub(super) struct LocalLog {
    pub(super) path: PathBuf,
    pub(super) folder: Folder,
}

impl Log for LocalLog {
    fn address(&self) -> &Path {
        &self.path
    }

    fn read(&self, from: u64) -> Result<Vec<u8>, StoreError> {
        let failed = |e: io::Error| StoreError::io("read", &self.path, e);
        let opened = self.folder.disk().open(&self.path);
        self.folder.check_current()?;
        let file = match opened {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) if e.kind() == ErrorKind::InvalidInput => {
                return Err(StoreError::Irregular { path: self.path.clone(), reason: e.to_string() });
            }
            Err(e) => return Err(failed(e)),
        };
        let len = file.length().map_err(failed)?.saturating_sub(from);
        let mut bytes = Vec::new();
        if usize::try_from(len).map_or(true, |len| bytes.try_reserve_exact(len).is_err()) {
            return Err(StoreError::Memory { path: self.path.clone(), bytes: len });
        }
        bytes.resize(len as usize, 0);
        let mut filled = 0;
        while filled < bytes.len() {
            match file.read_at(&mut bytes[filled..], from + filled as u64) {
                // A writer has meanwhile truncated an unfinished record of an earlier writer.
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(failed(e)),
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }

    fn write(&self) -> Result<Box<dyn LogWriter>, StoreError> {
        let failed = |e: io::Error| StoreError::io("open", &self.path, e);
        if let Ok(found) = self.folder.disk().stat(&self.path)
            && found.kind != crate::disk::FileKind::File
        {
            let reason = "it is not a file, so it is no log of changes".into();
            return Err(StoreError::Irregular { path: self.path.clone(), reason });
        }
        let locked = self.folder.disk().lock(&self.path, true);
        // If the folder has been removed, the file cannot be created. `check_current` then reports the
        // replacement instead of an error of the disk.
        self.folder.check_current()?;
        let file = match locked.map_err(failed)? {
            Locked::Held(file) | Locked::Unknown(file) => file,
            Locked::Busy => return Err(StoreError::Busy { path: self.path.clone() }),
        };
        Ok(Box::new(LocalLogWriter {
            file,
            path: self.path.clone(),
            folder: self.folder.clone(),
            name_is_durable: false,
        }))
    }
}

/// The writer of a log, which holds the file's lock.
#[derive(Debug)]
struct LocalLogWriter {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    folder: Folder,
    /// True if the file's name is known to survive a power failure.
    name_is_durable: bool,
}

impl LogWriter for LocalLogWriter {
    fn append(&mut self, at: u64, parts: &[&[u8]], durability: Durability) -> Result<(), StoreError> {
        let failed = |e: io::Error| StoreError::io("append to", &self.path, e);
        let len = self.file.length().map_err(failed)?;
        if len < at {
            let (path, wanted) = (self.path.clone(), at);
            return Err(StoreError::Short { path, offset: 0, wanted, len });
        }
        if len > at {
            self.file.set_len(at).map_err(failed)?;
        }
        let mut end = at;
        for part in parts {
            write_all(self.file.as_ref(), part, end).map_err(failed)?;
            end += part.len() as u64;
        }
        match durability {
            Durability::Disk => self.sync(),
            Durability::System => self.folder.check_current(),
        }
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        let failed = |e: io::Error| StoreError::io("sync", &self.path, e);
        self.file.sync().map_err(failed)?;
        if !self.name_is_durable {
            self.folder.disk().sync_folder(self.folder.path()).map_err(failed)?;
            self.name_is_durable = true;
        }
        self.folder.check_current()
    }
}
