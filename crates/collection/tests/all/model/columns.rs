//! Converts values to Arrow arrays and back.

use crate::model::cases::{Case, Row, Value};
use arrow_array::builder::{Int64Builder, ListBuilder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, RecordBatchOptions, StringArray,
    TimestampMicrosecondArray,
};
use arrow_schema::{DataType, Field, Schema as ArrowSchema};
use bathyal_collection::{Id, Ids, Rows};
use bathyal_vectors::VectorFile;
use std::sync::Arc;

fn array(data_type: &DataType, values: &[&Value]) -> ArrayRef {
    let whole = |value: &&Value| if let Value::Whole(whole) = value { Some(*whole) } else { None };
    match data_type {
        DataType::Int64 => Arc::new(values.iter().map(whole).collect::<Int64Array>()),
        DataType::Timestamp(..) => Arc::new(values.iter().map(whole).collect::<TimestampMicrosecondArray>()),
        DataType::Boolean => {
            let truth = |value: &&Value| if let Value::Truth(truth) = value { Some(*truth) } else { None };
            Arc::new(values.iter().map(truth).collect::<BooleanArray>())
        }
        DataType::Float64 => {
            let real = |value: &&Value| if let Value::Real(real) = value { Some(*real) } else { None };
            Arc::new(values.iter().map(real).collect::<Float64Array>())
        }
        DataType::Utf8 => {
            let text = |value: &&Value| if let Value::Text(text) = value { Some(text.clone()) } else { None };
            Arc::new(values.iter().map(text).collect::<StringArray>())
        }
        DataType::List(item) if item.data_type() == &DataType::Utf8 => {
            let mut lists = ListBuilder::new(StringBuilder::new());
            for value in values {
                let texts = if let Value::Texts(texts) = value { Some(texts) } else { None };
                texts.into_iter().flatten().for_each(|text| lists.values().append_value(text));
                lists.append(texts.is_some());
            }
            Arc::new(lists.finish())
        }
        DataType::List(_) => {
            let mut lists = ListBuilder::new(Int64Builder::new());
            for value in values {
                let wholes = if let Value::Wholes(wholes) = value { Some(wholes) } else { None };
                wholes.into_iter().flatten().for_each(|whole| lists.values().append_option(*whole));
                lists.append(wholes.is_some());
            }
            Arc::new(lists.finish())
        }
        other => unreachable!("no case has {other}"),
    }
}

/// Returns the value at a position of an array.
pub fn value(array: &dyn Array, at: usize) -> Value {
    if array.is_null(at) {
        return Value::Null;
    }
    match array.data_type() {
        DataType::Int64 => Value::Whole(array.as_primitive::<Int64Type>().value(at)),
        DataType::Timestamp(..) => Value::Whole(array.as_primitive::<TimestampMicrosecondType>().value(at)),
        DataType::Boolean => Value::Truth(array.as_boolean().value(at)),
        DataType::Float64 => Value::Real(array.as_primitive::<Float64Type>().value(at)),
        DataType::Utf8 => Value::Text(array.as_string::<i32>().value(at).into()),
        DataType::List(item) if item.data_type() == &DataType::Utf8 => {
            let texts = array.as_list::<i32>().value(at);
            Value::Texts(texts.as_string::<i32>().iter().map(|text| text.unwrap().to_string()).collect())
        }
        DataType::List(_) => {
            Value::Wholes(array.as_list::<i32>().value(at).as_primitive::<Int64Type>().iter().collect())
        }
        other => unreachable!("no case has {other}"),
    }
}

/// Returns some columns of a case with the values of each.
pub fn batch(case: &Case, columns: &[(usize, Vec<Value>)], rows: usize) -> RecordBatch {
    let (mut fields, mut arrays) = (Vec::new(), Vec::new());
    for (column, values) in columns {
        let column = &case.schema.columns[*column];
        fields.push(Field::new(&column.name, column.kind.data_type().clone(), true));
        arrays.push(array(column.kind.data_type(), &values.iter().collect::<Vec<_>>()));
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::new(ArrowSchema::new(fields)), arrays, &options).unwrap()
}

/// Returns a list of ids.
pub fn ids(case: &Case, ids: &[Id]) -> Ids {
    Ids::from_ids(case.schema.id_kind, ids).unwrap()
}

/// Returns the vectors of a field.
pub fn vectors(case: &Case, field: usize, rows: &[&[u8]]) -> VectorFile {
    let shape = &case.schema.vectors[field];
    VectorFile::from_rows(shape.element, shape.dim, rows.concat()).unwrap()
}

/// Returns rows for a write.
pub fn rows(case: &Case, rows: &[(Id, Arc<Row>)]) -> Rows {
    let row_ids: Vec<Id> = rows.iter().map(|(id, _)| id.clone()).collect();
    let of_field =
        |field: usize| -> Vec<&[u8]> { rows.iter().map(|(_, row)| &row.vectors[field][..]).collect() };
    let vectors =
        (0..case.schema.vectors.len()).map(|field| vectors(case, field, &of_field(field))).collect();
    let values = |column: usize| rows.iter().map(|(_, row)| row.values[column].clone()).collect();
    let columns: Vec<_> = (0..case.schema.columns.len()).map(|column| (column, values(column))).collect();
    Rows::new(&case.schema, ids(case, &row_ids), vectors, Some(&batch(case, &columns, rows.len()))).unwrap()
}
