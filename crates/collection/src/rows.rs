//! Rows for writing: ids, vectors of each field, and columns of metadata.

use crate::error::CollectionError;
use crate::ids::Ids;
use crate::schema::{JSON, Schema};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{
    Array, ArrayRef, LargeStringArray, RecordBatch, RecordBatchOptions, UInt32Array, make_array,
    new_null_array,
};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::DataType;
use arrow_select::concat::concat_batches;
use arrow_select::take::{take, take_record_batch};
use bathyal_vectors::VectorFile;
use serde::de::IgnoredAny;
use std::sync::Arc;

/// Rows of a collection, checked against its schema. Clones share them.
#[derive(Debug, Clone)]
pub struct Rows {
    ids: Ids,
    vectors: Vec<VectorFile>,
    columns: RecordBatch,
}

impl Rows {
    /// Creates rows. `vectors` has one file per vector field of the schema, in its order. `columns` are
    /// matched by name: missing columns become null, and values of another type are converted if nothing is
    /// lost.
    ///
    /// # Errors
    /// [`CollectionError::Parameter`] if the arguments do not fit the schema or each other.
    pub fn new(
        schema: &Schema,
        ids: Ids,
        vectors: Vec<VectorFile>,
        columns: Option<&RecordBatch>,
    ) -> Result<Rows, CollectionError> {
        let refuse = |reason: String| Err(CollectionError::Parameter(reason));
        let count = ids.len();
        if ids.kind() != schema.id_kind {
            return refuse(format!(
                "the ids are {}, but the ids of the collection are {}",
                ids.kind().data_type(),
                schema.id_kind.data_type()
            ));
        }
        if vectors.len() != schema.vectors.len() {
            return refuse(format!(
                "there are vectors for {} fields, but every row has a vector for each of {} fields",
                vectors.len(),
                schema.vectors.len()
            ));
        }
        let mut checked = Vec::with_capacity(vectors.len());
        for (given, field) in vectors.iter().zip(&schema.vectors) {
            checked.push(checked_vectors(given, field, count)?);
        }
        let columns = metadata(schema, columns, count)?;
        Ok(Rows { ids, vectors: checked, columns })
    }

    /// Concatenates the rows of `one` and `other`, which are of the same collection. `vectors` are those of
    /// both.
    ///
    /// # Errors
    /// [`CollectionError`] if they are not of the same collection, or have more text than one array holds.
    pub(crate) fn joined(
        one: &Rows,
        other: &Rows,
        vectors: Vec<VectorFile>,
    ) -> Result<Rows, CollectionError> {
        let ids = Ids::concat(one.ids.kind(), &[one.ids.clone(), other.ids.clone()])?;
        let columns = concat_batches(&one.columns.schema(), [&one.columns, &other.columns])?;
        Ok(Rows { ids, vectors, columns })
    }

    /// Copies the rows: ids and columns no longer refer to larger arrays. `vectors` is a copy of the vectors.
    ///
    /// # Errors
    /// [`CollectionError::Arrow`].
    pub(crate) fn copied(&self, vectors: Vec<VectorFile>) -> Result<Rows, CollectionError> {
        let numbers = UInt32Array::from_iter_values(0..self.len() as u32);
        let ids = Ids::from_array(self.ids.kind(), &take(self.ids.as_array(), &numbers, None)?)?;
        Ok(Rows { ids, vectors, columns: take_record_batch(&self.columns, &numbers)? })
    }

    /// Copies the rows at these positions, in their order.
    ///
    /// # Errors
    /// [`CollectionError::Vectors`], [`CollectionError::Arrow`].
    pub(crate) fn at_positions(&self, positions: &[u32]) -> Result<Rows, CollectionError> {
        let copy = |vectors: &VectorFile| {
            let mut bytes = Vec::with_capacity(positions.len() * vectors.row_bytes());
            positions.iter().for_each(|row| bytes.extend_from_slice(vectors.row(*row as usize)));
            VectorFile::from_rows(vectors.element(), vectors.dim(), bytes)
        };
        let vectors = self.vectors.iter().map(copy).collect::<Result<Vec<_>, _>>()?;
        let numbers = UInt32Array::from(positions.to_vec());
        let ids = Ids::from_array(self.ids.kind(), &take(self.ids.as_array(), &numbers, None)?)?;
        Ok(Rows { ids, vectors, columns: take_record_batch(&self.columns, &numbers)? })
    }

    /// Returns the number of rows; at least 1, since vectors are never empty.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns true if there are no rows, which does not happen.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Returns the ids.
    pub fn ids(&self) -> &Ids {
        &self.ids
    }

    /// Returns the vectors of each field.
    pub fn vectors(&self) -> &[VectorFile] {
        &self.vectors
    }

    /// Returns the metadata: all columns of the schema, in its order.
    pub fn columns(&self) -> &RecordBatch {
        &self.columns
    }

    /// Returns the approximate bytes of memory.
    pub fn bytes(&self) -> u64 {
        let vectors: u64 = self.vectors.iter().map(VectorFile::data_bytes).sum();
        self.ids.bytes() + vectors + batch_bytes(&self.columns)
    }
}

