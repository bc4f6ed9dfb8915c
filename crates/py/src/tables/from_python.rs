//! Conversion of ids and metadata from Python.

use super::{capsule, numbers, values};
use crate::errors::Failure;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, Field, Schema as ArrowSchema};
use bathyal_collection::{Column, IdKind, Ids, Schema};
use numpy::{PyArray1, PyArrayDescrMethods, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyMapping, PyString, PyTuple};
use std::sync::Arc;

/// Converts ids of this kind: Arrow data, a numpy array, an iterable, or a single id.
pub(crate) fn ids(kind: IdKind, value: &Bound<'_, PyAny>) -> PyResult<Ids> {
    // Booleans are numbers in Python, but not meant as ids.
    if value.is_instance_of::<PyBool>() {
        return Err(PyTypeError::new_err("ids is a boolean; expected ids"));
    }
    let mut array = column("ids", &kind.data_type(), value, 1)?;
    if let Some(table) = array.as_struct_opt().filter(|table| table.num_columns() == 1) {
        array = table.column(0).clone();
    }
    Ok(Ids::from_array(kind, &*array).map_err(Failure::from)?)
}

/// Converts columns of metadata for `rows` rows: an Arrow table, columns by their names, or a dictionary for
/// each row. With `whole`, the dictionaries must all have the same keys, because an update does not change
/// values that are left out.
pub(crate) fn metadata(
    schema: &Schema,
    value: &Bound<'_, PyAny>,
    rows: usize,
    whole: bool,
) -> PyResult<Option<RecordBatch>> {
    if value.is_none() {
        return Ok(None);
    }
    let batch = if let Some(table) = capsule::whole(value)? {
        capsule::table(&table, "metadata")?
    } else if let Ok(columns) = value.cast::<PyMapping>() {
        of_columns(schema, columns, rows)?
    } else if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        of_rows(schema, value, rows, whole)?
    } else {
        return Err(PyTypeError::new_err(format!(
            "metadata is of type {}; expected a dictionary of columns, a list with a dictionary for each \
             row, or a table of pandas, Arrow or polars",
            value.get_type().name()?
        )));
    };
    if batch.num_rows() != rows {
        let held = batch.num_rows();
        return Err(PyValueError::new_err(format!("there are {held} rows of metadata for {rows} ids")));
    }
    Ok(Some(batch))
}

/// Returns the column of this name; the error lists the columns.
fn known<'a>(schema: &'a Schema, name: &Bound<'_, PyAny>) -> PyResult<&'a Column> {
    let text = name.cast::<PyString>().map_err(|_| {
        PyTypeError::new_err(format!("metadata: {name} is the name of a column; expected text"))
    })?;
    Ok(&schema.columns[schema.column(text.to_str()?).map_err(Failure::from)?])
}

