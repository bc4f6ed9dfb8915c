//! The writer of an open collection: who holds the log, what is being written, and what was published.
//!
//! All changes of a collection are transitions of [`Writer`]. Flushes and merges are *work*: one transition
//! begins the work and returns it as an owned value, a thread does it without the lock, and another
//! transition applies the result.
//!
//! | state | values | transitions |
//! |---|---|---|
//! | log | released, acquired | `acquire`, `append`, `release`, `close` |
//! | flush | idle, running, failed, waiting | `begin_flush`, `finish_flush`, `resume_flush` |
//! | merging | by one thread, or none | `begin_merging`, `begin_merge`, `finish_merge`, `end_merging` |
//! | large batches | any number | `begin_large`, `end_large` |
//! | reserved | by one large batch, or none | `reserve`, `publish_batch`, `end_reservation` |
//!
//! An operation with an unknown effect on the log releases it. Acquiring the log begins a new *epoch*: the
//! content is read again, and the rows of a frozen memtable come from the log again. Results of work from an
//! earlier epoch are refused, because another writer may have removed their files.

use super::content::Content;
use super::flush::{FlushResult, FlushWork, FlushedSegment, FrozenMemTable};
use super::merge::{MergeWork, MergedSegment};
use super::traffic::Traffic;
use crate::error::CollectionError;
use crate::location::Part;
use crate::log::{Acquisition, Batch, ListedParts, LogReader, LogWriter, ReadOutcome};
use crate::segment::WriteOptions;
use crate::state::State;
use crate::version::{self, CalibrationEntry, Version};
use bathyal_index::cost::merging::ACTIVE_SHARE;
use bathyal_tier::process::Share;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The interval at which a refresh from a store checks that the collection was not removed and made again:
/// this takes a further request.
const IDENTITY_INTERVAL: Duration = Duration::from_secs(10);

/// The writer of an open collection. It is behind one lock.
pub(super) struct Writer {
    content: Arc<Content>,
    /// Notified after each transition that threads wait for, and when writes have their outcomes.
    changed: Arc<Condvar>,
    /// Reads the logs that another process writes. It continues where the state ends. `None` if a single
    /// version was opened, which never changes.
    reader: Option<LogReader>,
    /// When the latest version was last known to be of the same collection.
    identified: Instant,
    /// `None` before the first write, and after an operation whose effect on the log is unknown.
    log: Option<LogWriter>,
    /// Number of times that the log was acquired.
    epoch: u64,
    flush: Flush,
    /// True while a thread merges segments; the log is kept open for it.
    merging: bool,
    /// Number of large batches in progress; the log is kept open for them.
    large: u32,
    /// True while a large batch is published; no other write may begin.
    reserved: bool,
}

/// State of the flush.
#[derive(Debug, Default)]
enum Flush {
    /// No memtable is frozen.
    #[default]
    Idle,
    /// A thread writes the frozen memtable. The flag makes the work urgent.
    Running(Arc<AtomicBool>),
    /// The segment could not be written. One waiter gets the error; then the flush is tried again.
    Failed(CollectionError, Arc<FrozenMemTable>),
    /// The flush must be tried again.
    Waiting(Arc<FrozenMemTable>),
}

/// Step of a thread towards the end of a flush.
pub(super) enum FlushStep {
    /// Wait for a transition.
    Wait,
    /// Run the work.
    Run(FlushWork),
}

/// The log.
impl Writer {
    /// Creates the writer. It does not hold the log.
    pub(super) fn new(content: Arc<Content>, reader: Option<LogReader>) -> Writer {
        Writer {
            content,
            changed: Arc::default(),
            reader,
            identified: Instant::now(),
            log: None,
            epoch: 0,
            flush: Flush::Idle,
            merging: false,
            large: 0,
            reserved: false,
        }
    }

