//! Random filters over random rows.

use super::super::Filter;
use super::super::expression::{Comparison, Contains, Expression, Literal};
use super::interpreter::truth;
use super::making::{RandomRows, expression, rows};
use super::{every_type, matches, schema};
use crate::ids::IdKind;
use crate::schema::Schema;
use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::sync::Arc;

fn filter(expression: &Expression) -> Filter {
    Filter { expression: Arc::new(expression.clone()), empty: false }
}

fn canonical(expression: &Expression, schema: &Schema) -> String {
    filter(expression).bind(schema).unwrap().canonical().to_string()
}

fn expected(expression: &Expression, random_rows: &RandomRows) -> Vec<bool> {
    let row = |row| truth(expression, &|name| random_rows.cell(name, row)) == Some(true);
    (0..random_rows.batch.num_rows()).map(row).collect()
}

/// Returns an equivalent expression that is written in another way.
fn rewritten(expression: &Expression, random: &mut SmallRng) -> Expression {
    let again = |part: &Expression, random: &mut SmallRng| rewritten(part, random);
    let parts = |parts: &[Expression], random: &mut SmallRng| {
        let twice = parts.choose(random).into_iter();
        let mut parts: Vec<Expression> = parts.iter().chain(twice).map(|part| again(part, random)).collect();
        parts.shuffle(random);
        parts
    };
    let negated = |parts: Vec<Expression>| parts.into_iter().map(Expression::not).collect();
    let equal = |name: &str, literal: &Literal| {
        Expression::Compare(name.to_string(), Comparison::Equal, literal.clone())
    };
    let other = match expression {
        Expression::And(inner) => match random.random_range(0..3) {
            0 => Expression::not(Expression::Or(negated(parts(inner, random)))),
            1 => {
                let mut parts = parts(inner, random);
                let rest = parts.split_off(1);
                Expression::And(vec![Expression::And(rest), parts.remove(0)])
            }
            _ => Expression::And(parts(inner, random)),
        },
        Expression::Or(inner) => match random.random_range(0..3) {
            0 => Expression::not(Expression::And(negated(parts(inner, random)))),
            1 => {
                let mut parts = parts(inner, random);
                let rest = parts.split_off(1);
                Expression::Or(vec![Expression::Or(rest), parts.remove(0)])
            }
            _ => Expression::Or(parts(inner, random)),
        },
        Expression::Not(inner) => Expression::not(again(inner, random)),
        Expression::Compare(name, Comparison::Equal, literal) => {
            Expression::In(name.clone(), vec![literal.clone(), literal.clone()])
        }
        Expression::Compare(name, Comparison::NotEqual, literal) => Expression::not(equal(name, literal)),
        Expression::Compare(name, Comparison::Less, literal) if !name.starts_with("float") => {
            Expression::not(Expression::Compare(name.clone(), Comparison::GreaterOrEqual, literal.clone()))
        }
        Expression::Compare(name, Comparison::Greater, literal) if !name.starts_with("float") => {
            Expression::not(Expression::Compare(name.clone(), Comparison::LessOrEqual, literal.clone()))
        }
        Expression::In(name, literals) => {
            let mut parts: Vec<Expression> = literals.iter().map(|literal| equal(name, literal)).collect();
            parts.shuffle(random);
            if parts.is_empty() { expression.clone() } else { Expression::Or(parts) }
        }
        Expression::Between(name, low, high) => Expression::And(vec![
            Expression::Compare(name.clone(), Comparison::LessOrEqual, high.clone()),
            Expression::Compare(name.clone(), Comparison::GreaterOrEqual, low.clone()),
        ]),
        Expression::Flag(name) => equal(name, &Literal::Bool(true)),
        Expression::Contains(name, which, literals) if !literals.is_empty() => {
            let one =
                |literal: &Literal| Expression::Contains(name.clone(), Contains::Any, vec![literal.clone()]);
            let mut parts: Vec<Expression> = literals.iter().map(one).collect();
            parts.shuffle(random);
            if *which == Contains::Any { Expression::Or(parts) } else { Expression::And(parts) }
        }
        other => other.clone(),
    };
    if random.random_bool(0.2) { Expression::not(Expression::not(other)) } else { other }
}

