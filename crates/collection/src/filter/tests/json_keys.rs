//! Conditions on keys of columns of JSON, beside an evaluation of their own.

use super::{bound, schema};
use crate::error::CollectionError;
use crate::filter::Filter;
use crate::ids::IdKind;
use crate::schema::Schema;
use arrow_array::{ArrayRef, LargeStringArray, RecordBatch, StringArray};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::cmp::Ordering;
use std::sync::Arc;

fn with_meta() -> Schema {
    schema(IdKind::Text, &[("meta", "json"), ("meta.own", "string"), ("lang", "string")])
}

/// Returns a batch with these values of `meta`; null is a missing value.
fn batch(values: &[Value]) -> RecordBatch {
    let text = |value: &Value| (!value.is_null()).then(|| value.to_string());
    let meta: ArrayRef = Arc::new(values.iter().map(text).collect::<LargeStringArray>());
    let own: ArrayRef = Arc::new(StringArray::from(vec![Some("x"); values.len()]));
    RecordBatch::try_from_iter([("meta", meta), ("meta.own", own.clone()), ("lang", own)]).unwrap()
}

/// Returns the rows that match.
fn matching(filter: &str, values: &[Value]) -> Vec<usize> {
    bound(filter, &with_meta()).evaluate(&batch(values)).unwrap().set_indices().collect()
}

#[test]
fn values_match_by_their_type_and_lists_by_their_elements() {
    let rows = [
        json!({"year": 2020, "lang": "de", "tags": ["a", "b"], "deep": {"key": true, "no": [1, [5]]}}),
        json!({"year": "2020", "lang": ["de", "en"], "tags": [], "deep": {"key": [false, 3]}}),
        json!({"year": 2020.5, "lang": null}),
        Value::Null,
        json!([1, 2]),
        json!({"year": [1999, 2021], "deep.key": "dotted"}),
        json!("text"),
    ];
    let found = |filter: &str| matching(filter, &rows);
    assert_eq!(found("meta.year = 2020"), [0]);
    assert_eq!(found("meta.year >= 2020"), [0, 2, 5]);
    assert_eq!(found("meta.year between 2020 and 2020.75"), [0, 2]);
    assert_eq!(found("meta.year = '2020'"), [1]);
    // The negation of a condition is true for values of other types, and not for missing ones.
    assert_eq!(found("meta.year != 2020"), [1, 2, 5]);
    assert_eq!(found("not meta.year >= 2020"), [1]);
    assert_eq!(found("meta.lang = 'de'"), [0, 1]);
    assert_eq!(found("meta.lang in ('en', 'fr', 7)"), [1]);
    assert_eq!(found("meta.lang is null"), [2, 3, 4, 5, 6]);
    assert_eq!(found("exists(meta.lang)"), [0, 1]);
    assert_eq!(found("contains(meta.tags, 'b')"), [0]);
    assert_eq!(found("contains_all(meta.tags, ('a', 'b'))"), [0]);
    assert_eq!(found("meta.tags is not null"), [0, 1]);
    assert_eq!(found("meta.deep.key"), [0]);
    assert_eq!(found("meta.deep.key = false or meta.deep.key = 'dotted'"), [1, 5]);
    // Lists within lists, and objects, are in no set.
    assert_eq!(found("meta.deep.no = 5"), [0; 0]);
    assert_eq!(found("meta.deep is not null"), [0, 1]);
    assert_eq!(found("starts_with(meta.lang, 'd')"), [0, 1]);
    assert_eq!(found("meta = 'text' or meta = 2"), [4, 6]);
    assert_eq!(found("meta is null"), [3]);
    // A column of this name comes before a key.
    assert_eq!(found("meta.own = 'x'").len(), rows.len());
    let in_json = Filter::from_json(&json!({"meta.year": {"$gte": 2020}, "lang": "x"})).unwrap();
    let in_json = in_json.bind(&with_meta()).unwrap().evaluate(&batch(&rows)).unwrap();
    assert_eq!(in_json.set_indices().collect::<Vec<_>>(), [0, 2, 5]);
}

#[test]
fn whole_numbers_are_told_apart_beyond_those_of_floats() {
    let wholes = [9_007_199_254_740_992_i64, 9_007_199_254_740_993, i64::MAX, i64::MIN];
    let mut rows: Vec<Value> = wholes.iter().map(|whole| json!({"n": whole})).collect();
    rows.extend([json!({"n": u64::MAX}), json!({"n": 3.0}), json!({"n": -1e300})]);
    assert_eq!(matching("meta.n = 9007199254740993", &rows), [1]);
    assert_eq!(matching("meta.n > 9007199254740992", &rows), [1, 2, 4]);
    assert_eq!(matching("meta.n = 3", &rows), [5]);
    assert_eq!(matching("meta.n < -9223372036854775807", &rows), [3, 6]);
    assert_eq!(matching("meta.n = 18446744073709551615", &rows), [4]);
}

