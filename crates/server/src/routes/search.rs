//! Search of a collection.

use super::snapshots::View;
use super::wire::{
    ErrorAnswer, GivenFilter, GivenId, check_size, check_vector_bytes, effort_of, filter_of, ids_of,
    queries_of, vectors_of,
};
use crate::access::Readable;
use crate::answer::{arrow, json, to_header_json};
use crate::body::{JsonBody, WholeBody, accepts_arrow};
use crate::collection_search::{CollectionSearch, key_of};
use crate::entries::OpenCollection;
use crate::failure::Refusal;
use crate::names::EntryName;
use crate::state::Shared;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName};
use axum::response::Response;
use bathyal_collection::exchange::{ArrowRows, JsonRow, JsonRows, RowTables};
use bathyal_collection::{FoundRows, PartPlan, Projection, Schema, SearchRequest};
use bathyal_console::Kind;
use bathyal_index::NamedEfforts;
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Instant;
use utoipa::ToSchema;

/// Answers of more neighbours are written by a thread for work, so that connections are served meanwhile.
const FEW_NEIGHBORS: usize = 2000;
/// Headers of an answer of Arrow: neighbours of each query, matching rows, and notes as a JSON array.
const K: HeaderName = HeaderName::from_static("bathyal-k");
const MATCHES: HeaderName = HeaderName::from_static("bathyal-matches");
const NOTES: HeaderName = HeaderName::from_static("bathyal-notes");
/// The header of an answer of Arrow with its plans and costs, if they are asked for.
const REPORT: HeaderName = HeaderName::from_static("bathyal-report");
/// The most bytes of that header: clients take 64 KiB.
const MAX_REPORT_BYTES: usize = 48 << 10;

/// A search: one query or several, and what to return.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GivenSearch {
    /// One query.
    vector: Option<Vec<f32>>,
    /// Several queries.
    vectors: Option<Vec<Vec<f32>>>,
    /// The row whose vector is the query.
    like: Option<GivenId>,
    /// The vector field; it may be left out if there is only one.
    field: Option<String>,
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
    pub(super) filter: Option<GivenFilter>,
    /// Names of the columns to return; all if it is left out.
    columns: Option<Vec<String>>,
    /// True to return the vectors of the field.
    #[serde(default)]
    with_vectors: bool,
    /// True to return how each part of the collection was searched.
    #[serde(default)]
    explain: bool,
    /// The name of a snapshot, to search the rows of its moment.
    pub(super) snapshot: Option<String>,
}

/// The rows that one query has found, nearest first.
#[derive(Serialize, ToSchema)]
struct QueryAnswer<'a> {
    query: usize,
    #[schema(value_type = Vec<serde_json::Value>)]
    neighbors: Vec<JsonRow<'a>>,
}

/// The answers to all queries.
#[derive(Serialize, ToSchema)]
pub(super) struct SearchAnswer<'a> {
    results: Vec<QueryAnswer<'a>>,
    /// Neighbours of each query: as many as were asked for, or all rows that match.
    k: usize,
    /// Rows that match the filter.
    matches: u64,
    /// How each part was searched.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<serde_json::Value>>)]
    plans: Option<&'a [PartPlan]>,
    /// Remarks, such as fewer rows than asked for, or a recall that is not promised for these queries.
    notes: &'a [String],
}

/// A search that was read from a body, without its queries.
pub(super) struct ReadSearch {
    pub(super) request: SearchRequest,
    explain: bool,
}

impl GivenSearch {
    /// Returns the request of the library.
    pub(super) fn read(&self, schema: &Schema) -> Result<ReadSearch, Refusal> {
        let GivenSearch { recall, search_list, ratio, .. } = *self;
        let effort = effort_of(NamedEfforts { recall, search_list, ratio, ..NamedEfforts::default() })?;
        let all = || schema.columns.iter().map(|column| column.name.clone()).collect();
        let default = SearchRequest::default();
        let request = SearchRequest {
            field: self.field.clone(),
            k: self.k.unwrap_or(default.k),
            effort,
            calibration: self.calibration.clone(),
            filter: filter_of(self.filter.as_ref())?,
            columns: self.columns.clone().unwrap_or_else(all),
            vectors: self.with_vectors,
            threads: default.threads,
        };
        Ok(ReadSearch { request, explain: self.explain })
    }
}

