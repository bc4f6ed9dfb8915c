//! Reading rows: by ids, page by page, and counting them.

use super::snapshots::View;
use super::wire::{ErrorAnswer, GivenFilter, GivenId, check_vector_bytes, filter_of, ids_of};
use crate::access::Readable;
use crate::answer::{AnswerRows, arrow, json, json_text, to_header_json, to_json};
use crate::body::{JsonBody, accepts_arrow};
use crate::failure::Refusal;
use crate::state::Shared;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::Response;
use bathyal_collection::exchange::JsonRow;
use bathyal_collection::{CollectionError, FetchedRows, Projection, Schema};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::sync::Arc;
use utoipa::ToSchema;

/// Rows of a page, if the client does not say how many it wants.
const PAGE_ROWS: usize = 1000;
/// The most rows of a page.
const MAX_PAGE_ROWS: usize = 10_000;
/// Approximate bytes of the vectors of a page; a page has fewer rows if their vectors are long.
const PAGE_BYTES: usize = 16 << 20;
/// The most ids of a request.
const MAX_IDS: usize = 10_000;
/// The header of the next page, in answers of Arrow.
const NEXT: HeaderName = HeaderName::from_static("bathyal-next");

/// The values to return of each row.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RowsById {
    ids: Vec<GivenId>,
    /// Names of columns; all if it is left out.
    columns: Option<Vec<String>>,
    /// Names of vector fields; none if it is left out.
    #[serde(default)]
    vectors: Vec<String>,
    /// The name of a snapshot, to read the rows of its moment.
    snapshot: Option<String>,
}

/// Rows that were found by their ids.
#[derive(Serialize, ToSchema)]
pub(super) struct RowsAnswer<'a> {
    #[schema(value_type = Vec<serde_json::Value>)]
    rows: Vec<JsonRow<'a>>,
    /// The ids without a row.
    missing: Vec<GivenId>,
}

/// Rows that match a filter.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RowsPage {
    filter: Option<GivenFilter>,
    /// Names of columns; all if it is left out.
    columns: Option<Vec<String>>,
    /// Names of vector fields; none if it is left out.
    #[serde(default)]
    vectors: Vec<String>,
    /// The id of the last row of the page before.
    after: Option<GivenId>,
    /// The most rows, up to 10,000; 1,000 if it is left out. A page has fewer if their vectors are long.
    limit: Option<usize>,
    /// The name of a snapshot, to read the rows of its moment in all pages.
    snapshot: Option<String>,
}

/// A page of rows, in the order of their ids. Each page has the rows of its own moment, or of the snapshot.
#[derive(Serialize, ToSchema)]
pub(super) struct PageAnswer<'a> {
    #[schema(value_type = Vec<serde_json::Value>)]
    rows: Vec<JsonRow<'a>>,
    /// The value of `after` for the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<GivenId>,
}

/// The rows to count.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CountedRows {
    filter: Option<GivenFilter>,
    /// The name of a snapshot, to count the rows of its moment.
    snapshot: Option<String>,
}

/// A number of rows.
#[derive(Serialize, ToSchema)]
pub(super) struct CountAnswer {
    count: u64,
}

/// Returns the rows of an answer, with the names of their vector fields.
fn answer_rows(fetched: FetchedRows, fields: &[String]) -> AnswerRows {
    let FetchedRows { ids, columns, vectors } = fetched;
    AnswerRows { ids, columns, vectors: fields.iter().cloned().zip(vectors).collect() }
}

/// Returns the bytes of the vectors of a row in these fields.
fn vector_bytes(schema: &Schema, fields: &[String]) -> Result<usize, Refusal> {
    let mut bytes = 0;
    for name in fields {
        bytes += schema.vectors[schema.field(Some(name))?].row_bytes();
    }
    Ok(bytes)
}

/// Returns rows by their ids.
#[utoipa::path(
    post, path = "/v1/collections/{name}/get",
    operation_id = "get_rows", tag = "rows", request_body = RowsById,
    params(("name" = String, Path)),
    responses((status = 200, body = RowsAnswer), (status = "4XX", body = ErrorAnswer))
)]
pub(super) async fn get(
    State(shared): State<Arc<Shared>>,
    Readable(name): Readable,
    headers: HeaderMap,
    body: JsonBody<RowsById>,
) -> Result<Response, Refusal> {
    let RowsById { ids: given, columns, vectors, snapshot } = body.content;
    if given.len() > MAX_IDS {
        let message = format!("{} ids are too many for one request; send at most {MAX_IDS}", given.len());
        return Err(Refusal::invalid(message));
    }
    let state = shared.clone();
    let work = shared.work.run(move |control| {
        let collection = View::of(&state, &name, snapshot.as_deref())?;
        let schema = collection.schema();
        check_vector_bytes(given.len(), vector_bytes(&schema, &vectors)?)?;
        let ids = ids_of(schema.id_kind, &given)?;
        let what = Projection { columns, vectors: vectors.clone() };
        let found = collection.get(&ids, &what, control)?;
        let places: HashSet<u32> = found.places.iter().copied().collect();
        let missing = (0..).zip(&given).filter(|(place, _)| !places.contains(place));
        let missing: Vec<GivenId> = missing.map(|(_, id)| id.clone()).collect();
        let fetched = FetchedRows { ids: found.ids, columns: found.columns, vectors: found.vectors };
        let rows = answer_rows(fetched, &vectors);
        if accepts_arrow(&headers) {
            return arrow(rows.into_arrow_rows()?, []);
        }
        let rows = rows.into_json_rows()?;
        json(&RowsAnswer { rows: rows.iter().collect(), missing })
    });
    work.await
}

