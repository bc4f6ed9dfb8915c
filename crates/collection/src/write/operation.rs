//! The kinds of writes, and the changes that they make.

use crate::error::CollectionError;
use crate::filter::BoundFilter;
use crate::ids::{Id, Ids};
use crate::log::Change;
use crate::rows::{Rows, batch_bytes};
use crate::state::{Located, State};
use arrow_array::{RecordBatch, RecordBatchOptions};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use serde::Serialize;
use std::path::Path;

/// Number of ids that an error lists.
const MAX_LISTED_IDS: usize = 5;

/// A batch; it is written completely or not at all.
#[derive(Debug)]
pub(crate) enum Operation {
    /// Adds rows with new ids.
    Add(Rows),
    /// Adds rows, and replaces those with the same ids.
    Upsert(Rows),
    /// Changes the given columns of the rows with these ids.
    Update(Ids, RecordBatch),
    /// Deletes the rows with these ids.
    Delete(Ids),
    /// Deletes the rows that match.
    DeleteMatching(BoundFilter),
}

impl Change {
    /// Returns the approximate bytes that the change adds to memory.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Change::Put(rows) => rows.bytes(),
            Change::Delete(_) => 0,
        }
    }

    /// Returns the approximate bytes of its record.
    pub(super) fn record_bytes(&self) -> u64 {
        match self {
            Change::Put(rows) => rows.bytes(),
            Change::Delete(ids) => ids.bytes(),
        }
    }
}

/// Result of a write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Written {
    /// New rows.
    pub added: u64,
    /// Rows that replaced others with the same ids.
    pub replaced: u64,
    /// Rows that were deleted.
    pub deleted: u64,
    /// Ids without a row.
    pub missing: u64,
}

impl Operation {
    /// Returns the approximate bytes of the batch.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Operation::Add(rows) | Operation::Upsert(rows) => rows.bytes(),
            Operation::Update(ids, columns) => ids.bytes() + batch_bytes(columns),
            Operation::Delete(ids) => ids.bytes(),
            Operation::DeleteMatching(_) => 0,
        }
    }

    /// Returns the change that the operation makes to a state, and its result. The change is `None` if
    /// nothing changes.
    pub(crate) fn change(
        &self,
        state: &State,
        path: &Path,
    ) -> Result<(Option<Change>, Written), CollectionError> {
        let count = |rows: usize| rows as u64;
        Ok(match self {
            Operation::Add(rows) => {
                refuse_duplicates(rows.ids(), path)?;
                refuse_existing(state, rows.ids(), path)?;
                let written = Written { added: count(rows.len()), ..Written::default() };
                (Some(Change::Put(rows.clone())), written)
            }
            Operation::Upsert(rows) => {
                refuse_duplicates(rows.ids(), path)?;
                let replaced = count(state.find(rows.ids())?.into_iter().flatten().count());
                let added = count(rows.len()) - replaced;
                (Some(Change::Put(rows.clone())), Written { added, replaced, ..Written::default() })
            }
            Operation::Update(ids, columns) => {
                refuse_duplicates(ids, path)?;
                update(state, ids, columns)?
            }
            Operation::Delete(ids) => {
                let mut existing: Vec<(Located, u32)> = Vec::new();
                for (at, found) in state.find(ids)?.into_iter().enumerate() {
                    existing.extend(found.map(|found| (found, at as u32)));
                }
                let missing = count(ids.len() - existing.len());
                // An id that occurs twice is deleted once.
                existing.sort_unstable();
                existing.dedup_by_key(|(found, _)| *found);
                let positions: Vec<u32> = existing.into_iter().map(|(_, at)| at).collect();
                deleted(ids.take(&positions)?, missing)
            }
            Operation::DeleteMatching(filter) => {
                let sets = state.matching(Some(filter), &Control::default())?;
                let rows: Vec<Located> = (0..)
                    .zip(&sets)
                    .flat_map(|(part, set)| set.iter().map(move |row| Located { part, row }))
                    .collect();
                deleted(state.ids_of(&rows)?, 0)
            }
        })
    }
}

fn deleted(ids: Ids, missing: u64) -> (Option<Change>, Written) {
    let written = Written { deleted: ids.len() as u64, missing, ..Written::default() };
    ((!ids.is_empty()).then_some(Change::Delete(ids)), written)
}

