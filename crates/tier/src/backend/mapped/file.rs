//! Files and DAX devices that are mapped as they are: memory that several processes or nodes read and change
//! together.
//!
//! Nothing is loaded and there is no header: the bytes of the file are the bytes of the tier. Other processes
//! may be changing them, so they are copied by atomic loads and stores of words, and never lent.

use super::header::{self, HeaderState, USED_BYTES};
use super::medium::Medium;
use super::region::Mapping;
use super::shared::open_existing;
use crate::backend::writable::{Memory, Words, WritableTier};
use crate::error::TierError;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

/// A file or device to be mapped as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedFile {
    /// A file (of a DAX file system, tmpfs, or any other) or a character device `/dev/daxX.Y`.
    pub path: PathBuf,
    /// Number of bytes to map, from the start on; `None` for all.
    pub len: Option<u64>,
    /// True if the tier may change the bytes.
    pub writable: bool,
}

impl MappedFile {
    /// Makes options to map all of `path` for reading.
    pub fn at(path: impl Into<PathBuf>) -> MappedFile {
        MappedFile { path: path.into(), len: None, writable: false }
    }

    /// Returns the same options for reading and writing.
    pub fn for_writing(self) -> MappedFile {
        MappedFile { writable: true, ..self }
    }

    /// Maps the file with its present length. A file that grows must be mapped again. Once a file is found
    /// truncated, every operation fails with [`FaultKind::Gone`](crate::FaultKind::Gone), since stores beyond
    /// its new end are lost.
    ///
    /// # Errors
    /// [`TierError::Io`] if the file does not exist or may not be opened for this access.
    /// [`TierError::Parameter`] if it is empty, shorter than `len`, or neither a file nor a DAX device; if an
    /// index is being loaded to it; and, for writing, if it holds an index, which other processes may search
    /// and which never changes.
    pub fn map(&self) -> Result<WritableTier, TierError> {
        let path = &self.path;
        let file =
            open_existing(File::options().read(true).write(self.writable), path).map_err(|e| match e {
                TierError::Io { source, .. } => TierError::io(self.open_operation(), path, source),
                other => other,
            })?;
        let medium = Medium::of(&file, path)?;
        self.lock(&file)?;
        let len = self.length(&file, &medium)?;
        let Some(mapped) = len.checked_next_multiple_of(medium.granule) else {
            return Err(TierError::Parameter(format!(
                "{}: the file is longer than the address space",
                path.display()
            )));
        };
        let (mapping, synchronous) = Mapping::shared(&file, path, mapped, medium.granule, self.writable)?;
        let Some(start) = NonNull::new(mapping.start().cast()) else {
            return Err(TierError::Parameter(format!("{}: no memory was mapped", path.display())));
        };
        let method = format!("{} ({}), copied", path.display(), medium.describe(synchronous));
        let memory = SharedMapping { mapping, file, is_file: medium.device_bytes.is_none(), len: len as u64 };
        // SAFETY: whole pages that stay mapped as long as `memory` exists. This process has no other
        // reference to them, and sees stores of other processes through atomic loads only.
        let words = unsafe { Words::over(start, len, Box::new(memory)) };
        self.refuse_index(&words)?;
        Ok(WritableTier::new(words, "mapped", method).changeable(self.writable))
    }

    /// Returns the name of the operation for errors.
    fn open_operation(&self) -> &'static str {
        if self.writable { "open for writing" } else { "open" }
    }

    /// Takes a shared lock, which keeps loaders of indexes out while the file is open.
    fn lock(&self, file: &File) -> Result<(), TierError> {
        file.try_lock_shared().map_err(|error| match error {
            TryLockError::WouldBlock => {
                let path = self.path.display();
                TierError::Parameter(format!("{path}: an index is being loaded there; name another place"))
            }
            TryLockError::Error(e) => TierError::io("lock", &self.path, e),
        })
    }

    /// Fails if the file is to be written and holds an index, which other processes may be searching.
    fn refuse_index(&self, words: &Words) -> Result<(), TierError> {
        let mut first = [0; USED_BYTES];
        if !self.writable || words.len() < USED_BYTES {
            return Ok(());
        }
        words.get(0, first.as_mut_ptr(), USED_BYTES);
        match header::decode(&first) {
            HeaderState::Empty | HeaderState::Foreign => Ok(()),
            HeaderState::Ready(_) | HeaderState::Loading { .. } => Err(TierError::Parameter(format!(
                "{}: the file holds an index that was loaded there and must not be changed; name another \
                 place",
                self.path.display()
            ))),
        }
    }

    /// Returns the number of bytes to map.
    fn length(&self, file: &File, medium: &Medium) -> Result<usize, TierError> {
        let existing = match medium.device_bytes {
            Some(bytes) => bytes,
            None => file_len(file, &self.path)?,
        };
        let path = self.path.display();
        let len = self.len.unwrap_or(existing);
        if len == 0 {
            return Err(TierError::Parameter(format!(
                "{path}: the file is empty; give it its length before it is mapped"
            )));
        }
        if len > existing {
            return Err(TierError::Parameter(format!(
                "{path}: {len} bytes are to be mapped, but there are only {existing}"
            )));
        }
        usize::try_from(len)
            .map_err(|_| TierError::Parameter(format!("{path}: the file is longer than the address space")))
    }
}

fn file_len(file: &File, path: &Path) -> Result<u64, TierError> {
    let metadata = file.metadata().map_err(|e| TierError::io("read the length of", path, e))?;
    Ok(metadata.len())
}

/// A shared mapping and its open file, which holds the lock.
struct SharedMapping {
    mapping: Mapping,
    file: File,
    /// False for a device, which cannot be truncated.
    is_file: bool,
    len: u64,
}

impl Memory for SharedMapping {
    fn is_lost(&self, thorough: bool) -> bool {
        if self.mapping.lost().is_some() {
            return true;
        }
        // Stores beyond the end of a file but within its last page raise no fault, so the length is checked.
        thorough && self.is_file && self.file.metadata().is_ok_and(|file| file.len() < self.len)
    }
}

impl Memory for Mapping {
    fn is_lost(&self, _thorough: bool) -> bool {
        self.lost().is_some()
    }
}
