//! The sender of a request, and the buckets and indexes that its key may use.

use super::failure::ApiError;
use super::registry::{BucketRecord, IndexRecord, Registry};
use super::resource::{IndexName, Resource};
use crate::keys::{Grant, Right};
use crate::names::EntryName;
use crate::state::Shared;
use serde_json::Value;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Everything that all requests of this API share.
pub(super) struct Api {
    pub(super) shared: Arc<Shared>,
    /// Held while buckets and indexes are created, changed or deleted.
    changes: Mutex<()>,
}

impl Api {
    pub(super) fn new(shared: Arc<Shared>) -> Api {
        Api { shared, changes: Mutex::new(()) }
    }

    pub(super) fn registry(&self) -> Registry<'_> {
        Registry::new(&self.shared.entries)
    }

    pub(super) fn changing(&self) -> MutexGuard<'_, ()> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sender of a request.
#[derive(Clone)]
pub(super) struct Caller {
    pub(super) api: Arc<Api>,
    pub(super) grant: Grant,
    /// The region of the client, which appears in the names of resources.
    pub(super) region: String,
}

/// The answer to a request.
pub(super) type Outcome = Result<Value, ApiError>;

impl Caller {
    /// Refuses what the key has no right to. `name` is that of a bucket, or of a collection.
    pub(super) fn check(&self, right: Right, name: &str) -> Result<EntryName, ApiError> {
        let name: EntryName = name.parse().map_err(ApiError::invalid)?;
        self.grant.check(right, &name)?;
        Ok(name)
    }

    /// Returns a bucket that the key may use.
    pub(super) fn bucket(&self, right: Right, bucket: &str) -> Result<BucketRecord, ApiError> {
        self.check(right, bucket)?;
        let found = self.api.registry().get(&Resource::Bucket(bucket.to_owned()))?;
        found.ok_or_else(|| ApiError::not_found("vector bucket"))
    }

    /// Returns an index that the key may use, and the name of its collection.
    pub(super) fn index(
        &self,
        right: Right,
        index: &IndexName,
    ) -> Result<(EntryName, IndexRecord), ApiError> {
        let collection = index.collection()?;
        self.grant.check(right, &collection)?;
        let found = self.api.registry().get(&Resource::Index(index.clone()))?;
        match found {
            Some(record) => Ok((collection, record)),
            None => {
                self.bucket(right, &index.bucket)?;
                Err(ApiError::not_found("vector index"))
            }
        }
    }
}
