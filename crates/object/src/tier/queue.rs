//! The queue of one thread: passes requests to the runtime, and copies the received bytes to the buffers of
//! the reads.
//!
//! Only the queue's own thread writes to callers' buffers, so no write can follow when a queue is dropped.

use super::ObjectSource;
use super::cached::{ReadPart, ReadPurpose, parts};
use super::join::join;
use crate::client::RequestFault;
use bathyal_tier::{Completion, FaultKind, Queue, Read, ReadFault, Span, TierError};
use bytes::Bytes;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::task::AbortHandle;

/// An event that the queue's thread waits for.
enum Event {
    /// The request of this number has ended.
    Response(usize, Result<Bytes, RequestFault>),
    /// The queue's waker was called.
    Woken,
}

/// The waker of the queue's thread.
struct QueueWaker(Mutex<Sender<Event>>);

impl Wake for QueueWaker {
    fn wake(self: Arc<Self>) {
        if let Ok(events) = self.0.lock() {
            // A dropped queue has no thread to wake.
            let _ = events.send(Event::Woken);
        }
    }
}

/// A request in flight.
struct Request {
    /// The offset of the range's first byte.
    offset: u64,
    reads: Vec<Read>,
    task: AbortHandle,
}

pub(super) struct ObjectQueue {
    source: Arc<ObjectSource>,
    runtime: Arc<Runtime>,
    depth: usize,
    /// The reads submitted and not reaped.
    in_flight: usize,
    requests: Vec<Option<Request>>,
    free: Vec<usize>,
    /// Completions of reads that need no response: cache hits, reads beyond the end, abandoned reads.
    ended: Vec<Completion>,
    events: Receiver<Event>,
    sender: Sender<Event>,
    /// True if the next wait returns at once.
    woken: bool,
}

impl ObjectQueue {
    pub(super) fn new(source: Arc<ObjectSource>, depth: u32) -> Result<ObjectQueue, TierError> {
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

    /// Sends one request for `reads`, which lie in `range`.
    fn send(&mut self, range: std::ops::Range<u64>, reads: Vec<Read>) {
        let number = self.free.pop().unwrap_or_else(|| {
            self.requests.push(None);
            self.requests.len() - 1
        });
        let (source, sender, offset) = (self.source.clone(), self.sender.clone(), range.start);
        let counted_reads = if source.cached.is_some() { &reads[..] } else { &[] };
        let part = |read: &Read| ReadPart { range: source.range_of(read), round: read.round };
        let reader = ReadPurpose::Searches(counted_reads.iter().map(part).collect());
        let task = self.runtime.spawn(async move {
            let response = source.read(range, &reader).await;
            // A dropped queue needs no response.
            let _ = sender.send(Event::Response(number, response));
        });
        self.requests[number] = Some(Request { offset, reads, task: task.abort_handle() });
    }

    /// Completes the reads whose bytes are in the cache's memory. Returns the other reads, or `None` without
    /// a cache.
    fn copy_hits(&mut self, reads: &[Read]) -> Option<Vec<Read>> {
        self.source.cached.as_ref()?;
        let mut missed = Vec::new();
        for read in reads {
            let range = self.source.range_of(read);
            let found = if range.is_empty() { None } else { self.source.in_memory(&range, read.round) };
            let Some(found) = found else {
                missed.push(*read);
                continue;
            };
            let mut filled = 0;
            for (at, part) in parts(&found, &range) {
                // SAFETY: by the contract of `Queue::submit`, the buffer holds `len` writable bytes that
                // belong to this read alone, and the parts of its range, placed back to back, are no longer.
                unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), read.buffer.add(at), part.len()) };
                filled += part.len() as u32;
            }
            self.ended.push(Completion { id: read.id, result: Ok(filled) });
        }
        Some(missed)
    }

    fn handle(&mut self, event: Event, done: &mut Vec<Completion>) {
        let Event::Response(number, response) = event else {
            self.woken = true;
            return;
        };
        let Some(request) = self.requests.get_mut(number).and_then(Option::take) else { return };
        self.free.push(number);
        for read in &request.reads {
            let result = match &response {
                Ok(bytes) => deliver(read, request.offset, bytes),
                Err(fault) => Err(fault.read_fault()),
            };
            done.push(Completion { id: read.id, result });
        }
    }
}

/// Copies the part of `bytes` that the read requests into its buffer. `offset` is that of the first of
/// `bytes`.
fn deliver(read: &Read, offset: u64, bytes: &Bytes) -> Result<u32, ReadFault> {
    let from = usize::try_from(read.offset - offset).unwrap_or(usize::MAX);
    let Some(rest) = bytes.get(from..) else { return Err(ReadFault::of(FaultKind::Damaged)) };
    let part = &rest[..rest.len().min(read.len as usize)];
    // SAFETY: by the contract of `Queue::submit`, the buffer holds `len` writable bytes that belong to this
    // read alone, and at most `len` bytes are copied.
    unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), read.buffer, part.len()) };
    Ok(part.len() as u32)
}

impl Queue for ObjectQueue {
    unsafe fn submit(&mut self, reads: &[Read]) -> Result<usize, TierError> {
        let accepted = &reads[..reads.len().min(self.depth - self.in_flight)];
        self.in_flight += accepted.len();
        self.source
            .traffic
            .count_reads(accepted.len() as u64, accepted.iter().map(|read| u64::from(read.len)).sum());
        let submitted = accepted.len();
        let missed = self.copy_hits(accepted);
        let accepted = missed.as_deref().unwrap_or(accepted);
        for request in join(accepted, self.source.len) {
            let reads = request.reads.iter().map(|i| accepted[*i]).collect();
            self.send(request.range, reads);
        }
        let beyond = accepted.iter().filter(|read| read.offset >= self.source.len);
        self.ended.extend(beyond.map(|read| Completion { id: read.id, result: Ok(0) }));
        Ok(submitted)
    }

    fn reap(&mut self, done: &mut Vec<Completion>, wait: Option<Duration>) -> Result<(), TierError> {
        let before = done.len();
        done.append(&mut self.ended);
        while let Ok(event) = self.events.try_recv() {
            self.handle(event, done);
        }
        if done.len() == before
            && self.in_flight > 0
            && let Some(wait) = wait
            && !std::mem::take(&mut self.woken)
            && let Ok(first) = self.events.recv_timeout(wait)
        {
            self.handle(first, done);
            while let Ok(event) = self.events.try_recv() {
                self.handle(event, done);
            }
            self.woken = false;
        }
        self.in_flight -= done.len() - before;
        Ok(())
    }

    fn map(&self, _span: Span) -> Option<&[u8]> {
        None
    }

    /// Returns `None`: ranges are read into buffers.
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
        // The numbers of these requests are not reused, since responses to them may still arrive.
        for request in self.requests.iter_mut().filter_map(Option::take) {
            request.task.abort();
            let abandoned =
                |read: &Read| Completion { id: read.id, result: Err(ReadFault::of(FaultKind::LostPeer)) };
            self.ended.extend(request.reads.iter().map(abandoned));
        }
    }

    fn waker(&mut self) -> Option<Waker> {
        Some(Waker::from(Arc::new(QueueWaker(Mutex::new(self.sender.clone())))))
    }
}

impl Drop for ObjectQueue {
    fn drop(&mut self) {
        // No thread waits for the responses to these requests any more.
        self.requests.iter().flatten().for_each(|request| request.task.abort());
    }
}
