//! Files as a stream of rows.

use super::arrow;
use super::id_file::IdReader;
use super::import::ImportOptions;
use super::json_lines::LineReader;
use super::kind::{FileKind, bad, guarded, open};
use super::table::{Shape, pieces};
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

/// Rows that Parquet decodes at once, at most.
const DECODED_ROWS: usize = 8192;
/// The path that stands for JSON lines on standard input.
pub(super) const STANDARD_INPUT: &str = "-";

/// Tables, one after the other.
type Tables = Box<dyn Iterator<Item = Result<RecordBatch, CollectionError>>>;

/// A file that is read.
pub(super) struct Source {
    pub(super) shape: Shape,
    from: Reading,
    /// Steps of the whole, for those who show progress: rows or bytes; 0 where that is not known.
    pub(super) total: u64,
}

enum Reading {
    Tables { tables: Tables, piece: Tables },
    Lines(LineReader),
    Vectors(Box<VectorSource>),
}

/// What of a file is written at once.
pub(super) enum Piece {
    Table(RecordBatch),
    Rows(Rows),
}

impl Piece {
    pub(super) fn len(&self) -> usize {
        match self {
            Piece::Table(table) => table.num_rows(),
            Piece::Rows(rows) => rows.len(),
        }
    }
}

impl Source {
    pub(super) fn open(
        path: &Path,
        schema: &Schema,
        options: &ImportOptions,
    ) -> Result<Source, CollectionError> {
        let shape = Shape {
            path: path.to_path_buf(),
            schema: schema.clone(),
            id: options.id_column.clone().unwrap_or_else(|| crate::schema::ID_COLUMN.into()),
            columns: options.columns.clone(),
        };
        if path == Path::new(STANDARD_INPUT) {
            refuse_meaningless(Path::new("standard input"), false, options)?;
            let lines =
                LineReader::new(Box::new(BufReader::new(std::io::stdin())), Path::new("standard input"));
            return Ok(Source { shape, from: Reading::Lines(lines), total: 0 });
        }
        let kind = FileKind::of(path)?;
        refuse_meaningless(path, kind == FileKind::Vectors, options)?;
        let (from, total) = match kind {
            FileKind::Parquet => tables(guarded(path, || parquet(path, &shape))?),
            FileKind::Arrow { .. } => {
                // How many rows there are nobody knows before the end.
                let (_, batches) = guarded(path, || arrow::read(path))?;
                tables((guarded_tables(path, batches), 0))
            }
            FileKind::JsonLines => {
                let file = open(path)?;
                let bytes = file.metadata().map_or(0, |found| found.len());
                (Reading::Lines(LineReader::new(Box::new(BufReader::new(file)), path)), bytes)
            }
            FileKind::Vectors => {
                let vectors = VectorSource::open(path, schema, options)?;
                let total = vectors.vectors.count() as u64;
                (Reading::Vectors(Box::new(vectors)), total)
            }
        };
        Ok(Source { shape, from, total })
    }

    /// The next rows: at most `rows`, about `bytes`; `None` at the end. `first` is the number of the first of them.
    pub(super) fn next(
        &mut self,
        rows: usize,
        bytes: usize,
        first: u64,
        same_keys: bool,
    ) -> Result<Option<Piece>, CollectionError> {
        match &mut self.from {
            Reading::Tables { tables, piece } => loop {
                if let Some(table) = piece.next().transpose()? {
                    return Ok(Some(Piece::Table(table)));
                }
                let Some(table) = tables.next().transpose()? else { return Ok(None) };
                *piece = Box::new(pieces(table, rows, bytes));
            },
            Reading::Lines(lines) => {
                Ok(lines.next(&self.shape.schema, &self.shape.id, rows, bytes, same_keys)?.map(Piece::Table))
            }
            Reading::Vectors(vectors) => {
                Ok(vectors.next(&self.shape.schema, rows, bytes, first)?.map(Piece::Rows))
            }
        }
    }

    /// How far it is of [`Source::total`], when `rows` have been read.
    pub(super) fn done(&self, rows: u64) -> u64 {
        match &self.from {
            Reading::Lines(lines) => lines.bytes_read(),
            _ => rows,
        }
    }
}

/// Refuses options that say nothing of a file of this kind: of vectors alone, or of rows with all that belongs to them.
fn refuse_meaningless(path: &Path, alone: bool, options: &ImportOptions) -> Result<(), CollectionError> {
    let ImportOptions { id_column, columns, ids, first_id, .. } = options;
    let reason = match alone {
        false if ids.is_some() => "has its ids in it; a file of ids goes with a file of vectors alone",
        false if first_id.is_some() => "has its ids in it; a first id goes with a file of vectors alone",
        true if ids.is_some() && first_id.is_some() => {
            "is to have the ids of a file, and ids from a first one on; give one of them"
        }
        true if id_column.is_some() => "holds vectors alone and no columns; leave the column of ids out",
        true if columns.is_some() => "holds vectors alone and no columns; leave the columns out",
        _ => return Ok(()),
    };
    Err(bad(path, reason))
}

