//! Matching rows of hand-written examples, and properties of bound filters.

use super::{bound, every_type, matches, schema};
use crate::error::CollectionError;
use crate::ids::{IdKind, Ids};
use arrow_array::types::Int64Type;
use arrow_array::{
    ArrayRef, Float32Array, Float64Array, Int8Array, Int64Array, ListArray, RecordBatch, StringArray,
    TimestampMicrosecondArray, UInt64Array,
};
use std::sync::Arc;

fn batch(name: &str, array: impl arrow_array::Array + 'static) -> RecordBatch {
    RecordBatch::try_from_iter([(name, Arc::new(array) as ArrayRef)]).unwrap()
}

/// Returns the numbers of the rows that match.
fn rows(words: &str, batch: &RecordBatch) -> Vec<usize> {
    let found = matches(&bound(words, &every_type(IdKind::Number)), batch);
    found.iter().enumerate().filter(|(_, matches)| **matches).map(|(row, _)| row).collect()
}

#[test]
fn numbers_are_compared_as_in_mathematics() {
    let small = batch("int8", Int8Array::from(vec![Some(-128), Some(1), Some(2), Some(127), None]));
    assert_eq!(rows("int8 < 1.5", &small), [0, 1]);
    assert_eq!(rows("int8 >= 1.5", &small), [2, 3]);
    assert_eq!(rows("int8 = 1.5", &small), [0; 0]);
    assert_eq!(rows("int8 != 1.5", &small), [0, 1, 2, 3]);
    assert_eq!(rows("int8 < 1000", &small), [0, 1, 2, 3]);
    assert_eq!(rows("int8 > 127.5 or int8 = 300 or int8 < -1e300", &small), [0; 0]);
    assert_eq!(rows("int8 <= 1e300 and int8 >= -128", &small), [0, 1, 2, 3]);
    let large = batch("uint64", UInt64Array::from(vec![u64::MAX - 1, u64::MAX, 0]));
    assert_eq!(rows("uint64 = 18446744073709551615", &large), [1]);
    assert_eq!(rows("uint64 < 18446744073709551615", &large), [0, 2]);
    assert_eq!(rows("uint64 < 18446744073709551616", &large), [0, 1, 2]);
    assert_eq!(rows("uint64 > -1", &large), [0, 1, 2]);
    let double = batch("float64", Float64Array::from(vec![9007199254740992.0, 9007199254740994.0, 0.1]));
    assert_eq!(rows("float64 = 9007199254740993", &double), [0; 0]);
    assert_eq!(rows("float64 > 9007199254740993", &double), [1]);
    assert_eq!(rows("float64 = 0.1", &double), [2]);
}

#[test]
fn floats_have_nan_and_two_zeros() {
    let values = [f32::NAN, -f32::NAN, 0.0, -0.0, 0.1, f32::INFINITY, f32::NEG_INFINITY];
    let floats = batch("float32", Float32Array::from(values.to_vec()));
    assert_eq!(rows("float32 = 0", &floats), [2, 3]);
    assert_eq!(rows("float32 >= -0.0", &floats), [2, 3, 4, 5]);
    assert_eq!(rows("float32 < 0", &floats), [6]);
    assert_eq!(rows("float32 > 0", &floats), [4, 5]);
    assert_eq!(rows("float32 = 0.1", &floats), [4]);
    assert_eq!(rows("float32 != 0.1", &floats), [0, 1, 2, 3, 5, 6]);
    assert_eq!(rows("not float32 < 0", &floats), [0, 1, 2, 3, 4, 5]);
    // Finite, but larger than all values of the type.
    assert_eq!(rows("float32 < 1e39", &floats), [2, 3, 4, 6]);
    assert_eq!(rows("float32 > 1e39", &floats), [5]);
    assert_eq!(rows("float32 is not null", &floats), [0, 1, 2, 3, 4, 5, 6]);
}

