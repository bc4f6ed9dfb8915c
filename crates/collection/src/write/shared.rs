//! What all handles and threads of an open collection share.

use super::flush::Flush;
use super::segments::Segments;
use super::traffic::{Traffic, WrittenBytes};
use crate::bits::RowBits;
use crate::error::CollectionError;
use crate::log::{Acquired, LogReader, LogWriter, Progress};
use crate::options::CollectionOptions;
use crate::place::Place;
use crate::segment::SegmentPart;
use crate::state::{SegmentState, State};
use crate::version::{self, Version};
use roaring::RoaringBitmap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::JoinHandle;

/// Looks for a version that stays: the writer may move on while one is read.
const LOOKS: usize = 10;

/// See the module's description.
pub(crate) struct Shared {
    pub(crate) place: Place,
    pub(crate) options: CollectionOptions,
    state: RwLock<Arc<State>>,
    pub(super) segments: Segments,
    pub(super) queue: super::commit::Queue,
    pub(super) writing: Mutex<Writing>,
    pub(super) wrote: super::writers::Wrote,
    pub(super) read: super::rank::Moment,
    pub(super) starved: super::rank::Moment,
    /// Told when a segment was written, or could not be.
    pub(super) flushed: Condvar,
    /// Whether somebody waits for the segment that is being written.
    pub(super) hurried: AtomicBool,
    /// Told when batches that were taken from the queue have their answers.
    pub(super) answered: Condvar,
    /// Held by whoever merges segments.
    pub(super) merging: Mutex<()>,
    /// Held by whoever removes what is not needed any more.
    pub(super) cleaning: Mutex<()>,
    /// What of the logs the state holds, where others write them.
    reader: Mutex<Option<LogReader>>,
    pub(super) traffic: Traffic,
    /// Whether the last handle is being dropped.
    pub(super) closing: AtomicBool,
    /// Whether the user wants all to end.
    pub(super) stopping: AtomicBool,
}

/// What the one that writes has.
#[derive(Default)]
pub(super) struct Writing {
    /// `None` before the first write, and where it is not known what the last one did.
    pub(super) log: Option<LogWriter>,
    pub(super) flush: Flush,
    /// Whether a large batch is about to be published: nobody else writes until then.
    pub(super) reserved: bool,
    /// Large batches under way: the log is kept for them.
    pub(super) large: u32,
    /// Counts how often the writing was acquired.
    pub(super) epoch: u64,
    /// What is done beside the writes: at most one writes memory as a segment, and one merges.
    pub(super) beside: Vec<JoinHandle<()>>,
}

impl Writing {
    /// Begins something beside the writes; false if there is no thread for it.
    pub(super) fn begin_beside(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> bool {
        self.beside.extract_if(.., |thread| thread.is_finished()).for_each(|thread| drop(thread.join()));
        let spawned = std::thread::Builder::new().name(name.into()).spawn(work);
        spawned.map(|thread| self.beside.push(thread)).is_ok()
    }
}

impl Shared {
    /// Opens the latest version, or the one that is asked for.
    pub(crate) fn open(
        place: Place,
        options: CollectionOptions,
        number: Option<u64>,
    ) -> Result<Shared, CollectionError> {
        let options = options.sharing();
        let segments = Segments::new(&options);
        let (state, reader) = match number {
            Some(number) => (pinned(&place, &options, &segments, number)?, None),
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
            queue: super::commit::Queue::default(),
            writing: Mutex::default(),
            wrote: super::writers::Wrote::default(),
            read: super::rank::Moment::default(),
            starved: super::rank::Moment::default(),
            hurried: AtomicBool::new(false),
            flushed: Condvar::new(),
            answered: Condvar::new(),
            merging: Mutex::new(()),
            cleaning: Mutex::new(()),
            traffic: Traffic::default(),
            reader: Mutex::new(reader),
            closing: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
        })
    }

    /// What the collection holds now.
    pub(crate) fn state(&self) -> Arc<State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lets searches that begin from here on see `state`.
    pub(super) fn show(&self, state: State) {
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(state);
    }

    pub(super) fn writing(&self) -> MutexGuard<'_, Writing> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Becomes the one that writes, if it is not yet, with all that others have written.
    pub(super) fn acquire(&self, writing: &mut Writing) -> Result<(), CollectionError> {
        if self.reader().is_none() {
            return Err(CollectionError::Parameter(format!(
                "{}: was opened as version {}, which does not change; open it without a version to write",
                self.place.path().display(),
                self.state().version.number
            )));
        }
        if writing.log.is_some() {
            return Ok(());
        }
        self.look_for_stopped()?;
        let keep = 1 + self.options.keep_versions;
        let Acquired { writer, version, deleted, changes } =
            LogWriter::acquire(&self.place, keep, &|| self.segments.in_use())?;
        let mut state = with_segments(&self.place, &self.options, &self.segments, version, &deleted);
        for (sequence, change) in changes {
            state.apply(sequence, change)?;
        }
        writing.log = Some(writer);
        writing.flush = Flush::default();
        writing.epoch += 1;
        self.show(state);
        Ok(())
    }

