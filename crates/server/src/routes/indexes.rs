//! Indexes: they are searched, and do not change.

use super::collections::{ListingPage, NamesAnswer};
use super::wire::{ErrorAnswer, check_size, check_vector_bytes, effort_of, queries_of, vectors_of};
use crate::access::Readable;
use crate::answer::json;
use crate::body::JsonBody;
use crate::failure::Refusal;
use crate::keys::Grant;
use crate::names::EntryName;
use crate::state::Shared;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::Response;
use bathyal_collection::EntryKind;
use bathyal_index::{Index, NO_ID, NamedEfforts, RangeOptions, SearchOptions};
use bathyal_kernels::{Element, to_f32};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Instant;
use utoipa::ToSchema;

/// The most ids of a request.
const MAX_IDS: usize = 10_000;
/// The most neighbours of a query of a range search, if the client does not say how many it wants.
const RANGE_LIMIT: usize = 10_000;

/// An index.
#[derive(Serialize, ToSchema)]
pub(super) struct IndexAnswer {
    name: String,
    family: String,
    vectors: usize,
    dim: usize,
    element: String,
    metric: String,
}

/// A search: one query or several.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GivenIndexSearch {
    /// One query.
    vector: Option<Vec<f32>>,
    /// Several queries.
    vectors: Option<Vec<Vec<f32>>>,
    /// Neighbours of each query; 10 if it is left out.
    k: Option<usize>,
    /// The share of the true neighbours that is to be found, in the mean; 0.95 if no effort is given.
    recall: Option<f32>,
    /// The length of the candidate list, instead of a recall.
    search_list: Option<u32>,
    /// The overall ratio, instead of a recall; only for hash tables.
    ratio: Option<f32>,
    /// The name of the calibration that the recall refers to.
    calibration: Option<String>,
}

impl GivenIndexSearch {
    /// Returns the queries, and the options of the library.
    pub(super) fn read(self, index: &Index) -> Result<(Vec<Vec<f32>>, SearchOptions), Refusal> {
        let GivenIndexSearch { vector, vectors, k, recall, search_list, ratio, calibration } = self;
        let vectors =
            vectors_of(vector, vectors)?.ok_or_else(|| Refusal::invalid("send `vector` or `vectors`"))?;
        let effort = effort_of(NamedEfforts { recall, search_list, ratio, ..NamedEfforts::default() })?;
        let calibration = calibration.map(|name| index.calibration(&name)).transpose()?.unwrap_or_default();
        let default = SearchOptions::default();
        Ok((vectors, SearchOptions { k: k.unwrap_or(default.k), effort, calibration, ..default }))
    }
}

/// A vector that was found.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
struct FoundVector {
    id: u32,
    /// Squared L2, negative inner product, or 1 - cosine.
    distance: f32,
}

/// The vectors that one query has found, nearest first.
#[derive(Debug, Serialize, ToSchema)]
struct QueryVectors {
    query: usize,
    neighbors: Vec<FoundVector>,
}

/// The answers to all queries.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct VectorsAnswer {
    results: Vec<QueryVectors>,
    /// Remarks, such as a recall that is not promised for these queries.
    notes: Vec<String>,
}

fn found_vectors(ids: &[u32], distances: &[f32]) -> Vec<FoundVector> {
    let pairs = ids.iter().zip(distances).filter(|(id, _)| **id != NO_ID);
    pairs.map(|(id, distance)| FoundVector { id: *id, distance: *distance }).collect()
}

/// Returns an index, opened at need.
pub(super) async fn opened(shared: &Shared, name: &EntryName) -> Result<Arc<Index>, Refusal> {
    if let Some(index) = shared.entries.opened_index(name) {
        return Ok(index);
    }
    let (entries, name) = (shared.entries.clone(), name.clone());
    shared.work.run(move |_| entries.index(&name)).await
}

/// Lists indexes.
#[utoipa::path(
    get, path = "/v1/indexes",
    operation_id = "list_indexes", tag = "indexes", params(ListingPage),
    responses((status = 200, body = NamesAnswer), (status = "4XX", body = ErrorAnswer))
)]
pub(super) async fn list(
    State(shared): State<Arc<Shared>>,
    grant: Grant,
    page: Result<Query<ListingPage>, QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(page) = page.map_err(|error| Refusal::invalid(error.body_text()))?;
    let entries = shared.entries.clone();
    let found = shared.work.run(move |_| entries.list()).await?;
    let names = found.into_iter().filter(|entry| matches!(entry.what, EntryKind::Index { .. }));
    json(&page.of(&grant, names.map(|entry| entry.name)))
}

/// Describes an index.
#[utoipa::path(
    get, path = "/v1/indexes/{name}",
    operation_id = "describe_index", tag = "indexes", params(("name" = String, Path)),
    responses((status = 200, body = IndexAnswer), (status = "4XX", body = ErrorAnswer))
)]
pub(super) async fn describe(
    State(shared): State<Arc<Shared>>,
    Readable(name): Readable,
) -> Result<Response, Refusal> {
    let index = opened(&shared, &name).await?;
    json(&IndexAnswer {
        name: name.to_string(),
        family: index.manifest().family.clone(),
        vectors: index.len(),
        dim: index.dim(),
        element: index.manifest().element.clone(),
        metric: index.manifest().metric.clone(),
    })
}

/// Returns queries in the element of an index.
fn queries_for(index: &Index, vectors: &[Vec<f32>]) -> Result<VectorFile, Refusal> {
    queries_of(vectors, index.element(), index.dim())
}

