//! Tables of rows in files: a column of ids, columns of vectors, columns of metadata.

use super::kind::file_error;
use super::vectors::from_lists;
use crate::error::CollectionError;
use crate::ids::Ids;
use crate::rows::{Rows, batch_bytes};
use crate::schema::{Schema, VectorField};
use arrow_array::{RecordBatch, RecordBatchOptions, UInt32Array};
use arrow_select::take::take_record_batch;
use bathyal_vectors::VectorFile;
use std::path::PathBuf;

/// Accepted name of the vector column if the collection has only one vector field.
pub(super) const ANY_VECTOR: &str = "vector";

/// Maps the columns of a table to the schema of a collection.
pub(super) struct ColumnMapping {
    pub(super) path: PathBuf,
    pub(super) schema: Schema,
    /// The column of ids.
    pub(super) id: String,
    /// The columns of metadata to take; `None` means all, which must then be in the schema.
    pub(super) columns: Option<Vec<String>>,
}

impl ColumnMapping {
    /// Returns the ids of a table.
    pub(super) fn ids(&self, table: &RecordBatch) -> Result<Ids, CollectionError> {
        let column = table.column_by_name(&self.id).ok_or_else(|| {
            file_error(
                &self.path,
                format!("there is no column {:?} for the ids; there is {}", self.id, names(table)),
            )
        })?;
        Ids::from_array(self.schema.id_kind, column).map_err(|error| file_error(&self.path, error))
    }

    /// Converts a table to rows of the collection. `first` is the number of its first row in the file.
    pub(super) fn rows(&self, table: &RecordBatch, first: u64) -> Result<Rows, CollectionError> {
        let ids = self.ids(table)?;
        let mut vectors = Vec::with_capacity(self.schema.vectors.len());
        for field in &self.schema.vectors {
            vectors.push(self.vectors(table, field, first)?);
        }
        let metadata = self.metadata(table)?;
        Rows::new(&self.schema, ids, vectors, Some(&metadata)).map_err(|error| file_error(&self.path, error))
    }

    /// Returns the vectors of a field.
    pub(super) fn vectors(
        &self,
        table: &RecordBatch,
        field: &VectorField,
        first: u64,
    ) -> Result<VectorFile, CollectionError> {
        let column = self.vector_column(table, field).ok_or_else(|| {
            file_error(
                &self.path,
                format!("there is no column {:?} of vectors; there is {}", field.name, names(table)),
            )
        })?;
        from_lists(table.column(column), field, first).map_err(|reason| file_error(&self.path, reason))
    }

    fn vector_column(&self, table: &RecordBatch, field: &VectorField) -> Option<usize> {
        let schema = table.schema();
        let index_of = |name: &str| schema.index_of(name).ok();
        let any_vector = || index_of(ANY_VECTOR).filter(|_| self.schema.vectors.len() == 1);
        index_of(&field.name).or_else(any_vector)
    }

    /// Returns the columns of metadata of a table.
    pub(super) fn metadata(&self, table: &RecordBatch) -> Result<RecordBatch, CollectionError> {
        let vectors: Vec<usize> =
            self.schema.vectors.iter().filter_map(|field| self.vector_column(table, field)).collect();
        let schema = table.schema();
        let mut kept = Vec::new();
        for (at, field) in schema.fields().iter().enumerate() {
            let name = field.name();
            let is_taken = match &self.columns {
                Some(columns) => columns.contains(name),
                None => *name != self.id && !vectors.contains(&at),
            };
            if !is_taken {
                continue;
            }
            if self.schema.column(name).is_err() {
                let known: Vec<&str> =
                    self.schema.columns.iter().map(|column| column.name.as_str()).collect();
                return Err(file_error(
                    &self.path,
                    format!(
                        "the collection has no column {name:?}; it has {}. Name the columns to take, to \
                         leave others out",
                        if known.is_empty() { "none".into() } else { known.join(", ") }
                    ),
                ));
            }
            kept.push(at);
        }
        Ok(table.project(&kept)?)
    }
}

fn names(table: &RecordBatch) -> String {
    let schema = table.schema();
    let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
    names.join(", ")
}

/// Splits a table into tables of at most `rows` rows and about `bytes` bytes. They are copies, so that none
/// keeps the whole table in memory.
pub(super) fn split_table(
    table: RecordBatch,
    rows: usize,
    bytes: usize,
) -> impl Iterator<Item = Result<RecordBatch, CollectionError>> {
    let count = table.num_rows();
    let row_bytes = (batch_bytes(&table) as usize).div_ceil(count.max(1)).max(1);
    let table_rows = (bytes / row_bytes).clamp(1, rows.max(1));
    (0..count).step_by(table_rows).map(move |first| {
        let positions: Vec<u32> = (first as u32..(first + table_rows).min(count) as u32).collect();
        take_rows(&table, positions)
    })
}

/// Returns the rows of a table at some positions.
pub(super) fn take_rows(table: &RecordBatch, positions: Vec<u32>) -> Result<RecordBatch, CollectionError> {
    if table.num_columns() == 0 {
        let options = RecordBatchOptions::new().with_row_count(Some(positions.len()));
        return Ok(RecordBatch::try_new_with_options(table.schema(), Vec::new(), &options)?);
    }
    Ok(take_record_batch(table, &UInt32Array::from(positions))?)
}
