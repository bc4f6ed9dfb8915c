//! Reads a file as a stream of rows.

use super::arrow;
use super::id_file::IdReader;
use super::import::ImportOptions;
use super::json_lines::LineReader;
use super::kind::{FileKind, catch_panics, file_error, open};
use super::table::{ColumnMapping, split_table};
use crate::error::CollectionError;
use crate::ids::{Id, IdKind, Ids};
use crate::rows::Rows;
use crate::schema::Schema;
use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use bathyal_vectors::{RowReader, VectorFile, encode_row};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::io::BufReader;
use std::path::{Path, PathBuf};

/// The most rows that Parquet decodes at once.
const DECODED_ROWS: usize = 8192;
/// The path of JSON lines on standard input.
pub(super) const STANDARD_INPUT: &str = "-";

/// An iterator over tables.
type Tables = Box<dyn Iterator<Item = Result<RecordBatch, CollectionError>>>;

/// A file that is being imported.
pub(super) struct ImportSource {
    pub(super) mapping: ColumnMapping,
    reader: SourceReader,
    /// Total for the display of progress, in rows or bytes; 0 if it is unknown.
    pub(super) total: u64,
}

enum SourceReader {
    /// `split` iterates over the parts of the current table.
    Tables {
        tables: Tables,
        split: Tables,
    },
    Lines(LineReader),
    Vectors(Box<VectorSource>),
}

/// A batch of a file.
pub(super) enum SourceBatch {
    Table(RecordBatch),
    Rows(Rows),
}

impl SourceBatch {
    pub(super) fn len(&self) -> usize {
        match self {
            SourceBatch::Table(table) => table.num_rows(),
            SourceBatch::Rows(rows) => rows.len(),
        }
    }
}

impl ImportSource {
    pub(super) fn open(
        path: &Path,
        schema: &Schema,
        options: &ImportOptions,
    ) -> Result<ImportSource, CollectionError> {
        let mapping = ColumnMapping {
            path: path.to_path_buf(),
            schema: schema.clone(),
            id: options.id_column.clone().unwrap_or_else(|| crate::schema::ID_COLUMN.into()),
            columns: options.columns.clone(),
        };
        if path == Path::new(STANDARD_INPUT) {
            check_options(Path::new("standard input"), false, options)?;
            let lines =
                LineReader::new(Box::new(BufReader::new(std::io::stdin())), Path::new("standard input"));
            return Ok(ImportSource { mapping, reader: SourceReader::Lines(lines), total: 0 });
        }
        let kind = FileKind::from_path(path)?;
        check_options(path, kind == FileKind::Vectors, options)?;
        let (reader, total) = match kind {
            FileKind::Parquet => tables(catch_panics(path, || parquet(path, &mapping))?),
            FileKind::Arrow { .. } => {
                // The number of rows is unknown before the end.
                let (_, batches) = catch_panics(path, || arrow::read(path))?;
                tables((catching_panics(path, batches), 0))
            }
            FileKind::JsonLines => {
                let file = open(path)?;
                let bytes = file.metadata().map_or(0, |found| found.len());
                (SourceReader::Lines(LineReader::new(Box::new(BufReader::new(file)), path)), bytes)
            }
            FileKind::Vectors => {
                let vectors = VectorSource::open(path, schema, options)?;
                let total = vectors.vectors.count() as u64;
                (SourceReader::Vectors(Box::new(vectors)), total)
            }
        };
        Ok(ImportSource { mapping, reader, total })
    }

    /// Returns the next rows: at most `rows`, about `bytes`; `None` at the end. `first` is the number of the
    /// first of them in the file.
    pub(super) fn next(
        &mut self,
        rows: usize,
        bytes: usize,
        first: u64,
        same_keys: bool,
    ) -> Result<Option<SourceBatch>, CollectionError> {
        match &mut self.reader {
            SourceReader::Tables { tables, split } => loop {
                if let Some(table) = split.next().transpose()? {
                    return Ok(Some(SourceBatch::Table(table)));
                }
                let Some(table) = tables.next().transpose()? else { return Ok(None) };
                *split = Box::new(split_table(table, rows, bytes));
            },
            SourceReader::Lines(lines) => Ok(lines
                .next(&self.mapping.schema, &self.mapping.id, rows, bytes, same_keys)?
                .map(SourceBatch::Table)),
            SourceReader::Vectors(vectors) => {
                Ok(vectors.next(&self.mapping.schema, rows, bytes, first)?.map(SourceBatch::Rows))
            }
        }
    }

    /// Returns the progress towards [`ImportSource::total`], after `rows` rows.
    pub(super) fn progress(&self, rows: u64) -> u64 {
        match &self.reader {
            SourceReader::Lines(lines) => lines.bytes_read(),
            _ => rows,
        }
    }
}

/// Returns an error for options that do not fit the kind of file: vectors only, or rows with ids and columns.
fn check_options(path: &Path, vectors_only: bool, options: &ImportOptions) -> Result<(), CollectionError> {
    let ImportOptions { id_column, columns, ids, first_id, .. } = options;
    let reason = match vectors_only {
        false if ids.is_some() => "has its ids in it; a file of ids goes with a file of vectors alone",
        false if first_id.is_some() => "has its ids in it; a first id goes with a file of vectors alone",
        true if ids.is_some() && first_id.is_some() => {
            "cannot have ids from a file and from a first id at once; give one of them"
        }
        true if id_column.is_some() => "holds vectors alone and no columns; leave the column of ids out",
        true if columns.is_some() => "holds vectors alone and no columns; leave the columns out",
        _ => return Ok(()),
    };
    Err(file_error(path, reason))
}

fn tables((tables, rows): (Tables, u64)) -> (SourceReader, u64) {
    (SourceReader::Tables { tables, split: Box::new(std::iter::empty()) }, rows)
}

