//! Parsing of filters, and the positions in errors.

use super::super::expression::{Comparison, Contains, Expression, Literal, MAX_DEPTH, MAX_LITERALS};
use super::super::{Filter, FilterError};
use super::{bound, every_type, schema};
use crate::error::CollectionError;
use crate::ids::IdKind;
use serde_json::{Value, json};

fn read(text: &str) -> Expression {
    (*Filter::parse(text).unwrap_or_else(|error| panic!("{error}")).expression).clone()
}

fn compare(name: &str, comparison: Comparison, literal: Literal) -> Expression {
    Expression::Compare(name.into(), comparison, literal)
}

fn whole(value: i128) -> Literal {
    Literal::Whole(value)
}

fn text(text: &str) -> Literal {
    Literal::Text(text.into())
}

#[test]
fn text_is_parsed() {
    use Comparison::*;
    let cases = [
        ("a = 1", compare("a", Equal, whole(1))),
        ("a == 1", compare("a", Equal, whole(1))),
        ("a<>1", compare("a", NotEqual, whole(1))),
        ("a != -1", compare("a", NotEqual, whole(-1))),
        ("1 < a", compare("a", Greater, whole(1))),
        ("1.5 >= a", compare("a", LessOrEqual, Literal::Fraction(1.5))),
        ("true = a", compare("a", Equal, Literal::Bool(true))),
        ("a > .5", compare("a", Greater, Literal::Fraction(0.5))),
        ("a > +1e3", compare("a", Greater, Literal::Fraction(1000.0))),
        ("a > -1E-3", compare("a", Greater, Literal::Fraction(-0.001))),
        ("a = 18446744073709551615", compare("a", Equal, whole(u64::MAX.into()))),
        ("a = -9223372036854775808", compare("a", Equal, whole(i64::MIN.into()))),
        ("a = 18446744073709551616", compare("a", Equal, Literal::Fraction(18446744073709551616.0))),
        ("a = 'it''s'", compare("a", Equal, text("it's"))),
        ("a = ''", compare("a", Equal, text(""))),
        ("\"a b\" = 'x'", compare("a b", Equal, text("x"))),
        ("\"a\"\"b\" = 'x'", compare("a\"b", Equal, text("x"))),
        ("`and` = 'x'", compare("and", Equal, text("x"))),
        ("meta.year = 1", compare("meta.year", Equal, whole(1))),
        ("gr\u{f6}\u{df}e = 1", compare("gr\u{f6}\u{df}e", Equal, whole(1))),
        ("contains = 1", compare("contains", Equal, whole(1))),
        ("a", Expression::Flag("a".into())),
        ("true", Expression::Constant(true)),
        ("NOT False", Expression::not(Expression::Constant(false))),
        ("a IN (1, 2)", Expression::In("a".into(), vec![whole(1), whole(2)])),
        ("a in ()", Expression::In("a".into(), vec![])),
        ("a not in (1)", Expression::not(Expression::In("a".into(), vec![whole(1)]))),
        ("a is null", Expression::IsNull("a".into())),
        ("a Is Not Null", Expression::not(Expression::IsNull("a".into()))),
        ("exists(a)", Expression::not(Expression::IsNull("a".into()))),
        ("a like 'x%'", Expression::StartsWith("a".into(), "x".into())),
        ("a not like 'x%'", Expression::not(Expression::StartsWith("a".into(), "x".into()))),
        ("Starts_With(a, '%')", Expression::StartsWith("a".into(), "%".into())),
        ("contains(a, 1)", Expression::Contains("a".into(), Contains::Any, vec![whole(1)])),
        ("contains_any(a, ('x'))", Expression::Contains("a".into(), Contains::Any, vec![text("x")])),
        (
            "contains_all(a, (1, 2))",
            Expression::Contains("a".into(), Contains::All, vec![whole(1), whole(2)]),
        ),
        ("a between 1 and 2", Expression::Between("a".into(), whole(1), whole(2))),
    ];
    for (words, expected) in cases {
        assert_eq!(read(words), expected, "{words}");
    }
}

