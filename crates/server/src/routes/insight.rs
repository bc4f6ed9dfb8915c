//! Insight into searches: counters, one search in detail, recall against effort, and audits.

use super::indexes::GivenIndexSearch;
use super::sample_map::drawn_ids;
use super::search::{GivenSearch, opened, read_queries};
use super::wire::{ErrorAnswer, GivenFilter, queries_of};
use crate::access::Readable;
use crate::answer::json;
use crate::body::JsonBody;
use crate::failure::Refusal;
use crate::state::Shared;
use axum::extract::State;
use axum::response::Response;
use bathyal_collection::{Collection, CollectionAuditRequest, Projection, SearchRequest};
use bathyal_index::{AuditReport, AuditRequest, DEFAULT_K, DEFAULT_RECALL, Index, with_control};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use serde::Deserialize;
use std::sync::Arc;
use utoipa::ToSchema;

/// Queries of an audit, if the client does not say how many it wants: they take seconds with a million rows.
const AUDITED: usize = 100;
/// The most queries of an audit.
const MAX_AUDITED: usize = 1000;

/// Returns the size of a collection, and the counters of its searches since it was opened.
#[utoipa::path(
    get, path = "/v1/collections/{name}/stats",
    operation_id = "collection_stats", tag = "collections", params(("name" = String, Path)),
    responses((status = 200, body = serde_json::Value), (status = "4XX", body = ErrorAnswer))
)]
pub(super) async fn stats(
    State(shared): State<Arc<Shared>>,
    Readable(name): Readable,
) -> Result<Response, Refusal> {
    let collection = opened(&shared, &name).await?;
    let mut stats = collection.stats();
    // The path on this machine is nobody else's business.
    stats.description.path = name.to_string();
    json(&stats)
}

/// Answers one query in each segment alone, and returns times and counts: without a filter also memory, and
/// all of them beside those predicted (`explanation` of a segment), with a filter beside the plan
/// (`filtered`). The members are those of a search.
#[utoipa::path(
    post, path = "/v1/collections/{name}/explain",
    operation_id = "explain_rows", tag = "search", request_body = GivenSearch,
    params(("name" = String, Path)),
    responses((status = 200, body = serde_json::Value), (status = "4XX", body = ErrorAnswer))
)]
pub(super) async fn explain(
    State(shared): State<Arc<Shared>>,
    Readable(name): Readable,
    body: JsonBody<GivenSearch>,
) -> Result<Response, Refusal> {
    let collection = opened(&shared, &name).await?;
    let mut given = body.content;
    if given.snapshot.is_some() {
        return Err(Refusal::invalid("an explanation is of the rows as they are; leave out `snapshot`"));
    }
    let queries = read_queries(&shared, (&name, &collection), &mut given).await?;
    if queries.count() != 1 {
        return Err(Refusal::invalid("an explanation is of one query; send `vector` or `like`"));
    }
    let request = given.read(&collection.schema())?.request;
    let (schema, explained) = (collection.schema(), collection.clone());
    let work = move |control: Control<'_>| json(&explained.explain(&queries, &request, control)?);
    let answered = shared.work.run(work).await;
    answered.map_err(|error| GivenFilter::place(given.filter.as_ref(), &schema, error))
}

/// Answers one query alone, and returns times, counts and memory beside those predicted. The members are
/// those of a search.
#[utoipa::path(
    post, path = "/v1/indexes/{name}/explain",
    operation_id = "explain_index", tag = "indexes", request_body = GivenIndexSearch,
    params(("name" = String, Path)),
    responses((status = 200, body = serde_json::Value), (status = "4XX", body = ErrorAnswer))
)]
pub(super) async fn explain_index(
    State(shared): State<Arc<Shared>>,
    Readable(name): Readable,
    body: JsonBody<GivenIndexSearch>,
) -> Result<Response, Refusal> {
    let index = super::indexes::opened(&shared, &name).await?;
    let (vectors, options) = body.content.read(&index)?;
    if vectors.len() != 1 {
        return Err(Refusal::invalid("an explanation is of one query; send `vector`"));
    }
    let queries = queries_of(&vectors, index.element(), index.dim())?;
    let work = move |control: Control<'_>| json(&index.explain(&queries, 0, &options, control)?);
    shared.work.run(work).await
}

