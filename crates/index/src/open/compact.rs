//! Compaction: builds an index again with all its changes, and replaces it.

use super::change_log::ChangeCounts;
use super::{Index, OpenOptions};
use crate::build::build_over;
use crate::build::options::{BuildOptions, BuildReport};
use crate::error::IndexError;
use crate::form::Form;
use crate::form::inserted::IndexRow;
use crate::format::ids::IdRuns;
use crate::format::manifest::Manifest;
use crate::locate::holding;
use bathyal_kernels::Element;
use bathyal_object::StoreOptions;
use bathyal_store::{Generation, Store, StoreError};
use bathyal_tier::process::give_back_memory;
use bathyal_vectors::progress::{Progress, Silent};
use bathyal_vectors::{VectorFile, bin_header_bytes};
use serde::Serialize;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Bytes of vectors that are buffered before they are written.
const WRITE_BYTES: usize = 1 << 20;
/// Bytes of the program and its stacks while the index is read.
const PROGRAM_BYTES: u64 = 28 << 20;
/// Vectors between two checks for cancellation.
const CHECK_VECTORS: u64 = 4096;

/// Options of a compaction.
#[derive(Debug, Clone, Copy, Default)]
pub struct CompactOptions {
    /// Threads; 0 means all cores.
    pub threads: usize,
    /// Memory that it may take, in bytes. `None` means no limit.
    pub memory_bytes: Option<u64>,
}

/// The report of a compaction.
#[derive(Debug, Clone, Serialize)]
pub struct Compaction {
    /// The changes that the index had.
    pub changed: ChangeCounts,
    /// The report of the build; `None` if the index had no changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build: Option<BuildReport>,
}

/// Builds the index at `path` again, with the inserted vectors and without the deleted ones, and replaces the
/// old index when the new one is complete. Ids do not change. Searches continue meanwhile; an index that is
/// open stays the old one until it is opened again. Changes have to wait. Until the end, the disk also holds
/// the new index and a copy of the vectors.
///
/// The new calibration uses vectors of the index; a calibration by given queries is not kept.
///
/// # Errors
/// [`IndexError::Parameter`] for an index that does not take changes, or whose vectors are all deleted;
/// [`IndexError::Store`] if another process changes it; otherwise as [`build`](crate::build()). The old index
/// and its changes then stay as they are.
pub fn compact(
    path: impl AsRef<Path>,
    options: &CompactOptions,
    progress: &dyn Progress,
) -> Result<Compaction, IndexError> {
    let holding = holding(path, &StoreOptions::default())?;
    compact_in(holding.store(), &holding.name, Some(holding.folder()), options, progress)
}

/// Compacts the index `name` in any store, as [`compact`] does. The vectors are collected in an unnamed file
/// in `folder`, or in memory without a folder.
///
/// # Errors
/// As [`compact`].
pub fn compact_in(
    store: &dyn Store,
    name: &str,
    folder: Option<&Path>,
    options: &CompactOptions,
    progress: &dyn Progress,
) -> Result<Compaction, IndexError> {
    let directory = store.open(name)?;
    let index = open_least(directory.as_ref(), options.memory_bytes)?;
    // The lock of the log is held until the end, so that no other process changes the index.
    let changing = index.changing()?;
    let mut writer = index.writer(changing)?;
    let log = writer.handle.take();
    drop(writer);
    let changed = index.changed();
    let Some(changes) = index.changes() else { return Ok(Compaction { changed, build: None }) };
    if changes.vectors() == 0 {
        return Err(index.stored.refusal(
            "all its vectors were deleted, and an index needs at least one: insert vectors first, or delete \
             the folder",
        ));
    }
    let (manifest, form) = (index.stored.manifest(), index.stored.form()?);
    let mut rows = CollectedRows::begin(folder, form, manifest, changes.vectors())?;
    progress.stage("collecting vectors", changes.vectors());
    let mut collect = |id: u32, row: IndexRow<'_>| {
        if u64::from(rows.ids.vectors()).is_multiple_of(CHECK_VECTORS) {
            progress.advance(rows.ids.vectors().into());
            if progress.cancelled() {
                return Err(IndexError::Cancelled);
            }
        }
        if changes.is_deleted(id) { Ok(()) } else { rows.push(id, row) }
    };
    let object = manifest.open_file(directory.as_ref(), manifest.paged_file())?;
    index.stored.family().vectors(object.as_ref(), &mut |id, row| collect(id, IndexRow::Stored(row)))?;
    changes.inserted().try_for_each(|(id, row)| collect(id, IndexRow::Inserted(row)))?;
    rows.ids.end(changes.next());
    let Some(family) = index.stored.family().rebuilding() else {
        return Err(IndexError::Internal(format!("no options to build {} again", manifest.family)));
    };
    let building = BuildOptions {
        metric: index.stored.metric(),
        threads: options.threads,
        seed: manifest.seed,
        memory_bytes: options.memory_bytes,
        overwrite: true,
        store_as: manifest.stored.map(|stored| stored.element),
        stored_before: manifest.stored_before().map_err(|reason| index.stored.damaged(reason))?,
        ..BuildOptions::of(family)
    };
    let (data, ids) = rows.end()?;
    drop((changes, index));
    give_back_memory();
    let ids = (!ids.are_places()).then_some(ids);
    let build = build_over(&data, ids.as_ref(), store, name, &building, progress)?;
    drop(log);
    Ok(Compaction { changed, build: Some(build) })
}

