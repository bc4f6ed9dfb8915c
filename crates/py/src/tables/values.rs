//! Conversion of Python values, one by one, to columns.

use crate::errors::Failure;
use arrow_array::builder::StringBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, BooleanArray, LargeStringArray, ListArray, PrimitiveArray, new_null_array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, FieldRef};
use bathyal_collection::exchange::times_of_texts;
use pyo3::exceptions::{PyOverflowError, PyUnicodeEncodeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};
use std::sync::Arc;

/// `date(1970, 1, 1).toordinal()`.
pub(super) const EPOCH_ORDINAL: i64 = 719_163;
const MICROSECONDS_A_DAY: i64 = 86_400_000_000;

/// Converts `items` to a column of type `kind`; `name` is for messages.
pub(super) fn of(name: &str, kind: &DataType, items: &[Bound<'_, PyAny>]) -> PyResult<ArrayRef> {
    let whole = "a whole number";
    match kind {
        DataType::Boolean => {
            let values = each(name, items, "True or False", |item| item.extract::<bool>())?;
            Ok(Arc::new(BooleanArray::from(values)))
        }
        DataType::Int8 => numbers::<Int8Type>(name, items, whole),
        DataType::Int16 => numbers::<Int16Type>(name, items, whole),
        DataType::Int32 => numbers::<Int32Type>(name, items, whole),
        DataType::Int64 => numbers::<Int64Type>(name, items, whole),
        DataType::UInt8 => numbers::<UInt8Type>(name, items, whole),
        DataType::UInt16 => numbers::<UInt16Type>(name, items, whole),
        DataType::UInt32 => numbers::<UInt32Type>(name, items, whole),
        DataType::UInt64 => numbers::<UInt64Type>(name, items, whole),
        DataType::Float32 => {
            let values = each(name, items, "a number", narrow)?;
            Ok(Arc::new(PrimitiveArray::<Float32Type>::from(values)))
        }
        DataType::Float64 => numbers::<Float64Type>(name, items, "a number"),
        DataType::Utf8 => texts(name, items),
        // The type of columns of JSON.
        DataType::LargeUtf8 => json_values(name, items),
        DataType::Date32 => times::<Date32Type>((name, kind), items, "a date", days),
        DataType::Timestamp(..) => {
            times::<TimestampMicrosecondType>((name, kind), items, "a datetime", microseconds)
        }
        DataType::List(item) => lists(name, item, items),
        other => Err(PyValueError::new_err(format!("{name}: values cannot be converted to type {other}"))),
    }
}

/// Converts each value with `read`; None becomes null.
fn each<'py, T>(
    name: &str,
    items: &[Bound<'py, PyAny>],
    wanted: &str,
    read: impl Fn(&Bound<'py, PyAny>) -> PyResult<T>,
) -> PyResult<Vec<Option<T>>> {
    let one = |(row, item): (usize, &Bound<'py, PyAny>)| {
        if item.is_none() {
            return Ok(None);
        }
        read(item).map(Some).map_err(|error| refused(name, row, item, wanted, &error))
    };
    items.iter().enumerate().map(one).collect()
}

/// Converts values of JSON: whatever the module `json` writes.
fn json_values(name: &str, items: &[Bound<'_, PyAny>]) -> PyResult<ArrayRef> {
    let Some(first) = items.first() else { return Ok(new_null_array(&DataType::LargeUtf8, 0)) };
    let py = first.py();
    let dumps = py.import("json")?.getattr("dumps")?;
    let options = PyDict::new(py);
    options.set_item("allow_nan", false)?;
    options.set_item("ensure_ascii", false)?;
    let text = |(row, item): (usize, &Bound<'_, PyAny>)| {
        if item.is_none() {
            return Ok(None);
        }
        let text = dumps.call((item,), Some(&options)).and_then(|text| text.extract::<String>());
        text.map(Some).map_err(|error| {
            PyValueError::new_err(format!("{name}, row {row}: is no value of JSON: {}", error.value(py)))
        })
    };
    let texts = items.iter().enumerate().map(text).collect::<PyResult<Vec<Option<String>>>>()?;
    Ok(Arc::new(LargeStringArray::from(texts)))
}

/// Converts dates or times. Texts are converted as those of JSON lines are; other values with `read`.
fn times<T: ArrowPrimitiveType>(
    (name, kind): (&str, &DataType),
    items: &[Bound<'_, PyAny>],
    wanted: &str,
    read: impl Fn(&Bound<'_, PyAny>) -> PyResult<T::Native>,
) -> PyResult<ArrayRef> {
    let mut texts = Vec::with_capacity(items.len());
    for (row, item) in items.iter().enumerate() {
        let text = item.cast::<PyString>().ok().map(|text| text.to_cow()).transpose();
        texts.push(text.map_err(|error| refused(name, row, item, wanted, &error))?);
    }
    let texts: Vec<Option<&str>> = texts.iter().map(|text| text.as_deref()).collect();
    let parsed = match texts.iter().any(Option::is_some) {
        true => times_of_texts(kind, &texts)
            .map_err(|(row, reason)| PyValueError::new_err(format!("{name}, row {row}: {reason}")))?,
        false => new_null_array(kind, items.len()),
    };
    let parsed = parsed.as_primitive::<T>();
    let one = |(row, item): (usize, &Bound<'_, PyAny>)| {
        if item.is_none() || parsed.is_valid(row) {
            return Ok(parsed.is_valid(row).then(|| parsed.value(row)));
        }
        read(item).map(Some).map_err(|error| refused(name, row, item, wanted, &error))
    };
    let values = items.iter().enumerate().map(one).collect::<PyResult<Vec<_>>>()?;
    Ok(Arc::new(PrimitiveArray::<T>::from_iter(values)))
}

fn refused(name: &str, row: usize, item: &Bound<'_, PyAny>, wanted: &str, error: &PyErr) -> PyErr {
    let shown = item.repr().map_or_else(|_| String::new(), |text| text.to_string());
    let shown: String = shown.chars().take(60).collect();
    let kind = item.get_type();
    let kind = kind.name().map_or_else(|_| String::new(), |name| name.to_string());
    PyValueError::new_err(if error.is_instance_of::<PyOverflowError>(item.py()) {
        format!("{name}, row {row}: {shown} is too large or too small for the column")
    } else if error.is_instance_of::<PyUnicodeEncodeError>(item.py()) {
        format!("{name}, row {row}: {shown} has lone surrogates, which UTF-8 cannot encode")
    } else {
        format!("{name}, row {row}: {shown} is of type {kind}; expected {wanted}")
    })
}

fn numbers<T>(name: &str, items: &[Bound<'_, PyAny>], wanted: &str) -> PyResult<ArrayRef>
where
    T: ArrowPrimitiveType,
    T::Native: for<'a, 'py> FromPyObject<'a, 'py, Error = PyErr>,
{
    let values = each(name, items, wanted, |item| item.extract::<T::Native>())?;
    Ok(Arc::new(PrimitiveArray::<T>::from_iter(values)))
}

fn texts(name: &str, items: &[Bound<'_, PyAny>]) -> PyResult<ArrayRef> {
    let mut texts = StringBuilder::with_capacity(items.len(), 0);
    let mut bytes = 0_usize;
    for (row, item) in items.iter().enumerate() {
        if item.is_none() {
            texts.append_null();
            continue;
        }
        let text = item.cast::<PyString>().map_err(PyErr::from);
        let text = text.and_then(|text| text.to_cow());
        let text = text.map_err(|error| refused(name, row, item, "text", &error))?;
        bytes += text.len();
        if bytes > i32::MAX as usize {
            return Err(PyValueError::new_err(format!(
                "{name}: more than 2 GiB of text; give it in batches"
            )));
        }
        texts.append_value(text);
    }
    Ok(Arc::new(texts.finish()))
}

/// Converts a number to f32, unless it is too large.
fn narrow(item: &Bound<'_, PyAny>) -> PyResult<f32> {
    let value: f64 = item.extract()?;
    let narrow = value as f32;
    if narrow.is_infinite() && value.is_finite() {
        return Err(PyOverflowError::new_err(""));
    }
    Ok(narrow)
}

/// Returns true if a value is a date or a datetime: only these have `toordinal`.
pub(super) fn is_date(item: &Bound<'_, PyAny>) -> PyResult<bool> {
    item.hasattr("toordinal")
}

/// Converts a date or a time of numpy to Python's; returns other values unchanged.
fn of_numpy<'py>(item: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if !is_date(item)? && item.hasattr("astype")? {
        return item.call_method1("astype", ("datetime64[us]",))?.call_method0("item");
    }
    Ok(item.clone())
}

/// Returns the days since 1970 of a date, or of a datetime at midnight.
fn days(item: &Bound<'_, PyAny>) -> PyResult<i32> {
    let item = of_numpy(item)?;
    let ordinal: i64 = item.call_method0("toordinal")?.extract()?;
    if item.hasattr("hour")? && microseconds(&item)?.rem_euclid(MICROSECONDS_A_DAY) != 0 {
        return Err(PyValueError::new_err("the time of the day would be lost"));
    }
    Ok((ordinal - EPOCH_ORDINAL) as i32)
}

/// Returns the microseconds since 1970 in UTC of a datetime, or of a date at midnight. A datetime without a
/// zone is in UTC.
fn microseconds(item: &Bound<'_, PyAny>) -> PyResult<i64> {
    let item = of_numpy(item)?;
    let days = item.call_method0("toordinal")?.extract::<i64>()? - EPOCH_ORDINAL;
    if !item.hasattr("hour")? {
        return Ok(days * MICROSECONDS_A_DAY);
    }
    let part = |name: &str| -> PyResult<i64> { item.getattr(name)?.extract() };
    let seconds = (part("hour")? * 60 + part("minute")?) * 60 + part("second")?;
    let local = days * MICROSECONDS_A_DAY + seconds * 1_000_000 + part("microsecond")?;
    let offset = item.call_method0("utcoffset")?;
    if offset.is_none() {
        return Ok(local);
    }
    let part = |name: &str| -> PyResult<i64> { offset.getattr(name)?.extract() };
    let ahead = (part("days")? * 86_400 + part("seconds")?) * 1_000_000 + part("microseconds")?;
    Ok(local - ahead)
}

fn lists(name: &str, item: &FieldRef, rows: &[Bound<'_, PyAny>]) -> PyResult<ArrayRef> {
    let (mut held, mut lengths, mut whole) = (Vec::new(), Vec::with_capacity(rows.len()), Vec::new());
    for (row, list) in rows.iter().enumerate() {
        let before = held.len();
        whole.push(!list.is_none());
        if !list.is_none() {
            let wanted = "a list";
            // Text and dictionaries can be iterated, too, but are not lists of values.
            let other = list.is_instance_of::<PyString>()
                || list.is_instance_of::<PyBytes>()
                || list.is_instance_of::<PyDict>();
            let items = if other { Err(PyValueError::new_err(wanted)) } else { list.try_iter() };
            for one in items.map_err(|error| refused(name, row, list, wanted, &error))? {
                held.push(one?);
            }
        }
        lengths.push(held.len() - before);
    }
    if held.len() > i32::MAX as usize {
        return Err(PyValueError::new_err(format!("{name}: more than 2^31 values; give them in batches")));
    }
    let values = of(&format!("{name}, in lists"), item.data_type(), &held)?;
    let nulls = NullBuffer::from(whole);
    let lists = ListArray::try_new(item.clone(), OffsetBuffer::from_lengths(lengths), values, Some(nulls));
    Ok(Arc::new(lists.map_err(Failure::from)?))
}
