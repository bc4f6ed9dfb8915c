//! Counts each request, and gives it an identifier for the log.

use crate::counters::OperationKey;
use crate::state::Shared;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tracing::Instrument;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The longest identifier that a client may give.
const MAX_ID_BYTES: usize = 128;

/// A request that is being answered.
struct InFlight<'a>(&'a AtomicU64);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts a request by its operation, status and time.
pub(crate) async fn count_request(
    State(shared): State<Arc<Shared>>,
    request: Request,
    next: Next,
) -> Response {
    let started = Instant::now();
    let method = request.method().to_string();
    // Addresses without an operation are counted together, so that their number is bounded.
    let path = request.extensions().get::<MatchedPath>().map_or("other", MatchedPath::as_str).to_owned();
    shared.counters.in_flight.fetch_add(1, Ordering::Relaxed);
    let in_flight = InFlight(&shared.counters.in_flight);
    let response = next.run(request).await;
    drop(in_flight);
    let key = OperationKey { method, path, status: response.status().as_u16() };
    shared.counters.count(key, started.elapsed());
    response
}

/// Gives a request an identifier, or keeps that of the client, and logs its answer with it.
pub(crate) async fn trace_request(request: Request, next: Next) -> Response {
    let given = request.headers().get(REQUEST_ID).filter(|id| id.len() <= MAX_ID_BYTES).cloned();
    let id = given.filter(|id| id.to_str().is_ok()).or_else(|| {
        let number: u128 = rand::random();
        HeaderValue::from_str(&format!("{number:032x}")).ok()
    });
    let text = id.as_ref().and_then(|id| id.to_str().ok()).unwrap_or_default().to_owned();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let span = tracing::info_span!("request", id = text, key = tracing::field::Empty);
    let started = Instant::now();
    let mut response = async move {
        let response = next.run(request).await;
        let milliseconds = started.elapsed().as_secs_f64() * 1e3;
        let status = response.status().as_u16();
        tracing::info!(%method, path, status, milliseconds, "answered");
        response
    }
    .instrument(span)
    .await;
    if let Some(id) = id {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}