/// Returns the expression in JSON.
fn in_json(expression: &Expression) -> Value {
    let literal = |literal: &Literal| match literal {
        Literal::Bool(value) => json!(value),
        Literal::Whole(value) if *value < 0 => json!(*value as i64),
        Literal::Whole(value) => json!(*value as u64),
        Literal::Fraction(value) => json!(value),
        Literal::Text(text) => json!(text),
    };
    let all = |literals: &[Literal]| -> Value { literals.iter().map(literal).collect() };
    match expression {
        Expression::Constant(true) => json!({}),
        Expression::Constant(false) => json!({"$not": {}}),
        Expression::Flag(name) => json!({name: true}),
        Expression::Compare(name, comparison, value) => {
            let operator = match comparison {
                Comparison::Equal => "$eq",
                Comparison::NotEqual => "$ne",
                Comparison::Less => "$lt",
                Comparison::LessOrEqual => "$lte",
                Comparison::Greater => "$gt",
                Comparison::GreaterOrEqual => "$gte",
            };
            json!({name: {operator: literal(value)}})
        }
        Expression::In(name, literals) => json!({name: {"$in": all(literals)}}),
        Expression::Between(name, low, high) => json!({name: {"$between": [literal(low), literal(high)]}}),
        Expression::IsNull(name) => json!({name: {"$exists": false}}),
        Expression::StartsWith(name, prefix) => json!({name: {"$prefix": prefix}}),
        Expression::Contains(name, Contains::Any, literals) => json!({name: {"$containsAny": all(literals)}}),
        Expression::Contains(name, Contains::All, literals) => json!({name: {"$containsAll": all(literals)}}),
        Expression::And(parts) => json!({"$and": parts.iter().map(in_json).collect::<Value>()}),
        Expression::Or(parts) => json!({"$or": parts.iter().map(in_json).collect::<Value>()}),
        Expression::Not(inner) => json!({"$not": in_json(inner)}),
    }
}