/// Returns the bytes of the values of a batch. Larger arrays that it is a slice of do not count.
pub(crate) fn batch_bytes(batch: &RecordBatch) -> u64 {
    batch.columns().iter().map(|array| array_bytes(array) as u64).sum()
}

fn array_bytes(array: &dyn Array) -> usize {
    if let Some(lists) = array.as_list_opt::<i32>() {
        // A sliced list array still holds the values of all lists.
        let offsets = lists.value_offsets();
        let (first, end) = (offsets[0] as usize, offsets[lists.len()] as usize);
        return size_of_val(offsets) + array_bytes(&lists.values().slice(first, end - first));
    }
    array.to_data().get_slice_memory_size().unwrap_or_else(|_| array.get_array_memory_size())
}

/// Returns the vectors of a field, if they fit it and an index accepts all of them.
fn checked_vectors(
    given: &VectorFile,
    field: &crate::schema::VectorField,
    count: usize,
) -> Result<VectorFile, CollectionError> {
    let refuse =
        |reason: String| Err(CollectionError::Parameter(format!("vectors of {:?}: {reason}", field.name)));
    let bits = if field.element == bathyal_kernels::Element::B1 { given.as_bits() } else { None };
    let vectors = bits.unwrap_or_else(|| given.clone());
    if vectors.count() != count {
        return refuse(format!("there are {} for {count} ids", vectors.count()));
    }
    if vectors.element() != field.element {
        return refuse(format!(
            "they are {}, but the collection stores {}",
            vectors.element(),
            field.element
        ));
    }
    if vectors.dim() != field.dim {
        return refuse(format!(
            "they have {} dimensions, but the collection stores {}",
            vectors.dim(),
            field.dim
        ));
    }
    bathyal_index::check_vectors(&vectors, field.metric)?;
    Ok(vectors)
}

/// Returns the columns of the schema, taken from `given`.
fn metadata(
    schema: &Schema,
    given: Option<&RecordBatch>,
    count: usize,
) -> Result<RecordBatch, CollectionError> {
    let refuse = |reason: String| Err(CollectionError::Parameter(reason));
    let target = schema.metadata();
    if let Some(given) = given {
        if given.num_rows() != count {
            return refuse(format!("there are {} rows of metadata for {count} ids", given.num_rows()));
        }
        let names = given.schema();
        if let Some(unknown) =
            names.fields().iter().find(|field| target.field_with_name(field.name()).is_err())
        {
            // Fails with the names of the columns.
            schema.column(unknown.name())?;
        }
    }
    let column = |field: &arrow_schema::FieldRef| -> Result<ArrayRef, CollectionError> {
        let Some(array) = given.and_then(|given| given.column_by_name(field.name())) else {
            return Ok(new_null_array(field.data_type(), count));
        };
        convert(array, field.data_type())
            .map_err(|reason| CollectionError::Parameter(format!("column {:?}: {reason}", field.name())))
    };
    let columns = target.fields().iter().map(column).collect::<Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(count));
    Ok(RecordBatch::try_new_with_options(target, columns, &options)?)
}

/// Counts the infinite floats, also in lists.
fn infinite(array: &ArrayRef) -> usize {
    match array.data_type() {
        DataType::Float32 => {
            array.as_primitive::<Float32Type>().iter().flatten().filter(|x| x.is_infinite()).count()
        }
        DataType::Float64 => {
            array.as_primitive::<Float64Type>().iter().flatten().filter(|x| x.is_infinite()).count()
        }
        _ => array.to_data().child_data().iter().map(|child| infinite(&make_array(child.clone()))).sum(),
    }
}

/// Class of a type. Values are never converted from one class to another, even if they could be parsed.
#[derive(Debug, PartialEq, Eq)]
enum ValueClass {
    Text,
    Number,
    Time,
    Other,
}

/// Returns true for a list type, and the type of its single values.
fn values_of(data_type: &DataType) -> (bool, &DataType) {
    match data_type {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            (true, values_of(item.data_type()).1)
        }
        DataType::Dictionary(_, values) => values_of(values),
        single => (false, single),
    }
}

fn class_of(single: &DataType) -> ValueClass {
    match single {
        single if single.is_string() => ValueClass::Text,
        DataType::Boolean => ValueClass::Number,
        single if single.is_integer() || single.is_floating() => ValueClass::Number,
        DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) => ValueClass::Time,
        _ => ValueClass::Other,
    }
}

