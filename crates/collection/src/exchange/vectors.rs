//! Converts vectors to columns of lists of numbers, and back.

use crate::error::CollectionError;
use crate::schema::VectorField;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type, Int8Type, UInt8Type};
use arrow_array::{Array, ArrayRef, FixedSizeListArray, Float16Array, Float32Array, Int8Array, UInt8Array};
use arrow_buffer::{Buffer, ScalarBuffer};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, FieldRef};
use bathyal_index::StoredVectors;
use bathyal_kernels::{Element, first_non_finite, to_f32};
use bathyal_vectors::{VectorFile, encode_row};
use std::ops::Range;
use std::sync::Arc;

/// Returns the number of list items for one vector of `dim` components. An item holds eight bits of a bit
/// vector.
pub(super) fn list_length(element: Element, dim: usize) -> usize {
    if element == Element::B1 { element.row_bytes(dim) } else { dim }
}

/// Returns the Arrow type of list items that can hold all values of `element`.
fn number_type(element: Element) -> DataType {
    match element {
        // Arrow has no bf16; f32 can hold all of its values.
        Element::F32 | Element::Bf16 => DataType::Float32,
        Element::F16 => DataType::Float16,
        Element::U8 | Element::B1 => DataType::UInt8,
        Element::I8 => DataType::Int8,
    }
}

/// Returns the Arrow field of a vector field.
pub(super) fn arrow_field(field: &VectorField) -> Field {
    let length = list_length(field.element, field.dim) as i32;
    Field::new(&field.name, DataType::FixedSizeList(item(field.element), length), false)
}

fn item(element: Element) -> FieldRef {
    Arc::new(Field::new_list_field(number_type(element), false))
}

/// Converts vectors to a column of lists.
pub(super) fn to_lists(vectors: StoredVectors) -> Result<ArrayRef, CollectionError> {
    let StoredVectors { element, dim, bytes } = vectors;
    let values: ArrayRef = match element {
        Element::F32 | Element::Bf16 => {
            let mut values = vec![0.0; bytes.len() / (element.bits() / 8)];
            to_f32(element, &bytes, &mut values);
            Arc::new(Float32Array::from(values))
        }
        Element::F16 => {
            let count = bytes.len() / 2;
            Arc::new(Float16Array::new(ScalarBuffer::new(aligned(bytes), 0, count), None))
        }
        Element::U8 | Element::B1 => Arc::new(UInt8Array::from(bytes)),
        Element::I8 => {
            let count = bytes.len();
            Arc::new(Int8Array::new(ScalarBuffer::new(Buffer::from_vec(bytes), 0, count), None))
        }
    };
    let length = list_length(element, dim) as i32;
    Ok(Arc::new(FixedSizeListArray::try_new(item(element), length, values, None)?))
}

/// Copies bytes to memory that is aligned for any number type.
fn aligned(bytes: Vec<u8>) -> Buffer {
    Buffer::from_slice_ref(&bytes)
}

/// A column of lists: the numbers, and which of them belong to each row.
struct Lists {
    numbers: ArrayRef,
    lengths: Lengths,
}

enum Lengths {
    /// Index of the first number, and the length of every list.
    Fixed(usize, usize),
    /// Index of the first number of each list, and the end of the last.
    Offsets(Vec<usize>),
}

impl Lists {
    fn new(array: &dyn Array) -> Option<Lists> {
        match array.data_type() {
            DataType::FixedSizeList(_, length) => {
                let list = array.as_fixed_size_list();
                let first = list.value_offset_at(0);
                Some(Lists {
                    numbers: list.values().clone(),
                    lengths: Lengths::Fixed(first, *length as usize),
                })
            }
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                let offsets = list.value_offsets().iter().map(|offset| *offset as usize).collect();
                Some(Lists { numbers: list.values().clone(), lengths: Lengths::Offsets(offsets) })
            }
            DataType::LargeList(_) => {
                let list = array.as_list::<i64>();
                let offsets = list.value_offsets().iter().map(|offset| *offset as usize).collect();
                Some(Lists { numbers: list.values().clone(), lengths: Lengths::Offsets(offsets) })
            }
            _ => None,
        }
    }

    fn row(&self, row: usize) -> Range<usize> {
        match &self.lengths {
            Lengths::Fixed(first, length) => first + row * length..first + (row + 1) * length,
            Lengths::Offsets(offsets) => offsets[row]..offsets[row + 1],
        }
    }
}

