//! The queue of one thread: hands requests to the runtime, and copies what comes back to where the reads want it.
//!
//! Nothing but the queue's own thread writes to a caller's buffer, so a queue that is dropped leaves none in danger.

use super::Source;
use super::cached::{Part, Reader, parts};
use super::join::join;
use crate::client::Fault;
use bathyal_tier::{Completion, FaultKind, Queue, Read, ReadFault, Span, TierError};
use bytes::Bytes;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::task::AbortHandle;

/// What the queue waits for.
enum Event {
    /// Request number so-and-so ended.
    Answer(usize, Result<Bytes, Fault>),
    /// Somebody wants the queue's thread.
    Woken,
}

/// Ends a wait for an event.
struct Call(Mutex<Sender<Event>>);

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        if let Ok(events) = self.0.lock() {
            // A queue that is gone waits for nothing.
            let _ = events.send(Event::Woken);
        }
    }
}

/// A request in flight.
struct Request {
    /// Of the range's first byte.
    offset: u64,
    reads: Vec<Read>,
    task: AbortHandle,
}

pub(super) struct ObjectQueue {
    source: Arc<Source>,
    runtime: Arc<Runtime>,
    depth: usize,
    /// Reads taken and not reaped.
    in_flight: usize,
    requests: Vec<Option<Request>>,
    free: Vec<usize>,
    /// Reads that need no request.
    ended: Vec<Completion>,
    events: Receiver<Event>,
    sender: Sender<Event>,
    /// Whether the next wait is over before it begins.
    woken: bool,
}

impl ObjectQueue {
    pub(super) fn new(source: Arc<Source>, depth: u32) -> Result<ObjectQueue, TierError> {
        let failed = |e: bathyal_store::StoreError| TierError::System {
            operation: "start threads for object stores",
            source: std::io::Error::other(e),
        };
        let (sender, events) = channel();
        Ok(ObjectQueue {
            source,
            runtime: crate::runtime::runtime().map_err(failed)?,
            depth: depth.max(1) as usize,
            in_flight: 0,
            requests: Vec::new(),
            free: Vec::new(),
            ended: Vec::new(),
            events,
            sender,
            woken: false,
        })
    }

    /// Sends one request for these reads.
    fn send(&mut self, range: std::ops::Range<u64>, reads: Vec<Read>) {
        let number = self.free.pop().unwrap_or_else(|| {
            self.requests.push(None);
            self.requests.len() - 1
        });
        let (source, sender, offset) = (self.source.clone(), self.sender.clone(), range.start);
        let counted = if source.cached.is_some() { &reads[..] } else { &[] };
        let part = |read: &Read| Part { range: source.within(read), round: read.round };
        let reader = Reader::Searches(counted.iter().map(part).collect());
        let task = self.runtime.spawn(async move {
            let answer = source.read(range, &reader).await;
            // A queue that is gone wants no answer.
            let _ = sender.send(Event::Answer(number, answer));
        });
        self.requests[number] = Some(Request { offset, reads, task: task.abort_handle() });
    }

    /// Ends the reads whose bytes are in the cache's memory; the others, or `None` without a cache.
    fn copy_hits(&mut self, reads: &[Read]) -> Option<Vec<Read>> {
        self.source.cached.as_ref()?;
        let mut missed = Vec::new();
        for read in reads {
            let range = self.source.within(read);
            let found = if range.is_empty() { None } else { self.source.in_memory(&range, read.round) };
            let Some(found) = found else {
                missed.push(*read);
                continue;
            };
            let mut filled = 0;
            for (at, part) in parts(&found, &range) {
                // SAFETY: by the contract of `Queue::submit` the buffer holds `len` writable bytes that are this read's alone,
                // and the parts of its range, one behind the other, are no longer.
                unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), read.buffer.add(at), part.len()) };
                filled += part.len() as u32;
            }
            self.ended.push(Completion { id: read.id, result: Ok(filled) });
        }
        Some(missed)
    }

    fn take(&mut self, event: Event, done: &mut Vec<Completion>) {
        let Event::Answer(number, answer) = event else {
            self.woken = true;
            return;
        };
        let Some(request) = self.requests.get_mut(number).and_then(Option::take) else { return };
        self.free.push(number);
        for read in &request.reads {
            let result = match &answer {
                Ok(bytes) => deliver(read, request.offset, bytes),
                Err(fault) => Err(fault.of_read()),
            };
            done.push(Completion { id: read.id, result });
        }
    }
}

