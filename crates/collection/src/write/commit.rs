//! Group commit: concurrent writes share one append to the log. The first writer appends the batches of all
//! that wait.

use super::content::Content;
use super::operation::{Operation, Written};
use super::shared::Shared;
use super::writer::Writer;
use crate::error::CollectionError;
use crate::filter::BoundFilter;
use crate::log::Batch;
use crate::memtable::check;
use crate::state::State;
use bathyal_store::StoreError;
use bathyal_tier::Control;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
    fn new(operation: Operation) -> PendingWrite {
        PendingWrite { operation: Mutex::new(Some(operation)), outcome: Mutex::new(None) }
    }

    fn take_operation(&self) -> Option<Operation> {
        self.operation.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

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
struct CommitGroup<'a> {
    content: &'a Content,
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

impl CommitGroup<'_> {
    fn new(content: &Content) -> CommitGroup<'_> {
        let (next, records) = ((*content.state()).clone(), Batch::new());
        CommitGroup { content, next, records, given_bytes: 0, done: Vec::new() }
    }

    /// Adds a batch, if there is room in memory.
    fn add(&mut self, writer: &Writer, operation: &Operation) -> Result<JoinOutcome, CollectionError> {
        let (change, written) = operation.change(&self.next, self.content.place.path())?;
        let Some(change) = change else { return Ok(JoinOutcome::Added(written)) };
        let bytes = change.bytes();
        if change.record_bytes() > self.content.options.largest_batch_bytes() {
            return Ok(JoinOutcome::Large);
        }
        if writer.is_full(&self.next, bytes) {
            return Ok(JoinOutcome::Full(bytes));
        }
        let mut next = self.next.clone();
        // The record is encoded from the copy in memory: the caller may change its own buffers.
        let change = next.apply(writer.last() + 1 + self.records.len() as u64, change)?;
        self.records.push(&change)?;
        self.given_bytes += change.record_bytes();
        self.next = next;
        Ok(JoinOutcome::Added(written))
    }

    /// Appends the records, applies their changes, and wakes the threads whose writes have an outcome.
    fn append(self, writer: &mut Writer) {
        let CommitGroup { content, next, records, given_bytes, done } = self;
        match writer.append(records, next, given_bytes) {
            Ok(()) => done.into_iter().for_each(|(write, written)| write.finish(Ok(written))),
            Err(error) => {
                let mut writes = done.into_iter().map(|(write, _)| write);
                let first = writes.next();
                writes.for_each(|write| write.finish(Err(shared_failure(content.place.path(), &error))));
                if let Some(first) = first {
                    first.finish(Err(error));
                }
            }
        }
        writer.wake();
    }
}

/// Returns the error for writes whose records were in the same append as the write that gets `error`.
fn shared_failure(collection: &Path, error: &CollectionError) -> CollectionError {
    if let CollectionError::Store(StoreError::Denied { operation, path, reason }) = error {
        let (path, reason) = (path.clone(), reason.clone());
        return StoreError::Denied { operation, path, reason }.into();
    }
    CollectionError::NotWritten { path: collection.to_path_buf(), reason: error.to_string() }
}

impl Shared {
    /// Writes a batch. When this returns, the batch survives a crash of the process, and of the machine if
    /// the options say so.
    ///
    /// # Errors
    /// [`CollectionError`]. Nothing of the batch is then stored, unless the error says that it may be stored
    /// completely.
    pub(crate) fn write(self: &Arc<Self>, operation: Operation) -> Result<Written, CollectionError> {
        if operation.bytes() > self.content.options.largest_batch_bytes() {
            return self.write_without_log(operation);
        }
        let write = Arc::new(PendingWrite::new(operation));
        self.queue.push(write.clone());
        let mut writer = self.writer();
        loop {
            if let Some(outcome) = write.take_outcome() {
                drop(writer);
                return self.result_of(outcome);
            }
            if self.queue.contains(&write) && !writer.is_reserved() {
                break;
            }
            // Another thread has taken this write and waits for room in memory, or a large batch is being
            // published.
            writer = Writer::wait(writer);
        }
        if let Err(error) = writer.acquire() {
            // Other waiting writes find the error themselves.
            self.queue.remove(&write);
            return Err(error);
        }
        self.note_writing();
        self.commit(writer, self.queue.take());
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
        self.writer().acquire()?;
        match self.content.state().matching(Some(&filter), control) {
            // The log was released and another writer has replaced the segments. The write itself searches
            // again.
            Err(error) if error.has_moved() => {}
            found => drop(found?),
        }
        check(control)?;
        self.write(Operation::DeleteMatching(filter))
    }

    /// Commits the batches of all `writes`, in order.
    fn commit<'a>(self: &'a Arc<Self>, mut writer: MutexGuard<'a, Writer>, writes: Vec<Arc<PendingWrite>>) {
        let content = &*self.content;
        let mut group = CommitGroup::new(content);
        for write in writes {
            let Some(operation) = write.take_operation() else { continue };
            let records = group.records.bytes() as u64 + operation.bytes();
            let starts_group = !writer.takes_records() || records > content.options.largest_batch_bytes();
            let mut bytes = starts_group.then_some(0);
            loop {
                if let Some(bytes) = bytes {
                    group.append(&mut writer);
                    match self.wait_for_room(writer, bytes) {
                        Ok(with_room) => writer = with_room,
                        Err(error) => {
                            writer = self.writer();
                            group = CommitGroup::new(content);
                            break write.finish(Err(error));
                        }
                    }
                    group = CommitGroup::new(content);
                }
                match group.add(&writer, &operation) {
                    Ok(JoinOutcome::Full(needed)) => bytes = Some(needed),
                    Ok(JoinOutcome::Added(written)) => break group.done.push((write, written)),
                    Ok(JoinOutcome::Large) => break write.finish_with(WriteOutcome::Large(operation)),
                    Err(error) => break write.finish(Err(writer.fenced_if_superseded(error))),
                }
            }
        }
        group.append(&mut writer);
    }

    /// Waits until memory has room for `bytes` and no large batch is being published: a large batch needs a
    /// state that does not change.
    fn wait_for_room<'a>(
        self: &'a Arc<Self>,
        mut writer: MutexGuard<'a, Writer>,
        bytes: u64,
    ) -> Result<MutexGuard<'a, Writer>, CollectionError> {
        loop {
            // The log may have failed, or may have been released, while this thread did not hold the lock.
            writer.acquire()?;
            if writer.is_reserved() {
                writer = Writer::wait(writer);
            } else if writer.is_full(&self.content.state(), bytes) {
                writer = self.make_room(writer, None, true)?;
            } else {
                return Ok(writer);
            }
        }
    }
}