/// Returns the most rows of a page.
fn page_rows(schema: &Schema, what: &RowsPage) -> Result<usize, Refusal> {
    let row_bytes = 1 + vector_bytes(schema, &what.vectors)?;
    match what.limit {
        Some(0) => Err(Refusal::invalid("limit is 0; ask for at least one row")),
        limit => Ok(limit.unwrap_or(PAGE_ROWS).min(MAX_PAGE_ROWS).min(PAGE_BYTES / row_bytes).max(1)),
    }
}

/// Reads a page of rows. Returns an empty one at the end.
fn read_page(
    collection: &View,
    what: &RowsPage,
    control: bathyal_tier::Control<'_>,
) -> Result<(AnswerRows, Option<GivenId>), Refusal> {
    let limit = page_rows(&collection.schema(), what)?;
    let filter = filter_of(what.filter.as_ref())?;
    let projection = Projection { columns: what.columns.clone(), vectors: what.vectors.clone() };
    let after = what.after.as_ref().map(GivenId::id);
    let scan = collection.scan(filter.as_ref(), &projection, after.as_ref(), control);
    let placed =
        |error: CollectionError| GivenFilter::place(what.filter.as_ref(), &collection.schema(), error.into());
    let mut scan = scan.map_err(placed)?;
    let Some(fetched) = scan.next(limit, control)? else {
        let none = collection.get(
            &bathyal_collection::Ids::none(collection.schema().id_kind),
            &projection,
            control,
        )?;
        let fetched = FetchedRows { ids: none.ids, columns: none.columns, vectors: none.vectors };
        return Ok((answer_rows(fetched, &what.vectors), None));
    };
    let last = fetched.ids.len() - 1;
    let next = (fetched.ids.len() == limit).then(|| GivenId::of(fetched.ids.get(last)));
    Ok((answer_rows(fetched, &what.vectors), next))
}

/// Returns the rows that match a filter, page by page.
#[utoipa::path(
    post, path = "/v1/collections/{name}/scan",
    operation_id = "scan_rows", tag = "rows", request_body = RowsPage,
    params(("name" = String, Path)),
    responses((status = 200, body = PageAnswer), (status = "4XX", body = ErrorAnswer))
)]
pub(super) async fn scan(
    State(shared): State<Arc<Shared>>,
    Readable(name): Readable,
    headers: HeaderMap,
    body: JsonBody<RowsPage>,
) -> Result<Response, Refusal> {
    let what = body.content;
    let state = shared.clone();
    let work = shared.work.run(move |control| {
        let collection = View::of(&state, &name, what.snapshot.as_deref())?;
        let (rows, next) = read_page(&collection, &what, control)?;
        if accepts_arrow(&headers) {
            let next = next.map(|next| to_header_json(&next)).transpose()?;
            return arrow(rows.into_arrow_rows()?, next.map(|next| (NEXT, next)));
        }
        let rows = rows.into_json_rows()?;
        json(&PageAnswer { rows: rows.iter().collect(), next })
    });
    work.await
}

/// Counts the rows, or those that match a filter.
#[utoipa::path(
    post, path = "/v1/collections/{name}/count",
    operation_id = "count_rows", tag = "rows", request_body = CountedRows,
    params(("name" = String, Path)),
    responses((status = 200, body = CountAnswer), (status = "4XX", body = ErrorAnswer))
)]
pub(super) async fn count(
    State(shared): State<Arc<Shared>>,
    Readable(name): Readable,
    body: JsonBody<CountedRows>,
) -> Result<Response, Refusal> {
    let CountedRows { filter: given, snapshot } = body.content;
    let filter = filter_of(given.as_ref())?;
    let state = shared.clone();
    let work = shared.work.run(move |control| {
        let collection = View::of(&state, &name, snapshot.as_deref())?;
        let counted = collection.count(filter.as_ref(), control);
        let placed =
            |error: CollectionError| GivenFilter::place(given.as_ref(), &collection.schema(), error.into());
        let count = counted.map_err(placed)?;
        to_json(&CountAnswer { count })
    });
    Ok(json_text(StatusCode::OK, work.await?))
}
