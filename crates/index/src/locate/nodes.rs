//! Indexes in memory nodes.

use super::{IndexLocation, IndexStore};
use crate::error::IndexError;
use crate::format::manifest::MANIFEST_NAME;
use bathyal_object::{PruneOptions, PruneReport, StoreOptions};
use bathyal_remote::{NodeStore, RemoteOptions, RemoteUrl, SpreadStore};
use bathyal_store::stripe::{DEFAULT_STRIPE_BYTES, Striping};
use bathyal_store::{Store, StoreError};
use std::path::Path;

/// Returns the memory node, or the nodes, of an address.
pub(super) fn holding(path: &Path, options: &StoreOptions) -> Result<IndexLocation, IndexError> {
    let url = RemoteUrl::parse(path)?;
    let options: Vec<(&str, &str)> = options.plain("a memory node")?.collect();
    let index_store: Box<dyn IndexStore> = if url.hosts.len() > 1 {
        let options = RemoteOptions::each(&options, url.hosts.len())?;
        Box::new(SpreadStore::new(&url, &options, MANIFEST_NAME)?)
    } else {
        Box::new(NodeStore::new(&url, RemoteOptions::new(options)?, MANIFEST_NAME)?)
    };
    Ok(IndexLocation { index_store, name: url.name })
}

/// Returns the error that the index `name` in `store` has no leftovers to remove.
fn prune_error(store: &dyn Store, name: &str) -> IndexError {
    IndexError::Parameter(format!(
        "{}: is in a memory node, which frees replaced indexes by itself, as soon as no search reads them",
        store.address().join(name).display()
    ))
}

impl IndexStore for NodeStore {
    fn store(&self) -> &dyn Store {
        self
    }

    fn names(&self) -> Result<Vec<String>, StoreError> {
        self.list()
    }

    fn has_leftovers(&self, name: &str) -> Result<bool, StoreError> {
        NodeStore::has_leftovers(self, name)
    }

    fn prune(&self, name: &str, _: &PruneOptions) -> Result<PruneReport, IndexError> {
        Err(prune_error(self, name))
    }

    fn folder(&self) -> &Path {
        self.scratch()
    }

    fn striped(
        self: Box<Self>,
        striping: Option<Striping>,
        _: &[&str],
    ) -> Result<Option<Box<dyn IndexStore>>, StoreError> {
        Ok(if striping.is_none() { Some(self) } else { None })
    }
}

impl IndexStore for SpreadStore {
    fn store(&self) -> &dyn Store {
        self
    }

    fn names(&self) -> Result<Vec<String>, StoreError> {
        self.list()
    }

    fn has_leftovers(&self, name: &str) -> Result<bool, StoreError> {
        SpreadStore::has_leftovers(self, name)
    }

    fn prune(&self, name: &str, _: &PruneOptions) -> Result<PruneReport, IndexError> {
        Err(prune_error(self, name))
    }

    fn folder(&self) -> &Path {
        self.scratch()
    }

    fn striped(
        self: Box<Self>,
        striping: Option<Striping>,
        files: &[&str],
    ) -> Result<Option<Box<dyn IndexStore>>, StoreError> {
        Ok(match striping {
            None => Some(Box::new(SpreadStore::striped(*self, files, DEFAULT_STRIPE_BYTES)?)),
            Some(_) => None,
        })
    }
}
