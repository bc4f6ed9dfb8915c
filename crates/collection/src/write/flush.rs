//! From memory to a segment: what came so far is frozen, the log goes on in another one, and the frozen rows are written in the
//! order of their ids, beside the writes that go on.

use super::rank::{Rank, yielding};
use super::shared::{Shared, Writing};
use super::traffic::Traffic;
use crate::error::CollectionError;
use crate::memory::Memory;
use crate::place::Place;
use crate::segment::{Merged, Segment, SegmentPart, SegmentWriter, WriteOptions, stored_beside};
use crate::state::{Located, SegmentState, State};
use crate::version::{SegmentEntry, random_digits};
use bathyal_index::StoredBefore;
use bathyal_tier::process::Share;
use bathyal_vectors::progress::Progress;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

/// Rows that are handed to a segment's writer at once.
pub(super) const ROWS_AT_ONCE: usize = 4096;
/// The family of segments that are written in haste.
const FLAT: &str = "flat";

/// Queries of the calibration of a segment that writes wait for, which takes most of the time beyond that. What a segment finds too
/// little another one finds too much, and all is measured again when they are merged.
const HASTY_QUERIES: usize = 250;

/// How far the writing of a segment from memory is.
#[derive(Debug, Default)]
pub(super) enum Flush {
    /// There is nothing to write.
    #[default]
    Idle,
    /// Memory was frozen; somebody writes it.
    Running,
    /// It could not be written; who waits for it is told, and it is tried again.
    Failed(CollectionError, Arc<Frozen>),
    /// It is to be tried again.
    Waiting(Arc<Frozen>),
}

/// Memory as it was frozen.
#[derive(Debug)]
pub(super) struct Frozen {
    memory: Memory,
    /// The last record that is in it.
    through: u64,
    /// When the writing was acquired under which it was frozen.
    epoch: u64,
    /// Whether writes may have to wait for its segment, which is flat then, however many rows it has: codes alone are made in a third
    /// of the time, and searched until a compaction makes what the schema says (docs/decisions/collections.md).
    hasty: bool,
}

/// Ends the writing of a segment that nobody was to wait for when somebody does, or when it gets no core, to be begun anew with all cores.
struct Unhurried<'a>(&'a Shared);

impl Progress for Unhurried<'_> {
    fn stage(&self, _name: &str, _total: u64) {}

    fn advance(&self, _done: u64) {}

    fn cancelled(&self) -> bool {
        self.0.hurried.load(Ordering::Relaxed) || Stopping(self.0).cancelled()
    }
}

/// Ends the writing of a segment when the user wants all to end. Closing a collection waits for it: it is soon done, and would be
/// done again after each opening.
pub(super) struct Stopping<'a>(pub(super) &'a Shared);

impl Progress for Stopping<'_> {
    fn stage(&self, _name: &str, _total: u64) {}

    fn advance(&self, _done: u64) {}

    fn cancelled(&self) -> bool {
        self.0.stopping.load(Ordering::Relaxed)
    }
}

impl Stopping<'_> {
    /// [`CollectionError::Cancelled`] if all is to end.
    pub(super) fn check(&self) -> Result<(), CollectionError> {
        if self.cancelled() { Err(CollectionError::Cancelled) } else { Ok(()) }
    }
}