fn kind(random: &mut SmallRng) -> IdKind {
    if random.random() { IdKind::Number } else { IdKind::Text }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1500,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn batches_match_like_the_interpreter(seed: u64) {
        let random = &mut SmallRng::seed_from_u64(seed);
        let id_kind = kind(random);
        let schema = every_type(id_kind);
        let count = *[0, 1, 7, 64, 65, 130].choose(random).unwrap();
        let random_rows = rows(&schema, count, random);
        for _ in 0..8 {
            let expression = expression(id_kind, random);
            let bound = filter(&expression).bind(&schema).unwrap();
            let found = matches(&bound, &random_rows.batch);
            let expected = expected(&expression, &random_rows);
            prop_assert_eq!(&found, &expected, "{} as {}", expression, bound.canonical());
            // A slice of the rows, whose arrays do not begin at a whole byte.
            let first = random.random_range(0..=count);
            let length = random.random_range(0..=count - first);
            let part = matches(&bound, &random_rows.batch.slice(first, length));
            prop_assert_eq!(&part[..], &expected[first..first + length], "{} in a part", expression);
            if let Some(constant) = bound.constant() {
                prop_assert!(expected.iter().all(|matches| *matches == constant), "{}", expression);
            }
            // Columns other than those it names are not needed.
            let mut needed = bound.columns().iter().map(|column| column + 1).collect::<Vec<_>>();
            if bound.needs_ids() {
                needed.push(0);
            }
            prop_assert_eq!(matches(&bound, &random_rows.batch.project(&needed).unwrap()), expected);
        }
    }

    #[test]
    fn equivalent_filters_have_the_same_canonical_text(seed: u64) {
        let random = &mut SmallRng::seed_from_u64(seed);
        let schema = every_type(IdKind::Number);
        let expression = expression(IdKind::Number, random);
        let mut other = expression.clone();
        for _ in 0..3 {
            if other.depth() > 30 {
                break;
            }
            other = rewritten(&other, random);
            let canonical = |expression| canonical(expression, &schema);
            prop_assert_eq!(canonical(&expression), canonical(&other), "{} and {}", expression, other);
        }
    }

    #[test]
    fn filters_with_the_same_canonical_text_match_the_same_rows(seed: u64) {
        let random = &mut SmallRng::seed_from_u64(seed);
        let schema = every_type(IdKind::Text);
        let random_rows = rows(&schema, 40, random);
        let mut seen = std::collections::HashMap::new();
        for _ in 0..60 {
            let expression = expression(IdKind::Text, random);
            let expected = expected(&expression, &random_rows);
            let before = seen.insert(canonical(&expression, &schema), expected.clone());
            prop_assert!(before.is_none_or(|before| before == expected), "{}", expression);
        }
    }

    #[test]
    fn displayed_filters_parse_to_the_same_filter(seed: u64) {
        let random = &mut SmallRng::seed_from_u64(seed);
        let expression = expression(IdKind::Number, random);
        let words = filter(&expression).to_string();
        let read = Filter::parse(&words).unwrap();
        prop_assert_eq!(&read, &filter(&expression), "{}", words);
        prop_assert_eq!(read.to_string(), words);
    }

    #[test]
    fn json_is_equivalent_to_text(seed: u64) {
        let random = &mut SmallRng::seed_from_u64(seed);
        let schema = every_type(IdKind::Number);
        let expression = expression(IdKind::Number, random);
        // The JSON goes through its text, as a request would.
        let value: Value = serde_json::from_str(&in_json(&expression).to_string()).unwrap();
        let json = Filter::from_json(&value).unwrap();
        prop_assert_eq!(canonical(&json.expression, &schema), canonical(&expression, &schema), "{}", value);
        prop_assert_eq!(&Filter::parse(&json.to_string()).unwrap(), &json);
    }

    #[test]
    fn a_filter_that_does_not_fit_is_found_by_its_text(seed in any::<u64>()) {
        let text = expression(IdKind::Number, &mut SmallRng::seed_from_u64(seed)).to_string();
        let few = schema(IdKind::Text, &[("int8", "string"), ("int64s", "list<bool>"), ("bool", "bool")]);
        let bound = Filter::parse(&text).unwrap().bind(&few);
        match Filter::check(&text, &few) {
            Ok(()) => prop_assert!(bound.is_ok(), "{}", text),
            Err(error) => {
                prop_assert_eq!(&bound.unwrap_err().to_string(), &error.message);
                let rest: String = text.chars().skip(error.position.unwrap()).collect();
                let name = rest.trim_start_matches(['"', '`']).split(|c: char| !c.is_alphanumeric()).next();
                prop_assert!(error.message.contains(name.unwrap()), "{}: {}", text, error.message);
            }
        }
    }

    #[test]
    fn any_text_parses_or_gives_an_error(
        text in "([a-z_(),'\"`!=<>&|.%0-9 \\-]|and|or|not|in|is|null|\\PC){0,40}",
    ) {
        // The text parses, and displays as text that parses to the same; or the error can be displayed.
        match Filter::parse(&text) {
            Ok(filter) => prop_assert_eq!(&Filter::parse(&filter.to_string()).unwrap(), &filter),
            Err(error) => {
                prop_assert!(error.position.unwrap() <= text.chars().count());
                prop_assert_eq!(error.to_string().lines().count(), 3);
            }
        }
    }

    #[test]
    fn any_date_parses_or_gives_an_error(
        text in "(\\PC{0,12}|[0-9]{4}-[0-9]{2}-[0-9]{2}[T ]?[0-9:.\u{e9}]{0,14}[Z+\\-]?[0-9:]{0,6})",
    ) {
        let schema = every_type(IdKind::Number);
        for name in ["date", "timestamp"] {
            let compare = Expression::Compare(name.into(), Comparison::Less, Literal::Text(text.clone()));
            // The result may be a date or an error.
            let _ = filter(&compare).bind(&schema);
        }
    }
}
