//! Rows that arrive in memory, as JSON objects or as a stream of Arrow IPC, such as the body of a request.

use super::arrow::read_stream;
use super::json_lines::table_of_objects;
use super::kind::file_error;
use super::table::ColumnMapping;
use super::vectors::{from_lists, to_lists};
use crate::error::CollectionError;
use crate::ids::Ids;
use crate::rows::Rows;
use crate::schema::{ID_COLUMN, Schema};
use arrow_array::cast::AsArray;
use arrow_array::types::Float32Type;
use arrow_array::{ArrayRef, Float32Array, RecordBatch, UInt32Array};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{Field, Schema as ArrowSchema};
use arrow_select::concat::concat_batches;
use bathyal_index::StoredVectors;
use bathyal_vectors::VectorFile;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Columns of answers, besides those of the rows.
const QUERY_COLUMN: &str = "query";
const DISTANCE_COLUMN: &str = "distance";
/// Columns of an answer of a search before the ids, and the place of the distances among them.
const SEARCH_COLUMNS: usize = 2;
const DISTANCE_PLACE: usize = 1;

/// Converts tables and JSON objects to rows of a collection. Columns are matched by name, as by
/// [`import`](super::import::import).
pub struct RowTables {
    mapping: ColumnMapping,
}

impl RowTables {
    /// Creates a converter for rows of a collection with this schema. `source` names the rows in errors.
    pub fn new(schema: Schema, source: &str) -> RowTables {
        let (path, id) = (PathBuf::from(source), ID_COLUMN.to_string());
        RowTables { mapping: ColumnMapping { path, schema, id, columns: None } }
    }

    fn source(&self) -> &Path {
        &self.mapping.path
    }

    /// Reads a stream of Arrow IPC as one table. Its compressed buffers may take `most_bytes`.
    ///
    /// # Errors
    /// [`CollectionError::File`] for bytes that are no such stream, for a stream without rows, and for one
    /// that would take more memory.
    pub fn table_of_arrow(&self, bytes: &[u8], most_bytes: u64) -> Result<RecordBatch, CollectionError> {
        let tables = read_stream(bytes, self.source(), most_bytes)?;
        match tables.first() {
            Some(first) => Ok(concat_batches(&first.schema(), &tables)?),
            None => Err(file_error(self.source(), "has no rows")),
        }
    }

    /// Converts JSON objects, one for each row, to a table.
    ///
    /// # Errors
    /// [`CollectionError::File`] with the position of a row that does not fit the schema, and without rows.
    pub fn table_of_json(&self, rows: &[Map<String, Value>]) -> Result<RecordBatch, CollectionError> {
        if rows.is_empty() {
            return Err(file_error(self.source(), "has no rows"));
        }
        table_of_objects(&self.mapping.schema, &self.mapping.id, rows, |row, reason| {
            file_error(self.source(), format!("row {row}: {reason}"))
        })
    }

    /// Converts a table to rows with vectors.
    ///
    /// # Errors
    /// [`CollectionError::File`] for a table that does not fit the schema.
    pub fn rows(&self, table: &RecordBatch) -> Result<Rows, CollectionError> {
        self.mapping.rows(table, 0)
    }

    /// Returns the ids of a table.
    ///
    /// # Errors
    /// As [`RowTables::rows`].
    pub fn ids(&self, table: &RecordBatch) -> Result<Ids, CollectionError> {
        self.mapping.ids(table)
    }

    /// Returns the columns of metadata of a table, for an update.
    ///
    /// # Errors
    /// [`CollectionError::File`] for a table without such columns, with vectors, or with unknown columns.
    pub fn metadata(&self, table: &RecordBatch) -> Result<RecordBatch, CollectionError> {
        let vectors = self.mapping.schema.vectors.iter().map(|field| &field.name);
        if let Some(name) = vectors.into_iter().find(|name| table.column_by_name(name).is_some()) {
            return Err(file_error(
                self.source(),
                format!(
                    "has vectors of {name:?}; an update changes only columns, and upsert changes vectors"
                ),
            ));
        }
        let metadata = self.mapping.metadata(table)?;
        if metadata.num_columns() == 0 {
            return Err(file_error(self.source(), "has no columns besides the ids; name those to change"));
        }
        Ok(metadata)
    }

    /// Converts the column of vectors of a field, which may be called `vector`, to queries.
    ///
    /// # Errors
    /// [`CollectionError::Parameter`] for an unknown field; as [`RowTables::rows`].
    pub fn queries(&self, table: &RecordBatch, field: Option<&str>) -> Result<VectorFile, CollectionError> {
        let field = self.mapping.schema.field(field)?;
        self.mapping.vectors(table, &self.mapping.schema.vectors[field], 0)
    }
}

/// Rows of an answer that were read from a stream of Arrow IPC.
#[derive(Debug)]
pub struct ReadRows {
    /// The ids.
    pub ids: Ids,
    /// The distances of a search, one for each row; none for rows that no search has found.
    pub distances: Vec<f32>,
    /// The columns of metadata.
    pub columns: RecordBatch,
    /// The vectors of each field.
    pub vectors: Vec<StoredVectors>,
}

