//! What of a damaged segment is whole, row by row: an id, which is in two files, the columns, and the vector of each field. Nothing is
//! taken whose checksum is wrong, so that no row comes back as another one.

use super::Segment;
use super::block::{BLOCK_BYTES, Block};
use super::columns::Columns;
use super::id_map::Gathered;
use super::manifest::{IDS_NAME, Manifest, ROWS_NAME};
use crate::bits::RowBits;
use crate::error::CollectionError;
use crate::ids::{Id, Ids};
use crate::place::Part;
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
/// Rows whose ids are in the file of columns alone that are looked at together.
const ROWS_AT_ONCE: usize = 4096;
/// Bytes of vectors that are held in memory until their rows are written; more go into a temporary file.
const HELD_BYTES: u64 = 256 << 20;
/// Sentences that are kept; the others are counted.
const TOLD: usize = 100;

/// What is wrong, in sentences.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// The first of them.
    pub(crate) first: Vec<String>,
    /// How many there are.
    pub(crate) count: u64,
}

impl Faults {
    pub(crate) fn add(&mut self, fault: String) {
        // One place is met by all that lies there.
        if self.first.last() == Some(&fault) {
            return;
        }
        self.count += 1;
        if self.first.len() < TOLD {
            self.first.push(fault);
        }
    }

    /// Takes an error that says that something is lost.
    ///
    /// # Errors
    /// The error, if it says something else.
    pub(crate) fn take(&mut self, error: CollectionError) -> Result<(), CollectionError> {
        if !error.is_loss() {
            return Err(error);
        }
        self.add(error.to_string());
        Ok(())
    }

    /// The value, or `None` where it is lost.
    fn unless_lost<T>(&mut self, outcome: Result<T, CollectionError>) -> Result<Option<T>, CollectionError> {
        match outcome {
            Ok(value) => Ok(Some(value)),
            Err(error) => self.take(error).map(|()| None),
        }
    }
}

/// Some rows of a segment that are not deleted.
pub(crate) enum Piece {
    /// They are whole: ids that rise, the vectors of each field, columns.
    Whole(Ids, Vec<Vec<u8>>, RecordBatch),
    /// They are lost, but for their ids.
    Lost(Ids),
    /// They are lost: how many, between which ids.
    Unknown { rows: u64, after: Option<Id>, before: Option<Id> },
}

type Each<'a> = dyn FnMut(Piece) -> Result<(), CollectionError> + 'a;

/// Vectors of a field by row, as far as they are found.
struct Found {
    found: RowBits,
    row_bytes: usize,
    held: Held,
}

enum Held {
    Memory(Vec<u8>),
    File(File),
}

impl Found {
    fn new(rows: u32, row_bytes: usize) -> Result<Found, CollectionError> {
        let bytes = u64::from(rows) * row_bytes as u64;
        let held = match bytes <= HELD_BYTES {
            true => Held::Memory(vec![0; bytes as usize]),
            false => Held::File(tempfile::tempfile().map_err(|source| temporary("create", source))?),
        };
        Ok(Found { found: RowBits::default(), row_bytes, held })
    }

    fn put(&mut self, row: u32, vector: &[u8]) -> Result<(), StoreError> {
        let at = u64::from(row) * self.row_bytes as u64;
        match &mut self.held {
            Held::Memory(bytes) => bytes[at as usize..][..self.row_bytes].copy_from_slice(vector),
            Held::File(file) => {
                let written = file.seek(SeekFrom::Start(at)).and_then(|_| file.write_all(vector));
                written.map_err(|source| temporary("write", source))?;
            }
        }
        self.found.add(row);
        Ok(())
    }

