//! A store on a file system, with a folder for each generation.
//!
//! A generation `X` is the folder `X`, and its objects are files in it. One of them, the *mark*, is in every
//! generation and is written last: a folder that contains it is a generation, and its bytes distinguish one
//! generation from another. A draft of `X` is a folder `X.building-N` beside it (`workspace`). Its folder of
//! objects is exchanged with `X` when the draft is published (`publish`).

mod draft;
mod folder;
mod log;
mod publish;
mod removal;
mod striped;
mod workspace;

use crate::contract::{Draft, Generation, Replace, Store};
use crate::disk::{Disk, FileKind, SystemDisk};
use crate::error::StoreError;
use crate::stripe::{Striping, TABLE_NAME, Table};
use draft::LocalDraft;
use folder::Folder;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use workspace::Workspace;

/// Attempts to find a generation before it is reported missing. On file systems that cannot exchange two
/// names, a generation that is being replaced has no name for a moment.
const OPEN_ATTEMPTS: usize = 3;

/// A store in a folder, with a subfolder for each generation.
#[derive(Debug, Clone)]
pub struct LocalStore {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    mark: &'static str,
    striping: Option<Arc<Striping>>,
}

impl LocalStore {
    /// Makes a store in `folder`, which need not exist yet. Each of its generations contains an object named
    /// `mark`.
    pub fn new(folder: impl Into<PathBuf>, mark: &'static str) -> LocalStore {
        LocalStore::on_disk(Arc::new(SystemDisk), folder, mark)
    }

    /// Makes a store in `folder` of another disk.
    pub fn on_disk(disk: Arc<dyn Disk>, folder: impl Into<PathBuf>, mark: &'static str) -> LocalStore {
        LocalStore { disk, folder: folder.into(), mark, striping: None }
    }

    /// Returns the same store with `striping`: in all drafts that begin from now on, the objects that it
    /// lists are striped. Such objects are appended to and never replaced. Abandoned drafts with another
    /// striping are not continued.
    #[must_use]
    pub fn striped(self, striping: Striping) -> LocalStore {
        LocalStore { striping: Some(Arc::new(striping)), ..self }
    }

    /// Returns the store that contains the generation at `path`, which need not exist, and the generation's
    /// name there. A link is followed, so that a build replaces its target and not the link.
    ///
    /// # Errors
    /// [`StoreError::Irregular`] for a path without a last name, or a link without a target.
    pub fn holding(path: &Path, mark: &'static str) -> Result<(LocalStore, String), StoreError> {
        let irregular =
            |reason: &str| StoreError::Irregular { path: path.to_path_buf(), reason: reason.to_string() };
        let is_link = path.symlink_metadata().is_ok_and(|found| found.is_symlink());
        let path = match is_link {
            true => &path.canonicalize().map_err(|_| irregular("is a link that leads nowhere"))?,
            false => path,
        };
        let name = path.file_name().ok_or_else(|| irregular("the path of an index ends with a name"))?;
        let name = name
            .to_str()
            .ok_or_else(|| irregular("the last name of the path is not Unicode; choose another one"))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Ok((LocalStore::new(folder, mark), name.to_string()))
    }