#[test]
fn and_binds_closer_than_or_and_not_closest() {
    let flag = |name: &str| Expression::Flag(name.into());
    let both = Expression::And(vec![Expression::not(flag("b")), flag("c")]);
    assert_eq!(read("a or not b and c"), Expression::Or(vec![flag("a"), both.clone()]));
    assert_eq!(read("a || !b && c"), Expression::Or(vec![flag("a"), both]));
    let either = Expression::Or(vec![flag("a"), flag("b")]);
    assert_eq!(read("(a or b)\n\tand c"), Expression::And(vec![either, flag("c")]));
    let between = Expression::Between("a".into(), whole(1), whole(2));
    assert_eq!(read("a between 1 and 2 and b"), Expression::And(vec![between, flag("b")]));
    assert_eq!(read("not a = 1"), Expression::not(compare("a", Comparison::Equal, whole(1))));
    // `inside` and `notes` begin like keywords.
    assert_eq!(
        read("not notes and inside"),
        Expression::And(vec![Expression::not(flag("notes")), flag("inside")])
    );
}

#[test]
fn errors_have_a_message_and_a_position() {
    let cases = [
        ("", 0, "is empty"),
        ("  ", 2, "is empty"),
        ("a =", 3, "expected a number, a string in single quotes, `true` or `false`, found the end"),
        ("a = and", 4, "found `and`"),
        ("a = \"de\"", 4, "a string stands in single quotes: 'de'"),
        ("a = de", 4, "a string stands in single quotes: 'de'"),
        ("a = null", 4, "say `is null` or `is not null`"),
        ("a in (1, null)", 9, "is null"),
        ("a in (1 2)", 8, "expected `,` or `)`, found the number 2"),
        ("a in 1", 5, "expected `(`"),
        ("a in (\"x\")", 6, "single quotes"),
        ("(a = 1", 6, "expected `and`, `or` or `)`, found the end"),
        ("a = 1)", 5, "closes nothing"),
        ("a = 1 b", 6, "expected `and`, `or` or the end, found `b`"),
        ("a = 'x", 4, "does not end"),
        ("\"a = 1", 0, "does not end"),
        ("a is 1", 5, "expected `null` or `not null`"),
        ("a is not 1", 9, "expected `null`"),
        ("a not 1", 6, "`in`, `between` or `like`"),
        ("a between 1 or 2", 12, "expected `and`, found `or`"),
        ("a like '%x'", 7, "takes a prefix"),
        ("a like 'x'", 7, "takes a prefix"),
        ("a like ''", 7, "takes a prefix"),
        ("a like 'x_%'", 7, "takes a prefix"),
        ("a like 1", 7, "expected a string"),
        ("begins(a)", 0, "there is no function begins; there are exists, starts_with"),
        ("exists(1)", 7, "expected the name of a column"),
        ("contains(a)", 10, "expected `,`"),
        ("starts_with(a, 1)", 15, "expected a string"),
        ("1", 1, "a comparison such as"),
        ("1 = 1", 4, "expected the name of a column"),
        ("null", 0, "expected a condition, found `null`"),
        ("a = 12b", 4, "no number"),
        ("a = 1.2.3", 4, "no number"),
        ("a = 1e", 4, "no number"),
        ("a = 1e999", 4, "larger than any"),
        ("a # 1", 2, "'#' has no meaning"),
        ("a = 1 & b", 6, "'&' has no meaning"),
        ("a = 1;", 5, "';' has no meaning"),
        ("a\0", 1, "'\\0' has no meaning"),
        // Positions count characters, not bytes.
        ("\u{e9} = '\u{1f600}' x", 8, "found `x`"),
    ];
    for (words, position, message) in cases {
        let error = Filter::parse(words).expect_err(words);
        assert!(error.message.contains(message), "{words}: {}", error.message);
        assert_eq!(error.position, Some(position), "{words}: {}", error.message);
        assert_eq!(error.text, words);
    }
}

