//! The normal form of a filter that is bound to a schema.
//!
//! Negations are moved to the conditions. What is left is joined by "and" and "or" alone, so that "unknown" and "false" need not be
//! told apart: a condition holds of a row, or it does not. All that is said about one column in one place becomes one set of values;
//! null and NaN are values of their own there. Operands are in order, and none is there twice.

use super::domain::Values;
use std::collections::BTreeMap;

/// A column of the schema; `None` are the ids.
pub(super) type Source = Option<usize>;

/// A filter in normal form.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Normal {
    Constant(bool),
    /// The value is in a set.
    Single(Source, Set),
    /// The list is as it says.
    List(Source, ListTest),
    All(Vec<Normal>),
    Any(Vec<Normal>),
}

/// A set of values of a column.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Set {
    pub(super) values: Values,
    /// Whether NaN is in it; `None` where the column has no NaN.
    pub(super) nan: Option<bool>,
    /// Whether null is in it; `None` where the column has no nulls.
    pub(super) null: Option<bool>,
}

/// What a list is to be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ListTest {
    Null,
    NotNull,
    /// It has an element in a set.
    Has(Values),
    /// It is not null and has none in a set.
    Lacks(Values),
}

impl Set {
    /// What is not in the set; null is in neither, as a comparison with null is unknown, and so is its negation.
    pub(super) fn negated(self) -> Set {
        Set { values: self.values.complement(), nan: self.nan.map(|nan| !nan), null: self.null }
    }

    fn is_all(&self) -> bool {
        self.values.is_all() && self.nan != Some(false) && self.null != Some(false)
    }

    fn is_empty(&self) -> bool {
        self.values.is_empty() && self.nan != Some(true) && self.null != Some(true)
    }

    fn join(all: bool, sets: Vec<Set>) -> Set {
        let join = |one: bool, two: bool| if all { one && two } else { one || two };
        let nan = sets.iter().filter_map(|set| set.nan).reduce(join);
        let null = sets.iter().filter_map(|set| set.null).reduce(join);
        let values = sets.into_iter().map(|set| set.values).collect();
        Set { values: Values::join(all, values), nan, null }
    }
}

impl Normal {
    /// A condition on a column of single values.
    pub(super) fn single(source: Source, set: Set) -> Normal {
        if set.is_all() {
            Normal::Constant(true)
        } else if set.is_empty() {
            Normal::Constant(false)
        } else {
            Normal::Single(source, set)
        }
    }

    /// A condition on a column of lists.
    pub(super) fn list(source: Source, test: ListTest) -> Normal {
        match test {
            ListTest::Has(values) if values.is_empty() => Normal::Constant(false),
            ListTest::Lacks(values) if values.is_empty() => Normal::List(source, ListTest::NotNull),
            test => Normal::List(source, test),
        }
    }

    /// All (or else any) of some filters.
    pub(super) fn join(all: bool, parts: Vec<Normal>) -> Normal {
        let mut columns = Columns::default();
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
            joined.push(Normal::single(source, Set::join(all, sets)));
        }
        for (source, tests) in columns.lists {
            join_tests(all, source, tests, &mut joined);
        }
        // Neither changes what it is joined with, or it decides alone.
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

/// Conditions by the columns that they are on.
#[derive(Default)]
struct Columns {
    sets: BTreeMap<Source, Vec<Set>>,
    lists: BTreeMap<Source, Vec<ListTest>>,
}

impl Columns {
    /// Adds a condition here, anything else to `others`.
    fn add(&mut self, part: Normal, others: &mut Vec<Normal>) {
        match part {
            Normal::Single(source, set) => self.sets.entry(source).or_default().push(set),
            Normal::List(source, test) => self.lists.entry(source).or_default().push(test),
            other => others.push(other),
        }
    }
}

/// Joins what is said about one column of lists.
fn join_tests(all: bool, source: Source, tests: Vec<ListTest>, joined: &mut Vec<Normal>) {
    let null = tests.contains(&ListTest::Null);
    let not_null = tests.contains(&ListTest::NotNull);
    let (mut merged, mut apart) = (Vec::new(), Vec::new());
    for test in tests {
        match test {
            // To have one of these or one of those is to have one of both; so it is with having none.
            ListTest::Has(values) if !all => merged.push(values),
            ListTest::Lacks(values) if all => merged.push(values),
            ListTest::Null | ListTest::NotNull => {}
            other => apart.push(other),
        }
    }
    if !merged.is_empty() {
        let values = Values::join(false, merged);
        apart.push(if all { ListTest::Lacks(values) } else { ListTest::Has(values) });
    }
    // What has elements, or has none of some, is not null.
    let apart_is_some = !apart.is_empty();
    match (all, null, not_null) {
        (true, true, not_null) if not_null || apart_is_some => return joined.push(Normal::Constant(false)),
        (false, true, true) => return joined.push(Normal::Constant(true)),
        (false, false, true) => apart.clear(),
        _ => {}
    }
    if null {
        apart.push(ListTest::Null);
    } else if not_null && (!all || !apart_is_some) {
        apart.push(ListTest::NotNull);
    }
    joined.extend(apart.into_iter().map(|test| Normal::list(source, test)));
}
