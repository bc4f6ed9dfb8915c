//! Converts JSON values to columns.

use crate::ids::IdKind;
use arrow_array::{
    ArrayRef, BooleanArray, Float32Array, Float64Array, Int64Array, LargeStringArray, ListArray, StringArray,
    UInt64Array, new_null_array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::{DataType, Field};
use serde_json::Value;
use std::sync::Arc;

/// The names of numbers that JSON cannot write as numbers.
const NOT_FINITE: [(&str, f64); 3] =
    [("NaN", f64::NAN), ("Infinity", f64::INFINITY), ("-Infinity", f64::NEG_INFINITY)];

/// A row's number, and the reason why its value is invalid.
type RowError = (usize, String);

/// Converts ids.
pub(super) fn id_column(kind: IdKind, values: &[Option<&Value>]) -> Result<ArrayRef, RowError> {
    if let Some(row) = values.iter().position(|value| matches!(value, None | Some(Value::Null))) {
        return Err((row, "every row needs an id".into()));
    }
    match kind {
        IdKind::Number => metadata_column(&DataType::UInt64, values),
        IdKind::Text => metadata_column(&DataType::Utf8, values),
    }
}

/// Converts vectors, which are arrays of numbers. Their length is not checked.
pub(super) fn vector_column(values: &[Option<&Value>]) -> Result<ArrayRef, RowError> {
    let (mut numbers, mut lengths, mut present) = (Vec::new(), Vec::new(), Vec::new());
    for (row, value) in values.iter().enumerate() {
        let before = numbers.len();
        match value {
            Some(Value::Array(items)) => {
                for item in items {
                    let number = item.as_f64().ok_or_else(|| {
                        (row, format!("{} is not a component of a vector (a number)", short(item)))
                    })?;
                    numbers.push(number as f32);
                }
            }
            None | Some(Value::Null) => {}
            Some(other) => {
                return Err((row, format!("{} is not a vector (an array of numbers)", short(other))));
            }
        }
        lengths.push(numbers.len() - before);
        present.push(matches!(value, Some(Value::Array(_))));
    }
    let item = Arc::new(Field::new_list_field(DataType::Float32, true));
    Ok(Arc::new(ListArray::new(
        item,
        OffsetBuffer::from_lengths(lengths),
        Arc::new(Float32Array::from(numbers)),
        Some(NullBuffer::from(present)),
    )))
}

/// Converts a column of metadata. Missing values and nulls become null.
pub(super) fn metadata_column(data_type: &DataType, values: &[Option<&Value>]) -> Result<ArrayRef, RowError> {
    let DataType::List(item) = data_type else { return scalar_column(data_type, values) };
    let (mut items, mut rows, mut lengths, mut present) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (row, value) in values.iter().enumerate() {
        let before = items.len();
        match value {
            Some(Value::Array(array)) => {
                items.extend(array.iter().map(Some));
                rows.resize(items.len(), row);
            }
            None | Some(Value::Null) => {}
            Some(other) => return Err((row, format!("{} is not a list (an array)", short(other)))),
        }
        lengths.push(items.len() - before);
        present.push(matches!(value, Some(Value::Array(_))));
    }
    let items = scalar_column(item.data_type(), &items).map_err(|(at, reason)| (rows[at], reason))?;
    Ok(Arc::new(ListArray::new(
        item.clone(),
        OffsetBuffer::from_lengths(lengths),
        items,
        Some(NullBuffer::from(present)),
    )))
}

/// Converts texts to a column of dates or times, as those of JSON lines are converted. `None` becomes null.
///
/// # Errors
/// The number of the first text that is none, and the reason.
pub fn times_of_texts(data_type: &DataType, texts: &[Option<&str>]) -> Result<ArrayRef, (usize, String)> {
    let values: Vec<Option<Value>> = texts.iter().map(|text| text.map(Value::from)).collect();
    scalar_column(data_type, &values.iter().map(Option::as_ref).collect::<Vec<_>>())
}

/// Converts each value with `read`. `expected` describes the values that it accepts.
fn convert_each<T>(
    values: &[Option<&Value>],
    expected: &str,
    read: impl Fn(&Value) -> Option<T>,
) -> Result<Vec<Option<T>>, RowError> {
    let convert_value = |(row, value): (usize, &Option<&Value>)| match value {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            read(value).map(Some).ok_or_else(|| (row, format!("{} is not {expected}", short(value))))
        }
    };
    values.iter().enumerate().map(convert_value).collect()
}

fn scalar_column(data_type: &DataType, values: &[Option<&Value>]) -> Result<ArrayRef, RowError> {
    let float = |value: &Value| match value {
        Value::String(text) => NOT_FINITE.iter().find(|(name, _)| name == text).map(|(_, number)| *number),
        other => other.as_f64(),
    };
    let text = |expected: &str| {
        convert_each(values, expected, |value| value.as_str().map(str::to_string)).map(StringArray::from)
    };
    Ok(match data_type {
        DataType::Boolean => {
            Arc::new(BooleanArray::from(convert_each(values, "true or false", Value::as_bool)?))
        }
        DataType::Utf8 => Arc::new(text("a string")?),
        // A column of JSON takes any value.
        DataType::LargeUtf8 => {
            let texts = convert_each(values, "a value", |value| Some(value.to_string()))?;
            Arc::new(LargeStringArray::from(texts))
        }
        DataType::Float32 => {
            let floats = convert_each(values, "a number", |value| float(value).map(|number| number as f32))?;
            Arc::new(Float32Array::from(floats))
        }
        DataType::Float64 => Arc::new(Float64Array::from(convert_each(values, "a number", float)?)),
        DataType::UInt64 => Arc::new(UInt64Array::from(convert_each(
            values,
            "a whole number from 0 to 2^64 - 1",
            Value::as_u64,
        )?)),
        integer if integer.is_integer() => {
            let numbers: ArrayRef =
                Arc::new(Int64Array::from(convert_each(values, "a whole number", Value::as_i64)?));
            cast_checked(numbers, integer, values, "a number that fits")?
        }
        DataType::Date32 => {
            cast_checked(Arc::new(text("a date")?), data_type, values, "a date such as \"2024-02-29\"")?
        }
        DataType::Timestamp(_, _) => {
            let expected = "a time such as \"2024-02-29T12:00:00\"";
            cast_checked(Arc::new(text("a time")?), data_type, values, expected)?
        }
        // A schema has no columns of other types.
        other => new_null_array(other, values.len()),
    })
}

/// Casts an array to another type. A value that the type cannot hold is an error.
fn cast_checked(
    array: ArrayRef,
    to: &DataType,
    values: &[Option<&Value>],
    expected: &str,
) -> Result<ArrayRef, RowError> {
    let lenient = CastOptions { safe: true, ..CastOptions::default() };
    let cast = cast_with_options(&array, to, &lenient).map_err(|error| (0, error.to_string()))?;
    let failed = (0..array.len()).find(|row| cast.is_null(*row) && !array.is_null(*row));
    match failed {
        None => Ok(cast),
        Some(row) => {
            Err((row, format!("{} is not {expected} ({to})", values[row].map_or_else(String::new, short))))
        }
    }
}

/// Shortens a value for a message.
fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        None => text,
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}
