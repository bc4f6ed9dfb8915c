//! Many that write at once share the log's way to the device: who comes first writes what all have brought.

use super::operation::{Operation, Written};
use super::shared::{Shared, Writing};
use super::traffic::Traffic;
use crate::error::CollectionError;
use crate::filter::BoundFilter;
use crate::log::{Batch, LogWriter};
use crate::memory::check;
use crate::state::State;
use bathyal_store::StoreError;
use bathyal_tier::Control;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What of the memory for writes a batch may take: it is there as its caller has it, as a record and as rows. Larger ones are written
/// as a segment at once.
const BATCH_SHARE: u64 = 8;
/// What of it rows may take before they are frozen; as many are being written as a segment. The rest is for batches on their way.
const ACTIVE_SHARE: f64 = 0.375;

/// What waits to be written.
#[derive(Default)]
pub(super) struct Queue(Mutex<Vec<Arc<Ticket>>>);

impl Queue {
    fn tickets(&self) -> MutexGuard<'_, Vec<Arc<Ticket>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, ticket: Arc<Ticket>) {
        self.tickets().push(ticket);
    }

    fn take(&self) -> Vec<Arc<Ticket>> {
        std::mem::take(&mut *self.tickets())
    }

    fn holds(&self, ticket: &Arc<Ticket>) -> bool {
        self.tickets().iter().any(|other| Arc::ptr_eq(other, ticket))
    }

    fn remove(&self, ticket: &Arc<Ticket>) {
        self.tickets().retain(|other| !Arc::ptr_eq(other, ticket));
    }
}

/// A batch on its way, and what becomes of it.
struct Ticket {
    operation: Mutex<Option<Operation>>,
    answer: Mutex<Option<Answer>>,
}

/// What becomes of a batch.
enum Answer {
    Done(Result<Written, CollectionError>),
    /// It comes to more than goes through the log: whoever brought it writes it apart.
    Large(Operation),
}

impl Ticket {
    fn answer(&self, answer: Result<Written, CollectionError>) {
        self.tell(Answer::Done(answer));
    }

    fn tell(&self, answer: Answer) {
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
    }

    fn take_answer(&self) -> Option<Answer> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Records that go to the log together.
struct Group {
    /// What they come to.
    next: State,
    records: Batch,
    /// Bytes of what they are of.
    given: u64,
    done: Vec<(Arc<Ticket>, Written)>,
}

/// What came of adding a batch to a group.
enum Joined {
    /// It is in.
    In(Written),
    /// It is not: first there has to be room for as many bytes.
    Full(u64),
    /// It is not, and will not be: memory never takes it.
    Large,
}

impl Group {
    fn new(state: &State) -> Group {
        Group { next: state.clone(), records: Batch::new(), given: 0, done: Vec::new() }
    }
}

impl Shared {
    /// Writes a batch: when this returns it outlives the process, and the machine if the options say so.
    ///
    /// # Errors
    /// [`CollectionError`]; nothing of it is there then, or all of it where the error says so.
    pub(crate) fn write(self: &Arc<Self>, operation: Operation) -> Result<Written, CollectionError> {
        if operation.bytes() > self.largest_batch_bytes() {
            return self.write_apart(operation);
        }
        let ticket = Arc::new(Ticket { operation: Mutex::new(Some(operation)), answer: Mutex::new(None) });
        self.queue.push(ticket.clone());
        let mut writing = self.writing();
        loop {
            if let Some(answer) = ticket.take_answer() {
                drop(writing);
                return self.answered_with(answer);
            }
            if self.queue.holds(&ticket) && !writing.reserved {
                break;
            }
            // Whoever took it waits for room in memory, and has let others pass meanwhile; or a large batch is being published.
            writing = self.answered.wait(writing).unwrap_or_else(PoisonError::into_inner);
        }
        if let Err(error) = self.acquire(&mut writing) {
            // Others that wait find out for themselves.
            self.queue.remove(&ticket);
            return Err(error);
        }
        self.note_writing();
        self.commit(writing, self.queue.take());
        let lost = || Answer::Done(Err(CollectionError::Internal("a batch without an answer".into())));
        self.answered_with(ticket.take_answer().unwrap_or_else(lost))
    }

    fn answered_with(self: &Arc<Self>, answer: Answer) -> Result<Written, CollectionError> {
        match answer {
            Answer::Done(answer) => answer,
            Answer::Large(operation) => self.write_apart(operation),
        }
    }

    /// Writes a batch without the log.
    fn write_apart(self: &Arc<Self>, operation: Operation) -> Result<Written, CollectionError> {
        let written = self.write_large(&operation)?;
        drop(operation);
        self.compact_beside();
        Ok(written)
    }

    /// Deletes the rows that match. They are looked for before others have to wait for this write: what is found is kept with the
    /// segments, and only rows in memory are looked at again.
    ///
    /// # Errors
    /// As [`Shared::write`]; cancellation and deadline of `control` as long as rows are looked for.
    pub(crate) fn delete_matching(
        self: &Arc<Self>,
        filter: BoundFilter,
        control: &Control<'_>,
    ) -> Result<Written, CollectionError> {
        // Segments of one that has not written yet are others afterwards.
        self.acquire(&mut self.writing())?;
        match self.state().matching(Some(&filter), control) {
            // The log was let go of, and another one has written since: they are looked for once more by the write.
            Err(error) if error.has_moved() => {}
            found => drop(found?),
        }
        check(control)?;
        self.write(Operation::DeleteMatching(filter))
    }