/// Searches for the nearest vectors.
#[utoipa::path(
    post, path = "/v1/indexes/{name}/search",
    operation_id = "search_index", tag = "indexes", request_body = GivenIndexSearch,
    params(("name" = String, Path)),
    responses((status = 200, body = VectorsAnswer), (status = "4XX", body = ErrorAnswer))
)]
pub(super) async fn search(
    State(shared): State<Arc<Shared>>,
    Readable(name): Readable,
    body: JsonBody<GivenIndexSearch>,
) -> Result<Response, Refusal> {
    let started = Instant::now();
    let index = opened(&shared, &name).await?;
    let (vectors, options) = body.content.read(&index)?;
    check_size(vectors.len(), options.k)?;
    let queries = queries_for(&index, &vectors)?;
    let _place = shared.index_searches.take()?;
    // The search threads of the process run the queries of all requests together.
    let found = index.search_async(&queries, &options, Some(shared.work.deadline())).await;
    let found = found.map_err(|error| shared.refusal(error))?;
    shared.log_slow(started, &name, || format!("{:?}", found.totals));
    let of_query = |query: usize| {
        let row = query * found.k..(query + 1) * found.k;
        QueryVectors { query, neighbors: found_vectors(&found.ids[row.clone()], &found.distances[row]) }
    };
    json(&VectorsAnswer { results: (0..vectors.len()).map(of_query).collect(), notes: found.notes.clone() })
}

/// A search for all vectors within a distance.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GivenRange {
    /// One query.
    vector: Option<Vec<f32>>,
    /// Several queries.
    vectors: Option<Vec<Vec<f32>>>,
    /// The largest distance: squared L2, negative inner product, or 1 - cosine.
    radius: f32,
    /// The share of the vectors within the radius that is to be found, in the mean; 0.95 if it is left out.
    recall: Option<f32>,
    /// The most neighbours of a query, of which the nearest are kept; 10,000 if it is left out.
    limit: Option<usize>,
}

/// Finds all vectors within a distance of each query.
#[utoipa::path(
    post, path = "/v1/indexes/{name}/range",
    operation_id = "search_index_range", tag = "indexes", request_body = GivenRange,
    params(("name" = String, Path)),
    responses((status = 200, body = VectorsAnswer), (status = "4XX", body = ErrorAnswer))
)]
pub(super) async fn range(
    State(shared): State<Arc<Shared>>,
    Readable(name): Readable,
    body: JsonBody<GivenRange>,
) -> Result<Response, Refusal> {
    let index = opened(&shared, &name).await?;
    let GivenRange { vector, vectors, radius, recall, limit } = body.content;
    let vectors =
        vectors_of(vector, vectors)?.ok_or_else(|| Refusal::invalid("send `vector` or `vectors`"))?;
    let limit = limit.unwrap_or(RANGE_LIMIT);
    check_size(vectors.len(), limit)?;
    let default = RangeOptions::default();
    let options = RangeOptions { recall: recall.unwrap_or(default.recall), limit: Some(limit), ..default };
    let queries = queries_for(&index, &vectors)?;
    let work = move |control: Control<'_>| {
        let found = index.range_search(&queries, radius, &options, control)?;
        let of_query = |query: usize| {
            let row = found.offsets[query]..found.offsets[query + 1];
            QueryVectors { query, neighbors: found_vectors(&found.ids[row.clone()], &found.distances[row]) }
        };
        let results = (0..queries.count()).map(of_query).collect();
        json(&VectorsAnswer { results, notes: found.notes.clone() })
    };
    shared.work.run(work).await
}

/// Ids of vectors.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct VectorsById {
    ids: Vec<u32>,
}

/// Vectors, in the order of the ids.
#[derive(Serialize, ToSchema)]
struct StoredVectorsAnswer {
    vectors: Vec<Vec<f32>>,
}

/// Returns vectors by their ids. Bits are returned as bytes, eight in each.
#[utoipa::path(
    post, path = "/v1/indexes/{name}/get",
    operation_id = "get_vectors", tag = "indexes", request_body = VectorsById,
    params(("name" = String, Path)),
    responses((status = 200, body = StoredVectorsAnswer), (status = "4XX", body = ErrorAnswer))
)]
pub(super) async fn get(
    State(shared): State<Arc<Shared>>,
    Readable(name): Readable,
    body: JsonBody<VectorsById>,
) -> Result<Response, Refusal> {
    let index = opened(&shared, &name).await?;
    let ids = body.content.ids;
    if ids.len() > MAX_IDS {
        let message = format!("{} ids are too many for one request; send at most {MAX_IDS}", ids.len());
        return Err(Refusal::invalid(message));
    }
    check_vector_bytes(ids.len(), index.element().row_bytes(index.dim()))?;
    let work = move |control: Control<'_>| {
        let found = index.vectors(&ids, control)?;
        let packed = found.element == Element::B1;
        let (element, dim) = if packed {
            (Element::U8, found.element.row_bytes(found.dim))
        } else {
            (found.element, found.dim)
        };
        let row_bytes = element.row_bytes(dim).max(1);
        let decoded = found.bytes.chunks_exact(row_bytes).map(|row| {
            let mut vector = vec![0.0; dim];
            to_f32(element, row, &mut vector);
            vector
        });
        json(&StoredVectorsAnswer { vectors: decoded.collect() })
    };
    shared.work.run(work).await
}

/// Returns the counters of an index since it was opened.
#[utoipa::path(
    get, path = "/v1/indexes/{name}/stats",
    operation_id = "index_stats", tag = "indexes", params(("name" = String, Path)),
    responses((status = 200, body = serde_json::Value), (status = "4XX", body = ErrorAnswer))
)]
pub(super) async fn stats(
    State(shared): State<Arc<Shared>>,
    Readable(name): Readable,
) -> Result<Response, Refusal> {
    let mut stats = opened(&shared, &name).await?.stats();
    // The path on this machine is nobody else's business.
    stats.index = name.to_string();
    json(&stats)
}
