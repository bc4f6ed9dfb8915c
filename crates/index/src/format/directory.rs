//! An index directory under construction: built beside its final name, renamed into place when complete.
//!
//! A directory under construction holds a file `lock`, which its builder keeps locked. The system drops the lock with
//! the process, however that ended, so a directory whose lock can be taken was abandoned: it is taken over by a build
//! that can continue it, and removed by one that cannot.

use crate::error::IndexError;
use bathyal_tier::TierError;
use bathyal_tier::backend::file::sync_directory;
use std::fs::{File, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The file that says whether a builder is at work.
const LOCK_NAME: &str = "lock";
/// Between the index's name and the number of the building process.
const BUILDING: &str = ".building-";
/// Names tried for a new directory, in case others of the same process number are at work on a shared disk.
const MOST_NAMES: usize = 100;

/// A directory that becomes `target` by [`BuildDirectory::publish`], or is removed when dropped before.
#[derive(Debug)]
pub struct BuildDirectory {
    building: PathBuf,
    target: PathBuf,
    overwrite: bool,
    published: bool,
    /// Held until the directory is published or removed.
    _lock: File,
}

impl BuildDirectory {
    /// Begins an index at `target`; what an ended process left unfinished there is removed.
    ///
    /// # Errors
    /// [`IndexError::Exists`] if something is there and `overwrite` is off; [`IndexError::NotAnIndex`] if
    /// `overwrite` would delete something that is no index; [`IndexError::Tier`] if the directory cannot be made.
    pub fn create(target: &Path, overwrite: bool) -> Result<BuildDirectory, IndexError> {
        BuildDirectory::resume(target, overwrite, |_| None::<()>).map(|(directory, _)| directory)
    }

    /// The same, but a directory that an ended process left unfinished is taken over if `state` finds in it something
    /// to continue from.
    ///
    /// # Errors
    /// As [`BuildDirectory::create`].
    pub(crate) fn resume<S>(
        target: &Path,
        overwrite: bool,
        state: impl Fn(&Path) -> Option<S>,
    ) -> Result<(BuildDirectory, Option<S>), IndexError> {
        check_target(target, overwrite)?;
        let Some(name) = target.file_name() else {
            return Err(IndexError::Parameter(format!(
                "{}: name a directory for the index",
                target.display()
            )));
        };
        let mut prefix = name.to_os_string();
        prefix.push(BUILDING);
        if let Some(parent) = target.parent().filter(|p| !p.as_os_str().is_empty()) {
            std::fs::create_dir_all(parent).map_err(|e| TierError::io("create the directory", parent, e))?;
        }
        let of = |building: PathBuf, lock: File| BuildDirectory {
            building,
            target: target.to_path_buf(),
            overwrite,
            published: false,
            _lock: lock,
        };
        let mut found = None;
        for (building, lock) in abandoned(target, &prefix) {
            let state = if found.is_none() { state(&building) } else { None };
            // What cannot be continued is removed when dropped.
            let directory = of(building, lock);
            if let Some(state) = state {
                found = Some((directory, state));
            }
        }
        if let Some((directory, state)) = found {
            return Ok((directory, Some(state)));
        }
        for number in 0..MOST_NAMES {
            let mut name = prefix.clone();
            name.push(std::process::id().to_string());
            if number > 0 {
                name.push(format!("-{number}"));
            }
            let building = target.with_file_name(name);
            match std::fs::create_dir(&building) {
                Ok(()) => {}
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => continue,
                Err(e) => return Err(TierError::io("create the directory", &building, e).into()),
            }
            let path = building.join(LOCK_NAME);
            let lock = File::create(&path).map_err(|e| TierError::io("create", &path, e))?;
            // Where files cannot be locked, the directory is never taken over. Where another build took it within this
            // moment, it is theirs.
            if !matches!(lock.try_lock(), Err(TryLockError::WouldBlock)) && is_file(&path, &lock) {
                return Ok((of(building, lock), None));
            }
        }
        Err(IndexError::Parameter(format!("{}: too many builds of this index are at work", target.display())))
    }

    /// Where the files are written until the index is complete.
    pub fn path(&self) -> &Path {
        &self.building
    }

    /// Makes the index visible under its name.
    pub fn publish(mut self) -> Result<(), IndexError> {
        let lock = self.building.join(LOCK_NAME);
        std::fs::remove_file(&lock).map_err(|e| TierError::io("remove", &lock, e))?;
        sync_directory(&self.building)?;
        let rename = |from: &Path, to: &Path| {
            std::fs::rename(from, to).map_err(|e| TierError::io("rename a directory to", to, e))
        };
        let old = self.building.with_extension("replaced");
        let replaced = self.overwrite && self.target.exists();
        if replaced {
            rename(&self.target, &old)?;
        }
        if let Err(error) = rename(&self.building, &self.target) {
            if replaced {
                rename(&old, &self.target)?;
            }
            return Err(error.into());
        }
        self.published = true;
        if replaced {
            std::fs::remove_dir_all(&old).map_err(|e| TierError::io("remove", &old, e))?;
        }
        sync_directory(self.target.parent().unwrap_or(Path::new(".")))?;
        Ok(())
    }
}

impl Drop for BuildDirectory {
    fn drop(&mut self) {
        if !self.published {
            // Without its final name nothing opens it; what cannot be removed is only litter.
            let _ = std::fs::remove_dir_all(&self.building);
        }
    }
}

fn check_target(target: &Path, overwrite: bool) -> Result<(), IndexError> {
    if target.symlink_metadata().is_err() {
        return Ok(());
    }
    if !overwrite {
        return Err(IndexError::Exists { path: target.to_path_buf() });
    }
    let empty = target.read_dir().is_ok_and(|mut entries| entries.next().is_none());
    if !empty && !target.join(super::manifest::MANIFEST_NAME).is_file() {
        return Err(IndexError::NotAnIndex {
            path: target.to_path_buf(),
            reason: "it holds no manifest, so --overwrite will not delete it".into(),
        });
    }
    Ok(())
}

/// The directories beside `target` that no process builds any more, in the order of their names, each with its lock.
fn abandoned(target: &Path, prefix: &std::ffi::OsStr) -> Vec<(PathBuf, File)> {
    let parent = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(entries) = parent.read_dir() else { return Vec::new() };
    let ours = |name: &std::ffi::OsStr| {
        let number = name.as_encoded_bytes().strip_prefix(prefix.as_encoded_bytes());
        number.is_some_and(|n| !n.is_empty() && n.iter().all(|b| b.is_ascii_digit() || *b == b'-'))
    };
    let mut names: Vec<_> =
        entries.flatten().map(|entry| entry.file_name()).filter(|name| ours(name)).collect();
    names.sort();
    names.into_iter().filter_map(|name| take_over(target.with_file_name(name))).collect()
}

/// Locks a directory that no process builds any more.
fn take_over(building: PathBuf) -> Option<(PathBuf, File)> {
    if !building.symlink_metadata().is_ok_and(|found| found.is_dir()) {
        return None;
    }
    let path = building.join(LOCK_NAME);
    let lock = File::options().write(true).open(&path).ok()?;
    lock.try_lock().ok()?;
    // Whoever held the lock may have removed the directory, and another may have begun one of the same name.
    is_file(&path, &lock).then_some((building, lock))
}

/// True if `file` is what `path` names now.
fn is_file(path: &Path, file: &File) -> bool {
    let (Ok(named), Ok(held)) = (path.metadata(), file.metadata()) else { return false };
    (named.dev(), named.ino()) == (held.dev(), held.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_builds_is_taken_over_and_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let target = folder.path().join("index");
        let state = |path: &Path| std::fs::read_to_string(path.join("state")).ok();
        let (at_work, none) = BuildDirectory::resume(&target, false, state).expect("begins");
        assert_eq!(none, None);
        std::fs::write(at_work.path().join("state"), "half").expect("writes");

        let (second, none) = BuildDirectory::resume(&target, false, state).expect("begins");
        assert_eq!((none, second.path() == at_work.path()), (None, false), "the first is at work");
        drop(second);

        // As if the process had been killed: the lock is gone, the directory is not.
        let left = at_work.path().to_path_buf();
        at_work._lock.unlock().expect("unlocks");
        let foreign = folder.path().join("index.building-7");
        std::fs::create_dir(&foreign).expect("a folder without a lock");
        let (resumed, found) = BuildDirectory::resume(&target, false, state).expect("takes over");
        assert_eq!((found.as_deref(), resumed.path()), (Some("half"), left.as_path()));
        std::mem::forget(at_work);

        resumed._lock.unlock().expect("unlocks");
        let fresh = BuildDirectory::create(&target, false).expect("begins anew");
        assert!(!fresh.path().join("state").exists());
        assert!(foreign.exists(), "nobody said that it is ours");
        std::mem::forget(resumed);
        fresh.publish().expect("published");
        assert!(target.is_dir() && !target.join(LOCK_NAME).exists());
    }
}
