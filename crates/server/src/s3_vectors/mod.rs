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

use crate::state::Shared;
use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use bathyal_tier::Control;
use caller::{Api, Caller, Outcome};
use request::{SignedRequest, on_thread};
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
        .post(|State(api): State<Arc<Api>>, request: Request| on_tags(api, request, tags::tag))
        .delete(|State(api): State<Arc<Api>>, request: Request| on_tags(api, request, tags::untag));
    Router::new()
        .route("/CreateVectorBucket", operation(buckets::create))
        .route("/GetVectorBucket", operation(buckets::get))
        .route("/ListVectorBuckets", operation(buckets::list))
        .route("/DeleteVectorBucket", operation(buckets::delete))
        .route("/PutVectorBucketPolicy", operation(buckets::put_policy))
        .route("/GetVectorBucketPolicy", operation(buckets::get_policy))
        .route("/DeleteVectorBucketPolicy", operation(buckets::delete_policy))
        .route("/PutVectorBucketDefaultIndexMode", operation(buckets::put_mode))
        .route("/CreateIndex", operation(indexes::create))
        .route("/GetIndex", operation(indexes::get))
        .route("/ListIndexes", operation(indexes::list))
        .route("/DeleteIndex", operation(indexes::delete))
        .route("/UpdateIndexMode", operation(indexes::update_mode))
        .route("/UpdateMetadataConfiguration", operation(indexes::update_metadata))
        .route("/PutVectors", operation(vectors::put))
        .route("/GetVectors", operation(vectors::get))
        .route("/ListVectors", operation(vectors::list))
        .route("/DeleteVectors", operation(vectors::delete))
        .route("/QueryVectors", post(query_vectors))
        .route("/tags/{*arn}", tags)
        .with_state(Arc::new(Api::new(shared.clone())))
}
