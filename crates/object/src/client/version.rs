//! Versions of an object: which one is read.

use super::Fault;
use object_store::ObjectMeta;
use std::sync::OnceLock;

/// Which version of an object is read: the one that was recorded when it was written or, where none was, that was seen first.
#[derive(Debug, Default)]
pub(crate) struct Version {
    /// What it was called when it was written.
    recorded: Option<String>,
    /// Of the whole object, where it is known before it is seen.
    len: Option<u64>,
    seen: OnceLock<String>,
}

impl Version {
    /// The one of `len` bytes, which the store called `etag` when they were written.
    pub(crate) fn recorded(etag: Option<String>, len: u64) -> Version {
        Version { recorded: etag, len: Some(len), seen: OnceLock::new() }
    }

    /// Refuses an answer of another version than those before.
    pub(super) fn check(&self, meta: &ObjectMeta) -> Result<(), Fault> {
        if self.len.is_some_and(|len| len != meta.size) {
            return Err(Fault::changed());
        }
        let Some(found) = &meta.e_tag else { return Ok(()) };
        let is_recorded = || self.recorded.as_ref().is_none_or(|etag| etag == found);
        if self.seen.get().is_none() && !is_recorded() {
            return Err(Fault::changed());
        }
        if self.seen.get_or_init(|| found.clone()) == found { Ok(()) } else { Err(Fault::changed()) }
    }

    /// What tells this version from others, once that is known.
    pub(crate) fn etag(&self) -> Option<&str> {
        self.seen.get().or(self.recorded.as_ref()).map(String::as_str)
    }

    /// Whether another version than the recorded one is read; `None` if none was read yet, and one was recorded.
    pub(super) fn is_adopted(&self) -> Option<bool> {
        match (&self.recorded, self.seen.get()) {
            (Some(etag), Some(seen)) => Some(etag != seen),
            (Some(_), None) => None,
            (None, _) => Some(false),
        }
    }

    /// Reads what is there from now on, if that is as long as what was written. Whether it is read.
    pub(super) fn adopt(&self, there: &ObjectMeta) -> bool {
        match (&self.recorded, &there.e_tag) {
            (Some(_), Some(etag)) if self.len == Some(there.size) => {
                self.seen.get_or_init(|| etag.clone()) == etag
            }
            _ => false,
        }
    }
}
