//! Files that rows are written to, which appear under their names complete or not at all.

use super::SCHEMA_KEY;
use super::id_file::IdWriter;
use super::json_rows::JsonRows;
use super::kind::{FileKind, bad, refused};
use super::vectors::{column_of, to_lists};
use crate::error::CollectionError;
use crate::schema::{ID_COLUMN, Schema, VectorField};
use crate::state::Fetched;
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

/// Bytes of rows that a writer of Parquet holds, about: what a group of rows takes.
const GROUP_BYTES: usize = 64 << 20;

/// What is written of every row.
pub(super) struct Shown {
    pub(super) schema: Schema,
    /// The fields of vectors, by their numbers.
    pub(super) fields: Vec<usize>,
    /// The columns, by their numbers.
    pub(super) columns: Vec<usize>,
}

impl Shown {
    fn fields(&self) -> impl Iterator<Item = &VectorField> {
        self.fields.iter().filter_map(|field| self.schema.vectors.get(*field))
    }

    /// As Arrow has it: the id, the columns, the vectors; beside it the schema of a collection of these rows.
    fn table(&self) -> SchemaRef {
        let id = Field::new(ID_COLUMN, self.schema.id_kind.data_type(), false);
        let columns = self.columns.iter().filter_map(|column| self.schema.columns.get(*column));
        let shown = Schema {
            id_kind: self.schema.id_kind,
            vectors: self.fields().cloned().collect(),
            columns: columns.clone().cloned().collect(),
        };
        let columns = columns.map(|column| Field::new(&column.name, column.kind.data_type().clone(), true));
        let fields = std::iter::once(id).chain(columns).chain(self.fields().map(column_of));
        let table = ArrowSchema::new(fields.collect::<Vec<_>>());
        // Without vectors it is no collection's.
        let told = serde_json::to_string(&shown).ok().filter(|_| !shown.vectors.is_empty());
        let metadata: HashMap<String, String> =
            told.map(|text| (SCHEMA_KEY.to_string(), text)).into_iter().collect();
        Arc::new(table.with_metadata(metadata))
    }
}

/// A file that rows are written to.
pub(super) enum Sink {
    Parquet { path: PathBuf, writer: Box<ArrowWriter<AtomicFile>>, table: SchemaRef },
    ArrowFile { path: PathBuf, writer: Box<FileWriter<AtomicFile>>, table: SchemaRef },
    ArrowStream { path: PathBuf, writer: Box<StreamWriter<AtomicFile>>, table: SchemaRef },
    Lines { path: PathBuf, file: AtomicFile, names: Vec<String> },
    Vectors { vectors: VectorWriter, ids: IdWriter },
}

impl Sink {
    /// Begins the file `path`; `ids` is where ids go that have no place in it.
    pub(super) fn create(path: &Path, ids: &Path, shown: &Shown) -> Result<Sink, CollectionError> {
        let kind = FileKind::of(path)?;
        if kind == FileKind::Vectors {
            let mut fields = shown.fields();
            let (Some(field), None, true) = (fields.next(), fields.next(), shown.columns.is_empty()) else {
                return Err(bad(
                    path,
                    "holds vectors of one field, and nothing else; name the field and no columns, or export to Parquet",
                ));
            };
            let vectors = VectorWriter::create(path, field.element, field.dim)?;
            return Ok(Sink::Vectors { vectors, ids: IdWriter::create(ids, shown.schema.id_kind)? });
        }
        let file = AtomicFile::create(path)?;
        let table = shown.table();
        Ok(match kind {
            FileKind::Parquet => {
                let failed = |error| of_parquet(path, error);
                let properties = Some(properties(shown).map_err(failed)?);
                let writer = Box::new(ArrowWriter::try_new(file, table.clone(), properties).map_err(failed)?);
                Sink::Parquet { path: path.to_path_buf(), writer, table }
            }
            FileKind::Arrow { stream: false } => {
                let writer = FileWriter::try_new(file, &table).map_err(|error| of_arrow(path, error))?;
                Sink::ArrowFile { path: path.to_path_buf(), writer: Box::new(writer), table }
            }
            FileKind::Arrow { stream: true } => {
                let writer = StreamWriter::try_new(file, &table).map_err(|error| of_arrow(path, error))?;
                Sink::ArrowStream { path: path.to_path_buf(), writer: Box::new(writer), table }
            }
            _ => {
                let names = shown.fields().map(|field| field.name.clone()).collect();
                Sink::Lines { path: path.to_path_buf(), file, names }
            }
        })
    }

