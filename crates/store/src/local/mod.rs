//! Generations in folders of their own, on a file system.
//!
//! A generation `X` is the folder `X`, and its objects are files in it. One of them, the *mark*, is in every generation
//! and is written last, so it says what is a generation and tells one from another. A draft of `X` is a folder
//! `X.building-N` beside it (`workspace`), whose folder of objects changes places with `X` when it is published
//! (`publish`).

mod draft;
mod folder;
mod log;
mod publish;
mod striped;
mod workspace;

use crate::contract::{Draft, Generation, Replace, Store};
use crate::disk::{Disk, Kind, SystemDisk};
use crate::error::StoreError;
use crate::stripe::{Striping, TABLE_NAME, Table};
use draft::LocalDraft;
use folder::Folder;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use workspace::Workspace;

/// Looks for a generation that is being replaced before it is said to be missing: on file systems that cannot exchange
/// two names there is a moment without one.
const LOOKS: usize = 3;

/// Generations in the folders of a folder.
#[derive(Debug, Clone)]
pub struct LocalStore {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    mark: &'static str,
    striping: Option<Arc<Striping>>,
}

impl LocalStore {
    /// The store in `folder`, which need not be there yet, of generations that are known by their object `mark`.
    pub fn new(folder: impl Into<PathBuf>, mark: &'static str) -> LocalStore {
        LocalStore::on(Arc::new(SystemDisk), folder, mark)
    }

    /// The same on another disk.
    pub fn on(disk: Arc<dyn Disk>, folder: impl Into<PathBuf>, mark: &'static str) -> LocalStore {
        LocalStore { disk, folder: folder.into(), mark, striping: None }
    }

    /// The same store, where the objects that `striping` names are striped in all drafts that are begun from now on. Such
    /// objects are appended to and never replaced. A draft that was striped otherwise is not gone on with.
    #[must_use]
    pub fn striped(self, striping: Striping) -> LocalStore {
        LocalStore { striping: Some(Arc::new(striping)), ..self }
    }

    /// The store that the generation at `path` is in, or would be in, and its name there. A link is followed, so that
    /// what it leads to is replaced, not the link.
    ///
    /// # Errors
    /// [`StoreError::Irregular`] for a path that ends in no name or in a link that leads nowhere.
    pub fn holding(path: &Path, mark: &'static str) -> Result<(LocalStore, String), StoreError> {
        let irregular =
            |reason: &str| StoreError::Irregular { path: path.to_path_buf(), reason: reason.to_string() };
        let linked = path.symlink_metadata().is_ok_and(|found| found.is_symlink());
        let path = match linked {
            true => &path.canonicalize().map_err(|_| irregular("is a link that leads nowhere"))?,
            false => path,
        };
        let name = path.file_name().ok_or_else(|| irregular("name a directory for the index"))?;
        let name = name.to_str().ok_or_else(|| irregular("the last name is no text; choose one that is"))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        Ok((LocalStore::new(folder, mark), name.to_string()))
    }

