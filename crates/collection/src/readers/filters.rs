//! Filters. Their text parses back to the same filter, and no row matches both a filter and its negation.

use crate::filter::Filter;
use crate::ids::IdKind;
use crate::schema::{Column, Schema, VectorField};
use arrow_array::types::Int64Type;
use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, ListArray, RecordBatch, StringArray, UInt64Array,
};
use arrow_array::{Date32Array, TimestampMicrosecondArray, UInt8Array};
use bathyal_kernels::{Element, Metric};
use std::sync::{Arc, OnceLock};

/// The longest text of a filter that is negated and doubled. Longer ones could exceed the limit of nesting.
const SHORT: usize = 200;

pub(super) fn words() -> Vec<Vec<u8>> {
    [
        "year >= 2020 and lang in ('de', 'en') and not archived",
        "id != 7 or id in (1, 2, 3)",
        "tags has 'new' or tags has any ('a', 'b')",
        "rating < 4.5e1 or rating > -0.25 or rating = 0",
        "lang is null or lang starts with 'd'",
        "not (year between 1 and 5 or small = 255)",
        "stamp >= '2024-01-02T03:04:05Z' and day < '1999-12-31'",
        "year not in (1, -2) and lang != 'it''s'",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

pub(super) fn values() -> Vec<Vec<u8>> {
    [
        r#"{"year": {"$gte": 2020}, "lang": {"$in": ["de", "en"]}}"#,
        r#"{"$or": [{"year": 1}, {"$not": {"lang": {"$exists": false}}}]}"#,
        r#"{"$and": [{"rating": {"$lt": 4.5}}, {"archived": true}, {"tags": "new"}]}"#,
        r#"{"id": {"$ne": 5}, "stamp": {"$lte": "2024-01-02"}, "small": {"$nin": [1, 2]}}"#,
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

fn schema() -> &'static Schema {
    static SCHEMA: OnceLock<Schema> = OnceLock::new();
    SCHEMA.get_or_init(|| {
        let columns = [
            ("year", "int64"),
            ("lang", "string"),
            ("archived", "bool"),
            ("rating", "float64"),
            ("tags", "list<string>"),
            ("parts", "list<int64>"),
            ("stamp", "timestamp"),
            ("day", "date"),
            ("small", "uint8"),
        ];
        let column =
            |(name, kind): (&str, &str)| kind.parse().ok().map(|kind| Column { name: name.into(), kind });
        Schema {
            id_kind: IdKind::Number,
            vectors: vec![VectorField::new("v", 2, Element::F32, Metric::L2)],
            columns: columns.into_iter().filter_map(column).collect(),
        }
    })
}

fn batch() -> &'static RecordBatch {
    static BATCH: OnceLock<RecordBatch> = OnceLock::new();
    BATCH.get_or_init(|| {
        let years =
            Int64Array::from(vec![Some(2020), None, Some(-2), Some(i64::MIN), Some(i64::MAX), Some(1)]);
        let langs =
            StringArray::from(vec![Some("de"), Some("en"), None, Some(""), Some("it's"), Some("d\u{e9}")]);
        let truths = BooleanArray::from(vec![Some(true), Some(false), None, Some(true), Some(false), None]);
        let reals = [Some(4.5), Some(-0.0), None, Some(f64::NAN), Some(f64::INFINITY), Some(1e-300)];
        let mut tags = arrow_array::builder::ListBuilder::new(arrow_array::builder::StringBuilder::new());
        for list in [Some(&["new", "a"][..]), Some(&[]), None, Some(&["b"]), Some(&["new"]), Some(&[""])] {
            match list {
                Some(list) => tags.append_value(list.iter().map(Some)),
                None => tags.append_null(),
            }
        }
        let parts =
            [Some(vec![Some(1), None]), None, Some(vec![]), Some(vec![Some(-5)]), None, Some(vec![None])];
        let parts = ListArray::from_iter_primitive::<Int64Type, _, _>(parts);
        let stamps = TimestampMicrosecondArray::from(vec![
            Some(0),
            None,
            Some(-1),
            Some(i64::MAX),
            Some(1 << 50),
            None,
        ]);
        let days = Date32Array::from(vec![Some(0), None, Some(-1), Some(i32::MAX), Some(10_957), None]);
        let bytes = UInt8Array::from(vec![Some(0), Some(255), None, Some(1), Some(2), Some(3)]);
        let ids = UInt64Array::from(vec![0, 1, 2, 7, u64::MAX, 5]);
        let arrays: Vec<ArrayRef> = vec![
            Arc::new(years),
            Arc::new(langs),
            Arc::new(truths),
            Arc::new(Float64Array::from(reals.to_vec())),
            Arc::new(tags.finish()),
            Arc::new(parts),
            Arc::new(stamps),
            Arc::new(days),
            Arc::new(bytes),
        ];
        let arrays = std::iter::once(Arc::new(ids) as ArrayRef).chain(arrays);
        RecordBatch::try_new(schema().with_ids(), arrays.collect()).unwrap_or_else(|error| panic!("{error}"))
    })
}

pub(super) fn in_words(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match Filter::parse(text) {
        Ok(filter) => check(&filter),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

pub(super) fn in_json(bytes: &[u8]) {
    let Ok(value) = serde_json::from_slice(bytes) else { return };
    match Filter::from_json(&value) {
        Ok(filter) => check(&filter),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn check(filter: &Filter) {
    let text = filter.to_string();
    let again = Filter::parse(&text).unwrap_or_else(|error| panic!("{text} cannot be read: {error}"));
    assert_eq!(again.to_string(), text, "another filter");
    let Ok(bound) = filter.bind(schema()) else { return };
    let found = bound.evaluate(batch()).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(found.len(), batch().num_rows());
    let same = again.bind(schema()).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(same.canonical(), bound.canonical(), "{text}");
    if let Some(value) = bound.constant() {
        assert!(found.iter().all(|found| found == value), "{text}");
    }
    if text.len() > SHORT {
        return;
    }
    let other = |text: String| Filter::parse(&text).ok().and_then(|filter| filter.bind(schema()).ok());
    if let Some(negated) = other(format!("not ({text})")) {
        let others = negated.evaluate(batch()).unwrap_or_else(|error| panic!("not ({text}): {error}"));
        assert!(found.iter().zip(&others).all(|(one, other)| !(one && other)), "{text}");
    }
    if let Some(doubled) = other(format!("({text}) and ({text})")) {
        assert_eq!(doubled.canonical(), bound.canonical(), "{text}");
    }
}
