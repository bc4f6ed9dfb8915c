//! Giving a draft its name, and what to do about those who were killed while they did.
//!
//! Before anything changes, a record of what is to be published is put into the workspace and synced. From then on
//! whoever takes the workspace over knows that the draft is complete, and publishes it or lets it be. Names are exchanged
//! at once where the system can; where it cannot, the generation that stood there waits in the workspace meanwhile, and
//! is found there by those who open it, and put back by those who build. What was replaced is removed only after the
//! folder is synced.

use super::workspace::{DISCARDED, REPLACED, Workspace};
use crate::contract::Replace;
use crate::disk::{read_exact, write_all};
use crate::error::StoreError;
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind};
use std::path::Path;

/// The record of a publication.
pub(super) const RECORD: &str = "publishing";
/// What the record is written as.
const RECORD_UNFINISHED: &str = "publishing.partial";
/// No mark, and no record, is longer.
const LARGEST: u64 = 64 << 20;
/// Times that a name is looked at again because another process changed what stands there.
const TRIES: usize = 8;

/// What is about to be published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// What the writer left for whoever comes after him.
    pub(super) note: String,
    /// CRC-32C of the mark, which tells the draft from what it takes the place of.
    mark: u32,
}

/// Reads a whole file of the store's own.
fn read(workspace: &Workspace, path: &Path) -> io::Result<Vec<u8>> {
    let file = workspace.disk().open(path)?;
    let len = file.length()?;
    if len > LARGEST {
        return Err(io::Error::new(ErrorKind::InvalidData, format!("it has {len} bytes")));
    }
    let mut bytes = vec![0; len as usize];
    read_exact(file.as_ref(), &mut bytes, 0)?;
    Ok(bytes)
}

impl Record {
    /// The record of the draft in `workspace`, as it is now.
    pub(super) fn new(workspace: &Workspace, mark: &str, note: &str) -> Result<Record, StoreError> {
        let path = workspace.objects().join(mark);
        let bytes = read(workspace, &path).map_err(|e| match e.kind() {
            ErrorKind::NotFound => StoreError::Missing { what: "file", path: path.clone() },
            _ => StoreError::io("read", &path, e),
        })?;
        Ok(Record { note: note.to_string(), mark: crc32c::crc32c(&bytes) })
    }

    /// The record in `workspace`; `None` if there is none, or only part of one.
    pub(super) fn read(workspace: &Workspace) -> Result<Option<Record>, StoreError> {
        let path = workspace.path().join(RECORD);
        match read(workspace, &path) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(StoreError::io("read", path, e)),
        }
    }

    /// Puts the record into `workspace`.
    pub(super) fn write(&self, workspace: &Workspace) -> Result<(), StoreError> {
        let [unfinished, path] = [RECORD_UNFINISHED, RECORD].map(|name| workspace.path().join(name));
        let failed = |e| StoreError::io("write", &path, e);
        let json = serde_json::to_vec(self).map_err(|e| failed(e.into()))?;
        let file = workspace.disk().create(&unfinished).map_err(failed)?;
        file.set_len(0).map_err(failed)?;
        write_all(file.as_ref(), &json, 0).map_err(failed)?;
        file.sync().map_err(failed)?;
        workspace.disk().rename(&unfinished, &path).map_err(failed)?;
        workspace.sync()
    }
}

/// Looks at a workspace that was taken over: undoes what was broken off in the middle, and gives it back unless its
/// objects are published already, or it has none.
pub(super) fn settle(
    workspace: Workspace,
    target: &Path,
    mark: &str,
) -> Result<Option<Workspace>, StoreError> {
    let disk = workspace.disk();
    let replaced = workspace.path().join(REPLACED);
    if disk.stat(&replaced).is_ok() {
        match disk.rename_aside(&replaced, target) {
            Ok(()) => workspace.sync_parent()?,
            // The draft has its name, or another one has: what it replaced goes.
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => {
                workspace.leave();
                return Err(StoreError::io("put back", target, e));
            }
        }
    }
    let published = match Record::read(&workspace) {
        Ok(Some(record)) => match Record::new(&workspace, mark, &record.note) {
            Ok(found) => found != record,
            Err(StoreError::Missing { .. }) => true,
            Err(e) => {
                workspace.leave();
                return Err(e);
            }
        },
        Ok(None) => {
            let discarded = disk.stat(&workspace.path().join(DISCARDED)).is_ok();
            discarded || disk.stat(&workspace.objects()).is_err()
        }
        Err(e) => {
            workspace.leave();
            return Err(e);
        }
    };
    Ok(if published { None } else { Some(workspace) })
}

/// Makes the folder of objects what stands at `target`.
pub(super) fn place(workspace: &mut Workspace, target: &Path, replace: Replace) -> Result<(), StoreError> {
    let (disk, objects) = (workspace.disk().clone(), workspace.objects());
    let failed = |e| StoreError::io("give its name to", target, e);
    let mut tries = 0..TRIES;
    loop {
        let again = tries.next().is_some();
        match disk.rename_aside(&objects, target) {
            Ok(()) => break,
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => return Err(failed(e)),
        }
        if replace == Replace::Never {
            return Err(StoreError::Exists { path: target.to_path_buf() });
        }
        match disk.exchange(&objects, target) {
            Ok(()) => break,
            Err(e) if e.kind() == ErrorKind::Unsupported => {
                let replaced = workspace.path().join(REPLACED);
                disk.rename_aside(target, &replaced).map_err(failed)?;
                // Where it went has to be known first: its parts on other disks are found by nothing else.
                let placed =
                    disk.sync_folder(workspace.path()).and_then(|()| disk.rename_aside(&objects, target));
                if let Err(e) = placed {
                    // Where that fails too, it stays where those who open it find it.
                    let _ = disk.rename_aside(&replaced, target);
                    return Err(failed(e));
                }
                break;
            }
            // Somebody took away what stood there.
            Err(e) if e.kind() == ErrorKind::NotFound && again => {}
            Err(e) => return Err(failed(e)),
        }
    }
    let synced = workspace.sync_parent().and_then(|()| workspace.sync());
    if synced.is_err() {
        // The machine may come back with what was replaced.
        workspace.keep();
    }
    synced
}
