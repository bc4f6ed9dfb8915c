//! Rows as JSON.

use crate::error::CollectionError;
use crate::ids::{Id, Ids};
use crate::schema::ID_COLUMN;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int64Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use arrow_cast::cast;
use arrow_schema::DataType;
use bathyal_index::StoredVectors;
use bathyal_kernels::{Element, to_f32};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;

/// Rows that can be written as JSON objects.
#[derive(Debug, Clone)]
pub struct JsonRows {
    ids: Ids,
    distances: Option<Vec<f32>>,
    columns: Vec<(String, Vec<Value>)>,
    vectors: Vec<(String, StoredVectors)>,
}

/// One of [`JsonRows`]: an object of its id, its distance where it has one, its columns and its vectors.
#[derive(Debug, Clone, Copy)]
pub struct JsonRow<'a> {
    rows: &'a JsonRows,
    row: usize,
}

impl JsonRows {
    /// Rows with these ids, columns and vectors, by the names of their fields.
    ///
    /// # Errors
    /// [`CollectionError::Arrow`] for a time that cannot be written.
    pub fn new(
        ids: Ids,
        columns: &RecordBatch,
        vectors: Vec<(String, StoredVectors)>,
    ) -> Result<JsonRows, CollectionError> {
        let schema = columns.schema();
        let names = schema.fields().iter().map(|field| field.name().clone());
        let values = columns.columns().iter().map(|column| values_of(column));
        let columns = names
            .zip(values)
            .map(|(name, values)| Ok((name, values?)))
            .collect::<Result<_, CollectionError>>()?;
        Ok(JsonRows { ids, distances: None, columns, vectors })
    }

    /// The same rows with what a search says of each.
    pub fn with_distances(self, distances: Vec<f32>) -> JsonRows {
        JsonRows { distances: Some(distances), ..self }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The row at a place; `None` if there are not so many.
    pub fn row(&self, row: usize) -> Option<JsonRow<'_>> {
        (row < self.len()).then_some(JsonRow { rows: self, row })
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = JsonRow<'_>> {
        (0..self.len()).map(|row| JsonRow { rows: self, row })
    }
}

impl JsonRow<'_> {
    /// The distance that a search has given it.
    pub fn distance(&self) -> Option<f32> {
        self.rows.distances.as_ref()?.get(self.row).copied()
    }

    /// The columns and their values.
    pub fn columns(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.rows.columns.iter().filter_map(|(name, values)| Some((name.as_str(), values.get(self.row)?)))
    }
}

impl Serialize for JsonRow<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut object = to.serialize_map(None)?;
        match self.rows.ids.get(self.row) {
            Id::Number(number) => object.serialize_entry(ID_COLUMN, &number)?,
            Id::Text(text) => object.serialize_entry(ID_COLUMN, &text)?,
        }
        if let Some(distance) = self.distance() {
            object.serialize_entry("distance", &distance)?;
        }
        for (name, value) in self.columns() {
            object.serialize_entry(name, value)?;
        }
        for (name, vectors) in &self.rows.vectors {
            let size = vectors.element.row_bytes(vectors.dim);
            let bytes = vectors.bytes.get(self.row * size..(self.row + 1) * size).unwrap_or_default();
            match vectors.element {
                // Bits are eight in each number, as they are read.
                Element::U8 | Element::B1 => object.serialize_entry(name, bytes)?,
                Element::I8 => {
                    let numbers: Vec<i8> = bytes.iter().map(|byte| *byte as i8).collect();
                    object.serialize_entry(name, &numbers)?;
                }
                Element::F32 | Element::F16 | Element::Bf16 => {
                    let mut numbers = vec![0.0; vectors.dim];
                    to_f32(vectors.element, bytes, &mut numbers);
                    object.serialize_entry(name, &numbers)?;
                }
            }
        }
        object.end()
    }
}

/// The values of a column.
fn values_of(array: &dyn Array) -> Result<Vec<Value>, CollectionError> {
    let rows = 0..array.len();
    let each = |value: &dyn Fn(usize) -> Value| {
        rows.clone().map(|row| if array.is_null(row) { Value::Null } else { value(row) }).collect()
    };
    Ok(match array.data_type() {
        DataType::Boolean => {
            let values = array.as_boolean();
            each(&|row| values.value(row).into())
        }
        DataType::Utf8 => {
            let values = array.as_string::<i32>();
            each(&|row| values.value(row).into())
        }
        DataType::Float32 => {
            let values = array.as_primitive::<Float32Type>();
            // By its own digits, not by those of the double that it would become.
            each(&|row| float(values.value(row).to_string().parse().unwrap_or(f64::NAN)))
        }
        DataType::Float64 => {
            let values = array.as_primitive::<Float64Type>();
            each(&|row| float(values.value(row)))
        }
        DataType::UInt64 => {
            let values = array.as_primitive::<UInt64Type>();
            each(&|row| values.value(row).into())
        }
        integer if integer.is_integer() => {
            let values = cast(array, &DataType::Int64)?;
            let values = values.as_primitive::<Int64Type>();
            each(&|row| values.value(row).into())
        }
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let items = values_of(list.values())?;
            let offsets = list.value_offsets();
            each(&|row| Value::Array(items[offsets[row] as usize..offsets[row + 1] as usize].to_vec()))
        }
        // Dates and times, as ISO 8601 has them.
        _ => {
            let values = cast(array, &DataType::Utf8)?;
            let values = values.as_string::<i32>();
            each(&|row| values.value(row).into())
        }
    })
}

/// A number; those that JSON has none for by their names.
fn float(number: f64) -> Value {
    match serde_json::Number::from_f64(number) {
        Some(number) => Value::Number(number),
        None if number.is_nan() => "NaN".into(),
        None if number > 0.0 => "Infinity".into(),
        None => "-Infinity".into(),
    }
}
