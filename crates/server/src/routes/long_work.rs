//! Work on whole collections and indexes, which may take longer than a request usually does. It is
//! cancelled when the client closes the connection.

use super::wire::{ErrorAnswer, effort_of, queries_of};
use crate::access::{Readable, Writable};
use crate::answer::{json_text, to_json};
use crate::body::{JsonBody, WholeBody};
use crate::failure::Refusal;
use crate::keys::{Grant, Right};
use crate::names::EntryName;
use crate::state::Shared;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use bathyal_collection::{
    CalibrationReport, Collection, CollectionCalibration, CompactOptions, CompactionReport, CopiedCollection,
    SearchRequest,
};
use bathyal_index::{Index, NamedEfforts, WarmReport};
use bathyal_vectors::progress::Progress;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use utoipa::ToSchema;

/// Nothing besides the name of the collection.
#[derive(Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NoOptions {}

/// Forwards the cancellation of a request to work that reports progress.
struct RequestProgress<'a>(&'a AtomicBool);

impl Progress for RequestProgress<'_> {
    fn stage(&self, _name: &str, _total: u64) {}

    fn advance(&self, _done: u64) {}

    fn cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Runs work that changes a collection, however long it takes, and returns its report.
async fn run_change<T: Serialize>(
    shared: &Shared,
    name: EntryName,
    work: impl FnOnce(&Collection, &dyn Progress) -> Result<T, Refusal> + Send + 'static,
) -> Result<Response, Refusal> {
    run(shared, (name, true), work).await
}

/// Runs work on the collection of a name, however long it takes, and returns its report. With true, it
/// changes the collection.
pub(super) async fn run<T: Serialize>(
    shared: &Shared,
    (name, is_change): (EntryName, bool),
    work: impl FnOnce(&Collection, &dyn Progress) -> Result<T, Refusal> + Send + 'static,
) -> Result<Response, Refusal> {
    let entries = shared.entries.clone();
    let report = shared.work.run_long(move |cancel| {
        let collection = match is_change {
            true => entries.collection_to_change(&name)?,
            false => entries.collection(&name)?,
        };
        to_json(&work(&collection, &RequestProgress(cancel))?)
    });
    Ok(json_text(StatusCode::OK, report.await?))
}

/// Runs work on the index of a name, however long it takes, and returns its report.
pub(super) async fn run_on_index<T: Serialize>(
    shared: &Shared,
    name: EntryName,
    work: impl FnOnce(&Index, &dyn Progress) -> Result<T, Refusal> + Send + 'static,
) -> Result<Response, Refusal> {
    let entries = shared.entries.clone();
    let report = shared
        .work
        .run_long(move |cancel| to_json(&work(&*entries.index(&name)?, &RequestProgress(cancel))?));
    Ok(json_text(StatusCode::OK, report.await?))
}

/// Writes the rows in memory as a segment.
#[utoipa::path(
    post, path = "/v1/collections/{name}/flush",
    operation_id = "flush_collection", tag = "maintenance", params(("name" = String, Path)),
    responses((status = 200, body = NoOptions), (status = "4XX", body = ErrorAnswer))
)]
pub(super) async fn flush(
    State(shared): State<Arc<Shared>>,
    Writable(name): Writable,
) -> Result<Response, Refusal> {
    run_change(&shared, name, |collection, _| {
        collection.flush()?;
        Ok(NoOptions {})
    })
    .await
}

/// How to compact a collection.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GivenCompaction {
    /// True to merge all segments into one.
    #[serde(default)]
    full: bool,
}

/// Merges segments, and frees the space of deleted rows.
#[utoipa::path(
    post, path = "/v1/collections/{name}/compact",
    operation_id = "compact_collection", tag = "maintenance", request_body = GivenCompaction,
    params(("name" = String, Path)),
    responses((status = 200, body = serde_json::Value), (status = "4XX", body = ErrorAnswer))
)]
pub(super) async fn compact(
    State(shared): State<Arc<Shared>>,
    Writable(name): Writable,
    body: JsonBody<GivenCompaction>,
) -> Result<Response, Refusal> {
    let options = CompactOptions { full: body.content.full };
    run_change(&shared, name, move |collection, progress| -> Result<CompactionReport, Refusal> {
        Ok(collection.compact(&options, progress)?)
    })
    .await
}

/// Faults of a collection.
#[derive(Serialize, ToSchema)]
pub(super) struct FaultsAnswer {
    /// A sentence for each; empty if every byte is as it was written.
    faults: Vec<String>,
}