fn of_columns(schema: &Schema, columns: &Bound<'_, PyMapping>, rows: usize) -> PyResult<RecordBatch> {
    let mut arrays = Vec::new();
    for item in columns.items()? {
        let (name, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item.extract()?;
        let known = known(schema, &name)?;
        let array = column(&message_name(&known.name), known.kind.data_type(), &value, rows)?;
        if array.len() != rows {
            return Err(PyValueError::new_err(format!(
                "column {:?} has {} values for {rows} ids",
                known.name,
                array.len()
            )));
        }
        arrays.push((known.name.as_str(), array));
    }
    batch(arrays, rows)
}

fn of_rows(schema: &Schema, value: &Bound<'_, PyAny>, rows: usize, whole: bool) -> PyResult<RecordBatch> {
    let py = value.py();
    let mut dictionaries = Vec::with_capacity(rows);
    for (row, one) in value.try_iter()?.enumerate() {
        dictionaries.push(one?.cast_into::<PyDict>().map_err(|error| {
            let found = error.into_inner().get_type();
            PyTypeError::new_err(format!("metadata, row {row}: is of type {found}; expected a dictionary"))
        })?);
    }
    // Columns are in the order of the schema, whatever the rows leave out.
    let mut seen = vec![0; schema.columns.len()];
    for dictionary in &dictionaries {
        for name in dictionary.keys() {
            let known = known(schema, &name)?;
            seen[schema.column(&known.name).map_err(Failure::from)?] += 1;
        }
    }
    let mut arrays = Vec::new();
    for (column, seen) in schema.columns.iter().zip(seen) {
        if seen == 0 {
            continue;
        }
        if whole && seen < dictionaries.len() {
            return Err(PyValueError::new_err(format!(
                "metadata: {seen} of {} rows have {:?}; give the same columns for all rows, or update these \
                 rows separately",
                dictionaries.len(),
                column.name
            )));
        }
        let own = dictionaries
            .iter()
            .map(|one| Ok(one.get_item(&column.name)?.unwrap_or_else(|| py.None().into_bound(py))));
        let own = own.collect::<PyResult<Vec<_>>>()?;
        arrays.push((
            column.name.as_str(),
            values::of(&message_name(&column.name), column.kind.data_type(), &own)?,
        ));
    }
    batch(arrays, dictionaries.len())
}

fn batch(arrays: Vec<(&str, ArrayRef)>, rows: usize) -> PyResult<RecordBatch> {
    let field = |(name, array): &(&str, ArrayRef)| Field::new(*name, array.data_type().clone(), true);
    let schema = Arc::new(ArrowSchema::new(arrays.iter().map(field).collect::<Vec<_>>()));
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let columns = arrays.into_iter().map(|(_, array)| array).collect();
    Ok(RecordBatch::try_new_with_options(schema, columns, &options).map_err(Failure::from)?)
}

/// Returns the name of a column in messages.
fn message_name(name: &str) -> String {
    format!("column {name:?}")
}

/// Converts a column from any object with its values; a single value applies to all `rows`.
pub(super) fn column(
    name: &str,
    kind: &DataType,
    value: &Bound<'_, PyAny>,
    rows: usize,
) -> PyResult<ArrayRef> {
    if let Some(array) = capsule::whole(value)? {
        return Ok(array);
    }
    let is_json = *kind == DataType::LargeUtf8;
    if is_json && value.is_instance_of::<PyDict>() {
        return values::of(name, kind, &vec![value.clone(); rows]);
    }
    if let Ok(array) = value.cast::<PyUntypedArray>() {
        if array.ndim() == 0 {
            return values::of(name, kind, &vec![array.call_method0("item")?; rows]);
        }
        if array.hasattr("mask")? {
            return masked(name, kind, value, rows);
        }
        if let Some(array) = numbers::column(array, name)?.filter(|_| !is_json) {
            return Ok(array);
        }
        return column(name, kind, &array.call_method0("tolist")?, rows);
    }
    if is_single(value)? {
        return values::of(name, kind, &vec![value.clone(); rows]);
    }
    let items = value.try_iter().map_err(|_| {
        let found = value.get_type();
        PyTypeError::new_err(format!("{name} is of type {found}; expected an array or a list"))
    })?;
    values::of(name, kind, &items.collect::<PyResult<Vec<_>>>()?)
}

/// Converts a masked array; masked values become null.
fn masked(name: &str, kind: &DataType, value: &Bound<'_, PyAny>, rows: usize) -> PyResult<ArrayRef> {
    let masks = value.py().import("numpy.ma")?.call_method1("getmaskarray", (value,))?;
    if masks.cast::<PyUntypedArray>()?.ndim() != 1 {
        return Err(PyValueError::new_err(format!("{name}: a masked array has 1 dimension")));
    }
    let held = value.getattr("data")?;
    let objects = held.cast::<PyUntypedArray>().is_ok_and(|held| held.dtype().kind() == b'O');
    if objects {
        // Masked values may be of any type.
        return column(name, kind, &value.call_method0("tolist")?, rows);
    }
    let array = column(name, kind, &held, rows)?;
    let masks = masks.cast::<PyArray1<bool>>()?.try_readonly()?;
    let masks = BooleanArray::from_iter(masks.as_array().iter().map(|masked| Some(*masked)));
    Ok(arrow_select::nullif::nullif(&array, &masks).map_err(Failure::from)?)
}

/// Returns true if a value is a single value.
fn is_single(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(value.is_none()
        || value.is_instance_of::<PyString>()
        || value.is_instance_of::<PyBytes>()
        || value.is_instance_of::<PyInt>()
        || value.is_instance_of::<PyFloat>()
        || values::is_date(value)?
        // A numpy scalar.
        || value.hasattr("dtype")? && value.hasattr("item")? && !value.hasattr("__iter__")?)
}
