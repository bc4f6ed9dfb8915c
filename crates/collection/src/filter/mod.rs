//! Filters: conditions on the ids and the metadata of rows.
//!
//! A filter is written as text (`year >= 2020 and lang in ('de', 'en') and not archived`) or in JSON
//! (`{"year": {"$gte": 2020}}`); both forms are equivalent. Binding a filter to a schema gives its normal
//! form, in which conditions on the same column are merged into one set of values. The normal form has a
//! canonical text, which is equal for equivalent filters of many kinds. It is evaluated over columns.
//!
//! A comparison with null is unknown, and so is its negation. A row matches only if the whole filter is true.
//! So `year != 2020` does not match rows whose year is null. NaN is neither less than, equal to, nor greater
//! than any number, and differs from all: it matches `x != 1` and `not x < 1`, but not `x >= 1`. 0.0 and -0.0
//! are equal.
//!
//! `meta.year` is the key `year` of the column `meta`, if that is one of JSON. Its value is a list of single
//! values, also if it is a single value, and a condition is true if it is true for one of them.

mod bind;
mod canonical;
mod check;
mod cuts;
mod domain;
mod error;
mod evaluate;
mod expression;
mod json;
mod json_key;
mod normal;
mod tokens;
mod words;

#[cfg(test)]
mod tests;

pub use error::FilterError;

use crate::error::CollectionError;
use crate::ids::{Id, IdKind, Ids, MAX_ID_BYTES};
use crate::schema::Schema;
use arrow_array::RecordBatch;
use arrow_buffer::BooleanBuffer;
use domain::{Domain, Values};
use evaluate::FilterPlan;
use expression::{Expression, MAX_LITERALS};
use normal::{Normal, Source};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// A parsed filter that is not yet bound to a schema. Clones share it. It displays as text that parses to the
/// same filter.
///
/// ```
/// use bathyal_collection::Filter;
///
/// let words = Filter::parse("year >= 2020 and lang in ('de', 'en')")?;
/// assert_eq!(words.to_string(), "year >= 2020 and lang in ('de', 'en')");
/// # Ok::<(), bathyal_collection::FilterError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Filter {
    expression: Arc<Expression>,
    empty: bool,
}

/// Two filters are equal if they have the same meaning, however each was written.
impl PartialEq for Filter {
    fn eq(&self, other: &Filter) -> bool {
        self.expression == other.expression
    }
}

impl Filter {
    /// Parses a filter that is written as text.
    ///
    /// # Errors
    /// The problem and its position. Filters that are nested more than 100 deep or have more than 100,000
    /// conditions or values are refused.
    pub fn parse(text: &str) -> Result<Filter, FilterError> {
        Ok(Filter { expression: Arc::new(words::parse(text)?), empty: false })
    }

    /// Parses a filter in JSON. An object without conditions matches every row.
    ///
    /// # Errors
    /// The problem and its path. Filters that are nested more than 100 deep or have more than 100,000
    /// conditions or values are refused.
    pub fn from_json(value: &serde_json::Value) -> Result<Filter, FilterError> {
        let (expression, empty) = json::read(value)?;
        Ok(Filter { expression: Arc::new(expression), empty })
    }

    /// Checks a filter that is written as text against a schema. Errors of [`Filter::bind`] have no position,
    /// since a bound filter has forgotten its text; this one finds it.
    ///
    /// # Errors
    /// The problem and its position.
    pub fn check(text: &str, schema: &Schema) -> Result<(), FilterError> {
        let filter = Filter::parse(text)?;
        check::conditions(text, &filter.expression, schema)
    }

    /// Returns true if the filter contains an object without conditions, `{}`, which matches every row. A
    /// search accepts it; a deletion requires `true` instead.
    pub fn is_empty(&self) -> bool {
        self.empty
    }

