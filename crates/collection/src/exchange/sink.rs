//! Writes rows to a file. The file appears under its name when it is complete.

use super::SCHEMA_KEY;
use super::id_file::IdFileWriter;
use super::json_rows::JsonRows;
use super::kind::{FileKind, file_error, io_error};
use super::vectors::{arrow_field, to_lists};
use crate::error::CollectionError;
use crate::schema::{ID_COLUMN, Schema, VectorField};
use crate::state::FetchedRows;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_ipc::writer::{FileWriter, StreamWriter};
use arrow_schema::{ArrowError, Field, Schema as ArrowSchema, SchemaRef};
use bathyal_vectors::{AtomicFile, VectorWriter};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::schema::types::ColumnPath;
use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Approximate bytes of rows that a Parquet writer buffers: the size of a row group.
const GROUP_BYTES: usize = 64 << 20;

/// The fields and columns that are exported of each row.
pub(super) struct ExportSelection {
    pub(super) schema: Schema,
    /// Numbers of the vector fields.
    pub(super) fields: Vec<usize>,
    /// Numbers of the columns.
    pub(super) columns: Vec<usize>,
}

impl ExportSelection {
    fn fields(&self) -> impl Iterator<Item = &VectorField> {
        self.fields.iter().filter_map(|field| self.schema.vectors.get(*field))
    }

    /// Returns the Arrow schema: the id, the columns, the vectors. Its metadata holds the schema of a
    /// collection of these rows.
    fn arrow_schema(&self) -> SchemaRef {
        let id = Field::new(ID_COLUMN, self.schema.id_kind.data_type(), false);
        let columns = self.columns.iter().filter_map(|column| self.schema.columns.get(*column));
        let exported = Schema {
            id_kind: self.schema.id_kind,
            vectors: self.fields().cloned().collect(),
            columns: columns.clone().cloned().collect(),
        };
        let columns = columns.map(|column| Field::new(&column.name, column.kind.data_type().clone(), true));
        let fields = std::iter::once(id).chain(columns).chain(self.fields().map(arrow_field));
        let arrow_schema = ArrowSchema::new(fields.collect::<Vec<_>>());
        // Without vectors the rows are not those of a collection.
        let text = serde_json::to_string(&exported).ok().filter(|_| !exported.vectors.is_empty());
        let metadata: HashMap<String, String> =
            text.map(|text| (SCHEMA_KEY.to_string(), text)).into_iter().collect();
        Arc::new(arrow_schema.with_metadata(metadata))
    }
}

/// A file that is being written.
pub(super) enum Sink {
    Parquet { path: PathBuf, writer: Box<ArrowWriter<AtomicFile>>, arrow_schema: SchemaRef },
    ArrowFile { path: PathBuf, writer: Box<FileWriter<AtomicFile>>, arrow_schema: SchemaRef },
    ArrowStream { path: PathBuf, writer: Box<StreamWriter<AtomicFile>>, arrow_schema: SchemaRef },
    Lines { path: PathBuf, file: AtomicFile, names: Vec<String> },
    Vectors { vectors: VectorWriter, ids: IdFileWriter },
}

impl Sink {
    /// Begins the file `path`. If the format has no place for ids, they go to the file `ids`.
    pub(super) fn create(
        path: &Path,
        ids: &Path,
        selection: &ExportSelection,
    ) -> Result<Sink, CollectionError> {
        let kind = FileKind::from_path(path)?;
        if kind == FileKind::Vectors {
            let mut fields = selection.fields();
            let (Some(field), None, true) = (fields.next(), fields.next(), selection.columns.is_empty())
            else {
                return Err(file_error(
                    path,
                    "holds vectors of one field, and nothing else; name the field and no columns, or export \
                     to Parquet",
                ));
            };
            let vectors = VectorWriter::create(path, field.element, field.dim)?;
            return Ok(Sink::Vectors { vectors, ids: IdFileWriter::create(ids, selection.schema.id_kind)? });
        }
        let file = AtomicFile::create(path)?;
        let arrow_schema = selection.arrow_schema();
        Ok(match kind {
            FileKind::Parquet => {
                let convert_error = |error| parquet_error(path, error);
                let properties = Some(properties(selection).map_err(convert_error)?);
                let writer = Box::new(
                    ArrowWriter::try_new(file, arrow_schema.clone(), properties).map_err(convert_error)?,
                );
                Sink::Parquet { path: path.to_path_buf(), writer, arrow_schema }
            }
            FileKind::Arrow { stream: false } => {
                let writer =
                    FileWriter::try_new(file, &arrow_schema).map_err(|error| arrow_error(path, error))?;
                Sink::ArrowFile { path: path.to_path_buf(), writer: Box::new(writer), arrow_schema }
            }
            FileKind::Arrow { stream: true } => {
                let writer =
                    StreamWriter::try_new(file, &arrow_schema).map_err(|error| arrow_error(path, error))?;
                Sink::ArrowStream { path: path.to_path_buf(), writer: Box::new(writer), arrow_schema }
            }
            _ => {
                let names = selection.fields().map(|field| field.name.clone()).collect();
                Sink::Lines { path: path.to_path_buf(), file, names }
            }
        })
    }

