//! Vectors of an index: written, read by their keys, listed and deleted.

use super::caller::{Caller, Outcome};
use super::failure::ApiError;
use super::filter::check_metadata;
use super::registry::{FIELD, IndexRecord, METADATA, json_at};
use super::resource::index_of;
use crate::entries::OpenCollection;
use crate::keys::Right;
use arrow_array::{ArrayRef, LargeStringArray, RecordBatch};
use bathyal_collection::{CollectionError, FetchedRows, Id, IdKind, Ids, Projection, Rows, Schema};
use bathyal_index::StoredVectors;
use bathyal_kernels::{Element, to_f32};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::sync::Arc;

/// The most vectors of a request that writes or deletes, and that reads.
const MAX_WRITTEN: usize = 500;
const MAX_READ: usize = 100;
/// The most bytes of a key. Amazon counts characters.
const MAX_KEY_BYTES: usize = 1024;
/// The most bytes of the metadata of a vector, and of its part that filters may use.
const MAX_METADATA_BYTES: usize = 40 << 10;
const MAX_FILTERED_BYTES: usize = 2 << 10;
/// The most keys of the metadata of a vector.
const MAX_METADATA_KEYS: usize = 50;
/// Vectors of a page of a listing, if the client does not say how many it wants, and the most.
const LISTED: usize = 500;
const MAX_LISTED: usize = 1000;
/// The most segments of a listing.
const MAX_SEGMENTS: u32 = 16;
/// Rows that a listing reads at once.
const ROWS_AT_ONCE: usize = 1000;

