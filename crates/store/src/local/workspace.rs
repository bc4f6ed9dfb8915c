//! Where a draft is written: a folder beside the one that it will become.
//!
//! `X.building-N` holds a file `lock`, which its writer keeps locked, a folder of objects, and while it is published a
//! record of that ([`super::publish`]). The system drops the lock with the process, however that ended, so a folder
//! whose lock can be taken was abandoned: it is taken over by a build that can continue it, and removed by one that
//! cannot.

use super::publish::RECORD;
use crate::disk::{Disk, DiskFile, Kind, Locked};
use crate::error::StoreError;
use crate::stripe::remove_parts;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file that says whether a writer is at work.
const LOCK: &str = "lock";
/// The folder of objects.
pub(super) const OBJECTS: &str = "objects";
/// The generation that is being replaced, where two names cannot be exchanged.
pub(super) const REPLACED: &str = "replaced";
/// A generation that is being deleted.
pub(super) const DELETED: &str = "deleted";
/// Says that nothing in the workspace is wanted any more: what the record of a publication becomes.
pub(super) const DISCARDED: &str = "discarded";
/// Between the generation's name and the number of the writing process.
const BUILDING: &str = ".building-";
/// Names tried for a new folder, in case others of the same process number are at work on a shared disk.
const MOST_NAMES: usize = 100;

/// A workspace that is ours. It is removed when dropped.
#[derive(Debug)]
pub(super) struct Workspace {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// Where its objects will be.
    target: PathBuf,
    /// Held to the very end.
    lock: Arc<dyn DiskFile>,
    /// Whether it stays when dropped.
    stays: bool,
}

/// The workspaces of `target`, in the order of their names.
pub(super) fn beside(disk: &Arc<dyn Disk>, target: &Path) -> impl Iterator<Item = PathBuf> {
    let prefix = target.file_name().and_then(|name| name.to_str()).map(|name| format!("{name}{BUILDING}"));
    let names = disk.list(target.parent().unwrap_or(Path::new(""))).unwrap_or_default();
    let ours = move |name: &String| {
        prefix.as_ref().and_then(|prefix| name.strip_prefix(prefix.as_str())).is_some_and(is_number)
    };
    let target = target.to_path_buf();
    names.into_iter().filter(ours).map(move |name| target.with_file_name(name))
}

/// Whether text is what workspaces of the same name are told apart by.
fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
}

/// The name of what is written in the workspace of this name; `None` if it is no workspace's.
pub(super) fn of(workspace: &str) -> Option<String> {
    let (name, number) = workspace.rsplit_once(BUILDING)?;
    is_number(number).then(|| name.to_string())
}

impl Workspace {
    /// Makes a workspace for `target`.
    pub(super) fn begin(disk: &Arc<dyn Disk>, target: &Path) -> Result<Workspace, StoreError> {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        for number in 0..MOST_NAMES {
            let process = std::process::id();
            let suffix = if number == 0 { String::new() } else { format!("-{number}") };
            let path = target.with_file_name(format!("{name}{BUILDING}{process}{suffix}"));
            match disk.create_folder(&path) {
                Ok(()) => {}
                Err(e) if e.kind() == ErrorKind::AlreadyExists => continue,
                Err(e) => return Err(StoreError::io("create the directory", path, e)),
            }
            let lock = match disk.lock(&path.join(LOCK), true) {
                // Where files cannot be locked, nobody takes the folder over.
                Ok(Locked::Held(lock) | Locked::Unknown(lock)) => lock,
                Ok(Locked::Busy) => continue,
                // Another process found the folder empty, took it for a leftover and removed it.
                Err(e) if e.kind() == ErrorKind::NotFound => continue,
                Err(e) => {
                    let _ = disk.remove_folder(&path);
                    return Err(StoreError::io("create", path.join(LOCK), e));
                }
            };
            // Where another one took it within this moment, it is theirs.
            if !is_named(disk, &path.join(LOCK), lock.as_ref()) {
                continue;
            }
            let workspace =
                Workspace { disk: disk.clone(), path, target: target.to_path_buf(), lock, stays: false };
            // The lock first: without one the folder is nobody's, unless it is empty.
            workspace.sync()?;
            let objects = workspace.path.join(OBJECTS);
            disk.create_folder(&objects).map_err(|e| StoreError::io("create the directory", &objects, e))?;
            workspace.sync()?;
            workspace.sync_parent()?;
            return Ok(workspace);
        }
        Err(StoreError::Irreplaceable {
            path: target.to_path_buf(),
            reason: format!("{MOST_NAMES} builds of it are at work; wait for one to end"),
        })
    }

