//! Salvages the undamaged rows of a damaged segment. A row consists of an id, which is in two files, its
//! columns, and the vector of each field. Only data with valid checksums is used, so that no row gets the
//! content of another one.

use super::Segment;
use super::block::{BLOCK_BYTES, IdBlock};
use super::columns::Columns;
use super::id_map::IdCollector;
use super::manifest::{IDS_NAME, Manifest, ROWS_NAME};
use crate::bits::RowBits;
use crate::error::CollectionError;
use crate::ids::{Id, Ids};
use crate::location::Part;
use arrow_array::{RecordBatch, RecordBatchOptions, UInt32Array};
use arrow_select::take::take_record_batch;
use bathyal_index::format::manifest::Manifest as IndexManifest;
use bathyal_index::{IndexError, SalvageReport, salvage_vectors};
use bathyal_store::{Generation, Object, StoreError};
use bathyal_vectors::progress::Progress;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::Range;

/// Blocks of ids that are read at once.
const BLOCKS_AT_ONCE: u64 = 256;
/// Rows that are read at once if their ids are only in the file of columns.
const ROWS_AT_ONCE: usize = 4096;
/// Bytes of vectors that are buffered in memory until their rows are written; more go into a temporary file.
const BUFFER_BYTES: u64 = 256 << 20;
/// The most faults that are listed; further ones are only counted.
const MAX_LISTED: usize = 100;

/// The faults of a damaged collection, in sentences.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// The first faults.
    pub(crate) first: Vec<String>,
    /// Number of all faults.
    pub(crate) count: u64,
}

impl Faults {
    pub(crate) fn add(&mut self, fault: String) {
        // Consecutive rows often meet the same fault.
        if self.first.last() == Some(&fault) {
            return;
        }
        self.count += 1;
        if self.first.len() < MAX_LISTED {
            self.first.push(fault);
        }
    }

    /// Adds an error if it means that data is lost.
    ///
    /// # Errors
    /// All other errors.
    pub(crate) fn record(&mut self, error: CollectionError) -> Result<(), CollectionError> {
        if !error.is_loss() {
            return Err(error);
        }
        self.add(error.to_string());
        Ok(())
    }

    /// Returns the value, or `None` if it is lost.
    fn unless_lost<T>(&mut self, outcome: Result<T, CollectionError>) -> Result<Option<T>, CollectionError> {
        match outcome {
            Ok(value) => Ok(Some(value)),
            Err(error) => self.record(error).map(|()| None),
        }
    }
}

/// Some live rows of a salvaged segment.
pub(crate) enum SalvagedRows {
    /// Undamaged rows: ids in ascending order, vectors of each field (`rows x dim`), and columns.
    Complete(Ids, Vec<Vec<u8>>, RecordBatch),
    /// Lost rows with known ids.
    Lost(Ids),
    /// Lost rows with unknown ids: their number, and the ids around them.
    Unknown { rows: u64, after: Option<Id>, before: Option<Id> },
}

type OnRows<'a> = dyn FnMut(SalvagedRows) -> Result<(), CollectionError> + 'a;

/// The undamaged vectors of a field, by row.
struct FieldVectors {
    found: RowBits,
    row_bytes: usize,
    storage: VectorStorage,
}

enum VectorStorage {
    Memory(Vec<u8>),
    File(File),
}

impl FieldVectors {
    fn new(rows: u32, row_bytes: usize) -> Result<FieldVectors, CollectionError> {
        let bytes = u64::from(rows) * row_bytes as u64;
        let storage = match bytes <= BUFFER_BYTES {
            true => VectorStorage::Memory(vec![0; bytes as usize]),
            false => VectorStorage::File(tempfile::tempfile().map_err(|source| temporary("create", source))?),
        };
        Ok(FieldVectors { found: RowBits::default(), row_bytes, storage })
    }

    fn put(&mut self, row: u32, vector: &[u8]) -> Result<(), StoreError> {
        let at = u64::from(row) * self.row_bytes as u64;
        match &mut self.storage {
            VectorStorage::Memory(bytes) => bytes[at as usize..][..self.row_bytes].copy_from_slice(vector),
            VectorStorage::File(file) => {
                let written = file.seek(SeekFrom::Start(at)).and_then(|_| file.write_all(vector));
                written.map_err(|source| temporary("write", source))?;
            }
        }
        self.found.add(row);
        Ok(())
    }

