//! Writes rows as JSON.

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

/// Rows that can be serialized as JSON objects.
#[derive(Debug, Clone)]
pub struct JsonRows {
    ids: Ids,
    distances: Option<Vec<f32>>,
    columns: Vec<(String, Vec<Value>)>,
    vectors: Vec<(String, StoredVectors)>,
}

/// One of [`JsonRows`]. It serializes as an object with its id, its distance if any, its columns and its
/// vectors.
#[derive(Debug, Clone, Copy)]
pub struct JsonRow<'a> {
    rows: &'a JsonRows,
    row: usize,
}

impl JsonRows {
    /// Creates rows from ids, columns and vectors. Each field of vectors (`rows x dim`) comes with its name.
    ///
    /// # Errors
    /// [`CollectionError::Arrow`] for a time that cannot be formatted.
    pub fn new(
        ids: Ids,
        columns: &RecordBatch,
        vectors: Vec<(String, StoredVectors)>,
    ) -> Result<JsonRows, CollectionError> {
        let schema = columns.schema();
        let names = schema.fields().iter().map(|field| field.name().clone());
        let values = columns.columns().iter().map(|column| json_values(column));
        let columns = names
            .zip(values)
            .map(|(name, values)| Ok((name, values?)))
            .collect::<Result<_, CollectionError>>()?;
        Ok(JsonRows { ids, distances: None, columns, vectors })
    }

    /// Adds the distances of a search, one for each row.
    pub fn with_distances(self, distances: Vec<f32>) -> JsonRows {
        JsonRows { distances: Some(distances), ..self }
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns true if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Returns the row at a position; `None` beyond the last row.
    pub fn row(&self, row: usize) -> Option<JsonRow<'_>> {
        (row < self.len()).then_some(JsonRow { rows: self, row })
    }

    /// Returns all rows in order.
    pub fn iter(&self) -> impl Iterator<Item = JsonRow<'_>> {
        (0..self.len()).map(|row| JsonRow { rows: self, row })
    }
}

impl JsonRow<'_> {
    /// Returns the distance, if the rows have distances.
    pub fn distance(&self) -> Option<f32> {
        self.rows.distances.as_ref()?.get(self.row).copied()
    }

    /// Returns the columns with their values.
    pub fn columns(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.rows.columns.iter().filter_map(|(name, values)| Some((name.as_str(), values.get(self.row)?)))
    }
}

impl Serialize for JsonRow<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(None)?;
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
                // Bits are written as bytes, eight in each, as they are read.
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

/// Converts a column.
fn json_values(array: &dyn Array) -> Result<Vec<Value>, CollectionError> {
    let rows = 0..array.len();
    let convert = |value: &dyn Fn(usize) -> Value| {
        rows.clone().map(|row| if array.is_null(row) { Value::Null } else { value(row) }).collect()
    };
    Ok(match array.data_type() {
        DataType::Boolean => {
            let values = array.as_boolean();
            convert(&|row| values.value(row).into())
        }
        DataType::Utf8 => {
            let values = array.as_string::<i32>();
            convert(&|row| values.value(row).into())
        }
        DataType::LargeUtf8 => {
            let values = array.as_string::<i64>();
            convert(&|row| serde_json::from_str(values.value(row)).unwrap_or_default())
        }
        DataType::Float32 => {
            let values = array.as_primitive::<Float32Type>();
            // Parses the shortest decimal form of the f32. The f64 of the same value would be written with
            // more digits.
            convert(&|row| float(values.value(row).to_string().parse().unwrap_or(f64::NAN)))
        }
        DataType::Float64 => {
            let values = array.as_primitive::<Float64Type>();
            convert(&|row| float(values.value(row)))
        }
        DataType::UInt64 => {
            let values = array.as_primitive::<UInt64Type>();
            convert(&|row| values.value(row).into())
        }
        integer if integer.is_integer() => {
            let values = cast(array, &DataType::Int64)?;
            let values = values.as_primitive::<Int64Type>();
            convert(&|row| values.value(row).into())
        }
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let items = json_values(list.values())?;
            let offsets = list.value_offsets();
            convert(&|row| Value::Array(items[offsets[row] as usize..offsets[row + 1] as usize].to_vec()))
        }
        // Dates and times are written in ISO 8601.
        _ => {
            let values = cast(array, &DataType::Utf8)?;
            let values = values.as_string::<i32>();
            convert(&|row| values.value(row).into())
        }
    })
}

/// Converts a number. Numbers that JSON cannot write become strings.
fn float(number: f64) -> Value {
    match serde_json::Number::from_f64(number) {
        Some(number) => Value::Number(number),
        None if number.is_nan() => "NaN".into(),
        None if number > 0.0 => "Infinity".into(),
        None => "-Infinity".into(),
    }
}
