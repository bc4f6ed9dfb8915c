//! Indexes in folders of this machine.

use super::IndexStore;
use crate::error::IndexError;
use bathyal_object::{PruneOptions, PruneReport};
use bathyal_store::local::LocalStore;
use bathyal_store::stripe::Striping;
use bathyal_store::{Store, StoreError, check_name};
use std::path::Path;

impl IndexStore for LocalStore {
    fn store(&self) -> &dyn Store {
        self
    }

    fn names(&self) -> Result<Vec<String>, StoreError> {
        folders(self.address())
    }

    fn names_in(&self, folder: &str) -> Result<Vec<String>, StoreError> {
        folders(&self.address().join(folder))
    }

    fn erase(&self, name: &str, files: &[&str]) -> Result<(), StoreError> {
        self.erase_objects(name, files)
    }

    fn has_leftovers(&self, name: &str) -> Result<bool, StoreError> {
        LocalStore::has_leftovers(self, name)
    }

    fn prune(&self, name: &str, _: &PruneOptions) -> Result<PruneReport, IndexError> {
        Err(IndexError::Parameter(format!(
            "{}: is a folder of this machine, which has no leftovers to remove; give an address of an object \
             store, such as s3://BUCKET/NAME",
            self.address().join(name).display()
        )))
    }

    fn folder(&self) -> &Path {
        self.address()
    }

    fn striped(
        self: Box<Self>,
        striping: Option<Striping>,
        _: &[&str],
    ) -> Result<Option<Box<dyn IndexStore>>, StoreError> {
        Ok(Some(match striping {
            Some(striping) => Box::new(LocalStore::striped(*self, striping)),
            None => self,
        }))
    }
}

/// Returns the names of the folders in `folder` that are valid names of indexes.
fn folders(folder: &Path) -> Result<Vec<String>, StoreError> {
    // As in stores, an empty path is the current folder.
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let mut names = Vec::new();
    for entry in folder.read_dir().map_err(|error| StoreError::io("list", folder, error))? {
        let entry = entry.map_err(|error| StoreError::io("list", folder, error))?;
        names.extend(entry.file_name().into_string().ok().filter(|_| entry.path().is_dir()));
    }
    names.retain(|name| check_name(name).is_ok());
    names.sort();
    Ok(names)
}
