//! Group commit: concurrent writes share one append to the log. The first writer appends the batches of all
//! that wait.

use super::operation::{Operation, Written};
use super::shared::{Shared, WriterState};
use super::traffic::Traffic;
use crate::error::CollectionError;
use crate::filter::BoundFilter;
use crate::log::{Batch, LogWriter};
use crate::memtable::check;
use crate::state::State;
use bathyal_store::StoreError;
use bathyal_tier::Control;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A batch may take the memory for writes divided by this: it exists as the caller's data, as a record, and
/// as rows. Larger batches are written as a segment at once.
const BATCH_SHARE: u64 = 8;
/// Share of the memory for writes that rows may take before they are frozen. Frozen rows take as much again
/// until they are written. The rest is for batches in progress.
const ACTIVE_SHARE: f64 = 0.375;

/// Writes that wait to be committed.
#[derive(Default)]
pub(super) struct WriteQueue(Mutex<Vec<Arc<PendingWrite>>>);

impl WriteQueue {
    fn pending(&self) -> MutexGuard<'_, Vec<Arc<PendingWrite>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, write: Arc<PendingWrite>) {
        self.pending().push(write);
    }

    fn take(&self) -> Vec<Arc<PendingWrite>> {
        std::mem::take(&mut *self.pending())
    }

    fn contains(&self, write: &Arc<PendingWrite>) -> bool {
        self.pending().iter().any(|other| Arc::ptr_eq(other, write))
    }

    fn remove(&self, write: &Arc<PendingWrite>) {
        self.pending().retain(|other| !Arc::ptr_eq(other, write));
    }
}

/// A write in progress, and its outcome.
struct PendingWrite {
    operation: Mutex<Option<Operation>>,
    outcome: Mutex<Option<WriteOutcome>>,
}

/// Outcome of a write.
enum WriteOutcome {
    Done(Result<Written, CollectionError>),
    /// The batch is too large for the log; its caller writes it without the log.
    Large(Operation),
}

impl PendingWrite {
    fn finish(&self, outcome: Result<Written, CollectionError>) {
        self.finish_with(WriteOutcome::Done(outcome));
    }

    fn finish_with(&self, outcome: WriteOutcome) {
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
    }

    fn take_outcome(&self) -> Option<WriteOutcome> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Records that are appended together.
struct CommitGroup {
    /// The state with all changes of the group.
    next: State,
    records: Batch,
    /// Bytes of the batches.
    given_bytes: u64,
    /// Writes of the group, with what each reports after the append.
    done: Vec<(Arc<PendingWrite>, Written)>,
}

/// Outcome of adding a batch to a group.
enum JoinOutcome {
    /// It was added.
    Added(Written),
    /// It was not added: memory must first have room for this many bytes.
    Full(u64),
    /// It was not added: it is too large for the log.
    Large,
}

impl CommitGroup {
    fn new(state: &State) -> CommitGroup {
        CommitGroup { next: state.clone(), records: Batch::new(), given_bytes: 0, done: Vec::new() }
    }
}

impl Shared {
    /// Writes a batch. When this returns, the batch survives a crash of the process, and of the machine if
    /// the options say so.
    ///
    /// # Errors
    /// [`CollectionError`]. Nothing of the batch is then stored, unless the error says that it may be stored
    /// completely.
    pub(crate) fn write(self: &Arc<Self>, operation: Operation) -> Result<Written, CollectionError> {
        if operation.bytes() > self.largest_batch_bytes() {
            return self.write_without_log(operation);
        }
        let write =
            Arc::new(PendingWrite { operation: Mutex::new(Some(operation)), outcome: Mutex::new(None) });
        self.queue.push(write.clone());
        let mut writing = self.writing();
        loop {
            if let Some(outcome) = write.take_outcome() {
                drop(writing);
                return self.result_of(outcome);
            }
            if self.queue.contains(&write) && !writing.reserved {
                break;
            }
            // Another thread has taken this write and waits for room in memory, or a large batch is being
            // published.
            writing = self.outcomes_ready.wait(writing).unwrap_or_else(PoisonError::into_inner);
        }
        if let Err(error) = self.acquire(&mut writing) {
            // Other waiting writes find the error themselves.
            self.queue.remove(&write);
            return Err(error);
        }
        self.note_writing();
        self.commit(writing, self.queue.take());
        let lost = || WriteOutcome::Done(Err(CollectionError::Internal("a write without an outcome".into())));
        self.result_of(write.take_outcome().unwrap_or_else(lost))
    }

