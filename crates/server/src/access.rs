//! Authentication, before anything else of a request is looked at, and the rights of its key.

use crate::failure::Refusal;
use crate::keys::{Grant, Right};
use crate::names::EntryName;
use crate::state::Shared;
use axum::extract::{FromRequestParts, Path, Request, State};
use axum::http::Extensions;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bathyal_console::Kind;
use std::sync::Arc;

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
    grant_in(&parts.extensions)
}

/// Returns the rights of a request with these extensions.
pub(crate) fn grant_in(extensions: &Extensions) -> Result<&Grant, Refusal> {
    extensions.get::<Grant>().ok_or_else(|| Refusal::new(Kind::Internal, "a request without a key"))
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
