//! The API of Amazon S3 Vectors, for clients that exist: vector buckets, indexes and vectors.
//!
//! An index is a collection with one field of vectors and one column of JSON. Clients sign their requests
//! with the name and the secret of a key of the server.

mod buckets;
mod caller;
mod failure;
mod filter;
mod indexes;
mod members;
mod query;
mod registry;
mod request;
mod resource;
mod signature;
mod tags;
mod vectors;

use crate::forward::Placed;
use crate::state::Shared;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use bathyal_tier::Control;
use caller::{Api, Caller, Outcome};
use request::{SignedRequest, on_thread, to_writer};
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// Returns an outcome as an answer.
fn answered(outcome: Outcome) -> Response {
    match outcome {
        Ok(value) => crate::answer::json(&value).unwrap_or_else(IntoResponse::into_response),
        Err(error) => error.into_response(),
    }
}

/// Returns the route of an operation: `run` gets the caller and the parsed body.
fn operation<T>(run: fn(&Caller, T, Control<'_>) -> Outcome) -> MethodRouter<Arc<Api>>
where
    T: DeserializeOwned + Send + 'static,
{
    post(move |State(api): State<Arc<Api>>, request: Request| async move {
        let outcome = async {
            let request = SignedRequest::read(&api, request).await?;
            on_thread(&api.shared, move |control| run(&request.caller, request.input()?, control)).await
        };
        answered(outcome.await)
    })
}

/// Returns the route of an operation that changes something: the server that writes does it.
fn change<T>(run: fn(&Caller, T, Control<'_>) -> Outcome) -> MethodRouter<Arc<Api>>
where
    T: DeserializeOwned + Send + 'static,
{
    post(move |State(api): State<Arc<Api>>, request: Request| async move {
        let request = match to_writer(&api, request).await {
            Ok(Placed::Here(request)) => request,
            Ok(Placed::There(response)) => return response,
            Err(error) => return error.into_response(),
        };
        let outcome = async {
            let request = SignedRequest::read(&api, request).await?;
            on_thread(&api.shared, move |control| run(&request.caller, request.input()?, control)).await
        };
        answered_change(&api, outcome.await)
    })
}

/// Returns the outcome of a change as an answer.
fn answered_change(api: &Api, outcome: Outcome) -> Response {
    let response = answered(outcome);
    if response.status() == StatusCode::SERVICE_UNAVAILABLE {
        // Perhaps because another server has taken over.
        api.shared.lease.doubt();
    }
    response
}

/// Answers a change of the tags of a resource.
async fn on_changed_tags(
    api: Arc<Api>,
    request: Request,
    run: fn(&SignedRequest, &str) -> Outcome,
) -> Response {
    match to_writer(&api, request).await {
        Ok(Placed::Here(request)) => on_tags(api, request, run).await,
        Ok(Placed::There(response)) => response,
        Err(error) => error.into_response(),
    }
}

/// Answers an operation on the tags of a resource, whose ARN is in the address.
async fn on_tags(api: Arc<Api>, request: Request, run: fn(&SignedRequest, &str) -> Outcome) -> Response {
    let outcome = async {
        let request = SignedRequest::read(&api, request).await?;
        let work = move |_: Control<'_>| {
            let arn = signature::decoded(request.path.strip_prefix("/tags/").unwrap_or_default());
            run(&request, &arn)
        };
        on_thread(&api.shared, work).await
    };
    answered(outcome.await)
}

async fn query_vectors(State(api): State<Arc<Api>>, request: Request) -> Response {
    let outcome = async {
        let request = SignedRequest::read(&api, request).await?;
        query::query(&request.caller, request.input()?).await
    };
    answered(outcome.await)
}

/// Returns the operations of the API.
pub(crate) fn router(shared: &Arc<Shared>) -> Router {
    let tags = get(|State(api): State<Arc<Api>>, request: Request| on_tags(api, request, tags::list))
        .post(|State(api): State<Arc<Api>>, request: Request| on_changed_tags(api, request, tags::tag))
        .delete(|State(api): State<Arc<Api>>, request: Request| on_changed_tags(api, request, tags::untag));
    Router::new()
        .route("/CreateVectorBucket", change(buckets::create))
        .route("/GetVectorBucket", operation(buckets::get))
        .route("/ListVectorBuckets", operation(buckets::list))
        .route("/DeleteVectorBucket", change(buckets::delete))
        .route("/PutVectorBucketPolicy", operation(buckets::put_policy))
        .route("/GetVectorBucketPolicy", operation(buckets::get_policy))
        .route("/DeleteVectorBucketPolicy", operation(buckets::delete_policy))
        .route("/PutVectorBucketDefaultIndexMode", operation(buckets::put_mode))
        .route("/CreateIndex", change(indexes::create))
        .route("/GetIndex", operation(indexes::get))
        .route("/ListIndexes", operation(indexes::list))
        .route("/DeleteIndex", change(indexes::delete))
        .route("/UpdateIndexMode", operation(indexes::update_mode))
        .route("/UpdateMetadataConfiguration", operation(indexes::update_metadata))
        .route("/PutVectors", change(vectors::put))
        .route("/GetVectors", operation(vectors::get))
        .route("/ListVectors", operation(vectors::list))
        .route("/DeleteVectors", change(vectors::delete))
        .route("/QueryVectors", post(query_vectors))
        .route("/tags/{*arn}", tags)
        .with_state(Arc::new(Api::new(shared.clone())))
}
