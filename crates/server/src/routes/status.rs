//! Health, and the description of the API.

use crate::answer::json;
use crate::failure::Refusal;
use crate::state::Shared;
use axum::extract::State;
use axum::response::Response;
use serde_json::json as object;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The server runs.
pub(super) async fn live() -> Result<Response, Refusal> {
    json(&object!({ "status": "live" }))
}

/// The server takes requests, and its data can be listed.
pub(super) async fn ready(State(shared): State<Arc<Shared>>) -> Result<Response, Refusal> {
    if shared.stopping.load(Ordering::Acquire) {
        return Err(Refusal::stopping());
    }
    let entries = shared.entries.clone();
    shared.work.run(move |_| entries.check()).await?;
    json(&object!({ "status": "ready" }))
}

/// The description of the API in OpenAPI 3.1.
pub(super) async fn description() -> Result<Response, Refusal> {
    json(&super::openapi())
}
