//! A segment: rows that do not change any more, in the order of their ids. docs/format/collection-segment.md has every byte of it.
//!
//! A row's number is its place in that order: its place among the ids, in the file of columns, and its id in the index of each
//! field of vectors. What of a segment is deleted is known elsewhere.

mod alone;
mod block;
mod columns;
mod fence;
mod fetch;
mod id_map;
mod id_writer;
mod in_memory;
mod kept;
mod lazily;
mod manifest;
mod pages;
mod part;
mod salvage;
mod spool;
mod summed;
#[cfg(test)]
mod tests;
mod unfinished;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod untrusted;
mod verify;
mod write;
mod written;

pub(crate) use alone::Alone;
pub(crate) use in_memory::{FieldIndex, VectorMemory};
pub(crate) use part::{SegmentPart, search_bytes};
pub(crate) use salvage::{Faults, Piece};
pub(crate) use unfinished::{Merged, Unfinished};
pub(crate) use write::{FLAT_BELOW_ROWS, SegmentWriter, WriteOptions, stored_beside};

use crate::error::CollectionError;
use crate::ids::{Id, Ids};
use crate::place::{Part, Place};
use crate::schema::Schema;
use crate::version::{IdEntry, SegmentEntry};
use arrow_array::RecordBatch;
use bathyal_index::{Index, IndexError, OpenOptions, SearchMemory, StoredVectors, TierChoice};
use bathyal_store::{Generation, Object};
use bathyal_tier::Control;
use bathyal_vectors::progress::Silent;
use block::{Key, key};
use columns::Columns;
use id_map::IdMap;
use in_memory::{Full, Room};
use kept::Parts;
use lazily::Lazily;
use manifest::{IndexEntry, Manifest};
use std::ops::Range;
use std::sync::Arc;
use written::FileEntry;

/// How segments are opened.
#[derive(Clone, Default)]
pub(crate) struct SegmentOptions {
    /// How the index of each field of vectors is opened. Its `memory_bytes` are not looked at.
    pub(crate) index: OpenOptions,
    /// Bytes that the indexes of a segment may take together, divided evenly; `None` is no limit. What ids and columns keep
    /// ([`Segment::held_bytes`]) is not among them.
    pub(crate) memory_bytes: Option<u64>,
    /// What part of a collection it is.
    pub(crate) part: SegmentPart,
    /// Memory for the vectors of flat segments that are searched, which they share; `None` leaves them where `index` says.
    pub(crate) vectors: Option<VectorMemory>,
}

/// A segment. Nothing of it is read before it is needed, and what is open of it may be closed while nobody uses it.
pub(crate) struct Segment {
    place: Place,
    schema: Arc<Schema>,
    entry: SegmentEntry,
    options: Arc<SegmentOptions>,
    parts: Arc<Parts>,
}

/// The generation of ids and columns.
struct Opened {
    generation: Arc<dyn Generation>,
    manifest: Manifest,
}

/// A file of a segment, if it is as long as its manifest says.
fn open_file(generation: &dyn Generation, file: &FileEntry) -> Result<Arc<dyn Object>, CollectionError> {
    let object = generation.get(&file.name)?;
    if object.len() == file.bytes {
        return Ok(object);
    }
    let reason = format!("it has {} bytes, the manifest says {}", object.len(), file.bytes);
    Err(CollectionError::damaged(object.address(), "its length", reason))
}

impl Segment {
    /// The segment that a version says is there.
    pub(crate) fn new(
        place: &Place,
        schema: Arc<Schema>,
        entry: SegmentEntry,
        options: Arc<SegmentOptions>,
    ) -> Segment {
        let parts = Arc::new(Parts::new(schema.vectors.len(), place.is_remote()));
        Segment { place: place.clone(), schema, entry, options, parts }
    }

    /// Its rows, deleted ones with them.
    pub(crate) fn rows(&self) -> u32 {
        self.entry.rows
    }

    /// What the version says of it.
    pub(crate) fn entry(&self) -> &SegmentEntry {
        &self.entry
    }

    /// The memory budget of its collection.
    pub(crate) fn budget(&self) -> Option<u64> {
        self.options.index.memory_bytes
    }

