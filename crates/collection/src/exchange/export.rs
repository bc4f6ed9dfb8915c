//! Exports a collection to a file.

use super::kind::{FileKind, file_error};
use super::sink::{ExportSelection, Sink};
use crate::collection::Collection;
use crate::error::CollectionError;
use crate::filter::Filter;
use crate::ids::IdKind;
use crate::snapshot::Projection;
use bathyal_tier::Control;
use bathyal_vectors::progress::Progress;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Approximate bytes of vectors that are read at once.
const BATCH_BYTES: usize = 1 << 20;
/// The most rows that are read at once.
const BATCH_ROWS: usize = 4096;

/// The rows and values to export.
#[derive(Debug, Clone, Default)]
pub struct ExportOptions {
    /// Only rows that match are exported; `None` means all rows.
    pub filter: Option<Filter>,
    /// Names of the columns of metadata. `None` means all columns, or none for a file of vectors.
    pub columns: Option<Vec<String>>,
    /// Names of the vector fields; `None` means all.
    pub vectors: Option<Vec<String>>,
    /// File of the ids, for a file of vectors. `None` means a file beside it: `base.ids.npy` for `base.fbin`,
    /// or `base.ids.txt` if ids are strings.
    pub ids: Option<PathBuf>,
}

/// Result of an export.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExportReport {
    /// Number of exported rows; they are in the order of their ids.
    pub rows: u64,
    /// The file.
    pub output: PathBuf,
    /// The file of ids, if it is a separate one.
    pub ids: Option<PathBuf>,
    /// Duration in seconds.
    pub seconds: f64,
}

/// Exports the current rows of a collection to the file `output`; its ending determines the format. An
/// existing file is replaced when the new one is complete. `control` applies to the search for matching rows,
/// `progress` to the rest.
///
/// # Errors
/// [`CollectionError::Parameter`] and [`CollectionError::Filter`] for options that do not fit the schema;
/// [`CollectionError::File`] for values that the format cannot hold; [`CollectionError::Cancelled`] by
/// `progress`; damage, and errors of the system.
pub fn export(
    collection: &Collection,
    output: &Path,
    options: &ExportOptions,
    control: Control<'_>,
    progress: &dyn Progress,
) -> Result<ExportReport, CollectionError> {
    let started = Instant::now();
    let schema = collection.schema();
    let vectors_only = FileKind::from_path(output)? == FileKind::Vectors;
    if !vectors_only && options.ids.is_some() {
        return Err(file_error(output, "has the ids in it; a file of ids goes with a file of vectors alone"));
    }
    let columns = match (&options.columns, vectors_only) {
        (Some(columns), _) => columns.clone(),
        (None, true) => Vec::new(),
        (None, false) => schema.columns.iter().map(|column| column.name.clone()).collect(),
    };
    let all_fields = || schema.vectors.iter().map(|field| field.name.clone()).collect();
    let vectors: Vec<String> = options.vectors.clone().unwrap_or_else(all_fields);
    let selection = ExportSelection {
        fields: vectors.iter().map(|name| schema.field(Some(name))).collect::<Result<_, _>>()?,
        columns: columns.iter().map(|name| schema.column(name)).collect::<Result<_, _>>()?,
        schema: schema.clone(),
    };
    let row_bytes: usize = selection.fields.iter().map(|field| schema.vectors[*field].row_bytes()).sum();
    let batch_rows = (BATCH_BYTES / row_bytes.max(1)).clamp(1, BATCH_ROWS);
    let ids = options.ids.clone().unwrap_or_else(|| {
        output.with_extension(if schema.id_kind == IdKind::Number { "ids.npy" } else { "ids.txt" })
    });
    let filter = options.filter.as_ref();
    // Counting caches the matching rows for the scan, which cannot be cancelled while it evaluates the
    // filter.
    let total = collection.snapshot().count(filter, control)?;
    let mut scan = collection.scan(filter, &Projection { columns: Some(columns), vectors }, None, control)?;
    let mut sink = Sink::create(output, &ids, &selection)?;
    progress.stage("exporting", total);
    let mut rows = 0;
    while let Some(batch) = scan.next(batch_rows, control)? {
        if progress.cancelled() {
            return Err(CollectionError::Cancelled);
        }
        rows += batch.ids.len() as u64;
        sink.push(batch)?;
        progress.advance(rows);
    }
    sink.finish()?;
    let seconds = started.elapsed().as_secs_f64();
    Ok(ExportReport { rows, output: output.to_path_buf(), ids: vectors_only.then_some(ids), seconds })
}
