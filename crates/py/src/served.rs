//! The rows that the package exchanges with a server, as streams of Arrow IPC: the bodies of requests, and
//! answers.

use crate::arrays::{queries as queries_of, vectors};
use crate::errors::Failure;
use crate::snapshot::{Bytes, Part, bytes, part};
use crate::tables::{Columns, ids, ids_to_python, metadata};
use arrow_array::RecordBatch;
use arrow_schema::Schema as ArrowSchema;
use bathyal_collection::exchange::{ArrowRows, ReadRows, RowTables};
use bathyal_collection::{CollectionError, FetchedRows, Id, Ids, Rows, Schema};
use bathyal_index::StoredVectors;
use bathyal_vectors::VectorFile;
use numpy::PyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::Arc;

/// The name of answers in errors.
const ANSWER: &str = "the answer of the server";

/// The most bytes that compressed buffers of an answer may take; a server compresses none.
const MOST_BYTES: u64 = 1 << 30;

/// Rows that were given to be written, checked for a schema.
pub(crate) struct GivenRows {
    ids: Ids,
    fields: Vec<VectorFile>,
    columns: Option<RecordBatch>,
}

impl GivenRows {
    /// Converts rows; `None` if there are none.
    pub(crate) fn of(
        schema: &Schema,
        given: &Bound<'_, PyAny>,
        fields: &[Bound<'_, PyAny>],
        columns: &Bound<'_, PyAny>,
    ) -> PyResult<Option<GivenRows>> {
        let ids = ids(schema.id_kind, given)?;
        let columns = metadata(schema, columns, ids.len(), false)?;
        let lengths = fields.iter().map(PyAnyMethods::len).collect::<PyResult<Vec<usize>>>()?;
        if ids.is_empty() && lengths.iter().all(|length| *length == 0) {
            return Ok(None);
        }
        let count = ids.len();
        let named = schema.vectors.iter().zip(&lengths);
        if let Some((field, length)) = named.into_iter().find(|(_, length)| **length != count) {
            let name = &field.name;
            return Err(PyValueError::new_err(format!(
                "vectors of {name:?}: there are {length} for {count} ids"
            )));
        }
        let fields =
            fields.iter().map(|field| vectors(field, "vectors")).collect::<PyResult<Vec<VectorFile>>>()?;
        Ok(Some(GivenRows { ids, fields, columns }))
    }

    /// Returns the rows of a collection.
    ///
    /// # Errors
    /// Those of [`Rows::new`].
    pub(crate) fn rows(self, schema: &Schema) -> Result<Rows, CollectionError> {
        Rows::new(schema, self.ids, self.fields, self.columns.as_ref())
    }

    /// Returns the rows as a body of a request.
    fn body(self, schema: &Schema) -> Result<Vec<u8>, CollectionError> {
        let named = schema.vectors.iter().zip(self.fields);
        let vectors = named.map(|(field, held)| (field.name.clone(), stored(&held))).collect();
        let columns = self.columns.unwrap_or_else(|| RecordBatch::new_empty(Arc::new(ArrowSchema::empty())));
        ArrowRows::new(&self.ids, &columns, vectors)?.into_stream()
    }
}

fn stored(vectors: &VectorFile) -> StoredVectors {
    let bytes = vectors.rows(0..vectors.count()).unwrap_or_default().to_vec();
    StoredVectors { element: vectors.element(), dim: vectors.dim(), bytes }
}

fn schema_of(text: &str) -> PyResult<Schema> {
    serde_json::from_str(text).map_err(|error| PyValueError::new_err(format!("the schema: {error}")))
}

/// Returns rows as a body of Arrow; None if there are none.
#[pyfunction]
pub(crate) fn rows_to_arrow<'py>(
    py: Python<'py>,
    schema: &str,
    given: &Bound<'_, PyAny>,
    fields: Vec<Bound<'_, PyAny>>,
    columns: &Bound<'_, PyAny>,
) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let schema = schema_of(schema)?;
    let Some(rows) = GivenRows::of(&schema, given, &fields, columns)? else { return Ok(None) };
    let body = py.detach(|| rows.body(&schema)).map_err(Failure::from)?;
    Ok(Some(PyBytes::new(py, &body)))
}

