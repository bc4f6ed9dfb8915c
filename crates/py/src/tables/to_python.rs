//! Conversion of ids and columns of metadata to Python.

use super::values::EPOCH_ORDINAL;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimestampMicrosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use bathyal_collection::Ids;
use numpy::PyArray1;
use pyo3::BoundObject;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PyString};
use std::sync::Arc;

/// Returns ids as an array: of uint64, or of objects that are text.
pub(crate) fn ids<'py>(py: Python<'py>, ids: &Ids) -> PyResult<Bound<'py, PyAny>> {
    values(py, &ids.to_array())
}

/// Returns the values of a column as an array. Numbers and booleans have their own dtype if no value is
/// missing; dates and times always do. Other columns are arrays of objects: text, lists, values of JSON, and
/// None for missing values.
pub(super) fn values<'py>(py: Python<'py>, array: &ArrayRef) -> PyResult<Bound<'py, PyAny>> {
    match array.data_type() {
        DataType::Date32 => return times(py, "datetime64[D]", array.as_primitive::<Date32Type>()),
        DataType::Timestamp(..) => {
            return times(py, "datetime64[us]", array.as_primitive::<TimestampMicrosecondType>());
        }
        _ => {}
    }
    if array.null_count() > 0 {
        return objects(py, array);
    }
    Ok(match array.data_type() {
        DataType::Boolean => {
            let values: Vec<bool> = array.as_boolean().values().iter().collect();
            PyArray1::from_vec(py, values).into_any()
        }
        DataType::Int8 => numbers::<Int8Type>(py, array),
        DataType::Int16 => numbers::<Int16Type>(py, array),
        DataType::Int32 => numbers::<Int32Type>(py, array),
        DataType::Int64 => numbers::<Int64Type>(py, array),
        DataType::UInt8 => numbers::<UInt8Type>(py, array),
        DataType::UInt16 => numbers::<UInt16Type>(py, array),
        DataType::UInt32 => numbers::<UInt32Type>(py, array),
        DataType::UInt64 => numbers::<UInt64Type>(py, array),
        DataType::Float16 => {
            let bits: Vec<u16> = array.as_primitive::<Float16Type>().values().inner().typed_data().to_vec();
            PyArray1::from_vec(py, bits).call_method1("view", ("float16",))?
        }
        DataType::Float32 => numbers::<Float32Type>(py, array),
        DataType::Float64 => numbers::<Float64Type>(py, array),
        _ => return objects(py, array),
    })
}

fn numbers<'py, T: ArrowPrimitiveType<Native: numpy::Element>>(
    py: Python<'py>,
    array: &ArrayRef,
) -> Bound<'py, PyAny> {
    PyArray1::from_slice(py, array.as_primitive::<T>().values()).into_any()
}

/// Converts dates or times to the unit of a numpy dtype.
fn times<'py, T: ArrowPrimitiveType<Native: Into<i64>>>(
    py: Python<'py>,
    dtype: &str,
    array: &arrow_array::PrimitiveArray<T>,
) -> PyResult<Bound<'py, PyAny>> {
    // NaT in numpy.
    let counted = array.iter().map(|value| value.map_or(i64::MIN, Into::into)).collect();
    PyArray1::<i64>::from_vec(py, counted).call_method1("view", (dtype,))
}

fn objects<'py>(py: Python<'py>, array: &ArrayRef) -> PyResult<Bound<'py, PyAny>> {
    let objects = (0..array.len()).map(|row| object(py, array, row).map(Bound::unbind));
    Ok(PyArray1::from_vec(py, objects.collect::<PyResult<Vec<_>>>()?).into_any())
}

/// Returns the value at a row as a Python object.
pub(super) fn object<'py>(py: Python<'py>, array: &ArrayRef, row: usize) -> PyResult<Bound<'py, PyAny>> {
    if array.is_null(row) {
        return Ok(py.None().into_bound(py));
    }
    Ok(match array.data_type() {
        DataType::Boolean => array.as_boolean().value(row).into_pyobject(py)?.to_owned().into_any(),
        DataType::Int8 => number::<Int8Type>(py, array, row)?,
        DataType::Int16 => number::<Int16Type>(py, array, row)?,
        DataType::Int32 => number::<Int32Type>(py, array, row)?,
        DataType::Int64 => number::<Int64Type>(py, array, row)?,
        DataType::UInt8 => number::<UInt8Type>(py, array, row)?,
        DataType::UInt16 => number::<UInt16Type>(py, array, row)?,
        DataType::UInt32 => number::<UInt32Type>(py, array, row)?,
        DataType::UInt64 => number::<UInt64Type>(py, array, row)?,
        DataType::Float32 => number::<Float32Type>(py, array, row)?,
        DataType::Float64 => number::<Float64Type>(py, array, row)?,
        DataType::Utf8 => PyString::new(py, array.as_string::<i32>().value(row)).into_any(),
        DataType::LargeUtf8 => {
            let text = array.as_string::<i64>().value(row);
            py.import("json")?.call_method1("loads", (text,))?
        }
        DataType::Date32 => {
            let ordinal = i64::from(array.as_primitive::<Date32Type>().value(row)) + EPOCH_ORDINAL;
            datetime(py)?.getattr("date")?.call_method1("fromordinal", (ordinal,))?
        }
        DataType::Timestamp(..) => {
            let micros = array.as_primitive::<TimestampMicrosecondType>().value(row);
            let datetime = datetime(py)?;
            let epoch = datetime.getattr("datetime")?.call1((1970, 1, 1))?;
            epoch.add(datetime.getattr("timedelta")?.call1((0, 0, micros))?)?
        }
        DataType::List(_) => {
            let held: ArrayRef = Arc::clone(&array.as_list::<i32>().value(row));
            let items = (0..held.len()).map(|at| object(py, &held, at));
            PyList::new(py, items.collect::<PyResult<Vec<_>>>()?)?.into_any()
        }
        other => {
            return Err(PyValueError::new_err(format!(
                "a column of type {other} cannot be converted to Python"
            )));
        }
    })
}

fn number<'py, T: ArrowPrimitiveType<Native: IntoPyObject<'py>>>(
    py: Python<'py>,
    array: &ArrayRef,
    row: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let value = array.as_primitive::<T>().value(row).into_pyobject(py).map_err(Into::into)?;
    Ok(value.into_any().into_bound())
}

/// Returns the module `datetime`.
fn datetime(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let module = MODULE.get_or_try_init(py, || py.import("datetime").map(Bound::unbind))?;
    Ok(module.bind(py).clone())
}
