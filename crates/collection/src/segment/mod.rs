//! A segment: rows that do not change, in the order of their ids. docs/format/collection-segment.md specifies
//! all bytes.
//!
//! The number of a row is its position in that order: among the ids, in the file of columns, and as the id in
//! the index of each vector field. The segment does not record its deleted rows; versions do.

mod block;
mod checked_file;
mod columns;
mod fence;
mod fetch;
mod file_writer;
mod id_map;
mod id_writer;
mod lazy;
mod manifest;
mod open_parts;
mod pages;
mod salvage;
mod share;
mod spool;
mod standalone;
#[cfg(test)]
mod tests;
mod unfinished;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod untrusted;
mod vector_memory;
mod verify;
mod write;

pub(crate) use salvage::{Faults, SalvagedRows};
pub(crate) use share::{SegmentShare, search_bytes};
pub(crate) use standalone::StandaloneSegment;
pub(crate) use unfinished::{MergeSources, UnfinishedSegment};
pub(crate) use vector_memory::{FieldIndex, VectorMemory};
pub(crate) use write::{SegmentWriter, WriteOptions, largest_segment_scales};

use crate::error::CollectionError;
use crate::ids::{Id, Ids};
use crate::location::{CollectionLocation, Part};
use crate::schema::Schema;
use crate::version::{IdEntry, SegmentEntry};
use arrow_array::RecordBatch;
use bathyal_index::{Index, IndexError, OpenOptions, SearchMemory, StoredVectors, TierChoice};
use bathyal_store::{Generation, Object};
use bathyal_tier::Control;
use bathyal_vectors::progress::Silent;
use block::{Key, key};
use columns::Columns;
use file_writer::FileEntry;
use id_map::IdMap;
use lazy::Lazy;
use manifest::{IndexEntry, Manifest};
use open_parts::OpenParts;
use std::ops::Range;
use std::sync::Arc;
use vector_memory::{MemoryFull, MemoryReservation};

/// How to open a segment.
#[derive(Clone, Default)]
pub(crate) struct SegmentOptions {
    /// How to open the index of each vector field. Its `memory_bytes` is ignored.
    pub(crate) index: OpenOptions,
    /// Memory limit of all indexes of the segment, in bytes, divided evenly; `None` means no limit. The
    /// memory of ids and columns ([`Segment::held_bytes`]) does not count.
    pub(crate) memory_bytes: Option<u64>,
    /// Size of the segment relative to its collection.
    pub(crate) share: SegmentShare,
    /// Memory for the vectors of flat segments, which the segments share; `None` leaves the vectors on the
    /// tier of `index`.
    pub(crate) vectors: Option<VectorMemory>,
}

/// A segment. Its parts are opened when they are needed, and may be closed while they are not in use.
pub(crate) struct Segment {
    place: CollectionLocation,
    schema: Arc<Schema>,
    entry: SegmentEntry,
    options: Arc<SegmentOptions>,
    parts: Arc<OpenParts>,
}

/// The open generation of ids and columns.
struct OpenedRows {
    generation: Arc<dyn Generation>,
    manifest: Manifest,
}

/// Opens a file of a segment and checks its length.
fn open_file(generation: &dyn Generation, file: &FileEntry) -> Result<Arc<dyn Object>, CollectionError> {
    let object = generation.get(&file.name)?;
    if object.len() == file.bytes {
        return Ok(object);
    }
    let reason = format!("it has {} bytes, the manifest says {}", object.len(), file.bytes);
    Err(CollectionError::damaged(object.address(), "its length", reason))
}

impl Segment {
    /// Creates the segment of an entry in a version. Nothing is read yet.
    pub(crate) fn new(
        place: &CollectionLocation,
        schema: Arc<Schema>,
        entry: SegmentEntry,
        options: Arc<SegmentOptions>,
    ) -> Segment {
        let parts = Arc::new(OpenParts::new(schema.vectors.len(), place.is_remote()));
        Segment { place: place.clone(), schema, entry, options, parts }
    }

    /// Returns the number of rows, deleted or not.
    pub(crate) fn rows(&self) -> u32 {
        self.entry.rows
    }

    /// Returns the entry in the version.
    pub(crate) fn entry(&self) -> &SegmentEntry {
        &self.entry
    }

    /// Returns the memory budget of the collection.
    pub(crate) fn budget(&self) -> Option<u64> {
        self.options.index.memory_bytes
    }

    /// Returns true if every read of the store is a request over the network.
    pub(crate) fn is_remote(&self) -> bool {
        self.place.is_remote()
    }