    /// Appends the vector of a row to `to`. The vector must have been found.
    fn append(&mut self, row: u32, to: &mut Vec<u8>) -> Result<(), StoreError> {
        let at = u64::from(row) * self.row_bytes as u64;
        match &mut self.storage {
            VectorStorage::Memory(bytes) => to.extend_from_slice(&bytes[at as usize..][..self.row_bytes]),
            VectorStorage::File(file) => {
                let begin = to.len();
                to.resize(begin + self.row_bytes, 0);
                let read = file.seek(SeekFrom::Start(at)).and_then(|_| file.read_exact(&mut to[begin..]));
                read.map_err(|source| temporary("read", source))?;
            }
        }
        Ok(())
    }
}

fn temporary(operation: &'static str, source: std::io::Error) -> StoreError {
    StoreError::io(operation, std::env::temp_dir().join("(a temporary file)"), source)
}

/// State of a salvage.
struct SegmentSalvage<'a> {
    segment: &'a Segment,
    deleted: &'a RowBits,
    columns: Option<Columns>,
    vectors: Vec<FieldVectors>,
    faults: &'a mut Faults,
    /// The largest id so far.
    last: Option<Id>,
    /// Number of rows with unknown ids since `last`.
    unknown: u64,
}

impl Segment {
    /// Calls `each` with all rows that are not `deleted`, in order: undamaged rows and lost ones. Adds the
    /// damage to `faults`.
    ///
    /// # Errors
    /// Errors of `each`; [`CollectionError::LaterVersion`]; [`CollectionError::Cancelled`];
    /// [`CollectionError::Store`] if the store does not answer.
    pub(crate) fn salvage(
        &self,
        collection: &str,
        deleted: &RowBits,
        progress: &dyn Progress,
        faults: &mut Faults,
        on_rows: &mut OnRows<'_>,
    ) -> Result<(), CollectionError> {
        let name = Part::Segment(self.entry.name.clone(), None).name();
        let opened = self.place.open_damaged(&name, &[IDS_NAME, ROWS_NAME]).map_err(CollectionError::from);
        let Some(generation) = faults.unless_lost(opened)? else {
            let rows = u64::from(self.rows()) - u64::from(deleted.count());
            return on_rows(SalvagedRows::Unknown { rows, after: None, before: None });
        };
        let read = Manifest::load(&*generation, &self.place, &self.schema, &self.entry);
        let manifest = match faults.unless_lost(read)? {
            Some(manifest) => manifest,
            None => Manifest::substitute(&*generation, collection, &self.schema, &self.entry)?,
        };
        let mut vectors = Vec::with_capacity(self.schema.vectors.len());
        for (field, entry) in manifest.vectors.iter().enumerate() {
            vectors.push(self.salvage_field(field, &entry.identity, progress, faults)?);
        }
        let remote = self.place.is_remote();
        let columns = Columns::salvage(&*generation, &manifest, self.schema.with_ids(), remote);
        let columns = faults.unless_lost(columns)?;
        let mut salvage =
            SegmentSalvage { segment: self, deleted, columns, vectors, faults, last: None, unknown: 0 };
        progress.stage("salvaging rows", u64::from(self.rows()));
        salvage.run(&*generation, &manifest, progress, on_rows)
    }

    /// Returns the undamaged vectors of a field, from the index with this identity. An empty identity means
    /// that it is unknown.
    fn salvage_field(
        &self,
        field: usize,
        identity: &str,
        progress: &dyn Progress,
        faults: &mut Faults,
    ) -> Result<FieldVectors, CollectionError> {
        let mut found = FieldVectors::new(self.rows(), self.schema.vectors[field].row_bytes())?;
        let salvaged = self.read_vectors(field, identity, progress, &mut found);
        if let Some(SalvageReport { lost_units, faults: first }) = faults.unless_lost(salvaged)? {
            faults.count += lost_units - first.len() as u64;
            first.into_iter().for_each(|fault| faults.add(fault));
        }
        Ok(found)
    }