/// Converts an array to another type, if nothing is lost except digits of floats and fractions of a
/// microsecond.
fn convert(array: &ArrayRef, target: &DataType) -> Result<ArrayRef, String> {
    if *target == JSON {
        return json_texts(array);
    }
    if array.data_type() == target {
        return Ok(array.clone());
    }
    if array.logical_null_count() == array.len() {
        return Ok(new_null_array(target, array.len()));
    }
    let refuse = |given: &DataType| {
        Err(format!(
            "the values are {given}; not all of them can be converted to {target}, the type of the column"
        ))
    };
    let ((lists, given), (target_lists, single)) = (values_of(array.data_type()), values_of(target));
    if lists != target_lists || class_of(given) != class_of(single) {
        return refuse(array.data_type());
    }
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    let cast = |array: &ArrayRef, to: &DataType| cast_with_options(array, to, &strict);
    let converted = cast(array, target).map_err(|error| error.to_string())?;
    let rounds = match class_of(single) {
        ValueClass::Text => true,
        ValueClass::Time => matches!(single, DataType::Timestamp(..)),
        ValueClass::Number | ValueClass::Other => single.is_floating() && given.is_floating(),
    };
    if *single == DataType::Float32 && infinite(&converted) > infinite(array) {
        return refuse(array.data_type());
    }
    if !rounds
        && cast(&converted, array.data_type()).map_err(|error| error.to_string())?.as_ref() != array.as_ref()
    {
        return refuse(array.data_type());
    }
    Ok(converted)
}

/// Converts texts to values of JSON. The value null is a missing value.
fn json_texts(array: &ArrayRef) -> Result<ArrayRef, String> {
    if array.logical_null_count() == array.len() {
        return Ok(new_null_array(&JSON, array.len()));
    }
    if class_of(values_of(array.data_type()).1) != ValueClass::Text || values_of(array.data_type()).0 {
        return Err(format!("the values are {}; a column of JSON takes texts of JSON", array.data_type()));
    }
    let texts =
        cast_with_options(array, &JSON, &CastOptions::default()).map_err(|error| error.to_string())?;
    let texts = texts.as_string::<i64>();
    for (row, text) in texts.iter().enumerate().filter_map(|(row, text)| Some((row, text?))) {
        serde_json::from_str::<IgnoredAny>(text)
            .map_err(|error| format!("row {row} is not JSON: {error}"))?;
    }
    let values = texts.iter().map(|text| text.filter(|text| text.trim() != "null"));
    Ok(Arc::new(values.collect::<LargeStringArray>()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::types::{Int32Type, Int64Type};
    use arrow_array::{
        BooleanArray, DictionaryArray, FixedSizeListArray, Float64Array, Int64Array, ListArray, StringArray,
        TimestampMicrosecondArray,
    };
    use arrow_schema::{Field, TimeUnit};
    use std::sync::Arc;

    fn list_of(item: DataType) -> DataType {
        DataType::List(Arc::new(Field::new("item", item, true)))
    }

    #[test]
    fn values_are_converted_where_nothing_is_lost() {
        let micros = DataType::Timestamp(TimeUnit::Microsecond, None);
        let whole: ArrayRef = Arc::new(Float64Array::from(vec![Some(1.0), None, Some(-3.0)]));
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 300]));
        let words: ArrayRef =
            Arc::new(vec!["a", "b", "a"].into_iter().collect::<DictionaryArray<Int32Type>>());
        let lists: ArrayRef =
            Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(1)]), None]));
        let pairs: ArrayRef = Arc::new(FixedSizeListArray::from_iter_primitive::<Float64Type, _, _>(
            [Some(vec![Some(1.0), Some(2.0)])],
            2,
        ));
        let midnight: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![86_400_000_000]));
        for (array, to) in [
            (&whole, DataType::Int8),
            (&numbers, DataType::UInt16),
            (&numbers, DataType::Float32),
            (&words, DataType::Utf8),
            (&lists, list_of(DataType::Float64)),
            (&pairs, list_of(DataType::Int8)),
            (&midnight, DataType::Date32),
            (&new_null_array(&DataType::Null, 2), list_of(DataType::Utf8)),
        ] {
            let converted = convert(array, &to).unwrap();
            assert_eq!(
                (converted.data_type(), converted.len(), converted.null_count()),
                (&to, array.len(), array.logical_null_count())
            );
        }
        let half: ArrayRef = Arc::new(Float64Array::from(vec![1.5]));
        let odd: ArrayRef = Arc::new(Int64Array::from(vec![(1 << 53) + 1]));
        let noon: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![43_200_000_000]));
        let large: ArrayRef = Arc::new(Float64Array::from(vec![f64::INFINITY, 1e300]));
        let digits: ArrayRef = Arc::new(StringArray::from(vec!["1"]));
        let truth: ArrayRef = Arc::new(BooleanArray::from(vec![true]));
        for (array, to) in [
            (&half, DataType::Int64),
            (&numbers, DataType::Int8),
            (&numbers, DataType::Boolean),
            (&odd, DataType::Float64),
            (&large, DataType::Float32),
            (&noon, DataType::Date32),
            (&noon, DataType::Int64),
            (&numbers, micros),
            (&digits, DataType::Int64),
            (&numbers, DataType::Utf8),
            (&truth, DataType::Utf8),
            (&numbers, list_of(DataType::Int64)),
            (&lists, list_of(DataType::Utf8)),
            (&lists, DataType::Int64),
        ] {
            assert!(convert(array, &to).is_err(), "{array:?} to {to}");
        }
    }
}