#[test]
fn conditions_that_do_not_fit_their_column_have_a_position() {
    let schema = schema(IdKind::Number, &[("a", "int64"), ("b", "string"), ("c d", "bool")]);
    let place = |text: &str| Filter::check(text, &schema).unwrap_err().position;
    for (text, position) in [
        ("a = 1 and x = 2", 10),
        ("a = 1 or not (a in (2, 3) and a = 'x')", 30),
        ("b = '\u{e9}' and b > 3", 12),
        ("\"c d\" or \"c d\" = 1", 9),
        ("3 < b", 4),
        ("starts_with(a, 'x')", 12),
        ("id = 'x'", 0),
        ("a =", 3),
    ] {
        assert_eq!(place(text), Some(position), "{text}");
    }
    Filter::check("a = 1 and b like 'x%' and `c d` and id in (1, 2)", &schema).unwrap();
}

#[test]
fn an_error_marks_its_position() {
    let shown = |text: &str| Filter::parse(text).unwrap_err().to_string();
    assert_eq!(
        shown("year >= and b"),
        "expected a number, a string in single quotes, `true` or `false`, found \
         `and`\n  year >= and b\n          ^"
    );
    // One line of a longer text, with a tab in it.
    let lines = shown("a = 1\nand\tb c\nor d");
    assert!(lines.ends_with("\n  and b c\n        ^"), "{lines}");
    let end = shown("a =\n");
    assert!(end.ends_with("\n  \n  ^"), "{end:?}");
    // A part of a long line.
    let long = shown(&format!("a = '{}' # {}", "x".repeat(500), "y".repeat(500)));
    let lines: Vec<&str> = long.lines().collect();
    assert!(lines[1].len() < 120 && lines[1].starts_with("  ... xxx"), "{long}");
    assert_eq!(lines[1].find('#'), lines[2].find('^'), "{long}");
    let error = FilterError { message: "wrong".into(), position: None, text: String::new() };
    assert_eq!(error.to_string(), "wrong");
    assert!(matches!(CollectionError::from(error), CollectionError::Filter(text) if text == "wrong"));
}

#[test]
fn depth_and_size_are_limited() {
    let deep = |depth: usize| format!("{}a{}", "(".repeat(depth), ")".repeat(depth));
    assert!(Filter::parse(&deep(MAX_DEPTH)).is_ok());
    let error = Filter::parse(&deep(MAX_DEPTH + 1)).unwrap_err();
    assert_eq!((error.message.contains("nested"), error.position), (true, Some(MAX_DEPTH)));
    assert!(Filter::parse(&format!("{}a", "not ".repeat(MAX_DEPTH))).is_ok());
    for hostile in ["(", "not ", "!", "a and (", "(((a or b) and ", "exists(", "a in (", "'", "1", "a\0", ")"]
    {
        let text = hostile.repeat(10_000_000 / hostile.len());
        assert!(Filter::parse(&text).unwrap_err().to_string().len() < 500, "{hostile}");
    }
    let values = |count: usize| format!("a in (0{})", ", 1".repeat(count - 1));
    assert!(Filter::parse(&values(MAX_LITERALS)).is_ok());
    assert!(Filter::parse(&values(MAX_LITERALS + 1)).unwrap_err().message.contains("values"));
    let conditions = |count: usize| format!("a{}", " or a".repeat(count - 1));
    assert!(Filter::parse(&conditions(MAX_LITERALS)).is_ok());
    assert!(Filter::parse(&conditions(MAX_LITERALS + 1)).unwrap_err().message.contains("conditions"));
}

#[test]
fn deep_and_wide_filters_are_bound() {
    let schema = every_type(IdKind::Number);
    // The deepest nesting, with both operators on every level.
    let deep = format!("{}bool{}", "int8 = 1 or bool and not (".repeat(50), ")".repeat(50));
    let filter = Filter::parse(&deep).unwrap();
    assert_eq!(Filter::parse(&filter.to_string()).unwrap(), filter);
    filter.bind(&schema).unwrap();
    // Only even numbers, so that no values can be merged into a range.
    let wide: Vec<String> = (0..MAX_LITERALS).map(|number| format!("int64 = {}", 2 * number)).collect();
    let one = bound(&wide.join(" or "), &schema);
    let listed: Vec<String> = (0..MAX_LITERALS).rev().map(|number| (2 * number).to_string()).collect();
    assert_eq!(one.canonical(), bound(&format!("int64 in ({})", listed.join(",")), &schema).canonical());
    let wide: Vec<String> = (0..MAX_LITERALS).map(|number| format!("string != '{number}'")).collect();
    bound(&wide.join(" and "), &schema);
}