    fn result_of(self: &Arc<Self>, outcome: WriteOutcome) -> Result<Written, CollectionError> {
        match outcome {
            WriteOutcome::Done(outcome) => outcome,
            WriteOutcome::Large(operation) => self.write_without_log(operation),
        }
    }

    /// Writes a batch without the log.
    fn write_without_log(self: &Arc<Self>, operation: Operation) -> Result<Written, CollectionError> {
        let written = self.write_large(&operation)?;
        drop(operation);
        self.compact_in_background();
        Ok(written)
    }

    /// Deletes the rows that match. A first search for them runs before other writes have to wait: its result
    /// is cached with the segments, so that the write itself evaluates the filter only for rows in memory.
    ///
    /// # Errors
    /// As [`Shared::write`]; cancellation and deadline of `control` during the first search.
    pub(crate) fn delete_matching(
        self: &Arc<Self>,
        filter: BoundFilter,
        control: &Control<'_>,
    ) -> Result<Written, CollectionError> {
        // Acquiring the log loads the segments of the latest version.
        self.acquire(&mut self.writing())?;
        match self.state().matching(Some(&filter), control) {
            // The log was released and another writer has replaced the segments. The write itself searches
            // again.
            Err(error) if error.has_moved() => {}
            found => drop(found?),
        }
        check(control)?;
        self.write(Operation::DeleteMatching(filter))
    }

    /// Commits the batches of all `tickets`, in order.
    fn commit<'a>(
        self: &'a Arc<Self>,
        mut writing: MutexGuard<'a, WriterState>,
        writes: Vec<Arc<PendingWrite>>,
    ) {
        let mut group = CommitGroup::new(&self.state());
        for write in writes {
            let operation = write.operation.lock().unwrap_or_else(PoisonError::into_inner).take();
            let Some(operation) = operation else { continue };
            let records = group.records.bytes() as u64 + operation.bytes();
            let starts_group = writing.log.is_none() || records > self.largest_batch_bytes();
            let mut bytes = starts_group.then_some(0);
            loop {
                if let Some(bytes) = bytes {
                    self.append(&mut writing, group);
                    let room;
                    (writing, room) = self.wait_for_room(writing, bytes);
                    group = CommitGroup::new(&self.state());
                    if let Err(error) = room {
                        write.finish(Err(error));
                        break;
                    }
                }
                match self.add_to_group(&writing, &mut group, &operation) {
                    Ok(JoinOutcome::Full(needed)) => bytes = Some(needed),
                    Ok(JoinOutcome::Added(written)) => break group.done.push((write, written)),
                    Ok(JoinOutcome::Large) => break write.finish_with(WriteOutcome::Large(operation)),
                    Err(error) => break write.finish(Err(self.fenced_if_superseded(&mut writing, error))),
                }
            }
        }
        self.append(&mut writing, group);
    }

