//! From a collection into files.

use super::kind::{FileKind, bad};
use super::sink::{Shown, Sink};
use crate::collection::Collection;
use crate::error::CollectionError;
use crate::filter::Filter;
use crate::ids::IdKind;
use crate::snapshot::Fetch;
use bathyal_tier::Control;
use bathyal_vectors::progress::Progress;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Bytes of vectors that are read at once, about, and rows at most.
const BATCH_BYTES: usize = 1 << 20;
const BATCH_ROWS: usize = 4096;

/// What is exported.
#[derive(Debug, Clone, Default)]
pub struct ExportOptions {
    /// Which rows; `None` means all.
    pub filter: Option<Filter>,
    /// The columns of metadata, by name; `None` means all, or none to a file of vectors alone.
    pub columns: Option<Vec<String>>,
    /// The fields of vectors, by name; `None` means all.
    pub vectors: Option<Vec<String>>,
    /// Where the ids go from a file of vectors alone; `None` means beside it: `base.fbin` has `base.ids.npy`, or `base.ids.txt` for
    /// ids that are strings.
    pub ids: Option<PathBuf>,
}

/// What an export came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Exported {
    /// Rows that were written, in the order of their ids.
    pub rows: u64,
    /// The file.
    pub output: PathBuf,
    /// The file of ids, where they are not in the same.
    pub ids: Option<PathBuf>,
    /// Seconds it took.
    pub seconds: f64,
}

/// Writes the rows of a collection, as they are now, to the file `output`, whose ending says what it is; what was there is replaced
/// when all is written. `control` ends the search for the rows that match, `progress` the rest.
///
/// # Errors
/// [`CollectionError::Parameter`] and [`CollectionError::Filter`] for what does not fit the schema; [`CollectionError::File`] for what
/// the file cannot hold; [`CollectionError::Cancelled`] by `progress`; damage, and what the system refuses.
pub fn export(
    collection: &Collection,
    output: &Path,
    options: &ExportOptions,
    control: Control<'_>,
    progress: &dyn Progress,
) -> Result<Exported, CollectionError> {
    let started = Instant::now();
    let schema = collection.schema();
    let alone = FileKind::of(output)? == FileKind::Vectors;
    if !alone && options.ids.is_some() {
        return Err(bad(output, "has the ids in it; a file of ids goes with a file of vectors alone"));
    }
    let columns = match (&options.columns, alone) {
        (Some(columns), _) => columns.clone(),
        (None, true) => Vec::new(),
        (None, false) => schema.columns.iter().map(|column| column.name.clone()).collect(),
    };
    let all = || schema.vectors.iter().map(|field| field.name.clone()).collect();
    let vectors: Vec<String> = options.vectors.clone().unwrap_or_else(all);
    let shown = Shown {
        fields: vectors.iter().map(|name| schema.field(Some(name))).collect::<Result<_, _>>()?,
        columns: columns.iter().map(|name| schema.column(name)).collect::<Result<_, _>>()?,
        schema: schema.clone(),
    };
    let row_bytes: usize = shown.fields.iter().map(|field| schema.vectors[*field].row_bytes()).sum();
    let at_once = (BATCH_BYTES / row_bytes.max(1)).clamp(1, BATCH_ROWS);
    let ids = options.ids.clone().unwrap_or_else(|| {
        output.with_extension(if schema.id_kind == IdKind::Number { "ids.npy" } else { "ids.txt" })
    });
    let filter = options.filter.as_ref();
    // Which rows match is kept for the scan, which cannot be ended while it looks for them.
    let total = collection.snapshot().count(filter, control)?;
    let mut scan = collection.scan(filter, &Fetch { columns: Some(columns), vectors }, None, control)?;
    let mut sink = Sink::create(output, &ids, &shown)?;
    progress.stage("exporting", total);
    let mut rows = 0;
    while let Some(some) = scan.next(at_once, control)? {
        if progress.cancelled() {
            return Err(CollectionError::Cancelled);
        }
        rows += some.ids.len() as u64;
        sink.push(some)?;
        progress.advance(rows);
    }
    sink.finish()?;
    let seconds = started.elapsed().as_secs_f64();
    Ok(Exported { rows, output: output.to_path_buf(), ids: alone.then_some(ids), seconds })
}
