//! Rows that are written: ids, vectors of each field, and columns of metadata.

use crate::error::CollectionError;
use crate::ids::Ids;
use crate::schema::Schema;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{
    Array, ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array, make_array, new_null_array,
};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_schema::DataType;
use arrow_select::concat::concat_batches;
use arrow_select::take::{take, take_record_batch};
use bathyal_vectors::VectorFile;

/// Rows of a collection, checked against its schema. Clones share them.
#[derive(Debug, Clone)]
pub struct Rows {
    ids: Ids,
    vectors: Vec<VectorFile>,
    columns: RecordBatch,
}

impl Rows {
    /// Rows with these `ids`, `vectors` (of each field of the schema, in its order) and `columns`, by name: those that are not
    /// there are null, and values of another type are converted where nothing is lost.
    ///
    /// # Errors
    /// [`CollectionError::Parameter`] where they do not fit the schema or each other.
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
                "the ids are {}, those of the collection are {}",
                ids.kind().data_type(),
                schema.id_kind.data_type()
            ));
        }
        if vectors.len() != schema.vectors.len() {
            return refuse(format!(
                "there are vectors for {} fields, every row has one of each of {}",
                vectors.len(),
                schema.vectors.len()
            ));
        }
        let mut held = Vec::with_capacity(vectors.len());
        for (given, field) in vectors.iter().zip(&schema.vectors) {
            held.push(checked_vectors(given, field, count)?);
        }
        let columns = metadata(schema, columns, count)?;
        Ok(Rows { ids, vectors: held, columns })
    }

    /// The rows of `one` and then those of `other`, of the same collection, whose `vectors` are these.
    ///
    /// # Errors
    /// [`CollectionError`] where they are not of the same collection, or more text than one array holds.
    pub(crate) fn joined(
        one: &Rows,
        other: &Rows,
        vectors: Vec<VectorFile>,
    ) -> Result<Rows, CollectionError> {
        let ids = Ids::concat(one.ids.kind(), &[one.ids.clone(), other.ids.clone()])?;
        let columns = concat_batches(&one.columns.schema(), [&one.columns, &other.columns])?;
        Ok(Rows { ids, vectors, columns })
    }

    /// The same with ids and columns in memory of their own, whatever larger arrays they came from, and a copy of their `vectors`.
    ///
    /// # Errors
    /// [`CollectionError::Arrow`].
    pub(crate) fn owned(&self, vectors: Vec<VectorFile>) -> Result<Rows, CollectionError> {
        let numbers = UInt32Array::from_iter_values(0..self.len() as u32);
        let ids = Ids::of_array(self.ids.kind(), &take(self.ids.as_array(), &numbers, None)?)?;
        Ok(Rows { ids, vectors, columns: take_record_batch(&self.columns, &numbers)? })
    }

    /// Those at these places, in their order, in memory of their own.
    ///
    /// # Errors
    /// [`CollectionError::Vectors`], [`CollectionError::Arrow`].
    pub(crate) fn taken(&self, places: &[u32]) -> Result<Rows, CollectionError> {
        let own = |vectors: &VectorFile| {
            let mut bytes = Vec::with_capacity(places.len() * vectors.row_bytes());
            places.iter().for_each(|row| bytes.extend_from_slice(vectors.row(*row as usize)));
            VectorFile::from_rows(vectors.element(), vectors.dim(), bytes)
        };
        let vectors = self.vectors.iter().map(own).collect::<Result<Vec<_>, _>>()?;
        let numbers = UInt32Array::from(places.to_vec());
        let ids = Ids::of_array(self.ids.kind(), &take(self.ids.as_array(), &numbers, None)?)?;
        Ok(Rows { ids, vectors, columns: take_record_batch(&self.columns, &numbers)? })
    }

    /// How many there are; at least 1, since there are vectors.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there are none, which does not happen.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Their ids.
    pub fn ids(&self) -> &Ids {
        &self.ids
    }

    /// Their vectors, of each field.
    pub fn vectors(&self) -> &[VectorFile] {
        &self.vectors
    }

    /// Their metadata: all columns of the schema, in its order.
    pub fn columns(&self) -> &RecordBatch {
        &self.columns
    }

    /// Bytes of memory, about.
    pub fn bytes(&self) -> u64 {
        let vectors: u64 = self.vectors.iter().map(VectorFile::data_bytes).sum();
        self.ids.bytes() + vectors + batch_bytes(&self.columns)
    }
}

/// Bytes of the values of a batch, whatever larger arrays they are a part of.
pub(crate) fn batch_bytes(batch: &RecordBatch) -> u64 {
    batch.columns().iter().map(|array| array_bytes(array) as u64).sum()
}

