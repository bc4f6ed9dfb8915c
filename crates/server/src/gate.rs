//! The keys that are valid now, and the rights of the key in a request.

use crate::failure::{Refusal, ServerError};
use crate::keys::{Grant, KeyRing, Keys, Right, SecretRefusal};
use crate::names::EntryName;
use axum::http::{HeaderMap, StatusCode, header};
use bathyal_console::Kind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

const SCHEME: &[u8] = b"Bearer ";

/// The keys that are valid now.
pub(crate) struct Gate {
    file: PathBuf,
    keys: RwLock<LoadedKeys>,
}

/// Keys, and when their file was changed.
struct LoadedKeys {
    keys: Arc<KeyRing>,
    changed: Option<SystemTime>,
}

/// Returns when a file was changed last.
pub(crate) fn changed_at(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|found| found.modified()).ok()
}

impl Gate {
    pub(crate) fn new(file: PathBuf, keys: Keys) -> Gate {
        let changed = changed_at(&file);
        Gate { file, keys: RwLock::new(LoadedKeys { keys: Arc::new(KeyRing::new(keys)), changed }) }
    }

    fn now(&self) -> Arc<KeyRing> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).keys.clone()
    }

    /// Reads the keys again if their file has changed. Returns true if it has. After an error, the former
    /// keys stay valid.
    ///
    /// # Errors
    /// As [`Keys::read`].
    pub(crate) fn reload(&self) -> Result<bool, ServerError> {
        let changed = changed_at(&self.file);
        if self.keys.read().unwrap_or_else(PoisonError::into_inner).changed == changed {
            return Ok(false);
        }
        let read = Keys::read(&self.file);
        let mut loaded = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        // A file that is refused is reported once.
        loaded.changed = changed;
        loaded.keys = Arc::new(KeyRing::new(read?));
        Ok(true)
    }

    /// Returns the key of a name with its secret, if it is valid now.
    pub(crate) fn signing_key(&self, name: &str) -> Option<SigningKey> {
        let (grant, secret) = self.now().named(name)?;
        Some(SigningKey { grant, secret })
    }

    /// Returns the rights of the key in the headers of a request.
    pub(crate) fn admit(&self, headers: &HeaderMap) -> Result<Grant, Refusal> {
        let unauthorized =
            |message: &str| Refusal::with_status(StatusCode::UNAUTHORIZED, Kind::Permission, message);
        let Some(given) = headers.get(header::AUTHORIZATION) else {
            return Err(unauthorized(
                "the request has no key; send the header `Authorization: Bearer SECRET`",
            ));
        };
        let Some(secret) = given.as_bytes().strip_prefix(SCHEME) else {
            return Err(unauthorized("the header Authorization has to be `Bearer SECRET`"));
        };
        self.now().find(secret.trim_ascii()).map_err(|refused| match refused {
            SecretRefusal::Unknown => unauthorized("the key is unknown"),
            SecretRefusal::Expired => unauthorized("the key has expired"),
        })
    }
}

/// A key that signs requests.
pub(crate) struct SigningKey {
    pub(crate) grant: Grant,
    pub(crate) secret: String,
}

impl Grant {
    /// Refuses what the key has no right to.
    pub(crate) fn check(&self, right: Right, name: &EntryName) -> Result<(), Refusal> {
        if self.allows(right, name) {
            return Ok(());
        }
        let what = if right == Right::Write { "write to" } else { "read" };
        let message = format!("the key {:?} has no right to {what} {name}", self.name);
        Err(Refusal::with_status(StatusCode::FORBIDDEN, Kind::Permission, message))
    }
}