/// The data of a vector.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VectorData {
    pub(super) float32: Vec<f32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewVector {
    key: String,
    data: VectorData,
    #[serde(default)]
    metadata: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct NewVectors {
    vector_bucket_name: Option<String>,
    index_name: Option<String>,
    index_arn: Option<String>,
    vectors: Vec<NewVector>,
}

/// Refuses a number of entries that is not allowed.
fn check_count(count: usize, most: usize, field: &str) -> Result<(), ApiError> {
    if (1..=most).contains(&count) {
        return Ok(());
    }
    Err(ApiError::field(field, format!("there are {count} entries; 1 to {most} are allowed")))
}

fn check_key(key: &str, path: &str) -> Result<(), ApiError> {
    if (1..=MAX_KEY_BYTES).contains(&key.len()) {
        return Ok(());
    }
    let message = format!("the key has {} bytes; 1 to {MAX_KEY_BYTES} are allowed", key.len());
    Err(ApiError::field(path, message))
}

/// Refuses metadata beyond the limits, and values that the API does not allow.
fn check_sizes(metadata: &Map<String, Value>, unfiltered: &[String], path: &str) -> Result<(), ApiError> {
    check_metadata(metadata, path)?;
    let bytes = |keys: &mut dyn Iterator<Item = (&String, &Value)>| {
        keys.map(|(key, value)| key.len() + value.to_string().len()).sum::<usize>()
    };
    let (all, filtered) = (
        bytes(&mut metadata.iter()),
        bytes(&mut metadata.iter().filter(|(key, _)| !unfiltered.contains(key))),
    );
    let refuse = |message: String| Err(ApiError::field(path, message));
    if all > MAX_METADATA_BYTES {
        return refuse(format!("it has {all} bytes; {MAX_METADATA_BYTES} are the most"));
    }
    if filtered > MAX_FILTERED_BYTES {
        return refuse(format!(
            "the keys that filters may use have {filtered} bytes; {MAX_FILTERED_BYTES} are the most. Name \
             others as nonFilterableMetadataKeys of the index"
        ));
    }
    if metadata.len() > MAX_METADATA_KEYS {
        return refuse(format!("it has {} keys; {MAX_METADATA_KEYS} are the most", metadata.len()));
    }
    Ok(())
}

/// Refuses a vector beyond the limits, or of another dimension than those of the index.
fn check_vector(vector: &NewVector, at: usize, record: &IndexRecord) -> Result<(), ApiError> {
    check_key(&vector.key, &format!("vectors[{at}].key"))?;
    let count = vector.data.float32.len();
    if count != record.dimension {
        let message = format!("the vector has {count} components; the index has {}", record.dimension);
        return Err(ApiError::field(format!("vectors[{at}].data.float32"), message));
    }
    match &vector.metadata {
        Some(metadata) => check_sizes(metadata, &record.unfiltered, &format!("vectors[{at}].metadata")),
        None => Ok(()),
    }
}

/// Converts vectors to rows.
fn rows_of(vectors: Vec<NewVector>, schema: &Schema, dim: usize) -> Result<Rows, ApiError> {
    let (mut ids, mut texts, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
    for NewVector { key, data, metadata } in vectors {
        ids.push(Id::Text(key));
        texts.push(metadata.map(|metadata| Value::Object(metadata).to_string()));
        bytes.extend(data.float32.iter().flat_map(|value| value.to_le_bytes()));
    }
    let texts: ArrayRef = Arc::new(LargeStringArray::from(texts));
    let columns = RecordBatch::try_from_iter([(METADATA, texts)]).map_err(CollectionError::from)?;
    let vectors = VectorFile::from_rows(Element::F32, dim, bytes)
        .map_err(|error| ApiError::field("vectors", error.to_string()))?;
    Ok(Rows::new(schema, Ids::from_ids(IdKind::Text, &ids)?, vec![vectors], Some(&columns))?)
}

/// The index of a request, open, with its record.
pub(super) fn opened(
    caller: &Caller,
    right: Right,
    (bucket, index, arn): (Option<&str>, Option<&str>, Option<&str>),
) -> Result<(Arc<OpenCollection>, IndexRecord), ApiError> {
    let name = index_of(bucket, index, arn)?;
    let (collection, record) = caller.index(right, &name)?;
    let entries = &caller.api.shared.entries;
    let open = match right {
        Right::Read => entries.collection(&collection)?,
        Right::Write => entries.collection_to_change(&collection)?,
    };
    Ok((open, record))
}

pub(super) fn put(caller: &Caller, input: NewVectors, _: Control<'_>) -> Outcome {
    let NewVectors { vector_bucket_name: bucket, index_name, index_arn, vectors } = input;
    check_count(vectors.len(), MAX_WRITTEN, "vectors")?;
    let of = (bucket.as_deref(), index_name.as_deref(), index_arn.as_deref());
    let (collection, record) = opened(caller, Right::Write, of)?;
    let mut keys = HashSet::new();
    for (at, vector) in vectors.iter().enumerate() {
        if !keys.insert(&vector.key) {
            let message = format!("the key {:?} is there twice", vector.key);
            return Err(ApiError::field(format!("vectors[{at}].key"), message));
        }
        check_vector(vector, at, &record)?;
    }
    collection.upsert(rows_of(vectors, &collection.schema(), record.dimension)?)?;
    Ok(json!({}))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct GivenKeys {
    vector_bucket_name: Option<String>,
    index_name: Option<String>,
    index_arn: Option<String>,
    keys: Vec<String>,
    #[serde(default)]
    return_data: bool,
    #[serde(default)]
    return_metadata: bool,
}

/// The parts of each vector in an answer.
#[derive(Clone, Copy)]
struct Shown {
    data: bool,
    metadata: bool,
}

impl Shown {
    fn projection(self) -> Projection {
        Projection {
            columns: Some(if self.metadata { vec![METADATA.into()] } else { Vec::new() }),
            vectors: if self.data { vec![FIELD.into()] } else { Vec::new() },
        }
    }

    /// Returns a row as a vector of an answer.
    fn vector(self, rows: &FetchedRows, at: usize) -> Value {
        let mut vector = json!({ "key": key_at(&rows.ids, at) });
        if let Some(stored) = rows.vectors.first().filter(|_| self.data) {
            vector["data"] = json!({ "float32": floats(stored, at) });
        }
        if self.metadata {
            // A vector without metadata has an empty object.
            vector["metadata"] = json_at(rows.columns.column(0), at).unwrap_or_else(|| json!({}));
        }
        vector
    }
}

/// Returns the key of a row.
pub(super) fn key_at(ids: &Ids, at: usize) -> String {
    match ids.get(at) {
        Id::Text(key) => key,
        Id::Number(number) => number.to_string(),
    }
}

fn floats(stored: &StoredVectors, at: usize) -> Vec<f32> {
    let size = stored.element.row_bytes(stored.dim);
    let mut floats = vec![0.0; stored.dim];
    let bytes = stored.bytes.get(at * size..(at + 1) * size).unwrap_or_default();
    if bytes.len() == size {
        to_f32(stored.element, bytes, &mut floats);
    }
    floats
}

fn ids_of(keys: Vec<String>) -> Result<Ids, ApiError> {
    for (at, key) in keys.iter().enumerate() {
        check_key(key, &format!("keys[{at}]"))?;
    }
    let ids: Vec<Id> = keys.into_iter().map(Id::Text).collect();
    Ok(Ids::from_ids(IdKind::Text, &ids)?)
}

pub(super) fn get(caller: &Caller, input: GivenKeys, control: Control<'_>) -> Outcome {
    let GivenKeys { vector_bucket_name: bucket, index_name, index_arn, keys, return_data, return_metadata } =
        input;
    check_count(keys.len(), MAX_READ, "keys")?;
    let of = (bucket.as_deref(), index_name.as_deref(), index_arn.as_deref());
    let (collection, _) = opened(caller, Right::Read, of)?;
    let shown = Shown { data: return_data, metadata: return_metadata };
    let found = collection.get(&ids_of(keys)?, &shown.projection(), control)?;
    let rows = FetchedRows { ids: found.ids, columns: found.columns, vectors: found.vectors };
    let vectors: Vec<Value> = (0..rows.ids.len()).map(|at| shown.vector(&rows, at)).collect();
    Ok(json!({ "vectors": vectors }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct DeletedKeys {
    vector_bucket_name: Option<String>,
    index_name: Option<String>,
    index_arn: Option<String>,
    keys: Vec<String>,
}

pub(super) fn delete(caller: &Caller, input: DeletedKeys, _: Control<'_>) -> Outcome {
    let DeletedKeys { vector_bucket_name: bucket, index_name, index_arn, keys } = input;
    check_count(keys.len(), MAX_WRITTEN, "keys")?;
    let of = (bucket.as_deref(), index_name.as_deref(), index_arn.as_deref());
    let (collection, _) = opened(caller, Right::Write, of)?;
    collection.delete(ids_of(keys)?)?;
    Ok(json!({}))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Listing {
    vector_bucket_name: Option<String>,
    index_name: Option<String>,
    index_arn: Option<String>,
    max_results: Option<usize>,
    next_token: Option<String>,
    segment_count: Option<u32>,
    segment_index: Option<u32>,
    #[serde(default)]
    return_data: bool,
    #[serde(default)]
    return_metadata: bool,
}

/// Returns the segment of a key, among `count`.
fn segment_of(key: &str, count: u32) -> u32 {
    let hash = Sha256::digest(key.as_bytes());
    u32::from_le_bytes([hash[0], hash[1], hash[2], hash[3]]) % count.max(1)
}

pub(super) fn list(caller: &Caller, input: Listing, control: Control<'_>) -> Outcome {
    let Listing { vector_bucket_name: bucket, index_name, index_arn, max_results, next_token, .. } = &input;
    let limit = max_results.unwrap_or(LISTED);
    if !(1..=MAX_LISTED).contains(&limit) {
        return Err(ApiError::field("maxResults", format!("it is {limit}; 1 to {MAX_LISTED} are allowed")));
    }
    let (count, segment) = match (input.segment_count, input.segment_index) {
        (None, None) => (1, 0),
        (Some(count), Some(at)) if (1..=MAX_SEGMENTS).contains(&count) && at < count => (count, at),
        _ => {
            return Err(ApiError::field(
                "segmentCount",
                format!("segmentCount is 1 to {MAX_SEGMENTS}, and comes with a lower segmentIndex"),
            ));
        }
    };
    let of = (bucket.as_deref(), index_name.as_deref(), index_arn.as_deref());
    let (collection, _) = opened(caller, Right::Read, of)?;
    let shown = Shown { data: input.return_data, metadata: input.return_metadata };
    let after = next_token.clone().map(Id::Text);
    let mut scan = collection.scan(None, &shown.projection(), after.as_ref(), control)?;
    let mut vectors = Vec::new();
    let mut last = None;
    // One more tells if there is a next page.
    'pages: while let Some(rows) = scan.next(ROWS_AT_ONCE.min(limit + 1), control)? {
        for at in 0..rows.ids.len() {
            let key = key_at(&rows.ids, at);
            if segment_of(&key, count) != segment {
                continue;
            }
            if vectors.len() == limit {
                break 'pages;
            }
            vectors.push(shown.vector(&rows, at));
            last = Some((key, vectors.len() == limit));
        }
    }
    let mut answer = json!({ "vectors": vectors });
    // A page that is full may be the last; the next one is then empty.
    if let Some((key, true)) = last {
        answer["nextToken"] = key.into();
    }
    Ok(answer)
}
