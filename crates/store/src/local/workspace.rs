//! The folder in which a draft is written, beside the folder of the generation that it will become.
//!
//! `X.building-N` contains a file `lock`, which its writer keeps locked, a folder of objects, and during
//! publication a record of it ([`super::publish`]). The system releases the lock when the process ends for
//! any reason. A folder whose lock can be acquired is therefore abandoned: a build that can continue it takes
//! it over, and one that cannot removes it.

use super::publish::RECORD_NAME;
use crate::disk::{Disk, DiskFile, FileKind, Locked, read_exact, write_all};
use crate::error::StoreError;
use crate::stripe::remove_parts;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file that the writer of the draft keeps locked.
const LOCK: &str = "lock";
/// The name of the folder of objects.
pub(super) const OBJECTS: &str = "objects";
/// The name of the old generation during its replacement, on file systems that cannot exchange two names.
pub(super) const REPLACED: &str = "replaced";
/// The name of a generation that is being deleted.
pub(super) const DELETED: &str = "deleted";
/// The name that the record of a publication is renamed to when the contents of the workspace are no longer
/// needed.
pub(super) const DISCARDED: &str = "discarded";
/// The list of the files that may be removed from [`DELETED`], in JSON. Other files of that folder are not
/// the generation's, and go back to the generation's path.
const OWNED: &str = "owned";
/// The name of the list while it is written.
const UNFINISHED_OWNED: &str = "owned.partial";
/// The text between the generation's name and the process number in the name of a workspace.
const BUILDING: &str = ".building-";
/// Names tried for a new folder. On a shared disk, processes of other machines may have the same process
/// number.
const MAX_NAMES: usize = 100;

/// A workspace whose lock this process holds. It is removed when dropped.
#[derive(Debug)]
pub(super) struct Workspace {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// The path that its objects will be published at.
    target: PathBuf,
    /// The lock, held until everything else is removed.
    lock: Arc<dyn DiskFile>,
    /// True if it is not removed when dropped.
    keep_on_drop: bool,
}

/// Returns the paths of the workspaces of `target`, sorted.
pub(super) fn workspaces_of(disk: &Arc<dyn Disk>, target: &Path) -> impl Iterator<Item = PathBuf> {
    let prefix = target.file_name().and_then(|name| name.to_str()).map(|name| format!("{name}{BUILDING}"));
    let names = disk.list(target.parent().unwrap_or(Path::new(""))).unwrap_or_default();
    let is_workspace = move |name: &String| {
        prefix.as_ref().and_then(|prefix| name.strip_prefix(prefix.as_str())).is_some_and(is_number)
    };
    let target = target.to_path_buf();
    names.into_iter().filter(is_workspace).map(move |name| target.with_file_name(name))
}

/// Returns true if `text` has the form of a process number in the name of a workspace.
fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
}

/// Returns the name of the generation that the workspace called `workspace` belongs to; `None` if the name is
/// not that of a workspace.
pub(super) fn target_name(workspace: &str) -> Option<String> {
    let (name, number) = workspace.rsplit_once(BUILDING)?;
    is_number(number).then(|| name.to_string())
}

impl Workspace {
    /// Creates a workspace for `target`.
    pub(super) fn begin(disk: &Arc<dyn Disk>, target: &Path) -> Result<Workspace, StoreError> {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        for number in 0..MAX_NAMES {
            let process = std::process::id();
            let suffix = if number == 0 { String::new() } else { format!("-{number}") };
            let path = target.with_file_name(format!("{name}{BUILDING}{process}{suffix}"));
            match disk.create_folder(&path) {
                Ok(()) => {}
                Err(e) if e.kind() == ErrorKind::AlreadyExists => continue,
                Err(e) => return Err(StoreError::io("create the directory", path, e)),
            }
            let lock = match disk.lock(&path.join(LOCK), true) {
                // On a file system without locks, no process takes over a workspace.
                Ok(Locked::Held(lock) | Locked::Unknown(lock)) => lock,
                Ok(Locked::Busy) => continue,
                // Another process took the empty folder for a leftover and removed it.
                Err(e) if e.kind() == ErrorKind::NotFound => continue,
                Err(e) => {
                    let _ = disk.remove_folder(&path);
                    return Err(StoreError::io("create", path.join(LOCK), e));
                }
            };
            // Another process may have taken over the folder before it was locked.
            if !is_named(disk, &path.join(LOCK), lock.as_ref()) {
                continue;
            }
            let workspace = Workspace {
                disk: disk.clone(),
                path,
                target: target.to_path_buf(),
                lock,
                keep_on_drop: false,
            };
            // The lock becomes durable first: a folder without a lock belongs to no process, and only an
            // empty one is removed.
            workspace.sync()?;
            let objects = workspace.path.join(OBJECTS);
            disk.create_folder(&objects).map_err(|e| StoreError::io("create the directory", &objects, e))?;
            workspace.sync()?;
            workspace.sync_parent()?;
            return Ok(workspace);
        }
        Err(StoreError::Irreplaceable {
            path: target.to_path_buf(),
            reason: format!("{MAX_NAMES} builds of it are running; wait until one ends"),
        })
    }

