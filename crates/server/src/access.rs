//! Authentication, before anything else of a request is looked at, and the rights of its key.

use crate::failure::{Refusal, ServerError};
use crate::keys::{Grant, KeyRing, Keys, Right, SecretRefusal};
use crate::names::EntryName;
use crate::state::Shared;
use axum::extract::{FromRequestParts, Path, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bathyal_console::Kind;
use std::path::{Path as FilePath, PathBuf};
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
pub(crate) fn changed_at(path: &FilePath) -> Option<SystemTime> {
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

/// Refuses requests without a valid key, and adds the rights of the key to others.
pub(crate) async fn authenticate(
    State(shared): State<Arc<Shared>>,
    mut request: Request,
    next: Next,
) -> Response {
    match shared.gate.admit(request.headers()) {
        Err(refusal) => refusal.into_response(),
        Ok(grant) => {
            tracing::Span::current().record("key", grant.name.as_str());
            request.extensions_mut().insert(grant);
            next.run(request).await
        }
    }
}

/// Returns the rights of a request.
pub(crate) fn grant_of(parts: &Parts) -> Result<&Grant, Refusal> {
    parts.extensions.get::<Grant>().ok_or_else(|| Refusal::new(Kind::Internal, "a request without a key"))
}

/// Returns the name in the address of a request, if its key has the right to it.
async fn permitted(parts: &mut Parts, state: &Arc<Shared>, right: Right) -> Result<EntryName, Refusal> {
    let path = Path::<String>::from_request_parts(parts, state).await;
    let Path(text) = path.map_err(|error| Refusal::invalid(error.to_string()))?;
    let name: EntryName = text.parse().map_err(Refusal::invalid)?;
    let grant = grant_of(parts)?;
    grant.check(right, &name)?;
    Ok(name)
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

/// The name of a collection or index that the key of the request may read.
pub(crate) struct Readable(pub(crate) EntryName);

/// The name of a collection or index that the key of the request may change.
pub(crate) struct Writable(pub(crate) EntryName);

impl FromRequestParts<Arc<Shared>> for Readable {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &Arc<Shared>) -> Result<Readable, Refusal> {
        Ok(Readable(permitted(parts, state, Right::Read).await?))
    }
}

impl FromRequestParts<Arc<Shared>> for Writable {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, state: &Arc<Shared>) -> Result<Writable, Refusal> {
        Ok(Writable(permitted(parts, state, Right::Write).await?))
    }
}

impl FromRequestParts<Arc<Shared>> for Grant {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Shared>) -> Result<Grant, Refusal> {
        grant_of(parts).cloned()
    }
}
