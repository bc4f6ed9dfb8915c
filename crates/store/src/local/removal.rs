//! Removal of a generation from its folder, which may hold files of others.
//!
//! The folder is renamed into a workspace, so that its name is free at once. The workspace lists the files of
//! the generation: only these are removed, and the folder goes back if it holds others. A process that takes
//! over the workspace of a killed removal continues it.

use super::workspace::{DELETED, Workspace};
use super::{LocalStore, check_name};
use crate::contract::{Replace, Store};
use crate::error::StoreError;
use crate::stripe::TABLE_NAME;

impl LocalStore {
    /// Removes the generation `name` and its abandoned drafts. Of the files in its folder, only `objects`,
    /// the mark and the parts of striped objects are removed; the others stay there. Does nothing if nothing
    /// is left. An interrupted call is completed by the next one.
    ///
    /// # Errors
    /// [`StoreError::NoGeneration`] if the entry of this name is no generation and nothing of one is left;
    /// [`StoreError::Io`] if files could not be removed, which the next call tries again.
    pub fn erase_objects(&self, name: &str, objects: &[&str]) -> Result<(), StoreError> {
        check_name(name)?;
        objects.iter().try_for_each(|object| check_name(object))?;
        let leftovers = self.unfinished(name)?;
        let removed = match self.open(name) {
            Ok(_) => self.move_away(name, Some(objects)).and_then(Workspace::finish),
            Err(StoreError::Missing { .. }) => Ok(()),
            // The folder of an earlier, interrupted call, with files of others.
            Err(StoreError::NoGeneration { .. }) if !leftovers.is_empty() => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = removed {
            leftovers.into_iter().for_each(Workspace::leave);
            return Err(error);
        }
        leftovers.into_iter().try_for_each(Workspace::finish)
    }

    /// Returns true if abandoned drafts or an interrupted removal of `name` have left files.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn has_leftovers(&self, name: &str) -> Result<bool, StoreError> {
        check_name(name)?;
        let found = self.unfinished(name)?;
        let any = !found.is_empty();
        found.into_iter().for_each(Workspace::leave);
        Ok(any)
    }

    /// Moves the folder of the generation `name` into a new workspace. When the workspace is removed, the
    /// files `objects` and the mark are removed with it, or all files if `objects` is `None`.
    pub(super) fn move_away(&self, name: &str, objects: Option<&[&str]>) -> Result<Workspace, StoreError> {
        let target = self.target(name);
        self.check_target(name, Replace::Generation)?;
        let workspace = Workspace::begin(&self.disk, &target)?;
        if let Some(objects) = objects {
            workspace.write_owned(&[objects, &[self.mark, TABLE_NAME]].concat())?;
        }
        let moved = self.disk.rename_no_replace(&target, &workspace.path().join(DELETED));
        moved.map_err(|e| StoreError::io("rename", &target, e))?;
        let synced = self.disk.sync_folder(&self.folder);
        let synced = synced.map_err(|e| StoreError::io("sync the directory", &self.folder, e));
        // The workspace's names must be durable before the files are removed: a power failure must not bring
        // back the old name with only some of its files.
        match synced.and_then(|()| workspace.sync()) {
            Ok(()) => Ok(workspace),
            Err(error) => {
                workspace.leave();
                Err(error)
            }
        }
    }
}
