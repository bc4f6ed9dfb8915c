//! Exchange of Arrow data with other libraries by the Arrow PyCapsule interface, without importing these
//! libraries.

use crate::errors::Failure;
use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use arrow_array::ffi_stream::{ArrayStreamReader, FFI_ArrowArrayStream};
use arrow_array::{
    Array, ArrayReader, ArrayRef, RecordBatch, RecordBatchIterator, UInt32Array, make_array, new_empty_array,
};
use arrow_schema::ArrowError;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::ffi::CStr;

const STREAM: &CStr = c"arrow_array_stream";
const ARRAY: &CStr = c"arrow_array";
const SCHEMA: &CStr = c"arrow_schema";

/// Returns a reader of the arrays of a value that offers a stream of Arrow data; `None` for other values.
pub(super) fn stream(value: &Bound<'_, PyAny>) -> PyResult<Option<ArrayStreamReader>> {
    if !value.hasattr("__arrow_c_stream__")? {
        return Ok(None);
    }
    let offered = value.call_method0("__arrow_c_stream__")?;
    let capsule = offered.cast::<PyCapsule>()?;
    let pointer = capsule.pointer_checked(Some(STREAM))?.cast::<FFI_ArrowArrayStream>();
    // SAFETY: a capsule of this name holds such a stream. `from_raw` moves it out, and leaves a released
    // stream in its place.
    let reader = unsafe { ArrayStreamReader::from_raw(pointer.as_ptr()) };
    Ok(Some(reader.map_err(Failure::from)?))
}

/// Returns all Arrow data of a value as one array in its own memory, because the caller may change the
/// original, and a slice of a large table would keep the whole table alive. `None` for a value without Arrow
/// data.
pub(super) fn whole(value: &Bound<'_, PyAny>) -> PyResult<Option<ArrayRef>> {
    let py = value.py();
    if let Some(reader) = stream(value)? {
        let joined = py.detach(|| -> Result<ArrayRef, ArrowError> {
            let empty = new_empty_array(reader.field().data_type());
            let arrays = reader.map(|array| array.and_then(checked)).collect::<Result<Vec<_>, _>>()?;
            match arrays.as_slice() {
                [] => Ok(empty),
                [one] => copied(one),
                some => arrow_select::concat::concat(&some.iter().map(|one| &**one).collect::<Vec<_>>()),
            }
        });
        return Ok(Some(joined.map_err(Failure::from)?));
    }
    if !value.hasattr("__arrow_c_array__")? {
        return Ok(None);
    }
    let (schema, array): (Bound<'_, PyCapsule>, Bound<'_, PyCapsule>) =
        value.call_method0("__arrow_c_array__")?.extract()?;
    let schema = schema.pointer_checked(Some(SCHEMA))?.cast::<FFI_ArrowSchema>();
    let array = array.pointer_checked(Some(ARRAY))?.cast::<FFI_ArrowArray>();
    // SAFETY: capsules of these names hold an array and its schema. The array is moved out of its capsule,
    // which is marked as released; the schema stays in its own, which is alive.
    let data = unsafe { from_ffi(FFI_ArrowArray::from_raw(array.as_ptr()), schema.as_ref()) };
    let array = data.and_then(|data| checked(make_array(data))).and_then(|array| copied(&array));
    Ok(Some(array.map_err(Failure::from)?))
}

/// Validates an array: offsets are within the values, and text is UTF-8.
pub(super) fn checked(array: ArrayRef) -> Result<ArrayRef, ArrowError> {
    array.to_data().validate_full()?;
    Ok(array)
}

fn copied(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let rows = u32::try_from(array.len()).map_err(|_| ArrowError::InvalidArgumentError(TOO_MANY.into()))?;
    arrow_select::take::take(array, &UInt32Array::from_iter_values(0..rows), None)
}

const TOO_MANY: &str = "more than 2^32 rows at once; give them in batches";

/// Returns a capsule that offers rows as a stream of Arrow data.
pub(super) fn offer<'py>(py: Python<'py>, batch: RecordBatch) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = batch.schema();
    let reader = RecordBatchIterator::new([Ok(batch)], schema);
    PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(reader)), STREAM)
}

/// Converts an array of structures, the form in which tables arrive, to rows.
pub(super) fn table(array: &ArrayRef, name: &str) -> PyResult<RecordBatch> {
    let rows = array.as_any().downcast_ref::<arrow_array::StructArray>().ok_or_else(|| {
        PyValueError::new_err(format!(
            "{name}: it is a column of {}; expected a table with named columns",
            array.data_type()
        ))
    })?;
    if rows.null_count() > 0 {
        return Err(PyValueError::new_err(format!("{name}: {} of its rows are null", rows.null_count())));
    }
    let mut names: Vec<&str> = rows.column_names();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|two| two[0] == two[1]) {
        return Err(PyValueError::new_err(format!("{name}: the column {:?} is there twice", twice[0])));
    }
    Ok(RecordBatch::from(rows))
}
