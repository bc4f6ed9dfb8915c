//! An open collection: what users hold.

use crate::error::CollectionError;
use crate::filter::Filter;
use crate::ids::{Id, Ids};
use crate::options::{CollectionOptions, LEAST_WRITE_MEMORY_BYTES};
use crate::place::Place;
use crate::repair::{RepairOptions, Repaired, repair};
use crate::rows::Rows;
use crate::schema::Schema;
use crate::search::{Found, Question};
use crate::segment::WriteOptions;
use crate::snapshot::{Fetch, Gotten, Scan, Snapshot};
use crate::version::{FORMAT, Version, now, numbers, random_digits};
use crate::write::{CompactOptions, Compacted, CopiedCollection, Operation, Shared, Written, WrittenBytes};
use arrow_array::RecordBatch;
use bathyal_index::StoreOptions;
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Progress;
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;

const EMPTY_DELETION: &str = "an empty filter, {}, would delete all rows; if that is what you want, delete those that match the filter \
                             true";

/// An open collection. Shared freely between threads; the first write makes it the one that writes, until it is dropped.
pub struct Collection {
    shared: Arc<Shared>,
}

/// What a collection is made of.
#[derive(Debug, Clone, Serialize)]
pub struct Description {
    /// The folder or the address.
    pub path: String,
    /// What every row has.
    pub schema: Schema,
    /// The latest version.
    pub version: u64,
    /// Records of the log so far: batches that were written.
    pub sequence: u64,
    /// Rows that are there.
    pub rows: u64,
    /// Those of them that are in memory and the log only.
    pub rows_in_memory: u64,
    /// Bytes of memory that these take.
    pub memory_bytes: u64,
    /// Bytes of memory that segments take that were looked at.
    pub held_bytes: u64,
    /// Bytes of all segments.
    pub bytes: u64,
    /// Rows of segments, deleted or not, for every row in them that is there.
    pub space_amplification: f64,
    /// What this handle has written.
    pub written: WrittenBytes,
    /// The segments.
    pub segments: Vec<SegmentDescription>,
}

/// What a segment is.
#[derive(Debug, Clone, Serialize)]
pub struct SegmentDescription {
    /// Its name.
    pub name: String,
    /// Its rows, deleted or not.
    pub rows: u32,
    /// Those that are deleted.
    pub deleted: u32,
    /// Bytes of its files.
    pub bytes: u64,
}

impl Collection {
    /// Creates a collection at `path`, a folder that is not there or is empty, or an address of a bucket.
    ///
    /// # Errors
    /// [`CollectionError::Exists`]; [`CollectionError::Parameter`] for a schema that makes no sense; [`CollectionError::Store`].
    pub fn create(
        path: impl AsRef<Path>,
        schema: Schema,
        options: &CollectionOptions,
    ) -> Result<Collection, CollectionError> {
        Collection::create_in(Place::at(path, &options.store)?, schema, options)
    }

    /// The same in a place that is known.
    ///
    /// # Errors
    /// As [`Collection::create`].
    pub fn create_in(
        place: Place,
        schema: Schema,
        options: &CollectionOptions,
    ) -> Result<Collection, CollectionError> {
        schema.check()?;
        check(options)?;
        let exists = || CollectionError::Exists { path: place.path().to_path_buf() };
        if !place.is_vacant()? {
            return Err(exists());
        }
        let mut version = Version {
            bathyal_collection: FORMAT,
            id: random_digits(32),
            number: 1,
            schema,
            through: 0,
            log: None,
            next_segment: 1,
            writer: String::new(),
            published: now(),
            segments: Vec::new(),
        };
        version.publish(&place, &[]).map_err(|error| match error {
            CollectionError::Fenced { .. } => exists(),
            error => error,
        })?;
        Collection::open_in(place, options)
    }

