//! The version of an object that is read.

use super::RequestFault;
use object_store::ObjectMeta;
use std::sync::OnceLock;

/// The version of an object to read: the version that was recorded when the object was written or, without a
/// record, the first version that was seen.
#[derive(Debug, Default)]
pub(crate) struct Version {
    /// The entity tag from when the object was written.
    recorded: Option<String>,
    /// The length of the whole object in bytes, if it is recorded.
    len: Option<u64>,
    /// The entity tag of the first response.
    seen: OnceLock<String>,
}

impl Version {
    /// Makes the version of `len` bytes, to which the store gave the entity tag `etag` when they were
    /// written.
    pub(crate) fn recorded(etag: Option<String>, len: u64) -> Version {
        Version { recorded: etag, len: Some(len), seen: OnceLock::new() }
    }

    /// Returns an error if a response is of another version than the earlier ones.
    pub(super) fn check(&self, meta: &ObjectMeta) -> Result<(), RequestFault> {
        if self.len.is_some_and(|len| len != meta.size) {
            return Err(RequestFault::changed());
        }
        let Some(found) = &meta.e_tag else { return Ok(()) };
        let is_recorded = || self.recorded.as_ref().is_none_or(|etag| etag == found);
        if self.seen.get().is_none() && !is_recorded() {
            return Err(RequestFault::changed());
        }
        if self.seen.get_or_init(|| found.clone()) == found { Ok(()) } else { Err(RequestFault::changed()) }
    }

    /// Returns the entity tag of this version, once it is known.
    pub(crate) fn etag(&self) -> Option<&str> {
        self.seen.get().or(self.recorded.as_ref()).map(String::as_str)
    }

    /// Returns true if another version than the recorded one is read; `None` if a version is recorded and
    /// none was read yet.
    pub(super) fn reads_other_version(&self) -> Option<bool> {
        match (&self.recorded, self.seen.get()) {
            (Some(etag), Some(seen)) => Some(etag != seen),
            (Some(_), None) => None,
            (None, _) => Some(false),
        }
    }

    /// Accepts the store's current version from now on, if its length equals the recorded one. Returns true
    /// if it is the version that is read.
    pub(super) fn accept_current(&self, current: &ObjectMeta) -> bool {
        match (&self.recorded, &current.e_tag) {
            (Some(_), Some(etag)) if self.len == Some(current.size) => {
                self.seen.get_or_init(|| etag.clone()) == etag
            }
            _ => false,
        }
    }
}
