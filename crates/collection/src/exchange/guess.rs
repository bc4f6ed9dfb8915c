//! What a collection of the rows of a file would be.

use super::SCHEMA_KEY;
use super::arrow;
use super::kind::{FileKind, bad, guarded, open};
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

/// Rows that are looked at where a type does not say how long lists are.
const LOOKED_AT: usize = 256;
/// Numbers in a list from which on it is taken for a vector where only its length says so.
const LEAST_DIM: usize = 2;

/// What a file does not say of a collection of its rows.
#[derive(Debug, Clone)]
pub struct GuessOptions {
    /// What near means, in fields of vectors of which the file does not say it.
    pub metric: Metric,
    /// The column that has the ids; `None` means `id`.
    pub id_column: Option<String>,
    /// The columns of metadata that are taken; `None` means all.
    pub columns: Option<Vec<String>>,
}

/// The schema of a collection of the rows of a file: that of the collection, where the file is an export of one, or what the types of
/// its columns say. Lists of numbers that are all equally long are vectors; a file of vectors alone has one field, `vector`.
///
/// # Errors
/// [`CollectionError::File`] for a file without ids or without vectors, and for types that no column has.
pub fn schema_of_file(path: &Path, options: &GuessOptions) -> Result<Schema, CollectionError> {
    let (schema, begin) = match FileKind::of(path)? {
        FileKind::Parquet => guarded(path, || parquet(path))?,
        FileKind::Arrow { .. } => guarded(path, || arrow(path))?,
        FileKind::Vectors => {
            if options.id_column.is_some() || options.columns.is_some() {
                return Err(bad(
                    path,
                    "holds vectors alone and no columns; leave those of ids and metadata out",
                ));
            }
            let vectors = VectorFile::open(path)?;
            let field = VectorField::new("vector", vectors.dim(), vectors.element(), options.metric);
            return Ok(Schema { id_kind: IdKind::Number, vectors: vec![field], columns: Vec::new() });
        }
        FileKind::JsonLines => {
            return Err(bad(
                path,
                "lines of JSON do not say what types their values have; name the fields and columns",
            ));
        }
    };
    if let Some(text) = schema.metadata().get(SCHEMA_KEY) {
        let mut schema: Schema = serde_json::from_str(text).map_err(|error| {
            bad(path, format!("says of which collection it is, but not in a way that can be read: {error}"))
        })?;
        if let Some(other) = options.id_column.as_deref().filter(|name| *name != ID_COLUMN) {
            return Err(bad(
                path,
                format!("is the export of a collection, whose ids are {ID_COLUMN:?}, not {other:?}"),
            ));
        }
        if let Some(columns) = &options.columns {
            let missing =
                columns.iter().find(|name| schema.columns.iter().all(|column| column.name != **name));
            if let Some(missing) = missing {
                return Err(bad(path, format!("has no column {missing:?}")));
            }
            schema.columns.retain(|column| columns.contains(&column.name));
        }
        return Ok(schema);
    }
    of_columns(path, &schema, begin.as_ref(), options)
}

/// The columns of a Parquet file, and its first rows.
fn parquet(path: &Path) -> Result<(SchemaRef, Option<RecordBatch>), CollectionError> {
    let failed = |source| CollectionError::Parquet { path: path.to_path_buf(), source };
    let builder = ParquetRecordBatchReaderBuilder::try_new(open(path)?).map_err(failed)?;
    let schema = builder.schema().clone();
    let mut rows = builder.with_batch_size(LOOKED_AT).with_limit(LOOKED_AT).build().map_err(failed)?;
    Ok((schema, rows.next().transpose().map_err(|error| bad(path, error))?))
}

/// The columns of a file of Arrow IPC, and its first rows.
fn arrow(path: &Path) -> Result<(SchemaRef, Option<RecordBatch>), CollectionError> {
    let (schema, mut batches) = arrow::read(path)?;
    Ok((schema, batches.next().transpose().map_err(|error| bad(path, error))?))
}

fn of_columns(
    path: &Path,
    schema: &SchemaRef,
    begin: Option<&RecordBatch>,
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
                    return Err(bad(
                        path,
                        format!("column {name:?} is {other}, and ids are whole numbers or strings"),
                    ));
                }
            };
            continue;
        }
        let values = begin.and_then(|begin| begin.column_by_name(name));
        if let Some((dim, element)) = vector_of(data_type, values.map(|values| &**values)) {
            vectors.push(VectorField::new(name, dim, element, options.metric));
            continue;
        }
        if options.columns.as_ref().is_some_and(|columns| !columns.contains(name)) {
            continue;
        }
        let kind = ColumnKind::of(data_type).map_err(|reason| {
            bad(
                path,
                format!(
                    "column {name:?}: {reason}. Name the columns that are to be taken to leave others out"
                ),
            )
        })?;
        columns.push(Column { name: name.clone(), kind });
    }
    let names = || schema.fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>().join(", ");
    let id_kind = id_kind
        .ok_or_else(|| bad(path, format!("there is no column {id:?} for the ids; there is {}", names())))?;
    if vectors.is_empty() {
        return Err(bad(
            path,
            format!(
                "there is no column of vectors, which are lists of numbers, all equally long; there is {}",
                names()
            ),
        ));
    }
    Ok(Schema { id_kind, vectors, columns })
}

/// The dimensions and the element of a column of vectors; `None` of one that is none.
fn vector_of(data_type: &DataType, values: Option<&dyn Array>) -> Option<(usize, Element)> {
    let (item, dim) = match data_type {
        DataType::FixedSizeList(item, dim) => (item, *dim as usize),
        // Whole numbers in lists of any length are more often metadata.
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
    (dim >= LEAST_DIM).then_some((dim, element))
}

/// The length of all lists, if they are equally long.
fn equal_length<O: arrow_array::OffsetSizeTrait>(lists: &arrow_array::GenericListArray<O>) -> Option<usize> {
    let mut lengths = (0..lists.len()).map(|row| lists.value_length(row).as_usize());
    let first = lengths.next()?;
    (lists.null_count() == 0 && lengths.all(|length| length == first)).then_some(first)
}
