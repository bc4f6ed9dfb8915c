//! Holding a collection as it is, and reading it as it is or was.

use super::wire::ErrorAnswer;
use crate::access::Readable;
use crate::answer::json;
use crate::body::JsonBody;
use crate::entries::OpenCollection;
use crate::failure::Refusal;
use crate::names::EntryName;
use crate::snapshots::{LONGEST_TIME, USUAL_TIME};
use crate::state::Shared;
use axum::extract::State;
use axum::response::Response;
use bathyal_collection::{CollectionError, Filter, Id, Ids, Projection, RowsById, Scan, Schema, Snapshot};
use bathyal_tier::Control;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use utoipa::ToSchema;

/// How long a snapshot is wanted.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GivenTime {
    /// Seconds for which the snapshot is held, up to 86,400; 600 if it is left out.
    seconds: Option<f64>,
}

/// A snapshot that the server holds.
#[derive(Serialize, ToSchema)]
pub(super) struct SnapshotAnswer {
    /// Its name, for `get`, `scan`, `count`, `search` and `release`.
    snapshot: String,
    /// The number of the last change in it.
    sequence: u64,
    /// Seconds until it ends.
    seconds: f64,
}

/// A snapshot that is not needed any more.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GivenSnapshot {
    snapshot: String,
}

/// The name of a snapshot that was released.
#[derive(Serialize, ToSchema)]
pub(super) struct ReleasedAnswer {
    released: String,
}

/// Holds the collection as it is, so that several requests read the same rows.
///
/// The snapshot is at the server that answers, ends after the given time or with the server, and keeps
/// the files and the rows in memory of its moment.
#[utoipa::path(
    post, path = "/v1/collections/{name}/snapshot",
    operation_id = "hold_snapshot", tag = "rows", request_body = GivenTime,
    params(("name" = String, Path)),
    responses((status = 200, body = SnapshotAnswer), (status = "4XX", body = ErrorAnswer))
)]
pub(super) async fn hold(
    State(shared): State<Arc<Shared>>,
    Readable(name): Readable,
    body: JsonBody<GivenTime>,
) -> Result<Response, Refusal> {
    let seconds = body.content.seconds.unwrap_or(USUAL_TIME.as_secs_f64());
    let time = Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|time| (1..=LONGEST_TIME.as_secs()).contains(&time.as_secs()));
    let time = time.ok_or_else(|| {
        Refusal::invalid(format!(
            "seconds is {seconds}; a snapshot is held for 1 to {} s",
            LONGEST_TIME.as_secs()
        ))
    })?;
    let entries = shared.entries.clone();
    let collection = name.clone();
    let snapshot = shared.work.run(move |_| Ok(entries.collection(&collection)?.snapshot())).await?;
    let sequence = snapshot.sequence();
    let snapshot = shared.snapshots.hold(name, snapshot, time)?;
    json(&SnapshotAnswer { snapshot, sequence, seconds })
}

/// Ends a snapshot before its time is over.
#[utoipa::path(
    post, path = "/v1/collections/{name}/release",
    operation_id = "release_snapshot", tag = "rows", request_body = GivenSnapshot,
    params(("name" = String, Path)),
    responses((status = 200, body = ReleasedAnswer), (status = "4XX", body = ErrorAnswer))
)]
pub(super) async fn release(
    State(shared): State<Arc<Shared>>,
    Readable(name): Readable,
    body: JsonBody<GivenSnapshot>,
) -> Result<Response, Refusal> {
    let released = body.content.snapshot;
    shared.snapshots.release(&name, &released)?;
    json(&ReleasedAnswer { released })
}

/// A collection as it is, or as it was.
pub(super) enum View {
    Current(Arc<OpenCollection>),
    Held(Snapshot),
}

impl View {
    /// Returns the collection of a name as it is or, with the name of a snapshot, as it was. May open it.
    pub(super) fn of(shared: &Shared, name: &EntryName, snapshot: Option<&str>) -> Result<View, Refusal> {
        match snapshot {
            None => Ok(View::Current(shared.entries.collection(name)?)),
            Some(snapshot) => Ok(View::Held(shared.snapshots.find(name, snapshot)?)),
        }
    }

    pub(super) fn schema(&self) -> Schema {
        match self {
            View::Current(collection) => collection.schema(),
            View::Held(snapshot) => snapshot.schema().clone(),
        }
    }

    pub(super) fn get(
        &self,
        ids: &Ids,
        what: &Projection,
        control: Control<'_>,
    ) -> Result<RowsById, CollectionError> {
        match self {
            View::Current(collection) => collection.get(ids, what, control),
            View::Held(snapshot) => snapshot.get(ids, what, control),
        }
    }

    pub(super) fn count(
        &self,
        filter: Option<&Filter>,
        control: Control<'_>,
    ) -> Result<u64, CollectionError> {
        match self {
            View::Current(collection) => collection.count(filter, control),
            View::Held(snapshot) => snapshot.count(filter, control),
        }
    }

    pub(super) fn scan(
        &self,
        filter: Option<&Filter>,
        what: &Projection,
        after: Option<&Id>,
        control: Control<'_>,
    ) -> Result<Scan, CollectionError> {
        match self {
            View::Current(collection) => collection.scan(filter, what, after, control),
            View::Held(snapshot) => snapshot.scan(filter, what, after, control),
        }
    }
}