/// Returns the options of a search whose queries are a body of Arrow: they are in the header
/// `Bathyal-Search`.
fn options_in_header(headers: &HeaderMap) -> Result<GivenSearch, Refusal> {
    let Some(options) = headers.get("bathyal-search") else { return Ok(GivenSearch::default()) };
    serde_json::from_slice(options.as_bytes())
        .map_err(|error| Refusal::invalid(format!("the header Bathyal-Search is not as expected: {error}")))
}

/// Returns the vector of a row as a query.
async fn vector_of(
    shared: &Shared,
    (name, collection): (&EntryName, &Arc<OpenCollection>),
    given: &GivenSearch,
    id: GivenId,
) -> Result<VectorFile, Refusal> {
    let rows = match &given.snapshot {
        None => View::Current(collection.clone()),
        Some(snapshot) => View::Held(shared.snapshots.find(name, snapshot)?),
    };
    let field = given.field.clone();
    let work = move |control: Control<'_>| {
        let schema = rows.schema();
        let field = &schema.vectors[schema.field(field.as_deref())?];
        let ids = ids_of(schema.id_kind, std::slice::from_ref(&id))?;
        let what = Projection { columns: Some(Vec::new()), vectors: vec![field.name.clone()] };
        let found = rows.get(&ids, &what, control)?;
        let vectors = found.vectors.into_iter().next().filter(|vectors| !vectors.bytes.is_empty());
        let vectors = vectors.ok_or_else(|| {
            Refusal::new(Kind::NotFound, format!("there is no row with the id {}", id.id()))
        })?;
        VectorFile::from_rows(vectors.element, vectors.dim, vectors.bytes)
            .map_err(|error| Refusal::new(Kind::Internal, error.to_string()))
    };
    shared.work.run(work).await
}

/// Returns a collection, opened at need.
pub(super) async fn opened(shared: &Shared, name: &EntryName) -> Result<Arc<OpenCollection>, Refusal> {
    if let Some(collection) = shared.entries.opened_collection(name) {
        return Ok(collection);
    }
    let (entries, name) = (shared.entries.clone(), name.clone());
    shared.work.run(move |_| entries.collection(&name)).await
}

/// Searches for the nearest rows.
///
/// With a body of Arrow, the column `vector` has the queries, and the header `Bathyal-Search` the other
/// members as JSON. With `Accept: application/vnd.apache.arrow.stream`, the answer is a table with the
/// columns `query` and `distance` before those of the rows. The headers `Bathyal-K`, `Bathyal-Matches`,
/// `Bathyal-Notes` and, with `explain`, `Bathyal-Report` have the rest.
#[utoipa::path(
    post, path = "/v1/collections/{name}/search",
    operation_id = "search_rows", tag = "search", request_body = GivenSearch,
    params(("name" = String, Path)),
    responses((status = 200, body = SearchAnswer), (status = "4XX", body = ErrorAnswer))
)]
pub(super) async fn search(
    State(shared): State<Arc<Shared>>,
    Readable(name): Readable,
    headers: HeaderMap,
    body: WholeBody,
) -> Result<Response, Refusal> {
    let started = Instant::now();
    let collection = opened(&shared, &name).await?;
    let (given, queries) = read_search(&shared, (&name, &collection), &headers, body).await?;
    let schema = collection.schema();
    let field = &schema.vectors[schema.field(given.field.as_deref())?];
    let ReadSearch { request, explain } = given.read(&schema)?;
    check_size(queries.count(), request.k)?;
    if request.vectors {
        check_vector_bytes(queries.count() * request.k, field.row_bytes())?;
    }
    let found = match &given.snapshot {
        None => {
            let key = key_of(&collection, &request);
            let searched = collection.clone();
            let search = move || CollectionSearch { collection: searched, request };
            shared.collection_searches.answer(key, search, queries).await
        }
        Some(snapshot) => {
            let snapshot = shared.snapshots.find(&name, snapshot)?;
            let work = move |control: Control<'_>| Ok(snapshot.search(&queries, &request, control)?);
            shared.work.run(work).await
        }
    };
    let placed = |error| GivenFilter::place(given.filter.as_ref(), &schema, shared.refusal(error));
    let found = found.map_err(placed)?;
    shared.log_slow(started, &name, || format!("{:?}", found.plans));
    let (field, as_arrow) = (field.name.clone(), accepts_arrow(&headers));
    if found.distances.len() <= FEW_NEIGHBORS {
        return answer(found, &field, explain, as_arrow);
    }
    shared.work.run(move |_| answer(found, &field, explain, as_arrow)).await
}

