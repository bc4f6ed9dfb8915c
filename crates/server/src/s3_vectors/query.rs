//! Queries: the nearest vectors of an index, page by page.

use super::caller::{Caller, Outcome};
use super::failure::ApiError;
use super::filter::read as read_filter;
use super::members::IndexMode;
use super::registry::{DistanceMetric, METADATA, json_at};
use super::request::on_thread;
use super::vectors::{VectorData, key_at, opened};
use crate::collection_search::{CollectionSearch, key_of};
use crate::entries::OpenCollection;
use crate::keys::{Right, hexadecimal};
use bathyal_collection::{FoundRows, SearchRequest};
use bathyal_kernels::Element;
use bathyal_vectors::VectorFile;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::sync::{Arc, Mutex, PoisonError};

/// The most neighbours of a query, and of a page of its answer.
const MAX_NEIGHBORS: usize = 10_000;
const PAGE: usize = 1000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct GivenQuery {
    vector_bucket_name: Option<String>,
    index_name: Option<String>,
    index_arn: Option<String>,
    top_k: usize,
    query_vector: Option<VectorData>,
    filter: Option<Value>,
    query_mode: Option<IndexMode>,
    #[serde(default)]
    return_metadata: bool,
    #[serde(default)]
    return_distance: bool,
    #[serde(default)]
    query_texts: Vec<Value>,
    #[serde(default)]
    return_scores: bool,
    next_token: Option<String>,
}

/// A query that was checked.
struct ReadQuery {
    collection: Arc<OpenCollection>,
    request: SearchRequest,
    queries: VectorFile,
    metric: DistanceMetric,
    /// Neighbours before this page.
    first: usize,
    /// Identifies the query in the token of its next page.
    digest: String,
}

/// Checks a query, and opens its index.
fn read(caller: &Caller, given: &GivenQuery) -> Result<ReadQuery, ApiError> {
    if !given.query_texts.is_empty() || given.return_scores {
        return Err(ApiError::field("queryTexts", "the server has no search of text"));
    }
    if let Some(mode) = given.query_mode {
        mode.check("queryMode")?;
    }
    if !(1..=MAX_NEIGHBORS).contains(&given.top_k) {
        let message = format!("it is {}; 1 to {MAX_NEIGHBORS} are allowed", given.top_k);
        return Err(ApiError::field("topK", message));
    }
    let GivenQuery { vector_bucket_name: bucket, index_name, index_arn, .. } = given;
    let of = (bucket.as_deref(), index_name.as_deref(), index_arn.as_deref());
    let (collection, record) = opened(caller, Right::Read, of)?;
    let vector = given.query_vector.as_ref().map(|data| &data.float32[..]);
    let vector = vector.ok_or_else(|| ApiError::field("queryVector", "it is missing"))?;
    if vector.len() != record.dimension {
        let message = format!("it has {} components; the index has {}", vector.len(), record.dimension);
        return Err(ApiError::field("queryVector.float32", message));
    }
    let filter = given.filter.as_ref().map(|filter| read_filter(filter, &record.unfiltered)).transpose()?;
    let bytes: Vec<u8> = vector.iter().flat_map(|value| value.to_le_bytes()).collect();
    let mut hash = Sha256::new();
    hash.update(&bytes);
    hash.update(given.top_k.to_le_bytes());
    hash.update(filter.as_ref().map(ToString::to_string).unwrap_or_default());
    let digest = hexadecimal(&hash.finalize()[..8]);
    let first = match &given.next_token {
        None => 0,
        Some(token) => {
            let parts = token.split_once('-').filter(|(_, of)| *of == digest);
            let first = parts.and_then(|(first, _)| first.parse().ok()).filter(|first| *first < given.top_k);
            first.ok_or_else(|| ApiError::field("nextToken", "it is not that of an answer to this query"))?
        }
    };
    let queries = VectorFile::from_rows(Element::F32, record.dimension, bytes)
        .map_err(|error| ApiError::field("queryVector", error.to_string()))?;
    let columns = if given.return_metadata { vec![METADATA.to_owned()] } else { Vec::new() };
    let request = SearchRequest { k: given.top_k, filter, columns, ..SearchRequest::default() };
    Ok(ReadQuery { collection, request, queries, metric: record.metric, first, digest })
}

/// Answers a query, together with others of the same kind that arrive with it.
pub(super) async fn query(caller: &Caller, given: GivenQuery) -> Outcome {
    let given = Arc::new(given);
    let (place, whole, asker) = (Arc::new(Mutex::new(None)), given.clone(), caller.clone());
    let filled = place.clone();
    // Opening an index may read from a disk.
    on_thread(&caller.api.shared, move |_| {
        let read = read(&asker, &whole)?;
        *filled.lock().unwrap_or_else(PoisonError::into_inner) = Some(read);
        Ok(Value::Null)
    })
    .await?;
    let read = place.lock().unwrap_or_else(PoisonError::into_inner).take();
    let ReadQuery { collection, request, queries, metric, first, digest } =
        read.ok_or_else(|| ApiError::internal("a query that was not read"))?;
    let key = key_of(&collection, &request);
    let search = move || CollectionSearch { collection, request };
    let shared = &caller.api.shared;
    let found = shared.collection_searches.answer(key, search, queries).await;
    let found = found.map_err(|error| shared.refusal(error))?;
    Ok(answer(&found, &given, metric, (first, &digest)))
}

/// Returns a page of an answer.
fn answer(
    found: &FoundRows,
    given: &GivenQuery,
    metric: DistanceMetric,
    (first, digest): (usize, &str),
) -> Value {
    let end = found.k.min(first + PAGE);
    let vector = |at: usize| {
        let mut vector = json!({ "key": key_at(&found.ids, at) });
        if given.return_distance {
            vector["distance"] = found.distances.get(at).map(|distance| metric.distance(*distance)).into();
        }
        if given.return_metadata {
            vector["metadata"] = json_at(found.columns.column(0), at).unwrap_or_else(|| json!({}));
        }
        vector
    };
    let vectors: Vec<Value> = (first.min(end)..end).map(vector).collect();
    let mut answer = json!({ "vectors": vectors, "distanceMetric": metric.name() });
    if end < found.k {
        answer["nextToken"] = format!("{end}-{digest}").into();
    }
    answer
}