/// Opens an index with the least memory, since it is read only once. A larger budget would be filled with
/// pages and codes that no search uses.
fn open_least(directory: &dyn Generation, budget: Option<u64>) -> Result<Index, IndexError> {
    let open = |memory_bytes| {
        Index::open_in(directory, &OpenOptions { memory_bytes, ..OpenOptions::default() }, &Silent)
    };
    match (open(Some(0)), budget) {
        (Err(IndexError::Memory { what, needed, advice, .. }), Some(given))
            if needed + PROGRAM_BYTES > given =>
        {
            Err(IndexError::Memory { what, needed: needed + PROGRAM_BYTES, given, advice })
        }
        (Err(IndexError::Memory { needed, .. }), _) => open(Some(needed)),
        (opened, _) => opened,
    }
}

/// The vectors of the new index and their ids, while they are collected.
struct CollectedRows {
    form: Form,
    ids: IdRuns,
    /// One vector, decoded.
    values: Vec<f32>,
    dim: usize,
    storage: RowStorage,
}

/// The storage of collected vectors.
enum RowStorage {
    Memory(Vec<u8>),
    File(BufWriter<File>, PathBuf),
}

/// Returns the file name suffix for vectors of an element.
fn suffix(element: Element) -> &'static str {
    match element {
        Element::F32 => "fbin",
        Element::F16 => "f16bin",
        Element::U8 => "u8bin",
        Element::I8 => "i8bin",
        Element::Bf16 => "bf16bin",
        Element::B1 => "b1bin",
    }
}

impl CollectedRows {
    fn begin(
        folder: Option<&Path>,
        form: Form,
        manifest: &Manifest,
        vectors: u64,
    ) -> Result<CollectedRows, IndexError> {
        let storage = match folder {
            None => RowStorage::Memory(Vec::new()),
            Some(folder) => {
                // The file has no name, so nothing is left of it after a crash. The name in messages has the
                // suffix of its format.
                let name = folder.join(format!("(vectors to compact).{}", suffix(form.given())));
                let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
                let file =
                    tempfile::tempfile_in(folder).map_err(|e| StoreError::io("create the file", &name, e))?;
                let mut file = BufWriter::with_capacity(WRITE_BYTES, file);
                let head = bin_header_bytes(vectors as u32, manifest.dim);
                file.write_all(&head).map_err(|e| StoreError::io("write", &name, e))?;
                RowStorage::File(file, name)
            }
        };
        Ok(CollectedRows {
            form,
            ids: IdRuns::none(),
            values: Vec::new(),
            dim: manifest.dim as usize,
            storage,
        })
    }

    fn push(&mut self, id: u32, row: IndexRow<'_>) -> Result<(), IndexError> {
        self.ids.push(id);
        let mut given = Vec::new();
        let row = self.form.given_row(row, &mut self.values, &mut given);
        match &mut self.storage {
            RowStorage::Memory(rows) => rows.extend_from_slice(row),
            RowStorage::File(file, name) => {
                file.write_all(row).map_err(|e| StoreError::io("write", &*name, e))?
            }
        }
        Ok(())
    }

    fn end(self) -> Result<(VectorFile, IdRuns), IndexError> {
        let data = match self.storage {
            RowStorage::Memory(rows) => VectorFile::from_rows(self.form.given(), self.dim, rows)?,
            RowStorage::File(file, name) => {
                let file = file.into_inner().map_err(|e| StoreError::io("write", &name, e.into_error()))?;
                VectorFile::from_file(file, &name)?
            }
        };
        Ok((data, self.ids))
    }
}