    /// Waits, without the lock, for a transition. It may also return without one.
    pub(super) fn wait(writer: MutexGuard<'_, Writer>) -> MutexGuard<'_, Writer> {
        let changed = writer.changed.clone();
        changed.wait(writer).unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the threads that wait: writes have their outcomes.
    pub(super) fn wake(&self) {
        self.changed.notify_all();
    }

    /// Becomes the writer of the collection, if it is not yet, and loads everything that others have written.
    pub(super) fn acquire(&mut self) -> Result<(), CollectionError> {
        let content = &*self.content;
        if self.reader.is_none() {
            return Err(CollectionError::Parameter(format!(
                "{}: was opened as version {}, which is read-only; open it without a version to write",
                content.place.path().display(),
                content.state().version.number
            )));
        }
        if self.log.is_some() {
            return Ok(());
        }
        content.find_stopped_merges()?;
        let keep = 1 + content.options.keep_versions;
        let Acquisition { writer, version, deleted, changes } =
            LogWriter::acquire(&content.place, keep, &|| content.segments.in_use())?;
        let mut state = content.states().of_version(version, &deleted);
        for (sequence, change) in changes {
            state.apply(sequence, change)?;
        }
        self.log = Some(writer);
        self.flush = Flush::Idle;
        self.epoch += 1;
        self.content.set_state(state);
        Ok(())
    }

    /// Releases the log if the writer is idle. Returns false if it is not.
    pub(super) fn release(&mut self) -> bool {
        let idle = matches!(self.flush, Flush::Idle) && !self.merging && self.large == 0;
        if idle {
            self.log = None;
        }
        idle
    }

    /// Releases the log.
    pub(super) fn close(&mut self) {
        self.log = None;
    }

    /// Replaces the error by [`CollectionError::Fenced`] if it is caused by another writer: one that has
    /// taken over may have removed the object that was read.
    pub(super) fn fenced_if_superseded(&mut self, error: CollectionError) -> CollectionError {
        let current = |log: &mut LogWriter| log.is_current().unwrap_or(true);
        if !error.has_moved() || self.log.as_mut().is_none_or(current) {
            return error;
        }
        self.log = None;
        self.fenced()
    }

    fn fenced(&self) -> CollectionError {
        CollectionError::Fenced { path: self.content.place.path().to_path_buf() }
    }

    /// Returns the error for work whose epoch has ended: its rows are read again from the log.
    fn overtaken(&self) -> CollectionError {
        let path = self.content.place.path().to_path_buf();
        let reason = "another write to the log has failed in the meantime".into();
        CollectionError::NotWritten { path, reason }
    }

    /// Loads what another process has written. Returns true if there was anything.
    pub(super) fn refresh(&mut self) -> Result<bool, CollectionError> {
        if self.log.is_some() || self.reader.is_none() {
            return Ok(false);
        }
        let before = self.content.state();
        let newest = version::numbers(&self.content.place)?.last().copied();
        let is_same = newest == Some(before.version.number) && self.is_same_collection(&before.version);
        // After any error, everything is read again.
        if let Some(mut reader) = self.reader.take().filter(|_| is_same) {
            let mut state = (*before).clone();
            let read = reader.read(&mut |sequence, change| {
                // Changes that this handle has written are applied already.
                if sequence > state.sequence { state.apply(sequence, change).map(|_| ()) } else { Ok(()) }
            });
            if let Ok(ReadOutcome::UpToDate) = read {
                self.reader = Some(reader);
                let new = state.sequence > before.sequence;
                if new {
                    self.content.set_state(state);
                }
                return Ok(new);
            }
        }
        let latest = self.content.states().latest();
        let (state, reader) = match latest {
            Ok(latest) => latest,
            Err(error) => {
                self.reader = Some(LogReader::new(&self.content.place, &before.version));
                return Err(error);
            }
        };
        let new = (state.sequence, state.version.number) != (before.sequence, before.version.number);
        self.reader = Some(reader);
        self.content.set_state(state);
        Ok(new)
    }

    /// Returns false if the collection was removed, and another one was made that has a version of the same
    /// number. In a store, this is found out after some time.
    fn is_same_collection(&mut self, version: &Version) -> bool {
        if self.content.place.is_remote() && self.identified.elapsed() < IDENTITY_INTERVAL {
            return true;
        }
        self.identified = Instant::now();
        let found = Version::load(&self.content.place, version.number);
        found.is_ok_and(|(found, _)| found.id == version.id)
    }

    /// Returns the sequence number of the last record; 0 without the log.
    pub(super) fn last(&self) -> u64 {
        self.log.as_ref().map_or(0, LogWriter::last)
    }

    /// Returns true if records may be appended: the log is acquired, and no large batch is published.
    pub(super) fn takes_records(&self) -> bool {
        self.log.is_some() && !self.reserved
    }

    /// Returns true if `bytes` more than in `state` would exceed the memory for new rows, or if the log is
    /// too long. After a crash, all rows of the log are in one memtable, which may then be larger.
    pub(super) fn is_full(&self, state: &State, bytes: u64) -> bool {
        let write_memory_bytes = self.content.options.write_memory_bytes;
        let active_bytes = state.memtables.last().map_or(0, |memtable| memtable.bytes());
        let all_bytes = state.memory_bytes();
        let limit = (write_memory_bytes as f64 * ACTIVE_SHARE) as u64;
        let full = active_bytes > 0 && active_bytes + bytes > limit
            || all_bytes > 0 && all_bytes + bytes > 2 * limit;
        full || self.log.as_ref().map_or(0, LogWriter::log_bytes) > write_memory_bytes
    }

    /// Appends records to the log. `next` is the state with their changes, `given_bytes` the size of their
    /// batches.
    ///
    /// # Errors
    /// As [`LogWriter::append`]. It is then unknown how much was written, and the log is released: the next
    /// write acquires it again.
    pub(super) fn append(
        &mut self,
        records: Batch,
        next: State,
        given_bytes: u64,
    ) -> Result<(), CollectionError> {
        if records.len() == 0 {
            return Ok(());
        }
        let Some(log) = &mut self.log else {
            return Err(CollectionError::Internal("the log is not open".into()));
        };
        if let Err(error) = log.append(records, self.content.options.durability) {
            self.log = None;
            return Err(error);
        }
        Traffic::add(&self.content.traffic.log, log.take_appended());
        Traffic::add(&self.content.traffic.given, given_bytes);
        self.content.set_state(next);
        Ok(())
    }

    /// Seals the log and begins the next one. Returns the number of the last record.
    fn rotate(&mut self) -> Result<u64, CollectionError> {
        let Some(log) = &mut self.log else {
            return Err(CollectionError::Internal("the log is rotated without being open".into()));
        };
        if let Err(error) = log.rotate() {
            self.log = None;
            return Err(error);
        }
        Traffic::add(&self.content.traffic.log, log.take_appended());
        Ok(log.last())
    }

    /// Publishes a version with the segments of `next` and their rows that are deleted in `published`.
    /// `through` is the last record whose rows are all in these segments. Then shows `next` to searches.
    fn publish(&mut self, mut next: State, through: u64) -> Result<(), CollectionError> {
        let Some(log) = &mut self.log else {
            return Err(CollectionError::Internal("a version is published without a log".into()));
        };
        let mut version = (*next.version).clone();
        version.through = through;
        version.next_segment += 1;
        version.segments = next.segments.iter().map(|segment| segment.segment.entry().clone()).collect();
        let is_there = |name: &String| version.segments.iter().any(|segment| segment.name == *name);
        version.calibrations.iter_mut().for_each(|calibration| calibration.segments.retain(is_there));
        let deleted: Vec<_> = next.segments.iter().map(|segment| segment.published.to_bitmap()).collect();
        if let Err(error) = log.publish(&mut version, &deleted) {
            self.log = None;
            return Err(error);
        }
        next.version = Arc::new(version);
        self.content.set_state(next);
        Ok(())
    }

    /// Returns those of the listed parts that no version needs any more; none without the log.
    pub(super) fn unneeded(&mut self, listed: ListedParts) -> Result<Vec<Part>, CollectionError> {
        let Some(log) = &mut self.log else { return Ok(Vec::new()) };
        let keep = 1 + self.content.options.keep_versions;
        log.unneeded(listed, (&self.content.state().version, keep), &self.content.segments.in_use())
    }
}

/// Flushes.
impl Writer {
    /// Freezes the memtable and rotates the log. Returns the work of writing it; `None` if everything is in
    /// segments. `share` is the share of the cores; `None` means the same share as other work. `hasty` is
    /// true if further rows will follow. The log must be acquired, and no memtable frozen.
    pub(super) fn begin_flush(
        &mut self,
        share: Option<Share>,
        hasty: bool,
    ) -> Result<Option<FlushWork>, CollectionError> {
        if !matches!(self.flush, Flush::Idle) {
            return Err(CollectionError::Internal("two memtables are frozen".into()));
        }
        if self.is_flushed() {
            return Ok(None);
        }
        let through = self.rotate()?;
        let state = self.content.state();
        let memtable = state.memtables.last().cloned().unwrap_or_default();
        let mut next = (*state).clone();
        next.freeze(through);
        self.content.set_state(next);
        Ok(Some(self.start_flush(Arc::new(FrozenMemTable { memtable, through, hasty }), share)))
    }

    fn start_flush(&mut self, frozen: Arc<FrozenMemTable>, share: Option<Share>) -> FlushWork {
        let urgent = Arc::<AtomicBool>::default();
        self.flush = Flush::Running(urgent.clone());
        let (content, state) = (self.content.clone(), self.content.state().without_memory());
        FlushWork { content, state, frozen, epoch: self.epoch, share, urgent }
    }

    /// Returns the next step towards the end of the flush; `None` if no memtable is frozen. A running flush
    /// gets all cores if it is `urgent`.
    ///
    /// # Errors
    /// The error of a failed flush. The next call returns the work once more.
    pub(super) fn resume_flush(&mut self, urgent: bool) -> Result<Option<FlushStep>, CollectionError> {
        match std::mem::take(&mut self.flush) {
            Flush::Idle => Ok(None),
            Flush::Running(flag) => {
                flag.fetch_or(urgent, Ordering::Relaxed);
                self.flush = Flush::Running(flag);
                Ok(Some(FlushStep::Wait))
            }
            Flush::Failed(error, frozen) => {
                self.flush = Flush::Waiting(frozen);
                Err(error)
            }
            Flush::Waiting(frozen) => Ok(Some(FlushStep::Run(self.start_flush(frozen, None)))),
        }
    }

    /// Publishes the segment that `work` has written, or records why it could not be written. Returns true if
    /// the segment was published.
    pub(super) fn finish_flush(&mut self, work: &FlushWork, result: FlushResult<'_>) -> bool {
        let frozen = work.frozen.clone();
        let flush = match result {
            FlushResult::Written(segment) => match self.publish_flushed(work, &segment) {
                Ok(()) => Flush::Idle,
                Err(error) => Flush::Failed(error, frozen),
            },
            FlushResult::Urgent => Flush::Waiting(frozen),
            FlushResult::Failed(error) => Flush::Failed(error, frozen),
        };
        let published = matches!(flush, Flush::Idle);
        if self.epoch == work.epoch {
            self.flush = flush;
        }
        self.changed.notify_all();
        published
    }

    fn publish_flushed(
        &mut self,
        work: &FlushWork,
        segment: &FlushedSegment<'_>,
    ) -> Result<(), CollectionError> {
        if self.epoch != work.epoch || self.log.is_none() {
            return Err(self.overtaken());
        }
        let next = segment.replace_memtable(&self.content.state(), &self.content);
        self.publish(next, work.frozen.through)?;
        Traffic::add(&self.content.traffic.segments, segment.bytes());
        Ok(())
    }

    /// Returns true if everything that was written is in segments of the latest version.
    fn is_flushed(&self) -> bool {
        let state = self.content.state();
        matches!(self.flush, Flush::Idle) && state.sequence == state.version.through
    }
}

/// Merges.
impl Writer {
    /// Begins merging by one thread; the log is then kept. Returns false if another thread merges.
    pub(super) fn begin_merging(&mut self) -> bool {
        !std::mem::replace(&mut self.merging, true)
    }

    /// Ends merging by the thread that has begun it.
    pub(super) fn end_merging(&mut self) {
        self.merging = false;
        self.changed.notify_all();
    }

    /// Returns true if a thread merges segments.
    pub(super) fn is_merging(&self) -> bool {
        self.merging
    }

    /// Begins a merge of the segments with these names. The thread must have begun merging.
    ///
    /// # Errors
    /// [`CollectionError::Fenced`] without the log.
    pub(super) fn begin_merge(
        &self,
        names: &[String],
        options: WriteOptions,
    ) -> Result<MergeWork, CollectionError> {
        if !self.merging {
            return Err(CollectionError::Internal("a merge is begun among others".into()));
        }
        if self.log.is_none() {
            return Err(self.fenced());
        }
        let (content, names) = (self.content.clone(), names.to_vec());
        let state = content.state().without_memory();
        Ok(MergeWork { content, state, names, epoch: self.epoch, options })
    }

    /// Publishes a version with the new segment instead of the merged ones.
    ///
    /// # Errors
    /// [`CollectionError::Fenced`] if the merged segments are gone, or if the log was acquired again since
    /// the merge began: another writer may then have removed the new segment. [`CollectionError`].
    pub(super) fn finish_merge(
        &mut self,
        work: &MergeWork,
        segment: &MergedSegment<'_>,
    ) -> Result<(), CollectionError> {
        let state = self.content.state();
        if self.epoch != work.epoch || self.log.is_none() || !work.has_sources_in(&state) {
            return Err(self.fenced());
        }
        let next = segment.replace_sources(work, &state)?;
        self.publish(next, state.version.through)?;
        Traffic::add(&self.content.traffic.merged, segment.bytes());
        Ok(())
    }
}

/// Calibrations.
impl Writer {
    /// Returns true if the log has been held since `epoch` began.
    pub(super) fn is_in(&self, epoch: u64) -> bool {
        self.epoch == epoch && self.log.is_some()
    }

    /// Publishes a version with other calibrations and the same content.
    ///
    /// # Errors
    /// [`CollectionError`]. The version may or may not be published.
    pub(super) fn publish_calibrations(
        &mut self,
        calibrations: Vec<CalibrationEntry>,
    ) -> Result<(), CollectionError> {
        let state = self.content.state();
        let mut next = (*state).clone();
        next.version = Arc::new(Version { calibrations, ..(*state.version).clone() });
        self.publish(next, state.version.through)
    }
}

/// Large batches.
impl Writer {
    /// Begins a large batch: acquires the log, which is then kept. Returns the epoch.
    pub(super) fn begin_large(&mut self) -> Result<u64, CollectionError> {
        self.acquire()?;
        self.large += 1;
        Ok(self.epoch)
    }

    /// Ends a large batch.
    pub(super) fn end_large(&mut self) {
        self.large -= 1;
    }

    /// Keeps other writes from starting. Returns false if they are already kept from it.
    pub(super) fn reserve(&mut self) -> bool {
        !std::mem::replace(&mut self.reserved, true)
    }

    /// Lets other writes start again.
    pub(super) fn end_reservation(&mut self) {
        self.reserved = false;
        self.changed.notify_all();
    }

    /// Returns true while a large batch keeps other writes from starting.
    pub(super) fn is_reserved(&self) -> bool {
        self.reserved
    }

    /// Returns true if everything that was written is in segments, so that a large batch can be published.
    ///
    /// # Errors
    /// [`CollectionError::NotWritten`] if the log was acquired again since `epoch`: the segment of the batch
    /// may have been removed.
    pub(super) fn can_publish_batch(&self, epoch: u64) -> Result<bool, CollectionError> {
        if self.epoch != epoch { Err(self.overtaken()) } else { Ok(self.is_flushed()) }
    }

    /// Publishes a large batch. `next` is the state with its changes. Everything that was written before must
    /// be in segments.
    pub(super) fn publish_batch(&mut self, mut next: State) -> Result<(), CollectionError> {
        if !self.reserved || !self.is_flushed() {
            return Err(CollectionError::Internal("a large batch is published among other writes".into()));
        }
        next.sequence = self.rotate()?;
        for segment in &mut next.segments {
            segment.frozen = segment.deleted.clone();
            segment.published = segment.deleted.clone();
        }
        let through = next.sequence;
        self.publish(next, through)
    }
}
