//! What all handles and threads of an open collection share.

use super::flush::Flush;
use super::segments::Segments;
use crate::bits::RowBits;
use crate::error::CollectionError;
use crate::log::{self, LogWriter, ReadTo, Reading};
use crate::options::CollectionOptions;
use crate::place::Place;
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
    writing: Mutex<Writing>,
    /// Told when a segment was written, or could not be.
    pub(super) flushed: Condvar,
    /// Told when batches that were taken from the queue have their answers.
    pub(super) answered: Condvar,
    /// Held by whoever merges segments.
    pub(super) merging: Mutex<()>,
    /// What of the logs the state holds, where others write them.
    read_to: Mutex<Option<ReadTo>>,
    pub(super) closing: AtomicBool,
}

/// What the one that writes has.
#[derive(Default)]
pub(super) struct Writing {
    /// `None` before the first write, and where it is not known what the last one did.
    pub(super) log: Option<LogWriter>,
    pub(super) flush: Flush,
    /// Counts how often the writing was acquired.
    pub(super) epoch: u64,
    pub(super) thread: Option<JoinHandle<()>>,
    /// Bytes of records since memory was last frozen.
    pub(super) log_bytes: u64,
}

impl Shared {
    /// Opens the latest version, or the one that is asked for.
    pub(crate) fn open(
        place: Place,
        options: CollectionOptions,
        number: Option<u64>,
    ) -> Result<Shared, CollectionError> {
        let segments = Segments::default();
        let (state, read_to) = match number {
            Some(number) => (pinned(&place, &options, &segments, number)?, None),
            None => {
                let (state, read_to) = latest(&place, &options, &segments)?;
                (state, Some(read_to))
            }
        };
        Ok(Shared {
            place,
            options,
            state: RwLock::new(Arc::new(state)),
            segments,
            queue: super::commit::Queue::default(),
            writing: Mutex::default(),
            flushed: Condvar::new(),
            answered: Condvar::new(),
            merging: Mutex::new(()),
            read_to: Mutex::new(read_to),
            closing: AtomicBool::new(false),
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
        if self.read_to().is_none() {
            return Err(CollectionError::Parameter(format!(
                "{}: was opened as version {}, which does not change; open it without a version to write",
                self.place.path().display(),
                self.state().version.number
            )));
        }
        if writing.log.is_some() {
            return Ok(());
        }
        let mut changes = Vec::new();
        let (log, version) = LogWriter::acquire(&self.place, &mut |sequence, change| {
            changes.push((sequence, change));
            Ok(())
        })?;
        let (version, deleted) = Version::read(&self.place, version.number)?;
        let mut state = with_segments(&self.place, &self.options, &self.segments, version, &deleted);
        for (sequence, change) in changes {
            state.apply(sequence, &change)?;
        }
        writing.log = Some(log);
        writing.flush = Flush::default();
        writing.epoch += 1;
        writing.log_bytes = state.memory_bytes();
        self.show(state);
        Ok(())
    }

    /// Sees what another process has written. Returns whether there was anything.
    pub(crate) fn refresh(&self) -> Result<bool, CollectionError> {
        let writing = self.writing();
        let mut read_to = self.read_to.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(from) = read_to.as_ref().filter(|_| writing.log.is_none()) else { return Ok(false) };
        let before = self.state();
        let newest = version::numbers(&self.place)?.last().copied();
        if newest == Some(before.version.number) {
            let mut state = (*before).clone();
            let read = log::read_after(&self.place, &before.version, Some(from), &mut |sequence, change| {
                // What this handle has written itself it has applied.
                if sequence > state.sequence { state.apply(sequence, &change).map(|_| ()) } else { Ok(()) }
            });
            match read {
                Ok(Reading::Read(to)) => {
                    *read_to = Some(to);
                    let new = state.sequence > before.sequence;
                    if new {
                        self.show(state);
                    }
                    return Ok(new);
                }
                Ok(Reading::Moved) => {}
                Err(error) if error.has_moved() => {}
                Err(error) => return Err(error),
            }
        }
        let (state, to) = latest(&self.place, &self.options, &self.segments)?;
        let new = (state.sequence, state.version.number) != (before.sequence, before.version.number);
        *read_to = Some(to);
        self.show(state);
        Ok(new)
    }

    fn read_to(&self) -> MutexGuard<'_, Option<ReadTo>> {
        self.read_to.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for what goes on beside the writes.
    pub(crate) fn settle(&self) {
        let thread = self.writing().thread.take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }

    /// Ends what goes on beside the writes, and what would.
    pub(crate) fn stop(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    /// Ends what goes on beside the writes, and gives the writing up.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        let thread = self.writing().thread.take();
        // What it leaves is in the log.
        if let Some(thread) = thread {
            let _ = thread.join();
        }
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
    let segment = |(entry, deleted): (&version::SegmentEntry, &RoaringBitmap)| {
        let segment = segments.segment(place, options, &version.schema, entry);
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
) -> Result<(State, ReadTo), CollectionError> {
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
            let version = state.version.clone();
            let reading = log::read_after(place, &version, None, &mut |sequence, change| {
                state.apply(sequence, &change).map(|_| ())
            })?;
            Ok::<_, CollectionError>((state, reading))
        };
        match read() {
            Ok((state, Reading::Read(to))) => return Ok((state, to)),
            Ok((_, Reading::Moved)) => {}
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