    /// Appends rows.
    pub(super) fn push(&mut self, rows: FetchedRows) -> Result<(), CollectionError> {
        match self {
            Sink::Parquet { path, writer, arrow_schema } => {
                let convert_error = |error| parquet_error(path, error);
                writer.write(&batch(arrow_schema, rows)?).map_err(convert_error)?;
                if writer.in_progress_size().max(writer.memory_size()) > GROUP_BYTES {
                    writer.flush().map_err(convert_error)?;
                }
            }
            Sink::ArrowFile { path, writer, arrow_schema } => {
                writer.write(&batch(arrow_schema, rows)?).map_err(|error| arrow_error(path, error))?;
            }
            Sink::ArrowStream { path, writer, arrow_schema } => {
                writer.write(&batch(arrow_schema, rows)?).map_err(|error| arrow_error(path, error))?;
            }
            Sink::Lines { path, file, names } => {
                let vectors = names.iter().cloned().zip(rows.vectors).collect();
                for row in JsonRows::new(rows.ids, &rows.columns, vectors)?.iter() {
                    let line = serde_json::to_vec(&row).map_err(|error| file_error(path, error))?;
                    let written = file.write_all(&line).and_then(|()| file.write_all(b"\n"));
                    written.map_err(io_error(path, "write the file"))?;
                }
            }
            Sink::Vectors { vectors, ids } => {
                ids.push(&rows.ids)?;
                let written = rows.vectors.iter().try_for_each(|field| vectors.push_rows(&field.bytes));
                written?;
            }
        }
        Ok(())
    }

    /// Completes the file and gives it its name.
    pub(super) fn finish(self) -> Result<(), CollectionError> {
        let file = match self {
            Sink::Parquet { path, writer, .. } => {
                writer.into_inner().map_err(|error| parquet_error(&path, error))?
            }
            Sink::ArrowFile { path, writer, .. } => {
                writer.into_inner().map_err(|error| arrow_error(&path, error))?
            }
            Sink::ArrowStream { path, writer, .. } => {
                writer.into_inner().map_err(|error| arrow_error(&path, error))?
            }
            Sink::Lines { file, .. } => file,
            Sink::Vectors { vectors, ids } => {
                vectors.finish()?;
                return ids.finish();
            }
        };
        file.finish(&[])?;
        Ok(())
    }
}

/// Converts an error of a Parquet writer. An error of the system is returned as such.
fn parquet_error(path: &Path, error: ParquetError) -> CollectionError {
    match error {
        ParquetError::External(error) => match error.downcast::<std::io::Error>() {
            Ok(error) => io_error(path, "write the file")(*error),
            Err(error) => file_error(path, error),
        },
        source => CollectionError::Parquet { path: path.to_path_buf(), source },
    }
}

/// Converts an error of an Arrow IPC writer. An error of the system is returned as such.
fn arrow_error(path: &Path, error: ArrowError) -> CollectionError {
    match error {
        ArrowError::IoError(_, error) => io_error(path, "write the file")(error),
        other => file_error(path, other),
    }
}

fn batch(arrow_schema: &SchemaRef, rows: FetchedRows) -> Result<RecordBatch, CollectionError> {
    let mut columns: Vec<ArrayRef> = vec![rows.ids.to_array()];
    columns.extend(rows.columns.columns().iter().cloned());
    for vectors in rows.vectors {
        columns.push(to_lists(vectors)?);
    }
    Ok(RecordBatch::try_new(arrow_schema.clone(), columns)?)
}

/// Returns the Parquet options: compressed, and without dictionaries for vectors, whose values seldom repeat.
fn properties(selection: &ExportSelection) -> Result<WriterProperties, ParquetError> {
    let mut properties = WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default()));
    for field in selection.fields() {
        let path = ColumnPath::from(vec![field.name.clone(), "list".into(), "item".into()]);
        properties = properties.set_column_dictionary_enabled(path, false);
    }
    Ok(properties.build())
}