/// Checks every byte of a collection.
#[utoipa::path(
    post, path = "/v1/collections/{name}/verify",
    operation_id = "verify_collection", tag = "maintenance", params(("name" = String, Path)),
    responses((status = 200, body = FaultsAnswer), (status = "4XX", body = ErrorAnswer))
)]
pub(super) async fn verify(
    State(shared): State<Arc<Shared>>,
    Readable(name): Readable,
) -> Result<Response, Refusal> {
    run(&shared, (name, false), |collection, progress| {
        Ok(FaultsAnswer { faults: collection.verify(progress)? })
    })
    .await
}

/// The searches to prepare for.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GivenWarming {
    /// Neighbours of each query; 10 if it is left out.
    k: Option<usize>,
    /// The recall; 0.95 if it is left out.
    recall: Option<f32>,
    /// The vector field; all if it is left out.
    field: Option<String>,
}

/// Opens the indexes of all segments, so that later searches find them in memory.
#[utoipa::path(
    post, path = "/v1/collections/{name}/warm",
    operation_id = "warm_collection", tag = "maintenance", request_body = GivenWarming,
    params(("name" = String, Path)),
    responses((status = 200, body = serde_json::Value), (status = "4XX", body = ErrorAnswer))
)]
pub(super) async fn warm(
    State(shared): State<Arc<Shared>>,
    Readable(name): Readable,
    body: WholeBody,
) -> Result<Response, Refusal> {
    // A request without a body means the usual searches.
    let given: GivenWarming = if body.bytes.is_empty() { GivenWarming::default() } else { body.json()? };
    let GivenWarming { k, recall, field } = given;
    let default = SearchRequest::default();
    let effort = effort_of(NamedEfforts { recall, ..NamedEfforts::default() })?;
    let request = SearchRequest { k: k.unwrap_or(default.k), effort, field, ..default };
    let entries = shared.entries.clone();
    let report = shared.work.run_long(move |cancel| {
        let control = bathyal_tier::Control { cancel: Some(cancel), deadline: None };
        let report: WarmReport = entries.collection(&name)?.warm(&request, control)?;
        to_json(&report)
    });
    Ok(json_text(StatusCode::OK, report.await?))
}

/// The name of a copy.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GivenCopy {
    /// The name of a collection that does not exist yet.
    to: String,
}

/// Copies the current rows of a collection to a new one, while others go on writing.
#[utoipa::path(
    post, path = "/v1/collections/{name}/copy",
    operation_id = "copy_collection", tag = "maintenance", request_body = GivenCopy,
    params(("name" = String, Path)),
    responses((status = 200, body = serde_json::Value), (status = "4XX", body = ErrorAnswer))
)]
pub(super) async fn copy(
    State(shared): State<Arc<Shared>>,
    Readable(name): Readable,
    grant: Grant,
    body: JsonBody<GivenCopy>,
) -> Result<Response, Refusal> {
    let to: EntryName = body.content.to.parse().map_err(Refusal::invalid)?;
    grant.check(Right::Write, &to)?;
    let entries = shared.entries.clone();
    run(&shared, (name, false), move |collection, progress| -> Result<CopiedCollection, Refusal> {
        entries.copy(collection, &to, progress)
    })
    .await
}

/// Queries to calibrate with.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GivenCalibration {
    /// Queries like those to come; 200 or more, of which up to 1,000 are kept.
    queries: Vec<Vec<f32>>,
    /// The vector field; it may be left out if there is only one.
    field: Option<String>,
    /// The name of the calibration; `default` if it is left out.
    name: Option<String>,
}

/// Measures which effort reaches which recall with given queries. Searches that ask for a recall use it from
/// then on.
#[utoipa::path(
    post, path = "/v1/collections/{name}/calibrate",
    operation_id = "calibrate_collection", tag = "maintenance", request_body = GivenCalibration,
    params(("name" = String, Path)),
    responses((status = 200, body = serde_json::Value), (status = "4XX", body = ErrorAnswer))
)]
pub(super) async fn calibrate(
    State(shared): State<Arc<Shared>>,
    Writable(name): Writable,
    body: JsonBody<GivenCalibration>,
) -> Result<Response, Refusal> {
    let GivenCalibration { queries, field, name: calibration } = body.content;
    run_change(&shared, name, move |collection, progress| -> Result<CalibrationReport, Refusal> {
        let schema = collection.schema();
        let shape = &schema.vectors[schema.field(field.as_deref())?];
        if queries.is_empty() {
            return Err(Refusal::invalid("`queries` is empty; send some hundred queries"));
        }
        let queries = queries_of(&queries, shape.element, shape.dim)?;
        let default = CollectionCalibration::default();
        let options =
            CollectionCalibration { field, name: calibration.unwrap_or(default.name.clone()), ..default };
        Ok(collection.calibrate(&queries, &options, progress)?)
    })
    .await
}
