//! The records of buckets and indexes, with their tags: rows of a collection of their own.

use super::failure::ApiError;
use super::resource::{IndexName, Resource};
use crate::entries::{Entries, OpenCollection};
use crate::names::EntryName;
use arrow_array::Array;
use arrow_array::cast::AsArray;
use bathyal_collection::exchange::RowTables;
use bathyal_collection::{Column, Filter, Id, IdKind, Ids, Projection, Schema, VectorField};
use bathyal_console::Kind;
use bathyal_kernels::{Element, Metric};
use bathyal_tier::Control;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// The field of vectors of an index, and its column of metadata.
pub(super) const FIELD: &str = "data";
pub(super) const METADATA: &str = "metadata";
/// The name of the collection. Collections of indexes have names in lowercase with `_`.
const COLLECTION: &str = "S3Vectors";
const RECORD: &str = "record";
/// Rows of a listing that are read at once.
const LISTED: usize = 1000;

/// A vector bucket.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct BucketRecord {
    /// Seconds since 1970.
    pub(super) created: f64,
    pub(super) tags: BTreeMap<String, String>,
}

/// A vector index.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct IndexRecord {
    /// Seconds since 1970.
    pub(super) created: f64,
    pub(super) dimension: usize,
    pub(super) metric: DistanceMetric,
    /// Keys of metadata that no filter may use.
    pub(super) unfiltered: Vec<String>,
    pub(super) tags: BTreeMap<String, String>,
}

/// The metric of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum DistanceMetric {
    Euclidean,
    Cosine,
}

impl DistanceMetric {
    pub(super) fn name(self) -> &'static str {
        match self {
            DistanceMetric::Euclidean => "euclidean",
            DistanceMetric::Cosine => "cosine",
        }
    }

    /// Returns the metric of the collection.
    pub(super) fn metric(self) -> Metric {
        match self {
            DistanceMetric::Euclidean => Metric::L2,
            DistanceMetric::Cosine => Metric::Cosine,
        }
    }

    /// Converts a distance of the collection, where that of l2 is squared.
    pub(super) fn distance(self, found: f32) -> f32 {
        match self {
            DistanceMetric::Euclidean => found.max(0.0).sqrt(),
            DistanceMetric::Cosine => found,
        }
    }
}

/// Returns the time in seconds since 1970.
pub(super) fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64().floor())
}

/// The key of a record, which orders buckets and the indexes of each by their names.
fn key_of(resource: &Resource) -> String {
    match resource {
        Resource::Bucket(bucket) => format!("bucket/{bucket}"),
        Resource::Index(IndexName { bucket, index }) => format!("index/{bucket}/{index}"),
    }
}

/// The records of all buckets and indexes.
pub(super) struct Registry<'a> {
    entries: &'a Entries,
}