    /// Whether each request to its store takes its time.
    pub(crate) fn is_remote(&self) -> bool {
        self.place.is_remote()
    }

    fn opened(&self) -> Result<Arc<Opened>, CollectionError> {
        Parts::part(
            &self.parts,
            |parts| &parts.rows,
            || {
                let generation =
                    self.place.store().open(&Part::Segment(self.entry.name.clone(), None).name())?;
                let manifest = Manifest::load(&*generation, &self.place, &self.schema, &self.entry)?;
                Ok(Opened { generation, manifest })
            },
        )
    }

    fn id_map(&self) -> Result<Arc<IdMap>, CollectionError> {
        Parts::part(
            &self.parts,
            |parts| &parts.ids,
            || {
                let opened = self.opened()?;
                IdMap::open(&*opened.generation, &opened.manifest, self.place.is_remote())
            },
        )
    }

    fn columns(&self) -> Result<Arc<Columns>, CollectionError> {
        Parts::part(
            &self.parts,
            |parts| &parts.columns,
            || {
                let (opened, schema) = (self.opened()?, self.schema.with_ids());
                Columns::open(&*opened.generation, &opened.manifest, schema, self.place.is_remote())
            },
        )
    }

    /// The index of the field of vectors with this number, whose ids are rows.
    ///
    /// # Errors
    /// [`CollectionError::Damaged`] for another index than the one that was built for this segment, [`CollectionError::Index`].
    pub(crate) fn index(&self, field: usize) -> Result<Arc<FieldIndex>, CollectionError> {
        self.check_field(field)?;
        Parts::part(&self.parts, |parts| &parts.indexes[field], || self.open_index(field, None))
    }

    fn check_field(&self, field: usize) -> Result<(), CollectionError> {
        if field < self.schema.vectors.len() {
            return Ok(());
        }
        Err(CollectionError::Parameter(format!("there is no field of vectors with the number {field}")))
    }

    /// The same for a search, from which on the vectors of a flat one are in memory where there is room.
    ///
    /// # Errors
    /// As [`Segment::index`].
    pub(crate) fn searched(&self, field: usize) -> Result<Arc<FieldIndex>, CollectionError> {
        self.check_field(field)?;
        let open = || match self.open_in_memory(field) {
            Ok(Some(index)) => Ok(index),
            Ok(None) => self.open_index(field, None),
            // Where they cannot be in memory, they are read.
            Err(_) => self.open_index(field, None).inspect(FieldIndex::settle),
        };
        let index = Parts::part(&self.parts, |parts| &parts.indexes[field], open)?;
        if index.is_settled() {
            return Ok(index);
        }
        let open = || self.open_in_memory(field).inspect_err(|_| index.settle()).ok().flatten();
        Ok(Parts::reopened(&self.parts, field, open).unwrap_or(index))
    }

    /// Whether the index of a field is open, and a search of it reads nothing from a device.
    pub(crate) fn is_in_memory(&self, field: usize) -> bool {
        self.parts.indexes.get(field).and_then(Lazily::get).is_some_and(|index| index.is_in_memory())
    }

    /// The index of a field with its vectors in memory; `None` where there is no room for them.
    fn open_in_memory(&self, field: usize) -> Result<Option<FieldIndex>, CollectionError> {
        let opened = self.opened()?;
        let entry = &opened.manifest.vectors[field];
        let Some(memory) = self.memory_for(entry) else { return Ok(None) };
        let room = match memory.take(entry.bytes) {
            Err(Full::Process) if Parts::make_room(entry.bytes) => memory.take(entry.bytes),
            room => room,
        };
        room.ok().map(|room| self.open_index(field, Some(room))).transpose()
    }

    /// The memory that the vectors of an index may be in, if they may and it is enough for them: of a flat one, because every search of
    /// one without codes reads them all.
    fn memory_for(&self, entry: &IndexEntry) -> Option<&VectorMemory> {
        self.options.vectors.as_ref().filter(|memory| entry.family == "flat" && memory.suits(entry.bytes))
    }

