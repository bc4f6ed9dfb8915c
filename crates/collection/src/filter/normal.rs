//! The normal form of a filter that is bound to a schema.
//!
//! Negations are moved into the conditions. Conditions are joined only by "and" and "or", so that "unknown"
//! and "false" need not be distinguished: a condition holds for a row, or it does not. Conditions on the same
//! column at the same place are merged into one set of values, in which null and NaN are separate values.
//! Operands are sorted and unique.

use super::domain::Values;
use std::collections::BTreeMap;

/// The values that a condition is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    /// The ids.
    Ids,
    /// A column of the schema, by its number.
    Column(usize),
    /// A key of a column of JSON: the number of the column, and the path of the key.
    Key(usize, String),
}

impl Source {
    /// Returns the number of the column of the schema; `None` for the ids.
    pub(super) fn column(&self) -> Option<usize> {
        match self {
            Source::Ids => None,
            Source::Column(number) | Source::Key(number, _) => Some(*number),
        }
    }
}

/// A filter in normal form.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Normal {
    Constant(bool),
    /// True if the value of the column is in the set.
    Single(Source, ValueSet),
    /// True if the list passes the test.
    List(Source, ListTest),
    All(Vec<Normal>),
    Any(Vec<Normal>),
}

/// A set of values of a column.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ValueSet {
    pub(super) values: Values,
    /// True if NaN is in the set; `None` if the type has no NaN.
    pub(super) nan: Option<bool>,
    /// True if null is in the set; `None` if the column has no nulls.
    pub(super) null: Option<bool>,
}

/// A test of a list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ListTest {
    Null,
    NotNull,
    /// The list has an element in the set.
    Has(Values),
    /// The list is not null and has no element in the set.
    Lacks(Values),
}

impl ValueSet {
    /// Returns the complement. Null is in neither set: a comparison with null is unknown, and so is its
    /// negation.
    pub(super) fn negated(self) -> ValueSet {
        ValueSet { values: self.values.complement(), nan: self.nan.map(|nan| !nan), null: self.null }
    }

    fn is_all(&self) -> bool {
        self.values.is_all() && self.nan != Some(false) && self.null != Some(false)
    }

    fn is_empty(&self) -> bool {
        self.values.is_empty() && self.nan != Some(true) && self.null != Some(true)
    }

    fn join(all: bool, sets: Vec<ValueSet>) -> ValueSet {
        let join = |one: bool, two: bool| if all { one && two } else { one || two };
        let nan = sets.iter().filter_map(|set| set.nan).reduce(join);
        let null = sets.iter().filter_map(|set| set.null).reduce(join);
        let values = sets.into_iter().map(|set| set.values).collect();
        ValueSet { values: Values::join(all, values), nan, null }
    }
}

impl Normal {
    /// Returns a condition on a column of single values.
    pub(super) fn single(source: Source, set: ValueSet) -> Normal {
        if set.is_all() {
            Normal::Constant(true)
        } else if set.is_empty() {
            Normal::Constant(false)
        } else {
            Normal::Single(source, set)
        }
    }

    /// Returns a condition on a column of lists.
    pub(super) fn list(source: Source, test: ListTest) -> Normal {
        match test {
            ListTest::Has(values) if values.is_empty() => Normal::Constant(false),
            ListTest::Lacks(values) if values.is_empty() => Normal::List(source, ListTest::NotNull),
            test => Normal::List(source, test),
        }
    }

    /// Joins filters by "and" (`all`) or "or".
    pub(super) fn join(all: bool, parts: Vec<Normal>) -> Normal {
        let mut columns = ColumnConditions::default();
        let mut joined = Vec::new();
        for part in parts {
            match part {
                Normal::All(inner) if all => {
                    inner.into_iter().for_each(|part| columns.add(part, &mut joined))
                }
                Normal::Any(inner) if !all => {
                    inner.into_iter().for_each(|part| columns.add(part, &mut joined))
                }
                part => columns.add(part, &mut joined),
            }
        }
        for (source, sets) in columns.sets {
            joined.push(Normal::single(source, ValueSet::join(all, sets)));
        }
        for (source, tests) in columns.lists {
            join_tests(all, source, tests, &mut joined);
        }
        // One constant has no effect, and the other one decides alone.
        joined.retain(|part| *part != Normal::Constant(all));
        if joined.contains(&Normal::Constant(!all)) {
            return Normal::Constant(!all);
        }
        joined.sort_unstable();
        joined.dedup();
        match joined.pop() {
            None => Normal::Constant(all),
            Some(only) if joined.is_empty() => only,
            Some(last) => {
                joined.push(last);
                if all { Normal::All(joined) } else { Normal::Any(joined) }
            }
        }
    }
}

/// Conditions, grouped by column.
#[derive(Default)]
struct ColumnConditions {
    sets: BTreeMap<Source, Vec<ValueSet>>,
    lists: BTreeMap<Source, Vec<ListTest>>,
}

impl ColumnConditions {
    /// Adds a condition on a column to its group, and anything else to `others`.
    fn add(&mut self, part: Normal, others: &mut Vec<Normal>) {
        match part {
            Normal::Single(source, set) => self.sets.entry(source).or_default().push(set),
            Normal::List(source, test) => self.lists.entry(source).or_default().push(test),
            other => others.push(other),
        }
    }
}

/// Joins the tests of one column of lists.
fn join_tests(all: bool, source: Source, tests: Vec<ListTest>, joined: &mut Vec<Normal>) {
    let null = tests.contains(&ListTest::Null);
    let not_null = tests.contains(&ListTest::NotNull);
    let (mut merged, mut separate) = (Vec::new(), Vec::new());
    for test in tests {
        match test {
            // Having an element in one set or another means having one in their union; the same is true for
            // having none.
            ListTest::Has(values) if !all => merged.push(values),
            ListTest::Lacks(values) if all => merged.push(values),
            ListTest::Null | ListTest::NotNull => {}
            other => separate.push(other),
        }
    }
    if !merged.is_empty() {
        let values = Values::join(false, merged);
        separate.push(if all { ListTest::Lacks(values) } else { ListTest::Has(values) });
    }
    // A list that passes a test of elements is not null.
    let has_separate = !separate.is_empty();
    match (all, null, not_null) {
        (true, true, not_null) if not_null || has_separate => return joined.push(Normal::Constant(false)),
        (false, true, true) => return joined.push(Normal::Constant(true)),
        (false, false, true) => separate.clear(),
        _ => {}
    }
    if null {
        separate.push(ListTest::Null);
    } else if not_null && (!all || !has_separate) {
        separate.push(ListTest::NotNull);
    }
    joined.extend(separate.into_iter().map(|test| Normal::list(source.clone(), test)));
}
