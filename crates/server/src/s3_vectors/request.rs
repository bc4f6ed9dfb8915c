//! Requests: their signatures, their bodies within the limits, and threads for their work.

use super::caller::{Api, Caller, Outcome};
use super::failure::ApiError;
use super::signature::Claim;
use crate::body::{json_bytes, read_whole};
use crate::forward::{ChangeLimits, Placed, place};
use crate::gate::SigningKey;
use crate::state::Shared;
use axum::body::Bytes;
use axum::extract::Request;
use axum::http::header;
use bathyal_tier::Control;
use chrono::Utc;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// The most bytes of a request.
const MAX_BODY_BYTES: u64 = 20 << 20;

/// A request whose signature was checked.
pub(super) struct SignedRequest {
    pub(super) caller: Caller,
    body: Bytes,
    pub(super) path: String,
    pub(super) query: String,
    /// Released with the request.
    _memory: Vec<OwnedSemaphorePermit>,
}

impl SignedRequest {
    /// Checks a request: first its key and its time, then its body within the limits, then its signature.
    pub(super) async fn read(api: &Arc<Api>, request: Request) -> Result<SignedRequest, ApiError> {
        let (parts, body) = request.into_parts();
        let claim = Claim::read(&parts.headers, &parts.uri, Utc::now())?;
        let signing = signing_key(api, &claim)?;
        tracing::Span::current().record("key", signing.grant.name.as_str());
        let told =
            parts.headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        let length: u64 = told.unwrap_or(MAX_BODY_BYTES);
        if length > MAX_BODY_BYTES {
            let message = format!("the request has {length} bytes; {MAX_BODY_BYTES} are the most");
            return Err(ApiError::invalid(message));
        }
        let mut memory = vec![api.shared.body_memory.reserve(length)?];
        let limits = api.shared.limits;
        let most = MAX_BODY_BYTES.min(limits.body_bytes);
        let body = read_whole(body, most, limits.idle).await?;
        memory.push(api.shared.body_memory.reserve(json_bytes(&body))?);
        claim.check(&signing.secret, (&parts.method, &parts.uri, &parts.headers), &body)?;
        let caller = Caller { api: api.clone(), grant: signing.grant, region: claim.region.clone() };
        let query = parts.uri.query().unwrap_or_default().to_owned();
        Ok(SignedRequest { caller, body, path: parts.uri.path().to_owned(), query, _memory: memory })
    }

    /// Parses the body.
    pub(super) fn input<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        let body: &[u8] = if self.body.is_empty() { b"{}" } else { &self.body };
        serde_json::from_slice(body)
            .map_err(|error| ApiError::invalid(format!("the request is not as expected: {error}")))
    }
}

/// Finds out which server does a change, and sends it there if that is another one. That one checks the
/// signature, which covers nothing that is changed on the way; here, only the key and the time are checked.
pub(super) async fn to_writer(api: &Arc<Api>, request: Request) -> Result<Placed, ApiError> {
    signing_key(api, &Claim::read(request.headers(), request.uri(), Utc::now())?)?;
    let limits =
        ChangeLimits { body_bytes: MAX_BODY_BYTES.min(api.shared.limits.body_bytes), is_long: false };
    let placed = place(&api.shared, request, limits).await.map_err(ApiError::of_place)?;
    if let Placed::There(response) = &placed
        && response.status().is_success()
    {
        // The address does not say what was changed.
        api.shared.entries.note_change(None);
    }
    Ok(placed)
}

/// Returns the key of a claim.
fn signing_key(api: &Api, claim: &Claim) -> Result<SigningKey, ApiError> {
    api.shared.gate.signing_key(&claim.key).ok_or_else(|| {
        let message = "The security token included in the request is invalid: the server has no such key";
        ApiError::signature("UnrecognizedClientException", message)
    })
}

/// Runs `work` on a thread for work.
pub(super) async fn on_thread(
    shared: &Shared,
    work: impl FnOnce(Control<'_>) -> Outcome + Send + 'static,
) -> Outcome {
    match shared.work.run(move |control| Ok(work(control))).await {
        Ok(outcome) => outcome,
        Err(refusal) => Err(refusal.into()),
    }
}
