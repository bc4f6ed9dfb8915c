//! Indexes in object stores.

use super::{IndexLocation, IndexStore};
use crate::error::IndexError;
use crate::format::manifest::MANIFEST_NAME;
use bathyal_object::{BucketStore, CacheStatus, ObjectUrl, PruneOptions, PruneReport, StoreOptions};
use bathyal_store::stripe::Striping;
use bathyal_store::{Store, StoreError};
use std::path::Path;

/// Returns the bucket that `url` names.
pub(super) fn holding(url: &ObjectUrl, options: &StoreOptions) -> Result<IndexLocation, IndexError> {
    let store = BucketStore::new(url, options, MANIFEST_NAME)?;
    Ok(IndexLocation { index_store: Box::new(store), name: url.name.clone() })
}

impl IndexStore for BucketStore {
    fn store(&self) -> &dyn Store {
        self
    }

    fn names(&self) -> Result<Vec<String>, StoreError> {
        BucketStore::names(self)
    }

    fn names_in(&self, folder: &str) -> Result<Vec<String>, StoreError> {
        BucketStore::names_in(self, folder)
    }

    fn any_exists(&self, folder: Option<&str>, names: &[String]) -> Result<bool, StoreError> {
        BucketStore::any_published_in(self, folder, names)
    }

    fn has_leftovers(&self, name: &str) -> Result<bool, StoreError> {
        BucketStore::has_leftovers(self, name)
    }

    fn prune(&self, name: &str, options: &PruneOptions) -> Result<PruneReport, IndexError> {
        Ok(BucketStore::prune(self, name, options)?)
    }

    fn cache_status(&self, settled: bool) -> Result<Option<CacheStatus>, StoreError> {
        let Some(cache) = self.cache() else { return Ok(None) };
        if settled {
            cache.flush()?;
        }
        Ok(Some(cache.status()))
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
