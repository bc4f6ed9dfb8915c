//! An index directory under construction: built beside its final name, renamed into place when complete.

use crate::error::IndexError;
use bathyal_tier::TierError;
use bathyal_tier::backend::file::sync_directory;
use std::path::{Path, PathBuf};

/// A directory that becomes `target` by [`BuildDirectory::publish`], or is removed when dropped before.
#[derive(Debug)]
pub struct BuildDirectory {
    building: PathBuf,
    target: PathBuf,
    overwrite: bool,
    published: bool,
}

impl BuildDirectory {
    /// Begins an index at `target`.
    ///
    /// # Errors
    /// [`IndexError::Exists`] if something is there and `overwrite` is off; [`IndexError::NotAnIndex`] if
    /// `overwrite` would delete something that is no index; [`IndexError::Tier`] if the directory cannot be made.
    pub fn create(target: &Path, overwrite: bool) -> Result<BuildDirectory, IndexError> {
        if target.symlink_metadata().is_ok() {
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
        }
        let Some(name) = target.file_name() else {
            return Err(IndexError::Parameter(format!(
                "{}: name a directory for the index",
                target.display()
            )));
        };
        let mut name = name.to_os_string();
        name.push(format!(".building-{}", std::process::id()));
        let building = target.with_file_name(name);
        if let Some(parent) = target.parent().filter(|p| !p.as_os_str().is_empty()) {
            std::fs::create_dir_all(parent).map_err(|e| TierError::io("create the directory", parent, e))?;
        }
        let _ = std::fs::remove_dir_all(&building);
        std::fs::create_dir(&building).map_err(|e| TierError::io("create the directory", &building, e))?;
        Ok(BuildDirectory { building, target: target.to_path_buf(), overwrite, published: false })
    }

    /// Where the files are written until the index is complete.
    pub fn path(&self) -> &Path {
        &self.building
    }

    /// Makes the index visible under its name.
    pub fn publish(mut self) -> Result<(), IndexError> {
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
