//! Reference implementation of filters: interprets one condition for one row at a time.

use super::super::expression::{Comparison, Contains, Expression, Literal};
use std::cmp::Ordering;

/// A value of a row.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cell {
    Null,
    Bool(bool),
    Whole(i128),
    Float32(f32),
    Float64(f64),
    Text(String),
    /// Days since 1970.
    Date(i32),
    /// Microseconds since 1970.
    Timestamp(i64),
    List(Vec<Cell>),
}

/// Dates and times as text, and in nanoseconds since 1970.
pub(super) const TIMES: [(&str, i128); 9] = [
    ("1970-01-01", 0),
    ("1969-12-31", -86_400_000_000_000),
    ("1970-01-02", 86_400_000_000_000),
    ("1970-01-01T00:00:00.000001Z", 1000),
    ("1970-01-01T00:00:00.0000005Z", 500),
    ("1970-01-01 12:00:00", 43_200_000_000_000),
    ("1969-12-31T23:59:59.9999999", -100),
    ("1970-01-01T01:00:00+01:00", 0),
    ("2024-02-29T23:59:59.5Z", 1_709_251_199_500_000_000),
];

fn nanos(text: &str) -> i128 {
    TIMES.iter().find(|(words, _)| *words == text).unwrap().1
}

/// Compares a float with a whole number.
fn float_to_whole(float: f64, whole: i128) -> Option<Ordering> {
    if float.is_nan() {
        return None;
    }
    let below = float.floor();
    let part = if below < float { Ordering::Greater } else { Ordering::Equal };
    Some((below as i128).cmp(&whole).then(part))
}

/// Compares a value with a literal; `None` for NaN.
fn order(cell: &Cell, literal: &Literal) -> Option<Ordering> {
    match (cell, literal) {
        (Cell::Bool(one), Literal::Bool(two)) => Some(one.cmp(two)),
        (Cell::Whole(one), Literal::Whole(two)) => Some(one.cmp(two)),
        (Cell::Whole(one), Literal::Fraction(two)) => float_to_whole(*two, *one).map(Ordering::reverse),
        (Cell::Float32(one), Literal::Whole(two)) => float_to_whole(f64::from(*one), *two),
        (Cell::Float32(one), Literal::Fraction(two)) if (*two as f32).is_infinite() => {
            f64::from(*one).partial_cmp(two)
        }
        (Cell::Float32(one), Literal::Fraction(two)) => one.partial_cmp(&(*two as f32)),
        (Cell::Float64(one), Literal::Whole(two)) => float_to_whole(*one, *two),
        (Cell::Float64(one), Literal::Fraction(two)) => one.partial_cmp(two),
        (Cell::Text(one), Literal::Text(two)) => Some(one.as_bytes().cmp(two.as_bytes())),
        (Cell::Date(days), Literal::Text(text)) => {
            Some((i128::from(*days) * 86_400_000_000_000).cmp(&nanos(text)))
        }
        (Cell::Timestamp(micros), Literal::Text(text)) => {
            Some((i128::from(*micros) * 1000).cmp(&nanos(text)))
        }
        pair => panic!("{pair:?} are not compared"),
    }
}

fn compares(cell: &Cell, comparison: Comparison, literal: &Literal) -> bool {
    let order = order(cell, literal);
    match comparison {
        Comparison::Equal => order == Some(Ordering::Equal),
        Comparison::NotEqual => order != Some(Ordering::Equal),
        Comparison::Less => order == Some(Ordering::Less),
        Comparison::LessOrEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        Comparison::Greater => order == Some(Ordering::Greater),
        Comparison::GreaterOrEqual => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
    }
}

fn has(elements: &[Cell], literal: &Literal) -> bool {
    elements.iter().any(|element| *element != Cell::Null && compares(element, Comparison::Equal, literal))
}

/// Returns whether a row with these values matches; `None` if that is unknown.
pub(super) fn truth(expression: &Expression, row: &dyn Fn(&str) -> Cell) -> Option<bool> {
    let test_value = |name: &str, test: &dyn Fn(Cell) -> bool| match row(name) {
        Cell::Null => None,
        cell => Some(test(cell)),
    };
    let listed = |cell: Cell, literal: &Literal| match cell {
        Cell::List(elements) => has(&elements, literal),
        cell => compares(&cell, Comparison::Equal, literal),
    };
    match expression {
        Expression::Constant(value) => Some(*value),
        Expression::Flag(name) => test_value(name, &|cell| cell == Cell::Bool(true)),
        Expression::Compare(name, Comparison::Equal, literal) => {
            test_value(name, &|cell| listed(cell, literal))
        }
        Expression::Compare(name, Comparison::NotEqual, literal) => {
            test_value(name, &|cell| !listed(cell, literal))
        }
        Expression::Compare(name, comparison, literal) => {
            test_value(name, &|cell| compares(&cell, *comparison, literal))
        }
        Expression::In(name, literals) => {
            test_value(name, &|cell| literals.iter().any(|literal| listed(cell.clone(), literal)))
        }
        Expression::Between(name, low, high) => test_value(name, &|cell| {
            compares(&cell, Comparison::GreaterOrEqual, low) && compares(&cell, Comparison::LessOrEqual, high)
        }),
        Expression::IsNull(name) => Some(row(name) == Cell::Null),
        Expression::StartsWith(name, prefix) => {
            test_value(name, &|cell| matches!(cell, Cell::Text(text) if text.starts_with(prefix.as_str())))
        }
        Expression::Contains(name, which, literals) => test_value(name, &|cell| {
            let Cell::List(elements) = cell else { panic!("{name} holds no lists") };
            match which {
                Contains::Any => literals.iter().any(|literal| has(&elements, literal)),
                Contains::All => literals.iter().all(|literal| has(&elements, literal)),
            }
        }),
        Expression::And(parts) => {
            let truths: Vec<_> = parts.iter().map(|part| truth(part, row)).collect();
            if truths.contains(&Some(false)) {
                Some(false)
            } else if truths.contains(&None) {
                None
            } else {
                Some(true)
            }
        }
        Expression::Or(parts) => {
            let truths: Vec<_> = parts.iter().map(|part| truth(part, row)).collect();
            if truths.contains(&Some(true)) {
                Some(true)
            } else if truths.contains(&None) {
                None
            } else {
                Some(false)
            }
        }
        Expression::Not(inner) => truth(inner, row).map(|value| !value),
    }
}
