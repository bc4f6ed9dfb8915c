//! Conversion of numpy arrays to columns.

use arrow_array::types::{
    ArrowPrimitiveType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{ArrayRef, BooleanArray, FixedSizeListArray, PrimitiveArray, TimestampMicrosecondArray};
use arrow_schema::Field;
use numpy::{PyArray1, PyArrayDescrMethods, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::Arc;

/// Converts an array of numbers, booleans or dates to a column; an array of two dimensions becomes a column
/// of lists. `None` for other arrays, whose values are converted one by one.
pub(super) fn column(array: &Bound<'_, PyUntypedArray>, name: &str) -> PyResult<Option<ArrayRef>> {
    if array.ndim() == 2 {
        let width = i32::try_from(array.shape()[1])
            .map_err(|_| PyValueError::new_err(format!("{name}: its lists are too long")))?;
        let flat = array.call_method1("reshape", (-1,))?;
        let Some(values) = column(flat.cast::<PyUntypedArray>()?, name)? else { return Ok(None) };
        let item = Arc::new(Field::new("item", values.data_type().clone(), true));
        let lists = FixedSizeListArray::try_new_with_length(item, width, values, None, array.shape()[0]);
        return Ok(Some(Arc::new(lists.map_err(crate::errors::Failure::from)?)));
    }
    if array.ndim() != 1 {
        return Err(PyValueError::new_err(format!(
            "{name}: the array has {} dimensions; expected 1, or 2 for a column of lists",
            array.ndim()
        )));
    }
    let dtype = array.dtype();
    if dtype.is_native_byteorder() == Some(false) {
        let native = array.call_method1("astype", (dtype.call_method1("newbyteorder", ("=",))?,))?;
        return column(native.cast::<PyUntypedArray>()?, name);
    }
    Ok(match (dtype.kind(), dtype.itemsize()) {
        (b'b', _) => Some(truth_values(array)?),
        (b'i', 1) => Some(numbers::<Int8Type>(array)?),
        (b'i', 2) => Some(numbers::<Int16Type>(array)?),
        (b'i', 4) => Some(numbers::<Int32Type>(array)?),
        (b'i', 8) => Some(numbers::<Int64Type>(array)?),
        (b'u', 1) => Some(numbers::<UInt8Type>(array)?),
        (b'u', 2) => Some(numbers::<UInt16Type>(array)?),
        (b'u', 4) => Some(numbers::<UInt32Type>(array)?),
        (b'u', 8) => Some(numbers::<UInt64Type>(array)?),
        (b'f', 2) => {
            let wider = array.call_method1("astype", ("float32",))?;
            Some(numbers::<Float32Type>(wider.cast::<PyUntypedArray>()?)?)
        }
        (b'f', 4) => Some(numbers::<Float32Type>(array)?),
        (b'f', 8) => Some(numbers::<Float64Type>(array)?),
        (b'M', _) => Some(times(array)?),
        (b'O' | b'U' | b'T', _) => None,
        _ => {
            return Err(PyValueError::new_err(format!(
                "{name}: the array holds {dtype}, which columns cannot hold"
            )));
        }
    })
}

fn numbers<T: ArrowPrimitiveType<Native: numpy::Element + Copy>>(
    array: &Bound<'_, PyUntypedArray>,
) -> PyResult<ArrayRef> {
    let readable = array.cast::<PyArray1<T::Native>>()?.try_readonly()?;
    Ok(Arc::new(PrimitiveArray::<T>::from_iter_values(readable.as_array().iter().copied())))
}

fn truth_values(array: &Bound<'_, PyUntypedArray>) -> PyResult<ArrayRef> {
    let readable = array.cast::<PyArray1<bool>>()?.try_readonly()?;
    Ok(Arc::new(BooleanArray::from_iter(readable.as_array().iter().map(|value| Some(*value)))))
}

/// Converts dates and times of any unit to microseconds; NaT becomes null.
fn times(array: &Bound<'_, PyUntypedArray>) -> PyResult<ArrayRef> {
    let counted = array.call_method1("astype", ("datetime64[us]",))?.call_method1("view", ("int64",))?;
    let readable = counted.cast::<PyArray1<i64>>()?.try_readonly()?;
    let values = readable.as_array();
    let times = values.iter().map(|value| (*value != i64::MIN).then_some(*value));
    Ok(Arc::new(TimestampMicrosecondArray::from_iter(times)))
}
