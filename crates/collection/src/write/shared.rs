//! State of an open collection that all its handles and threads share.

use super::flush::Flush;
use super::segments::OpenSegments;
use super::traffic::{Traffic, WrittenBytes};
use crate::bits::RowBits;
use crate::counters::SearchCounters;
use crate::error::CollectionError;
use crate::location::CollectionLocation;
use crate::log::{Acquisition, LogReader, LogWriter, ReadOutcome};
use crate::options::CollectionOptions;
use crate::segment::SegmentShare;
use crate::state::{SegmentState, State};
use crate::version::{self, Version};
use roaring::RoaringBitmap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::JoinHandle;

/// Attempts to read the latest version; the writer may publish and remove versions in the meantime.
const READ_ATTEMPTS: usize = 10;

/// State of an open collection that all its handles and threads share.
pub(crate) struct Shared {
    pub(crate) place: CollectionLocation,
    pub(crate) options: CollectionOptions,
    state: RwLock<Arc<State>>,
    pub(super) segments: OpenSegments,
    pub(super) queue: super::commit::WriteQueue,
    pub(super) writing: Mutex<WriterState>,
    pub(super) writer_entry: super::writers::WriterEntry,
    /// The last read.
    pub(super) last_read: super::rank::LastTime,
    /// The last time that low-priority work got too little processor time.
    pub(super) last_starved: super::rank::LastTime,
    /// Notified when a segment was written from memory, or could not be written.
    pub(super) flush_ended: Condvar,
    /// True if a write waits for the segment that is being written.
    pub(super) flush_is_urgent: AtomicBool,
    /// Notified when writes have their outcomes, and when a reservation ends.
    pub(super) outcomes_ready: Condvar,
    /// Held while segments are merged.
    pub(super) merging: Mutex<()>,
    /// Held while old objects are removed.
    pub(super) cleaning: Mutex<()>,
    /// Reads the logs that another process writes. It continues where `state` ends. `None` if a single
    /// version was opened, which never changes.
    reader: Mutex<Option<LogReader>>,
    pub(super) traffic: Traffic,
    pub(crate) counters: SearchCounters,
    /// Set while the last handle is dropped.
    pub(super) closing: AtomicBool,
    /// Set by `stop()`; background work then returns [`CollectionError::Cancelled`].
    pub(super) stopping: AtomicBool,
}

/// State of the writer.
#[derive(Default)]
pub(super) struct WriterState {
    /// `None` before the first write, and after an operation whose effect on the log is unknown.
    pub(super) log: Option<LogWriter>,
    pub(super) flush: Flush,
    /// True while a large batch is published; no other write may begin.
    pub(super) reserved: bool,
    /// Number of large batches in progress; the log is kept open for them.
    pub(super) large: u32,
    /// Number of times that the log was acquired.
    pub(super) epoch: u64,
    /// Background threads: at most one writes a memtable as a segment, and one merges.
    pub(super) background: Vec<JoinHandle<()>>,
}

impl WriterState {
    /// Starts a background thread. Returns false if the system cannot start one.
    pub(super) fn spawn_background(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> bool {
        self.background.extract_if(.., |thread| thread.is_finished()).for_each(|thread| drop(thread.join()));
        let spawned = std::thread::Builder::new().name(name.into()).spawn(work);
        spawned.map(|thread| self.background.push(thread)).is_ok()
    }
}

impl Shared {
    /// Opens the latest version, or version `number`.
    pub(crate) fn open(
        place: CollectionLocation,
        options: CollectionOptions,
        number: Option<u64>,
    ) -> Result<Shared, CollectionError> {
        let options = options.with_shared_search_memory();
        let segments = OpenSegments::new(&options);
        let (state, reader) = match number {
            Some(number) => (fixed_version(&place, &options, &segments, number)?, None),
            None => {
                let (state, reader) = latest(&place, &options, &segments)?;
                (state, Some(reader))
            }
        };
        Ok(Shared {
            place,
            options,
            state: RwLock::new(Arc::new(state)),
            segments,
            queue: super::commit::WriteQueue::default(),
            writing: Mutex::default(),
            writer_entry: super::writers::WriterEntry::default(),
            last_read: super::rank::LastTime::default(),
            last_starved: super::rank::LastTime::default(),
            flush_is_urgent: AtomicBool::new(false),
            flush_ended: Condvar::new(),
            outcomes_ready: Condvar::new(),
            merging: Mutex::new(()),
            cleaning: Mutex::new(()),
            traffic: Traffic::default(),
            counters: SearchCounters::default(),
            reader: Mutex::new(reader),
            closing: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
        })
    }

    /// Returns the current state.
    pub(crate) fn state(&self) -> Arc<State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the state that later searches see.
    pub(super) fn set_state(&self, state: State) {
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(state);
    }

    pub(super) fn writing(&self) -> MutexGuard<'_, WriterState> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Becomes the writer of the collection, if it is not yet, and loads everything that others have written.
    pub(super) fn acquire(&self, writing: &mut WriterState) -> Result<(), CollectionError> {
        if self.reader().is_none() {
            return Err(CollectionError::Parameter(format!(
                "{}: was opened as version {}, which is read-only; open it without a version to write",
                self.place.path().display(),
                self.state().version.number
            )));
        }
        if writing.log.is_some() {
            return Ok(());
        }
        self.find_stopped_merges()?;
        let keep = 1 + self.options.keep_versions;
        let Acquisition { writer, version, deleted, changes } =
            LogWriter::acquire(&self.place, keep, &|| self.segments.in_use())?;
        let mut state = with_segments(&self.place, &self.options, &self.segments, version, &deleted);
        for (sequence, change) in changes {
            state.apply(sequence, change)?;
        }
        writing.log = Some(writer);
        writing.flush = Flush::default();
        writing.epoch += 1;
        self.set_state(state);
        Ok(())
    }