    fn opened(&self) -> Result<Arc<OpenedRows>, CollectionError> {
        OpenParts::get_or_open(
            &self.parts,
            |parts| &parts.rows,
            || {
                let generation =
                    self.place.store().open(&Part::Segment(self.entry.name.clone(), None).name())?;
                let manifest = Manifest::load(&*generation, &self.place, &self.schema, &self.entry)?;
                Ok(OpenedRows { generation, manifest })
            },
        )
    }

    fn id_map(&self) -> Result<Arc<IdMap>, CollectionError> {
        OpenParts::get_or_open(
            &self.parts,
            |parts| &parts.ids,
            || {
                let opened = self.opened()?;
                IdMap::open(&*opened.generation, &opened.manifest, self.place.is_remote())
            },
        )
    }

    fn columns(&self) -> Result<Arc<Columns>, CollectionError> {
        OpenParts::get_or_open(
            &self.parts,
            |parts| &parts.columns,
            || {
                let (opened, schema) = (self.opened()?, self.schema.with_ids());
                Columns::open(&*opened.generation, &opened.manifest, schema, self.place.is_remote())
            },
        )
    }

    /// Returns the index of the vector field with this number. Its ids are rows.
    ///
    /// # Errors
    /// [`CollectionError::Damaged`] if the index was not built for this segment, [`CollectionError::Index`].
    pub(crate) fn index(&self, field: usize) -> Result<Arc<FieldIndex>, CollectionError> {
        self.check_field(field)?;
        OpenParts::get_or_open(&self.parts, |parts| &parts.indexes[field], || self.open_index(field, None))
    }

    fn check_field(&self, field: usize) -> Result<(), CollectionError> {
        if field < self.schema.vectors.len() {
            return Ok(());
        }
        Err(CollectionError::Parameter(format!("there is no vector field with the number {field}")))
    }

    /// Returns the index of a field for a search. The vectors of a flat index are loaded into memory, if
    /// there is room.
    ///
    /// # Errors
    /// As [`Segment::index`].
    pub(crate) fn index_for_search(&self, field: usize) -> Result<Arc<FieldIndex>, CollectionError> {
        self.check_field(field)?;
        let open = || match self.open_in_memory(field) {
            Ok(Some(index)) => Ok(index),
            Ok(None) => self.open_index(field, None),
            // If loading them fails, searches read them from the tier.
            Err(_) => self.open_index(field, None).inspect(FieldIndex::finalize_placement),
        };
        let index = OpenParts::get_or_open(&self.parts, |parts| &parts.indexes[field], open)?;
        if index.placement_is_final() {
            return Ok(index);
        }
        let open = || self.open_in_memory(field).inspect_err(|_| index.finalize_placement()).ok().flatten();
        Ok(OpenParts::replace_index(&self.parts, field, open).unwrap_or(index))
    }

    /// Returns true if the index of a field is open, and a search of it reads nothing from a device.
    pub(crate) fn is_in_memory(&self, field: usize) -> bool {
        self.parts.indexes.get(field).and_then(Lazy::get).is_some_and(|index| index.is_in_memory())
    }

    /// Opens the index of a field with its vectors in memory; `None` if there is no room for them.
    fn open_in_memory(&self, field: usize) -> Result<Option<FieldIndex>, CollectionError> {
        let opened = self.opened()?;
        let entry = &opened.manifest.vectors[field];
        let Some(memory) = self.memory_for(entry) else { return Ok(None) };
        let reservation = match memory.reserve(entry.bytes) {
            Err(MemoryFull::Process) if OpenParts::free_memory(entry.bytes) => memory.reserve(entry.bytes),
            reservation => reservation,
        };
        reservation.ok().map(|reservation| self.open_index(field, Some(reservation))).transpose()
    }

    /// Returns the memory in which the vectors of an index may be, if it is large enough. Only flat indexes
    /// use it: without codes, every search reads all vectors.
    fn memory_for(&self, entry: &IndexEntry) -> Option<&VectorMemory> {
        self.options.vectors.as_ref().filter(|memory| entry.family == "flat" && memory.fits(entry.bytes))
    }

