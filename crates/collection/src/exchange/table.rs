//! Rows in tables as files have them: a column of ids, columns of vectors, columns of metadata.

use super::kind::bad;
use super::vectors::from_lists;
use crate::error::CollectionError;
use crate::ids::Ids;
use crate::rows::{Rows, batch_bytes};
use crate::schema::{Schema, VectorField};
use arrow_array::{RecordBatch, RecordBatchOptions, UInt32Array};
use arrow_select::take::take_record_batch;
use bathyal_vectors::VectorFile;
use std::path::PathBuf;

/// What a column of vectors may be called where a collection has one field of them, whatever that is called.
pub(super) const ANY_VECTOR: &str = "vector";

/// Which columns of a table are what.
pub(super) struct Shape {
    pub(super) path: PathBuf,
    pub(super) schema: Schema,
    /// The column of ids.
    pub(super) id: String,
    /// The columns of metadata that are taken; `None` means all, which have to be in the schema.
    pub(super) columns: Option<Vec<String>>,
}

impl Shape {
    /// The ids of a table.
    pub(super) fn ids(&self, table: &RecordBatch) -> Result<Ids, CollectionError> {
        let column = table.column_by_name(&self.id).ok_or_else(|| {
            bad(
                &self.path,
                format!("there is no column {:?} for the ids; there is {}", self.id, names(table)),
            )
        })?;
        Ids::of_array(self.schema.id_kind, column).map_err(|error| bad(&self.path, error))
    }

    /// A table as rows of the collection; `first` is the number of its first row in the file.
    pub(super) fn rows(&self, table: &RecordBatch, first: u64) -> Result<Rows, CollectionError> {
        let ids = self.ids(table)?;
        let mut vectors = Vec::with_capacity(self.schema.vectors.len());
        for field in &self.schema.vectors {
            vectors.push(self.vectors(table, field, first)?);
        }
        let metadata = self.metadata(table)?;
        Rows::new(&self.schema, ids, vectors, Some(&metadata)).map_err(|error| bad(&self.path, error))
    }

    fn vectors(
        &self,
        table: &RecordBatch,
        field: &VectorField,
        first: u64,
    ) -> Result<VectorFile, CollectionError> {
        let column = self.vector_column(table, field).ok_or_else(|| {
            bad(
                &self.path,
                format!("there is no column {:?} of vectors; there is {}", field.name, names(table)),
            )
        })?;
        from_lists(table.column(column), field, first).map_err(|reason| bad(&self.path, reason))
    }

    fn vector_column(&self, table: &RecordBatch, field: &VectorField) -> Option<usize> {
        let schema = table.schema();
        let of = |name: &str| schema.index_of(name).ok();
        let any = || of(ANY_VECTOR).filter(|_| self.schema.vectors.len() == 1);
        of(&field.name).or_else(any)
    }

    /// The columns of metadata of a table.
    pub(super) fn metadata(&self, table: &RecordBatch) -> Result<RecordBatch, CollectionError> {
        let vectors: Vec<usize> =
            self.schema.vectors.iter().filter_map(|field| self.vector_column(table, field)).collect();
        let schema = table.schema();
        let mut kept = Vec::new();
        for (at, field) in schema.fields().iter().enumerate() {
            let name = field.name();
            let taken = match &self.columns {
                Some(columns) => columns.contains(name),
                None => *name != self.id && !vectors.contains(&at),
            };
            if !taken {
                continue;
            }
            if self.schema.column(name).is_err() {
                let there: Vec<&str> =
                    self.schema.columns.iter().map(|column| column.name.as_str()).collect();
                return Err(bad(
                    &self.path,
                    format!(
                        "the collection has no column {name:?}; it has {}. Name the columns that are to be taken to leave others out",
                        if there.is_empty() { "none".into() } else { there.join(", ") }
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

/// A table in pieces of at most `rows` rows and about `bytes` bytes. Each has arrays of its own, so that none keeps the whole.
pub(super) fn pieces(
    table: RecordBatch,
    rows: usize,
    bytes: usize,
) -> impl Iterator<Item = Result<RecordBatch, CollectionError>> {
    let count = table.num_rows();
    let each = (batch_bytes(&table) as usize).div_ceil(count.max(1)).max(1);
    let at_once = (bytes / each).clamp(1, rows.max(1));
    (0..count).step_by(at_once).map(move |first| {
        let places: Vec<u32> = (first as u32..(first + at_once).min(count) as u32).collect();
        taken(&table, places)
    })
}

/// The rows of a table at some places.
pub(super) fn taken(table: &RecordBatch, places: Vec<u32>) -> Result<RecordBatch, CollectionError> {
    if table.num_columns() == 0 {
        let options = RecordBatchOptions::new().with_row_count(Some(places.len()));
        return Ok(RecordBatch::try_new_with_options(table.schema(), Vec::new(), &options)?);
    }
    Ok(take_record_batch(table, &UInt32Array::from(places))?)
}
