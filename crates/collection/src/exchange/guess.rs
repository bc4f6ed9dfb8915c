//! Derives the schema of a collection from a file of rows.

use super::SCHEMA_KEY;
use super::arrow;
use super::kind::{FileKind, catch_panics, file_error, open};
use crate::error::CollectionError;
use crate::ids::IdKind;
use crate::schema::{Column, ColumnKind, ID_COLUMN, Schema, VectorField};
use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, SchemaRef};
use bathyal_kernels::{Element, Metric};
use bathyal_vectors::VectorFile;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::path::Path;

/// Rows that are inspected if a type does not give the length of lists.
const INSPECTED_ROWS: usize = 256;
/// The shortest list of numbers that counts as a vector.
const MIN_DIM: usize = 2;

/// Properties of a schema that a file may not contain.
#[derive(Debug, Clone)]
pub struct GuessOptions {
    /// The metric, for vector fields without one in the file.
    pub metric: Metric,
    /// The column of ids; `None` means `id`.
    pub id_column: Option<String>,
    /// The columns of metadata to take; `None` means all.
    pub columns: Option<Vec<String>>,
}

/// Returns the schema of a collection for the rows of a file. If the file was exported from a collection, it
/// is that collection's schema. Otherwise it follows from the types of the columns: lists of numbers of equal
/// length are vectors. A file of vectors has one field, `vector`.
///
/// # Errors
/// [`CollectionError::File`] for a file without ids or without vectors, and for types that no column can
/// have.
pub fn schema_of_file(path: &Path, options: &GuessOptions) -> Result<Schema, CollectionError> {
    let (schema, first_rows) = match FileKind::from_path(path)? {
        FileKind::Parquet => catch_panics(path, || parquet(path))?,
        FileKind::Arrow { .. } => catch_panics(path, || arrow(path))?,
        FileKind::Vectors => {
            if options.id_column.is_some() || options.columns.is_some() {
                return Err(file_error(
                    path,
                    "holds vectors alone and no columns; leave out those of ids and metadata",
                ));
            }
            let vectors = VectorFile::open_converted(path)?.0;
            let field = VectorField::new("vector", vectors.dim(), vectors.element(), options.metric);
            return Ok(Schema { id_kind: IdKind::Number, vectors: vec![field], columns: Vec::new() });
        }
        FileKind::JsonLines => {
            return Err(file_error(
                path,
                "lines of JSON do not give the types of their values; name the fields and columns",
            ));
        }
    };
    if let Some(text) = schema.metadata().get(SCHEMA_KEY) {
        let mut schema: Schema = serde_json::from_str(text).map_err(|error| {
            file_error(path, format!("has metadata of a collection that cannot be read: {error}"))
        })?;
        if let Some(other) = options.id_column.as_deref().filter(|name| *name != ID_COLUMN) {
            return Err(file_error(
                path,
                format!("was exported from a collection, whose ids are {ID_COLUMN:?}, not {other:?}"),
            ));
        }
        if let Some(columns) = &options.columns {
            let missing =
                columns.iter().find(|name| schema.columns.iter().all(|column| column.name != **name));
            if let Some(missing) = missing {
                return Err(file_error(path, format!("has no column {missing:?}")));
            }
            schema.columns.retain(|column| columns.contains(&column.name));
        }
        return Ok(schema);
    }
    schema_of_columns(path, &schema, first_rows.as_ref(), options)
}

/// Reads the schema of a Parquet file, and its first rows.
fn parquet(path: &Path) -> Result<(SchemaRef, Option<RecordBatch>), CollectionError> {
    let parquet_error = |source| CollectionError::Parquet { path: path.to_path_buf(), source };
    let builder = ParquetRecordBatchReaderBuilder::try_new(open(path)?).map_err(parquet_error)?;
    let schema = builder.schema().clone();
    let mut rows =
        builder.with_batch_size(INSPECTED_ROWS).with_limit(INSPECTED_ROWS).build().map_err(parquet_error)?;
    Ok((schema, rows.next().transpose().map_err(|error| file_error(path, error))?))
}

/// Reads the schema of an Arrow IPC file, and its first rows.
fn arrow(path: &Path) -> Result<(SchemaRef, Option<RecordBatch>), CollectionError> {
    let (schema, mut batches) = arrow::read(path)?;
    Ok((schema, batches.next().transpose().map_err(|error| file_error(path, error))?))
}

fn schema_of_columns(
    path: &Path,
    schema: &SchemaRef,
    first_rows: Option<&RecordBatch>,
    options: &GuessOptions,
) -> Result<Schema, CollectionError> {
    let id = options.id_column.as_deref().unwrap_or(ID_COLUMN);
    let (mut id_kind, mut vectors, mut columns) = (None, Vec::new(), Vec::new());
    for field in schema.fields() {
        let (name, data_type) = (field.name(), field.data_type());
        if name == id {
            id_kind = match data_type {
                integer if integer.is_integer() => Some(IdKind::Number),
                text if text.is_string() => Some(IdKind::Text),
                DataType::Dictionary(_, values) if values.is_string() => Some(IdKind::Text),
                other => {
                    return Err(file_error(
                        path,
                        format!("column {name:?} is {other}, but ids are whole numbers or strings"),
                    ));
                }
            };
            continue;
        }
        let values = first_rows.and_then(|first_rows| first_rows.column_by_name(name));
        if let Some((dim, element)) = vector_type(data_type, values.map(|values| &**values)) {
            vectors.push(VectorField::new(name, dim, element, options.metric));
            continue;
        }
        if options.columns.as_ref().is_some_and(|columns| !columns.contains(name)) {
            continue;
        }
        let kind = ColumnKind::from_arrow(data_type).map_err(|reason| {
            file_error(path, format!("column {name:?}: {reason}. To leave it out, name the columns to take"))
        })?;
        columns.push(Column { name: name.clone(), kind });
    }
    let names = || schema.fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>().join(", ");
    let id_kind = id_kind.ok_or_else(|| {
        file_error(path, format!("there is no column {id:?} for the ids; there is {}", names()))
    })?;
    if vectors.is_empty() {
        return Err(file_error(
            path,
            format!("there is no column of vectors (lists of numbers of equal length); there is {}", names()),
        ));
    }
    Ok(Schema { id_kind, vectors, columns })
}

/// Returns the dimension and the element of a column of vectors; `None` for another column.
fn vector_type(data_type: &DataType, values: Option<&dyn Array>) -> Option<(usize, Element)> {
    let (item, dim) = match data_type {
        DataType::FixedSizeList(item, dim) => (item, *dim as usize),
        // Whole numbers in lists of variable length are more often metadata.
        DataType::List(item) if item.data_type().is_floating() => {
            (item, equal_length(values?.as_list::<i32>())?)
        }
        DataType::LargeList(item) if item.data_type().is_floating() => {
            (item, equal_length(values?.as_list::<i64>())?)
        }
        _ => return None,
    };
    let element = match item.data_type() {
        DataType::Float16 => Element::F16,
        DataType::UInt8 => Element::U8,
        DataType::Int8 => Element::I8,
        number if number.is_numeric() => Element::F32,
        _ => return None,
    };
    (dim >= MIN_DIM).then_some((dim, element))
}

/// Returns the length of the lists, if all have the same.
fn equal_length<O: arrow_array::OffsetSizeTrait>(lists: &arrow_array::GenericListArray<O>) -> Option<usize> {
    let mut lengths = (0..lists.len()).map(|row| lists.value_length(row).as_usize());
    let first = lengths.next()?;
    (lists.null_count() == 0 && lengths.all(|length| length == first)).then_some(first)
}
