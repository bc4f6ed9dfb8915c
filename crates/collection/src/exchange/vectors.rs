//! Vectors as columns of lists of numbers, and back.

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

/// Numbers that stand for one vector of `dim` components in a list: of bits, eight in each.
pub(super) fn list_length(element: Element, dim: usize) -> usize {
    if element == Element::B1 { element.row_bytes(dim) } else { dim }
}

/// The type of the numbers in a list that stand for vectors of `element`, without a loss.
fn number_type(element: Element) -> DataType {
    match element {
        // Arrow has no bf16; all of its values are values of f32.
        Element::F32 | Element::Bf16 => DataType::Float32,
        Element::F16 => DataType::Float16,
        Element::U8 | Element::B1 => DataType::UInt8,
        Element::I8 => DataType::Int8,
    }
}

/// The column of a field's vectors, as Arrow has it.
pub(super) fn column_of(field: &VectorField) -> Field {
    let length = list_length(field.element, field.dim) as i32;
    Field::new(&field.name, DataType::FixedSizeList(item(field.element), length), false)
}

fn item(element: Element) -> FieldRef {
    Arc::new(Field::new_list_field(number_type(element), false))
}

/// Vectors as a column of lists.
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

/// The same bytes at an address that suits numbers of any size.
fn aligned(bytes: Vec<u8>) -> Buffer {
    Buffer::from_slice_ref(&bytes)
}

/// The numbers of a column of lists, and where those of each row are; `None` where it is no such column.
struct Lists {
    numbers: ArrayRef,
    length: Lengths,
}

enum Lengths {
    Fixed(usize, usize),
    Offsets(Vec<usize>),
}

impl Lists {
    fn of(array: &dyn Array) -> Option<Lists> {
        match array.data_type() {
            DataType::FixedSizeList(_, length) => {
                let list = array.as_fixed_size_list();
                let first = list.value_offset_at(0);
                Some(Lists {
                    numbers: list.values().clone(),
                    length: Lengths::Fixed(first, *length as usize),
                })
            }
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                let offsets = list.value_offsets().iter().map(|offset| *offset as usize).collect();
                Some(Lists { numbers: list.values().clone(), length: Lengths::Offsets(offsets) })
            }
            DataType::LargeList(_) => {
                let list = array.as_list::<i64>();
                let offsets = list.value_offsets().iter().map(|offset| *offset as usize).collect();
                Some(Lists { numbers: list.values().clone(), length: Lengths::Offsets(offsets) })
            }
            _ => None,
        }
    }

    fn row(&self, row: usize) -> Range<usize> {
        match &self.length {
            Lengths::Fixed(first, length) => first + row * length..first + (row + 1) * length,
            Lengths::Offsets(offsets) => offsets[row]..offsets[row + 1],
        }
    }
}

/// The vectors of a field from a column of lists. `first` is the number of its first row, for messages, which do not name the file.
pub(super) fn from_lists(array: &dyn Array, field: &VectorField, first: u64) -> Result<VectorFile, String> {
    let lists = Lists::of(array).filter(|lists| lists.numbers.data_type().is_numeric()).ok_or_else(|| {
        format!("column {:?} is {}, and vectors are lists of numbers", field.name, array.data_type())
    })?;
    let length = list_length(field.element, field.dim);
    for row in 0..array.len() {
        let place = || format!("column {:?}, row {}", field.name, first + row as u64);
        if array.is_null(row) {
            return Err(format!("{} is null; every row needs a vector", place()));
        }
        let range = lists.row(row);
        if range.len() != length {
            return Err(format!(
                "{} has {} numbers, vectors of the collection have {length}",
                place(),
                range.len()
            ));
        }
        if lists.numbers.null_count() > 0 && range.clone().any(|at| lists.numbers.is_null(at)) {
            return Err(format!("{} has a component that is null", place()));
        }
    }
    let span = match array.len() {
        0 => 0..0,
        // Rows without gaps between them, as they always are where none is null.
        rows => lists.row(0).start..lists.row(rows - 1).end,
    };
    let numbers = lists.numbers.slice(span.start, span.len());
    let rows = match as_they_are(&*numbers, field.element) {
        Some(bytes) => bytes.to_vec(),
        None => converted(&*numbers, field, first)?,
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

/// The bytes of numbers that are what the field holds.
fn as_they_are(numbers: &dyn Array, element: Element) -> Option<&[u8]> {
    fn bytes<T: arrow_buffer::ArrowNativeType>(values: &ScalarBuffer<T>) -> &[u8] {
        values.inner().as_slice()
    }
    // The bytes in memory are those of files on machines of this order alone.
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

/// Numbers of another type as those of the field.
fn converted(numbers: &dyn Array, field: &VectorField, first: u64) -> Result<Vec<u8>, String> {
    let floats =
        cast(numbers, &DataType::Float32).map_err(|error| format!("column {:?}: {error}", field.name))?;
    let length = list_length(field.element, field.dim);
    // Eight bits are written as one number.
    let element = if field.element == Element::B1 { Element::U8 } else { field.element };
    let mut rows = Vec::with_capacity(floats.len() / length.max(1) * field.row_bytes());
    for (row, values) in (first..).zip(floats.as_primitive::<Float32Type>().values().chunks_exact(length)) {
        let place =
            |at: usize| format!("column {:?}, row {row}, component {at} is {}", field.name, values[at]);
        if let Some(at) = values.iter().position(|value| !value.is_finite()) {
            return Err(format!("{}; every component must be finite", place(at)));
        }
        encode_row(element, values, &mut rows).map_err(|(at, advice)| {
            format!("{}, which {} cannot hold: {advice}", place(at), field.element)
        })?;
    }
    Ok(rows)
}
