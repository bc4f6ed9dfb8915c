//! Publication of a draft under its name, and recovery from interrupted publications.
//!
//! Before any name changes, a record of the publication is written into the workspace and synced. From then
//! on, the draft is known to be complete: a process that takes over the workspace publishes or discards it.
//! Names are exchanged atomically if the system can. If it cannot, the old generation is kept in the
//! workspace during the publication. Readers find it there, and the next build puts it back. The old
//! generation is removed only after the folder is synced.

use super::workspace::{DISCARDED, REPLACED, Workspace};
use crate::contract::Replace;
use crate::disk::{read_exact, write_all};
use crate::error::StoreError;
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind};
use std::path::Path;

/// The file name of the record of a publication.
pub(super) const RECORD_NAME: &str = "publishing";
/// The file name of the record while it is written.
const UNFINISHED_RECORD_NAME: &str = "publishing.partial";
/// The largest accepted length of a mark or a record.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// Attempts to rename when another process keeps changing the entry of the name.
const RENAME_ATTEMPTS: usize = 8;

/// The record of a publication that is about to happen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PublicationRecord {
    /// The writer's note, by which a later process recognises the draft.
    pub(super) note: String,
    /// The CRC-32C of the mark, which distinguishes the draft from the generation that it replaces.
    mark: u32,
}

/// Reads a whole file of at most [`MAX_FILE_BYTES`] bytes.
fn read_file(workspace: &Workspace, path: &Path) -> io::Result<Vec<u8>> {
    let file = workspace.disk().open(path)?;
    let len = file.length()?;
    if len > MAX_FILE_BYTES {
        return Err(io::Error::new(ErrorKind::InvalidData, format!("it has {len} bytes")));
    }
    let mut bytes = vec![0; len as usize];
    read_exact(file.as_ref(), &mut bytes, 0)?;
    Ok(bytes)
}

impl PublicationRecord {
    /// Makes the record of the draft in `workspace` from its current mark.
    pub(super) fn new(
        workspace: &Workspace,
        mark: &str,
        note: &str,
    ) -> Result<PublicationRecord, StoreError> {
        let path = workspace.objects().join(mark);
        let bytes = read_file(workspace, &path).map_err(|e| match e.kind() {
            ErrorKind::NotFound => StoreError::Missing { what: "file", path: path.clone() },
            _ => StoreError::io("read", &path, e),
        })?;
        Ok(PublicationRecord { note: note.to_string(), mark: crc32c::crc32c(&bytes) })
    }

    /// Reads the record in `workspace`; `None` if there is none, or only part of one.
    pub(super) fn read(workspace: &Workspace) -> Result<Option<PublicationRecord>, StoreError> {
        let path = workspace.path().join(RECORD_NAME);
        match read_file(workspace, &path) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(StoreError::io("read", path, e)),
        }
    }

    /// Writes the record into `workspace` and syncs it.
    pub(super) fn write(&self, workspace: &Workspace) -> Result<(), StoreError> {
        let [unfinished, path] =
            [UNFINISHED_RECORD_NAME, RECORD_NAME].map(|name| workspace.path().join(name));
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

/// Recovers a workspace that was taken over: undoes an interrupted publication, and returns the workspace
/// unless its objects are already published or it has none.
pub(super) fn recover(
    workspace: Workspace,
    target: &Path,
    mark: &str,
) -> Result<Option<Workspace>, StoreError> {
    let disk = workspace.disk();
    let replaced = workspace.path().join(REPLACED);
    if disk.stat(&replaced).is_ok() {
        match disk.rename_no_replace(&replaced, target) {
            Ok(()) => workspace.sync_parent()?,
            // The draft was published, or another one was: the generation that it replaced is removed with
            // the workspace.
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => {
                workspace.leave();
                return Err(StoreError::io("put back", target, e));
            }
        }
    }
    let published = match PublicationRecord::read(&workspace) {
        Ok(Some(record)) => match PublicationRecord::new(&workspace, mark, &record.note) {
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

/// Moves the folder of objects to `target`, in exchange for what is there.
pub(super) fn move_into_place(
    workspace: &mut Workspace,
    target: &Path,
    replace: Replace,
) -> Result<(), StoreError> {
    let (disk, objects) = (workspace.disk().clone(), workspace.objects());
    let failed = |e| StoreError::io("publish", target, e);
    let mut attempts = 0..RENAME_ATTEMPTS;
    loop {
        let may_retry = attempts.next().is_some();
        match disk.rename_no_replace(&objects, target) {
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
                disk.rename_no_replace(target, &replaced).map_err(failed)?;
                // The workspace is synced first, so that the old generation is found there after a power
                // failure: its parts on other disks are found only through its folder.
                let placed = disk
                    .sync_folder(workspace.path())
                    .and_then(|()| disk.rename_no_replace(&objects, target));
                if let Err(e) = placed {
                    // If this fails, too, the old generation stays in the workspace, where readers find it.
                    let _ = disk.rename_no_replace(&replaced, target);
                    return Err(failed(e));
                }
                break;
            }
            // Another process removed the entry at `target`.
            Err(e) if e.kind() == ErrorKind::NotFound && may_retry => {}
            Err(e) => return Err(failed(e)),
        }
    }
    let synced = workspace.sync_parent().and_then(|()| workspace.sync());
    if synced.is_err() {
        // After a power failure, the name may lead to the old generation again, so nothing is removed.
        workspace.keep();
    }
    synced
}
