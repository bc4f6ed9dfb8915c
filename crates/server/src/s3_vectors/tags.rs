//! Tags of buckets and indexes.

use super::caller::{Caller, Outcome};
use super::failure::ApiError;
use super::registry::{BucketRecord, IndexRecord};
use super::request::SignedRequest;
use super::resource::Resource;
use super::signature::decoded;
use crate::keys::Right;
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;

/// The most tags of a resource, and the most characters of a key and of a value.
const MAX_TAGS: usize = 50;
const MAX_KEY: usize = 128;
const MAX_VALUE: usize = 256;

/// Refuses tags beyond the limits.
pub(super) fn check_tags(tags: &BTreeMap<String, String>) -> Result<(), ApiError> {
    if tags.len() > MAX_TAGS {
        return Err(ApiError::field("tags", format!("there are {}; {MAX_TAGS} are the most", tags.len())));
    }
    let is_valid = |(key, value): (&String, &String)| {
        (1..=MAX_KEY).contains(&key.chars().count()) && value.chars().count() <= MAX_VALUE
    };
    match tags.iter().find(|tag| !is_valid(*tag)) {
        Some((key, _)) => Err(ApiError::field(
            "tags",
            format!("the tag {key:?}: a key has 1 to {MAX_KEY} characters, and a value at most {MAX_VALUE}"),
        )),
        None => Ok(()),
    }
}

/// Returns the tags of a resource.
fn tags_of(caller: &Caller, right: Right, resource: &Resource) -> Result<BTreeMap<String, String>, ApiError> {
    match resource {
        Resource::Bucket(bucket) => Ok(caller.bucket(right, bucket)?.tags),
        Resource::Index(index) => Ok(caller.index(right, index)?.1.tags),
    }
}

/// Changes the tags of a resource.
fn change(
    caller: &Caller,
    resource: &Resource,
    change: impl FnOnce(&mut BTreeMap<String, String>),
) -> Result<(), ApiError> {
    let _changing = caller.api.changing();
    let mut tags = tags_of(caller, Right::Write, resource)?;
    change(&mut tags);
    check_tags(&tags)?;
    let registry = caller.api.registry();
    match resource {
        Resource::Bucket(bucket) => {
            let record = caller.bucket(Right::Write, bucket)?;
            registry.put(resource, &BucketRecord { tags, ..record })
        }
        Resource::Index(index) => {
            let (_, record) = caller.index(Right::Write, index)?;
            registry.put(resource, &IndexRecord { tags, ..record })
        }
    }
}

pub(super) fn list(request: &SignedRequest, arn: &str) -> Outcome {
    let resource = Resource::parse(arn, "resourceArn")?;
    Ok(json!({ "tags": tags_of(&request.caller, Right::Read, &resource)? }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewTags {
    tags: BTreeMap<String, String>,
}

pub(super) fn tag(request: &SignedRequest, arn: &str) -> Outcome {
    let NewTags { tags } = request.input()?;
    change(&request.caller, &Resource::parse(arn, "resourceArn")?, |all| all.extend(tags))?;
    Ok(json!({}))
}

pub(super) fn untag(request: &SignedRequest, arn: &str) -> Outcome {
    let parts = request.query.split('&').filter_map(|part| part.split_once('='));
    let keys: Vec<String> =
        parts.filter(|(name, _)| *name == "tagKeys").map(|(_, value)| decoded(value)).collect();
    if keys.is_empty() {
        return Err(ApiError::field("tagKeys", "name at least one key"));
    }
    change(&request.caller, &Resource::parse(arn, "resourceArn")?, |all| {
        all.retain(|key, _| !keys.contains(key));
    })?;
    Ok(json!({}))
}
