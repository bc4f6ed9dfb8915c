//! Collections as a whole.

use super::wire::ErrorAnswer;
use crate::access::{Readable, Writable};
use crate::answer::{json, json_text, to_json};
use crate::body::JsonBody;
use crate::entries::is_collection;
use crate::failure::Refusal;
use crate::keys::{Grant, Right};
use crate::names::EntryName;
use crate::state::Shared;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use bathyal_collection::{Description, RemovedCollection, Schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use utoipa::{IntoParams, ToSchema};

/// Names of a page of a listing, if the client does not say how many it wants.
const LISTED: usize = 1000;

/// The page of a listing.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListingPage {
    /// Only names that begin so.
    #[serde(default)]
    #[param(required = false)]
    prefix: String,
    /// Only names after this one.
    #[serde(default)]
    #[param(required = false)]
    after: String,
    /// The most names.
    limit: Option<usize>,
}

/// Names, in their order.
#[derive(Serialize, ToSchema)]
pub(super) struct NamesAnswer {
    names: Vec<String>,
    /// The value of `after` for the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

impl ListingPage {
    /// Returns the page of all `names` that the key may see.
    pub(super) fn of(&self, grant: &Grant, names: impl Iterator<Item = String>) -> NamesAnswer {
        let limit = self.limit.unwrap_or(LISTED).clamp(1, LISTED);
        let is_wanted =
            |name: &String| name.starts_with(&self.prefix) && *name > self.after && grant.sees(name);
        let mut names: Vec<String> =
            names.filter(is_wanted).filter(|name| name.parse::<EntryName>().is_ok()).collect();
        names.sort_unstable();
        let has_more = names.len() > limit;
        names.truncate(limit);
        NamesAnswer { next: names.last().filter(|_| has_more).cloned(), names }
    }
}

/// A new collection.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewCollection {
    /// Its name: letters, digits, `.`, `_` and `-`.
    name: String,
    #[schema(value_type = SchemaDescription)]
    schema: Schema,
}

/// The schema of a collection.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the schema of the library")]
struct SchemaDescription {
    /// `u64` or `string`.
    id: String,
    /// At least one.
    vectors: Vec<VectorFieldDescription>,
    #[schema(required = false)]
    columns: Vec<ColumnDescription>,
}

/// A vector field: every row has one vector of it.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the schema of the library")]
struct VectorFieldDescription {
    name: String,
    /// Components of each vector.
    dim: usize,
    /// `f32`, `f16`, `bf16`, `u8`, `i8` or `b1`.
    element: String,
    /// `l2`, `ip` or `cosine`.
    metric: String,
    /// The family of the indexes of large segments: `cluster` if it is left out.
    family: Option<String>,
    /// Options of that family.
    #[schema(required = false)]
    options: BTreeMap<String, Value>,
    /// The form in which f32 vectors are stored, such as `f16`.
    store_as: Option<String>,
}

/// A column of metadata.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the schema of the library")]
struct ColumnDescription {
    name: String,
    /// `bool`, `int8` to `int64`, `uint8` to `uint64`, `float32`, `float64`, `string`, `date`, `timestamp`, a
    /// list of them, such as `list<string>`, or `json` for any value.
    r#type: String,
}

/// A collection.
#[derive(Serialize, ToSchema)]
pub(super) struct CollectionAnswer {
    name: String,
    /// The schema, rows, bytes and segments, as `bathyal collection inspect --json` prints them.
    #[serde(flatten)]
    #[schema(value_type = Value)]
    description: Description,
}

impl CollectionAnswer {
    fn of(name: &EntryName, description: Description) -> CollectionAnswer {
        // The path on this machine is nobody else's business.
        let path = name.to_string();
        CollectionAnswer { name: path.clone(), description: Description { path, ..description } }
    }
}

/// Lists collections.
#[utoipa::path(
    get, path = "/v1/collections",
    operation_id = "list_collections", tag = "collections", params(ListingPage),
    responses((status = 200, body = NamesAnswer), (status = "4XX", body = ErrorAnswer))
)]
pub(super) async fn list(
    State(shared): State<Arc<Shared>>,
    grant: Grant,
    page: Result<Query<ListingPage>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(page) = page.map_err(|error| Refusal::invalid(error.body_text()))?;
    let entries = shared.entries.clone();
    let found = shared.work.run(move |_| entries.list()).await?;
    let names = found.into_iter().filter(is_collection).map(|entry| entry.name);
    json(&page.of(&grant, names))
}

/// Creates a collection.
#[utoipa::path(
    post, path = "/v1/collections",
    operation_id = "create_collection", tag = "collections", request_body = NewCollection,
    responses((status = 201, body = CollectionAnswer), (status = "4XX", body = ErrorAnswer))
)]
pub(super) async fn create(
    State(shared): State<Arc<Shared>>,
    grant: Grant,
    body: JsonBody<NewCollection>,
) -> Result<Response, Refusal> {
    let NewCollection { name, schema } = body.content;
    let name: EntryName = name.parse().map_err(Refusal::invalid)?;
    grant.check(Right::Write, &name)?;
    let (entries, created) = (shared.entries.clone(), name.clone());
    let collection = shared.work.run(move |_| entries.create(&created, schema)).await?;
    let answer = CollectionAnswer::of(&name, collection.describe());
    Ok(json_text(StatusCode::CREATED, to_json(&answer)?))
}

/// Describes a collection.
#[utoipa::path(
    get, path = "/v1/collections/{name}",
    operation_id = "describe_collection", tag = "collections", params(("name" = String, Path)),
    responses((status = 200, body = CollectionAnswer), (status = "4XX", body = ErrorAnswer))
)]
pub(super) async fn describe(
    State(shared): State<Arc<Shared>>,
    Readable(name): Readable,
) -> Result<Response, Refusal> {
    let (entries, described) = (shared.entries.clone(), name.clone());
    let work = move |_: bathyal_tier::Control<'_>| Ok(entries.collection(&described)?.describe());
    let description = shared.work.run(work).await?;
    json(&CollectionAnswer::of(&name, description))
}

/// The size of a collection that was removed.
#[derive(Serialize, ToSchema)]
pub(super) struct RemovedAnswer {
    name: String,
    /// Live rows; null if an interrupted removal was finished, or if the collection was damaged.
    rows: Option<u64>,
    /// Bytes of its segments.
    bytes: Option<u64>,
}

/// Removes a collection with all of its rows. Requests to it that run already end first.
#[utoipa::path(
    delete, path = "/v1/collections/{name}",
    operation_id = "remove_collection", tag = "collections", params(("name" = String, Path)),
    responses((status = 200, body = RemovedAnswer), (status = "4XX", body = ErrorAnswer))
)]
pub(super) async fn remove(
    State(shared): State<Arc<Shared>>,
    Writable(name): Writable,
) -> Result<Response, Refusal> {
    let (entries, removed) = (shared.entries.clone(), name.clone());
    let found = shared.work.run(move |_| entries.remove(&removed)).await?;
    shared.snapshots.forget(&name);
    let RemovedCollection { rows, bytes } = found.unwrap_or(RemovedCollection { rows: None, bytes: None });
    json(&RemovedAnswer { name: name.to_string(), rows, bytes })
}