#[test]
fn nulls_match_only_is_null() {
    let texts = batch("string", StringArray::from(vec![Some("de"), None, Some("en"), Some("")]));
    assert_eq!(rows("string != 'de'", &texts), [2, 3]);
    assert_eq!(rows("not string = 'de'", &texts), [2, 3]);
    assert_eq!(rows("string not in ('de', 'x')", &texts), [2, 3]);
    assert_eq!(rows("string is null", &texts), [1]);
    assert_eq!(rows("string != 'de' or string is null", &texts), [1, 2, 3]);
    assert_eq!(rows("not (string = 'de' and string is not null)", &texts), [1, 2, 3]);
    assert_eq!(rows("starts_with(string, '')", &texts), [0, 2, 3]);
    assert_eq!(rows("string in ()", &texts), [0; 0]);
    assert_eq!(rows("string < 'e'", &texts), [0, 3]);
}

#[test]
fn lists_are_tested_for_their_elements() {
    let lists = [
        Some(vec![Some(1), Some(2)]),
        None,
        Some(vec![]),
        Some(vec![None, Some(2), Some(3)]),
        Some(vec![None]),
    ];
    let lists = batch("int64s", ListArray::from_iter_primitive::<Int64Type, _, _>(lists));
    assert_eq!(rows("contains(int64s, 2)", &lists), [0, 3]);
    assert_eq!(rows("int64s = 2", &lists), [0, 3]);
    assert_eq!(rows("not contains(int64s, 1)", &lists), [2, 3, 4]);
    assert_eq!(rows("int64s != 1", &lists), [2, 3, 4]);
    assert_eq!(rows("contains_any(int64s, (1, 3))", &lists), [0, 3]);
    assert_eq!(rows("contains_all(int64s, (2, 3))", &lists), [3]);
    assert_eq!(rows("contains_all(int64s, ())", &lists), [0, 2, 3, 4]);
    assert_eq!(rows("contains_any(int64s, ())", &lists), [0; 0]);
    assert_eq!(rows("int64s is null", &lists), [1]);
    assert_eq!(rows("not exists(int64s) or contains(int64s, 3)", &lists), [1, 3]);
    let slice = lists.slice(3, 2);
    assert_eq!(rows("contains(int64s, 3)", &slice), [0]);
}

#[test]
fn times_are_in_utc() {
    // 2024-02-29T23:59:59.5Z, and half a second later.
    let times = TimestampMicrosecondArray::from(vec![1_709_251_199_500_000, 1_709_251_200_000_000]);
    let times = batch("timestamp", times);
    assert_eq!(rows("timestamp >= '2024-03-01'", &times), [1]);
    assert_eq!(rows("timestamp = '2024-03-01T01:00:00+01:00'", &times), [1]);
    assert_eq!(rows("timestamp < '2024-02-29 23:59:59.6'", &times), [0]);
    assert_eq!(rows("timestamp = '2024-02-29T23:59:59.5000001Z'", &times), [0; 0]);
    assert_eq!(rows("timestamp < '2024-02-29T23:59:59.5000001Z'", &times), [0]);
}

#[test]
fn long_lists_of_values_are_matched() {
    let listed: Vec<String> = (0..50_000).map(|number| (3 * number).to_string()).collect();
    let numbers = batch("int64", Int64Array::from((0..2000).collect::<Vec<_>>()));
    let expected: Vec<usize> = (0..2000).step_by(3).collect();
    assert_eq!(rows(&format!("int64 in ({})", listed.join(",")), &numbers), expected);
    let texts = (0..2000).map(|number| Some(number.to_string()));
    let texts = batch("string", texts.collect::<StringArray>());
    let words = format!("string in ('{}')", listed.join("','"));
    assert_eq!(rows(&words, &texts), expected);
    let others: Vec<usize> = (0..2000).filter(|number| number % 3 != 0).collect();
    assert_eq!(rows(&words.replace(" in ", " not in "), &texts), others);
    assert_eq!(rows("string in ('1', '17') or starts_with(string, '199')", &texts)[..3], [1, 17, 199]);
}