    fn read_vectors(
        &self,
        field: usize,
        identity: &str,
        progress: &dyn Progress,
        found: &mut FieldVectors,
    ) -> Result<SalvageReport, CollectionError> {
        let name = Part::Segment(self.entry.name.clone(), Some(field)).name();
        let generation = self.place.store().open(&name)?;
        let manifest = IndexManifest::load(&*generation)?;
        let expected = &self.schema.vectors[field];
        let found_identity = manifest.identity.as_deref().unwrap_or("none");
        let same = manifest.dim as usize == expected.dim
            && manifest.element() == Ok(expected.element)
            && manifest.metric() == Ok(expected.metric)
            && manifest.vectors == u64::from(self.rows());
        if !same || !identity.is_empty() && found_identity != identity {
            let reason = "this index was not built for this segment";
            return Err(CollectionError::damaged(generation.address(), "the manifest", reason));
        }
        let (rows, row_bytes) = (self.rows(), found.row_bytes);
        let salvaged = salvage_vectors(&*generation, progress, &mut |id, vector| {
            if id < rows && vector.len() == row_bytes {
                found.put(id, vector).map_err(IndexError::from)?;
            }
            Ok(())
        });
        Ok(salvaged?)
    }
}

impl SegmentSalvage<'_> {
    fn run(
        &mut self,
        generation: &dyn Generation,
        manifest: &Manifest,
        progress: &dyn Progress,
        on_rows: &mut OnRows<'_>,
    ) -> Result<(), CollectionError> {
        let object = generation.get(IDS_NAME).map_err(CollectionError::from);
        let mut next = 0;
        if let Some(object) = self.faults.unless_lost(object)? {
            let blocks = object.len() / BLOCK_BYTES as u64;
            for first in (0..blocks).step_by(BLOCKS_AT_ONCE as usize) {
                if progress.cancelled() {
                    return Err(CollectionError::Cancelled);
                }
                let blocks = first..blocks.min(first + BLOCKS_AT_ONCE);
                for (number, bytes) in read_blocks(&*object, blocks)? {
                    let Some((rows, ids)) = self.ids_of(manifest, number, &bytes, next) else { continue };
                    self.rows_without_ids(next..rows.start, on_rows)?;
                    self.rows_with_ids(rows.clone(), &ids, on_rows)?;
                    next = rows.end;
                }
                progress.advance(u64::from(next));
            }
        }
        self.rows_without_ids(next..self.segment.rows(), on_rows)?;
        self.flush(None, on_rows)
    }

    /// Returns the rows of a block and their ids, if the block is undamaged.
    fn ids_of(&self, manifest: &Manifest, number: u64, bytes: &[u8], next: u32) -> Option<(Range<u32>, Ids)> {
        let kind = self.segment.schema.id_kind;
        let block = IdBlock::read(kind, manifest.identity(), number, bytes).ok()?;
        let end = block.first_row().checked_add(block.count() as u32)?;
        let rows = block.first_row()..end;
        if rows.start < next || rows.end > self.segment.rows() {
            return None;
        }
        let mut collector = IdCollector::new(kind, block.count());
        (0..block.count()).try_for_each(|at| collector.push(&block, at)).ok()?;
        Some((rows, collector.finish()))
    }

    /// Handles rows whose ids are not in the file of ids; the file of columns may have them.
    fn rows_without_ids(
        &mut self,
        rows: Range<u32>,
        on_rows: &mut OnRows<'_>,
    ) -> Result<(), CollectionError> {
        if rows.is_empty() {
            return Ok(());
        }
        let (first, last) = (rows.start, rows.end - 1);
        let name = Part::Segment(self.segment.entry.name.clone(), None).name();
        let path = self.segment.place.path().join(name).join(IDS_NAME);
        self.faults.add(format!("{}: the ids of rows {first} to {last} are damaged", path.display()));
        for start in rows.clone().step_by(ROWS_AT_ONCE) {
            let range = start..rows.end.min(start + ROWS_AT_ONCE as u32);
            let mut parts = Vec::new();
            let columns = self.columns.take();
            let read = match &columns {
                None => {
                    parts.push((range, None));
                    Ok(())
                }
                Some(columns) => columns.read_ranges(range, &[0], &mut |rows, batch| {
                    parts.push((rows, self.faults.unless_lost(batch)?));
                    Ok(())
                }),
            };
            self.columns = columns;
            read?;
            for (rows, batch) in parts {
                let ids = batch.map(|batch| Ids::from_array(self.segment.schema.id_kind, batch.column(0)));
                match ids.transpose().ok().flatten() {
                    Some(ids) => self.rows_with_ids(rows, &ids, on_rows)?,
                    None => self.unknown += rows.filter(|row| !self.deleted.has(*row)).count() as u64,
                }
            }
        }
        Ok(())
    }

    /// Handles rows whose ids are known.
    fn rows_with_ids(
        &mut self,
        rows: Range<u32>,
        ids: &Ids,
        on_rows: &mut OnRows<'_>,
    ) -> Result<(), CollectionError> {
        self.flush(Some(ids.get(0)), on_rows)?;
        self.last = Some(ids.get(ids.len() - 1));
        let schema = self.segment.schema.clone();
        let mut parts = Vec::new();
        if schema.columns.is_empty() {
            let options = RecordBatchOptions::new().with_row_count(Some(ids.len()));
            let none = RecordBatch::try_new_with_options(schema.metadata(), Vec::new(), &options)?;
            parts.push((rows.clone(), Some(none)));
        } else if let Some(columns) = self.columns.take() {
            let all: Vec<usize> = (1..=schema.columns.len()).collect();
            let read = columns.read_ranges(rows.clone(), &all, &mut |rows, batch| {
                parts.push((rows, self.faults.unless_lost(batch)?));
                Ok(())
            });
            self.columns = Some(columns);
            read?;
        } else {
            parts.push((rows.clone(), None));
        }
        for (part, batch) in parts {
            let first = (part.start - rows.start) as usize;
            self.emit(part.clone(), &ids.slice(first, part.len()), batch, on_rows)?;
        }
        Ok(())
    }

    /// Passes rows with known ids to `each`.
    fn emit(
        &mut self,
        rows: Range<u32>,
        ids: &Ids,
        columns: Option<RecordBatch>,
        on_rows: &mut OnRows<'_>,
    ) -> Result<(), CollectionError> {
        let (mut complete, mut lost) = (Vec::new(), Vec::new());
        for (position, row) in (0..).zip(rows.clone()).filter(|(_, row)| !self.deleted.has(*row)) {
            let found = columns.is_some() && self.vectors.iter().all(|field| field.found.has(row));
            if found { complete.push(position) } else { lost.push(position) }
        }
        if let Some(columns) = columns.filter(|_| !complete.is_empty()) {
            let mut vectors = vec![Vec::new(); self.vectors.len()];
            for (field, to) in self.vectors.iter_mut().zip(&mut vectors) {
                complete.iter().try_for_each(|position| field.append(rows.start + position, to))?;
            }
            let batch = take_record_batch(&columns, &UInt32Array::from(complete.clone()))?;
            // The schema in the file has additional metadata.
            let options = RecordBatchOptions::new().with_row_count(Some(complete.len()));
            let metadata = self.segment.schema.metadata();
            let batch = RecordBatch::try_new_with_options(metadata, batch.columns().to_vec(), &options)?;
            on_rows(SalvagedRows::Complete(ids.take(&complete)?, vectors, batch))?;
        }
        if lost.is_empty() { Ok(()) } else { on_rows(SalvagedRows::Lost(ids.take(&lost)?)) }
    }

    /// Passes the number of rows with unknown ids before the id `before` to `each`.
    fn flush(&mut self, before: Option<Id>, on_rows: &mut OnRows<'_>) -> Result<(), CollectionError> {
        match std::mem::take(&mut self.unknown) {
            0 => Ok(()),
            rows => on_rows(SalvagedRows::Unknown { rows, after: self.last.clone(), before }),
        }
    }
}

/// Reads blocks, each with its number; unreadable blocks are left out.
fn read_blocks(object: &dyn Object, blocks: Range<u64>) -> Result<Vec<(u64, Vec<u8>)>, CollectionError> {
    let size = BLOCK_BYTES as u64;
    let mut all = vec![0; ((blocks.end - blocks.start) * size) as usize];
    match object.read_at(blocks.start * size, &mut all) {
        Ok(()) => return Ok(blocks.zip(all.chunks(BLOCK_BYTES).map(<[u8]>::to_vec)).collect()),
        Err(error) if error.is_loss() => {}
        Err(error) => return Err(error.into()),
    }
    let mut read = Vec::new();
    for number in blocks {
        let mut block = vec![0; BLOCK_BYTES];
        match object.read_at(number * size, &mut block) {
            Ok(()) => read.push((number, block)),
            Err(error) if error.is_loss() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(read)
}