    /// Resolves the columns of the filter in a schema, and checks its values against their types.
    ///
    /// # Errors
    /// [`CollectionError::Filter`] for an unknown column, and for a value or condition that does not fit the
    /// type of its column.
    pub fn bind(&self, schema: &Schema) -> Result<BoundFilter, CollectionError> {
        let normal = bind::normal(&self.expression, false, schema)?;
        let mut sources = BTreeSet::new();
        collect_sources(&normal, &mut sources);
        let columns: BTreeSet<usize> = sources.iter().filter_map(Source::column).collect();
        Ok(BoundFilter {
            canonical: canonical::text(&normal, schema),
            needs_ids: sources.contains(&Source::Ids),
            columns: columns.into_iter().collect(),
            ids: listed_ids(&normal, schema.id_kind)?,
            plan: Arc::new(FilterPlan::new(normal, schema)),
        })
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.expression.fmt(formatter)
    }
}

/// A filter that is bound to a schema. Clones share it.
#[derive(Debug, Clone)]
pub struct BoundFilter {
    canonical: String,
    columns: Vec<usize>,
    needs_ids: bool,
    ids: Option<Ids>,
    plan: Arc<FilterPlan>,
}

impl BoundFilter {
    /// Returns the text of the normal form. It is equal for filters that differ only in the order and nesting
    /// of operands, the position of negations, duplicates, or the notation of a condition: `a in (1)` for `a
    /// = 1`, `not a < 1` for `a >= 1` (whole numbers). Filters with the same text match the same rows.
    pub fn canonical(&self) -> &str {
        &self.canonical
    }

    /// Returns the numbers of the schema's columns that the filter needs, in ascending order.
    pub fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// Returns true if the filter needs the ids, as the column [`ID_COLUMN`](crate::schema::ID_COLUMN).
    pub fn needs_ids(&self) -> bool {
        self.needs_ids
    }

    /// If the filter consists only of a list of ids, returns them in ascending order: they can be looked up.
    /// Some may not exist.
    pub fn id_only(&self) -> Option<Ids> {
        self.ids.clone()
    }

    /// Returns true if every row matches, and false if none does; `None` if that depends on the rows.
    pub fn constant(&self) -> Option<bool> {
        if let FilterPlan::Constant(value) = *self.plan { Some(value) } else { None }
    }

    /// Returns one bit for each row of `batch`: true if it matches. The batch must have the columns that the
    /// filter needs; it may have more.
    ///
    /// # Errors
    /// [`CollectionError::Parameter`] if a column is missing or has another type than in the schema.
    pub fn evaluate(&self, batch: &RecordBatch) -> Result<BooleanBuffer, CollectionError> {
        self.plan.evaluate(batch)
    }
}

/// Adds the columns that a normal form needs.
fn collect_sources(normal: &Normal, sources: &mut BTreeSet<Source>) {
    match normal {
        Normal::Constant(_) => {}
        Normal::Single(source, _) | Normal::List(source, _) => {
            sources.insert(source.clone());
        }
        Normal::All(parts) | Normal::Any(parts) => {
            parts.iter().for_each(|part| collect_sources(part, sources))
        }
    }
}

/// Returns the ids that match, if the normal form only lists ids.
fn listed_ids(normal: &Normal, kind: IdKind) -> Result<Option<Ids>, CollectionError> {
    let Normal::Single(Source::Ids, set) = normal else { return Ok(None) };
    let domain = Domain::from_type(&kind.data_type());
    let mut ids = Vec::new();
    match (&set.values, domain) {
        (Values::Numbers(cuts), Some(domain)) => {
            for (begin, end) in cuts.ranges() {
                let last = end.map_or(domain.last(), |end| end - 1);
                if (last - begin) as usize >= MAX_LITERALS - ids.len() {
                    return Ok(None);
                }
                ids.extend((*begin..=last).map(|number| Id::Number(domain.value(number) as u64)));
            }
        }
        (Values::Text(cuts), _) => {
            for (begin, end) in cuts.ranges() {
                if end.and_then(|end| end.strip_suffix('\0')) != Some(begin) {
                    return Ok(None);
                }
                // Other strings are not valid ids, so no row has them.
                if (1..=MAX_ID_BYTES).contains(&begin.len()) {
                    ids.push(Id::Text(begin.clone()));
                }
            }
        }
        (Values::Numbers(_), None) | (Values::Key(_), _) => return Ok(None),
    }
    Ids::from_ids(kind, &ids).map(Some)
}
