//! Files and DAX devices that are mapped as they are: memory that several processes or nodes read and change together.
//!
//! Nothing is loaded and there is no header: what lies there is what the tier holds. Others may be changing it, so that
//! bytes are copied, by atomic loads and stores of words, and never lent.

use super::header::{self, Found, USED_BYTES};
use super::medium::Medium;
use super::region::Mapping;
use super::shared::open_there;
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
    /// Bytes from its start on; `None` for all.
    pub len: Option<u64>,
    /// Whether its bytes may be changed through the tier.
    pub writable: bool,
}

impl MappedFile {
    /// All of `path`, for reading alone.
    pub fn at(path: impl Into<PathBuf>) -> MappedFile {
        MappedFile { path: path.into(), len: None, writable: false }
    }

    /// The same, for writing too.
    pub fn for_writing(self) -> MappedFile {
        MappedFile { writable: true, ..self }
    }

    /// Maps it. The length of a file is that of now: one that grows has to be mapped again, and once one is found cut
    /// short every operation fails as [`FaultKind::Gone`](crate::FaultKind::Gone), for what was last stored beyond its
    /// new end is lost.
    ///
    /// # Errors
    /// [`TierError::Io`] for a file that is not there or may not be opened as asked; [`TierError::Parameter`] for one that is
    /// empty or shorter than `len`, for what is neither a file nor a DAX device, for a place that an index is being loaded to,
    /// and, where it is to be changed, for one that holds an index: others search it, and it never changes.
    pub fn map(&self) -> Result<WritableTier, TierError> {
        let path = &self.path;
        let file =
            open_there(File::options().read(true).write(self.writable), path).map_err(|e| match e {
                TierError::Io { source, .. } => TierError::io(self.purpose(), path, source),
                other => other,
            })?;
        let medium = Medium::of(&file, path)?;
        self.lock(&file)?;
        let len = self.length(&file, &medium)?;
        let Some(mapped) = len.checked_next_multiple_of(medium.granule) else {
            return Err(TierError::Parameter(format!(
                "{}: is longer than the address space",
                path.display()
            )));
        };
        let (mapping, synchronous) = Mapping::shared(&file, path, mapped, medium.granule, self.writable)?;
        let Some(start) = NonNull::new(mapping.start().cast()) else {
            return Err(TierError::Parameter(format!("{}: no memory was mapped", path.display())));
        };
        let method = format!("{} ({}), copied", path.display(), medium.describe(synchronous));
        let memory = Shared { mapping, file, is_file: medium.device_bytes.is_none(), len: len as u64 };
        // SAFETY: whole pages that stay mapped as long as `memory`; this process has no other reference to them, and what
        // other processes store there is seen through atomic loads alone.
        let words = unsafe { Words::over(start, len, Box::new(memory)) };
        self.refuse_index(&words)?;
        Ok(WritableTier::new(words, "mapped", method).changeable(self.writable))
    }

    fn purpose(&self) -> &'static str {
        if self.writable { "open for writing" } else { "open" }
    }

    /// Keeps loaders of indexes out for as long as the file is open; all who map it as it is share the lock.
    fn lock(&self, file: &File) -> Result<(), TierError> {
        file.try_lock_shared().map_err(|error| match error {
            TryLockError::WouldBlock => {
                let path = self.path.display();
                TierError::Parameter(format!("{path}: an index is being loaded there; name another place"))
            }
            TryLockError::Error(e) => TierError::io("lock", &self.path, e),
        })
    }

    /// Sees that no index is changed that others may be searching.
    fn refuse_index(&self, words: &Words) -> Result<(), TierError> {
        let mut first = [0; USED_BYTES];
        if !self.writable || words.len() < USED_BYTES {
            return Ok(());
        }
        words.get(0, first.as_mut_ptr(), USED_BYTES);
        match header::decode(&first) {
            Found::Nothing | Found::Foreign => Ok(()),
            Found::Ready(_) | Found::Loading { .. } => Err(TierError::Parameter(format!(
                "{}: holds an index that was loaded there, which is searched and never changed; name another place",
                self.path.display()
            ))),
        }
    }

    /// Bytes to be mapped.
    fn length(&self, file: &File, medium: &Medium) -> Result<usize, TierError> {
        let there = match medium.device_bytes {
            Some(bytes) => bytes,
            None => length_of(file, &self.path)?,
        };
        let path = self.path.display();
        let wanted = self.len.unwrap_or(there);
        if wanted == 0 {
            return Err(TierError::Parameter(format!(
                "{path}: there is nothing to map: give the file its length first"
            )));
        }
        if wanted > there {
            return Err(TierError::Parameter(format!(
                "{path}: {wanted} bytes are to be mapped, only {there} are there"
            )));
        }
        usize::try_from(wanted)
            .map_err(|_| TierError::Parameter(format!("{path}: is longer than the address space")))
    }
}

fn length_of(file: &File, path: &Path) -> Result<u64, TierError> {
    let about = file.metadata().map_err(|e| TierError::io("read the length of", path, e))?;
    Ok(about.len())
}

/// A shared mapping, and what lies behind it: its lock is held as long as it is open.
struct Shared {
    mapping: Mapping,
    file: File,
    /// A device has no length to be cut.
    is_file: bool,
    len: u64,
}

impl Memory for Shared {
    fn is_lost(&self, thorough: bool) -> bool {
        if self.mapping.lost().is_some() {
            return true;
        }
        // Stores beyond the end of a file and within its last page raise no fault: only its length tells.
        thorough && self.is_file && self.file.metadata().is_ok_and(|file| file.len() < self.len)
    }
}

impl Memory for Mapping {
    fn is_lost(&self, _thorough: bool) -> bool {
        self.lost().is_some()
    }
}