/// Returns the tables of a Parquet file, and its number of rows.
fn parquet(path: &Path, mapping: &ColumnMapping) -> Result<(Tables, u64), CollectionError> {
    let parquet_error = |source| CollectionError::Parquet { path: path.to_path_buf(), source };
    let mut builder = ParquetRecordBatchReaderBuilder::try_new(open(path)?).map_err(parquet_error)?;
    let rows = builder.metadata().file_metadata().num_rows().max(0) as u64;
    if let Some(columns) = &mapping.columns {
        let fields = mapping.schema.vectors.iter().map(|field| field.name.as_str());
        let selected = columns.iter().map(String::as_str).chain(fields);
        let selected: Vec<&str> = selected.chain([mapping.id.as_str(), super::table::ANY_VECTOR]).collect();
        let roots = builder.parquet_schema().root_schema().get_fields().iter().enumerate();
        let roots = roots.filter(|(_, field)| selected.contains(&field.name())).map(|(at, _)| at);
        let mask = ProjectionMask::roots(builder.parquet_schema(), roots.collect::<Vec<_>>());
        builder = builder.with_projection(mask);
    }
    let vectors: usize = mapping.schema.vectors.iter().map(|field| 4 * field.dim).sum();
    let batch_rows = ((4 << 20) / vectors.max(1)).clamp(1, DECODED_ROWS);
    let reader = builder.with_batch_size(batch_rows).build().map_err(parquet_error)?;
    Ok((catching_panics(path, reader), rows))
}

fn catching_panics(
    path: &Path,
    mut tables: impl Iterator<Item = Result<RecordBatch, ArrowError>> + 'static,
) -> Tables {
    let path = path.to_path_buf();
    let next = move || {
        let next =
            catch_panics(&path, || tables.next().transpose().map_err(|error| file_error(&path, error)));
        next.transpose()
    };
    Box::new(std::iter::from_fn(next))
}

/// A file of vectors, with ids from another source.
struct VectorSource {
    path: PathBuf,
    vectors: VectorFile,
    next: usize,
    ids: IdSource,
}

/// The source of the ids of vectors.
enum IdSource {
    /// Consecutive numbers, beginning with this one.
    Numbered(u64),
    File(Box<IdReader>),
}

impl VectorSource {
    fn open(path: &Path, schema: &Schema, options: &ImportOptions) -> Result<VectorSource, CollectionError> {
        let field = schema.field(None).map_err(|_| {
            file_error(
                path,
                "holds vectors of one field, but the collection has several; give a file with columns",
            )
        })?;
        let field = &schema.vectors[field];
        let (vectors, _) = VectorFile::open_converted(path)?;
        let vectors = match field.element {
            bathyal_kernels::Element::B1 => vectors.as_bits().unwrap_or(vectors),
            _ => vectors,
        };
        if vectors.dim() != field.dim {
            return Err(file_error(
                path,
                format!("has vectors of {} dimensions, the collection of {}", vectors.dim(), field.dim),
            ));
        }
        let ids = match &options.ids {
            Some(ids) => {
                let reader = IdReader::open(ids, schema.id_kind)?;
                if reader.count != vectors.count() as u64 {
                    let reason = format!(
                        "has {} ids for the {} vectors of {}",
                        reader.count,
                        vectors.count(),
                        path.display()
                    );
                    return Err(file_error(ids, reason));
                }
                IdSource::File(Box::new(reader))
            }
            None if schema.id_kind == IdKind::Number => IdSource::Numbered(options.first_id.unwrap_or(0)),
            None => {
                return Err(file_error(
                    path,
                    "holds no ids, but the ids of the collection are strings: also give a text file with an \
                     id on each line",
                ));
            }
        };
        Ok(VectorSource { path: path.to_path_buf(), vectors, next: 0, ids })
    }

    fn next(
        &mut self,
        schema: &Schema,
        rows: usize,
        bytes: usize,
        first: u64,
    ) -> Result<Option<Rows>, CollectionError> {
        let batch_rows = (bytes / self.vectors.row_bytes().max(1)).clamp(1, rows.max(1));
        let range = self.next..(self.next + batch_rows).min(self.vectors.count());
        if range.is_empty() {
            return Ok(None);
        }
        self.next = range.end;
        let ids = match &mut self.ids {
            IdSource::Numbered(start) => {
                let id = |row: u64| start.checked_add(row).map(Id::Number);
                let ids: Option<Vec<Id>> = (first..first + range.len() as u64).map(id).collect();
                Ids::from_ids(
                    IdKind::Number,
                    &ids.ok_or_else(|| file_error(&self.path, "has more rows than there are ids"))?,
                )?
            }
            IdSource::File(reader) => reader.next(range.len())?,
        };
        let field = &schema.vectors[0];
        let (mut encoded, mut values) =
            (Vec::with_capacity(range.len() * field.row_bytes()), vec![0.0; field.dim]);
        let mut reader = RowReader::new(&self.vectors, bytes);
        for row in range {
            let vector = reader.row(row)?;
            if self.vectors.element() == field.element {
                encoded.extend_from_slice(vector);
                continue;
            }
            bathyal_kernels::to_f32(self.vectors.element(), vector, &mut values);
            encode_row(field.element, &values, &mut encoded).map_err(|(at, advice)| {
                file_error(
                    &self.path,
                    format!(
                        "row {row}, component {at} is {}, which {} cannot hold: {advice}",
                        values[at], field.element
                    ),
                )
            })?;
        }
        let vectors = VectorFile::from_rows(field.element, field.dim, encoded)?;
        Rows::new(schema, ids, vec![vectors], None).map(Some).map_err(|error| file_error(&self.path, error))
    }
}