    /// Takes over the workspaces of `target` whose writers have ended.
    pub(super) fn abandoned(disk: &Arc<dyn Disk>, target: &Path) -> Result<Vec<Workspace>, StoreError> {
        let mut found = Vec::new();
        for path in workspaces_of(disk, target) {
            if !disk.stat(&path).is_ok_and(|found| found.kind == FileKind::Folder) {
                continue;
            }
            let lock = match disk.lock(&path.join(LOCK), false) {
                Ok(Locked::Held(lock)) => lock,
                Ok(Locked::Busy | Locked::Unknown(_)) => continue,
                Err(e) if e.kind() == ErrorKind::NotFound => {
                    // The writer was killed before it had created the lock, or after it had removed it. In
                    // both cases the folder is empty and is removed. A non-empty folder of this name was not
                    // made by this program and is left alone.
                    let _ = disk.remove_folder(&path);
                    continue;
                }
                Err(e) => return Err(StoreError::io("open", path.join(LOCK), e)),
            };
            // The previous holder of the lock may have removed the folder, and another process may have
            // created one of the same name.
            if is_named(disk, &path.join(LOCK), lock.as_ref()) {
                let (disk, target) = (disk.clone(), target.to_path_buf());
                found.push(Workspace { disk, path, target, lock, keep_on_drop: false });
            }
        }
        Ok(found)
    }

    pub(super) fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the folder of objects.
    pub(super) fn objects(&self) -> PathBuf {
        self.path.join(OBJECTS)
    }

    /// Makes the names in the workspace survive a power failure.
    pub(super) fn sync(&self) -> Result<(), StoreError> {
        let synced = self.disk.sync_folder(&self.path);
        synced.map_err(|e| StoreError::io("sync the directory", &self.path, e))
    }

    /// Makes the names in the parent folder survive a power failure.
    pub(super) fn sync_parent(&self) -> Result<(), StoreError> {
        let parent = self.path.parent().unwrap_or(Path::new(""));
        let synced = self.disk.sync_folder(parent);
        synced.map_err(|e| StoreError::io("sync the directory", parent, e))
    }

    /// Releases the workspace without removing anything.
    pub(super) fn leave(mut self) {
        self.keep_on_drop = true;
    }

    /// Disables the removal of the workspace when it is dropped.
    pub(super) fn keep(&mut self) {
        self.keep_on_drop = true;
    }

    /// Writes the names of the files that may be removed from [`DELETED`], and syncs them.
    pub(super) fn write_owned(&self, names: &[&str]) -> Result<(), StoreError> {
        let [unfinished, path] = [UNFINISHED_OWNED, OWNED].map(|name| self.path.join(name));
        let failed = |e| StoreError::io("write", &path, e);
        let json = serde_json::to_vec(names).map_err(|e| failed(e.into()))?;
        let file = self.disk.create(&unfinished).map_err(failed)?;
        write_all(file.as_ref(), &json, 0).map_err(failed)?;
        file.sync().map_err(failed)?;
        self.disk.rename(&unfinished, &path).map_err(failed)?;
        self.sync()
    }