    /// The generation at `path`, whatever store it is in.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_at(path: &Path, mark: &'static str) -> Result<Arc<dyn Generation>, StoreError> {
        LocalStore::open_moved(path, mark, &[])
    }

    /// The same of a generation whose striped objects have parts that were moved into the folders `stripe`, in any order.
    ///
    /// # Errors
    /// As [`Store::open`]; [`StoreError::Striping`] for folders that are none, or if nothing is striped.
    pub fn open_moved(
        path: &Path,
        mark: &'static str,
        stripe: &[PathBuf],
    ) -> Result<Arc<dyn Generation>, StoreError> {
        let disk: Arc<dyn Disk> = Arc::new(SystemDisk);
        let refuse = |reason: String| Err(StoreError::Striping { reason });
        for folder in stripe {
            if !disk.stat(folder).is_ok_and(|found| found.kind == Kind::Folder) {
                return refuse(format!("{}: there is no such folder", folder.display()));
            }
        }
        let found = open(&disk, path, mark, stripe)?;
        if !stripe.is_empty() && found.all_stripes().is_none() {
            return refuse(format!("{}: is not striped; open it without folders of parts", path.display()));
        }
        Ok(Arc::new(found))
    }

    /// Where the generation `name` is.
    fn target(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Refuses what cannot be published in the end.
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
        if found.kind != Kind::Folder {
            return foreign("it is no directory, so --overwrite will not delete it".into());
        }
        let names = self.disk.list(&target).map_err(|e| StoreError::io("list", &target, e))?;
        let marked = self.disk.stat(&target.join(self.mark)).is_ok_and(|mark| mark.kind == Kind::File);
        if !names.is_empty() && !marked {
            return foreign(format!("it holds no {}, so --overwrite will not delete it", self.mark));
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

    /// The workspaces of `name` that were left before their objects were published; others are removed.
    fn unfinished(&self, name: &str) -> Result<Vec<Workspace>, StoreError> {
        let target = self.target(name);
        let mut found = Vec::new();
        for workspace in Workspace::abandoned(&self.disk, &target)? {
            found.extend(publish::settle(workspace, &target, self.mark)?);
        }
        Ok(found)
    }

    /// Whether a draft is striped as this store stripes them.
    fn is_striped_alike(&self, workspace: &Workspace) -> bool {
        match (Table::read(self.disk.as_ref(), &workspace.objects()), &self.striping) {
            (Ok(None), None) => true,
            (Ok(Some(table)), Some(striping)) => table.is_of(striping),
            _ => false,
        }
    }

    /// Creates the folder at `path` and those above it, as far as they are not there.
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
        let marked = |name: &String| {
            let mark = self.disk.stat(&self.target(name).join(self.mark));
            mark.is_ok_and(|mark| mark.kind == Kind::File)
        };
        names.retain(marked);
        Ok(names)
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Generation>, StoreError> {
        check_name(name)?;
        Ok(Arc::new(open(&self.disk, &self.target(name), self.mark, &[])?))
    }

    fn check(&self, name: &str, replace: Replace) -> Result<(), StoreError> {
        check_name(name)?;
        // What stands there may wait in one of them for being put back.
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
            // They may be gone on with once whatever is in the way is gone.
            found.into_iter().for_each(Workspace::leave);
            return Err(refused);
        }
        let found = found.into_iter().filter(|workspace| self.is_striped_alike(workspace));
        let drafts = found.map(|workspace| self.draft(workspace, name, replace));
        drafts.map(|draft| draft.map(|draft| Box::new(draft) as Box<dyn Draft>)).collect()
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        check_name(name)?;
        let target = self.target(name);
        self.open(name)?;
        self.check_target(name, Replace::Generation)?;
        let workspace = Workspace::begin(&self.disk, &target)?;
        let moved = self.disk.rename_aside(&target, &workspace.path().join(workspace::DELETED));
        moved.map_err(|e| StoreError::io("rename", &target, e))?;
        let synced = self.disk.sync_folder(&self.folder);
        synced.map_err(|e| StoreError::io("sync the directory", &self.folder, e))?;
        // Until that is certain, what comes back after a loss of power is to be whole.
        workspace.sync()?;
        drop(workspace);
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

    fn traces(&self) -> Result<Vec<String>, StoreError> {
        let names = match self.disk.list(&self.folder) {
            Ok(names) => names,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(StoreError::io("list", &self.folder, e)),
        };
        let mut found: Vec<String> = names.iter().filter_map(|name| workspace::of(name)).collect();
        found.retain(|name| check_name(name).is_ok() && self.disk.stat(&self.target(name)).is_err());
        found.sort();
        found.dedup();
        Ok(found)
    }
}

/// Refuses names that are paths, and those that this store has other uses for.
fn check_name(name: &str) -> Result<(), StoreError> {
    if name == TABLE_NAME {
        return Err(StoreError::Name { name: name.to_string() });
    }
    crate::name::check_name(name)
}

/// The generation at `path`, or the one that is put back there when a publication that was broken off is undone.
fn open(disk: &Arc<dyn Disk>, path: &Path, mark: &str, moved: &[PathBuf]) -> Result<Folder, StoreError> {
    for _ in 0..LOOKS {
        if let Some(folder) = Folder::open(disk, path, mark, moved)? {
            return Ok(folder);
        }
        for replaced in workspace::beside(disk, path).map(|workspace| workspace.join(workspace::REPLACED)) {
            if let Some(folder) = Folder::open(disk, &replaced, mark, moved)? {
                return Ok(folder);
            }
        }
    }
    Err(StoreError::Missing { what: "index", path: path.to_path_buf() })
}