    /// Opens those indexes that are open in one of `others`. Errors are ignored: later callers get them.
    pub(crate) fn open_like<'a>(&self, others: impl Iterator<Item = &'a Arc<Segment>> + Clone) {
        for field in 0..self.schema.vectors.len() {
            let mut open = others.clone().filter_map(|other| other.parts.indexes[field].get());
            if let Some(first) = open.next() {
                let in_memory = first.is_in_memory() || open.any(|index| index.is_in_memory());
                let _ = if in_memory { self.index_for_search(field) } else { self.index(field) };
            }
        }
    }

    fn open_index(
        &self,
        field: usize,
        reservation: Option<MemoryReservation>,
    ) -> Result<FieldIndex, CollectionError> {
        let opened = self.opened()?;
        let entry = &opened.manifest.vectors[field];
        let generation =
            self.place.store().open(&Part::Segment(self.entry.name.clone(), Some(field)).name())?;
        let share = self.options.memory_bytes.map(|bytes| bytes / self.schema.vectors.len() as u64);
        let mut options = OpenOptions { memory_bytes: share, ..self.options.index.clone() };
        if reservation.is_some() {
            options.tier = TierChoice::Dram;
        }
        let index = Index::open_in(&*generation, &options, &Silent)?;
        let (found, expected) = (index.manifest(), &self.schema.vectors[field]);
        let damaged =
            |reason: String| Err(CollectionError::damaged(generation.address(), "the manifest", reason));
        let identity = found.identity.as_deref().unwrap_or("none");
        if identity != entry.identity {
            return damaged(format!("its identity is {identity}, but the segment names {}", entry.identity));
        }
        let shape = (index.dim(), index.element(), index.metric());
        if shape != (expected.dim, expected.element, expected.metric) {
            return damaged(format!("its vectors do not fit the field {:?}", expected.name));
        }
        if index.len() as u64 != u64::from(self.rows()) || found.vectors != u64::from(self.rows()) {
            return damaged(format!("it has {} vectors for {} rows", index.len(), self.rows()));
        }
        let placement_final = reservation.is_some() || self.memory_for(entry).is_none();
        Ok(FieldIndex::new(index, reservation, placement_final))
    }

    /// Returns the least memory budget of the collection that is enough to open the index of a field and to
    /// search it with one thread.
    ///
    /// # Errors
    /// As [`Segment::index`].
    pub(crate) fn least_budget(&self, field: usize) -> Result<u64, CollectionError> {
        let generation =
            self.place.store().open(&Part::Segment(self.entry.name.clone(), Some(field)).name())?;
        let needed = |index_bytes: u64, searches: u64| {
            let (memory_bytes, search_memory) = (Some(index_bytes), Some(SearchMemory::new(searches)));
            let options = OpenOptions { memory_bytes, search_memory, ..self.options.index.clone() };
            match Index::open_in(&*generation, &options, &Silent) {
                Ok(_) => Ok(0),
                Err(IndexError::Memory { needed, .. }) => Ok(needed),
                Err(error) => Err(error),
            }
        };
        // Without memory, opening fails before anything is loaded.
        let (searches, index_bytes) = (needed(0, 0)?, needed(0, u64::MAX / 4)?);
        let fields = self.schema.vectors.len() as u64;
        Ok(self.options.share.least_budget(index_bytes.saturating_mul(fields), searches))
    }

    /// Returns the row of each id; `None` for an unknown id. Every block of ids is read once; adjacent blocks
    /// are read together.
    ///
    /// # Errors
    /// [`CollectionError::Parameter`] for ids of the other kind; [`CollectionError::Damaged`],
    /// [`CollectionError::Store`].
    pub(crate) fn find(&self, ids: &Ids) -> Result<Vec<Option<u32>>, CollectionError> {
        self.check_kind(ids.kind() == self.schema.id_kind)?;
        let (first, last) = self.limits()?;
        let (first, last) = (key(&first, 0), key(&last, 0));
        // Most ids of a batch are outside the range of this segment.
        let in_range = |at: &u32| (first..=last).contains(&key(ids, *at as usize));
        let positions: Vec<u32> = (0..ids.len() as u32).filter(in_range).collect();
        if positions.len() == ids.len() && !ids.is_empty() {
            return self.id_map()?.find(ids);
        }
        let mut found = vec![None; ids.len()];
        if !positions.is_empty() {
            let rows = self.id_map()?.find(&ids.take(&positions)?)?;
            positions.iter().zip(rows).for_each(|(at, row)| found[*at as usize] = row);
        }
        Ok(found)
    }

    fn check_kind(&self, same: bool) -> Result<(), CollectionError> {
        let wrong = || {
            let kind = self.schema.id_kind.data_type();
            CollectionError::Parameter(format!("the ids are not of the collection's kind, {kind}"))
        };
        if same { Ok(()) } else { Err(wrong()) }
    }

    /// Returns the smallest and the largest id.
    fn limits(&self) -> Result<(Ids, Ids), CollectionError> {
        let wrong = |error: CollectionError| {
            CollectionError::damaged(
                self.place.path(),
                format!("the segment {}", self.entry.name),
                error.to_string(),
            )
        };
        let single = |id: &IdEntry| Ids::from_ids(self.schema.id_kind, &[id.clone().into()]).map_err(wrong);
        let (first, last) = &self.entry.ids;
        Ok((single(first)?, single(last)?))
    }

    /// Returns the first row whose id is not below `id`; the number of rows if all are below.
    ///
    /// # Errors
    /// As [`Segment::find`].
    pub(crate) fn lower_bound(&self, id: &Id) -> Result<u32, CollectionError> {
        let id = match id {
            Id::Number(number) => Key::Number(*number),
            Id::Text(text) => Key::Text(text.as_bytes()),
        };
        let (first, last) = self.limits()?;
        let (first, last) = (key(&first, 0), key(&last, 0));
        self.check_kind(matches!(
            (id, first),
            (Key::Number(_), Key::Number(_)) | (Key::Text(_), Key::Text(_))
        ))?;
        match id {
            id if id <= first => Ok(0),
            id if id > last => Ok(self.rows()),
            id => self.id_map()?.lower_bound(id),
        }
    }

    /// Returns the ids of rows, in their order; a row may occur more than once.
    ///
    /// # Errors
    /// [`CollectionError::Parameter`] for a row that does not exist; [`CollectionError::Damaged`],
    /// [`CollectionError::Store`].
    pub(crate) fn ids_of(&self, rows: &[u32]) -> Result<Ids, CollectionError> {
        self.check_rows(rows.iter().max().copied())?;
        self.id_map()?.ids_of(rows)
    }

    /// Returns the ids of a range of rows, in ascending order.
    ///
    /// # Errors
    /// As [`Segment::ids_of`].
    pub(crate) fn ids(&self, range: Range<u32>) -> Result<Ids, CollectionError> {
        self.check_rows(range.end.checked_sub(1))?;
        self.id_map()?.ids(range)
    }

    fn check_rows(&self, largest: Option<u32>) -> Result<(), CollectionError> {
        match largest.filter(|row| *row >= self.rows()) {
            None => Ok(()),
            Some(row) => Err(CollectionError::Parameter(format!(
                "there is no row {row} in the segment {}, which has {}",
                self.entry.name,
                self.rows()
            ))),
        }
    }

    /// Returns columns of rows, in the order of `rows` and `columns`; a row may occur more than once. Only
    /// the pages with these rows are read.
    ///
    /// # Errors
    /// [`CollectionError::Parameter`] for a row or a column that does not exist;
    /// [`CollectionError::Damaged`], [`CollectionError::Store`].
    pub(crate) fn columns_of(&self, rows: &[u32], columns: &[usize]) -> Result<RecordBatch, CollectionError> {
        self.check_rows(rows.iter().max().copied())?;
        self.columns()?.take(rows, &self.file_columns(columns, false)?)
    }

    /// Calls `each` for all rows in batches, with the first row and the columns of the batch. If `with_ids`
    /// is true, the first column is `id`.
    ///
    /// # Errors
    /// As [`Segment::columns_of`]. An error of `each` ends the scan and is returned.
    pub(crate) fn scan(
        &self,
        columns: &[usize],
        with_ids: bool,
        each: &mut dyn FnMut(u32, RecordBatch) -> Result<(), CollectionError>,
    ) -> Result<(), CollectionError> {
        self.columns()?.scan(&self.file_columns(columns, with_ids)?, each)
    }

    /// Converts numbers of schema columns to those of the file, whose first column is the ids.
    fn file_columns(&self, columns: &[usize], with_ids: bool) -> Result<Vec<usize>, CollectionError> {
        if let Some(column) = columns.iter().find(|column| **column >= self.schema.columns.len()) {
            return Err(CollectionError::Parameter(format!("there is no column with the number {column}")));
        }
        Ok(with_ids.then_some(0).into_iter().chain(columns.iter().map(|column| column + 1)).collect())
    }

    /// Returns the vectors of rows as [`Index::vectors`] does, in their order; a row may occur more than
    /// once.
    ///
    /// # Errors
    /// [`CollectionError::Parameter`] for a row or a field that does not exist; as [`Segment::index`] and
    /// [`Index::vectors`].
    pub(crate) fn vectors_of(
        &self,
        field: usize,
        rows: &[u32],
        control: Control<'_>,
    ) -> Result<StoredVectors, CollectionError> {
        self.check_rows(rows.iter().max().copied())?;
        Ok(self.index(field)?.vectors(rows, control)?)
    }

    /// Returns the approximate bytes of memory, without search threads.
    pub(crate) fn held_bytes(&self) -> u64 {
        (size_of::<Segment>() + self.entry.name.len()) as u64 + self.parts.held_bytes()
    }
}

impl std::fmt::Debug for Segment {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "Segment({}, {} rows)", self.entry.name, self.entry.rows)
    }
}
