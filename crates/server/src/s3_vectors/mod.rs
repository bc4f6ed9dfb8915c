//! The API of Amazon S3 Vectors, for clients that exist: vector buckets, indexes and vectors.
//!
//! An index is a collection with one field of vectors and one column of JSON. Clients sign their requests
//! with the name and the secret of a key of the server.

mod buckets;
mod failure;
mod filter;
mod indexes;
mod query;
mod registry;
mod resource;
mod signature;
mod tags;
mod vectors;

use crate::body::{json_bytes, read_whole};
use crate::keys::{Grant, Right};
use crate::names::EntryName;
use crate::state::Shared;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use bathyal_tier::Control;
use chrono::Utc;
use failure::ApiError;
use registry::{BucketRecord, IndexRecord, Registry};
use resource::{IndexName, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;
use signature::Claim;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::OwnedSemaphorePermit;

/// The most bytes of a request.
const MAX_BODY_BYTES: u64 = 20 << 20;

/// What all requests of this API share.
struct Api {
    shared: Arc<Shared>,
    /// Held while buckets and indexes are created, changed or deleted.
    changes: Mutex<()>,
}

impl Api {
    fn registry(&self) -> Registry<'_> {
        Registry::new(&self.shared.entries)
    }

    fn changing(&self) -> MutexGuard<'_, ()> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who sends a request.
#[derive(Clone)]
struct Caller {
    api: Arc<Api>,
    grant: Grant,
    region: String,
}

type Outcome = Result<Value, ApiError>;

impl Caller {
    /// Refuses what the key has no right to. `name` is that of a bucket, or of a collection.
    fn check(&self, right: Right, name: &str) -> Result<EntryName, ApiError> {
        let name: EntryName = name.parse().map_err(ApiError::invalid)?;
        self.grant.check(right, &name)?;
        Ok(name)
    }

    /// Returns a bucket that the key may use.
    fn bucket(&self, right: Right, bucket: &str) -> Result<BucketRecord, ApiError> {
        self.check(right, bucket)?;
        let found = self.api.registry().get(&Resource::Bucket(bucket.to_owned()))?;
        found.ok_or_else(|| ApiError::not_found("vector bucket"))
    }

    /// Returns an index that the key may use, and the name of its collection.
    fn index(&self, right: Right, index: &IndexName) -> Result<(EntryName, IndexRecord), ApiError> {
        let collection = index.collection()?;
        self.grant.check(right, &collection)?;
        let found = self.api.registry().get(&Resource::Index(index.clone()))?;
        match found {
            Some(record) => Ok((collection, record)),
            None => {
                self.bucket(right, &index.bucket)?;
                Err(ApiError::not_found("vector index"))
            }
        }
    }
}

/// A request whose signature was checked.
struct SignedRequest {
    caller: Caller,
    body: Bytes,
    path: String,
    query: String,
    /// Released with the request.
    _memory: Vec<OwnedSemaphorePermit>,
}

impl SignedRequest {
    /// Checks a request: first its key and its time, then its body within the limits, then its signature.
    async fn read(api: &Arc<Api>, request: Request) -> Result<SignedRequest, ApiError> {
        let (parts, body) = request.into_parts();
        let claim = Claim::read(&parts.headers, &parts.uri, Utc::now())?;
        let signing = api.shared.gate.signing_key(&claim.key).ok_or_else(|| {
            let message = "The security token included in the request is invalid: the server has no such key";
            ApiError::signature("UnrecognizedClientException", message)
        })?;
        tracing::Span::current().record("key", signing.grant.name.as_str());
        let told =
            parts.headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        let length: u64 = told.unwrap_or(MAX_BODY_BYTES);
        if length > MAX_BODY_BYTES {
            let message = format!("the request has {length} bytes; {MAX_BODY_BYTES} are the most");
            return Err(ApiError::invalid(message));
        }
        let mut memory = vec![api.shared.body_memory.reserve(length)?];
        let limits = api.shared.limits;
        let most = MAX_BODY_BYTES.min(limits.body_bytes);
        let body = read_whole(body, most, limits.idle).await?;
        memory.push(api.shared.body_memory.reserve(json_bytes(&body))?);
        claim.check(&signing.secret, (&parts.method, &parts.uri, &parts.headers), &body)?;
        let caller = Caller { api: api.clone(), grant: signing.grant, region: claim.region.clone() };
        let query = parts.uri.query().unwrap_or_default().to_owned();
        Ok(SignedRequest { caller, body, path: parts.uri.path().to_owned(), query, _memory: memory })
    }

    /// Parses the body.
    fn input<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        let body: &[u8] = if self.body.is_empty() { b"{}" } else { &self.body };
        serde_json::from_slice(body)
            .map_err(|error| ApiError::invalid(format!("the request is not as expected: {error}")))
    }
}

/// Returns an outcome as an answer.
fn answered(outcome: Outcome) -> Response {
    match outcome {
        Ok(value) => crate::answer::json(&value).unwrap_or_else(IntoResponse::into_response),
        Err(error) => error.into_response(),
    }
}

/// Runs `work` on a thread for work.
async fn on_thread(shared: &Shared, work: impl FnOnce(Control<'_>) -> Outcome + Send + 'static) -> Outcome {
    match shared.work.run(move |control| Ok(work(control))).await {
        Ok(outcome) => outcome,
        Err(refusal) => Err(refusal.into()),
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
        .with_state(Arc::new(Api { shared: shared.clone(), changes: Mutex::new(()) }))
}
