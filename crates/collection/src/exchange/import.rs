//! Imports a file into a collection.

use super::kind::file_error;
use super::source::{ImportSource, SourceBatch};
use super::table::take_rows;
use crate::collection::Collection;
use crate::error::CollectionError;
use crate::ids::Ids;
use crate::write::Written;
use arrow_array::RecordBatch;
use bathyal_vectors::progress::Progress;
use serde::Serialize;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Bytes of rows that are written at once, unless the memory for writes is small. Each write waits for the
/// device; cancellation is checked between two writes.
const BATCH_BYTES: u64 = 4 << 20;
/// The least bytes of rows that are written at once, even if smaller batches already count as large.
const MIN_BATCH_BYTES: u64 = 64 << 10;
/// The default for the most rows of a batch.
const BATCH_ROWS: usize = 8192;

/// The way in which the rows of a file are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ImportMode {
    /// Adds the rows; an id that exists already is an error.
    #[default]
    Add,
    /// Adds rows, and replaces those with the same ids. Of several rows of a file with the same id the last
    /// one counts.
    Upsert,
    /// Changes the columns that the file has, of the rows with its ids. Ids without a row are counted.
    Update,
}

/// Options of an import.
#[derive(Debug, Clone, Default)]
pub struct ImportOptions {
    /// The way in which the rows are written.
    pub how: ImportMode,
    /// The most rows of a batch. A batch is written completely or not at all. `None` means some megabytes.
    pub batch_rows: Option<NonZeroUsize>,
    /// The column of ids; `None` means `id`.
    pub id_column: Option<String>,
    /// The columns of metadata to take; `None` means all, which must then be in the schema.
    pub columns: Option<Vec<String>>,
    /// File with the ids of a file of vectors: `.npy` of whole numbers, or text with an id on each line.
    /// `None` means numbers from `first_id` on.
    pub ids: Option<PathBuf>,
    /// The id of the first row of a file of vectors without ids; `None` means 0.
    pub first_id: Option<u64>,
}

/// Result of an import.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ImportReport {
    /// Number of rows in the file.
    pub rows: u64,
    /// Total of the writes.
    #[serde(flatten)]
    pub written: Written,
    /// Number of batches.
    pub batches: u64,
    /// Duration in seconds.
    pub seconds: f64,
}

/// Imports the rows of the file `path` batch by batch. The path `-` means JSON lines from standard input.
///
/// # Errors
/// [`CollectionError::Imported`]. It contains the number of the first rows that were written, and the cause:
/// an invalid file, rows that do not fit the schema, [`CollectionError::Cancelled`] by `progress`, and errors
/// of writes.
pub fn import(
    collection: &Collection,
    path: &Path,
    options: &ImportOptions,
    progress: &dyn Progress,
) -> Result<ImportReport, CollectionError> {
    let started = Instant::now();
    let mut source = ImportSource::open(path, &collection.schema(), options)?;
    let rows = options.batch_rows.map_or(BATCH_ROWS, NonZeroUsize::get);
    let bytes = BATCH_BYTES.min(collection.largest_batch_bytes() / 2).max(MIN_BATCH_BYTES) as usize;
    progress.stage("writing rows", source.total);
    let mut imported = ImportReport { rows: 0, written: Written::default(), batches: 0, seconds: 0.0 };
    let import_error = |imported: &ImportReport, error: CollectionError| CollectionError::Imported {
        path: path.to_path_buf(),
        written: imported.rows,
        source: Box::new(error),
    };
    loop {
        if progress.cancelled() {
            return Err(import_error(&imported, CollectionError::Cancelled));
        }
        let update = options.how == ImportMode::Update;
        let batch = source
            .next(rows, bytes, imported.rows, update)
            .map_err(|error| import_error(&imported, error))?;
        let Some(batch) = batch else { break };
        let count = batch.len() as u64;
        let written = write(collection, &source, batch, imported.rows, options.how)
            .map_err(|error| import_error(&imported, error))?;
        imported.written = sum(imported.written, written);
        imported.rows += count;
        imported.batches += 1;
        progress.advance(source.progress(imported.rows));
    }
    imported.seconds = started.elapsed().as_secs_f64();
    Ok(imported)
}

fn sum(one: Written, other: Written) -> Written {
    Written {
        added: one.added + other.added,
        replaced: one.replaced + other.replaced,
        deleted: one.deleted + other.deleted,
        missing: one.missing + other.missing,
    }
}

/// Writes a batch. `first` is the number of its first row in the file.
fn write(
    collection: &Collection,
    source: &ImportSource,
    batch: SourceBatch,
    first: u64,
    how: ImportMode,
) -> Result<Written, CollectionError> {
    let mapping = &source.mapping;
    match (batch, how) {
        (SourceBatch::Table(table), ImportMode::Add) => collection.add(mapping.rows(&table, first)?),
        (SourceBatch::Rows(rows), ImportMode::Add) => collection.add(rows),
        (SourceBatch::Table(table), ImportMode::Upsert) => {
            let ids = mapping.ids(&table)?;
            let (table, replaced_rows) = keep_last_of_each_id(table, &ids)?;
            let mut written = collection.upsert(mapping.rows(&table, first)?)?;
            written.replaced += replaced_rows;
            Ok(written)
        }
        (SourceBatch::Rows(rows), ImportMode::Upsert) => collection.upsert(rows),
        (SourceBatch::Table(table), ImportMode::Update) => {
            let ids = mapping.ids(&table)?;
            let (table, replaced_rows) = keep_last_of_each_id(table, &ids)?;
            let metadata = mapping.metadata(&table)?;
            if metadata.num_columns() == 0 {
                return Err(file_error(
                    &mapping.path,
                    "has no columns of metadata; an update changes only these, and upsert changes vectors",
                ));
            }
            let mut written = collection.update(mapping.ids(&table)?, metadata)?;
            written.replaced += replaced_rows;
            Ok(written)
        }
        (SourceBatch::Rows(_), ImportMode::Update) => Err(file_error(
            &mapping.path,
            "holds vectors alone; an update changes only metadata, and upsert changes vectors",
        )),
    }
}

/// Removes rows that a later row with the same id replaces. Returns the table, and the number of removed
/// rows.
fn keep_last_of_each_id(table: RecordBatch, ids: &Ids) -> Result<(RecordBatch, u64), CollectionError> {
    let order = ids.order();
    let same = |pair: &[u32]| ids.compare(pair[0] as usize, ids, pair[1] as usize).is_eq();
    let mut replaced_rows: Vec<u32> =
        order.windows(2).filter(|pair| same(pair)).map(|pair| pair[0]).collect();
    if replaced_rows.is_empty() {
        return Ok((table, 0));
    }
    replaced_rows.sort_unstable();
    let kept = (0..table.num_rows() as u32).filter(|row| replaced_rows.binary_search(row).is_err()).collect();
    Ok((take_rows(&table, kept)?, replaced_rows.len() as u64))
}