#[test]
fn json_is_parsed() {
    let same = [
        (json!({}), "true"),
        (json!({"a": 5}), "a = 5"),
        (json!({"a": "x", "b": true}), "a = 'x' and b = true"),
        (json!({"a": null}), "a is null"),
        (json!({"a": {"$ne": null}}), "a is not null"),
        (json!({"a": {"$gte": 1, "$lt": 2.5}}), "a >= 1 and a < 2.5"),
        (json!({"a": {"$in": [1, 2]}}), "a in (1, 2)"),
        (json!({"a": {"$nin": ["x"]}}), "a not in ('x')"),
        (json!({"a": {"$exists": true}}), "exists(a)"),
        (json!({"a": {"$exists": false}}), "a is null"),
        (json!({"a": {"$prefix": "x"}}), "starts_with(a, 'x')"),
        (json!({"a": {"$startsWith": "x"}}), "starts_with(a, 'x')"),
        (json!({"a": {"$contains": 1}}), "contains(a, 1)"),
        (json!({"a": {"$containsAny": [1, 2]}}), "contains_any(a, (1, 2))"),
        (json!({"a": {"$containsAll": [1]}}), "contains_all(a, (1))"),
        (json!({"a": {"$between": [1, 2]}}), "a between 1 and 2"),
        (json!({"a": {"$not": {"$gt": 1}}}), "not a > 1"),
        (json!({"$not": {"a": 1, "b": 2}}), "not (a = 1 and b = 2)"),
        (json!({"$or": [{"a": 1}, {"b": 2, "c": 3}]}), "a = 1 or b = 2 and c = 3"),
        (json!({"$and": [{"a": 1}]}), "a = 1"),
        (json!({"a b": u64::MAX}), "\"a b\" = 18446744073709551615"),
        (json!({"a": i64::MIN}), "a = -9223372036854775808"),
    ];
    for (value, words) in same {
        assert_eq!(Filter::from_json(&value).unwrap(), Filter::parse(words).unwrap(), "{value}");
    }
}

#[test]
fn objects_without_conditions_are_distinguished_from_true() {
    for empty in
        [json!({}), json!({"$and": [{}]}), json!({"$or": [{"a": 1}, {}]}), json!({"$not": {"$not": {}}})]
    {
        assert!(Filter::from_json(&empty).unwrap().is_empty(), "{empty}");
    }
    assert!(!Filter::from_json(&json!({"$or": [{"a": 1}, {"b": null}]})).unwrap().is_empty());
    assert!(!Filter::parse("true").unwrap().is_empty());
    assert_eq!(Filter::parse("true").unwrap(), Filter::from_json(&json!({})).unwrap());
}