    /// Appends the vector of a row that was found.
    fn append(&mut self, row: u32, to: &mut Vec<u8>) -> Result<(), StoreError> {
        let at = u64::from(row) * self.row_bytes as u64;
        match &mut self.held {
            Held::Memory(bytes) => to.extend_from_slice(&bytes[at as usize..][..self.row_bytes]),
            Held::File(file) => {
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

/// What is read of a segment while it is salvaged.
struct Salvage<'a> {
    segment: &'a Segment,
    deleted: &'a RowBits,
    columns: Option<Columns>,
    vectors: Vec<Found>,
    faults: &'a mut Faults,
    /// The largest id so far.
    last: Option<Id>,
    /// Rows whose ids are not known since then.
    unknown: u64,
}

impl Segment {
    /// Tells `each` of all rows that are not `deleted`, in their order: those that are whole, and those that are lost. What is wrong is
    /// added to `faults`.
    ///
    /// # Errors
    /// What `each` returns; [`CollectionError::LaterVersion`]; [`CollectionError::Cancelled`]; [`CollectionError::Store`] where a store
    /// does not answer.
    pub(crate) fn salvage(
        &self,
        collection: &str,
        deleted: &RowBits,
        progress: &dyn Progress,
        faults: &mut Faults,
        each: &mut Each<'_>,
    ) -> Result<(), CollectionError> {
        let name = Part::Segment(self.entry.name.clone(), None).name();
        let opened = self.place.open_damaged(&name, &[IDS_NAME, ROWS_NAME]).map_err(CollectionError::from);
        let Some(generation) = faults.unless_lost(opened)? else {
            let rows = u64::from(self.rows()) - u64::from(deleted.count());
            return each(Piece::Unknown { rows, after: None, before: None });
        };
        let read = Manifest::load(&*generation, &self.place, &self.schema, &self.entry);
        let manifest = match faults.unless_lost(read)? {
            Some(manifest) => manifest,
            None => Manifest::assumed(&*generation, collection, &self.schema, &self.entry)?,
        };
        let mut vectors = Vec::with_capacity(self.schema.vectors.len());
        for (field, entry) in manifest.vectors.iter().enumerate() {
            vectors.push(self.found_vectors(field, &entry.identity, progress, faults)?);
        }
        let far = self.place.is_far();
        let columns = Columns::salvage(&*generation, &manifest, self.schema.with_ids(), far);
        let columns = faults.unless_lost(columns)?;
        let mut salvage =
            Salvage { segment: self, deleted, columns, vectors, faults, last: None, unknown: 0 };
        progress.stage("salvaging rows", u64::from(self.rows()));
        salvage.run(&*generation, &manifest, progress, each)
    }

    /// The vectors of a field that are whole, of the index with this identity, if that is known.
    fn found_vectors(
        &self,
        field: usize,
        identity: &str,
        progress: &dyn Progress,
        faults: &mut Faults,
    ) -> Result<Found, CollectionError> {
        let mut found = Found::new(self.rows(), self.schema.vectors[field].row_bytes())?;
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
        found: &mut Found,
    ) -> Result<SalvageReport, CollectionError> {
        let name = Part::Segment(self.entry.name.clone(), Some(field)).name();
        let generation = self.place.store().open(&name)?;
        let manifest = IndexManifest::load(&*generation)?;
        let expected = &self.schema.vectors[field];
        let own = manifest.identity.as_deref().unwrap_or("none");
        let same = manifest.dim as usize == expected.dim
            && manifest.element() == Ok(expected.element)
            && manifest.metric() == Ok(expected.metric)
            && manifest.vectors == u64::from(self.rows());
        if !same || !identity.is_empty() && own != identity {
            let reason = "it is not the index that was built for this segment";
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

impl Salvage<'_> {
    fn run(
        &mut self,
        generation: &dyn Generation,
        manifest: &Manifest,
        progress: &dyn Progress,
        each: &mut Each<'_>,
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
                    self.without_ids(next..rows.start, each)?;
                    self.with_ids(rows.clone(), &ids, each)?;
                    next = rows.end;
                }
                progress.advance(u64::from(next));
            }
        }
        self.without_ids(next..self.segment.rows(), each)?;
        self.flush(None, each)
    }

    /// The rows of a block and their ids, if it is whole.
    fn ids_of(&self, manifest: &Manifest, number: u64, bytes: &[u8], next: u32) -> Option<(Range<u32>, Ids)> {
        let kind = self.segment.schema.id_kind;
        let block = Block::read(kind, manifest.identity(), number, bytes).ok()?;
        let end = block.first_row().checked_add(block.count() as u32)?;
        let rows = block.first_row()..end;
        if rows.start < next || rows.end > self.segment.rows() {
            return None;
        }
        let mut gathered = Gathered::new(kind, block.count());
        (0..block.count()).try_for_each(|at| gathered.take(&block, at)).ok()?;
        Some((rows, gathered.finish()))
    }

    /// Rows whose ids are not in the file of ids: they may be in that of columns.
    fn without_ids(&mut self, rows: Range<u32>, each: &mut Each<'_>) -> Result<(), CollectionError> {
        if rows.is_empty() {
            return Ok(());
        }
        let (first, last) = (rows.start, rows.end - 1);
        let name = Part::Segment(self.segment.entry.name.clone(), None).name();
        let path = self.segment.place.path().join(name).join(IDS_NAME);
        self.faults.add(format!("{}: the ids of rows {first} to {last} are not whole", path.display()));
        for start in rows.clone().step_by(ROWS_AT_ONCE) {
            let some = start..rows.end.min(start + ROWS_AT_ONCE as u32);
            let mut parts = Vec::new();
            let columns = self.columns.take();
            let read = match &columns {
                None => {
                    parts.push((some, None));
                    Ok(())
                }
                Some(columns) => columns.whole(some, &[0], &mut |rows, batch| {
                    parts.push((rows, self.faults.unless_lost(batch)?));
                    Ok(())
                }),
            };
            self.columns = columns;
            read?;
            for (rows, batch) in parts {
                let ids = batch.map(|batch| Ids::of_array(self.segment.schema.id_kind, batch.column(0)));
                match ids.transpose().ok().flatten() {
                    Some(ids) => self.with_ids(rows, &ids, each)?,
                    None => self.unknown += rows.filter(|row| !self.deleted.has(*row)).count() as u64,
                }
            }
        }
        Ok(())
    }

    /// Rows with these ids.
    fn with_ids(&mut self, rows: Range<u32>, ids: &Ids, each: &mut Each<'_>) -> Result<(), CollectionError> {
        self.flush(Some(ids.get(0)), each)?;
        self.last = Some(ids.get(ids.len() - 1));
        let schema = self.segment.schema.clone();
        let mut parts = Vec::new();
        if schema.columns.is_empty() {
            let options = RecordBatchOptions::new().with_row_count(Some(ids.len()));
            let none = RecordBatch::try_new_with_options(schema.metadata(), Vec::new(), &options)?;
            parts.push((rows.clone(), Some(none)));
        } else if let Some(columns) = self.columns.take() {
            let all: Vec<usize> = (1..=schema.columns.len()).collect();
            let read = columns.whole(rows.clone(), &all, &mut |rows, batch| {
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
            self.tell(part.clone(), &ids.slice(first, part.len()), batch, each)?;
        }
        Ok(())
    }

    /// Tells of rows whose ids are known.
    fn tell(
        &mut self,
        rows: Range<u32>,
        ids: &Ids,
        columns: Option<RecordBatch>,
        each: &mut Each<'_>,
    ) -> Result<(), CollectionError> {
        let (mut whole, mut lost) = (Vec::new(), Vec::new());
        for (place, row) in (0..).zip(rows.clone()).filter(|(_, row)| !self.deleted.has(*row)) {
            let found = columns.is_some() && self.vectors.iter().all(|field| field.found.has(row));
            if found { whole.push(place) } else { lost.push(place) }
        }
        if let Some(columns) = columns.filter(|_| !whole.is_empty()) {
            let mut vectors = vec![Vec::new(); self.vectors.len()];
            for (field, to) in self.vectors.iter_mut().zip(&mut vectors) {
                whole.iter().try_for_each(|place| field.append(rows.start + place, to))?;
            }
            let taken = take_record_batch(&columns, &UInt32Array::from(whole.clone()))?;
            // The file's schema says more than that of the collection does.
            let options = RecordBatchOptions::new().with_row_count(Some(whole.len()));
            let metadata = self.segment.schema.metadata();
            let taken = RecordBatch::try_new_with_options(metadata, taken.columns().to_vec(), &options)?;
            each(Piece::Whole(ids.take(&whole)?, vectors, taken))?;
        }
        if lost.is_empty() { Ok(()) } else { each(Piece::Lost(ids.take(&lost)?)) }
    }

    /// Tells of the rows without ids that come before `before`.
    fn flush(&mut self, before: Option<Id>, each: &mut Each<'_>) -> Result<(), CollectionError> {
        match std::mem::take(&mut self.unknown) {
            0 => Ok(()),
            rows => each(Piece::Unknown { rows, after: self.last.clone(), before }),
        }
    }
}

/// Blocks with their numbers, those that can be read.
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