    /// Writes what all of `tickets` bring, in their order.
    fn commit<'a>(self: &'a Arc<Self>, mut writing: MutexGuard<'a, Writing>, tickets: Vec<Arc<Ticket>>) {
        let mut group = Group::new(&self.state());
        for ticket in tickets {
            let operation = ticket.operation.lock().unwrap_or_else(PoisonError::into_inner).take();
            let Some(operation) = operation else { continue };
            let records = group.records.bytes() as u64 + operation.bytes();
            let begins = writing.log.is_none() || records > self.largest_batch_bytes();
            let mut bytes = begins.then_some(0);
            loop {
                if let Some(bytes) = bytes {
                    self.append(&mut writing, group);
                    let room;
                    (writing, room) = self.room_for(writing, bytes);
                    group = Group::new(&self.state());
                    if let Err(error) = room {
                        ticket.answer(Err(error));
                        break;
                    }
                }
                match self.join(&writing, &mut group, &operation) {
                    Ok(Joined::Full(needed)) => bytes = Some(needed),
                    Ok(Joined::In(written)) => break group.done.push((ticket, written)),
                    Ok(Joined::Large) => break ticket.tell(Answer::Large(operation)),
                    Err(error) => break ticket.answer(Err(self.judged(&mut writing, error))),
                }
            }
        }
        self.append(&mut writing, group);
    }

    /// Waits until memory takes `bytes` more, and no large batch is about to be published: what that reads stays as it is.
    fn room_for<'a>(
        self: &'a Arc<Self>,
        mut writing: MutexGuard<'a, Writing>,
        bytes: u64,
    ) -> (MutexGuard<'a, Writing>, Result<(), CollectionError>) {
        let mut room = self.acquire(&mut writing);
        while room.is_ok() {
            if writing.reserved {
                writing = self.answered.wait(writing).unwrap_or_else(PoisonError::into_inner);
                // The log may have failed meanwhile.
                room = self.acquire(&mut writing);
            } else if self.is_full(&writing, &self.state(), bytes) {
                (writing, room) = self.make_room(writing, (None, true));
                // A segment that was written here was written without the lock, and the log may have been let go of since.
                room = room.and_then(|()| self.acquire(&mut writing));
            } else {
                break;
            }
        }
        (writing, room)
    }

    /// Adds a batch to a group, if there is room for it in memory.
    fn join(
        &self,
        writing: &Writing,
        group: &mut Group,
        operation: &Operation,
    ) -> Result<Joined, CollectionError> {
        let (change, written) = operation.change(&group.next, self.place.path())?;
        let Some(change) = change else { return Ok(Joined::In(written)) };
        let bytes = change.bytes();
        if change.record_bytes() > self.largest_batch_bytes() {
            return Ok(Joined::Large);
        }
        if self.is_full(writing, &group.next, bytes) {
            return Ok(Joined::Full(bytes));
        }
        let last = writing.log.as_ref().map_or(0, LogWriter::last);
        let mut next = group.next.clone();
        // What is logged is what is in memory: what a caller has lent may change.
        let change = next.apply(last + 1 + group.records.len() as u64, change)?;
        group.records.push(&change)?;
        group.given += change.record_bytes();
        group.next = next;
        Ok(Joined::In(written))
    }

    /// Appends the records of a group, and shows what they come to.
    fn append(&self, writing: &mut Writing, group: Group) {
        let Group { next, records, given, done } = group;
        let appended = match &mut writing.log {
            _ if records.len() == 0 => Ok(()),
            Some(log) => log.append(records, self.options.durability).map(|_| {
                Traffic::add(&self.traffic.log, log.take_appended());
                Traffic::add(&self.traffic.given, given);
                self.show(next);
            }),
            None => Err(CollectionError::Internal("the log is not open".into())),
        };
        match appended {
            Ok(()) => {
                done.into_iter().for_each(|(ticket, written)| ticket.answer(Ok(written)));
            }
            Err(error) => {
                // What of it was written is not known: the next that writes looks.
                writing.log = None;
                let mut tickets = done.into_iter().map(|(ticket, _)| ticket);
                let first = tickets.next();
                tickets.for_each(|ticket| ticket.answer(Err(self.shared_failure(&error))));
                if let Some(first) = first {
                    first.answer(Err(error));
                }
            }
        }
        self.answered.notify_all();
    }

    /// What those are told whose records would have been appended with those of another, who is told `error`.
    fn shared_failure(&self, error: &CollectionError) -> CollectionError {
        if let CollectionError::Store(StoreError::Denied { operation, path, reason }) = error {
            let (path, reason) = (path.clone(), reason.clone());
            return StoreError::Denied { operation, path, reason }.into();
        }
        CollectionError::NotWritten { path: self.place.path().to_path_buf(), reason: error.to_string() }
    }

    /// Whether `bytes` more would be more than memory for new rows may hold, or the log is longer than is soon read again. After a
    /// crash what the log holds is all in one memory, which takes more than it does otherwise.
    fn is_full(&self, writing: &Writing, state: &State, bytes: u64) -> bool {
        let (active, all) = (state.memories.last().map_or(0, |memory| memory.bytes()), state.memory_bytes());
        let most = (self.options.write_memory_bytes as f64 * ACTIVE_SHARE) as u64;
        let full = active > 0 && active + bytes > most || all > 0 && all + bytes > 2 * most;
        full || writing.log.as_ref().map_or(0, LogWriter::log_bytes) > self.options.write_memory_bytes
    }

    /// Bytes of a batch at most that goes through the log and memory.
    pub(crate) fn largest_batch_bytes(&self) -> u64 {
        let most = self.options.write_memory_bytes / BATCH_SHARE;
        self.options.direct_bytes.map_or(most, |given| given.min(most))
    }
}