    /// Waits until memory has room for `bytes` and no large batch is being published: a large batch needs a
    /// state that does not change.
    fn wait_for_room<'a>(
        self: &'a Arc<Self>,
        mut writing: MutexGuard<'a, WriterState>,
        bytes: u64,
    ) -> (MutexGuard<'a, WriterState>, Result<(), CollectionError>) {
        let mut room = self.acquire(&mut writing);
        while room.is_ok() {
            if writing.reserved {
                writing = self.outcomes_ready.wait(writing).unwrap_or_else(PoisonError::into_inner);
                // The log may have failed in the meantime.
                room = self.acquire(&mut writing);
            } else if self.is_full(&writing, &self.state(), bytes) {
                (writing, room) = self.make_room(writing, (None, true));
                // The segment may have been written by this thread without the lock; the log may have been
                // released since.
                room = room.and_then(|()| self.acquire(&mut writing));
            } else {
                break;
            }
        }
        (writing, room)
    }

    /// Adds a batch to a group, if there is room in memory.
    fn add_to_group(
        &self,
        writing: &WriterState,
        group: &mut CommitGroup,
        operation: &Operation,
    ) -> Result<JoinOutcome, CollectionError> {
        let (change, written) = operation.change(&group.next, self.place.path())?;
        let Some(change) = change else { return Ok(JoinOutcome::Added(written)) };
        let bytes = change.bytes();
        if change.record_bytes() > self.largest_batch_bytes() {
            return Ok(JoinOutcome::Large);
        }
        if self.is_full(writing, &group.next, bytes) {
            return Ok(JoinOutcome::Full(bytes));
        }
        let last = writing.log.as_ref().map_or(0, LogWriter::last);
        let mut next = group.next.clone();
        // The record is encoded from the copy in memory: the caller may change its own buffers.
        let change = next.apply(last + 1 + group.records.len() as u64, change)?;
        group.records.push(&change)?;
        group.given_bytes += change.record_bytes();
        group.next = next;
        Ok(JoinOutcome::Added(written))
    }

    /// Appends the records of a group and applies the group's changes.
    fn append(&self, writing: &mut WriterState, group: CommitGroup) {
        let CommitGroup { next, records, given_bytes, done } = group;
        let appended = match &mut writing.log {
            _ if records.len() == 0 => Ok(()),
            Some(log) => log.append(records, self.options.durability).map(|_| {
                Traffic::add(&self.traffic.log, log.take_appended());
                Traffic::add(&self.traffic.given, given_bytes);
                self.set_state(next);
            }),
            None => Err(CollectionError::Internal("the log is not open".into())),
        };
        match appended {
            Ok(()) => {
                done.into_iter().for_each(|(write, written)| write.finish(Ok(written)));
            }
            Err(error) => {
                // It is unknown how much was written. The next write acquires the log again.
                writing.log = None;
                let mut writes = done.into_iter().map(|(write, _)| write);
                let first = writes.next();
                writes.for_each(|write| write.finish(Err(self.shared_failure(&error))));
                if let Some(first) = first {
                    first.finish(Err(error));
                }
            }
        }
        self.outcomes_ready.notify_all();
    }

    /// Returns the error for writes whose records were in the same append as the write that gets `error`.
    fn shared_failure(&self, error: &CollectionError) -> CollectionError {
        if let CollectionError::Store(StoreError::Denied { operation, path, reason }) = error {
            let (path, reason) = (path.clone(), reason.clone());
            return StoreError::Denied { operation, path, reason }.into();
        }
        CollectionError::NotWritten { path: self.place.path().to_path_buf(), reason: error.to_string() }
    }

    /// Returns true if `bytes` more would exceed the memory for new rows, or if the log is too long. After a
    /// crash, all rows of the log are in one memtable, which may then be larger.
    fn is_full(&self, writing: &WriterState, state: &State, bytes: u64) -> bool {
        let (active_bytes, all_bytes) =
            (state.memtables.last().map_or(0, |memtable| memtable.bytes()), state.memory_bytes());
        let limit = (self.options.write_memory_bytes as f64 * ACTIVE_SHARE) as u64;
        let full = active_bytes > 0 && active_bytes + bytes > limit
            || all_bytes > 0 && all_bytes + bytes > 2 * limit;
        full || writing.log.as_ref().map_or(0, LogWriter::log_bytes) > self.options.write_memory_bytes
    }

    /// Returns the size of the largest batch that goes through the log and memory.
    pub(crate) fn largest_batch_bytes(&self) -> u64 {
        let limit = self.options.write_memory_bytes / BATCH_SHARE;
        self.options.direct_bytes.map_or(limit, |limit_bytes| limit_bytes.min(limit))
    }
}