/// The searches whose recall is asked for.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GivenCurve {
    /// The vector field; it may be left out if there is only one.
    field: Option<String>,
    /// Neighbours of each query; 10 if it is left out.
    k: Option<usize>,
}

/// Returns recall against effort in each segment, as its calibrations have it.
#[utoipa::path(
    post, path = "/v1/collections/{name}/recall",
    operation_id = "recall_curves", tag = "search", request_body = GivenCurve,
    params(("name" = String, Path)),
    responses((status = 200, body = serde_json::Value), (status = "4XX", body = ErrorAnswer))
)]
pub(super) async fn recall(
    State(shared): State<Arc<Shared>>,
    Readable(name): Readable,
    body: JsonBody<GivenCurve>,
) -> Result<Response, Refusal> {
    let collection = opened(&shared, &name).await?;
    let GivenCurve { field, k } = body.content;
    let k = checked_k(k)?;
    let work = move |_: Control<'_>| {
        json(&serde_json::json!({ "segments": collection.recall_curves(field.as_deref(), k)? }))
    };
    shared.work.run(work).await
}

/// The searches of an index whose recall is asked for.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GivenIndexCurve {
    /// Neighbours of each query; 10 if it is left out.
    k: Option<usize>,
}

/// Returns recall against effort, as the calibrations of an index have it.
#[utoipa::path(
    post, path = "/v1/indexes/{name}/recall",
    operation_id = "index_recall_curves", tag = "indexes", request_body = GivenIndexCurve,
    params(("name" = String, Path)),
    responses((status = 200, body = serde_json::Value), (status = "4XX", body = ErrorAnswer))
)]
pub(super) async fn recall_index(
    State(shared): State<Arc<Shared>>,
    Readable(name): Readable,
    body: JsonBody<GivenIndexCurve>,
) -> Result<Response, Refusal> {
    let index = super::indexes::opened(&shared, &name).await?;
    let k = checked_k(body.content.k)?;
    let work = move |_: Control<'_>| json(&serde_json::json!({ "curves": index.recall_curves(k)? }));
    shared.work.run(work).await
}

fn checked_k(k: Option<usize>) -> Result<usize, Refusal> {
    match k.unwrap_or(DEFAULT_K) {
        0 => Err(Refusal::invalid("k is 0; ask for at least one neighbour")),
        k => Ok(k),
    }
}

/// The queries of an audit.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GivenAudit {
    /// The queries. If they are left out, rows that are drawn at random are the queries: each finds itself
    /// first, and so a little more than other queries.
    vectors: Option<Vec<Vec<f32>>>,
    /// The most queries, up to 1,000; 100 if it is left out.
    queries: Option<usize>,
    /// Recalls to ask for; 0.95 if it is left out.
    recalls: Option<Vec<f32>>,
    /// The vector field; it may be left out if there is only one.
    field: Option<String>,
    /// Neighbours of each query; 10 if it is left out.
    k: Option<usize>,
    /// The name of the calibration that the recalls refer to.
    calibration: Option<String>,
    filter: Option<GivenFilter>,
    /// The same number draws the same rows; 0 if it is left out.
    #[serde(default)]
    seed: u64,
}

/// Searches for some recalls, compares the answers with exact ones, and returns the recall that was found.
#[utoipa::path(
    post, path = "/v1/collections/{name}/audit",
    operation_id = "audit_collection", tag = "search", request_body = GivenAudit,
    params(("name" = String, Path)),
    responses((status = 200, body = serde_json::Value), (status = "4XX", body = ErrorAnswer))
)]
pub(super) async fn audit(
    State(shared): State<Arc<Shared>>,
    Readable(name): Readable,
    body: JsonBody<GivenAudit>,
) -> Result<Response, Refusal> {
    let given = body.content;
    super::long_work::run(
        &shared,
        (name, false),
        move |collection, progress| -> Result<AuditReport, Refusal> {
            let queries = audited_queries(collection, &given)?;
            let (filter, schema) = (given.filter.as_ref(), collection.schema());
            let search = SearchRequest {
                field: given.field.clone(),
                k: checked_k(given.k)?,
                calibration: given.calibration.clone(),
                filter: filter.map(GivenFilter::read).transpose()?,
                ..SearchRequest::default()
            };
            let recalls = given.recalls.clone().unwrap_or_else(|| vec![DEFAULT_RECALL]);
            let request = CollectionAuditRequest { recalls, queries: queries.count(), search };
            let audited = collection.audit(&queries, &request, progress);
            audited.map_err(|error| GivenFilter::place(filter, &schema, error.into()))
        },
    )
    .await
}

