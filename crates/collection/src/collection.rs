//! An open collection: the type that users work with.

use crate::calibration::read_sample;
use crate::description::{CalibrationDescription, Description, SegmentDescription};
use crate::error::CollectionError;
use crate::filter::Filter;
use crate::ids::{Id, Ids};
use crate::location::{CollectionLocation, Part};
use crate::options::{CollectionOptions, LEAST_WRITE_MEMORY_BYTES};
use crate::removal::{RemovedCollection, RemovedKind, remove_at};
use crate::repair::{RepairOptions, RepairReport, repair};
use crate::rows::Rows;
use crate::schema::Schema;
use crate::search::{CollectionAudit, CollectionAuditRequest, FoundRows, SearchRequest};
use crate::segment::WriteOptions;
use crate::snapshot::{Projection, RowsById, Scan, Snapshot};
use crate::stats::CollectionStats;
use crate::version::{FORMAT, Version, now, numbers, random_digits};
use crate::write::{
    CalibrationReport, CollectionCalibration, CompactOptions, CompactionReport, CopiedCollection, Operation,
    Shared, Written,
};
use arrow_array::RecordBatch;
use bathyal_index::{AuditReport, StoreOptions, WarmReport};
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Progress;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const EMPTY_DELETION: &str = "an empty filter, {}, would delete all rows; to delete all rows, use \
                             the filter true";

/// An open collection. Threads can share it. The first write makes it the only writer of the collection,
/// until it is dropped.
pub struct Collection {
    /// The audit of the searches of this handle.
    audit: Option<CollectionAudit>,
    shared: Arc<Shared>,
}

impl Collection {
    /// Creates a collection at `path`: a folder that does not exist or is empty, or an address in a bucket.
    ///
    /// # Errors
    /// [`CollectionError::Exists`]; [`CollectionError::Parameter`] for an invalid schema;
    /// [`CollectionError::Store`].
    pub fn create(
        path: impl AsRef<Path>,
        schema: Schema,
        options: &CollectionOptions,
    ) -> Result<Collection, CollectionError> {
        Collection::create_in(CollectionLocation::at(path, &options.store)?, schema, options)
    }

    /// Creates a collection at a location.
    ///
    /// # Errors
    /// As [`Collection::create`].
    pub fn create_in(
        place: CollectionLocation,
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
            calibrations: Vec::new(),
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
        Collection::open_in(CollectionLocation::at(path, &options.store)?, options)
    }

    /// Opens the collection at a location.
    ///
    /// # Errors
    /// As [`Collection::open`].
    pub fn open_in(
        place: CollectionLocation,
        options: &CollectionOptions,
    ) -> Result<Collection, CollectionError> {
        check(options)?;
        Collection::of(Shared::open(place, options.clone(), None)?, options)
    }

    /// Removes the collection at `path`, a folder or an address. Returns its size; `None` if an interrupted
    /// call had removed all rows, and this one removed the rest. Files of others in the folder stay there.
    ///
    /// Open collections go on reading what they have open, and find that the collection is gone when they
    /// read anything else. If the call is interrupted, either the whole collection can still be opened or
    /// nothing, and the next call removes the rest.
    ///
    /// # Errors
    /// [`CollectionError::Busy`] if the collection has a writer; in a bucket, a writer of another process is
    /// not seen, and its next write fails. [`CollectionError::NotACollection`];
    /// [`CollectionError::LaterVersion`]; [`CollectionError::Store`].
    pub fn remove(
        path: impl AsRef<Path>,
        store: &StoreOptions,
    ) -> Result<Option<RemovedCollection>, CollectionError> {
        match remove_at(&CollectionLocation::at(path, store)?)? {
            RemovedKind::Collection(removed) => Ok(Some(removed)),
            _ => Ok(None),
        }
    }

