//! Random conditions: as the text of a filter, and evaluated row by row.

use crate::model::cases::{Case, Row, Value};
use bathyal_collection::{Filter, Id};
use rand::Rng;
use rand::rngs::StdRng;
use std::cmp::Ordering;

/// A condition on rows.
#[derive(Debug, Clone)]
pub enum Condition {
    /// Compares the value of a column with another value.
    Compare(usize, Comparison, Value),
    In(usize, Vec<Value>),
    Null(usize),
    Prefix(usize, String),
    Contains(usize, String),
    Id(Comparison, Id),
    IdIn(Vec<Id>),
    Not(Box<Condition>),
    And(Vec<Condition>),
    Or(Vec<Condition>),
}

#[derive(Debug, Clone, Copy)]
pub enum Comparison {
    Less,
    AtMost,
    Equal,
    Other,
    AtLeast,
    More,
}

const COMPARISONS: [(Comparison, &str); 6] = [
    (Comparison::Less, "<"),
    (Comparison::AtMost, "<="),
    (Comparison::Equal, "="),
    (Comparison::Other, "!="),
    (Comparison::AtLeast, ">="),
    (Comparison::More, ">"),
];

impl Comparison {
    fn holds(self, order: Ordering) -> bool {
        match self {
            Comparison::Less => order.is_lt(),
            Comparison::AtMost => order.is_le(),
            Comparison::Equal => order.is_eq(),
            Comparison::Other => order.is_ne(),
            Comparison::AtLeast => order.is_ge(),
            Comparison::More => order.is_gt(),
        }
    }

    fn text(self) -> &'static str {
        COMPARISONS[self as usize].1
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn literal(value: &Value) -> String {
    match value {
        Value::Whole(whole) => whole.to_string(),
        Value::Real(real) => format!("{real:?}"),
        Value::Truth(truth) => truth.to_string(),
        Value::Text(text) => quoted(text),
        other => unreachable!("no condition has {other:?}"),
    }
}

fn id_literal(id: &Id) -> String {
    match id {
        Id::Number(number) => number.to_string(),
        Id::Text(text) => quoted(text),
    }
}

/// Compares two values of one type; `None` if either is null.
fn compare(one: &Value, other: &Value) -> Option<Ordering> {
    match (one, other) {
        (Value::Null, _) | (_, Value::Null) => None,
        (Value::Whole(one), Value::Whole(other)) => Some(one.cmp(other)),
        (Value::Truth(one), Value::Truth(other)) => Some(one.cmp(other)),
        (Value::Real(one), Value::Real(other)) => one.partial_cmp(other),
        (Value::Text(one), Value::Text(other)) => Some(one.as_bytes().cmp(other.as_bytes())),
        other => unreachable!("no condition compares {other:?}"),
    }
}

impl Condition {
    /// Returns a random condition on the rows of a case, nested at most `depth` deep.
    pub fn random(case: &Case, depth: usize, random: &mut StdRng) -> Condition {
        let nested = |random: &mut StdRng| Condition::random(case, depth - 1, random);
        if depth > 0 && random.random_range(0..2) == 0 {
            return match random.random_range(0..4) {
                0 => Condition::Not(Box::new(nested(random))),
                1 => Condition::Or((0..random.random_range(2..4)).map(|_| nested(random)).collect()),
                _ => Condition::And((0..random.random_range(2..4)).map(|_| nested(random)).collect()),
            };
        }
        let comparison = COMPARISONS[random.random_range(0..COMPARISONS.len())].0;
        let columns = case.schema.columns.len();
        if columns == 0 || random.random_range(0..8) == 0 {
            return match random.random() {
                true => Condition::Id(comparison, case.any_id(random)),
                false => {
                    Condition::IdIn((0..random.random_range(1..12)).map(|_| case.any_id(random)).collect())
                }
            };
        }
        let column = random.random_range(0..columns);
        let name = case.schema.columns[column].kind.to_string();
        let value = |random: &mut StdRng| {
            loop {
                let value = case.value(column, random);
                if value != Value::Null {
                    return value;
                }
            }
        };
        match (name.as_str(), random.random_range(0..5)) {
            (_, 0) => Condition::Null(column),
            ("list<string>", _) => {
                Condition::Contains(column, ["de", "en", "", "it"][random.random_range(0..4)].into())
            }
            ("list<int64>" | "timestamp", _) => Condition::Null(column),
            ("string", 1) => {
                Condition::Prefix(column, ["d", "de", "", "x"][random.random_range(0..4)].into())
            }
            ("bool", _) => Condition::Compare(column, Comparison::Equal, value(random)),
            (_, 1 | 2) => {
                Condition::In(column, (0..random.random_range(1..5)).map(|_| value(random)).collect())
            }
            _ => Condition::Compare(column, comparison, value(random)),
        }
    }

