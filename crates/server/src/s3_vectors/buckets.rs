//! Vector buckets: named groups of indexes.

use super::caller::{Caller, Outcome};
use super::failure::ApiError;
use super::members::{Encryption, IndexMode, Page};
use super::registry::{BucketRecord, now};
use super::resource::{Resource, bucket_arn, bucket_of};
use super::tags::check_tags;
use crate::keys::Right;
use bathyal_tier::Control;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct NewBucket {
    vector_bucket_name: String,
    encryption_configuration: Option<Encryption>,
    #[serde(default)]
    tags: BTreeMap<String, String>,
}

pub(super) fn create(caller: &Caller, input: NewBucket, _: Control<'_>) -> Outcome {
    let bucket = bucket_of(Some(&input.vector_bucket_name), None)?;
    caller.check(Right::Write, &bucket)?;
    Encryption::refuse(input.encryption_configuration.as_ref())?;
    check_tags(&input.tags)?;
    let _changing = caller.api.changing();
    let (registry, resource) = (caller.api.registry(), Resource::Bucket(bucket.clone()));
    if registry.get::<BucketRecord>(&resource)?.is_some() {
        return Err(ApiError::conflict(format!("the vector bucket {bucket} exists already")));
    }
    registry.put(&resource, &BucketRecord { created: now(), tags: input.tags })?;
    Ok(json!({ "vectorBucketArn": bucket_arn(&caller.region, &bucket) }))
}

/// The bucket of a request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct GivenBucket {
    vector_bucket_name: Option<String>,
    vector_bucket_arn: Option<String>,
}

impl GivenBucket {
    fn name(&self) -> Result<String, ApiError> {
        bucket_of(self.vector_bucket_name.as_deref(), self.vector_bucket_arn.as_deref())
    }
}

/// Returns what the listing says of a bucket.
fn summary(caller: &Caller, bucket: &str, record: &BucketRecord) -> Value {
    json!({
        "vectorBucketName": bucket,
        "vectorBucketArn": bucket_arn(&caller.region, bucket),
        "creationTime": record.created,
    })
}

pub(super) fn get(caller: &Caller, input: GivenBucket, _: Control<'_>) -> Outcome {
    let bucket = input.name()?;
    let record = caller.bucket(Right::Read, &bucket)?;
    Ok(json!({ "vectorBucket": summary(caller, &bucket, &record) }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct BucketListing {
    max_results: Option<usize>,
    next_token: Option<String>,
    prefix: Option<String>,
}

pub(super) fn list(caller: &Caller, input: BucketListing, _: Control<'_>) -> Outcome {
    let page = Page::of(input.max_results, input.next_token, input.prefix)?;
    let (begin, is_seen) = ((&page.prefix[..], &page.after[..]), |name: &str| caller.grant.sees(name));
    let found = caller.api.registry().list::<BucketRecord>(None, begin, page.limit + 1, is_seen)?;
    let (shown, more) = found.split_at(found.len().min(page.limit));
    let buckets: Vec<Value> = shown.iter().map(|(name, record)| summary(caller, name, record)).collect();
    let mut answer = json!({ "vectorBuckets": buckets });
    if let Some((last, _)) = shown.last().filter(|_| !more.is_empty()) {
        answer["nextToken"] = last.clone().into();
    }
    Ok(answer)
}

pub(super) fn delete(caller: &Caller, input: GivenBucket, _: Control<'_>) -> Outcome {
    let bucket = input.name()?;
    caller.check(Right::Write, &bucket)?;
    let _changing = caller.api.changing();
    caller.bucket(Right::Write, &bucket)?;
    let registry = caller.api.registry();
    if !registry.list::<Value>(Some(&bucket), ("", ""), 1, |_| true)?.is_empty() {
        return Err(ApiError::conflict(format!("the vector bucket {bucket} has indexes; delete them first")));
    }
    registry.delete(&Resource::Bucket(bucket))?;
    Ok(json!({}))
}

pub(super) fn put_policy(_: &Caller, _: Value, _: Control<'_>) -> Outcome {
    Err(ApiError::field(
        "policy",
        "the server does not evaluate policies: rights are those of its keys, by the beginning of names",
    ))
}

pub(super) fn get_policy(caller: &Caller, input: GivenBucket, _: Control<'_>) -> Outcome {
    caller.bucket(Right::Read, &input.name()?)?;
    Err(ApiError::not_found("vector bucket policy"))
}

pub(super) fn delete_policy(caller: &Caller, input: GivenBucket, _: Control<'_>) -> Outcome {
    caller.bucket(Right::Write, &input.name()?)?;
    Ok(json!({}))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct NewMode {
    vector_bucket_name: Option<String>,
    vector_bucket_arn: Option<String>,
    default_index_mode: IndexMode,
}

pub(super) fn put_mode(caller: &Caller, input: NewMode, _: Control<'_>) -> Outcome {
    let bucket = bucket_of(input.vector_bucket_name.as_deref(), input.vector_bucket_arn.as_deref())?;
    caller.bucket(Right::Write, &bucket)?;
    input.default_index_mode.check("defaultIndexMode")?;
    Ok(json!({}))
}