    /// What an error means to the one that writes: what it reads is missing where another one has taken over and removed it.
    pub(super) fn judged(&self, writing: &mut Writing, error: CollectionError) -> CollectionError {
        let current = |log: &mut LogWriter| log.is_current().unwrap_or(true);
        if !error.has_moved() || writing.log.as_mut().is_none_or(current) {
            return error;
        }
        writing.log = None;
        CollectionError::Fenced { path: self.place.path().to_path_buf() }
    }

    /// Sees what another process has written. Returns whether there was anything.
    pub(crate) fn refresh(&self) -> Result<bool, CollectionError> {
        let writing = self.writing();
        let mut reader = self.reader();
        if writing.log.is_some() || reader.is_none() {
            return Ok(false);
        }
        let before = self.state();
        let newest = version::numbers(&self.place)?.last().copied();
        // Where something goes wrong, all is read anew.
        if let Some(mut going_on) = reader.take().filter(|_| newest == Some(before.version.number)) {
            let mut state = (*before).clone();
            let read = going_on.read(&mut |sequence, change| {
                // What this handle has written itself it has applied.
                if sequence > state.sequence { state.apply(sequence, change).map(|_| ()) } else { Ok(()) }
            });
            if let Ok(Progress::Now) = read {
                *reader = Some(going_on);
                let new = state.sequence > before.sequence;
                if new {
                    self.show(state);
                }
                return Ok(new);
            }
        }
        let latest = latest(&self.place, &self.options, &self.segments);
        let (state, anew) = match latest {
            Ok(latest) => latest,
            Err(error) => {
                *reader = Some(LogReader::new(&self.place, &before.version));
                return Err(error);
            }
        };
        let new = (state.sequence, state.version.number) != (before.sequence, before.version.number);
        *reader = Some(anew);
        self.show(state);
        Ok(new)
    }

    fn reader(&self) -> MutexGuard<'_, Option<LogReader>> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was written since it was opened.
    pub(crate) fn written_bytes(&self) -> WrittenBytes {
        self.traffic.bytes()
    }

    /// Waits for what goes on beside the writes.
    pub(crate) fn settle(&self) {
        let beside = std::mem::take(&mut self.writing().beside);
        for thread in beside {
            let _ = thread.join();
        }
    }

    /// Ends what goes on beside the writes, and what would.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Waits for the segment that is being written, ends merges, and gives the writing up.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        // What they leave is in the log.
        self.settle();
        self.writing().log = None;
        self.closing.store(false, Ordering::Relaxed);
    }
}

/// The state that a version describes; segments that are open stay open.
fn with_segments(
    place: &Place,
    options: &CollectionOptions,
    segments: &Segments,
    version: Version,
    deleted: &[RoaringBitmap],
) -> State {
    let version = Arc::new(version);
    let schema = Arc::new(version.schema.clone());
    let all_bytes: u64 = version.segments.iter().map(|entry| entry.bytes).sum();
    let count = version.segments.len() as u64;
    let segment = |(entry, deleted): (&version::SegmentEntry, &RoaringBitmap)| {
        let part = SegmentPart { bytes: entry.bytes, all_bytes, segments: count };
        let segment = segments.segment(place, (options, part), &schema, entry);
        SegmentState::new(segment, RowBits::of_bitmap(deleted))
    };
    let segments = version.segments.iter().zip(deleted).map(segment).collect();
    State::of(version.clone(), segments)
}

/// The latest version, and what the logs say beyond it.
fn latest(
    place: &Place,
    options: &CollectionOptions,
    segments: &Segments,
) -> Result<(State, LogReader), CollectionError> {
    let mut failure = None;
    for _ in 0..LOOKS {
        let Some(number) = version::numbers(place)?.last().copied() else {
            let reason =
                "there is no version of one in it; create one with `bathyal collection create`".into();
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
            Ok((state, reader, Progress::Now)) => return Ok((state, reader)),
            // Where there is no later version, this is what is wrong.
            Ok((_, _, Progress::MovedOn(error))) => failure = Some(error),
            Err(error) if error.has_moved() => failure = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(failure.unwrap_or_else(|| {
        let reason = format!("the logs do not begin where the latest version ends, in {LOOKS} looks");
        CollectionError::damaged(place.path(), "its logs", reason)
    }))
}

/// A version alone, which does not change.
fn pinned(
    place: &Place,
    options: &CollectionOptions,
    segments: &Segments,
    number: u64,
) -> Result<State, CollectionError> {
    let numbers = version::numbers(place)?;
    if !numbers.contains(&number) {
        let kept: Vec<String> = numbers.iter().map(u64::to_string).collect();
        return Err(CollectionError::Parameter(format!(
            "{}: there is no version {number}; there is {}",
            place.path().display(),
            if kept.is_empty() { "none".into() } else { kept.join(", ") }
        )));
    }
    let (version, deleted) = Version::read(place, number)?;
    Ok(with_segments(place, options, segments, version, &deleted))
}