/// Converts a column of lists to the vectors of a field. `first` is the number of its first row, for
/// messages. These do not name the file.
pub(super) fn from_lists(array: &dyn Array, field: &VectorField, first: u64) -> Result<VectorFile, String> {
    let lists =
        Lists::new(array).filter(|lists| lists.numbers.data_type().is_numeric()).ok_or_else(|| {
            format!("column {:?} is {}, but vectors are lists of numbers", field.name, array.data_type())
        })?;
    let length = list_length(field.element, field.dim);
    for row in 0..array.len() {
        let position = || format!("column {:?}, row {}", field.name, first + row as u64);
        if array.is_null(row) {
            return Err(format!("{} is null; every row needs a vector", position()));
        }
        let range = lists.row(row);
        if range.len() != length {
            return Err(format!(
                "{} has {} numbers, vectors of the collection have {length}",
                position(),
                range.len()
            ));
        }
        if lists.numbers.null_count() > 0 && range.clone().any(|at| lists.numbers.is_null(at)) {
            return Err(format!("{} has a component that is null", position()));
        }
    }
    let span = match array.len() {
        0 => 0..0,
        // The numbers of rows are contiguous, since no row is null.
        rows => lists.row(0).start..lists.row(rows - 1).end,
    };
    let numbers = lists.numbers.slice(span.start, span.len());
    let rows = match bytes_without_conversion(&*numbers, field.element) {
        Some(bytes) => bytes.to_vec(),
        None => convert(&*numbers, field, first)?,
    };
    for (row, vector) in (first..).zip(rows.chunks_exact(field.row_bytes())) {
        if let Some(at) = first_non_finite(field.element, vector) {
            return Err(format!(
                "column {:?}, row {row}, component {at} is NaN or infinite; every component must be finite",
                field.name
            ));
        }
    }
    VectorFile::from_rows(field.element, field.dim, rows).map_err(|error| error.to_string())
}

/// Returns the bytes of numbers that have the type of the field; `None` if they must be converted.
fn bytes_without_conversion(numbers: &dyn Array, element: Element) -> Option<&[u8]> {
    fn bytes<T: arrow_buffer::ArrowNativeType>(values: &ScalarBuffer<T>) -> &[u8] {
        values.inner().as_slice()
    }
    // Files are little-endian, so numbers of a big-endian machine must be converted.
    if cfg!(target_endian = "big") || *numbers.data_type() != number_type(element) || element == Element::Bf16
    {
        return None;
    }
    Some(match element {
        Element::F32 => bytes(numbers.as_primitive::<Float32Type>().values()),
        Element::F16 => bytes(numbers.as_primitive::<Float16Type>().values()),
        Element::U8 | Element::B1 => bytes(numbers.as_primitive::<UInt8Type>().values()),
        Element::I8 => bytes(numbers.as_primitive::<Int8Type>().values()),
        Element::Bf16 => return None,
    })
}

/// Converts numbers of another type.
fn convert(numbers: &dyn Array, field: &VectorField, first: u64) -> Result<Vec<u8>, String> {
    let floats =
        cast(numbers, &DataType::Float32).map_err(|error| format!("column {:?}: {error}", field.name))?;
    let length = list_length(field.element, field.dim);
    // One number holds eight bits.
    let element = if field.element == Element::B1 { Element::U8 } else { field.element };
    let mut rows = Vec::with_capacity(floats.len() / length.max(1) * field.row_bytes());
    for (row, values) in (first..).zip(floats.as_primitive::<Float32Type>().values().chunks_exact(length)) {
        let position =
            |at: usize| format!("column {:?}, row {row}, component {at} is {}", field.name, values[at]);
        if let Some(at) = values.iter().position(|value| !value.is_finite()) {
            return Err(format!("{}; every component must be finite", position(at)));
        }
        encode_row(element, values, &mut rows).map_err(|(at, advice)| {
            format!("{}, which {} cannot hold: {advice}", position(at), field.element)
        })?;
    }
    Ok(rows)
}
