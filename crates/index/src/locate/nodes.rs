//! Indexes in the memory of nodes.

use super::{IndexLocation, IndexStore};
use crate::error::IndexError;
use crate::format::manifest::MANIFEST_NAME;
use bathyal_object::{PruneOptions, PruneReport, StoreOptions};
use bathyal_remote::{NodeStore, RemoteOptions, RemoteUrl, SpreadStore};
use bathyal_store::stripe::{DEFAULT_STRIPE_BYTES, Striping};
use bathyal_store::{Store, StoreError};
use std::path::Path;

/// The memory of the node, or of the nodes, that an address names.
pub(super) fn holding(path: &Path, options: &StoreOptions) -> Result<IndexLocation, IndexError> {
    let url = RemoteUrl::parse(path)?;
    let said: Vec<(&str, &str)> = options.plain("a memory node")?.collect();
    let place: Box<dyn IndexStore> = if url.hosts.len() > 1 {
        let options = RemoteOptions::each(&said, url.hosts.len())?;
        Box::new(SpreadStore::new(&url, &options, MANIFEST_NAME)?)
    } else {
        Box::new(NodeStore::new(&url, RemoteOptions::new(said)?, MANIFEST_NAME)?)
    };
    Ok(IndexLocation { place, name: url.name })
}

/// Why there is nothing to remove from the index `name` in `store`.
fn nothing_left(store: &dyn Store, name: &str) -> IndexError {
    IndexError::Parameter(format!(
        "{}: is the memory of a node, which gives back what was replaced by itself, once nobody reads it any more",
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

    fn prune(&self, name: &str, _: &PruneOptions) -> Result<PruneReport, IndexError> {
        Err(nothing_left(self, name))
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

    fn prune(&self, name: &str, _: &PruneOptions) -> Result<PruneReport, IndexError> {
        Err(nothing_left(self, name))
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
