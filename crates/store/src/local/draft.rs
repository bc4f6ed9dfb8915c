//! A generation under construction on a file system.

use super::check_name;
use super::folder::Folder;
use super::publish::{PublicationRecord, move_into_place};
use super::workspace::Workspace;
use crate::contract::{Append, Draft, Generation, Object, ProgressFn, Replace};
use crate::disk::{Disk, DiskFile, FileKind, write_all};
use crate::error::StoreError;
use crate::extension::append_objects;
use crate::stripe::TABLE_NAME;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A draft in a workspace.
#[derive(Debug)]
pub(super) struct LocalDraft {
    workspace: Workspace,
    objects: Folder,
    target: PathBuf,
    replace: Replace,
    mark: &'static str,
    sealed: Option<PublicationRecord>,
}

impl LocalDraft {
    pub(super) fn new(
        workspace: Workspace,
        target: PathBuf,
        replace: Replace,
        mark: &'static str,
    ) -> Result<LocalDraft, StoreError> {
        let objects = Folder::of_draft(workspace.disk(), workspace.objects())?;
        let sealed = PublicationRecord::read(&workspace)?;
        Ok(LocalDraft { workspace, objects, target, replace, mark, sealed })
    }

    fn disk(&self) -> &dyn Disk {
        self.workspace.disk().as_ref()
    }

    fn sync_objects(&self) -> Result<(), StoreError> {
        let synced = self.disk().sync_folder(self.objects.path());
        synced.map_err(|e| StoreError::io("sync the directory", self.objects.path(), e))
    }

    /// Removes the parts of an object, if it is striped.
    fn remove_parts(&self, name: &str) -> Result<(), StoreError> {
        let Some(stripes) = self.objects.stripes(name) else { return Ok(()) };
        let removed = stripes.table().remove(self.disk(), name);
        removed.map_err(|e| StoreError::io("remove the parts of", self.objects.path().join(name), e))
    }

    /// Returns an error if the object `name` is missing or lacks parts.
    fn check_presence(&self, name: &str) -> Result<(), StoreError> {
        let path = self.objects.path().join(name);
        if let Some(stripes) = self.objects.stripes(name) {
            let parts = stripes.open(self.disk(), self.objects.path(), name)?;
            return parts.check_lengths(parts.len());
        }
        match self.disk().stat(&path) {
            Ok(found) if found.kind == FileKind::File => Ok(()),
            _ => Err(StoreError::Missing { what: "file", path }),
        }
    }

    /// Removes all objects except `names`.
    fn remove_strays(&self, names: &[&str]) -> Result<(), StoreError> {
        let path = self.objects.path();
        let mut found = self.disk().list(path).map_err(|e| StoreError::io("list", path, e))?;
        let table = self.objects.all_stripes().map(|stripes| stripes.table());
        found.retain(|name| !names.contains(&name.as_str()) && (table.is_none() || name != TABLE_NAME));
        for object in table.iter().flat_map(|table| table.objects()).filter(|name| !names.contains(name)) {
            self.remove_parts(object)?;
        }
        for name in &found {
            let stray = path.join(name);
            self.disk().remove_file(&stray).map_err(|e| StoreError::io("remove", stray, e))?;
        }
        if found.is_empty() { Ok(()) } else { self.sync_objects() }
    }
}

impl Generation for LocalDraft {
    fn address(&self) -> &Path {
        self.objects.address()
    }

    fn list(&self) -> Result<Vec<String>, StoreError> {
        self.objects.list()
    }

    fn get(&self, name: &str) -> Result<Arc<dyn Object>, StoreError> {
        self.objects.get(name)
    }
}

impl Draft for LocalDraft {
    fn append(&self, name: &str, from: u64) -> Result<Box<dyn Append>, StoreError> {
        check_name(name)?;
        if let Some(stripes) = self.objects.stripes(name) {
            return Ok(Box::new(stripes.append(self.disk(), self.objects.path(), name, from)?));
        }
        let path = self.objects.path().join(name);
        let file = self.disk().create(&path).map_err(|e| StoreError::io("create", &path, e))?;
        let len = file.length().map_err(|e| StoreError::io("read the length of", &path, e))?;
        if len < from {
            return Err(StoreError::Short { path, offset: 0, wanted: from, len });
        }
        if len > from {
            file.set_len(from).map_err(|e| StoreError::io("cut", &path, e))?;
        }
        Ok(Box::new(LocalAppend { file, path, at: from }))
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        check_name(name)?;
        let path = self.objects.path().join(name);
        if self.objects.stripes(name).is_some() {
            return Err(StoreError::Irregular {
                path,
                reason: "it is striped, so it can only be appended to, not replaced".into(),
            });
        }
        // The name begins with a dot, as no object's name does, so a leftover is removed by `remove_strays`.
        let unfinished = self.objects.path().join(format!(".{name}.partial"));
        let failed = |e: io::Error| StoreError::io("write", &path, e);
        let file = self.disk().create(&unfinished).map_err(failed)?;
        file.set_len(0).map_err(failed)?;
        write_all(file.as_ref(), bytes, 0).map_err(failed)?;
        file.sync().map_err(failed)?;
        self.disk().rename(&unfinished, &path).map_err(failed)?;
        self.sync_objects()
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        check_name(name)?;
        self.remove_parts(name)?;
        let path = self.objects.path().join(name);
        match self.disk().remove_file(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(StoreError::io("remove", path, e)),
            _ => Ok(()),
        }
    }

    fn adopt(
        &self,
        from: &dyn Generation,
        names: &[&str],
        progress: &ProgressFn<'_>,
    ) -> Result<Vec<u32>, StoreError> {
        append_objects(self, from, names, progress)
    }

    fn publication_note(&self) -> Option<&str> {
        self.sealed.as_ref().map(|record| record.note.as_str())
    }

    fn publish(mut self: Box<Self>, names: &[&str], note: &str) -> Result<(), StoreError> {
        for name in names.iter().copied().chain([self.mark]) {
            check_name(name)?;
            if !names.contains(&name) {
                return Err(StoreError::Missing { what: "file", path: self.objects.path().join(name) });
            }
            self.check_presence(name)?;
        }
        self.sync_objects()?;
        PublicationRecord::new(&self.workspace, self.mark, note)?.write(&self.workspace)?;
        self.remove_strays(names)?;
        move_into_place(&mut self.workspace, &self.target, self.replace)
    }

    fn leave(self: Box<Self>) -> Result<(), StoreError> {
        self.workspace.leave();
        Ok(())
    }
}

/// A file that is being written.
#[derive(Debug)]
struct LocalAppend {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    at: u64,
}

impl Append for LocalAppend {
    fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        write_all(self.file.as_ref(), bytes, self.at).map_err(|e| StoreError::io("write", &self.path, e))?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.file.sync().map_err(|e| StoreError::io("sync", &self.path, e))
    }
}