impl RowTables {
    /// Reads an answer that [`ArrowRows`] has written, with the vectors of `fields`. `searched` is true for
    /// the answer of a search, which has distances. Columns are found by their places, since metadata may
    /// have any names. Compressed buffers may take `most_bytes`.
    ///
    /// # Errors
    /// [`CollectionError::File`] for bytes that are no such answer.
    pub fn answer(
        &self,
        bytes: &[u8],
        most_bytes: u64,
        (fields, searched): (&[String], bool),
    ) -> Result<ReadRows, CollectionError> {
        let table = self.table_of_arrow(bytes, most_bytes)?;
        let first = if searched { SEARCH_COLUMNS } else { 0 };
        let count = table.num_columns();
        let fewest = first + 1 + fields.len();
        let wrong = |what: &str| file_error(self.source(), format!("is not an answer as expected: {what}"));
        if count < fewest {
            return Err(wrong(&format!("it has {count} columns, and {fewest} are the fewest")));
        }
        let distances = match searched {
            false => Vec::new(),
            true => {
                let column = table.column(DISTANCE_PLACE).as_primitive_opt::<Float32Type>();
                column.ok_or_else(|| wrong("there are no distances"))?.values().to_vec()
            }
        };
        let ids = Ids::from_array(self.mapping.schema.id_kind, table.column(first))
            .map_err(|error| file_error(self.source(), error))?;
        let behind = count - fields.len();
        let mut vectors = Vec::with_capacity(fields.len());
        for (name, column) in fields.iter().zip(&table.columns()[behind..]) {
            let field = &self.mapping.schema.vectors[self.mapping.schema.field(Some(name))?];
            let read = from_lists(column, field, 0).map_err(|reason| file_error(self.source(), reason))?;
            let bytes = read.rows(0..read.count()).unwrap_or_default().to_vec();
            vectors.push(StoredVectors { element: field.element, dim: field.dim, bytes });
        }
        let places: Vec<usize> = (first + 1..behind).collect();
        Ok(ReadRows { ids, distances, columns: table.project(&places)?, vectors })
    }
}

/// Rows of an answer that are written as a stream of Arrow IPC.
#[derive(Debug, Clone)]
pub struct ArrowRows {
    fields: Vec<Field>,
    columns: Vec<ArrayRef>,
}

impl ArrowRows {
    /// Creates rows from ids, columns and vectors. Each field of vectors (`rows x dim`) comes with its name.
    ///
    /// # Errors
    /// [`CollectionError::Arrow`].
    pub fn new(
        ids: &Ids,
        columns: &RecordBatch,
        vectors: Vec<(String, StoredVectors)>,
    ) -> Result<ArrowRows, CollectionError> {
        let id = Field::new(ID_COLUMN, ids.kind().data_type(), false);
        let mut rows = ArrowRows { fields: vec![id], columns: vec![ids.to_array()] };
        rows.fields.extend(columns.schema().fields().iter().map(|field| field.as_ref().clone()));
        rows.columns.extend(columns.columns().iter().cloned());
        for (name, stored) in vectors {
            let lists = to_lists(stored)?;
            rows.fields.push(Field::new(name, lists.data_type().clone(), false));
            rows.columns.push(lists);
        }
        Ok(rows)
    }

    /// Returns queries as a body of a search: a column with the name of the field.
    ///
    /// # Errors
    /// [`CollectionError::Arrow`].
    pub fn of_queries(field: &str, queries: StoredVectors) -> Result<ArrowRows, CollectionError> {
        let lists = to_lists(queries)?;
        let field = Field::new(field, lists.data_type().clone(), false);
        Ok(ArrowRows { fields: vec![field], columns: vec![lists] })
    }

    /// Adds the distances of a search, one for each row, and the number of each row's query: `k` rows are
    /// those of one query.
    pub fn with_distances(mut self, distances: Vec<f32>, k: usize) -> ArrowRows {
        let queries = (0..distances.len()).map(|row| (row / k.max(1)) as u32);
        let queries: ArrayRef = Arc::new(UInt32Array::from_iter_values(queries));
        let distances: ArrayRef = Arc::new(Float32Array::from(distances));
        for (name, column) in [(DISTANCE_COLUMN, distances), (QUERY_COLUMN, queries)] {
            self.fields.insert(0, Field::new(name, column.data_type().clone(), false));
            self.columns.insert(0, column);
        }
        self
    }

    /// Returns the rows as a stream of Arrow IPC.
    ///
    /// # Errors
    /// [`CollectionError::Arrow`].
    pub fn into_stream(self) -> Result<Vec<u8>, CollectionError> {
        let table = RecordBatch::try_new(Arc::new(ArrowSchema::new(self.fields)), self.columns)?;
        let mut writer = StreamWriter::try_new(Vec::new(), &table.schema())?;
        writer.write(&table)?;
        Ok(writer.into_inner()?)
    }
}