    /// Opens the indexes that are open of one of `others`. What fails is told to those who need it.
    pub(crate) fn open_as<'a>(&self, others: impl Iterator<Item = &'a Arc<Segment>> + Clone) {
        for field in 0..self.schema.vectors.len() {
            let mut open = others.clone().filter_map(|other| other.parts.indexes[field].get());
            if let Some(first) = open.next() {
                let searched = first.is_in_memory() || open.any(|index| index.is_in_memory());
                let _ = if searched { self.searched(field) } else { self.index(field) };
            }
        }
    }

    fn open_index(&self, field: usize, room: Option<Room>) -> Result<FieldIndex, CollectionError> {
        let opened = self.opened()?;
        let entry = &opened.manifest.vectors[field];
        let generation =
            self.place.store().open(&Part::Segment(self.entry.name.clone(), Some(field)).name())?;
        let share = self.options.memory_bytes.map(|bytes| bytes / self.schema.vectors.len() as u64);
        let mut options = OpenOptions { memory_bytes: share, ..self.options.index.clone() };
        if room.is_some() {
            options.tier = TierChoice::Dram;
        }
        let index = Index::open_in(&*generation, &options, &Silent)?;
        let (found, expected) = (index.manifest(), &self.schema.vectors[field]);
        let damaged =
            |reason: String| Err(CollectionError::damaged(generation.address(), "the manifest", reason));
        let identity = found.identity.as_deref().unwrap_or("none");
        if identity != entry.identity {
            return damaged(format!("it is the index {identity}, the segment's is {}", entry.identity));
        }
        let shape = (index.dim(), index.element(), index.metric());
        if shape != (expected.dim, expected.element, expected.metric) {
            return damaged(format!("it is an index of other vectors than those of {:?}", expected.name));
        }
        if index.len() as u64 != u64::from(self.rows()) || found.vectors != u64::from(self.rows()) {
            return damaged(format!("it has {} vectors for {} rows", index.len(), self.rows()));
        }
        let settled = room.is_some() || self.memory_for(entry).is_none();
        Ok(FieldIndex::new(index, room, settled))
    }

    /// The least memory budget of its collection that is enough to open the index of a field and to search it by one thread.
    ///
    /// # Errors
    /// As [`Segment::index`].
    pub(crate) fn least_budget(&self, field: usize) -> Result<u64, CollectionError> {
        let generation =
            self.place.store().open(&Part::Segment(self.entry.name.clone(), Some(field)).name())?;
        let needed = |own: u64, searches: u64| {
            let (memory_bytes, search_memory) = (Some(own), Some(SearchMemory::new(searches)));
            let options = OpenOptions { memory_bytes, search_memory, ..self.options.index.clone() };
            match Index::open_in(&*generation, &options, &Silent) {
                Ok(_) => Ok(0),
                Err(IndexError::Memory { needed, .. }) => Ok(needed),
                Err(error) => Err(error),
            }
        };
        // Refused before anything is loaded.
        let (searches, own) = (needed(0, 0)?, needed(0, u64::MAX / 4)?);
        let fields = self.schema.vectors.len() as u64;
        Ok(self.options.part.least_budget(own.saturating_mul(fields), searches))
    }

    /// The row of each id, `None` where it has none. Every block of ids is read once, near ones together.
    ///
    /// # Errors
    /// [`CollectionError::Parameter`] for ids of the other kind; [`CollectionError::Damaged`], [`CollectionError::Store`].
    pub(crate) fn find(&self, ids: &Ids) -> Result<Vec<Option<u32>>, CollectionError> {
        self.check_kind(ids.kind() == self.schema.id_kind)?;
        let (first, last) = self.limits()?;
        let (first, last) = (key(&first, 0), key(&last, 0));
        // Most ids of a batch are of other segments, and need not be looked for.
        let within = |at: &u32| (first..=last).contains(&key(ids, *at as usize));
        let places: Vec<u32> = (0..ids.len() as u32).filter(within).collect();
        if places.len() == ids.len() && !ids.is_empty() {
            return self.id_map()?.find(ids);
        }
        let mut found = vec![None; ids.len()];
        if !places.is_empty() {
            let some = self.id_map()?.find(&ids.take(&places)?)?;
            places.iter().zip(some).for_each(|(at, row)| found[*at as usize] = row);
        }
        Ok(found)
    }

    fn check_kind(&self, same: bool) -> Result<(), CollectionError> {
        let wrong = || {
            let kind = self.schema.id_kind.data_type();
            CollectionError::Parameter(format!(
                "the ids are of another kind than those of the collection, {kind}"
            ))
        };
        if same { Ok(()) } else { Err(wrong()) }
    }

    /// Its smallest and its largest id.
    fn limits(&self) -> Result<(Ids, Ids), CollectionError> {
        let wrong = |error: CollectionError| {
            CollectionError::damaged(
                self.place.path(),
                format!("the segment {}", self.entry.name),
                error.to_string(),
            )
        };
        let alone = |id: &IdEntry| Ids::of(self.schema.id_kind, &[id.clone().into()]).map_err(wrong);
        let (first, last) = &self.entry.ids;
        Ok((alone(first)?, alone(last)?))
    }

    /// The first row whose id is not below `id`; the number of rows, if all are.
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

    /// The ids of rows, in their order; a row may be there more than once.
    ///
    /// # Errors
    /// [`CollectionError::Parameter`] for a row that there is not; [`CollectionError::Damaged`], [`CollectionError::Store`].
    pub(crate) fn ids_of(&self, rows: &[u32]) -> Result<Ids, CollectionError> {
        self.check_rows(rows.iter().max().copied())?;
        self.id_map()?.ids_of(rows)
    }

    /// The ids of a range of rows, which rise.
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

    /// Columns of rows, in the order of both; a row may be there more than once. Only the pages that hold them are read.
    ///
    /// # Errors
    /// [`CollectionError::Parameter`] for a row or a column that there is not; [`CollectionError::Damaged`],
    /// [`CollectionError::Store`].
    pub(crate) fn columns_of(&self, rows: &[u32], columns: &[usize]) -> Result<RecordBatch, CollectionError> {
        self.check_rows(rows.iter().max().copied())?;
        self.columns()?.take(rows, &self.of_file(columns, false)?)
    }

    /// Tells `each` of all rows, in batches: the first row, and the ids (a column `id`, if they are asked for) and columns of that row
    /// and those behind it.
    ///
    /// # Errors
    /// As [`Segment::columns_of`], and whatever `each` fails with, which ends it.
    pub(crate) fn scan(
        &self,
        columns: &[usize],
        with_ids: bool,
        each: &mut dyn FnMut(u32, RecordBatch) -> Result<(), CollectionError>,
    ) -> Result<(), CollectionError> {
        self.columns()?.scan(&self.of_file(columns, with_ids)?, each)
    }

    /// Columns of the schema as those of the file, whose first one is the ids.
    fn of_file(&self, columns: &[usize], with_ids: bool) -> Result<Vec<usize>, CollectionError> {
        if let Some(column) = columns.iter().find(|column| **column >= self.schema.columns.len()) {
            return Err(CollectionError::Parameter(format!("there is no column with the number {column}")));
        }
        Ok(with_ids.then_some(0).into_iter().chain(columns.iter().map(|column| column + 1)).collect())
    }

    /// The vectors of rows as [`Index::vectors`] has them, in their order; a row may be there more than once.
    ///
    /// # Errors
    /// [`CollectionError::Parameter`] for a row or a field that there is not; as [`Segment::index`] and [`Index::vectors`].
    pub(crate) fn vectors_of(
        &self,
        field: usize,
        rows: &[u32],
        control: Control<'_>,
    ) -> Result<StoredVectors, CollectionError> {
        self.check_rows(rows.iter().max().copied())?;
        Ok(self.index(field)?.vectors(rows, control)?)
    }

    /// Bytes of memory that it takes now, about, the search threads' not counted.
    pub(crate) fn held_bytes(&self) -> u64 {
        (size_of::<Segment>() + self.entry.name.len()) as u64 + self.parts.held_bytes()
    }
}

impl std::fmt::Debug for Segment {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "Segment({}, {} rows)", self.entry.name, self.entry.rows)
    }
}
