//! What may be written, and what becomes of it in the log and in memory.

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

/// Ids that an error names.
const NAMED: usize = 5;

/// A batch that is written whole or not at all.
#[derive(Debug)]
pub(crate) enum Operation {
    /// Rows with ids that are not there.
    Add(Rows),
    /// Rows that take the place of those with their ids.
    Upsert(Rows),
    /// Other metadata for the rows with these ids: the columns that are named, of the others nothing changes.
    Update(Ids, RecordBatch),
    /// The rows with these ids are deleted.
    Delete(Ids),
    /// The rows that match are deleted.
    DeleteMatching(BoundFilter),
}

impl Change {
    /// Bytes that it adds to memory, about.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Change::Put(rows) => rows.bytes(),
            Change::Delete(_) => 0,
        }
    }

    /// Bytes of a record of it, about.
    pub(super) fn record_bytes(&self) -> u64 {
        match self {
            Change::Put(rows) => rows.bytes(),
            Change::Delete(ids) => ids.bytes(),
        }
    }
}

/// What a batch came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Written {
    /// Rows that are new.
    pub added: u64,
    /// Rows that took the place of others with their ids.
    pub replaced: u64,
    /// Rows that are gone.
    pub deleted: u64,
    /// Ids of which there was no row.
    pub missing: u64,
}

impl Operation {
    /// Bytes that it has, about.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Operation::Add(rows) | Operation::Upsert(rows) => rows.bytes(),
            Operation::Update(ids, columns) => ids.bytes() + batch_bytes(columns),
            Operation::Delete(ids) => ids.bytes(),
            Operation::DeleteMatching(_) => 0,
        }
    }

    /// What it changes of a state, and what it came to; `None` where it changes nothing.
    pub(crate) fn change(
        &self,
        state: &State,
        path: &Path,
    ) -> Result<(Option<Change>, Written), CollectionError> {
        let count = |rows: usize| rows as u64;
        Ok(match self {
            Operation::Add(rows) => {
                refuse_twice(rows.ids(), path)?;
                refuse_there(state, rows.ids(), path)?;
                let written = Written { added: count(rows.len()), ..Written::default() };
                (Some(Change::Put(rows.clone())), written)
            }
            Operation::Upsert(rows) => {
                refuse_twice(rows.ids(), path)?;
                let replaced = count(state.find(rows.ids())?.into_iter().flatten().count());
                let added = count(rows.len()) - replaced;
                (Some(Change::Put(rows.clone())), Written { added, replaced, ..Written::default() })
            }
            Operation::Update(ids, columns) => {
                refuse_twice(ids, path)?;
                update(state, ids, columns)?
            }
            Operation::Delete(ids) => {
                let mut there: Vec<(Located, u32)> = Vec::new();
                for (at, found) in state.find(ids)?.into_iter().enumerate() {
                    there.extend(found.map(|found| (found, at as u32)));
                }
                let missing = count(ids.len() - there.len());
                // An id that is named twice is deleted once.
                there.sort_unstable();
                there.dedup_by_key(|(found, _)| *found);
                let places: Vec<u32> = there.into_iter().map(|(_, at)| at).collect();
                deleted(ids.take(&places)?, missing)
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

/// Refuses ids of which two are the same.
pub(super) fn refuse_twice(ids: &Ids, path: &Path) -> Result<(), CollectionError> {
    let order = ids.order();
    let twice: Vec<u32> = order
        .windows(2)
        .filter(|two| ids.compare(two[0] as usize, ids, two[1] as usize).is_eq())
        .map(|two| two[1])
        .collect();
    let advice = ". Which row counts is not for us to guess: leave the others out";
    duplicate(ids, &twice, path, "are there twice among the rows", advice)
}

/// Refuses ids that rows have which are there.
pub(super) fn refuse_there(state: &State, ids: &Ids, path: &Path) -> Result<(), CollectionError> {
    let found = state.find(ids)?;
    let there: Vec<u32> = (0..).zip(found).filter_map(|(at, found)| found.map(|_| at)).collect();
    duplicate(ids, &there, path, "are there already", ". Replace rows with upsert")
}

fn duplicate(
    ids: &Ids,
    places: &[u32],
    path: &Path,
    what: &'static str,
    advice: &'static str,
) -> Result<(), CollectionError> {
    if places.is_empty() {
        return Ok(());
    }
    let named = |place: &u32| match ids.get(*place as usize) {
        Id::Number(number) => number.to_string(),
        Id::Text(text) => format!("{text:?}"),
    };
    let first = places.iter().take(NAMED).map(named).collect();
    Err(CollectionError::Duplicate { path: path.to_path_buf(), count: places.len(), what, first, advice })
}

/// Refuses columns of another number of rows than there are ids.
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

/// The rows with `ids` as they are, but for the columns that are given.
pub(super) fn update(
    state: &State,
    ids: &Ids,
    columns: &RecordBatch,
) -> Result<(Option<Change>, Written), CollectionError> {
    let schema = state.schema();
    check_rows(ids, columns)?;
    let found = state.find(ids)?;
    let places: Vec<u32> = (0..).zip(&found).filter(|(_, found)| found.is_some()).map(|(at, _)| at).collect();
    let rows: Vec<Located> = found.into_iter().flatten().collect();
    let missing = (ids.len() - rows.len()) as u64;
    if rows.is_empty() {
        return Ok((None, Written { missing, ..Written::default() }));
    }
    let all: Vec<usize> = (0..schema.columns.len()).collect();
    let old = state.columns_of(&rows, &all)?;
    let given =
        arrow_select::take::take_record_batch(columns, &arrow_array::UInt32Array::from(places.clone()))?;
    if let Some(unknown) = given.schema().fields().iter().find(|field| schema.column(field.name()).is_err()) {
        schema.column(unknown.name())?;
    }
    let (mut fields, mut arrays) = (Vec::new(), Vec::new());
    for (field, old) in old.schema().fields().iter().zip(old.columns()) {
        let new =
            given.schema().column_with_name(field.name()).map(|(at, new)| (new.clone(), given.column(at)));
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
    let rows = Rows::new(schema, ids.take(&places)?, vectors, Some(&columns))?;
    Ok((Some(Change::Put(rows)), Written { replaced, missing, ..Written::default() }))
}
