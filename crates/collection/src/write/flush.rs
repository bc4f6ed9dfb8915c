//! Flush: writes a memtable as a segment. The memtable is frozen, the log is rotated, and the frozen rows are
//! written in the order of their ids while other writes continue.

use super::rank::{Priority, run_yielding};
use super::shared::{Shared, WriterState};
use super::traffic::Traffic;
use crate::error::CollectionError;
use crate::location::CollectionLocation;
use crate::memtable::MemTable;
use crate::segment::{
    MergeSources, Segment, SegmentShare, SegmentWriter, WriteOptions, largest_segment_scales,
};
use crate::state::{Located, SegmentState, State};
use crate::version::{SegmentEntry, random_digits};
use bathyal_index::StoredBefore;
use bathyal_tier::process::Share;
use bathyal_vectors::progress::Progress;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

/// Rows that are passed to a segment's writer at once.
pub(super) const ROWS_AT_ONCE: usize = 4096;
/// Family of the indexes of hasty segments.
const FLAT: &str = "flat";

/// Number of calibration queries for a segment that writes wait for; calibration takes most of the time that
/// is left. The errors of several segments average out, and a merge calibrates again.
const HASTY_QUERIES: usize = 250;

/// State of the flush.
#[derive(Debug, Default)]
pub(super) enum Flush {
    /// No memtable is frozen.
    #[default]
    Idle,
    /// A thread writes the frozen memtable.
    Running,
    /// The segment could not be written. One waiter gets the error; then the flush is tried again.
    Failed(CollectionError, Arc<FrozenMemTable>),
    /// The flush must be tried again.
    Waiting(Arc<FrozenMemTable>),
}

/// A frozen memtable.
#[derive(Debug)]
pub(super) struct FrozenMemTable {
    memtable: MemTable,
    /// Sequence number of the last record in it.
    through: u64,
    /// The value of [`WriterState::epoch`] when it was frozen.
    epoch: u64,
    /// True if writes may have to wait for the segment. Its indexes are then flat whatever its size: building
    /// only codes takes a third of the time. A later compaction builds the family of the schema
    /// (docs/decisions/collections.md).
    hasty: bool,
}

/// Cancels a low-priority flush when a write waits for it. It is then started again with all cores.
struct UntilUrgent<'a>(&'a Shared);

impl Progress for UntilUrgent<'_> {
    fn stage(&self, _name: &str, _total: u64) {}

    fn advance(&self, _done: u64) {}

    fn cancelled(&self) -> bool {
        self.0.flush_is_urgent.load(Ordering::Relaxed) || UntilStopped(self.0).cancelled()
    }
}

/// Cancels a flush after `stop()`. Closing the collection does not cancel it: it ends soon, and would
/// otherwise be done again after each opening.
pub(super) struct UntilStopped<'a>(pub(super) &'a Shared);

impl Progress for UntilStopped<'_> {
    fn stage(&self, _name: &str, _total: u64) {}

    fn advance(&self, _done: u64) {}

    fn cancelled(&self) -> bool {
        self.0.stopping.load(Ordering::Relaxed)
    }
}

impl UntilStopped<'_> {
    /// Returns [`CollectionError::Cancelled`] after `stop()`.
    pub(super) fn check(&self) -> Result<(), CollectionError> {
        if self.cancelled() { Err(CollectionError::Cancelled) } else { Ok(()) }
    }
}