    /// Opens the generation at `path`.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_at(path: &Path, mark: &'static str) -> Result<Arc<dyn Generation>, StoreError> {
        LocalStore::open_moved(path, mark, &[])
    }

    /// Opens the generation at `path`, whose parts of striped objects may have been moved into the folders
    /// `stripe`, in any order.
    ///
    /// # Errors
    /// As [`Store::open`]; [`StoreError::Striping`] if one of `stripe` is no folder, or if no object is
    /// striped.
    pub fn open_moved(
        path: &Path,
        mark: &'static str,
        stripe: &[PathBuf],
    ) -> Result<Arc<dyn Generation>, StoreError> {
        let disk: Arc<dyn Disk> = Arc::new(SystemDisk);
        let refuse = |reason: String| Err(StoreError::Striping { reason });
        for folder in stripe {
            if !disk.stat(folder).is_ok_and(|found| found.kind == FileKind::Folder) {
                return refuse(format!("{}: there is no such folder", folder.display()));
            }
        }
        let found = open(&disk, path, mark, stripe)?;
        if !stripe.is_empty() && found.all_stripes().is_none() {
            return refuse(format!("{}: is not striped; open it without stripe folders", path.display()));
        }
        Ok(Arc::new(found))
    }

    /// Returns the path of the generation `name`.
    fn target(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Returns an error if a draft of `name` could not be published in the end.
    fn check_target(&self, name: &str, replace: Replace) -> Result<(), StoreError> {
        let target = self.target(name);
        if let Some(striping) = &self.striping {
            striping.check(self.disk.as_ref(), &target)?;
        }
        let found = match self.disk.stat(&target) {
            Ok(found) => found,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(StoreError::io("look at", target, e)),
        };
        if replace == Replace::Never {
            return Err(StoreError::Exists { path: target });
        }
        let foreign = |reason: String| Err(StoreError::NoGeneration { path: target.clone(), reason });
        if found.kind != FileKind::Folder {
            return foreign("it is not a directory, so --overwrite will not delete it".into());
        }
        let names = self.disk.list(&target).map_err(|e| StoreError::io("list", &target, e))?;
        let has_mark = self.disk.stat(&target.join(self.mark)).is_ok_and(|mark| mark.kind == FileKind::File);
        if !names.is_empty() && !has_mark {
            return foreign(format!("it contains no {}, so --overwrite will not delete it", self.mark));
        }
        let irreplaceable =
            |reason: &str| Err(StoreError::Irreplaceable { path: target.clone(), reason: reason.into() });
        let parent = self.disk.stat(&self.folder).map_err(|e| StoreError::io("look at", &self.folder, e))?;
        if parent.identity.0 != found.identity.0 {
            return irreplaceable("another file system is mounted on it; choose a directory within it");
        }
        if !self.disk.may_change(&target) {
            return irreplaceable("this user may not write to it; change its permissions or its owner");
        }
        Ok(())
    }

    /// Takes over the abandoned workspaces of `name` whose objects are not published yet. Other abandoned
    /// workspaces are removed.
    fn unfinished(&self, name: &str) -> Result<Vec<Workspace>, StoreError> {
        let target = self.target(name);
        let mut found = Vec::new();
        for workspace in Workspace::abandoned(&self.disk, &target)? {
            found.extend(publish::recover(workspace, &target, self.mark)?);
        }
        Ok(found)
    }

    /// Returns true if a draft has the same striping as this store.
    fn has_same_striping(&self, workspace: &Workspace) -> bool {
        match (Table::read(self.disk.as_ref(), &workspace.objects()), &self.striping) {
            (Ok(None), None) => true,
            (Ok(Some(table)), Some(striping)) => table.has_striping(striping),
            _ => false,
        }
    }

    /// Creates the folder at `path` and its missing parents.
    fn create_folder(&self, path: &Path) -> Result<(), StoreError> {
        if path.as_os_str().is_empty() || self.disk.stat(path).is_ok() {
            return Ok(());
        }
        let parent = path.parent().unwrap_or(Path::new(""));
        self.create_folder(parent)?;
        match self.disk.create_folder(path) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => {
                return Err(StoreError::io("create the directory", path, e));
            }
            _ => {}
        }
        self.disk.sync_folder(parent).map_err(|e| StoreError::io("sync the directory", parent, e))
    }

    fn draft(&self, workspace: Workspace, name: &str, replace: Replace) -> Result<LocalDraft, StoreError> {
        LocalDraft::new(workspace, self.target(name), replace, self.mark)
    }
}

impl Store for LocalStore {
    fn address(&self) -> &Path {
        &self.folder
    }

