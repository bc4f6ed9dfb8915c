//! Sends the operations that change data to the server that writes.

use crate::access::grant_in;
use crate::failure::Refusal;
use crate::forward::{ChangeLimits, Placed, place};
use crate::keys::Right;
use crate::names::EntryName;
use crate::state::Shared;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;

const COLLECTIONS: &str = "/v1/collections";
/// Operations of a collection that change it or others, and take no longer than other requests.
const CHANGES: [&str; 5] = ["add", "upsert", "update", "delete", "flush"];
/// Those that may take long.
const LONG_CHANGES: [&str; 3] = ["compact", "copy", "calibrate"];

/// Returns whether an operation may take long; `None` if it changes nothing.
fn change(method: &Method, path: &str) -> Option<bool> {
    let within = path.strip_prefix(COLLECTIONS)?;
    let operation = within.strip_prefix("/{name}");
    match (method, operation) {
        (&Method::POST, None) | (&Method::DELETE, Some("")) => Some(false),
        (&Method::POST, Some(operation)) => {
            let operation = operation.strip_prefix('/')?;
            let is_long = LONG_CHANGES.contains(&operation);
            (is_long || CHANGES.contains(&operation)).then_some(is_long)
        }
        _ => None,
    }
}

/// Does an operation here, or sends it to the server that writes if it changes something.
pub(super) async fn to_writer(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let Some(is_long) = change(request.method(), path) else { return next.run(request).await };
    let name = match permitted(&request, path) {
        Ok(name) => name,
        Err(refusal) => return refusal.into_response(),
    };
    let is_removal = request.method() == Method::DELETE;
    let limits = ChangeLimits { body_bytes: shared.limits.body_bytes, is_long };
    match place(&shared, request, limits).await {
        Err(refusal) => refusal.into_response(),
        Ok(Placed::Here(request)) => {
            let response = next.run(request).await;
            if response.status() == StatusCode::SERVICE_UNAVAILABLE {
                // Perhaps because another server has taken over.
                shared.lease.doubt();
            }
            response
        }
        Ok(Placed::There(response)) => {
            if response.status().is_success() {
                match name.as_ref().filter(|_| is_removal) {
                    Some(removed) => shared.entries.forget(removed),
                    None => shared.entries.note_change(name.as_ref()),
                }
            }
            response
        }
    }
}

/// Returns the name of the collection in the address of a change, which its key must have the right to: it is
/// checked before the body is read. A creation has no name there.
fn permitted(request: &Request, path: &str) -> Result<Option<EntryName>, Refusal> {
    if path == COLLECTIONS {
        return Ok(None);
    }
    let given = request.uri().path().strip_prefix(COLLECTIONS).unwrap_or_default();
    let given = given.trim_start_matches('/').split('/').next().unwrap_or_default();
    // A name with other characters is refused by the operation itself.
    let Ok(name) = given.parse::<EntryName>() else { return Ok(None) };
    if path.ends_with("/copy") {
        return Ok(None);
    }
    grant_in(request.extensions())?.check(Right::Write, &name)?;
    Ok(Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Operations with a body that change nothing.
    const READS: [&str; 19] = [
        "audit_collection",
        "audit_index",
        "count_rows",
        "explain_index",
        "explain_rows",
        "get_rows",
        "get_vectors",
        "hold_snapshot",
        "index_recall_curves",
        "map_index",
        "map_rows",
        "recall_curves",
        "release_snapshot",
        "scan_rows",
        "search_index",
        "search_index_range",
        "search_rows",
        "verify_collection",
        "warm_collection",
    ];

    #[test]
    fn operations_that_change_something_are_known() {
        let document = serde_json::to_value(super::super::openapi()).unwrap();
        let (mut changes, mut long, mut reads) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for (path, operations) in document["paths"].as_object().unwrap() {
            for (method, operation) in operations.as_object().unwrap() {
                let id = operation["operationId"].as_str().unwrap().to_owned();
                match change(&method.to_uppercase().parse().unwrap(), path) {
                    Some(false) => changes.insert(id),
                    Some(true) => long.insert(id),
                    None if method == "get" => true,
                    None => reads.insert(id),
                };
            }
        }
        let expected = [
            "add_rows",
            "create_collection",
            "delete_rows",
            "flush_collection",
            "remove_collection",
            "update_rows",
            "upsert_rows",
        ];
        assert_eq!(changes, expected.map(str::to_owned).into());
        let expected = ["calibrate_collection", "compact_collection", "copy_collection"];
        assert_eq!(long, expected.map(str::to_owned).into());
        // A new operation must be in one of the lists, so that no change is done at a server that does not
        // write.
        assert_eq!(reads, READS.map(str::to_owned).into());
    }
}
