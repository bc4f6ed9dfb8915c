//! Changes of rows. Each is durable when it is answered, and done completely or not at all.

use super::wire::{ErrorAnswer, GivenFilter, GivenId, ids_of};
use crate::access::Writable;
use crate::answer::{json_text, to_json};
use crate::body::WholeBody;
use crate::failure::Refusal;
use crate::keys::Grant;
use crate::names::EntryName;
use crate::replay::WriteIdentity;
use crate::state::Shared;
use arrow_array::RecordBatch;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use bathyal_collection::exchange::RowTables;
use bathyal_collection::{Collection, Written};
use bathyal_tier::Control;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;
use utoipa::ToSchema;

/// Rows: an object for each, with its `id`, its vectors by the names of their fields (or `vector`), and
/// values of columns. A body of Arrow has the same columns.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GivenRows {
    rows: Vec<Map<String, Value>>,
}

/// Rows to delete: either ids, or those that match a filter. The filter `true` means all.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DeletedRows {
    ids: Option<Vec<GivenId>>,
    filter: Option<GivenFilter>,
}

/// The result of a change.
#[derive(Serialize, ToSchema)]
pub(super) struct WrittenAnswer {
    /// New rows.
    added: u64,
    /// Rows that replaced others with the same ids.
    replaced: u64,
    /// Rows that were deleted.
    deleted: u64,
    /// Ids without a row.
    missing: u64,
}

impl From<Written> for WrittenAnswer {
    fn from(written: Written) -> WrittenAnswer {
        let Written { added, replaced, deleted, missing } = written;
        WrittenAnswer { added, replaced, deleted, missing }
    }
}

type ChangeOutcome = Result<Written, Refusal>;

/// A request that changes rows.
pub(super) struct ChangeRequest {
    shared: Arc<Shared>,
    name: EntryName,
    grant: Grant,
    address: String,
    headers: HeaderMap,
    body: WholeBody,
}

impl ChangeRequest {
    /// Runs `change`, once for each idempotency key.
    async fn run(
        self,
        change: impl FnOnce(&Collection, &WholeBody, Control<'_>) -> ChangeOutcome + Send + 'static,
    ) -> Result<Response, Refusal> {
        let ChangeRequest { shared, name, grant, address, headers, body } = self;
        let bytes = body.bytes.clone();
        let identity = WriteIdentity { owner: &grant.name, address: &address, body: &bytes };
        let state = shared.clone();
        let work = async move {
            let entries = state.entries.clone();
            let work = move |control: Control<'_>| {
                let collection = entries.collection_to_change(&name)?;
                let written = change(&collection, &body, control)?;
                to_json(&WrittenAnswer::from(written))
            };
            state.work.run(work).await
        };
        Ok(json_text(StatusCode::OK, shared.replays.once(&headers, identity, work).await?))
    }
}

impl axum::extract::FromRequest<Arc<Shared>> for ChangeRequest {
    type Rejection = Refusal;

    async fn from_request(
        request: axum::extract::Request,
        shared: &Arc<Shared>,
    ) -> Result<ChangeRequest, Refusal> {
        use axum::extract::FromRequestParts;
        let (mut parts, body) = request.into_parts();
        // The right is checked before the body is read.
        let Writable(name) = Writable::from_request_parts(&mut parts, shared).await?;
        let grant = crate::access::grant_of(&parts)?.clone();
        let (address, headers) = (address_of(&parts.uri), parts.headers.clone());
        let request = axum::extract::Request::from_parts(parts, body);
        let body = WholeBody::from_request(request, shared).await?;
        Ok(ChangeRequest { shared: shared.clone(), name, grant, address, headers, body })
    }
}

fn address_of(uri: &Uri) -> String {
    uri.path().to_owned()
}

/// Converts the body of a request to a table.
fn table_of(body: &WholeBody, tables: &RowTables) -> Result<RecordBatch, Refusal> {
    if body.is_arrow {
        return Ok(tables.table_of_arrow(&body.bytes, body.arrow_bytes())?);
    }
    let GivenRows { rows } = body.json()?;
    Ok(tables.table_of_json(&rows)?)
}

/// Returns the converter of rows for a collection.
fn tables_of(collection: &Collection) -> RowTables {
    RowTables::new(collection.schema(), "the body")
}

/// Adds rows with new ids.
#[utoipa::path(
    post, path = "/v1/collections/{name}/add",
    operation_id = "add_rows", tag = "rows", request_body = GivenRows,
    params(("name" = String, Path), ("Idempotency-Key" = Option<String>, Header)),
    responses((status = 200, body = WrittenAnswer), (status = "4XX", body = ErrorAnswer))
)]
pub(super) async fn add(request: ChangeRequest) -> Result<Response, Refusal> {
    let change = |collection: &Collection, body: &WholeBody, _: Control<'_>| {
        let tables = tables_of(collection);
        Ok(collection.add(tables.rows(&table_of(body, &tables)?)?)?)
    };
    request.run(change).await
}

/// Adds rows, and replaces those with the same ids.
#[utoipa::path(
    post, path = "/v1/collections/{name}/upsert",
    operation_id = "upsert_rows", tag = "rows", request_body = GivenRows,
    params(("name" = String, Path), ("Idempotency-Key" = Option<String>, Header)),
    responses((status = 200, body = WrittenAnswer), (status = "4XX", body = ErrorAnswer))
)]
pub(super) async fn upsert(request: ChangeRequest) -> Result<Response, Refusal> {
    let change = |collection: &Collection, body: &WholeBody, _: Control<'_>| {
        let tables = tables_of(collection);
        Ok(collection.upsert(tables.rows(&table_of(body, &tables)?)?)?)
    };
    request.run(change).await
}

/// Changes columns of rows; others keep their values.
#[utoipa::path(
    post, path = "/v1/collections/{name}/update",
    operation_id = "update_rows", tag = "rows", request_body = GivenRows,
    params(("name" = String, Path), ("Idempotency-Key" = Option<String>, Header)),
    responses((status = 200, body = WrittenAnswer), (status = "4XX", body = ErrorAnswer))
)]
pub(super) async fn update(request: ChangeRequest) -> Result<Response, Refusal> {
    let change = |collection: &Collection, body: &WholeBody, _: Control<'_>| {
        let tables = tables_of(collection);
        let table = table_of(body, &tables)?;
        Ok(collection.update(tables.ids(&table)?, tables.metadata(&table)?)?)
    };
    request.run(change).await
}

/// Deletes rows by their ids, or those that match a filter.
#[utoipa::path(
    post, path = "/v1/collections/{name}/delete",
    operation_id = "delete_rows", tag = "rows", request_body = DeletedRows,
    params(("name" = String, Path), ("Idempotency-Key" = Option<String>, Header)),
    responses((status = 200, body = WrittenAnswer), (status = "4XX", body = ErrorAnswer))
)]
pub(super) async fn delete(request: ChangeRequest) -> Result<Response, Refusal> {
    let change = |collection: &Collection, body: &WholeBody, control: Control<'_>| {
        let DeletedRows { ids, filter } = body.json()?;
        Ok(match (ids, filter) {
            (Some(ids), None) => collection.delete(ids_of(collection.schema().id_kind, &ids)?)?,
            (None, Some(filter)) => collection.delete_matching(&filter.read()?, control)?,
            (None, None) => {
                return Err(Refusal::invalid("send `ids`, or a `filter`; the filter true deletes all rows"));
            }
            (Some(_), Some(_)) => return Err(Refusal::invalid("send either `ids` or `filter`, not both")),
        })
    };
    request.run(change).await
}
