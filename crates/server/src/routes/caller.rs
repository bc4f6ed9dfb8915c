//! The caller's own rights, and the counters of the server.

use super::wire::ErrorAnswer;
use crate::answer::json;
use crate::counters::RequestCounts;
use crate::failure::Refusal;
use crate::keys::{Grant, Right};
use crate::state::Shared;
use axum::extract::State;
use axum::response::Response;
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use utoipa::ToSchema;

/// The key of the request.
#[derive(Serialize, ToSchema)]
pub(super) struct KeyAnswer {
    /// Its name.
    name: String,
    /// `read` or `write`.
    #[schema(value_type = String)]
    right: Right,
    /// The beginning of the names that it is for; empty means all.
    prefix: String,
    /// The version of the server.
    version: &'static str,
}

/// Returns the name and the rights of the key of the request.
#[utoipa::path(
    get, path = "/v1/me", operation_id = "describe_key", tag = "server",
    responses((status = 200, body = KeyAnswer), (status = "4XX", body = ErrorAnswer))
)]
pub(super) async fn me(grant: Grant) -> Result<Response, Refusal> {
    let Grant { name, right, prefix } = grant;
    json(&KeyAnswer { name, right, prefix, version: env!("CARGO_PKG_VERSION") })
}

/// The counters of the server since it was started.
#[derive(Serialize, ToSchema)]
pub(super) struct ServerAnswer {
    /// Requests that are being answered, this one included.
    in_flight: u64,
    /// Open collections and indexes.
    open_collections: usize,
    open_indexes: usize,
    /// Requests by operation and status.
    requests: Vec<RequestCounts>,
}

/// Returns the counters of the server.
#[utoipa::path(
    get, path = "/v1/stats", operation_id = "server_stats", tag = "server",
    responses((status = 200, body = ServerAnswer), (status = "4XX", body = ErrorAnswer))
)]
pub(super) async fn stats(State(shared): State<Arc<Shared>>) -> Result<Response, Refusal> {
    json(&ServerAnswer {
        in_flight: shared.counters.in_flight.load(Ordering::Relaxed),
        open_collections: shared.entries.open_collections().len(),
        open_indexes: shared.entries.open_indexes().len(),
        requests: shared.counters.requests(),
    })
}