/// Copies the part of `bytes`, which begin at `offset`, that the read wants.
fn deliver(read: &Read, offset: u64, bytes: &Bytes) -> Result<u32, ReadFault> {
    let from = usize::try_from(read.offset - offset).unwrap_or(usize::MAX);
    let Some(there) = bytes.get(from..) else { return Err(ReadFault::of(FaultKind::Damaged)) };
    let part = &there[..there.len().min(read.len as usize)];
    // SAFETY: by the contract of `Queue::submit` the buffer holds `len` writable bytes that are this read's alone, and no
    // more than `len` are copied.
    unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), read.buffer, part.len()) };
    Ok(part.len() as u32)
}

impl Queue for ObjectQueue {
    unsafe fn submit(&mut self, reads: &[Read]) -> Result<usize, TierError> {
        let taken = &reads[..reads.len().min(self.depth - self.in_flight)];
        self.in_flight += taken.len();
        self.source.traffic.wanted(taken.len() as u64, taken.iter().map(|read| u64::from(read.len)).sum());
        let taken_reads = taken.len();
        let missed = self.copy_hits(taken);
        let taken = missed.as_deref().unwrap_or(taken);
        for request in join(taken, self.source.len) {
            let reads = request.reads.iter().map(|i| taken[*i]).collect();
            self.send(request.range, reads);
        }
        let beyond = taken.iter().filter(|read| read.offset >= self.source.len);
        self.ended.extend(beyond.map(|read| Completion { id: read.id, result: Ok(0) }));
        Ok(taken_reads)
    }

    fn reap(&mut self, done: &mut Vec<Completion>, wait: Option<Duration>) -> Result<(), TierError> {
        let before = done.len();
        done.append(&mut self.ended);
        while let Ok(event) = self.events.try_recv() {
            self.take(event, done);
        }
        if done.len() == before
            && self.in_flight > 0
            && let Some(wait) = wait
            && !std::mem::take(&mut self.woken)
            && let Ok(first) = self.events.recv_timeout(wait)
        {
            self.take(first, done);
            while let Ok(event) = self.events.try_recv() {
                self.take(event, done);
            }
            self.woken = false;
        }
        self.in_flight -= done.len() - before;
        Ok(())
    }

    fn map(&self, _span: Span) -> Option<&[u8]> {
        None
    }

    /// None: a range is read into buffers.
    fn lend(&self) -> Option<&[u8]> {
        None
    }

    unsafe fn register(&mut self, _region: *mut u8, _len: usize) -> Result<(), TierError> {
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn give_up(&mut self) {
        // Their numbers are not given again: answers to them may be on their way to this thread.
        for request in self.requests.iter_mut().filter_map(Option::take) {
            request.task.abort();
            let over =
                |read: &Read| Completion { id: read.id, result: Err(ReadFault::of(FaultKind::LostPeer)) };
            self.ended.extend(request.reads.iter().map(over));
        }
    }

    fn waker(&mut self) -> Option<Waker> {
        Some(Waker::from(Arc::new(Call(Mutex::new(self.sender.clone())))))
    }
}

impl Drop for ObjectQueue {
    fn drop(&mut self) {
        // Nobody waits for what is still on its way.
        self.requests.iter().flatten().for_each(|request| request.task.abort());
    }
}