    /// Removes the workspace now, and returns the error that a drop would hide.
    pub(super) fn finish(mut self) -> Result<(), StoreError> {
        self.keep_on_drop = true;
        self.remove().map_err(|e| StoreError::io("remove all of", &self.path, e))
    }

    /// Removes the listed files from [`DELETED`]. If others are left there, puts the folder back with them.
    fn remove_owned(&self) -> io::Result<()> {
        let (disk, deleted) = (self.disk.as_ref(), self.path.join(DELETED));
        let file = match disk.open(&self.path.join(OWNED)) {
            Ok(file) if disk.stat(&deleted).is_ok() => file,
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            _ => return Ok(()),
        };
        // An earlier process may have been killed before the name of the folder was durable.
        disk.sync_folder(&self.path)?;
        let mut json = vec![0; file.length()? as usize];
        read_exact(file.as_ref(), &mut json, 0)?;
        for name in serde_json::from_slice::<Vec<String>>(&json)? {
            match disk.remove_file(&deleted.join(name)) {
                Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        // After a power failure, the folder that is put back must not have the mark again.
        disk.sync_folder(&deleted)?;
        match disk.remove_folder(&deleted) {
            Err(e) if e.kind() == ErrorKind::DirectoryNotEmpty => {
                disk.rename_no_replace(&deleted, &self.target)?;
                disk.sync_folder(self.target.parent().unwrap_or(Path::new("")))?;
                disk.sync_folder(&self.path)
            }
            removed => removed,
        }
    }

    /// Removes everything, the lock last.
    fn remove(&self) -> io::Result<()> {
        let disk = self.disk.as_ref();
        let [record, replaced] = [RECORD_NAME, REPLACED].map(|name| self.path.join(name));
        if disk.stat(&replaced).is_ok() && disk.stat(&self.target).is_err() {
            // The replaced index is the only complete one; the next build puts it back.
            return Ok(());
        }
        if disk.stat(&record).is_ok() {
            // The published name must be durable before the old generation is removed: until then, a power
            // failure may bring the old name back.
            disk.sync_folder(self.path.parent().unwrap_or(Path::new("")))?;
            // From here on the contents are incomplete. Renaming the record keeps a later process from taking
            // them for a draft.
            disk.rename(&record, &self.path.join(DISCARDED))?;
            disk.sync_folder(&self.path)?;
        }
        // The tables in these folders say where the parts on other disks are, so the parts are removed first.
        for folder in [OBJECTS, REPLACED, DELETED].map(|name| self.path.join(name)) {
            remove_parts(&self.disk, &folder)?;
        }
        self.remove_owned()?;
        for name in disk.list(&self.path)?.iter().filter(|name| ![LOCK, DISCARDED].contains(&name.as_str())) {
            remove_tree(disk, &self.path.join(name))?;
        }
        if disk.stat(&self.path.join(DISCARDED)).is_ok() {
            disk.sync_folder(&self.path)?;
            disk.remove_file(&self.path.join(DISCARDED))?;
        }
        // A non-empty folder without a lock is never removed, so the lock is removed last.
        disk.sync_folder(&self.path)?;
        disk.remove_file(&self.path.join(LOCK))?;
        disk.remove_folder(&self.path)
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        if !self.keep_on_drop {
            // No reader opens an unpublished draft. Files that cannot be removed now are removed by the next
            // build.
            let _ = self.remove();
        }
        let _ = &self.lock;
    }
}

/// Removes a file, or a folder with its contents; of a link only the link itself.
fn remove_tree(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    match disk.remove_file(path) {
        // Systems differ in the error for a folder.
        Err(e) if matches!(e.kind(), ErrorKind::IsADirectory | ErrorKind::PermissionDenied) => {
            disk.list(path)?.iter().try_for_each(|name| remove_tree(disk, &path.join(name)))?;
            disk.remove_folder(path)
        }
        done => done,
    }
}

/// Returns true if `path` leads to `file` now.
fn is_named(disk: &Arc<dyn Disk>, path: &Path, file: &dyn DiskFile) -> bool {
    let (Ok(found), Ok(identity)) = (disk.stat(path), file.identity()) else { return false };
    found.identity == identity
}