#[test]
fn equal_filters_on_keys_have_one_text_and_unknown_columns_are_refused() {
    let canonical = |filter: &str| bound(filter, &with_meta()).canonical().to_owned();
    assert_eq!(canonical("meta.a in (1, 2)"), canonical("meta.a = 2 or meta.a = 1"));
    assert_eq!(canonical("not meta.a < 3"), canonical("not (meta.a < 3)"));
    assert_ne!(canonical("meta.a = 1"), canonical("meta.a = '1'"));
    assert_ne!(canonical("meta.a = 1"), canonical("meta.b = 1"));
    assert_ne!(canonical("meta.a = true"), canonical("meta.a = false"));
    let columns = bound("meta.a = 1 and meta.b = 2 and lang = 'x'", &with_meta());
    assert_eq!((columns.columns(), columns.needs_ids()), (&[0, 2][..], false));
    let refused = Filter::parse("other.a = 1").unwrap().bind(&with_meta()).unwrap_err();
    assert!(matches!(refused, CollectionError::Filter(_)), "{refused}");
    // A column of strings has no keys.
    assert!(Filter::parse("lang.a = 1").unwrap().bind(&with_meta()).is_err());
}

/// Returns a random value for a key.
fn value(random: &mut StdRng, deep: bool) -> Value {
    match random.random_range(0..if deep { 8 } else { 6 }) {
        0 => Value::Null,
        1 => json!(random.random_bool(0.5)),
        2 => json!(random.random_range(-3..4)),
        3 => json!(f64::from(random.random_range(-6..7)) / 2.0),
        4 | 5 => json!(["", "a", "ab", "b"][random.random_range(0..4)]),
        6 => Value::Array((0..random.random_range(0..4)).map(|_| value(random, false)).collect()),
        _ => json!({"k": value(random, false)}),
    }
}

/// Returns the order of two values of the same type.
fn order(one: &Value, two: &Value) -> Option<Ordering> {
    match (one, two) {
        (Value::Bool(one), Value::Bool(two)) => Some(one.cmp(two)),
        (Value::Number(one), Value::Number(two)) => one.as_f64()?.partial_cmp(&two.as_f64()?),
        (Value::String(one), Value::String(two)) => Some(one.cmp(two)),
        _ => None,
    }
}

#[test]
fn random_conditions_match_as_each_value_does_by_itself() {
    let mut random = StdRng::seed_from_u64(7);
    let rows: Vec<Value> = (0..300)
        .map(|_| match random.random_range(0..10) {
            0 => value(&mut random, true),
            _ => json!({"k": value(&mut random, true), "other": value(&mut random, true)}),
        })
        .collect();
    type Sign = (&'static str, fn(Ordering) -> bool);
    let comparisons: [Sign; 6] = [
        ("=", Ordering::is_eq),
        ("!=", Ordering::is_ne),
        ("<", Ordering::is_lt),
        ("<=", Ordering::is_le),
        (">", Ordering::is_gt),
        (">=", Ordering::is_ge),
    ];
    for _ in 0..400 {
        let literal = loop {
            let literal = value(&mut random, false);
            if !literal.is_null() {
                break literal;
            }
        };
        let (sign, test) = comparisons[random.random_range(0..comparisons.len())];
        let negated = random.random_bool(0.3);
        let shown = literal.as_str().map_or_else(|| literal.to_string(), |text| format!("'{text}'"));
        let filter = format!("{} meta.k {sign} {shown}", if negated { "not" } else { "" });
        let expected = rows.iter().enumerate().filter(|(_, row)| {
            let Some(found) = row.get("k").filter(|found| !found.is_null()) else { return false };
            let items = found.as_array().map_or(std::slice::from_ref(found), Vec::as_slice);
            let some = |test: &dyn Fn(Ordering) -> bool| {
                items.iter().any(|item| order(item, &literal).is_some_and(test))
            };
            // "Not equal" is the negation of "equal", also for values of other types.
            let holds = if sign == "!=" { !some(&Ordering::is_eq) } else { some(&test) };
            holds != negated
        });
        let expected: Vec<usize> = expected.map(|(row, _)| row).collect();
        assert_eq!(matching(&filter, &rows), expected, "{filter}");
    }
}
