//! Compaction: the index built again with all that was changed, in its own place.

use super::change::ChangeCounts;
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

/// Bytes of vectors that are gathered before they are written.
const WRITE_BYTES: usize = 1 << 20;
/// The program and its stacks, while the index is read.
const PROGRAM_BYTES: u64 = 28 << 20;
/// Vectors between two looks at cancellation.
const CHECK_VECTORS: u64 = 4096;

/// How to compact an index.
#[derive(Debug, Clone, Copy, Default)]
pub struct CompactOptions {
    /// Threads; 0 means all cores.
    pub threads: usize,
    /// Memory that it may take, in bytes. `None` means no limit.
    pub memory_bytes: Option<u64>,
}

/// What a compaction did.
#[derive(Debug, Clone, Serialize)]
pub struct Compaction {
    /// How far the index had changed.
    pub changed: ChangeCounts,
    /// What was built; `None` where nothing had changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build: Option<BuildReport>,
}

/// Builds the index at `path` again, with the vectors that were inserted and without those that were deleted, and puts it in the
/// place of the old one when it is complete. Ids stay. Searches go on meanwhile, in the old one until they open it again; changes
/// have to wait. Takes the room of the new index and of the vectors on the disk until it is done.
///
/// The calibration is made anew by vectors of the index; one by given queries is not kept.
///
/// # Errors
/// [`IndexError::Parameter`] for an index that does not change, or of which everything was deleted; [`IndexError::Store`] if
/// another process changes it; otherwise as [`build`](crate::build()). The old index and its changes stay as they are then.
pub fn compact(
    path: impl AsRef<Path>,
    options: &CompactOptions,
    progress: &dyn Progress,
) -> Result<Compaction, IndexError> {
    let holding = holding(path, &StoreOptions::default())?;
    compact_in(holding.store(), &holding.name, Some(holding.folder()), options, progress)
}

/// The same of the index `name` in any store. The vectors lie in a file without a name in `folder` meanwhile, or in memory
/// if there is none.
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
    // Whoever compacts is the only one that changes it until the end.
    let changing = index.changing()?;
    let mut writer = index.writer(changing)?;
    let log = writer.handle.take();
    drop(writer);
    let changed = index.changed();
    let Some(changes) = index.changes() else { return Ok(Compaction { changed, build: None }) };
    if changes.vectors() == 0 {
        return Err(IndexError::Parameter(format!(
            "{}: all its vectors were deleted, and there is no index of none: insert vectors first, or delete the folder",
            index.directory.display()
        )));
    }
    let manifest = &index.manifest;
    let wrong = |reason| IndexError::damaged(&index.directory, "the manifest", reason);
    let form = Form::from_manifest(manifest).map_err(wrong)?;
    let mut rows = Rows::begin(folder, form, manifest, changes.vectors())?;
    progress.stage("collecting vectors", changes.vectors());
    let mut each = |id: u32, row: IndexRow<'_>| {
        if u64::from(rows.ids.vectors()).is_multiple_of(CHECK_VECTORS) {
            progress.advance(rows.ids.vectors().into());
            if progress.cancelled() {
                return Err(IndexError::Cancelled);
            }
        }
        if changes.is_deleted(id) { Ok(()) } else { rows.push(id, row) }
    };
    let object = manifest.open_file(directory.as_ref(), manifest.paged_file())?;
    index.stored.vectors(object.as_ref(), &mut |id, row| each(id, IndexRow::Stored(row)))?;
    changes.inserted().try_for_each(|(id, row)| each(id, IndexRow::Inserted(row)))?;
    rows.ids.end(changes.next());
    let Some(family) = index.stored.rebuilding() else {
        return Err(IndexError::Internal(format!("no options to build {} again", manifest.family)));
    };
    let building = BuildOptions {
        metric: index.metric,
        threads: options.threads,
        seed: manifest.seed,
        memory_bytes: options.memory_bytes,
        overwrite: true,
        store_as: manifest.stored.map(|stored| stored.element),
        stored_before: manifest.stored_before().map_err(wrong)?,
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

/// Opens an index that is read once, from its beginning to its end, with the least memory: what else a budget allows it would
/// fill with pages and codes that nobody searches.
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

/// The vectors of the new index and their ids, as they are collected.
struct Rows {
    form: Form,
    ids: IdRuns,
    /// One vector, decoded.
    values: Vec<f32>,
    dim: usize,
    to: Collected,
}

/// Where they are.
enum Collected {
    Memory(Vec<u8>),
    File(BufWriter<File>, PathBuf),
}

/// The suffix of files of an element's vectors.
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

impl Rows {
    fn begin(
        folder: Option<&Path>,
        form: Form,
        manifest: &Manifest,
        vectors: u64,
    ) -> Result<Rows, IndexError> {
        let to = match folder {
            None => Collected::Memory(Vec::new()),
            Some(folder) => {
                // It has no name, so nothing is left of it whatever happens. The one in messages says its format, too.
                let name = folder.join(format!("(vectors to compact).{}", suffix(form.given())));
                let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
                let file =
                    tempfile::tempfile_in(folder).map_err(|e| StoreError::io("create the file", &name, e))?;
                let mut file = BufWriter::with_capacity(WRITE_BYTES, file);
                let head = bin_header_bytes(vectors as u32, manifest.dim);
                file.write_all(&head).map_err(|e| StoreError::io("write", &name, e))?;
                Collected::File(file, name)
            }
        };
        Ok(Rows { form, ids: IdRuns::none(), values: Vec::new(), dim: manifest.dim as usize, to })
    }

    fn push(&mut self, id: u32, row: IndexRow<'_>) -> Result<(), IndexError> {
        self.ids.push(id);
        let mut given = Vec::new();
        let row = self.form.given_row(row, &mut self.values, &mut given);
        match &mut self.to {
            Collected::Memory(rows) => rows.extend_from_slice(row),
            Collected::File(file, name) => {
                file.write_all(row).map_err(|e| StoreError::io("write", &*name, e))?
            }
        }
        Ok(())
    }

    fn end(self) -> Result<(VectorFile, IdRuns), IndexError> {
        let data = match self.to {
            Collected::Memory(rows) => VectorFile::from_rows(self.form.given(), self.dim, rows)?,
            Collected::File(file, name) => {
                let file = file.into_inner().map_err(|e| StoreError::io("write", &name, e.into_error()))?;
                VectorFile::from_file(file, &name)?
            }
        };
        Ok((data, self.ids))
    }
}