impl Shared {
    /// Waits until there is room in memory for further rows: starts a flush, and waits for the one before it.
    /// `share` is the flush's share of the cores; `None` means the same share as other work. `hasty` is true
    /// if further rows will follow.
    pub(super) fn make_room<'a>(
        self: &'a Arc<Self>,
        mut writing: MutexGuard<'a, WriterState>,
        (share, hasty): (Option<Share>, bool),
    ) -> (MutexGuard<'a, WriterState>, Result<(), CollectionError>) {
        loop {
            // The log may have failed while this thread waited for a flush.
            if let Err(error) = self.acquire(&mut writing) {
                return (writing, Err(error));
            }
            match std::mem::take(&mut writing.flush) {
                Flush::Idle => break,
                Flush::Running => {
                    writing.flush = Flush::Running;
                    if share.is_none() {
                        self.flush_is_urgent.store(true, Ordering::Relaxed);
                    }
                    writing = self.flush_ended.wait(writing).unwrap_or_else(|poisoned| poisoned.into_inner());
                }
                Flush::Failed(error, frozen) => {
                    writing.flush = Flush::Waiting(frozen);
                    return (writing, Err(error));
                }
                Flush::Waiting(frozen) => writing = self.start(writing, frozen, None),
            }
        }
        let state = self.state();
        if state.sequence == state.version.through {
            return (writing, Ok(()));
        }
        match self.freeze(&mut writing, hasty) {
            Ok(frozen) => (self.start(writing, frozen, share), Ok(())),
            Err(error) => (writing, Err(error)),
        }
    }

    /// Freezes the memtable and rotates the log.
    fn freeze(&self, writing: &mut WriterState, hasty: bool) -> Result<Arc<FrozenMemTable>, CollectionError> {
        let state = self.state();
        let Some(log) = &mut writing.log else {
            return Err(CollectionError::Internal("a memtable is frozen without a log".into()));
        };
        if let Err(error) = log.rotate() {
            writing.log = None;
            return Err(error);
        }
        Traffic::add(&self.traffic.log, log.take_appended());
        let through = log.last();
        let memtable = state.memtables.last().cloned().unwrap_or_default();
        let frozen = Arc::new(FrozenMemTable { memtable, through, epoch: writing.epoch, hasty });
        let mut next = (*state).clone();
        next.freeze(through);
        self.set_state(next);
        Ok(frozen)
    }

    /// Writes a frozen memtable, on a background thread if possible.
    fn start<'a>(
        self: &'a Arc<Self>,
        mut writing: MutexGuard<'a, WriterState>,
        frozen: Arc<FrozenMemTable>,
        share: Option<Share>,
    ) -> MutexGuard<'a, WriterState> {
        writing.flush = Flush::Running;
        self.flush_is_urgent.store(share.is_none(), Ordering::Relaxed);
        if self.options.background {
            let (shared, frozen) = (self.clone(), frozen.clone());
            let started = writing.spawn_background("bathyal-flush", move || {
                shared.run(&frozen, share);
                if shared.options.compact {
                    shared.compact_some();
                }
            });
            if started {
                return writing;
            }
        }
        drop(writing);
        self.run(&frozen, share);
        if self.options.compact {
            self.compact_some();
        }
        self.writing()
    }

    /// Writes a frozen memtable and records the result in `writing.flush`.
    fn run(&self, frozen: &Arc<FrozenMemTable>, share: Option<Share>) {
        let outcome = self.flush(frozen, share);
        let done = outcome.is_ok();
        let mut writing = self.writing();
        if writing.epoch == frozen.epoch {
            writing.flush = match outcome {
                Ok(()) => Flush::Idle,
                Err(CollectionError::Cancelled) if share.is_some() && !UntilStopped(self).cancelled() => {
                    self.last_starved.note();
                    Flush::Waiting(frozen.clone())
                }
                Err(error) => Flush::Failed(error, frozen.clone()),
            };
        }
        drop(writing);
        self.flush_ended.notify_all();
        if done {
            self.clean();
        }
    }

    fn flush(&self, frozen: &FrozenMemTable, share: Option<Share>) -> Result<(), CollectionError> {
        let state = self.state().without_memory();
        let sorted = frozen.memtable.sorted()?;
        let name = self.segment_name();
        let _written = self.segments.begin(name.clone());
        let usual_options = self.options.for_writing();
        let flat_below_rows = if frozen.hasty { usize::MAX } else { usual_options.flat_below_rows };
        let flat = state.schema().vectors.iter().all(|field| field.family == FLAT);
        let hasty = frozen.hasty && sorted.len() >= usual_options.flat_below_rows && !flat;
        let calibration_queries =
            if frozen.hasty { HASTY_QUERIES } else { usual_options.calibration_queries };
        let options = WriteOptions { flat_below_rows, calibration_queries, ..usual_options };
        let entry = match sorted.is_empty() {
            true => None,
            false => Some(match share {
                None => {
                    self.write_memory((&state, frozen), (name, &sorted), &options, &UntilStopped(self))?
                }
                Some(share) => {
                    let threads = self.options.merge_threads(false);
                    let options = WriteOptions { threads, ..options };
                    run_yielding(Priority { share, starved: &self.flush_is_urgent }, || {
                        self.write_memory((&state, frozen), (name, &sorted), &options, &UntilUrgent(self))
                    })?
                }
            }),
        };
        let entry = entry.map(|entry| SegmentEntry { hasty, ..entry });
        let mut writing = self.writing();
        let epoch = writing.epoch;
        let Some(log) = writing.log.as_mut().filter(|_| epoch == frozen.epoch) else {
            // The log is read again when it is next acquired, with the rows that were frozen here.
            let (path, reason) = (
                self.place.path().to_path_buf(),
                "another write to the log has failed in the meantime".into(),
            );
            return Err(CollectionError::NotWritten { path, reason });
        };
        let state = self.state();
        let mut version = (*state.version).clone();
        version.through = frozen.through;
        version.next_segment += 1;
        version.segments.extend(entry.clone());
        let mut deleted: Vec<_> = state.segments.iter().map(|segment| segment.frozen.to_bitmap()).collect();
        deleted.resize_with(version.segments.len(), Default::default);
        if let Err(error) = log.publish(&mut version, &deleted) {
            writing.log = None;
            return Err(error);
        }
        let mut next = (*state).clone();
        for segment in &mut next.segments {
            segment.published = segment.frozen.clone();
        }
        Traffic::add(&self.traffic.segments, entry.as_ref().map_or(0, |entry| entry.bytes));
        let memtable = next.memtables.remove(0);
        if let Some(entry) = version.segments.last().filter(|_| entry.is_some()) {
            let open = self.open_segment(&state, entry);
            let mut segment = SegmentState::new(open, Default::default());
            let since = (0..).zip(&sorted).filter(|(_, row)| memtable.deleted().has(**row));
            since.for_each(|(row, _)| {
                segment.delete(row);
            });
            next.segments.push(segment);
        }
        next.version = Arc::new(version);
        self.set_state(next);
        Ok(())
    }

    /// Writes the rows `sorted` of a frozen memtable as a segment.
    fn write_memory(
        &self,
        (state, frozen): (&State, &FrozenMemTable),
        (name, sorted): (String, &[u32]),
        options: &WriteOptions,
        progress: &dyn Progress,
    ) -> Result<SegmentEntry, CollectionError> {
        // A state with only this memtable.
        let mut memtable_state = State::from_version(state.version.clone(), Vec::new());
        memtable_state.memtables = vec![frozen.memtable.clone()];
        let mut rows = sorted.chunks(ROWS_AT_ONCE);
        self.write_segment(
            (&self.place, name, options),
            &memtable_state,
            (
                || {
                    let some = rows.next().unwrap_or_default();
                    Ok(some.iter().map(|row| Located { part: 0, row: *row }).collect())
                },
                None,
            ),
            progress,
        )
    }

    /// Opens a segment that this handle has written.
    pub(super) fn open_segment(&self, state: &State, entry: &SegmentEntry) -> Arc<Segment> {
        let others: u64 = state.segments.iter().map(|segment| segment.segment.entry().bytes).sum();
        let (bytes, segments) = (entry.bytes, 1 + state.segments.len() as u64);
        let share = SegmentShare { bytes, all_bytes: others + bytes, segments };
        let schema = Arc::new(state.schema().clone());
        self.segments.segment(&self.place, (&self.options, share), &schema, entry)
    }

    /// Returns a name for a new segment. Its number is only for people.
    pub(super) fn segment_name(&self) -> String {
        format!("s-{}-{}", self.state().version.next_segment, random_digits(8))
    }

    /// Writes a segment. `next` returns rows in the order of their ids, and none at the end. `merged`
    /// describes the merge, if the segment is one, so that a later merge can continue it.
    pub(super) fn write_segment(
        &self,
        (place, name, options): (&CollectionLocation, String, &WriteOptions),
        state: &State,
        (mut next, merged): (impl FnMut() -> Result<Vec<Located>, CollectionError>, Option<&MergeSources>),
        progress: &dyn Progress,
    ) -> Result<SegmentEntry, CollectionError> {
        let version = &state.version;
        let schema = Arc::new(version.schema.clone());
        let mut writer = SegmentWriter::begin(place, schema, &version.id, name, options)?;
        writer = match merged {
            Some(merged) => writer.with_merge_sources(merged.clone()),
            None => writer.with_largest_scales(self.largest_segment_scales(&self.state())),
        };
        let columns: Vec<usize> = (0..version.schema.columns.len()).collect();
        let fields: Vec<usize> = (0..version.schema.vectors.len()).collect();
        loop {
            let rows = next()?;
            if rows.is_empty() {
                return writer.finish(progress);
            }
            if progress.cancelled() {
                return Err(CollectionError::Cancelled);
            }
            let fetched = state.fetch(&rows, &columns, &fields, Default::default())?;
            let vectors: Vec<&[u8]> = fetched.vectors.iter().map(|vectors| &vectors.bytes[..]).collect();
            writer.push(&fetched.ids, &vectors, &fetched.columns)?;
        }
    }

    /// Returns how the fields of the largest segment are stored. New rows use the same scales, because they
    /// will be merged with it.
    pub(super) fn largest_segment_scales(&self, state: &State) -> Vec<Option<StoredBefore>> {
        let entries = state.segments.iter().map(|segment| segment.segment.entry());
        let largest = entries.max_by_key(|entry| entry.rows).map(|entry| entry.name.as_str());
        largest_segment_scales(&self.place, state.schema(), largest)
    }

    /// Writes all rows in memory as a segment, with `share` of the cores, and waits until it is published.
    pub(crate) fn flush_all(self: &Arc<Self>, share: Option<Share>) -> Result<(), CollectionError> {
        let mut writing = self.writing();
        self.acquire(&mut writing)?;
        self.note_writing();
        let room;
        (writing, room) = self.make_room(writing, (share, false));
        room?;
        loop {
            match std::mem::take(&mut writing.flush) {
                Flush::Idle => return Ok(()),
                Flush::Running => {
                    writing.flush = Flush::Running;
                    writing = self.flush_ended.wait(writing).unwrap_or_else(|poisoned| poisoned.into_inner());
                }
                Flush::Failed(error, frozen) => {
                    writing.flush = Flush::Waiting(frozen);
                    return Err(error);
                }
                Flush::Waiting(frozen) => writing = self.start(writing, frozen, None),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collection::Collection;
    use crate::ids::{IdKind, Ids};
    use crate::options::CollectionOptions;
    use crate::rows::Rows;
    use crate::schema::{Schema, VectorField};
    use crate::snapshot::Snapshot;
    use bathyal_kernels::{Element, Metric};
    use bathyal_tier::Control;
    use bathyal_vectors::VectorFile;

    #[test]
    fn a_flush_that_becomes_urgent_is_started_again_with_all_cores() {
        let folder = tempfile::tempdir().unwrap();
        let schema = Schema {
            id_kind: IdKind::Number,
            vectors: vec![VectorField::new("v", 4, Element::U8, Metric::L2)],
            columns: Vec::new(),
        };
        let options = CollectionOptions { background: false, ..CollectionOptions::default() };
        let collection = Collection::create(folder.path().join("c"), schema.clone(), &options).unwrap();
        let vectors = VectorFile::from_rows(Element::U8, 4, (0..40).collect()).unwrap();
        let ids = Ids::Numbers((0..10).collect::<Vec<u64>>().into());
        collection.add(Rows::new(&schema, ids, vec![vectors], None).unwrap()).unwrap();
        drop(collection);
        let place = CollectionLocation::at(folder.path().join("c"), &options.store).unwrap();
        let shared = Arc::new(Shared::open(place, options, None).unwrap());
        let frozen = {
            let mut writing = shared.writing();
            shared.acquire(&mut writing).unwrap();
            writing.flush = Flush::Running;
            shared.freeze(&mut writing, true).unwrap()
        };
        let content = || {
            let state = shared.state();
            (state.segments.len(), Snapshot::new(state).count(None, Control::default()).unwrap())
        };
        shared.flush_is_urgent.store(true, Ordering::Relaxed);
        shared.run(&frozen, Some(Share::Rest));
        assert!(matches!(shared.writing().flush, Flush::Waiting(_)));
        assert_eq!(content(), (0, 10));
        // A waiting caller starts the flush again.
        shared.flush_all(None).unwrap();
        assert!(matches!(shared.writing().flush, Flush::Idle));
        assert_eq!(content(), (1, 10));
    }

    #[test]
    fn a_flush_has_its_own_thread_while_another_thread_merges() {
        let folder = tempfile::tempdir().unwrap();
        let schema = Schema {
            id_kind: IdKind::Number,
            vectors: vec![VectorField::new("v", 4, Element::U8, Metric::L2)],
            columns: Vec::new(),
        };
        let options = CollectionOptions::default();
        drop(Collection::create(folder.path().join("c"), schema.clone(), &options).unwrap());
        let place = CollectionLocation::at(folder.path().join("c"), &options.store).unwrap();
        let shared = Arc::new(Shared::open(place, options, None).unwrap());
        let (end, ends) = std::sync::mpsc::channel::<()>();
        assert!(shared.writing().spawn_background("merges", move || {
            let _ = ends.recv();
        }));
        let vectors = VectorFile::from_rows(Element::U8, 4, (0..40).collect()).unwrap();
        let ids = Ids::Numbers((0..10).collect::<Vec<u64>>().into());
        let rows = Rows::new(&schema, ids, vec![vectors], None).unwrap();
        shared.write(crate::write::Operation::Add(rows)).unwrap();
        shared.flush_all(None).unwrap();
        assert_eq!((shared.state().segments.len(), shared.writing().background.len()), (1, 2));
        end.send(()).unwrap();
        shared.settle();
        assert!(shared.writing().background.is_empty());
    }
}