    /// Opens the collection at `path`.
    ///
    /// # Errors
    /// [`CollectionError::NotACollection`], [`CollectionError::LaterVersion`], [`CollectionError::Damaged`],
    /// [`CollectionError::Store`].
    pub fn open(path: impl AsRef<Path>, options: &CollectionOptions) -> Result<Collection, CollectionError> {
        Collection::open_in(Place::at(path, &options.store)?, options)
    }

    /// The same in a place that is known.
    ///
    /// # Errors
    /// As [`Collection::open`].
    pub fn open_in(place: Place, options: &CollectionOptions) -> Result<Collection, CollectionError> {
        check(options)?;
        Ok(Collection { shared: Arc::new(Shared::open(place, options.clone(), None)?) })
    }

    /// Opens a version of the collection at `path` that was kept, as it was when it was published. It is not written to.
    ///
    /// # Errors
    /// [`CollectionError::Parameter`] that says which versions there are; as [`Collection::open`].
    pub fn open_version(
        path: impl AsRef<Path>,
        number: u64,
        options: &CollectionOptions,
    ) -> Result<Collection, CollectionError> {
        check(options)?;
        let place = Place::at(path, &options.store)?;
        Ok(Collection { shared: Arc::new(Shared::open(place, options.clone(), Some(number))?) })
    }

    /// The folder or the address.
    pub fn path(&self) -> &Path {
        self.shared.place.path()
    }

    /// Whether each request to its store takes its time.
    pub(crate) fn is_far(&self) -> bool {
        self.shared.place.is_far()
    }

    /// What every row has.
    pub fn schema(&self) -> Schema {
        self.shared.state().schema().clone()
    }

    /// The numbers of the versions that are kept.
    ///
    /// # Errors
    /// [`CollectionError::Store`].
    pub fn versions(&self) -> Result<Vec<u64>, CollectionError> {
        numbers(&self.shared.place)
    }