    /// Takes over the workspaces of `target` that nobody writes to any more.
    pub(super) fn abandoned(disk: &Arc<dyn Disk>, target: &Path) -> Result<Vec<Workspace>, StoreError> {
        let mut found = Vec::new();
        for path in beside(disk, target) {
            if !disk.stat(&path).is_ok_and(|found| found.kind == Kind::Folder) {
                continue;
            }
            let lock = match disk.lock(&path.join(LOCK), false) {
                Ok(Locked::Held(lock)) => lock,
                Ok(Locked::Busy | Locked::Unknown(_)) => continue,
                Err(e) if e.kind() == ErrorKind::NotFound => {
                    // Its writer was killed before it had a lock, or after: then it is empty, and goes. What else is
                    // called like that is not ours.
                    let _ = disk.remove_folder(&path);
                    continue;
                }
                Err(e) => return Err(StoreError::io("open", path.join(LOCK), e)),
            };
            // Whoever held the lock may have removed the folder, and another may have begun one of the same name.
            if is_named(disk, &path.join(LOCK), lock.as_ref()) {
                let (disk, target) = (disk.clone(), target.to_path_buf());
                found.push(Workspace { disk, path, target, lock, stays: false });
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

    /// The folder of objects.
    pub(super) fn objects(&self) -> PathBuf {
        self.path.join(OBJECTS)
    }

    /// Makes the names in the workspace outlive the machine.
    pub(super) fn sync(&self) -> Result<(), StoreError> {
        let synced = self.disk.sync_folder(&self.path);
        synced.map_err(|e| StoreError::io("sync the directory", &self.path, e))
    }

    /// The same for the names beside it.
    pub(super) fn sync_parent(&self) -> Result<(), StoreError> {
        let parent = self.path.parent().unwrap_or(Path::new(""));
        let synced = self.disk.sync_folder(parent);
        synced.map_err(|e| StoreError::io("sync the directory", parent, e))
    }

    /// Gives it up without removing anything.
    pub(super) fn leave(mut self) {
        self.stays = true;
    }

    /// Lets nothing be removed any more, not even when it is dropped.
    pub(super) fn keep(&mut self) {
        self.stays = true;
    }

    /// Removes everything, the lock last.
    fn remove(&self) -> io::Result<()> {
        let disk = self.disk.as_ref();
        let [record, replaced] = [RECORD, REPLACED].map(|name| self.path.join(name));
        if disk.stat(&replaced).is_ok() && disk.stat(&self.target).is_err() {
            // The only index that there is: the next one to come puts it back.
            return Ok(());
        }
        if disk.stat(&record).is_ok() {
            // Until that is certain, what was replaced is what a machine without power comes back with.
            disk.sync_folder(self.path.parent().unwrap_or(Path::new("")))?;
            // Nobody is to take what is left then for a draft, let alone for a complete one.
            disk.rename(&record, &self.path.join(DISCARDED))?;
            disk.sync_folder(&self.path)?;
        }
        // What is known of parts elsewhere goes after them.
        for folder in [OBJECTS, REPLACED, DELETED].map(|name| self.path.join(name)) {
            remove_parts(&self.disk, &folder)?;
        }
        for name in disk.list(&self.path)?.iter().filter(|name| ![LOCK, DISCARDED].contains(&name.as_str())) {
            remove_tree(disk, &self.path.join(name))?;
        }
        if disk.stat(&self.path.join(DISCARDED)).is_ok() {
            disk.sync_folder(&self.path)?;
            disk.remove_file(&self.path.join(DISCARDED))?;
        }
        // A folder without a lock is nobody's unless it is empty.
        disk.sync_folder(&self.path)?;
        disk.remove_file(&self.path.join(LOCK))?;
        disk.remove_folder(&self.path)
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        if !self.stays {
            // Without its final name nothing opens it; what cannot be removed now the next build removes.
            let _ = self.remove();
        }
        let _ = &self.lock;
    }
}

/// Removes a file, or a folder with all that is in it; of a link the link alone.
fn remove_tree(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    match disk.remove_file(path) {
        // Systems differ in what they say of a folder.
        Err(e) if matches!(e.kind(), ErrorKind::IsADirectory | ErrorKind::PermissionDenied) => {
            disk.list(path)?.iter().try_for_each(|name| remove_tree(disk, &path.join(name)))?;
            disk.remove_folder(path)
        }
        done => done,
    }
}

/// Whether `file` is what `path` names now.
fn is_named(disk: &Arc<dyn Disk>, path: &Path, file: &dyn DiskFile) -> bool {
    let (Ok(named), Ok(held)) = (disk.stat(path), file.identity()) else { return false };
    named.identity == held
}
