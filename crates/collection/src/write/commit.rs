//! Many that write at once share the log's way to the device: who comes first writes what all have brought.

use super::operation::{Operation, Written};
use super::shared::{Shared, Writing};
use crate::error::CollectionError;
use crate::log;
use crate::state::State;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What of the memory for writes a batch may take: it is there as its caller has it, as a record and as rows.
const BATCH_SHARE: u64 = 8;
/// What of it rows may take before they are frozen; as many are being written as a segment. The rest is for batches on their way.
const ACTIVE_SHARE: f64 = 0.375;

/// What waits to be written.
#[derive(Default)]
pub(super) struct Queue(Mutex<Vec<Arc<Ticket>>>);

/// A batch on its way, and what becomes of it.
struct Ticket {
    operation: Mutex<Option<Operation>>,
    answer: Mutex<Option<Result<Written, CollectionError>>>,
}

impl Ticket {
    fn answer(&self, answer: Result<Written, CollectionError>) {
        *self.answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
    }

    fn take_answer(&self) -> Option<Result<Written, CollectionError>> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Records that go to the log together.
struct Group {
    /// What they come to.
    next: State,
    records: Vec<u8>,
    done: Vec<(Arc<Ticket>, Written)>,
}

impl Group {
    fn new(state: &State) -> Group {
        Group { next: state.clone(), records: Vec::new(), done: Vec::new() }
    }
}

impl Shared {
    /// Writes a batch: when this returns it outlives the process, and the machine if the options say so.
    ///
    /// # Errors
    /// [`CollectionError`]; nothing of it is there then, or all of it where the error says so.
    pub(crate) fn write(self: &Arc<Self>, operation: Operation) -> Result<Written, CollectionError> {
        let most = self.largest_batch_bytes();
        if operation.bytes() > most {
            return Err(CollectionError::Memory {
                what: "a batch of rows",
                needed: operation.bytes(),
                given: most,
                advice: "write fewer rows at once, or allow more memory for writes (write_memory)".into(),
            });
        }
        let ticket = Arc::new(Ticket { operation: Mutex::new(Some(operation)), answer: Mutex::new(None) });
        self.queue.0.lock().unwrap_or_else(PoisonError::into_inner).push(ticket.clone());
        let mut writing = self.writing();
        if let Some(answer) = ticket.take_answer() {
            return answer;
        }
        if let Err(error) = self.acquire(&mut writing) {
            // Others that wait find out for themselves.
            self.queue
                .0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .retain(|other| !Arc::ptr_eq(other, &ticket));
            return Err(error);
        }
        let tickets = std::mem::take(&mut *self.queue.0.lock().unwrap_or_else(PoisonError::into_inner));
        self.commit(writing, tickets);
        let lost = || Err(CollectionError::Internal("a batch without an answer".into()));
        ticket.take_answer().unwrap_or_else(lost)
    }

    /// Writes what all of `tickets` bring, in their order.
    fn commit<'a>(self: &'a Arc<Self>, mut writing: MutexGuard<'a, Writing>, tickets: Vec<Arc<Ticket>>) {
        let mut group = Group::new(&self.state());
        for ticket in tickets {
            let operation = ticket.operation.lock().unwrap_or_else(PoisonError::into_inner).take();
            let Some(operation) = operation else { continue };
            if writing.log.is_none() {
                // An earlier append has failed: what of it is there is looked at first.
                if let Err(error) = self.acquire(&mut writing) {
                    ticket.answer(Err(error));
                    continue;
                }
                group = Group::new(&self.state());
            }
            let full = self.is_full(&writing, &group.next, operation.bytes());
            if full || group.records.len() as u64 + operation.bytes() > self.largest_batch_bytes() {
                self.append(&mut writing, group);
                if full {
                    let room;
                    (writing, room) = self.make_room(writing);
                    if let Err(error) = room.and_then(|()| self.acquire(&mut writing)) {
                        ticket.answer(Err(error));
                        group = Group::new(&self.state());
                        continue;
                    }
                }
                group = Group::new(&self.state());
            }
            match self.join(&mut group, &operation) {
                Ok(written) => group.done.push((ticket, written)),
                Err(error) => ticket.answer(Err(error)),
            }
        }
        self.append(&mut writing, group);
    }

    /// Adds a batch to a group.
    fn join(&self, group: &mut Group, operation: &Operation) -> Result<Written, CollectionError> {
        let (change, written) = operation.change(&group.next, self.place.path())?;
        if let Some(change) = change {
            let mut next = group.next.clone();
            let sequence = next.sequence + 1;
            next.apply(sequence, &change)?;
            log::encode(&next.version.id, &change, sequence, &mut group.records)?;
            group.next = next;
        }
        Ok(written)
    }

    /// Appends the records of a group, and shows what they come to.
    fn append(&self, writing: &mut Writing, group: Group) {
        let Group { next, records, done } = group;
        if records.is_empty() {
            done.into_iter().for_each(|(ticket, written)| ticket.answer(Ok(written)));
            return;
        }
        let appended = match &mut writing.log {
            Some(log) => log.append(&records, self.options.durability),
            // An earlier group of the same tickets has failed.
            None => Err(CollectionError::Internal("the log is not open".into())),
        };
        match appended {
            Ok(()) => {
                writing.log_bytes += records.len() as u64;
                self.show(next);
                done.into_iter().for_each(|(ticket, written)| ticket.answer(Ok(written)));
            }
            Err(error) => {
                // What of it was written is not known: the next that writes looks.
                writing.log = None;
                let reason = error.to_string();
                let mut first = Some(error);
                for (ticket, _) in done {
                    let path = self.place.path().to_path_buf();
                    let other = || CollectionError::NotWritten { path, reason: reason.clone() };
                    ticket.answer(Err(first.take().unwrap_or_else(other)));
                }
            }
        }
    }

    /// Whether `bytes` more would be more than memory for new rows may hold, or the log is longer than is soon read again.
    fn is_full(&self, writing: &Writing, state: &State, bytes: u64) -> bool {
        let (active, most) =
            (state.memories.last().map_or(0, |memory| memory.bytes()), self.options.write_memory_bytes);
        let full = active + bytes > (most as f64 * ACTIVE_SHARE) as u64;
        active > 0 && full || writing.log_bytes > most
    }

    /// Bytes of a batch at most.
    pub(crate) fn largest_batch_bytes(&self) -> u64 {
        self.options.write_memory_bytes / BATCH_SHARE
    }
}