    /// Appends rows.
    pub(super) fn push(&mut self, rows: Fetched) -> Result<(), CollectionError> {
        match self {
            Sink::Parquet { path, writer, table } => {
                let failed = |error| of_parquet(path, error);
                writer.write(&batch(table, rows)?).map_err(failed)?;
                if writer.in_progress_size().max(writer.memory_size()) > GROUP_BYTES {
                    writer.flush().map_err(failed)?;
                }
            }
            Sink::ArrowFile { path, writer, table } => {
                writer.write(&batch(table, rows)?).map_err(|error| of_arrow(path, error))?;
            }
            Sink::ArrowStream { path, writer, table } => {
                writer.write(&batch(table, rows)?).map_err(|error| of_arrow(path, error))?;
            }
            Sink::Lines { path, file, names } => {
                let vectors = names.iter().cloned().zip(rows.vectors).collect();
                for row in JsonRows::new(rows.ids, &rows.columns, vectors)?.iter() {
                    let line = serde_json::to_vec(&row).map_err(|error| bad(path, error))?;
                    let written = file.write_all(&line).and_then(|()| file.write_all(b"\n"));
                    written.map_err(refused(path, "write the file"))?;
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

    /// Gives the file its name.
    pub(super) fn finish(self) -> Result<(), CollectionError> {
        let file = match self {
            Sink::Parquet { path, writer, .. } => {
                writer.into_inner().map_err(|error| of_parquet(&path, error))?
            }
            Sink::ArrowFile { path, writer, .. } => {
                writer.into_inner().map_err(|error| of_arrow(&path, error))?
            }
            Sink::ArrowStream { path, writer, .. } => {
                writer.into_inner().map_err(|error| of_arrow(&path, error))?
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

/// Why a file of Parquet was not written: what the system said, where that is why.
fn of_parquet(path: &Path, error: ParquetError) -> CollectionError {
    match error {
        ParquetError::External(error) => match error.downcast::<std::io::Error>() {
            Ok(error) => refused(path, "write the file")(*error),
            Err(error) => bad(path, error),
        },
        source => CollectionError::Parquet { path: path.to_path_buf(), source },
    }
}

/// The same of Arrow IPC.
fn of_arrow(path: &Path, error: ArrowError) -> CollectionError {
    match error {
        ArrowError::IoError(_, error) => refused(path, "write the file")(error),
        other => bad(path, other),
    }
}

fn batch(table: &SchemaRef, rows: Fetched) -> Result<RecordBatch, CollectionError> {
    let mut columns: Vec<ArrayRef> = vec![rows.ids.to_array()];
    columns.extend(rows.columns.columns().iter().cloned());
    for vectors in rows.vectors {
        columns.push(to_lists(vectors)?);
    }
    Ok(RecordBatch::try_new(table.clone(), columns)?)
}

/// Compressed, but for vectors, whose values are hardly ever the same twice.
fn properties(shown: &Shown) -> Result<WriterProperties, ParquetError> {
    let mut properties = WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default()));
    for field in shown.fields() {
        let path = ColumnPath::from(vec![field.name.clone(), "list".into(), "item".into()]);
        properties = properties.set_column_dictionary_enabled(path, false);
    }
    Ok(properties.build())
}