/// Reads the options and the queries of a search.
async fn read_search(
    shared: &Shared,
    named: (&EntryName, &Arc<OpenCollection>),
    headers: &HeaderMap,
    body: WholeBody,
) -> Result<(GivenSearch, VectorFile), Refusal> {
    let schema = named.1.schema();
    if body.is_arrow {
        let given = options_in_header(headers)?;
        if given.vector.is_some() || given.vectors.is_some() || given.like.is_some() {
            return Err(Refusal::invalid("send the queries once: in the body of Arrow, or in the header"));
        }
        let field = given.field.clone();
        let work = move |_: Control<'_>| {
            let tables = RowTables::new(schema, "the body");
            let table = tables.table_of_arrow(&body.bytes, body.arrow_bytes())?;
            Ok(tables.queries(&table, field.as_deref())?)
        };
        return Ok((given, shared.work.run(work).await?));
    }
    let mut given: GivenSearch = JsonBody::parse(shared, body).await?.content;
    let queries = read_queries(shared, named, &mut given).await?;
    Ok((given, queries))
}

/// Takes the queries out of a search that was read from JSON.
pub(super) async fn read_queries(
    shared: &Shared,
    named: (&EntryName, &Arc<OpenCollection>),
    given: &mut GivenSearch,
) -> Result<VectorFile, Refusal> {
    let schema = named.1.schema();
    let field = &schema.vectors[schema.field(given.field.as_deref())?];
    let vectors = vectors_of(given.vector.take(), given.vectors.take())?;
    match (vectors, given.like.take()) {
        (Some(vectors), None) => queries_of(&vectors, field.element, field.dim),
        (None, Some(id)) => vector_of(shared, named, given, id).await,
        (None, None) => Err(Refusal::invalid("send `vector`, `vectors` or `like`")),
        (Some(_), Some(_)) => {
            Err(Refusal::invalid("send the queries once: as `vector`, as `vectors` or as `like`"))
        }
    }
}

/// Returns the plans and the costs of a search as JSON, without the plans if they are too long.
fn report(found: &FoundRows) -> Result<String, Refusal> {
    let of = |plans: &[PartPlan]| {
        let FoundRows { totals, seconds, .. } = found;
        to_header_json(&serde_json::json!({ "plans": plans, "costs": totals, "seconds": seconds }))
    };
    let whole = of(&found.plans)?;
    if whole.len() <= MAX_REPORT_BYTES { Ok(whole) } else { of(&[]) }
}

/// Returns the rows found as JSON or as Arrow.
fn answer(mut found: FoundRows, field: &str, explain: bool, as_arrow: bool) -> Result<Response, Refusal> {
    let vectors = found.vectors.take().map(|vectors| (field.to_owned(), vectors)).into_iter().collect();
    let distances = std::mem::take(&mut found.distances);
    let FoundRows { k, matches, .. } = found;
    if as_arrow {
        let rows = ArrowRows::new(&found.ids, &found.columns, vectors)?.with_distances(distances, k);
        let mut headers =
            vec![(K, k.to_string()), (MATCHES, matches.to_string()), (NOTES, to_header_json(&found.notes)?)];
        headers.extend(explain.then(|| report(&found)).transpose()?.map(|report| (REPORT, report)));
        return arrow(rows, headers);
    }
    let queries = distances.len().checked_div(k).unwrap_or(0);
    let rows = JsonRows::new(found.ids.clone(), &found.columns, vectors)?.with_distances(distances);
    let of_query = |query: usize| QueryAnswer {
        query,
        neighbors: (query * k..(query + 1) * k).filter_map(|at| rows.row(at)).collect(),
    };
    json(&SearchAnswer {
        results: (0..queries).map(of_query).collect(),
        k,
        matches,
        plans: explain.then_some(&found.plans[..]),
        notes: &found.notes,
    })
}