    /// What the collection holds now, and will hold for as long as this is kept, whatever is written.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.shared.state())
    }

    /// Adds rows whose ids are not there: all of them, or none, however many there are.
    ///
    /// # Errors
    /// [`CollectionError::Duplicate`]; [`CollectionError::Busy`] and [`CollectionError::Fenced`] where another one writes;
    /// [`CollectionError::Parameter`] for more rows than a segment holds.
    pub fn add(&self, rows: Rows) -> Result<Written, CollectionError> {
        self.shared.write(Operation::Add(rows))
    }

    /// Puts rows in the place of those with their ids, or beside all others.
    ///
    /// # Errors
    /// As [`Collection::add`]; [`CollectionError::Duplicate`] where the same id is there twice among the rows.
    pub fn upsert(&self, rows: Rows) -> Result<Written, CollectionError> {
        self.shared.write(Operation::Upsert(rows))
    }

    /// Changes the metadata of the rows with these ids: the columns that are given, and no others.
    ///
    /// # Errors
    /// As [`Collection::upsert`].
    pub fn update(&self, ids: Ids, columns: RecordBatch) -> Result<Written, CollectionError> {
        self.shared.write(Operation::Update(ids, columns))
    }

    /// Deletes the rows with these ids; ids of which there is no row are counted as missing.
    ///
    /// # Errors
    /// As [`Collection::upsert`].
    pub fn delete(&self, ids: Ids) -> Result<Written, CollectionError> {
        self.shared.write(Operation::Delete(ids))
    }

    /// Deletes the rows that match.
    ///
    /// # Errors
    /// As [`Collection::upsert`]; [`CollectionError::Filter`] and [`CollectionError::Parameter`] for a filter that does not fit, and
    /// for an [empty](Filter::is_empty) one: "all" has to be said, by the filter `true`. Cancellation and deadline of `control` as long as it is looked which rows match, and nothing is deleted then.
    pub fn delete_matching(&self, filter: &Filter, control: Control<'_>) -> Result<Written, CollectionError> {
        if filter.is_empty() {
            return Err(CollectionError::Parameter(EMPTY_DELETION.to_string()));
        }
        let filter = filter.bind(self.shared.state().schema())?;
        self.shared.delete_matching(filter, &control)
    }

    /// Answers all `queries`.
    ///
    /// # Errors
    /// [`CollectionError::Parameter`] for what does not fit the schema; damage and device errors; cancellation and deadline.
    pub fn search(
        &self,
        queries: &VectorFile,
        question: &Question,
        control: Control<'_>,
    ) -> Result<Found, CollectionError> {
        self.reading(|now| now.search(queries, question, control))
    }

    /// The rows with these ids.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn get(&self, ids: &Ids, what: &Fetch, control: Control<'_>) -> Result<Gotten, CollectionError> {
        self.reading(|now| now.get(ids, what, control))
    }

    /// How many rows there are, or match.
    ///
    /// # Errors
    /// As [`Snapshot::count`].
    pub fn count(&self, filter: Option<&Filter>, control: Control<'_>) -> Result<u64, CollectionError> {
        self.reading(|now| now.count(filter, control))
    }

    /// All rows, or those that match, in the order of their ids, from the first above `after` on.
    ///
    /// # Errors
    /// As [`Snapshot::scan`].
    pub fn scan(
        &self,
        filter: Option<&Filter>,
        what: &Fetch,
        after: Option<&Id>,
        control: Control<'_>,
    ) -> Result<Scan, CollectionError> {
        self.reading(|now| now.scan(filter, what, after, control))
    }

    /// Writes what is in memory as a segment.
    ///
    /// # Errors
    /// [`CollectionError::Store`]; nothing is lost then.
    pub fn flush(&self) -> Result<(), CollectionError> {
        self.shared.flush_all(None)
    }

    /// Writes what is in memory as a segment, merges segments, and gives the space of deleted rows back.
    ///
    /// # Errors
    /// [`CollectionError::Cancelled`] by `progress`; [`CollectionError::Store`]; the collection is as it was then.
    pub fn compact(
        &self,
        options: &CompactOptions,
        progress: &dyn Progress,
    ) -> Result<Compacted, CollectionError> {
        self.shared.compact(options, progress)
    }

    /// Waits until the segments that are being written and merged beside the writes are done; what fails is tried again by later
    /// writes, and is no error here.
    pub fn settle(&self) {
        self.shared.settle();
    }

    /// Ends what is done beside the writes, and every write that waits for it, with [`CollectionError::Cancelled`]. Nothing that was
    /// acknowledged is lost. From then on no segment is written until the collection is opened again.
    pub fn stop(&self) {
        self.shared.stop();
    }

    /// Sees what other processes have written since it was opened, or since the last time. Returns whether there was anything.
    ///
    /// # Errors
    /// [`CollectionError::Store`].
    pub fn refresh(&self) -> Result<bool, CollectionError> {
        self.shared.refresh()
    }

    /// Bytes of a batch at most that goes through the log and memory. Larger ones are written as a segment at once.
    pub fn largest_batch_bytes(&self) -> u64 {
        self.shared.largest_batch_bytes()
    }

    /// Reads what the collection holds now; where the process that writes has removed it meanwhile, what it holds then.
    fn reading<T>(
        &self,
        read: impl Fn(&Snapshot) -> Result<T, CollectionError>,
    ) -> Result<T, CollectionError> {
        self.shared.note_reading();
        match read(&self.snapshot()) {
            Err(error) if error.has_moved() && self.refresh()? => read(&self.snapshot()),
            outcome => outcome,
        }
    }

    /// Copies what the collection holds now to `path`, a folder or an address where no collection is, while others go on writing. What
    /// a copy that was broken off has left there is gone on with.
    ///
    /// # Errors
    /// [`CollectionError::Exists`]; [`CollectionError::Cancelled`] by `progress`; [`CollectionError::Store`].
    pub fn copy_to(
        &self,
        path: impl AsRef<Path>,
        store: &StoreOptions,
        progress: &dyn Progress,
    ) -> Result<CopiedCollection, CollectionError> {
        self.shared.copy(&Place::at(path, store)?, progress)
    }

    /// Puts all that is whole of the damaged collection at `path` into `to`, a folder or an address where nothing is, and says what is
    /// lost. The damaged one is only read; nobody should write to it meanwhile. `to_store` says how the new place is reached, `options`
    /// how the old one is, and with what memory and how many threads indexes are built anew.
    ///
    /// # Errors
    /// [`CollectionError::Exists`]; [`CollectionError::NotACollection`]; [`CollectionError::Damaged`] where no version can be read and
    /// uncertain rows are not wanted; [`CollectionError::LaterVersion`]; [`CollectionError::Cancelled`] by `progress`;
    /// [`CollectionError::Store`]. No collection is in `to` then.
    pub fn repair(
        path: impl AsRef<Path>,
        options: &CollectionOptions,
        (to, to_store): (impl AsRef<Path>, &StoreOptions),
        what: &RepairOptions,
        progress: &dyn Progress,
    ) -> Result<Repaired, CollectionError> {
        let places = (&Place::at(path, &options.store)?, &Place::at(to, to_store)?);
        repair(places, options, what, progress)
    }

    /// The same in places that are known.
    ///
    /// # Errors
    /// As [`Collection::repair`].
    pub fn repair_in(
        places: (&Place, &Place),
        options: &CollectionOptions,
        what: &RepairOptions,
        progress: &dyn Progress,
    ) -> Result<Repaired, CollectionError> {
        repair(places, options, what, progress)
    }

    /// What it is made of.
    pub fn describe(&self) -> Description {
        let state = self.shared.state();
        let segments = state.segments.iter().map(|segment| SegmentDescription {
            name: segment.segment.entry().name.clone(),
            rows: segment.segment.rows(),
            deleted: segment.deleted.count(),
            bytes: segment.segment.entry().bytes,
        });
        Description {
            path: self.path().display().to_string(),
            schema: state.schema().clone(),
            version: state.version.number,
            sequence: state.sequence,
            rows: state.live(),
            rows_in_memory: state.memories.iter().map(|memory| u64::from(memory.live())).sum(),
            memory_bytes: state.memory_bytes(),
            held_bytes: state.segments.iter().map(|segment| segment.segment.held_bytes()).sum(),
            bytes: state.segments.iter().map(|segment| segment.segment.entry().bytes).sum(),
            space_amplification: state.space_amplification(),
            written: self.shared.written_bytes(),
            segments: segments.collect(),
        }
    }

    /// Looks at every byte of every segment. Returns what is wrong, in sentences.
    ///
    /// # Errors
    /// [`CollectionError::Cancelled`] by `progress`; [`CollectionError::Store`].
    pub fn verify(&self, progress: &dyn Progress) -> Result<Vec<String>, CollectionError> {
        let state = self.shared.state();
        let mut faults = Vec::new();
        for segment in &state.segments {
            faults.extend(segment.segment.verify(progress)?);
        }
        Ok(faults)
    }
}

impl Drop for Collection {
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// Whether a collection is at `path`; false also where nobody can tell.
pub fn is_collection(path: impl AsRef<Path>, store: &StoreOptions) -> bool {
    Place::at(path, store).and_then(|place| numbers(&place)).is_ok_and(|versions| !versions.is_empty())
}

/// Refuses options that make no sense.
fn check(options: &CollectionOptions) -> Result<(), CollectionError> {
    if options.write_memory_bytes < LEAST_WRITE_MEMORY_BYTES {
        return Err(CollectionError::Memory {
            what: "memory for writes",
            needed: LEAST_WRITE_MEMORY_BYTES,
            given: options.write_memory_bytes,
            advice: "allow at least that much".into(),
        });
    }
    let needed = WriteOptions::least_memory_bytes()?;
    for (what, given) in [
        ("building a segment (build_memory)", options.build_memory_bytes),
        ("merging segments (compact_memory)", options.compact_memory_bytes),
    ] {
        if let Some(given) = given.filter(|given| *given < needed) {
            let advice = "allow at least that much, or leave the limit out".into();
            return Err(CollectionError::Memory { what, needed, given, advice });
        }
    }
    Ok(())
}