    /// Opens an older version of the collection at `path`, as it was when it was published. The version must
    /// have been kept. The returned collection is read-only.
    ///
    /// # Errors
    /// [`CollectionError::Parameter`] that lists the existing versions; otherwise as [`Collection::open`].
    pub fn open_version(
        path: impl AsRef<Path>,
        number: u64,
        options: &CollectionOptions,
    ) -> Result<Collection, CollectionError> {
        check(options)?;
        let place = CollectionLocation::at(path, &options.store)?;
        Collection::of(Shared::open(place, options.clone(), Some(number))?, options)
    }

    fn of(shared: Shared, options: &CollectionOptions) -> Result<Collection, CollectionError> {
        let audit = options.audit.map(CollectionAudit::start).transpose()?;
        Ok(Collection { audit, shared: Arc::new(shared) })
    }

    /// Returns the folder or the address.
    pub fn path(&self) -> &Path {
        self.shared.content.place.path()
    }

    /// Returns true if every read of the store is a request over the network.
    pub(crate) fn is_remote(&self) -> bool {
        self.shared.content.place.is_remote()
    }

    /// Returns the schema.
    pub fn schema(&self) -> Schema {
        self.shared.content.state().schema().clone()
    }

    /// Returns the numbers of the versions that are kept.
    ///
    /// # Errors
    /// [`CollectionError::Store`].
    pub fn versions(&self) -> Result<Vec<u64>, CollectionError> {
        numbers(&self.shared.content.place)
    }