    fn list(&self) -> Result<Vec<String>, StoreError> {
        let mut names = match self.disk.list(&self.folder) {
            Ok(names) => names,
            Err(e) if e.kind() == ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(StoreError::io("list", &self.folder, e)),
        };
        let is_generation = |name: &String| {
            let mark = self.disk.stat(&self.target(name).join(self.mark));
            mark.is_ok_and(|mark| mark.kind == FileKind::File)
        };
        names.retain(is_generation);
        Ok(names)
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Generation>, StoreError> {
        check_name(name)?;
        Ok(Arc::new(open(&self.disk, &self.target(name), self.mark, &[])?))
    }

    fn check(&self, name: &str, replace: Replace) -> Result<(), StoreError> {
        check_name(name)?;
        // An interrupted publication may have moved the old generation into one of them; `unfinished` puts it
        // back.
        self.unfinished(name)?.into_iter().for_each(Workspace::leave);
        self.check_target(name, replace)
    }

    fn begin(&self, name: &str, replace: Replace) -> Result<Box<dyn Draft>, StoreError> {
        check_name(name)?;
        self.check_target(name, replace)?;
        self.create_folder(&self.folder)?;
        let workspace = Workspace::begin(&self.disk, &self.target(name))?;
        if let Some(striping) = &self.striping {
            Table::begin(self.disk.as_ref(), &workspace.objects(), name, striping)?;
        }
        Ok(Box::new(self.draft(workspace, name, replace)?))
    }

    fn abandoned(&self, name: &str, replace: Replace) -> Result<Vec<Box<dyn Draft>>, StoreError> {
        check_name(name)?;
        let found = self.unfinished(name)?;
        if let Err(refused) = self.check_target(name, replace) {
            // A later call can continue them once the reason for the refusal is gone.
            found.into_iter().for_each(Workspace::leave);
            return Err(refused);
        }
        let found = found.into_iter().filter(|workspace| self.has_same_striping(workspace));
        let drafts = found.map(|workspace| self.draft(workspace, name, replace));
        drafts.map(|draft| draft.map(|draft| Box::new(draft) as Box<dyn Draft>)).collect()
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        check_name(name)?;
        self.open(name)?;
        // Files that cannot be removed now are removed with the workspace later.
        drop(self.move_away(name, None)?);
        Ok(())
    }

    fn erase(&self, name: &str) -> Result<(), StoreError> {
        match self.delete(name) {
            Ok(()) | Err(StoreError::Missing { .. }) => {}
            Err(error) => return Err(error),
        }
        drop(self.unfinished(name)?);
        Ok(())
    }

    fn leftovers(&self) -> Result<Vec<String>, StoreError> {
        let names = match self.disk.list(&self.folder) {
            Ok(names) => names,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(StoreError::io("list", &self.folder, e)),
        };
        let mut found: Vec<String> = names.iter().filter_map(|name| workspace::target_name(name)).collect();
        found.retain(|name| check_name(name).is_ok() && self.disk.stat(&self.target(name)).is_err());
        found.sort();
        found.dedup();
        Ok(found)
    }
}

/// Refuses names that are paths, and the name of the stripe table.
fn check_name(name: &str) -> Result<(), StoreError> {
    if name == TABLE_NAME {
        return Err(StoreError::Name { name: name.to_string() });
    }
    crate::name::check_name(name)
}

/// Opens the generation at `path`, or the old one in a workspace beside it, where an interrupted or running
/// publication has moved it.
fn open(disk: &Arc<dyn Disk>, path: &Path, mark: &str, moved: &[PathBuf]) -> Result<Folder, StoreError> {
    for _ in 0..OPEN_ATTEMPTS {
        if let Some(folder) = Folder::open(disk, path, mark, moved)? {
            return Ok(folder);
        }
        for replaced in
            workspace::workspaces_of(disk, path).map(|workspace| workspace.join(workspace::REPLACED))
        {
            if let Some(folder) = Folder::open(disk, &replaced, mark, moved)? {
                return Ok(folder);
            }
        }
    }
    Err(StoreError::Missing { what: "index", path: path.to_path_buf() })
}