    /// Replaces the error by [`CollectionError::Fenced`] if it is caused by another writer: one that has
    /// taken over may have removed the object that was read.
    pub(super) fn fenced_if_superseded(
        &self,
        writing: &mut WriterState,
        error: CollectionError,
    ) -> CollectionError {
        let current = |log: &mut LogWriter| log.is_current().unwrap_or(true);
        if !error.has_moved() || writing.log.as_mut().is_none_or(current) {
            return error;
        }
        writing.log = None;
        CollectionError::Fenced { path: self.place.path().to_path_buf() }
    }

    /// Loads what another process has written. Returns true if there was anything.
    pub(crate) fn refresh(&self) -> Result<bool, CollectionError> {
        let writing = self.writing();
        let mut reader = self.reader();
        if writing.log.is_some() || reader.is_none() {
            return Ok(false);
        }
        let before = self.state();
        let newest = version::numbers(&self.place)?.last().copied();
        // After any error, everything is read again.
        if let Some(mut log_reader) = reader.take().filter(|_| newest == Some(before.version.number)) {
            let mut state = (*before).clone();
            let read = log_reader.read(&mut |sequence, change| {
                // Changes that this handle has written are applied already.
                if sequence > state.sequence { state.apply(sequence, change).map(|_| ()) } else { Ok(()) }
            });
            if let Ok(ReadOutcome::UpToDate) = read {
                *reader = Some(log_reader);
                let new = state.sequence > before.sequence;
                if new {
                    self.set_state(state);
                }
                return Ok(new);
            }
        }
        let latest = latest(&self.place, &self.options, &self.segments);
        let (state, new_reader) = match latest {
            Ok(latest) => latest,
            Err(error) => {
                *reader = Some(LogReader::new(&self.place, &before.version));
                return Err(error);
            }
        };
        let new = (state.sequence, state.version.number) != (before.sequence, before.version.number);
        *reader = Some(new_reader);
        self.set_state(state);
        Ok(new)
    }

    fn reader(&self) -> MutexGuard<'_, Option<LogReader>> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the bytes written since the collection was opened.
    pub(crate) fn written_bytes(&self) -> WrittenBytes {
        self.traffic.bytes()
    }

    /// Waits for background work.
    pub(crate) fn settle(&self) {
        let threads = std::mem::take(&mut self.writing().background);
        for thread in threads {
            let _ = thread.join();
        }
    }

    /// Stops background work, now and in future.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Waits for the segment that is being written, stops merges, and releases the log.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        // Whatever they leave unfinished is in the log.
        self.settle();
        self.writing().log = None;
        self.closing.store(false, Ordering::Relaxed);
    }
}

/// Returns the state that a version describes; segments that are open stay open.
fn with_segments(
    place: &CollectionLocation,
    options: &CollectionOptions,
    segments: &OpenSegments,
    version: Version,
    deleted: &[RoaringBitmap],
) -> State {
    let version = Arc::new(version);
    let schema = Arc::new(version.schema.clone());
    let all_bytes: u64 = version.segments.iter().map(|entry| entry.bytes).sum();
    let count = version.segments.len() as u64;
    let segment = |(entry, deleted): (&version::SegmentEntry, &RoaringBitmap)| {
        let share = SegmentShare { bytes: entry.bytes, all_bytes, segments: count };
        let segment = segments.segment(place, (options, share), &schema, entry);
        SegmentState::new(segment, RowBits::from_bitmap(deleted))
    };
    let segments = version.segments.iter().zip(deleted).map(segment).collect();
    State::from_version(version.clone(), segments)
}

/// Reads the latest version and the changes in the logs.
fn latest(
    place: &CollectionLocation,
    options: &CollectionOptions,
    segments: &OpenSegments,
) -> Result<(State, LogReader), CollectionError> {
    let mut failure = None;
    for _ in 0..READ_ATTEMPTS {
        let Some(number) = version::numbers(place)?.last().copied() else {
            let reason =
                "the folder holds no version of a collection; create one with `bathyal collection create`"
                    .into();
            return Err(CollectionError::NotACollection { path: place.path().to_path_buf(), reason });
        };
        let read = || {
            let (version, deleted) = Version::read(place, number)?;
            let mut state = with_segments(place, options, segments, version, &deleted);
            let mut reader = LogReader::new(place, &state.version);
            let read = reader.read(&mut |sequence, change| state.apply(sequence, change).map(|_| ()))?;
            Ok::<_, CollectionError>((state, reader, read))
        };
        match read() {
            Ok((state, reader, ReadOutcome::UpToDate)) => return Ok((state, reader)),
            // If there is no later version, this error is the cause.
            Ok((_, _, ReadOutcome::Superseded(error))) => failure = Some(error),
            Err(error) if error.has_moved() => failure = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(failure.unwrap_or_else(|| {
        let reason = format!("the logs do not continue the latest version, after {READ_ATTEMPTS} attempts");
        CollectionError::damaged(place.path(), "its logs", reason)
    }))
}

/// Returns the state of a version, without later changes.
fn fixed_version(
    place: &CollectionLocation,
    options: &CollectionOptions,
    segments: &OpenSegments,
    number: u64,
) -> Result<State, CollectionError> {
    let numbers = version::numbers(place)?;
    if !numbers.contains(&number) {
        let kept: Vec<String> = numbers.iter().map(u64::to_string).collect();
        return Err(CollectionError::Parameter(format!(
            "{}: there is no version {number}; the versions are: {}",
            place.path().display(),
            if kept.is_empty() { "none".into() } else { kept.join(", ") }
        )));
    }
    let (version, deleted) = Version::read(place, number)?;
    Ok(with_segments(place, options, segments, version, &deleted))
}