fn tables((tables, rows): (Tables, u64)) -> (Reading, u64) {
    (Reading::Tables { tables, piece: Box::new(std::iter::empty()) }, rows)
}

/// The tables of a Parquet file, and its rows.
fn parquet(path: &Path, shape: &Shape) -> Result<(Tables, u64), CollectionError> {
    let failed = |source| CollectionError::Parquet { path: path.to_path_buf(), source };
    let mut builder = ParquetRecordBatchReaderBuilder::try_new(open(path)?).map_err(failed)?;
    let rows = builder.metadata().file_metadata().num_rows().max(0) as u64;
    if let Some(columns) = &shape.columns {
        let fields = shape.schema.vectors.iter().map(|field| field.name.as_str());
        let wanted = columns.iter().map(String::as_str).chain(fields);
        let wanted: Vec<&str> = wanted.chain([shape.id.as_str(), super::table::ANY_VECTOR]).collect();
        let roots = builder.parquet_schema().root_schema().get_fields().iter().enumerate();
        let roots = roots.filter(|(_, field)| wanted.contains(&field.name())).map(|(at, _)| at);
        let mask = ProjectionMask::roots(builder.parquet_schema(), roots.collect::<Vec<_>>());
        builder = builder.with_projection(mask);
    }
    let vectors: usize = shape.schema.vectors.iter().map(|field| 4 * field.dim).sum();
    let at_once = ((4 << 20) / vectors.max(1)).clamp(1, DECODED_ROWS);
    let reader = builder.with_batch_size(at_once).build().map_err(failed)?;
    Ok((guarded_tables(path, reader), rows))
}

fn guarded_tables(
    path: &Path,
    mut tables: impl Iterator<Item = Result<RecordBatch, ArrowError>> + 'static,
) -> Tables {
    let path = path.to_path_buf();
    let next = move || {
        let next = guarded(&path, || tables.next().transpose().map_err(|error| bad(&path, error)));
        next.transpose()
    };
    Box::new(std::iter::from_fn(next))
}

/// A file of vectors, with ids from elsewhere.
struct VectorSource {
    path: PathBuf,
    vectors: VectorFile,
    next: usize,
    ids: IdSource,
}

enum IdSource {
    /// Row numbers, from this one.
    From(u64),
    File(Box<IdReader>),
}

impl VectorSource {
    fn open(path: &Path, schema: &Schema, options: &ImportOptions) -> Result<VectorSource, CollectionError> {
        let field = schema.field(None).map_err(|_| {
            bad(path, "holds vectors of one field, and the collection has several; give a file with columns")
        })?;
        let field = &schema.vectors[field];
        let vectors = VectorFile::open(path)?;
        let vectors = match field.element {
            bathyal_kernels::Element::B1 => vectors.as_bits().unwrap_or(vectors),
            _ => vectors,
        };
        if vectors.dim() != field.dim {
            return Err(bad(
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
                    return Err(bad(ids, reason));
                }
                IdSource::File(Box::new(reader))
            }
            None if schema.id_kind == IdKind::Number => IdSource::From(options.first_id.unwrap_or(0)),
            None => {
                return Err(bad(
                    path,
                    "holds no ids, and those of the collection are strings: give a text file with an id on each line, too",
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
        let at_once = (bytes / self.vectors.row_bytes().max(1)).clamp(1, rows.max(1));
        let range = self.next..(self.next + at_once).min(self.vectors.count());
        if range.is_empty() {
            return Ok(None);
        }
        self.next = range.end;
        let ids = match &mut self.ids {
            IdSource::From(start) => {
                let id = |row: u64| start.checked_add(row).map(Id::Number);
                let ids: Option<Vec<Id>> = (first..first + range.len() as u64).map(id).collect();
                Ids::of(
                    IdKind::Number,
                    &ids.ok_or_else(|| bad(&self.path, "has more rows than there are ids"))?,
                )?
            }
            IdSource::File(reader) => reader.next(range.len())?,
        };
        let field = &schema.vectors[0];
        let (mut held, mut values) =
            (Vec::with_capacity(range.len() * field.row_bytes()), vec![0.0; field.dim]);
        let mut reader = RowReader::new(&self.vectors, bytes);
        for row in range {
            let vector = reader.row(row)?;
            if self.vectors.element() == field.element {
                held.extend_from_slice(vector);
                continue;
            }
            bathyal_kernels::to_f32(self.vectors.element(), vector, &mut values);
            encode_row(field.element, &values, &mut held).map_err(|(at, advice)| {
                bad(
                    &self.path,
                    format!(
                        "row {row}, component {at} is {}, which {} cannot hold: {advice}",
                        values[at], field.element
                    ),
                )
            })?;
        }
        let vectors = VectorFile::from_rows(field.element, field.dim, held)?;
        Rows::new(schema, ids, vec![vectors], None).map(Some).map_err(|error| bad(&self.path, error))
    }
}
