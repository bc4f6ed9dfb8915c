//! The lease of a folder: a locked file. The system unlocks it when its process ends, however it ends.

use super::record::LeaseRecord;
use super::{Found, Holder};
use crate::failure::Refusal;
use bathyal_console::Kind;
use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The file that the holder locks. It is never removed: two processes could lock two files of this name.
const LOCK: &str = "lock";
/// The file with the record of the holder.
const HOLDER: &str = "holder";

/// The lease of a folder.
#[derive(Debug)]
pub(super) struct FolderLease {
    folder: PathBuf,
    record: LeaseRecord,
    locked: Option<File>,
}

fn failed(action: &str, path: &Path, error: &std::io::Error) -> Refusal {
    let kind = match error.kind() {
        ErrorKind::PermissionDenied => Kind::Permission,
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Kind::NoSpace,
        _ => Kind::Io,
    };
    Refusal::new(
        kind,
        format!("{}: cannot {action}, which a server that writes does: {error}", path.display()),
    )
}

impl FolderLease {
    pub(super) fn new(folder: PathBuf, record: LeaseRecord) -> FolderLease {
        FolderLease { folder, record, locked: None }
    }

    /// Takes the lease if it is free, or returns its holder.
    pub(super) fn look(&mut self) -> Result<Found, Refusal> {
        std::fs::create_dir_all(&self.folder)
            .map_err(|error| failed("make this folder", &self.folder, &error))?;
        let path = self.folder.join(LOCK);
        let file = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(|error| failed("open this file", &path, &error))?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => return self.holder().map(Found::Theirs),
            // A file system without locks: as before there were leases, the logs alone decide who writes.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        self.announce()?;
        self.locked = Some(file);
        Ok(Found::Ours { until: None })
    }

    /// Writes the record of this server.
    fn announce(&self) -> Result<(), Refusal> {
        let (path, new) = (self.folder.join(HOLDER), self.folder.join("holder.new"));
        std::fs::write(&new, self.record.to_bytes()?)
            .map_err(|error| failed("write this file", &new, &error))?;
        std::fs::rename(&new, &path).map_err(|error| failed("write this file", &path, &error))
    }

    /// Reads the record of the holder, which may not have written it yet.
    fn holder(&self) -> Result<Holder, Refusal> {
        let path = self.folder.join(HOLDER);
        match std::fs::read(&path) {
            Ok(bytes) => Ok(Holder::of(LeaseRecord::parse(&bytes, &path)?)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Holder::unknown()),
            Err(error) => Err(failed("read this file", &path, &error)),
        }
    }

    /// Gives up the lease, if this server has it.
    pub(super) fn release(&mut self) {
        if self.locked.is_some() {
            // Without it, others try an address at which nobody listens, and then look again.
            let _ = std::fs::remove_file(self.folder.join(HOLDER));
            self.locked = None;
        }
    }
}