fn array_bytes(array: &dyn Array) -> usize {
    if let Some(lists) = array.as_list_opt::<i32>() {
        // Of lists that are a part of others the values are not.
        let offsets = lists.value_offsets();
        let (first, end) = (offsets[0] as usize, offsets[lists.len()] as usize);
        return size_of_val(offsets) + array_bytes(&lists.values().slice(first, end - first));
    }
    array.to_data().get_slice_memory_size().unwrap_or_else(|_| array.get_array_memory_size())
}

/// The vectors of a field, if an index of it takes all of them.
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
            "they are {}, those of the collection are {}",
            vectors.element(),
            field.element
        ));
    }
    if vectors.dim() != field.dim {
        return refuse(format!(
            "they have {} dimensions, those of the collection {}",
            vectors.dim(),
            field.dim
        ));
    }
    bathyal_index::check_vectors(&vectors, field.metric)?;
    Ok(vectors)
}

/// The columns of the schema from those that are given.
fn metadata(
    schema: &Schema,
    given: Option<&RecordBatch>,
    count: usize,
) -> Result<RecordBatch, CollectionError> {
    let refuse = |reason: String| Err(CollectionError::Parameter(reason));
    let wanted = schema.metadata();
    if let Some(given) = given {
        if given.num_rows() != count {
            return refuse(format!("there are {} rows of metadata for {count} ids", given.num_rows()));
        }
        let names = given.schema();
        if let Some(unknown) =
            names.fields().iter().find(|field| wanted.field_with_name(field.name()).is_err())
        {
            // Says which there are.
            schema.column(unknown.name())?;
        }
    }
    let column = |field: &arrow_schema::FieldRef| -> Result<ArrayRef, CollectionError> {
        let Some(array) = given.and_then(|given| given.column_by_name(field.name())) else {
            return Ok(new_null_array(field.data_type(), count));
        };
        converted(array, field.data_type())
            .map_err(|reason| CollectionError::Parameter(format!("column {:?}: {reason}", field.name())))
    };
    let columns = wanted.fields().iter().map(column).collect::<Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(count));
    Ok(RecordBatch::try_new_with_options(wanted, columns, &options)?)
}

/// How many floats are infinite, in lists or not.
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

/// What values are, so that those of one sort are never taken for another, whatever could be read from them.
#[derive(Debug, PartialEq, Eq)]
enum Sort {
    Text,
    Number,
    Time,
    Other,
}

/// Whether a type is that of lists, and the type of single values.
fn values_of(data_type: &DataType) -> (bool, &DataType) {
    match data_type {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            (true, values_of(item.data_type()).1)
        }
        DataType::Dictionary(_, values) => values_of(values),
        single => (false, single),
    }
}

fn sort_of(single: &DataType) -> Sort {
    match single {
        single if single.is_string() => Sort::Text,
        DataType::Boolean => Sort::Number,
        single if single.is_integer() || single.is_floating() => Sort::Number,
        DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) => Sort::Time,
        _ => Sort::Other,
    }
}

/// The values of an array as another type, where nothing is lost: but digits of floats, and of times what is below a microsecond.
fn converted(array: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, String> {
    if array.data_type() == wanted {
        return Ok(array.clone());
    }
    if array.logical_null_count() == array.len() {
        return Ok(new_null_array(wanted, array.len()));
    }
    let refuse = |given: &DataType| {
        Err(format!(
            "the values are {given}, those of the collection are {wanted}, which not all of them can be"
        ))
    };
    let ((lists, given), (of_lists, single)) = (values_of(array.data_type()), values_of(wanted));
    if lists != of_lists || sort_of(given) != sort_of(single) {
        return refuse(array.data_type());
    }
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    let cast = |array: &ArrayRef, to: &DataType| cast_with_options(array, to, &strict);
    let made = cast(array, wanted).map_err(|error| error.to_string())?;
    let rounds = match sort_of(single) {
        Sort::Text => true,
        Sort::Time => matches!(single, DataType::Timestamp(..)),
        Sort::Number | Sort::Other => single.is_floating() && given.is_floating(),
    };
    if *single == DataType::Float32 && infinite(&made) > infinite(array) {
        return refuse(array.data_type());
    }
    if !rounds
        && cast(&made, array.data_type()).map_err(|error| error.to_string())?.as_ref() != array.as_ref()
    {
        return refuse(array.data_type());
    }
    Ok(made)
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
            let made = converted(array, &to).unwrap();
            assert_eq!(
                (made.data_type(), made.len(), made.null_count()),
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
            assert!(converted(array, &to).is_err(), "{array:?} to {to}");
        }
    }
}
