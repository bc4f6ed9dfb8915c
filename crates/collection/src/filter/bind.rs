//! Binds a parsed filter to the columns of a collection: converts it to the normal form.

use super::domain::{Domain, Values};
use super::expression::{Comparison, Contains, Expression, Literal, QuotedName};
use super::normal::{ListTest, Normal, Source, ValueSet};
use crate::error::CollectionError;
use crate::schema::{ID_COLUMN, Schema};
use arrow_schema::DataType;

/// Returns the values that satisfy a condition, for a domain.
type Test<'a> = &'a dyn Fn(Domain) -> Result<Values, String>;

/// A resolved column.
struct ResolvedColumn {
    source: Source,
    /// Domain of its values, or of the elements of its lists.
    domain: Domain,
    list: bool,
}

/// Returns the normal form of `expression`, or of its negation, for the columns of `schema`.
///
/// # Errors
/// [`CollectionError::Filter`] for an unknown column, and for a condition that does not fit the type of its
/// column.
pub(super) fn normal(
    expression: &Expression,
    negated: bool,
    schema: &Schema,
) -> Result<Normal, CollectionError> {
    let join = |all: bool, parts: &[Expression]| {
        let parts = parts.iter().map(|part| normal(part, negated, schema));
        // "Not all" means "any not".
        Ok(Normal::join(all != negated, parts.collect::<Result<_, _>>()?))
    };
    match expression {
        Expression::Constant(value) => Ok(Normal::Constant(*value != negated)),
        Expression::And(parts) => join(true, parts),
        Expression::Or(parts) => join(false, parts),
        Expression::Not(inner) => normal(inner, !negated, schema),
        Expression::IsNull(name) => Ok(null(&resolve(name, schema)?, !negated)),
        Expression::Flag(name) => {
            let yes = Literal::Bool(true);
            condition(name, negated, schema, &|domain| domain.compare(Comparison::Equal, &yes))
        }
        Expression::Compare(name, comparison, literal) => {
            compare(name, *comparison, literal, negated, schema)
        }
        Expression::In(name, literals) => {
            let column = resolve(name, schema)?;
            let test: Test = &|domain| domain.equal_to_any(literals);
            if column.list {
                list_has(name, &column, negated, test)
            } else {
                single(name, &column, negated, test)
            }
        }
        Expression::Between(name, low, high) => condition(name, negated, schema, &|domain| {
            let from = domain.compare(Comparison::GreaterOrEqual, low)?;
            Ok(Values::join(true, vec![from, domain.compare(Comparison::LessOrEqual, high)?]))
        }),
        Expression::StartsWith(name, prefix) => condition(name, negated, schema, &|domain| {
            domain.with_prefix(prefix).ok_or_else(|| "only strings begin with a string".into())
        }),
        Expression::Contains(name, which, literals) => contains(name, *which, literals, negated, schema),
    }
}

fn column_error(name: &str, reason: impl std::fmt::Display) -> CollectionError {
    CollectionError::Filter(format!("the filter: column {}: {reason}", QuotedName(name)))
}

fn resolve(name: &str, schema: &Schema) -> Result<ResolvedColumn, CollectionError> {
    let (source, data_type) = if name == ID_COLUMN {
        (Source::Ids, schema.id_kind.data_type())
    } else if let Some((number, path)) = schema.json_key(name) {
        (Source::Key(number, path.into()), DataType::LargeUtf8)
    } else {
        let number = schema.column(name).map_err(|error| {
            CollectionError::Filter(format!("the filter: {error}, and the ids are {ID_COLUMN:?}"))
        })?;
        (Source::Column(number), schema.columns[number].kind.data_type().clone())
    };
    let (single, list) = match &data_type {
        DataType::List(item) => (item.data_type(), true),
        // A single value of a key is a list of one.
        DataType::LargeUtf8 => (&data_type, true),
        single => (single, false),
    };
    let unknown = || column_error(name, format!("there are no conditions on values of type {data_type}"));
    Ok(ResolvedColumn { source, domain: Domain::from_type(single).ok_or_else(unknown)?, list })
}

/// Returns the condition that a column is null, or that it is not null.
fn null(column: &ResolvedColumn, null: bool) -> Normal {
    if column.list {
        return Normal::list(column.source.clone(), if null { ListTest::Null } else { ListTest::NotNull });
    }
    let nothing = column.domain.nothing();
    let values = if null { nothing } else { nothing.complement() };
    let nan = column.domain.has_nan().then_some(!null);
    // Ids are never null.
    let null = (column.source != Source::Ids).then_some(null);
    Normal::single(column.source.clone(), ValueSet { values, nan, null })
}

/// Returns a condition on a column of single values.
fn condition(name: &str, negated: bool, schema: &Schema, test: Test) -> Result<Normal, CollectionError> {
    let column = resolve(name, schema)?;
    if column.domain.is_key() {
        return list_has(name, &column, negated, test);
    }
    if column.list {
        return Err(column_error(
            name,
            "it holds lists; use contains, contains_any, contains_all, `=` or `in`",
        ));
    }
    single(name, &column, negated, test)
}

fn single(name: &str, column: &ResolvedColumn, negated: bool, test: Test) -> Result<Normal, CollectionError> {
    let values = test(column.domain).map_err(|reason| column_error(name, reason))?;
    let nan = column.domain.has_nan().then_some(false);
    let set = ValueSet { values, nan, null: (column.source != Source::Ids).then_some(false) };
    Ok(Normal::single(column.source.clone(), if negated { set.negated() } else { set }))
}

/// Returns the condition that a list has an element in a set, or that it has none.
fn list_has(
    name: &str,
    column: &ResolvedColumn,
    negated: bool,
    test: Test,
) -> Result<Normal, CollectionError> {
    let values =
        test(column.domain).map_err(|reason| column_error(name, format!("of its elements: {reason}")))?;
    let source = column.source.clone();
    Ok(Normal::list(source, if negated { ListTest::Lacks(values) } else { ListTest::Has(values) }))
}

fn compare(
    name: &str,
    comparison: Comparison,
    literal: &Literal,
    negated: bool,
    schema: &Schema,
) -> Result<Normal, CollectionError> {
    let column = resolve(name, schema)?;
    let equal: Test = &|domain| domain.compare(Comparison::Equal, literal);
    match comparison {
        Comparison::Equal if column.list => list_has(name, &column, negated, equal),
        Comparison::NotEqual if column.list => list_has(name, &column, !negated, equal),
        // NaN differs from every number.
        Comparison::NotEqual => single(name, &column, !negated, equal),
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
    let column = resolve(name, schema)?;
    if !column.list {
        let reason = "it holds single values, but contains, contains_any and contains_all are for lists; use \
                      `=` or `in`";
        return Err(column_error(name, reason));
    }
    if which == Contains::Any {
        return list_has(name, &column, negated, &|domain| domain.equal_to_any(literals));
    }
    // Every list contains all of zero values, but a null does not.
    let mut parts = vec![match negated {
        false => Normal::list(column.source.clone(), ListTest::NotNull),
        true => Normal::Constant(false),
    }];
    for literal in literals {
        parts.push(list_has(name, &column, negated, &|domain| domain.compare(Comparison::Equal, literal))?);
    }
    Ok(Normal::join(!negated, parts))
}
