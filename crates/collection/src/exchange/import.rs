//! From files into a collection.

use super::kind::bad;
use super::source::{Piece, Source};
use super::table::taken;
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

/// Bytes of rows that are written at once, where memory for writes is not small: each time waits for the device, and between two a
/// wish to stop is looked at.
const BATCH_BYTES: u64 = 4 << 20;
/// The same where large batches begin very small.
const LEAST_BATCH_BYTES: u64 = 64 << 10;
/// Rows of a batch at most, where nobody says how many.
const BATCH_ROWS: usize = 8192;

/// What becomes of the rows of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Importing {
    /// They are added; an id that is there already is refused.
    #[default]
    Add,
    /// They take the place of those with their ids, or are added. Of rows of a file with the same id the last one counts.
    Upsert,
    /// The columns that the file has take the place of those of the rows with their ids; ids of which there is no row are counted.
    Update,
}

/// How a file is read into a collection.
#[derive(Debug, Clone, Default)]
pub struct ImportOptions {
    /// What becomes of its rows.
    pub how: Importing,
    /// Rows that are written at once; each such batch is there whole or not at all. `None` means some megabytes.
    pub batch_rows: Option<NonZeroUsize>,
    /// The column that has the ids; `None` means `id`.
    pub id_column: Option<String>,
    /// The columns of metadata that are taken; `None` means all, which the collection has to have then.
    pub columns: Option<Vec<String>>,
    /// The ids of a file of vectors: `.npy` of whole numbers, or text with an id on each line. `None` means numbers from
    /// `first_id` on.
    pub ids: Option<PathBuf>,
    /// The id of the first row of a file of vectors without ids; `None` means 0.
    pub first_id: Option<u64>,
}

/// What an import came to.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Imported {
    /// Rows of the file.
    pub rows: u64,
    /// What became of them.
    #[serde(flatten)]
    pub written: Written,
    /// Batches in which they were written.
    pub batches: u64,
    /// Seconds it took.
    pub seconds: f64,
}

/// Writes the rows of the file `path`, or of JSON lines from standard input where it is `-`, to a collection, batch by batch.
///
/// # Errors
/// [`CollectionError::Imported`], which says how many of the first rows were written, and why no more: a file that is not what it
/// should be, rows that do not fit the schema, [`CollectionError::Cancelled`] by `progress`, and whatever writes fail with.
pub fn import(
    collection: &Collection,
    path: &Path,
    options: &ImportOptions,
    progress: &dyn Progress,
) -> Result<Imported, CollectionError> {
    let started = Instant::now();
    let mut source = Source::open(path, &collection.schema(), options)?;
    let rows = options.batch_rows.map_or(BATCH_ROWS, NonZeroUsize::get);
    let bytes = BATCH_BYTES.min(collection.largest_batch_bytes() / 2).max(LEAST_BATCH_BYTES) as usize;
    progress.stage("writing rows", source.total);
    let mut done = Imported { rows: 0, written: Written::default(), batches: 0, seconds: 0.0 };
    let stopped = |done: &Imported, error: CollectionError| CollectionError::Imported {
        path: path.to_path_buf(),
        written: done.rows,
        source: Box::new(error),
    };
    loop {
        if progress.cancelled() {
            return Err(stopped(&done, CollectionError::Cancelled));
        }
        let update = options.how == Importing::Update;
        let piece = source.next(rows, bytes, done.rows, update).map_err(|error| stopped(&done, error))?;
        let Some(piece) = piece else { break };
        let count = piece.len() as u64;
        let written = write(collection, &source, piece, done.rows, options.how)
            .map_err(|error| stopped(&done, error))?;
        done.written = sum(done.written, written);
        done.rows += count;
        done.batches += 1;
        progress.advance(source.done(done.rows));
    }
    done.seconds = started.elapsed().as_secs_f64();
    Ok(done)
}

fn sum(one: Written, other: Written) -> Written {
    Written {
        added: one.added + other.added,
        replaced: one.replaced + other.replaced,
        deleted: one.deleted + other.deleted,
        missing: one.missing + other.missing,
    }
}

/// Writes a batch whose first row is row `first` of the file.
fn write(
    collection: &Collection,
    source: &Source,
    piece: Piece,
    first: u64,
    how: Importing,
) -> Result<Written, CollectionError> {
    let shape = &source.shape;
    match (piece, how) {
        (Piece::Table(table), Importing::Add) => collection.add(shape.rows(&table, first)?),
        (Piece::Rows(rows), Importing::Add) => collection.add(rows),
        (Piece::Table(table), Importing::Upsert) => {
            let ids = shape.ids(&table)?;
            let (table, before) = last_of_each(table, &ids)?;
            let mut written = collection.upsert(shape.rows(&table, first)?)?;
            written.replaced += before;
            Ok(written)
        }
        (Piece::Rows(rows), Importing::Upsert) => collection.upsert(rows),
        (Piece::Table(table), Importing::Update) => {
            let ids = shape.ids(&table)?;
            let (table, before) = last_of_each(table, &ids)?;
            let metadata = shape.metadata(&table)?;
            if metadata.num_columns() == 0 {
                return Err(bad(
                    &shape.path,
                    "has no columns of metadata; an update changes these, and vectors with upsert",
                ));
            }
            let mut written = collection.update(shape.ids(&table)?, metadata)?;
            written.replaced += before;
            Ok(written)
        }
        (Piece::Rows(_), Importing::Update) => {
            Err(bad(&shape.path, "holds vectors alone; an update changes metadata, and vectors with upsert"))
        }
    }
}

/// A table without the rows after which another one has the same id, and how many those are.
fn last_of_each(table: RecordBatch, ids: &Ids) -> Result<(RecordBatch, u64), CollectionError> {
    let order = ids.order();
    let same = |two: &[u32]| ids.compare(two[0] as usize, ids, two[1] as usize).is_eq();
    let mut before: Vec<u32> = order.windows(2).filter(|two| same(two)).map(|two| two[0]).collect();
    if before.is_empty() {
        return Ok((table, 0));
    }
    before.sort_unstable();
    let kept = (0..table.num_rows() as u32).filter(|row| before.binary_search(row).is_err()).collect();
    Ok((taken(&table, kept)?, before.len() as u64))
}