    /// Returns the condition as a user would write it.
    pub fn text(&self, case: &Case) -> String {
        let name = |column: &usize| &case.schema.columns[*column].name;
        let list = |all: Vec<String>| all.join(", ");
        let joined = |all: &[Condition], word: &str| {
            all.iter().map(|one| format!("({})", one.text(case))).collect::<Vec<_>>().join(word)
        };
        match self {
            Condition::Compare(column, comparison, value) => {
                format!("{} {} {}", name(column), comparison.text(), literal(value))
            }
            Condition::In(column, values) => {
                format!("{} in ({})", name(column), list(values.iter().map(literal).collect()))
            }
            Condition::Null(column) => format!("{} is null", name(column)),
            Condition::Prefix(column, text) => format!("starts_with({}, {})", name(column), quoted(text)),
            Condition::Contains(column, text) => format!("contains({}, {})", name(column), quoted(text)),
            Condition::Id(comparison, id) => format!("id {} {}", comparison.text(), id_literal(id)),
            Condition::IdIn(ids) => format!("id in ({})", list(ids.iter().map(id_literal).collect())),
            Condition::Not(condition) => format!("not ({})", condition.text(case)),
            Condition::And(all) => joined(all, " and "),
            Condition::Or(all) => joined(all, " or "),
        }
    }

    /// Returns the condition as a filter.
    pub fn filter(&self, case: &Case) -> Filter {
        let text = self.text(case);
        Filter::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// Returns true if a row matches; an unknown condition does not match.
    pub fn matches(&self, id: &Id, row: &Row) -> bool {
        self.holds(id, row) == Some(true)
    }

    fn holds(&self, id: &Id, row: &Row) -> Option<bool> {
        match self {
            Condition::Compare(column, comparison, value) => {
                compare(&row.values[*column], value).map(|order| comparison.holds(order))
            }
            Condition::In(column, values) => {
                let row_value = &row.values[*column];
                (*row_value != Value::Null)
                    .then(|| values.iter().any(|value| compare(row_value, value) == Some(Ordering::Equal)))
            }
            Condition::Null(column) => Some(row.values[*column] == Value::Null),
            Condition::Prefix(column, prefix) => match &row.values[*column] {
                Value::Text(text) => Some(text.starts_with(prefix.as_str())),
                _ => None,
            },
            Condition::Contains(column, text) => match &row.values[*column] {
                Value::Texts(texts) => Some(texts.contains(text)),
                _ => None,
            },
            Condition::Id(comparison, other) => Some(comparison.holds(id.cmp(other))),
            Condition::IdIn(ids) => Some(ids.contains(id)),
            Condition::Not(condition) => condition.holds(id, row).map(|holds| !holds),
            Condition::And(all) => {
                let all: Vec<Option<bool>> = all.iter().map(|one| one.holds(id, row)).collect();
                if all.contains(&Some(false)) { Some(false) } else { (!all.contains(&None)).then_some(true) }
            }
            Condition::Or(all) => {
                let all: Vec<Option<bool>> = all.iter().map(|one| one.holds(id, row)).collect();
                if all.contains(&Some(true)) { Some(true) } else { (!all.contains(&None)).then_some(false) }
            }
        }
    }
}
