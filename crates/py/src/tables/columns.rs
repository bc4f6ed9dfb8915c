//! Columns of rows for the package, and Arrow data that arrives batch by batch.

use super::capsule::{checked, offer, stream, table, whole};
use super::from_python::column;
use super::to_python::{object, values};
use crate::errors::Failure;
use arrow_array::cast::AsArray;
use arrow_array::ffi_stream::ArrayStreamReader;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema};
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyCapsule, PyDict};
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
    /// Returns all rows of a value that offers Arrow data; None for other values.
    #[staticmethod]
    fn of(value: &Bound<'_, PyAny>) -> PyResult<Option<Columns>> {
        let array = whole(value)?;
        array.map(|array| Ok(Columns { batch: table(&array, "rows")? })).transpose()
    }

    /// Returns the same rows with further columns in front: arrays of numbers, of vectors, or of objects that
    /// are text.
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

    /// Returns the names of the columns.
    fn names(&self) -> Vec<String> {
        self.batch.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    /// Returns the values of a column as an array of one dimension.
    fn values<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        values(py, self.column(name)?)
    }

    /// Returns a column of lists of equal length as an array of two dimensions.
    fn matrix<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let (flat, width) = flattened(name, self.column(name)?)?;
        values(py, &flat)?.call_method1("reshape", (self.batch.num_rows(), width))
    }

    /// Returns the same rows with only these columns.
    fn select(&self, names: Vec<String>) -> PyResult<Columns> {
        let schema = self.batch.schema();
        let places = names.iter().map(|name| schema.index_of(name)).collect::<Result<Vec<_>, _>>();
        let batch = places.and_then(|places| self.batch.project(&places)).map_err(Failure::from)?;
        Ok(Columns { batch })
    }

    /// Returns a dictionary for each row.
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

    /// Pickles the columns as an Arrow IPC stream.
    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        let mut bytes = Vec::new();
        let mut writer = StreamWriter::try_new(&mut bytes, &self.batch.schema()).map_err(Failure::from)?;
        writer.write(&self.batch).and_then(|()| writer.finish()).map_err(Failure::from)?;
        drop(writer);
        Ok((py.get_type::<Columns>().getattr("of_bytes")?, (PyBytes::new(py, &bytes),)))
    }

    /// Reads columns from an Arrow IPC stream.
    #[staticmethod]
    fn of_bytes(bytes: &[u8]) -> PyResult<Columns> {
        let batch = StreamReader::try_new(bytes, None).and_then(|mut reader| {
            reader.next().unwrap_or_else(|| Err(ArrowError::IpcError("there are no columns".into())))
        });
        Ok(Columns { batch: batch.map_err(Failure::from)? })
    }

    /// Offers the rows as a stream of Arrow data.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The requested schema is optional; the receiving library can convert.
        let _ = requested_schema;
        offer(py, self.batch.clone())
    }
}

/// Returns the values of all lists in order, and the length of each list.
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

/// Arrow data that is read batch by batch.
#[pyclass(frozen, module = "bathyal._bathyal")]
pub(crate) struct BatchReader {
    reading: Mutex<Reading>,
    most: usize,
}

struct Reading {
    reader: Option<ArrayStreamReader>,
    /// Rows that were read and not returned yet.
    left: Option<RecordBatch>,
}

#[pymethods]
impl BatchReader {
    /// Creates a reader of a value that offers Arrow data; batches of more than `most` rows are divided.
    #[new]
    fn new(value: &Bound<'_, PyAny>, most: usize) -> PyResult<BatchReader> {
        let reader = stream(value)?;
        let left = match &reader {
            Some(_) => None,
            None => whole(value)?.map(|array| table(&array, "batches")).transpose()?,
        };
        Ok(BatchReader { reading: Mutex::new(Reading { reader, left }), most: most.max(1) })
    }

    /// Returns the next rows; None at the end.
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
