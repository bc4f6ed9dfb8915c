//! Columns of rows as the package hands them on, and Arrow data that comes batch by batch.

use super::capsule::{checked, offer, stream, table, whole};
use super::given::column;
use super::told::{object, values};
use crate::errors::Failure;
use arrow_array::cast::AsArray;
use arrow_array::ffi_stream::ArrayStreamReader;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, Field, Schema};
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};
use std::sync::{Arc, Mutex, PoisonError};

/// Columns of the same rows.
#[pyclass(frozen, module = "bathyal._bathyal")]
pub(crate) struct Columns {
    pub(crate) batch: RecordBatch,
}

impl Columns {
    fn column(&self, name: &str) -> PyResult<&ArrayRef> {
        self.batch.column_by_name(name).ok_or_else(|| PyKeyError::new_err(name.to_owned()))
    }
}

#[pymethods]
impl Columns {
    /// All rows of a value that offers Arrow data; None of one that does not.
    #[staticmethod]
    fn of(value: &Bound<'_, PyAny>) -> PyResult<Option<Columns>> {
        let array = whole(value)?;
        array.map(|array| Ok(Columns { batch: table(&array, "rows")? })).transpose()
    }

    /// The same rows with further columns before: arrays of numbers, of vectors, or of objects that are text.
    fn behind(&self, named: Vec<(String, Bound<'_, PyAny>)>) -> PyResult<Columns> {
        let rows = self.batch.num_rows();
        let (mut fields, mut arrays) = (Vec::new(), Vec::new());
        for (name, value) in &named {
            let array = column(name, &DataType::Utf8, value, rows)?;
            fields.push(Arc::new(Field::new(name, array.data_type().clone(), true)));
            arrays.push(array);
        }
        fields.extend(self.batch.schema().fields().iter().cloned());
        arrays.extend(self.batch.columns().iter().cloned());
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options);
        Ok(Columns { batch: batch.map_err(Failure::from)? })
    }

    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    /// The names of the columns.
    fn names(&self) -> Vec<String> {
        self.batch.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    /// The values of a column as an array of one dimension.
    fn values<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        values(py, self.column(name)?)
    }

    /// A column of lists that are equally long, as an array of two dimensions.
    fn matrix<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let (flat, width) = flattened(name, self.column(name)?)?;
        values(py, &flat)?.call_method1("reshape", (self.batch.num_rows(), width))
    }

    /// The same rows with these columns alone.
    fn select(&self, names: Vec<String>) -> PyResult<Columns> {
        let schema = self.batch.schema();
        let places = names.iter().map(|name| schema.index_of(name)).collect::<Result<Vec<_>, _>>();
        let batch = places.and_then(|places| self.batch.project(&places)).map_err(Failure::from)?;
        Ok(Columns { batch })
    }

    /// A dictionary for each row.
    fn rows<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let (schema, columns) = (self.batch.schema(), self.batch.columns());
        let row = |row: usize| {
            let dictionary = PyDict::new(py);
            for (field, column) in schema.fields().iter().zip(columns) {
                dictionary.set_item(field.name(), object(py, column, row)?)?;
            }
            Ok(dictionary)
        };
        (0..self.batch.num_rows()).map(row).collect()
    }

    /// Arrow data for whoever takes it.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // What is asked for is a wish, and the library of whoever asks can convert.
        let _ = requested_schema;
        offer(py, self.batch.clone())
    }
}

/// The values of lists, one list after the other, and how long each list is.
fn flattened(name: &str, column: &ArrayRef) -> PyResult<(ArrayRef, usize)> {
    let refuse = |what: String| Err(PyValueError::new_err(format!("column {name:?}: {what}")));
    if column.null_count() > 0 {
        return refuse(format!("{} of its vectors are null; leave their rows out", column.null_count()));
    }
    let (flat, width) = match column.data_type() {
        DataType::FixedSizeList(_, width) => {
            let lists = column.as_fixed_size_list();
            let width = *width as usize;
            (lists.values().slice(0, lists.len() * width), width)
        }
        DataType::List(_) => even(column.as_list::<i32>()).map_err(Failure::from)?,
        DataType::LargeList(_) => even(column.as_list::<i64>()).map_err(Failure::from)?,
        other => {
            return refuse(format!(
                "it holds {other}; expected vectors: lists of numbers that are equally long"
            ));
        }
    };
    if flat.null_count() > 0 {
        return refuse("its vectors have components that are null".into());
    }
    Ok((flat, width))
}

fn even<O: arrow_array::OffsetSizeTrait>(
    lists: &arrow_array::GenericListArray<O>,
) -> Result<(ArrayRef, usize), arrow_schema::ArrowError> {
    let offsets = lists.value_offsets();
    let lengths = offsets.windows(2).map(|two| (two[1] - two[0]).as_usize());
    let width = lengths.clone().next().unwrap_or(0);
    if let Some(row) = lengths.clone().position(|length| length != width) {
        return Err(arrow_schema::ArrowError::InvalidArgumentError(format!(
            "row {row} of the vectors has another length than row 0 ({width})"
        )));
    }
    let first = offsets.first().map_or(0, |first| first.as_usize());
    Ok((lists.values().slice(first, lists.len() * width), width))
}

/// Arrow data that comes batch by batch.
#[pyclass(frozen, module = "bathyal._bathyal")]
pub(crate) struct BatchReader {
    reading: Mutex<Reading>,
    most: usize,
}

struct Reading {
    reader: Option<ArrayStreamReader>,
    /// Rows that came and were not handed on.
    left: Option<RecordBatch>,
}

#[pymethods]
impl BatchReader {
    /// Of a value that offers Arrow data; batches of more than `most` rows are divided.
    #[new]
    fn new(value: &Bound<'_, PyAny>, most: usize) -> PyResult<BatchReader> {
        let reader = stream(value)?;
        let left = match &reader {
            Some(_) => None,
            None => whole(value)?.map(|array| table(&array, "batches")).transpose()?,
        };
        Ok(BatchReader { reading: Mutex::new(Reading { reader, left }), most: most.max(1) })
    }

    /// The next rows; None at the end.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Columns>> {
        py.detach(|| {
            let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
            loop {
                if let Some(batch) = reading.left.take().filter(|batch| batch.num_rows() > 0) {
                    let taken = batch.num_rows().min(self.most);
                    reading.left = Some(batch.slice(taken, batch.num_rows() - taken));
                    return Ok(Some(Columns { batch: batch.slice(0, taken) }));
                }
                let Some(array) = reading.reader.as_mut().and_then(Iterator::next) else { return Ok(None) };
                let array = array.and_then(checked).map_err(Failure::from)?;
                reading.left = Some(table(&array, "batches")?);
            }
        })
    }
}
