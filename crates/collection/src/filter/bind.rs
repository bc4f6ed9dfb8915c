//! Filters and the columns of a collection: from what is written to the normal form.

use super::domain::{Domain, Values};
use super::expression::{Comparison, Contains, Expression, Literal, Quoted};
use super::normal::{ListTest, Normal, Set, Source};
use crate::error::CollectionError;
use crate::schema::{ID_COLUMN, Schema};
use arrow_schema::DataType;

/// What a filter says of a column, if it says nothing of nulls.
type Test<'a> = &'a dyn Fn(Domain) -> Result<Values, String>;

/// A column that a filter names.
struct Named {
    source: Source,
    /// Of its values, or of the elements of its lists.
    domain: Domain,
    list: bool,
}

/// The normal form of `expression`, or of its negation, over the columns of `schema`.
///
/// # Errors
/// [`CollectionError::Filter`] for a column that there is not, and for a condition that its type has not.
pub(super) fn normal(
    expression: &Expression,
    negated: bool,
    schema: &Schema,
) -> Result<Normal, CollectionError> {
    let join = |all: bool, parts: &[Expression]| {
        let parts = parts.iter().map(|part| normal(part, negated, schema));
        // Not all is any that is not.
        Ok(Normal::join(all != negated, parts.collect::<Result<_, _>>()?))
    };
    match expression {
        Expression::Constant(value) => Ok(Normal::Constant(*value != negated)),
        Expression::And(parts) => join(true, parts),
        Expression::Or(parts) => join(false, parts),
        Expression::Not(inner) => normal(inner, !negated, schema),
        Expression::IsNull(name) => Ok(null(&column(name, schema)?, !negated)),
        Expression::Flag(name) => {
            let yes = Literal::Bool(true);
            condition(name, negated, schema, &|domain| domain.compare(Comparison::Equal, &yes))
        }
        Expression::Compare(name, comparison, literal) => {
            compare(name, *comparison, literal, negated, schema)
        }
        Expression::In(name, literals) => {
            let named = column(name, schema)?;
            let test: Test = &|domain| domain.among(literals);
            if named.list { has(name, &named, negated, test) } else { single(name, &named, negated, test) }
        }
        Expression::Between(name, low, high) => condition(name, negated, schema, &|domain| {
            let from = domain.compare(Comparison::GreaterOrEqual, low)?;
            Ok(Values::join(true, vec![from, domain.compare(Comparison::LessOrEqual, high)?]))
        }),
        Expression::StartsWith(name, prefix) => condition(name, negated, schema, &|domain| {
            domain.beginning(prefix).ok_or_else(|| "only strings begin with a string".into())
        }),
        Expression::Contains(name, which, literals) => contains(name, *which, literals, negated, schema),
    }
}

fn refuse(name: &str, reason: impl std::fmt::Display) -> CollectionError {
    CollectionError::Filter(format!("the filter: column {}: {reason}", Quoted(name)))
}

fn column(name: &str, schema: &Schema) -> Result<Named, CollectionError> {
    let (source, data_type) = if name == ID_COLUMN {
        (None, schema.id_kind.data_type())
    } else {
        let number = schema.column(name).map_err(|error| {
            CollectionError::Filter(format!("the filter: {error}, and the ids are {ID_COLUMN:?}"))
        })?;
        (Some(number), schema.columns[number].kind.data_type().clone())
    };
    let (single, list) = match &data_type {
        DataType::List(item) => (item.data_type(), true),
        single => (single, false),
    };
    let unknown = || refuse(name, format!("there are no conditions on values of type {data_type}"));
    Ok(Named { source, domain: Domain::of(single).ok_or_else(unknown)?, list })
}

/// That the value of a column is null, or that it is not.
fn null(named: &Named, null: bool) -> Normal {
    if named.list {
        return Normal::list(named.source, if null { ListTest::Null } else { ListTest::NotNull });
    }
    let nothing = named.domain.nothing();
    let values = if null { nothing } else { nothing.complement() };
    let nan = named.domain.has_nan().then_some(!null);
    // Every row has an id.
    let null = named.source.is_some().then_some(null);
    Normal::single(named.source, Set { values, nan, null })
}

/// A condition on a column of single values.
fn condition(name: &str, negated: bool, schema: &Schema, test: Test) -> Result<Normal, CollectionError> {
    let named = column(name, schema)?;
    if named.list {
        return Err(refuse(
            name,
            "it holds lists, which are tested with contains, contains_any, contains_all, `=` and `in`",
        ));
    }
    single(name, &named, negated, test)
}

fn single(name: &str, named: &Named, negated: bool, test: Test) -> Result<Normal, CollectionError> {
    let values = test(named.domain).map_err(|reason| refuse(name, reason))?;
    let nan = named.domain.has_nan().then_some(false);
    let set = Set { values, nan, null: named.source.is_some().then_some(false) };
    Ok(Normal::single(named.source, if negated { set.negated() } else { set }))
}

/// That a list has an element in a set, or that it has none.
fn has(name: &str, named: &Named, negated: bool, test: Test) -> Result<Normal, CollectionError> {
    let values = test(named.domain).map_err(|reason| refuse(name, format!("of its elements: {reason}")))?;
    Ok(Normal::list(named.source, if negated { ListTest::Lacks(values) } else { ListTest::Has(values) }))
}

fn compare(
    name: &str,
    comparison: Comparison,
    literal: &Literal,
    negated: bool,
    schema: &Schema,
) -> Result<Normal, CollectionError> {
    let named = column(name, schema)?;
    let equal: Test = &|domain| domain.compare(Comparison::Equal, literal);
    match comparison {
        Comparison::Equal if named.list => has(name, &named, negated, equal),
        Comparison::NotEqual if named.list => has(name, &named, !negated, equal),
        // NaN differs from everything.
        Comparison::NotEqual => single(name, &named, !negated, equal),
        _ => condition(name, negated, schema, &|domain| domain.compare(comparison, literal)),
    }
}

fn contains(
    name: &str,
    which: Contains,
    literals: &[Literal],
    negated: bool,
    schema: &Schema,
) -> Result<Normal, CollectionError> {
    let named = column(name, schema)?;
    if !named.list {
        let reason =
            "it holds single values; contains, contains_any and contains_all are for lists, say `=` or `in`";
        return Err(refuse(name, reason));
    }
    if which == Contains::Any {
        return has(name, &named, negated, &|domain| domain.among(literals));
    }
    // Every list has all of nothing, but null has not.
    let mut parts = vec![match negated {
        false => Normal::list(named.source, ListTest::NotNull),
        true => Normal::Constant(false),
    }];
    for literal in literals {
        parts.push(has(name, &named, negated, &|domain| domain.compare(Comparison::Equal, literal))?);
    }
    Ok(Normal::join(!negated, parts))
}