    /// Returns the current content of the collection. Later writes do not change the snapshot.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.shared.content.state())
    }

    /// Adds rows with new ids: all of them or none, however many there are.
    ///
    /// # Errors
    /// [`CollectionError::Duplicate`]; [`CollectionError::Busy`] and [`CollectionError::Fenced`] if another
    /// writer exists; [`CollectionError::Parameter`] for more rows than a segment holds.
    pub fn add(&self, rows: Rows) -> Result<Written, CollectionError> {
        self.shared.write(Operation::Add(rows))
    }

    /// Replaces the rows that have the ids of `rows`, and adds the others.
    ///
    /// # Errors
    /// As [`Collection::add`]; [`CollectionError::Duplicate`] if an id occurs twice in `rows`.
    pub fn upsert(&self, rows: Rows) -> Result<Written, CollectionError> {
        self.shared.write(Operation::Upsert(rows))
    }

    /// Changes the metadata of the rows with these ids. Columns that `columns` lacks keep their values.
    ///
    /// # Errors
    /// As [`Collection::upsert`].
    pub fn update(&self, ids: Ids, columns: RecordBatch) -> Result<Written, CollectionError> {
        self.shared.write(Operation::Update(ids, columns))
    }

    /// Deletes the rows with these ids; unknown ids are counted as missing.
    ///
    /// # Errors
    /// As [`Collection::upsert`].
    pub fn delete(&self, ids: Ids) -> Result<Written, CollectionError> {
        self.shared.write(Operation::Delete(ids))
    }

    /// Deletes the rows that match `filter`.
    ///
    /// # Errors
    /// As [`Collection::upsert`]. [`CollectionError::Filter`] and [`CollectionError::Parameter`] for a filter
    /// that does not fit the schema, and for an [empty](Filter::is_empty) one: use the filter `true` to
    /// delete all rows. Cancellation and deadline of `control`, until the matching rows are known; then
    /// nothing is deleted.
    pub fn delete_matching(&self, filter: &Filter, control: Control<'_>) -> Result<Written, CollectionError> {
        if filter.is_empty() {
            return Err(CollectionError::Parameter(EMPTY_DELETION.to_string()));
        }
        let filter = filter.bind(self.shared.content.state().schema())?;
        self.shared.delete_matching(filter, &control)
    }

    /// Answers all `queries`.
    ///
    /// # Errors
    /// [`CollectionError::Parameter`] for a request that does not fit the schema; damage and device errors;
    /// cancellation and deadline of `control`.
    pub fn search(
        &self,
        queries: &VectorFile,
        request: &SearchRequest,
        control: Control<'_>,
    ) -> Result<FoundRows, CollectionError> {
        let outcome = match &self.audit {
            None => self.read_current(|now| now.search(queries, request, control)),
            Some(audit) => self.search_watched(audit, queries, request, control),
        };
        self.shared.content.counters.count(queries.count(), &outcome);
        outcome
    }

    fn search_watched(
        &self,
        audit: &CollectionAudit,
        queries: &VectorFile,
        request: &SearchRequest,
        control: Control<'_>,
    ) -> Result<FoundRows, CollectionError> {
        let watched = audit.watched(request);
        let request = watched.request(request);
        let (answers, state) = self.read_current(|now| {
            let state = now.state();
            Ok((state.search(queries, request, control)?, state.clone()))
        })?;
        audit.add(&watched, (queries, request), &state, answers)
    }

    /// Measures which effort reaches which recall with `queries` in every segment, and publishes the result.
    /// From then on, searches that ask for a recall use it. The collection keeps the queries, up to 1,000 of
    /// them: segments to come are measured with them before searches see them.
    ///
    /// Use it if queries have another source than the vectors. Rows in memory and small segments are compared
    /// one by one, so nothing is measured there. Deleted rows count until a merge drops them.
    ///
    /// # Errors
    /// [`CollectionError::Parameter`] for queries or options that do not fit; [`CollectionError::Busy`] and
    /// [`CollectionError::Fenced`] if another writer exists; [`CollectionError::Cancelled`] by `progress`;
    /// damage and device errors. After [`CollectionError::Store`], the calibration may or may not be
    /// published.
    pub fn calibrate(
        &self,
        queries: &VectorFile,
        options: &CollectionCalibration,
        progress: &dyn Progress,
    ) -> Result<CalibrationReport, CollectionError> {
        self.shared.calibrate(queries, options, progress)
    }

    /// Removes the calibration `name` of a vector field; `None` means the only field. Returns false if there
    /// is none of this name.
    ///
    /// # Errors
    /// As [`Collection::calibrate`].
    pub fn remove_calibration(&self, name: &str, field: Option<&str>) -> Result<bool, CollectionError> {
        self.shared.remove_calibration(name, field)
    }

    /// Answers `queries` by searches for some recalls, and exactly by comparing all live rows that match the
    /// filter, in segments and in memory. Reports the recall that each of the searches found, with its
    /// confidence interval. All answers are those of one moment.
    ///
    /// # Errors
    /// [`CollectionError::Parameter`] for queries or a request that do not fit, and if no row matches; damage
    /// and device errors; [`CollectionError::Cancelled`] by `progress`.
    pub fn audit(
        &self,
        queries: &VectorFile,
        request: &CollectionAuditRequest,
        progress: &dyn Progress,
    ) -> Result<AuditReport, CollectionError> {
        self.read_current(|now| now.audit(queries, request, progress))
    }

    /// Opens the indexes of all segments, and answers queries that are made from them, so that later searches
    /// find their memory and their pages. `request` is like those of the later searches; without a field, all
    /// fields are searched.
    ///
    /// # Errors
    /// As [`Collection::search`].
    pub fn warm(&self, request: &SearchRequest, control: Control<'_>) -> Result<WarmReport, CollectionError> {
        self.read_current(|now| now.warm(request, control))
    }

    /// Returns the size of the collection, and the counters of the searches of this handle, except those of
    /// snapshots.
    pub fn stats(&self) -> CollectionStats {
        CollectionStats {
            description: self.describe(),
            searches: self.shared.content.counters.now(),
            audit: self.audit.as_ref().map(CollectionAudit::stats),
        }
    }

    /// Returns the paths or addresses of the indexes of all segments.
    pub fn index_paths(&self) -> Vec<PathBuf> {
        let (state, mut paths) = (self.shared.content.state(), Vec::new());
        for segment in &state.segments {
            let name = &segment.segment.entry().name;
            let fields = 0..state.schema().vectors.len();
            paths.extend(
                fields.map(|field| self.path().join(Part::Segment(name.clone(), Some(field)).name())),
            );
        }
        paths
    }

    /// Returns the rows with these ids, in the order of `ids`; unknown ids are left out.
    ///
    /// # Errors
    /// As [`Snapshot::get`].
    pub fn get(
        &self,
        ids: &Ids,
        what: &Projection,
        control: Control<'_>,
    ) -> Result<RowsById, CollectionError> {
        self.read_current(|now| now.get(ids, what, control))
    }

    /// Counts the rows, or those that match `filter`.
    ///
    /// # Errors
    /// As [`Snapshot::count`].
    pub fn count(&self, filter: Option<&Filter>, control: Control<'_>) -> Result<u64, CollectionError> {
        self.read_current(|now| now.count(filter, control))
    }

    /// Returns the rows, or those that match `filter`, in the order of their ids, beginning after the id
    /// `after`.
    ///
    /// # Errors
    /// As [`Snapshot::scan`].
    pub fn scan(
        &self,
        filter: Option<&Filter>,
        what: &Projection,
        after: Option<&Id>,
        control: Control<'_>,
    ) -> Result<Scan, CollectionError> {
        self.read_current(|now| now.scan(filter, what, after, control))
    }

    /// Writes the rows in memory as a segment.
    ///
    /// # Errors
    /// [`CollectionError::Store`]; no row is lost.
    pub fn flush(&self) -> Result<(), CollectionError> {
        self.shared.flush_all(None)
    }

    /// Writes the rows in memory as a segment, merges segments, and frees the space of deleted rows.
    ///
    /// # Errors
    /// [`CollectionError::Cancelled`] by `progress`; [`CollectionError::Store`]. The content of the
    /// collection is unchanged.
    pub fn compact(
        &self,
        options: &CompactOptions,
        progress: &dyn Progress,
    ) -> Result<CompactionReport, CollectionError> {
        self.shared.compact(options, progress)
    }

    /// Waits until background writes and merges of segments are done. A background failure is not returned
    /// here: later writes try again.
    pub fn settle(&self) {
        self.shared.background.settle();
    }

    /// Stops background work. Writes that wait for it return [`CollectionError::Cancelled`]. Acknowledged
    /// writes are kept. No segment is written any more until the collection is opened again.
    pub fn stop(&self) {
        self.shared.background.stop();
    }

    /// Loads the changes that other processes have written since the collection was opened or last refreshed.
    /// Returns true if there were any.
    ///
    /// # Errors
    /// [`CollectionError::Store`].
    pub fn refresh(&self) -> Result<bool, CollectionError> {
        self.shared.refresh()
    }

    /// Gives up writing. The next write of this handle takes over again, from whoever writes then. Until it
    /// does, [`Collection::refresh`] loads what others write. Segments that are being written or merged in
    /// the background are not published any more; their rows are in the log or in other segments.
    pub fn release(&self) {
        self.shared.release();
    }

    /// Returns the size in bytes of the largest batch that goes through the log and memory. A larger batch is
    /// written as a segment at once.
    pub fn largest_batch_bytes(&self) -> u64 {
        self.shared.content.options.largest_batch_bytes()
    }

    /// Reads the current content. If the writing process has removed files of it in the meantime, refreshes
    /// and reads again.
    pub(crate) fn read_current<T>(
        &self,
        read: impl Fn(&Snapshot) -> Result<T, CollectionError>,
    ) -> Result<T, CollectionError> {
        self.shared.background.note_reading();
        match read(&self.snapshot()) {
            Err(error) if error.has_moved() && self.refresh()? => read(&self.snapshot()),
            outcome => outcome,
        }
    }

    /// Copies the current content to `path`, while others go on writing. `path` is a folder or an address
    /// without a collection. If an interrupted copy has left files there, this call continues it.
    ///
    /// # Errors
    /// [`CollectionError::Exists`]; [`CollectionError::Cancelled`] by `progress`; [`CollectionError::Store`].
    pub fn copy_to(
        &self,
        path: impl AsRef<Path>,
        store: &StoreOptions,
        progress: &dyn Progress,
    ) -> Result<CopiedCollection, CollectionError> {
        self.shared.content.copy(&CollectionLocation::at(path, store)?, progress)
    }

    /// Copies all undamaged rows of the damaged collection at `path` to `to`, an empty folder or address.
    /// Returns a report of the losses. The damaged collection is only read; nobody should write to it in the
    /// meantime. `to_store` holds the store options of `to`. `options` holds those of `path`, and the memory
    /// and threads for rebuilding indexes.
    ///
    /// # Errors
    /// [`CollectionError::Exists`]; [`CollectionError::NotACollection`]; [`CollectionError::Damaged`] if no
    /// version can be read and `what` does not ask for uncertain rows; [`CollectionError::LaterVersion`];
    /// [`CollectionError::Cancelled`] by `progress`; [`CollectionError::Store`]. After an error, `to` holds
    /// no collection.
    pub fn repair(
        path: impl AsRef<Path>,
        options: &CollectionOptions,
        (to, to_store): (impl AsRef<Path>, &StoreOptions),
        what: &RepairOptions,
        progress: &dyn Progress,
    ) -> Result<RepairReport, CollectionError> {
        let places = (&CollectionLocation::at(path, &options.store)?, &CollectionLocation::at(to, to_store)?);
        repair(places, options, what, progress)
    }

    /// Repairs from the first location to the second.
    ///
    /// # Errors
    /// As [`Collection::repair`].
    pub fn repair_in(
        places: (&CollectionLocation, &CollectionLocation),
        options: &CollectionOptions,
        what: &RepairOptions,
        progress: &dyn Progress,
    ) -> Result<RepairReport, CollectionError> {
        repair(places, options, what, progress)
    }

    /// Describes the collection and its segments.
    pub fn describe(&self) -> Description {
        let state = self.shared.content.state();
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
            rows_in_memory: state.memtables.iter().map(|memory| u64::from(memory.live())).sum(),
            memory_bytes: state.memory_bytes(),
            held_bytes: state.segments.iter().map(|segment| segment.segment.held_bytes()).sum(),
            bytes: state.segments.iter().map(|segment| segment.segment.entry().bytes).sum(),
            space_amplification: state.space_amplification(),
            written: self.shared.content.written_bytes(),
            segments: segments.collect(),
            calibrations: state.version.calibrations.iter().map(CalibrationDescription::of).collect(),
        }
    }

    /// Checks every byte of every segment, and the queries of calibrations. Returns a sentence for each
    /// fault.
    ///
    /// # Errors
    /// [`CollectionError::Cancelled`] by `progress`; [`CollectionError::Store`].
    pub fn verify(&self, progress: &dyn Progress) -> Result<Vec<String>, CollectionError> {
        let state = self.shared.content.state();
        let mut faults = Vec::new();
        for segment in &state.segments {
            faults.extend(segment.segment.verify(progress)?);
        }
        for entry in &state.version.calibrations {
            let field = state.schema().field(Some(&entry.field))?;
            match read_sample(&self.shared.content.place, entry, &state.schema().vectors[field]) {
                Ok(_) => {}
                Err(error) if error.is_loss() => faults.push(error.to_string()),
                Err(error) => return Err(error),
            }
        }
        Ok(faults)
    }
}

impl Drop for Collection {
    fn drop(&mut self) {
        // Its thread may hold states, whose segments could not be removed.
        self.audit = None;
        self.shared.close();
    }
}

/// Returns true if a collection is at `path`; false also if the store cannot be read.
pub fn is_collection(path: impl AsRef<Path>, store: &StoreOptions) -> bool {
    CollectionLocation::at(path, store)
        .and_then(|place| numbers(&place))
        .is_ok_and(|versions| !versions.is_empty())
}

/// Checks the memory limits of the options.
fn check(options: &CollectionOptions) -> Result<(), CollectionError> {
    if options.write_memory_bytes < LEAST_WRITE_MEMORY_BYTES {
        return Err(CollectionError::Memory {
            what: "memory for writes",
            needed: LEAST_WRITE_MEMORY_BYTES,
            given: options.write_memory_bytes,
            advice: "allow at least that much".into(),
        });
    }
    if options.index.audit.is_some() {
        let what =
            "searches of segments are not audited one by one; pass the audit as an option of the collection";
        return Err(CollectionError::Parameter(what.into()));
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