impl<'a> Registry<'a> {
    pub(super) fn new(entries: &'a Entries) -> Registry<'a> {
        Registry { entries }
    }

    /// Returns the collection; `None` if there is none yet.
    fn collection(&self) -> Result<Option<Arc<OpenCollection>>, ApiError> {
        match self.entries.collection(&name()?) {
            Ok(collection) => Ok(Some(collection)),
            Err(refusal) if refusal.kind == Kind::NotFound => Ok(None),
            Err(refusal) => Err(refusal.into()),
        }
    }

    /// Returns a record.
    pub(super) fn get<T: DeserializeOwned>(&self, resource: &Resource) -> Result<Option<T>, ApiError> {
        let Some(collection) = self.collection()? else { return Ok(None) };
        let ids = Ids::from_ids(IdKind::Text, &[Id::Text(key_of(resource))])?;
        let found = collection.get(&ids, &Projection::default(), Control::default())?;
        match found.ids.is_empty() {
            true => Ok(None),
            false => record(found.columns.column(0), 0).map(Some),
        }
    }

    /// Writes a record, and makes the collection at need.
    pub(super) fn put(&self, resource: &Resource, record: &impl Serialize) -> Result<(), ApiError> {
        let collection = match self.collection()? {
            Some(_) => self.entries.collection_to_change(&name()?)?,
            None => match self.entries.create(&name()?, schema()) {
                Ok(collection) => collection,
                Err(refusal) if refusal.kind == Kind::Exists => self.entries.collection(&name()?)?,
                Err(refusal) => return Err(refusal.into()),
            },
        };
        let record = serde_json::to_value(record).map_err(|error| ApiError::internal(error.to_string()))?;
        let row = json!({ "id": key_of(resource), "none": [0.0], RECORD: record });
        let tables = RowTables::new(collection.schema(), "the record");
        let row = row.as_object().cloned().unwrap_or_else(Map::new);
        collection.upsert(tables.rows(&tables.table_of_json(&[row])?)?)?;
        Ok(())
    }

    pub(super) fn delete(&self, resource: &Resource) -> Result<(), ApiError> {
        if self.collection()?.is_some() {
            let collection = self.entries.collection_to_change(&name()?)?;
            collection.delete(Ids::from_ids(IdKind::Text, &[Id::Text(key_of(resource))])?)?;
        }
        Ok(())
    }

    /// Returns up to `limit` names with their records, in order: of buckets, or of the indexes of a bucket.
    /// They begin with `prefix` and come after `after`.
    pub(super) fn list<T: DeserializeOwned>(
        &self,
        bucket: Option<&str>,
        (prefix, after): (&str, &str),
        limit: usize,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<Vec<(String, T)>, ApiError> {
        let Some(collection) = self.collection()? else { return Ok(Vec::new()) };
        let kind = bucket.map_or("bucket/".to_owned(), |bucket| format!("index/{bucket}/"));
        let begin = format!("{kind}{prefix}");
        let filter = Filter::from_json(&json!({ "id": { "$prefix": begin } }))
            .map_err(|error| ApiError::internal(error.to_string()))?;
        let after = (!after.is_empty()).then(|| Id::Text(format!("{kind}{after}")));
        let control = Control::default();
        let mut scan = collection.scan(Some(&filter), &Projection::default(), after.as_ref(), control)?;
        let mut found = Vec::new();
        while let Some(rows) = scan.next(LISTED, control)? {
            for at in 0..rows.ids.len() {
                let Id::Text(key) = rows.ids.get(at) else { continue };
                let Some(name) = key.strip_prefix(&kind).filter(|name| is_wanted(name)) else { continue };
                found.push((name.to_owned(), record(rows.columns.column(0), at)?));
                if found.len() == limit {
                    return Ok(found);
                }
            }
        }
        Ok(found)
    }
}

fn name() -> Result<EntryName, ApiError> {
    COLLECTION.parse().map_err(ApiError::internal)
}

/// Returns the schema of the records. Every collection has vectors; those of the records have no meaning.
fn schema() -> Schema {
    let kind = "json".parse().map(|kind| Column { name: RECORD.into(), kind });
    Schema {
        id_kind: IdKind::Text,
        vectors: vec![VectorField::new("none", 1, Element::F32, Metric::L2)],
        columns: kind.into_iter().collect(),
    }
}

fn record<T: DeserializeOwned>(column: &dyn Array, row: usize) -> Result<T, ApiError> {
    let damaged = |reason: String| ApiError::internal(format!("a record of {COLLECTION}: {reason}"));
    let texts = column.as_string_opt::<i64>().ok_or_else(|| damaged("is not JSON".into()))?;
    serde_json::from_str(texts.value(row)).map_err(|error| damaged(error.to_string()))
}

/// Returns a value of JSON in a column.
pub(super) fn json_at(column: &dyn Array, row: usize) -> Option<Value> {
    let texts = column.as_string_opt::<i64>().filter(|texts| texts.is_valid(row))?;
    serde_json::from_str(texts.value(row)).ok()
}