/// Returns the queries of an audit.
fn audited_queries(collection: &Collection, given: &GivenAudit) -> Result<VectorFile, Refusal> {
    let schema = collection.schema();
    let field = &schema.vectors[schema.field(given.field.as_deref())?];
    if let Some(vectors) = &given.vectors {
        let most = vectors.len().min(given.queries.unwrap_or(MAX_AUDITED)).min(MAX_AUDITED);
        return queries_of(&vectors[..most], field.element, field.dim);
    }
    let what = Projection { columns: Some(Vec::new()), vectors: vec![field.name.clone()] };
    let count = given.queries.unwrap_or(AUDITED).min(MAX_AUDITED);
    let sampled = collection.sample(None, &what, (count, given.seed), Control::default())?;
    let vectors = sampled.rows.vectors.into_iter().next().filter(|vectors| !vectors.bytes.is_empty());
    let vectors = vectors.ok_or_else(|| Refusal::invalid("there are no rows, so no recall to audit"))?;
    VectorFile::from_rows(vectors.element, vectors.dim, vectors.bytes)
        .map_err(|error| Refusal::invalid(error.to_string()))
}

/// The queries of an audit of an index.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GivenIndexAudit {
    /// The queries. If they are left out, vectors that are drawn at random are the queries: each finds itself
    /// first, and so a little more than other queries.
    vectors: Option<Vec<Vec<f32>>>,
    /// The most queries, up to 1,000; 100 if it is left out.
    queries: Option<usize>,
    /// Recalls to ask for; 0.95 if it is left out.
    recalls: Option<Vec<f32>>,
    /// Neighbours of each query; 10 if it is left out.
    k: Option<usize>,
    /// The same number draws the same vectors; 0 if it is left out.
    #[serde(default)]
    seed: u64,
}

/// Searches an index for some recalls, compares the answers with exact ones, and returns the recall that was
/// found.
#[utoipa::path(
    post, path = "/v1/indexes/{name}/audit",
    operation_id = "audit_index", tag = "indexes", request_body = GivenIndexAudit,
    params(("name" = String, Path)),
    responses((status = 200, body = serde_json::Value), (status = "4XX", body = ErrorAnswer))
)]
pub(super) async fn audit_index(
    State(shared): State<Arc<Shared>>,
    Readable(name): Readable,
    body: JsonBody<GivenIndexAudit>,
) -> Result<Response, Refusal> {
    let given = body.content;
    super::long_work::run_on_index(&shared, name, move |index, progress| -> Result<AuditReport, Refusal> {
        let queries = with_control(progress, |control| audited_vectors(index, &given, control))?;
        let recalls = given.recalls.clone().unwrap_or_else(|| vec![DEFAULT_RECALL]);
        let (k, count) = (checked_k(given.k)?, queries.count());
        let request = AuditRequest { recalls, k, queries: count, ..AuditRequest::default() };
        Ok(index.audit(&queries, &request, progress)?)
    })
    .await
}

/// Returns the queries of an audit of an index.
fn audited_vectors(
    index: &Index,
    given: &GivenIndexAudit,
    control: Control<'_>,
) -> Result<VectorFile, Refusal> {
    if let Some(vectors) = &given.vectors {
        let most = vectors.len().min(given.queries.unwrap_or(MAX_AUDITED)).min(MAX_AUDITED);
        return queries_of(&vectors[..most], index.element(), index.dim());
    }
    let count = given.queries.unwrap_or(AUDITED).min(MAX_AUDITED);
    let (ids, _) = drawn_ids(index, count, given.seed, control)?;
    let vectors = index.vectors(&ids, control)?;
    VectorFile::from_rows(vectors.element, vectors.dim, vectors.bytes)
        .map_err(|error| Refusal::invalid(error.to_string()))
}
