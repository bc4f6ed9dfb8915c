//! Vector indexes: each is a collection.

use super::caller::{Caller, Outcome};
use super::failure::ApiError;
use super::members::{Encryption, IndexMode, Page};
use super::registry::{DistanceMetric, FIELD, IndexRecord, METADATA, now};
use super::resource::{IndexName, Resource, bucket_of, index_arn, index_of};
use super::tags::check_tags;
use crate::keys::Right;
use bathyal_collection::{Column, IdKind, Schema, VectorField};
use bathyal_console::Kind;
use bathyal_kernels::Element;
use bathyal_tier::Control;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The dimensions of vectors.
const DIMENSIONS: std::ops::RangeInclusive<usize> = 1..=4096;
/// The most keys of metadata that no filter may use, and the most characters of each.
const MAX_UNFILTERED: usize = 10;
const MAX_KEY_CHARACTERS: usize = 63;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct NewIndex {
    vector_bucket_name: Option<String>,
    vector_bucket_arn: Option<String>,
    index_name: String,
    data_type: DataType,
    dimension: usize,
    distance_metric: DistanceMetric,
    metadata_configuration: Option<MetadataConfiguration>,
    encryption_configuration: Option<Encryption>,
    #[serde(default)]
    tags: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum DataType {
    Float32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct MetadataConfiguration {
    #[serde(default)]
    non_filterable_metadata_keys: Vec<String>,
    #[serde(default)]
    text_search_configurations: Vec<Value>,
}

fn schema(input: &NewIndex) -> Schema {
    let kind = "json".parse().map(|kind| Column { name: METADATA.into(), kind });
    let metric = input.distance_metric.metric();
    Schema {
        id_kind: IdKind::Text,
        vectors: vec![VectorField::new(FIELD, input.dimension, Element::F32, metric)],
        columns: kind.into_iter().collect(),
    }
}

/// Returns the checked keys of metadata that no filter may use.
fn unfiltered(given: Option<&MetadataConfiguration>) -> Result<Vec<String>, ApiError> {
    let Some(given) = given else { return Ok(Vec::new()) };
    if !given.text_search_configurations.is_empty() {
        let message = "the server has no search of text; leave this out";
        return Err(ApiError::field("metadataConfiguration.textSearchConfigurations", message));
    }
    let (keys, field) =
        (&given.non_filterable_metadata_keys, "metadataConfiguration.nonFilterableMetadataKeys");
    if keys.len() > MAX_UNFILTERED {
        return Err(ApiError::field(
            field,
            format!("there are {}; {MAX_UNFILTERED} are the most", keys.len()),
        ));
    }
    let is_valid = |key: &String| (1..=MAX_KEY_CHARACTERS).contains(&key.chars().count());
    match keys.iter().find(|key| !is_valid(key)) {
        Some(key) => Err(ApiError::field(
            field,
            format!("{key:?} has {} characters; 1 to {MAX_KEY_CHARACTERS} are allowed", key.chars().count()),
        )),
        None => Ok(keys.clone()),
    }
}

pub(super) fn create(caller: &Caller, input: NewIndex, _: Control<'_>) -> Outcome {
    let bucket = bucket_of(input.vector_bucket_name.as_deref(), input.vector_bucket_arn.as_deref())?;
    let name = index_of(Some(&bucket), Some(&input.index_name), None)?;
    let DataType::Float32 = input.data_type;
    if !DIMENSIONS.contains(&input.dimension) {
        return Err(ApiError::field(
            "dimension",
            format!("it is {}; 1 to 4096 are allowed", input.dimension),
        ));
    }
    Encryption::refuse(input.encryption_configuration.as_ref())?;
    check_tags(&input.tags)?;
    let unfiltered = unfiltered(input.metadata_configuration.as_ref())?;
    let _changing = caller.api.changing();
    caller.bucket(Right::Write, &bucket)?;
    let (registry, resource) = (caller.api.registry(), Resource::Index(name.clone()));
    if registry.get::<IndexRecord>(&resource)?.is_some() {
        return Err(ApiError::conflict(format!("the vector index {} exists already", input.index_name)));
    }
    // A collection without a record is that of somebody else, or of a creation that was interrupted.
    caller.api.shared.entries.create(&name.collection()?, schema(&input)).map_err(|refusal| match refusal
        .kind
    {
        Kind::Exists => ApiError::conflict(format!(
            "the index would be in the collection {}_{}, which exists already; remove it by the API \
                 /v1/collections",
            name.bucket, name.index
        )),
        _ => refusal.into(),
    })?;
    let record = IndexRecord {
        created: now(),
        dimension: input.dimension,
        metric: input.distance_metric,
        unfiltered,
        tags: input.tags,
    };
    registry.put(&resource, &record)?;
    Ok(json!({ "indexArn": index_arn(&caller.region, &name) }))
}

/// The index of a request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct GivenIndex {
    vector_bucket_name: Option<String>,
    index_name: Option<String>,
    index_arn: Option<String>,
}

impl GivenIndex {
    fn name(&self) -> Result<IndexName, ApiError> {
        let GivenIndex { vector_bucket_name, index_name, index_arn } = self;
        index_of(vector_bucket_name.as_deref(), index_name.as_deref(), index_arn.as_deref())
    }
}

pub(super) fn get(caller: &Caller, input: GivenIndex, _: Control<'_>) -> Outcome {
    let name = input.name()?;
    let (_, record) = caller.index(Right::Read, &name)?;
    let mut index = summary(caller, &name, record.created);
    index["dataType"] = "float32".into();
    index["dimension"] = record.dimension.into();
    index["distanceMetric"] = record.metric.name().into();
    if !record.unfiltered.is_empty() {
        index["metadataConfiguration"] = json!({ "nonFilterableMetadataKeys": record.unfiltered });
    }
    Ok(json!({ "index": index }))
}

fn summary(caller: &Caller, name: &IndexName, created: f64) -> Value {
    json!({
        "vectorBucketName": name.bucket,
        "indexName": name.index,
        "indexArn": index_arn(&caller.region, name),
        "creationTime": created,
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct IndexListing {
    vector_bucket_name: Option<String>,
    vector_bucket_arn: Option<String>,
    max_results: Option<usize>,
    next_token: Option<String>,
    prefix: Option<String>,
}

pub(super) fn list(caller: &Caller, input: IndexListing, _: Control<'_>) -> Outcome {
    let bucket = bucket_of(input.vector_bucket_name.as_deref(), input.vector_bucket_arn.as_deref())?;
    let page = Page::of(input.max_results, input.next_token, input.prefix)?;
    caller.bucket(Right::Read, &bucket)?;
    let is_seen = |index: &str| caller.grant.sees(&format!("{bucket}_{index}"));
    let begin = (&page.prefix[..], &page.after[..]);
    let found = caller.api.registry().list::<IndexRecord>(Some(&bucket), begin, page.limit + 1, is_seen)?;
    let (shown, more) = found.split_at(found.len().min(page.limit));
    let of = |index: &String| IndexName { bucket: bucket.clone(), index: index.clone() };
    let indexes: Vec<Value> =
        shown.iter().map(|(index, record)| summary(caller, &of(index), record.created)).collect();
    let mut answer = json!({ "indexes": indexes });
    if let Some((last, _)) = shown.last().filter(|_| !more.is_empty()) {
        answer["nextToken"] = last.clone().into();
    }
    Ok(answer)
}

pub(super) fn delete(caller: &Caller, input: GivenIndex, _: Control<'_>) -> Outcome {
    let name = input.name()?;
    let _changing = caller.api.changing();
    let (collection, _) = caller.index(Right::Write, &name)?;
    // The record is last, so that an interrupted deletion can be repeated.
    match caller.api.shared.entries.remove(&collection) {
        Ok(_) => {}
        Err(refusal) if refusal.kind == Kind::NotFound => {}
        Err(refusal) => return Err(refusal.into()),
    }
    caller.api.registry().delete(&Resource::Index(name))?;
    Ok(json!({}))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct NewMode {
    vector_bucket_name: Option<String>,
    index_name: Option<String>,
    index_arn: Option<String>,
    index_mode: IndexMode,
}

pub(super) fn update_mode(caller: &Caller, input: NewMode, _: Control<'_>) -> Outcome {
    let NewMode { vector_bucket_name, index_name, index_arn, index_mode } = input;
    let name = index_of(vector_bucket_name.as_deref(), index_name.as_deref(), index_arn.as_deref())?;
    caller.index(Right::Write, &name)?;
    index_mode.check("indexMode")?;
    Ok(json!({}))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MetadataChange {
    vector_bucket_name: Option<String>,
    index_name: Option<String>,
    index_arn: Option<String>,
}

/// Refuses the change: only configurations of searches of text can be added and deleted.
pub(super) fn update_metadata(caller: &Caller, input: MetadataChange, _: Control<'_>) -> Outcome {
    let MetadataChange { vector_bucket_name, index_name, index_arn } = input;
    let name = index_of(vector_bucket_name.as_deref(), index_name.as_deref(), index_arn.as_deref())?;
    caller.index(Right::Write, &name)?;
    Err(ApiError::field("add.textSearchConfigurations", "the server has no search of text"))
}
