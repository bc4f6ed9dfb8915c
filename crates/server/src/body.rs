//! Bodies of requests: read within a limit, in memory that was reserved for them.

use crate::body_memory::PERMIT_BYTES;
use crate::failure::Refusal;
use crate::state::Shared;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use bathyal_console::Kind;
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;

/// The type of JSON.
pub(crate) const JSON: &str = "application/json";
/// The type of a stream of Arrow IPC.
pub(crate) const ARROW: &str = "application/vnd.apache.arrow.stream";
/// Bytes of memory for each value in a body of JSON: 32 in a list that may have grown by a factor of 2.
const JSON_VALUE_BYTES: u64 = 64;
/// Bytes of memory for each byte of Arrow, which may be compressed: the body, and the columns that are made
/// of it.
const ARROW_EXPANSION: u64 = 3;
/// Longer bodies are parsed by a thread for work, so that connections are served meanwhile.
const SHORT_BODY_BYTES: usize = 64 << 10;
/// A whole body, and the memory that is reserved for it.
#[derive(Debug)]
pub(crate) struct WholeBody {
    pub(crate) bytes: Bytes,
    pub(crate) is_arrow: bool,
    memory: Vec<OwnedSemaphorePermit>,
}

/// Returns about the bytes of memory that the values in a text of JSON take, besides the text.
pub(crate) fn json_bytes(text: &[u8]) -> u64 {
    let values = text.iter().filter(|byte| matches!(byte, b',' | b':' | b'[' | b'{')).count();
    values as u64 * JSON_VALUE_BYTES
}

/// Returns true if the header names the type.
fn is_type(headers: &HeaderMap, name: header::HeaderName, wanted: &str) -> bool {
    let given = headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut kinds = given.split(',').map(|kind| kind.split(';').next().unwrap_or_default().trim());
    kinds.any(|kind| kind.eq_ignore_ascii_case(wanted))
}

/// Returns true if the client asks for Arrow.
pub(crate) fn accepts_arrow(headers: &HeaderMap) -> bool {
    is_type(headers, header::ACCEPT, ARROW)
}

impl FromRequest<Arc<Shared>> for WholeBody {
    type Rejection = Refusal;

    async fn from_request(request: Request, shared: &Arc<Shared>) -> Result<WholeBody, Refusal> {
        let (parts, body) = request.into_parts();
        let is_arrow = is_type(&parts.headers, header::CONTENT_TYPE, ARROW);
        let is_named = parts.headers.contains_key(header::CONTENT_TYPE);
        if is_named && !is_arrow && !is_type(&parts.headers, header::CONTENT_TYPE, JSON) {
            let message = format!(
                "the body has an unknown Content-Type; send the header `Content-Type: {JSON}` with JSON, or \
                 {ARROW}"
            );
            return Err(Refusal::with_status(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                Kind::InvalidArgument,
                message,
            ));
        }
        let limit = shared.limits.body_bytes;
        let told =
            parts.headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        // A body without a length may have the most.
        let length = told.unwrap_or(limit);
        if length > limit {
            return Err(too_large(limit));
        }
        let expansion = if is_arrow { ARROW_EXPANSION } else { 1 };
        let mut memory = vec![shared.body_memory.reserve(length.saturating_mul(expansion))?];
        let bytes = read_whole(body, limit, shared.limits.idle).await?;
        if !is_arrow {
            memory.push(shared.body_memory.reserve(json_bytes(&bytes))?);
        }
        Ok(WholeBody { bytes, is_arrow, memory })
    }
}

/// Returns the refusal of a body of more than `limit` bytes.
pub(crate) fn too_large(limit: u64) -> Refusal {
    let message = format!("the body is longer than {limit} bytes; send fewer rows at once");
    Refusal::with_status(StatusCode::PAYLOAD_TOO_LARGE, Kind::InvalidArgument, message)
}

/// Reads a body of at most `limit` bytes. Each part of it has to arrive within `idle`.
pub(crate) async fn read_whole(mut body: Body, limit: u64, idle: Duration) -> Result<Bytes, Refusal> {
    let mut all = Vec::new();
    loop {
        let frame = tokio::time::timeout(idle, body.frame()).await.map_err(|_| {
            let message = format!("no part of the body arrived within {} s", idle.as_secs());
            Refusal::with_status(StatusCode::REQUEST_TIMEOUT, Kind::Timeout, message)
        })?;
        let Some(frame) = frame else { return Ok(all.into()) };
        let frame = frame.map_err(|error| Refusal::invalid(format!("the body ended early: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        if (all.len() + data.len()) as u64 > limit {
            return Err(too_large(limit));
        }
        all.extend_from_slice(&data);
    }
}

impl WholeBody {
    /// Returns the bytes that the compressed buffers of a body of Arrow may take: the memory that is
    /// reserved, less the body itself.
    pub(crate) fn arrow_bytes(&self) -> u64 {
        let permits: usize = self.memory.iter().map(OwnedSemaphorePermit::num_permits).sum();
        (permits as u64 * PERMIT_BYTES).saturating_sub(self.bytes.len() as u64)
    }

    /// Parses JSON.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        if self.is_arrow {
            return Err(Refusal::with_status(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                Kind::InvalidArgument,
                format!("this operation takes a body of {JSON}, not {ARROW}"),
            ));
        }
        serde_json::from_slice(&self.bytes)
            .map_err(|error| Refusal::invalid(format!("the body is not as expected: {error}")))
    }
}

/// A body of JSON, and the memory that is reserved for it.
pub(crate) struct JsonBody<T> {
    pub(crate) content: T,
    /// Released with the request.
    _whole: WholeBody,
}

impl<T: DeserializeOwned + Send + 'static> JsonBody<T> {
    /// Parses a body, on a thread for work if it is long.
    pub(crate) async fn parse(shared: &Shared, whole: WholeBody) -> Result<JsonBody<T>, Refusal> {
        if whole.bytes.len() <= SHORT_BODY_BYTES {
            return Ok(JsonBody { content: whole.json()?, _whole: whole });
        }
        shared.work.run(move |_| Ok(JsonBody { content: whole.json()?, _whole: whole })).await
    }
}

impl<T: DeserializeOwned + Send + 'static> FromRequest<Arc<Shared>> for JsonBody<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, shared: &Arc<Shared>) -> Result<JsonBody<T>, Refusal> {
        JsonBody::parse(shared, WholeBody::from_request(request, shared).await?).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_json_are_counted_before_they_are_made() {
        for (text, values) in [("[0,0,0]", 3), ("{\"rows\":[{\"id\":1,\"v\":[1,2]}]}", 9), ("", 0)] {
            assert_eq!(json_bytes(text.as_bytes()), values * JSON_VALUE_BYTES, "{text}");
        }
    }
}