/// Returns an error if an id occurs twice.
pub(super) fn refuse_duplicates(ids: &Ids, path: &Path) -> Result<(), CollectionError> {
    let order = ids.order();
    let twice: Vec<u32> = order
        .windows(2)
        .filter(|pair| ids.compare(pair[0] as usize, ids, pair[1] as usize).is_eq())
        .map(|pair| pair[1])
        .collect();
    let advice = ". Keep one row for each id, and leave the others out";
    duplicate(ids, &twice, path, "are there twice among the rows", advice)
}

/// Returns an error if live rows have some of these ids.
pub(super) fn refuse_existing(state: &State, ids: &Ids, path: &Path) -> Result<(), CollectionError> {
    let found = state.find(ids)?;
    let existing: Vec<u32> = (0..).zip(found).filter_map(|(at, found)| found.map(|_| at)).collect();
    duplicate(ids, &existing, path, "are there already", ". Replace rows with upsert")
}

fn duplicate(
    ids: &Ids,
    positions: &[u32],
    path: &Path,
    problem: &'static str,
    advice: &'static str,
) -> Result<(), CollectionError> {
    if positions.is_empty() {
        return Ok(());
    }
    let shown = |position: &u32| match ids.get(*position as usize) {
        Id::Number(number) => number.to_string(),
        Id::Text(text) => format!("{text:?}"),
    };
    let first = positions.iter().take(MAX_LISTED_IDS).map(shown).collect();
    Err(CollectionError::Duplicate {
        path: path.to_path_buf(),
        count: positions.len(),
        what: problem,
        first,
        advice,
    })
}

/// Returns an error if the numbers of ids and of rows of metadata differ.
pub(super) fn check_rows(ids: &Ids, columns: &RecordBatch) -> Result<(), CollectionError> {
    if columns.num_rows() == ids.len() {
        return Ok(());
    }
    Err(CollectionError::Parameter(format!(
        "there are {} rows of metadata for {} ids",
        columns.num_rows(),
        ids.len()
    )))
}

/// Replaces the given columns of the rows with `ids`.
pub(super) fn update(
    state: &State,
    ids: &Ids,
    columns: &RecordBatch,
) -> Result<(Option<Change>, Written), CollectionError> {
    let schema = state.schema();
    check_rows(ids, columns)?;
    let found = state.find(ids)?;
    let positions: Vec<u32> =
        (0..).zip(&found).filter(|(_, found)| found.is_some()).map(|(at, _)| at).collect();
    let rows: Vec<Located> = found.into_iter().flatten().collect();
    let missing = (ids.len() - rows.len()) as u64;
    if rows.is_empty() {
        return Ok((None, Written { missing, ..Written::default() }));
    }
    let all: Vec<usize> = (0..schema.columns.len()).collect();
    let old = state.columns_of(&rows, &all)?;
    let given_columns =
        arrow_select::take::take_record_batch(columns, &arrow_array::UInt32Array::from(positions.clone()))?;
    if let Some(unknown) =
        given_columns.schema().fields().iter().find(|field| schema.column(field.name()).is_err())
    {
        schema.column(unknown.name())?;
    }
    let (mut fields, mut arrays) = (Vec::new(), Vec::new());
    for (field, old) in old.schema().fields().iter().zip(old.columns()) {
        let new = given_columns
            .schema()
            .column_with_name(field.name())
            .map(|(at, new)| (new.clone(), given_columns.column(at)));
        fields.push(new.as_ref().map_or_else(|| field.as_ref().clone(), |(new, _)| new.clone()));
        arrays.push(new.map_or_else(|| old.clone(), |(_, array)| array.clone()));
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    let names = std::sync::Arc::new(arrow_schema::Schema::new(fields));
    let columns = RecordBatch::try_new_with_options(names, arrays, &options)?;
    let mut vectors = Vec::new();
    for field in 0..schema.vectors.len() {
        let stored = state.vectors_of(&rows, field, Control::default())?;
        vectors.push(VectorFile::from_rows(stored.element, stored.dim, stored.bytes)?);
    }
    let replaced = rows.len() as u64;
    let rows = Rows::new(schema, ids.take(&positions)?, vectors, Some(&columns))?;
    Ok((Some(Change::Put(rows)), Written { replaced, missing, ..Written::default() }))
}