#[test]
fn equivalent_filters_have_the_same_canonical_text() {
    let schema = every_type(IdKind::Text);
    let same = [
        "int8 between 1 and 3 and string = 'x'",
        "'x' = string and int8 >= 1 and int8 <= 3",
        "string in ('x') and int8 in (3, 2, 1, 2)",
        "not (string != 'x' or int8 < 1 or int8 > 3)",
        "not not ((int8 > 0.5) and (int8 < 3.5 and (string = 'x' and string = 'x')))",
    ];
    for words in same {
        assert_eq!(
            bound(words, &schema).canonical(),
            "(\"int8\" in {1..=3} and \"string\" in {'x'})",
            "{words}"
        );
    }
    let text = |words: &str| bound(words, &schema).canonical().to_string();
    assert_eq!(text("not int8 < 1"), text("int8 >= 1"));
    assert_ne!(text("not float32 < 1"), text("float32 >= 1"));
    assert_eq!(text("not float32 < 1"), "\"float32\" in {1.0.., nan}");
    assert_eq!(text("string like 'ab%'"), text("string >= 'ab' and string < 'ac'"));
    assert_eq!(text("bool"), text("bool = true"));
    assert_eq!(text("not bool"), text("bool != true"));
    assert_eq!(text("id is null or int8 is null"), "\"int8\" in {null}");
    assert_eq!(
        text("contains_all(strings, ('b', 'a')) and strings is not null"),
        text("strings = 'a' and strings = 'b'")
    );
    // Names and strings that look like other parts of the text.
    assert_ne!(text("string in ('a', 'b')"), text("string = 'a'', ''b'"));
}

#[test]
fn filters_that_match_all_rows_or_none_are_constant() {
    let schema = every_type(IdKind::Number);
    let cases = [
        ("true", Some(true)),
        ("int8 is null or int8 is not null", Some(true)),
        ("int8s is null or int8s is not null", Some(true)),
        ("id is not null", Some(true)),
        ("id >= 0", Some(true)),
        ("not true or int8 = 1 and int8 = 2", Some(false)),
        ("int8 = 1000", Some(false)),
        ("string in ()", Some(false)),
        ("id is null", Some(false)),
        ("int8 < 1000", None),
        ("int8 = 1", None),
    ];
    for (words, expected) in cases {
        let bound = bound(words, &schema);
        assert_eq!(bound.constant(), expected, "{words}");
        if expected.is_some() {
            assert!(bound.columns().is_empty() && !bound.needs_ids(), "{words}");
        }
    }
}

#[test]
fn filters_of_ids_alone_return_the_ids() {
    let numbers = schema(IdKind::Number, &[("year", "int32"), ("lang", "string")]);
    let ids = |words: &str| bound(words, &numbers).id_only();
    assert_eq!(ids("id = 5"), Some(Ids::Numbers(vec![5].into())));
    assert_eq!(
        ids("id in (18446744073709551615, 7, 7, -1, 0.5)"),
        Some(Ids::Numbers(vec![7, u64::MAX].into()))
    );
    assert_eq!(ids("id in (1, 2) or id = 9"), Some(Ids::Numbers(vec![1, 2, 9].into())));
    assert_eq!(ids("id > 5"), None);
    assert_eq!(ids("id != 5"), None);
    assert_eq!(ids("id between 0 and 1000000000000"), None);
    assert_eq!(ids("id = 5 and year = 1"), None);
    assert_eq!(ids("year = 1"), None);
    let with_other_condition = bound("lang = 'x' and id = 5", &numbers);
    assert_eq!((with_other_condition.columns(), with_other_condition.needs_ids()), (&[1][..], true));
    let texts = schema(IdKind::Text, &[]);
    let ids = |words: &str| bound(words, &texts).id_only();
    let long = "x".repeat(2000);
    let expected = Ids::Texts(vec!["a", "b"].into());
    assert_eq!(ids(&format!("id in ('b', 'a', '', '{long}')")), Some(expected));
    assert_eq!(ids("starts_with(id, 'a')"), None);
    assert_eq!(ids("id = ''"), Some(Ids::none(IdKind::Text)));
}

#[test]
fn batches_without_the_needed_columns_are_refused() {
    let filter = bound("int8 = 1", &every_type(IdKind::Number));
    for wrong in [batch("int16", Int8Array::from(vec![1])), batch("int8", Int64Array::from(vec![1]))] {
        let error = filter.evaluate(&wrong).unwrap_err();
        assert!(matches!(&error, CollectionError::Parameter(text) if text.contains("int8")), "{error}");
    }
}