/// Returns changed columns as a body of Arrow.
#[pyfunction]
pub(crate) fn columns_to_arrow<'py>(
    py: Python<'py>,
    schema: &str,
    given: &Bound<'_, PyAny>,
    columns: &Bound<'_, PyAny>,
) -> PyResult<Bound<'py, PyBytes>> {
    let schema = schema_of(schema)?;
    let ids = ids(schema.id_kind, given)?;
    let Some(columns) = metadata(&schema, columns, ids.len(), true)? else {
        return Err(PyValueError::new_err("metadata is None; give the columns to change"));
    };
    let rows = ArrowRows::new(&ids, &columns, Vec::new()).map_err(Failure::from)?;
    Ok(PyBytes::new(py, &rows.into_stream().map_err(Failure::from)?))
}

/// Returns ids as JSON.
#[pyfunction]
pub(crate) fn ids_to_json(schema: &str, given: &Bound<'_, PyAny>) -> PyResult<String> {
    let ids = ids(schema_of(schema)?.id_kind, given)?;
    let value = |at: usize| match ids.get(at) {
        Id::Number(number) => serde_json::Value::from(number),
        Id::Text(text) => serde_json::Value::from(text),
    };
    let values: Vec<serde_json::Value> = (0..ids.len()).map(value).collect();
    Ok(serde_json::to_string(&values).map_err(Failure::from)?)
}

/// Returns queries of a field, an array of `queries x dim` or a single query, as a body of Arrow; None if
/// there are none.
#[pyfunction]
pub(crate) fn queries_to_arrow<'py>(
    py: Python<'py>,
    field: &str,
    queries: &Bound<'_, PyAny>,
) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let Some(queries) = queries_of(queries, "queries")? else { return Ok(None) };
    let body = ArrowRows::of_queries(field, stored(&queries)).and_then(ArrowRows::into_stream);
    Ok(Some(PyBytes::new(py, &body.map_err(Failure::from)?)))
}

/// Reads an answer of Arrow.
fn read(py: Python<'_>, schema: &str, body: &[u8], fields: &[String], searched: bool) -> PyResult<ReadRows> {
    let tables = RowTables::new(schema_of(schema)?, ANSWER);
    Ok(py.detach(|| tables.answer(body, MOST_BYTES, (fields, searched))).map_err(Failure::from)?)
}

/// Ids, distances, columns, and vectors.
type Found<'py> = (Bound<'py, PyAny>, Bound<'py, PyArray1<f32>>, Columns, Option<Bytes<'py>>);

/// Reads the answer of a search, with the vectors of a field if it is named.
#[pyfunction]
#[pyo3(signature = (schema, field, body))]
pub(crate) fn arrow_to_found<'py>(
    py: Python<'py>,
    schema: &str,
    field: Option<String>,
    body: &[u8],
) -> PyResult<Found<'py>> {
    let fields: Vec<String> = field.into_iter().collect();
    let ReadRows { ids, distances, columns, mut vectors } = read(py, schema, body, &fields, true)?;
    let vectors = vectors.pop().map(|vectors| bytes(py, vectors));
    let distances = PyArray1::from_vec(py, distances);
    Ok((ids_to_python(py, &ids)?, distances, Columns { batch: columns }, vectors))
}

/// Reads rows, with the vectors of the named fields.
#[pyfunction]
pub(crate) fn arrow_to_rows<'py>(
    py: Python<'py>,
    schema: &str,
    fields: Vec<String>,
    body: &[u8],
) -> PyResult<Part<'py>> {
    let ReadRows { ids, columns, vectors, .. } = read(py, schema, body, &fields, false)?;
    part(py, FetchedRows { ids, columns, vectors })
}