impl Shared {
    /// Waits until there is room in memory for further rows. The segment that is to be written for it has such a `share` of the cores;
    /// without, it has as much of them as others. It is `hasty` where further rows come.
    pub(super) fn make_room<'a>(
        self: &'a Arc<Self>,
        mut writing: MutexGuard<'a, Writing>,
        (share, hasty): (Option<Share>, bool),
    ) -> (MutexGuard<'a, Writing>, Result<(), CollectionError>) {
        loop {
            // The log may have failed while another one was waited for.
            if let Err(error) = self.acquire(&mut writing) {
                return (writing, Err(error));
            }
            match std::mem::take(&mut writing.flush) {
                Flush::Idle => break,
                Flush::Running => {
                    writing.flush = Flush::Running;
                    if share.is_none() {
                        self.hurried.store(true, Ordering::Relaxed);
                    }
                    writing = self.flushed.wait(writing).unwrap_or_else(|poisoned| poisoned.into_inner());
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

    /// Freezes memory; the log goes on in another one.
    fn freeze(&self, writing: &mut Writing, hasty: bool) -> Result<Arc<Frozen>, CollectionError> {
        let state = self.state();
        let Some(log) = &mut writing.log else {
            return Err(CollectionError::Internal("memory is frozen without a log".into()));
        };
        if let Err(error) = log.rotate() {
            writing.log = None;
            return Err(error);
        }
        Traffic::add(&self.traffic.log, log.take_appended());
        let through = log.last();
        let memory = state.memories.last().cloned().unwrap_or_default();
        let frozen = Arc::new(Frozen { memory, through, epoch: writing.epoch, hasty });
        let mut next = (*state).clone();
        next.freeze(through);
        self.show(next);
        Ok(frozen)
    }

    /// Writes frozen memory, here or in a thread of its own.
    fn start<'a>(
        self: &'a Arc<Self>,
        mut writing: MutexGuard<'a, Writing>,
        frozen: Arc<Frozen>,
        share: Option<Share>,
    ) -> MutexGuard<'a, Writing> {
        writing.flush = Flush::Running;
        self.hurried.store(share.is_none(), Ordering::Relaxed);
        if self.options.background {
            let (shared, own) = (self.clone(), frozen.clone());
            let begun = writing.begin_beside("bathyal-flush", move || {
                shared.run(&own, share);
                if shared.options.compact {
                    shared.compact_some();
                }
            });
            if begun {
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

    /// Writes frozen memory and says how that went.
    fn run(&self, frozen: &Arc<Frozen>, share: Option<Share>) {
        let outcome = self.flush(frozen, share);
        let done = outcome.is_ok();
        let mut writing = self.writing();
        if writing.epoch == frozen.epoch {
            writing.flush = match outcome {
                Ok(()) => Flush::Idle,
                Err(CollectionError::Cancelled) if share.is_some() && !Stopping(self).cancelled() => {
                    self.starved.note();
                    Flush::Waiting(frozen.clone())
                }
                Err(error) => Flush::Failed(error, frozen.clone()),
            };
        }
        drop(writing);
        self.flushed.notify_all();
        if done {
            self.clean();
        }
    }

    fn flush(&self, frozen: &Frozen, share: Option<Share>) -> Result<(), CollectionError> {
        let state = self.state().without_memory();
        let sorted = frozen.memory.sorted()?;
        let name = self.segment_name();
        let _written = self.segments.begin(name.clone());
        let usual = self.options.of_writing();
        let flat_below_rows = if frozen.hasty { usize::MAX } else { usual.flat_below_rows };
        let flat = state.schema().vectors.iter().all(|field| field.family == FLAT);
        let hasty = frozen.hasty && sorted.len() >= usual.flat_below_rows && !flat;
        let calibration_queries = if frozen.hasty { HASTY_QUERIES } else { usual.calibration_queries };
        let options = WriteOptions { flat_below_rows, calibration_queries, ..usual };
        let entry = match sorted.is_empty() {
            true => None,
            false => Some(match share {
                None => self.write_memory((&state, frozen), (name, &sorted), &options, &Stopping(self))?,
                Some(share) => {
                    let threads = self.options.threads_of_merging(false);
                    let options = WriteOptions { threads, ..options };
                    yielding(Rank { share, starved: &self.hurried }, || {
                        self.write_memory((&state, frozen), (name, &sorted), &options, &Unhurried(self))
                    })?
                }
            }),
        };
        let entry = entry.map(|entry| SegmentEntry { hasty, ..entry });
        let mut writing = self.writing();
        let epoch = writing.epoch;
        let Some(log) = writing.log.as_mut().filter(|_| epoch == frozen.epoch) else {
            // What the log holds has been read since, or will be: what was frozen here is among it.
            let (path, reason) =
                (self.place.path().to_path_buf(), "a write to the log has failed meanwhile".into());
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
        let memory = next.memories.remove(0);
        if let Some(entry) = version.segments.last().filter(|_| entry.is_some()) {
            let open = self.open_segment(&state, entry);
            let mut segment = SegmentState::new(open, Default::default());
            let since = (0..).zip(&sorted).filter(|(_, row)| memory.deleted().has(**row));
            since.for_each(|(row, _)| {
                segment.delete(row);
            });
            next.segments.push(segment);
        }
        next.version = Arc::new(version);
        self.show(next);
        Ok(())
    }

    /// Writes the rows `sorted` of memory as a segment.
    fn write_memory(
        &self,
        (state, frozen): (&State, &Frozen),
        (name, sorted): (String, &[u32]),
        options: &WriteOptions,
        progress: &dyn Progress,
    ) -> Result<SegmentEntry, CollectionError> {
        // A state that holds nothing else.
        let mut alone = State::of(state.version.clone(), Vec::new());
        alone.memories = vec![frozen.memory.clone()];
        let mut rows = sorted.chunks(ROWS_AT_ONCE);
        self.write_segment(
            (&self.place, name, options),
            &alone,
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

    /// A segment that this handle has written, of the collection that `state` is of.
    pub(super) fn open_segment(&self, state: &State, entry: &SegmentEntry) -> Arc<Segment> {
        let others: u64 = state.segments.iter().map(|segment| segment.segment.entry().bytes).sum();
        let (bytes, segments) = (entry.bytes, 1 + state.segments.len() as u64);
        let part = SegmentPart { bytes, all_bytes: others + bytes, segments };
        let schema = Arc::new(state.schema().clone());
        self.segments.segment(&self.place, (&self.options, part), &schema, entry)
    }

    /// The name of a new segment: the number is for people.
    pub(super) fn segment_name(&self) -> String {
        format!("s-{}-{}", self.state().version.next_segment, random_digits(8))
    }

    /// Writes rows as the segment of a name, as `next` names them, in the order of their ids, until it names none. Where segments are
    /// merged it is said of what, so that another one can go on with it.
    pub(super) fn write_segment(
        &self,
        (place, name, options): (&Place, String, &WriteOptions),
        state: &State,
        (mut next, merged): (impl FnMut() -> Result<Vec<Located>, CollectionError>, Option<&Merged>),
        progress: &dyn Progress,
    ) -> Result<SegmentEntry, CollectionError> {
        let version = &state.version;
        let schema = Arc::new(version.schema.clone());
        let mut writer = SegmentWriter::begin(place, schema, &version.id, name, options)?;
        writer = match merged {
            Some(merged) => writer.merging(merged.clone()),
            None => writer.beside(self.stored_beside(&self.state())),
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

    /// What the fields of new rows are told of the largest segment, which they will be merged with one day.
    pub(super) fn stored_beside(&self, state: &State) -> Vec<Option<StoredBefore>> {
        let entries = state.segments.iter().map(|segment| segment.segment.entry());
        let largest = entries.max_by_key(|entry| entry.rows).map(|entry| entry.name.as_str());
        stored_beside(&self.place, state.schema(), largest)
    }

    /// Writes what is in memory as a segment, with such a `share` of the cores, and waits until it is there.
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
                    writing = self.flushed.wait(writing).unwrap_or_else(|poisoned| poisoned.into_inner());
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
    fn a_segment_that_somebody_waits_for_is_begun_anew_with_all_cores() {
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
        let place = Place::at(folder.path().join("c"), &options.store).unwrap();
        let shared = Arc::new(Shared::open(place, options, None).unwrap());
        let frozen = {
            let mut writing = shared.writing();
            shared.acquire(&mut writing).unwrap();
            writing.flush = Flush::Running;
            shared.freeze(&mut writing, true).unwrap()
        };
        let held = || {
            let state = shared.state();
            (state.segments.len(), Snapshot::new(state).count(None, Control::default()).unwrap())
        };
        shared.hurried.store(true, Ordering::Relaxed);
        shared.run(&frozen, Some(Share::Rest));
        assert!(matches!(shared.writing().flush, Flush::Waiting(_)));
        assert_eq!(held(), (0, 10));
        // Whoever waits begins it.
        shared.flush_all(None).unwrap();
        assert!(matches!(shared.writing().flush, Flush::Idle));
        assert_eq!(held(), (1, 10));
    }

    #[test]
    fn memory_is_written_by_a_thread_of_its_own_while_another_one_merges() {
        let folder = tempfile::tempdir().unwrap();
        let schema = Schema {
            id_kind: IdKind::Number,
            vectors: vec![VectorField::new("v", 4, Element::U8, Metric::L2)],
            columns: Vec::new(),
        };
        let options = CollectionOptions::default();
        drop(Collection::create(folder.path().join("c"), schema.clone(), &options).unwrap());
        let place = Place::at(folder.path().join("c"), &options.store).unwrap();
        let shared = Arc::new(Shared::open(place, options, None).unwrap());
        let (end, ends) = std::sync::mpsc::channel::<()>();
        assert!(shared.writing().begin_beside("merges", move || {
            let _ = ends.recv();
        }));
        let vectors = VectorFile::from_rows(Element::U8, 4, (0..40).collect()).unwrap();
        let ids = Ids::Numbers((0..10).collect::<Vec<u64>>().into());
        let rows = Rows::new(&schema, ids, vec![vectors], None).unwrap();
        shared.write(crate::write::Operation::Add(rows)).unwrap();
        shared.flush_all(None).unwrap();
        assert_eq!((shared.state().segments.len(), shared.writing().beside.len()), (1, 2));
        end.send(()).unwrap();
        shared.settle();
        assert!(shared.writing().beside.is_empty());
    }
}
