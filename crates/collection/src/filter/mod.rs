//! Filters: conditions on the ids and the metadata of rows.
//!
//! A filter is written in words (`year >= 2020 and lang in ('de', 'en') and not archived`) or in JSON (`{"year": {"$gte": 2020}}`);
//! both say the same. Bound to a schema it becomes a normal form, in which all that is said of one column in one place is one set
//! of values. The normal form has a text, which is the same for filters that say the same, and is evaluated over columns.
//!
//! A comparison with null is unknown, and so is its negation; a row matches where the whole is true, not where it is unknown.
//! `year != 2020` does not match rows whose year is null. NaN is less, equal and greater than nothing, and differs from everything:
//! it matches `x != 1` and `not x < 1`, and not `x >= 1`. 0.0 and -0.0 are equal.

mod bind;
mod canonical;
mod cuts;
mod domain;
mod error;
mod evaluate;
mod expression;
mod json;
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
use evaluate::Plan;
use expression::{Expression, MAX_LITERALS};
use normal::Normal;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// A filter that is read, but not yet bound to a schema. Clones share it. Its text is the filter in words, and reads as the same.
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
    /// Reads a filter in words.
    ///
    /// # Errors
    /// What is wrong and where; also for filters nested more than 100 deep or with more than 100,000 conditions or values.
    pub fn parse(text: &str) -> Result<Filter, FilterError> {
        Ok(Filter { expression: Arc::new(words::parse(text)?), empty: false })
    }

    /// Reads a filter in JSON. An object without conditions matches every row.
    ///
    /// # Errors
    /// What is wrong and the path to it; also for filters nested more than 100 deep or with more than 100,000 conditions or values.
    pub fn from_json(value: &serde_json::Value) -> Result<Filter, FilterError> {
        let (expression, empty) = json::read(value)?;
        Ok(Filter { expression: Arc::new(expression), empty })
    }

    /// Whether an object without conditions is in it, `{}`, which matches every row although nobody said so. A search may mean
    /// that; a deletion has to say `true`.
    pub fn is_empty(&self) -> bool {
        self.empty
    }

    /// Finds the columns of the filter in a schema, and the values of the filter among those of the columns.
    ///
    /// # Errors
    /// [`CollectionError::Filter`] for a column that there is not, and for a value or a condition that does not suit its type.
    pub fn bind(&self, schema: &Schema) -> Result<BoundFilter, CollectionError> {
        let normal = bind::normal(&self.expression, false, schema)?;
        let mut sources = BTreeSet::new();
        note_sources(&normal, &mut sources);
        Ok(BoundFilter {
            canonical: canonical::text(&normal, schema),
            needs_ids: sources.contains(&None),
            columns: sources.into_iter().flatten().collect(),
            ids: ids(&normal, schema.id_kind)?,
            plan: Arc::new(Plan::new(normal, schema)),
        })
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.expression.fmt(to)
    }
}

/// A filter over the columns of a schema. Clones share it.
#[derive(Debug, Clone)]
pub struct BoundFilter {
    canonical: String,
    columns: Vec<usize>,
    needs_ids: bool,
    ids: Option<Ids>,
    plan: Arc<Plan>,
}

impl BoundFilter {
    /// The text of the normal form, which is the same for filters that say the same in another way: other orders and nestings of
    /// operands, negations moved in or out, `a in (1)` for `a = 1`, `not a < 1` for `a >= 1` (of whole numbers), duplicates.
    /// Filters with the same text match the same rows.
    pub fn canonical(&self) -> &str {
        &self.canonical
    }

    /// The columns of the schema that it needs, by their numbers, rising.
    pub fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// Whether it needs the ids, as the column [`ID_COLUMN`](crate::schema::ID_COLUMN).
    pub fn needs_ids(&self) -> bool {
        self.needs_ids
    }

    /// The only ids that match, rising, where the filter names ids and says nothing else: a lookup. Some of them may not be there.
    pub fn id_only(&self) -> Option<Ids> {
        self.ids.clone()
    }

    /// Whether every row matches (true) or none does (false), where that is known without a look at them.
    pub fn constant(&self) -> Option<bool> {
        if let Plan::Constant(value) = *self.plan { Some(value) } else { None }
    }

    /// One bit for each row of `batch`: whether it matches. The batch has the columns that the filter needs, and perhaps more.
    ///
    /// # Errors
    /// [`CollectionError::Parameter`] if a column is not there or is of another type than in the schema.
    pub fn evaluate(&self, batch: &RecordBatch) -> Result<BooleanBuffer, CollectionError> {
        self.plan.evaluate(batch)
    }
}

/// Adds what a normal form needs.
fn note_sources(normal: &Normal, sources: &mut BTreeSet<normal::Source>) {
    match normal {
        Normal::Constant(_) => {}
        Normal::Single(source, _) | Normal::List(source, _) => {
            sources.insert(*source);
        }
        Normal::All(parts) | Normal::Any(parts) => parts.iter().for_each(|part| note_sources(part, sources)),
    }
}

/// The ids that alone match, where the normal form names them.
fn ids(normal: &Normal, kind: IdKind) -> Result<Option<Ids>, CollectionError> {
    let Normal::Single(None, set) = normal else { return Ok(None) };
    let domain = Domain::of(&kind.data_type());
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
                // Other strings are no ids, so that no row has them.
                if (1..=MAX_ID_BYTES).contains(&begin.len()) {
                    ids.push(Id::Text(begin.clone()));
                }
            }
        }
        (Values::Numbers(_), None) => return Ok(None),
    }
    Ids::of(kind, &ids).map(Some)
}
