//! Conversion of numpy arrays to vectors and back, without a copy.

use crate::errors::Failure;
use bathyal_index::IndexError;
use bathyal_kernels::Element;
use bathyal_vectors::VectorFile;
use numpy::ndarray::Array2;
use numpy::{PyArray2, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;

/// The bytes of a numpy array, which stays alive as long as this value.
struct Borrowed {
    start: *const u8,
    len: usize,
    _array: Py<PyUntypedArray>,
}

// SAFETY: the bytes are only read, and `_array` may be dropped by any thread (PyO3 then waits for the
// interpreter's lock). numpy does not move the bytes of an array that someone else holds.
unsafe impl Send for Borrowed {}
// SAFETY: as above; no method changes anything.
unsafe impl Sync for Borrowed {}

impl AsRef<[u8]> for Borrowed {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `start` and `len` are those of a C-contiguous array that `_array` keeps alive. As with a
        // mapped file, Rust cannot rule out that another Python thread writes to it meanwhile: the package
        // documents that it must not. Bytes that change give wrong distances; none is a length or an address.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

/// Returns the element of the array, if it is one of Bathyal's in the byte order of this machine. `name` is
/// the argument.
fn element_of(array: &Bound<'_, PyUntypedArray>, name: &str) -> PyResult<Element> {
    let dtype = array.dtype();
    if dtype.is_native_byteorder() != Some(false) {
        match (dtype.kind(), dtype.itemsize()) {
            (b'f', 4) => return Ok(Element::F32),
            // bfloat16 of ml_dtypes; numpy has none of its own.
            (b'V' | b'f', 2) if dtype.getattr("name")?.extract::<String>()? == "bfloat16" => {
                return Ok(Element::Bf16);
            }
            (b'f', 2) => return Ok(Element::F16),
            (b'u', 1) => return Ok(Element::U8),
            (b'i', 1) => return Ok(Element::I8),
            _ => {}
        }
    }
    Err(PyValueError::new_err(format!(
        "{name}: the array holds {dtype}, expected float32, float16, uint8 or int8: convert it with \
         array.astype(...)"
    )))
}

/// Returns the vectors of the argument `name`: of a two-dimensional C-contiguous array, borrowed, or of the
/// file at a path.
pub(crate) fn vectors(data: &Bound<'_, PyAny>, name: &str) -> PyResult<VectorFile> {
    let Ok(array) = data.cast::<PyUntypedArray>() else {
        let path: PathBuf = data.extract().map_err(|_| {
            let kind = data.get_type();
            PyTypeError::new_err(format!("{name}: expected a path or a numpy array, got {kind}"))
        })?;
        return Ok(VectorFile::open(path).map_err(Failure::from)?);
    };
    let &[count, dim] = array.shape() else {
        return Err(PyValueError::new_err(format!(
            "{name}: the array has {} dimensions, expected 2: vectors x components",
            array.ndim()
        )));
    };
    borrow(array, count, dim, name)
}

/// Returns queries like [`vectors`]; an array of one dimension is a single query. `None` if there are no
/// queries.
pub(crate) fn queries(data: &Bound<'_, PyAny>, name: &str) -> PyResult<Option<VectorFile>> {
    match data.cast::<PyUntypedArray>() {
        Ok(array) if array.is_empty() => Ok(None),
        Ok(array) if array.ndim() == 1 => borrow(array, 1, array.len(), name).map(Some),
        _ => vectors(data, name).map(Some),
    }
}

/// Borrows the `count x dim` elements of an array.
fn borrow(array: &Bound<'_, PyUntypedArray>, count: usize, dim: usize, name: &str) -> PyResult<VectorFile> {
    let element = element_of(array, name)?;
    if !array.is_c_contiguous() {
        return Err(PyValueError::new_err(format!(
            "{name}: the array is not C-contiguous (it is a slice or transposed): pass \
             numpy.ascontiguousarray(array), which copies it",
        )));
    }
    // SAFETY: the pointer is that of a live array; reading its field `data` is what the numpy C API allows.
    let start = unsafe { (*array.as_array_ptr()).fields.data } as *const u8;
    let borrowed = Borrowed { start, len: count * element.row_bytes(dim), _array: array.clone().unbind() };
    Ok(VectorFile::from_lent_as(name, element, dim, Arc::new(borrowed)).map_err(Failure::from)?)
}

/// Returns `values` as a `rows x columns` array, without a copy.
pub(crate) fn matrix<T: numpy::Element>(
    py: Python<'_>,
    values: Vec<T>,
    columns: usize,
) -> PyResult<Bound<'_, PyArray2<T>>> {
    let rows = values.len().checked_div(columns).unwrap_or(0);
    let matrix = Array2::from_shape_vec((rows, columns), values);
    let matrix = matrix.map_err(|e| Failure::from(IndexError::Internal(e.to_string())))?;
    Ok(PyArray2::from_owned_array(py, matrix))
}
