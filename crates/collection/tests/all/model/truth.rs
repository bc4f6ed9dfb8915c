//! The expected content of a collection: a map from ids to rows, with the same writes, and searched row by
//! row.

use crate::model::cases::{Case, Row, Value};
use crate::model::conditions::Condition;
use bathyal_collection::{Id, Written};
use bathyal_kernels::{Element, Metric};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A batch of changes.
#[derive(Debug, Clone)]
pub enum Change {
    Add(Vec<(Id, Arc<Row>)>),
    Upsert(Vec<(Id, Arc<Row>)>),
    /// Ids, and for some columns a value for each.
    Update(Vec<Id>, Vec<(usize, Vec<Value>)>),
    Delete(Vec<Id>),
    DeleteMatching(Condition),
}

/// The expected rows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Truth {
    pub rows: BTreeMap<Id, Arc<Row>>,
}

fn twice<'a>(ids: impl Iterator<Item = &'a Id> + Clone) -> bool {
    ids.clone().collect::<BTreeSet<_>>().len() < ids.count()
}

impl Truth {
    /// Applies a batch and returns the expected result; `None` if it should be refused for existing or
    /// duplicate ids.
    pub fn apply(&mut self, change: &Change) -> Option<Written> {
        let mut written = Written::default();
        match change {
            Change::Add(rows) | Change::Upsert(rows) => {
                let existing = rows.iter().filter(|(id, _)| self.rows.contains_key(id)).count() as u64;
                let adds = matches!(change, Change::Add(_));
                if twice(rows.iter().map(|(id, _)| id)) || adds && existing > 0 {
                    return None;
                }
                (written.replaced, written.added) = (existing, rows.len() as u64 - existing);
                self.rows.extend(rows.iter().cloned());
            }
            Change::Update(ids, columns) => {
                if twice(ids.iter()) {
                    return None;
                }
                for (at, id) in ids.iter().enumerate() {
                    let Some(row) = self.rows.get_mut(id) else {
                        written.missing += 1;
                        continue;
                    };
                    let row = Arc::make_mut(row);
                    columns.iter().for_each(|(column, values)| row.values[*column] = values[at].clone());
                    written.replaced += 1;
                }
            }
            Change::Delete(ids) => {
                written.missing = ids.iter().filter(|id| !self.rows.contains_key(id)).count() as u64;
                written.deleted = ids.iter().filter(|id| self.rows.remove(id).is_some()).count() as u64;
            }
            Change::DeleteMatching(condition) => {
                let before = self.rows.len();
                self.rows.retain(|id, row| !condition.matches(id, row));
                written.deleted = (before - self.rows.len()) as u64;
            }
        }
        Some(written)
    }

    /// Returns the rows that match.
    pub fn matching<'a>(
        &'a self,
        condition: Option<&'a Condition>,
    ) -> impl Iterator<Item = (&'a Id, &'a Arc<Row>)> {
        self.rows.iter().filter(move |(id, row)| condition.is_none_or(|condition| condition.matches(id, row)))
    }

    /// Returns the distances of all matching rows from a query.
    pub fn distances(
        &self,
        case: &Case,
        field: usize,
        query: &[u8],
        condition: Option<&Condition>,
    ) -> BTreeMap<Id, f64> {
        let all = self.matching(condition);
        all.map(|(id, row)| (id.clone(), distance(case, field, query, &row.vectors[field]))).collect()
    }
}

/// Returns the components of a vector.
pub fn components(element: Element, bytes: &[u8]) -> Vec<f64> {
    match element {
        Element::F32 => {
            bytes.chunks(4).map(|four| f64::from(f32::from_le_bytes(four.try_into().unwrap()))).collect()
        }
        Element::U8 => bytes.iter().map(|byte| f64::from(*byte)).collect(),
        Element::B1 => {
            let bits = |byte: &u8| (0..8).map(|bit| f64::from(byte >> bit & 1)).collect::<Vec<_>>();
            bytes.iter().flat_map(bits).collect()
        }
        other => unreachable!("no case has {other}"),
    }
}

/// Returns the distance of two vectors of a field.
pub fn distance(case: &Case, field: usize, one: &[u8], other: &[u8]) -> f64 {
    let field = &case.schema.vectors[field];
    let [one, other] = [one, other].map(|bytes| components(field.element, bytes));
    let product = |one: &[f64], other: &[f64]| one.iter().zip(other).map(|(a, b)| a * b).sum::<f64>();
    match field.metric {
        Metric::L2 => one.iter().zip(&other).map(|(a, b)| (a - b) * (a - b)).sum(),
        Metric::InnerProduct => -product(&one, &other),
        Metric::Cosine => {
            1.0 - product(&one, &other) / (product(&one, &one) * product(&other, &other)).sqrt()
        }
    }
}
