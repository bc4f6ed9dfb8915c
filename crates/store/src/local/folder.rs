//! The folder of a generation, and the files in it.

use super::check_name;
use super::log::LocalLog;
use super::striped::{StripedObject, Stripes};
use crate::contract::{Backing, Generation, Log, Object};
use crate::disk::{Disk, DiskFile, FileKind, read_exact};
use crate::error::StoreError;
use crate::extension::ObjectExt;
use bathyal_tier::Tier;
use bathyal_tier::backend::dram::DramTier;
use bathyal_tier::backend::file::{FileOptions, FileTier};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A folder whose files are the objects of a generation or of a draft.
#[derive(Debug, Clone)]
pub(super) struct Folder {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// The folder's unique identity; another folder may take its path later.
    identity: (u64, u64),
    /// The locations of the parts of striped objects; `None` if no object is striped.
    stripes: Option<Arc<Stripes>>,
}

impl Folder {
    /// Opens the generation in the folder at `path`; `None` if nothing exists there. Parts of striped objects
    /// are also looked for in the folders `moved`.
    pub(super) fn open(
        disk: &Arc<dyn Disk>,
        path: &Path,
        mark: &str,
        moved: &[PathBuf],
    ) -> Result<Option<Folder>, StoreError> {
        let found = match disk.stat(path) {
            Ok(found) => found,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(StoreError::io("open", path, e)),
        };
        let foreign = |reason: String| StoreError::NoGeneration { path: path.to_path_buf(), reason };
        if found.kind != FileKind::Folder {
            return Err(foreign("it is not a directory, so it is no index".into()));
        }
        match disk.stat(&path.join(mark)) {
            Ok(_) => {
                let stripes = Stripes::published(disk.as_ref(), path, moved)?;
                let (disk, path) = (disk.clone(), path.to_path_buf());
                Ok(Some(Folder { disk, path, identity: found.identity, stripes }))
            }
            Err(e) if e.kind() == ErrorKind::NotFound => match disk.stat(path) {
                Ok(again) if again.identity == found.identity => {
                    Err(foreign(format!("it contains no {mark}, so it is no index")))
                }
                // The folder was moved away between the two calls of `stat`.
                _ => Ok(None),
            },
            Err(e) => Err(StoreError::io("open", path.join(mark), e)),
        }
    }

    /// Opens the folder at `path`, which holds the objects of a draft.
    pub(super) fn of_draft(disk: &Arc<dyn Disk>, path: PathBuf) -> Result<Folder, StoreError> {
        let found = disk.stat(&path).map_err(|e| StoreError::io("open", &path, e))?;
        let stripes = Stripes::of_draft(disk.as_ref(), &path)?;
        Ok(Folder { disk: disk.clone(), path, identity: found.identity, stripes })
    }

    /// Returns the locations of the parts of the object `name`; `None` if it is not striped.
    pub(super) fn stripes(&self, name: &str) -> Option<&Arc<Stripes>> {
        self.stripes.as_ref().filter(|stripes| stripes.table().is_striped(name))
    }

    /// Returns the locations of the parts of all striped objects; `None` if no object is striped.
    pub(super) fn all_stripes(&self) -> Option<&Arc<Stripes>> {
        self.stripes.as_ref()
    }

    /// Returns the folder's path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the disk of the folder.
    pub(super) fn disk(&self) -> &dyn Disk {
        self.disk.as_ref()
    }

    /// Returns an error if another folder has taken the path of this one.
    pub(super) fn check_current(&self) -> Result<(), StoreError> {
        match self.disk.stat(&self.path) {
            Ok(found) if found.identity == self.identity => Ok(()),
            _ => Err(StoreError::Replaced { path: self.path.clone() }),
        }
    }
}

impl Generation for Folder {
    fn address(&self) -> &Path {
        &self.path
    }

    fn list(&self) -> Result<Vec<String>, StoreError> {
        let mut names = self.disk.list(&self.path).map_err(|e| StoreError::io("list", &self.path, e))?;
        names.retain(|name| check_name(name).is_ok() && self.stripes(name).is_none());
        if let Some(stripes) = &self.stripes {
            names.extend(stripes.existing_objects(self.disk.as_ref()));
            names.sort();
        }
        Ok(names)
    }

    fn get(&self, name: &str) -> Result<Arc<dyn Object>, StoreError> {
        check_name(name)?;
        let path = self.path.join(name);
        if let Some(stripes) = self.stripes(name) {
            let opened = stripes.open(self.disk.as_ref(), &self.path, name);
            self.check_current()?;
            if opened.is_err() && !stripes.are_current(self.disk.as_ref(), &self.path) {
                // The inode number of a removed folder may be reused by the next one, so `check_current` may
                // have compared two different folders as equal.
                return Err(StoreError::Replaced { path: self.path.clone() });
            }
            return Ok(Arc::new(StripedObject::new(self.clone(), path, opened?)));
        }
        let opened = self.disk.open(&path);
        self.check_current()?;
        let file = opened.map_err(|e| match e.kind() {
            ErrorKind::NotFound => StoreError::Missing { what: "file", path: path.clone() },
            ErrorKind::InvalidInput => StoreError::Irregular { path: path.clone(), reason: e.to_string() },
            _ => StoreError::io("open", &path, e),
        })?;
        let len = file.length().map_err(|e| StoreError::io("read the length of", &path, e))?;
        Ok(Arc::new(LocalObject { folder: self.clone(), path, file, len }))
    }

    fn log(&self, name: &str) -> Result<Arc<dyn Log>, StoreError> {
        check_name(name)?;
        Ok(Arc::new(LocalLog { path: self.path.join(name), folder: self.clone() }))
    }
}

/// A file of a generation.
#[derive(Debug)]
struct LocalObject {
    folder: Folder,
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    len: u64,
}

impl Object for LocalObject {
    fn address(&self) -> &Path {
        &self.path
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        let wanted = out.len() as u64;
        let short = |len| StoreError::Short { path: self.path.clone(), offset, wanted, len };
        if offset.checked_add(wanted).is_none_or(|end| end > self.len) {
            return Err(short(self.len));
        }
        read_exact(self.file.as_ref(), out, offset).map_err(|e| match (e.kind(), self.file.length()) {
            // The file was truncated after it was opened.
            (ErrorKind::UnexpectedEof, Ok(len)) => short(len),
            _ => StoreError::io("read", &self.path, e),
        })
    }

    fn backing(&self) -> Result<Backing, StoreError> {
        let Some(file) = self.file.file() else { return Ok(Backing::Elsewhere) };
        let file = file.try_clone().map_err(|e| StoreError::io("open", &self.path, e))?;
        Ok(Backing::File(file))
    }

    fn tier(&self, options: FileOptions) -> Result<Arc<dyn Tier>, StoreError> {
        if self.file.file().is_none() {
            return Ok(Arc::new(DramTier::new(self.read_all()?)));
        }
        let tier = FileTier::open(&self.path, options)?;
        // The tier was opened by path, and the path leads to another file once another generation is
        // published.
        self.folder.check_current()?;
        Ok(Arc::new(tier))
    }
}