#[test]
fn json_errors_contain_the_path() {
    let cases = [
        (json!([]), "the filter: expected an object, found a list"),
        (json!({"$nor": []}), "$nor: there is no operator $nor here; there are $and, $or, $not"),
        (json!({"year": {"$gtr": 1}}), "year.$gtr: there is no operator $gtr; there are $eq, $ne, $gt,"),
        (
            json!({"$and": [{"a": 1}, {"b": {"$lt": [1]}}]}),
            "$and[1].b.$lt: expected a number, a string, true or false, found a list",
        ),
        (json!({"$or": {}}), "$or: expected a list of filters, found an object"),
        (json!({"$or": []}), "$or: the list of filters is empty"),
        (json!({"$and": [1]}), "$and[0]: expected an object, found a number"),
        (json!({"a": {}}), "a: there is no operator"),
        (json!({"a": [1]}), "a: found a list; write {\"$in\""),
        (json!({"a": {"$in": 1}}), "a.$in: expected a list of values, found a number"),
        (
            json!({"a": {"$in": [1, null]}}),
            "a.$in[1]: expected a number, a string, true or false, found null",
        ),
        (json!({"a": {"$exists": 1}}), "a.$exists: expected true or false, found a number"),
        (json!({"a": {"$prefix": 1}}), "a.$prefix: expected a string, found a number"),
        (json!({"a": {"$between": [1]}}), "a.$between: expected a list of two values"),
        (json!({"a": {"$not": 1}}), "a.$not: expected operators, found a number"),
    ];
    for (value, message) in cases {
        let error = Filter::from_json(&value).expect_err("{value}");
        assert!(error.message.starts_with(message), "{value}: {error}");
        assert_eq!(error.to_string().lines().count(), 1);
    }
    for wrap in [|inner: Value| json!({"$not": inner}), |inner: Value| json!({"$and": [{"a": 1}, inner]})] {
        let deep = |depth: usize| (0..depth).fold(json!({"a": 1}), |inner, _| wrap(inner));
        let filter = Filter::from_json(&deep(MAX_DEPTH)).unwrap();
        assert_eq!(Filter::parse(&filter.to_string()).unwrap(), filter);
        for depth in [MAX_DEPTH + 1, 1000] {
            assert!(Filter::from_json(&deep(depth)).unwrap_err().message.contains("nested"));
        }
    }
    let inner = (0..1000).fold(json!({"$gt": 1}), |inner, _| json!({"$not": inner}));
    assert!(Filter::from_json(&json!({"a": inner})).unwrap_err().message.contains("nested"));
    assert!(Filter::from_json(&json!({"a": {"$in": vec![1; MAX_LITERALS + 1]}})).is_err());
    assert!(Filter::from_json(&json!({"a": {"$in": vec![1; MAX_LITERALS]}})).is_ok());
}

#[test]
fn columns_and_types_are_checked() {
    let schema = schema(
        IdKind::Number,
        &[
            ("year", "int32"),
            ("lang", "string"),
            ("tags", "list<string>"),
            ("day", "date"),
            ("at", "timestamp"),
            ("old", "bool"),
        ],
    );
    let cases = [
        (
            "yaer = 1",
            "there is no column \"yaer\"; there is year, lang, tags, day, at, old, and the ids are \"id\"",
        ),
        ("vector = 1", "there is no column \"vector\""),
        ("Year = 1", "there is no column \"Year\""),
        ("year = '1'", "column year: it is compared with a number, not with '1'"),
        ("year", "column year: it is compared with a number, not with true"),
        ("year in (1, 'x')", "with a number, not with 'x'"),
        ("lang = 1", "column lang: it is compared with a string in single quotes, not with 1"),
        ("old = 1", "with true or false, not with 1"),
        ("starts_with(year, 'x')", "column year: only strings begin with a string"),
        ("starts_with(tags, 'x')", "column tags: it holds lists"),
        ("tags < 'x'", "column tags: it holds lists"),
        ("tags between 'a' and 'b'", "column tags: it holds lists"),
        ("contains(tags, 1)", "column tags: of its elements: it is compared with a string"),
        ("contains(lang, 'x')", "column lang: it holds single values"),
        ("day = 1", "with a date, such as"),
        ("day = '2024-13-01'", "\"2024-13-01\" is no date or time"),
        ("day = ''", "is no date or time"),
        ("at > 1700000000", "with a time, such as"),
        ("at > 'yesterday'", "is no date or time"),
        ("id = 'x'", "column id: it is compared with a number"),
        ("starts_with(id, 'x')", "only strings begin with"),
    ];
    for (words, message) in cases {
        let error = Filter::parse(words).unwrap().bind(&schema).expect_err(words);
        let CollectionError::Filter(text) = error else { panic!("{words}: {error:?}") };
        assert!(text.contains(message), "{words}: {text}");
    }
}
