//! Positioned reads on a few threads, which work on every system.

use super::at::read_at;
use crate::contract::{Completion, Queue, Read, Span};
use crate::error::{ReadFault, TierError};
use std::fs::File;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

/// Maximum number of reading threads. Devices serve more reads at once, but each thread costs a stack and
/// context switches.
const MOST_THREADS: u32 = 32;

/// An event that ends a wait of the queue.
enum Event {
    Done(Completion),
    /// Sent by the queue's waker.
    Woken,
}

/// Waker of a queue: sends it an event.
struct EventWaker(Mutex<Sender<Event>>);

impl Wake for EventWaker {
    fn wake(self: Arc<Self>) {
        if let Ok(events) = self.0.lock() {
            // Fails if the queue was dropped.
            let _ = events.send(Event::Woken);
        }
    }
}

/// A read on its way to a thread of the pool.
struct ReadRequest(Read);

// SAFETY: by the contract of `Queue::submit`, only the queue touches the buffer until the completion, so
// exactly one thread of the pool does.
unsafe impl Send for ReadRequest {}

pub(super) struct PositionedQueue {
    requests: Option<Sender<ReadRequest>>,
    events: Receiver<Event>,
    /// Sender for the queue's wakers.
    event_sender: Sender<Event>,
    threads: Vec<JoinHandle<()>>,
    in_flight: usize,
    depth: usize,
}

impl PositionedQueue {
    pub(super) fn new(file: Arc<File>, len: u64, depth: u32) -> Result<PositionedQueue, TierError> {
        let (requests, inbox) = channel::<ReadRequest>();
        let (event_sender, events) = channel();
        let inbox = Arc::new(Mutex::new(inbox));
        let mut threads = Vec::new();
        for _ in 0..depth.clamp(1, MOST_THREADS) {
            let (file, inbox, outbox): (_, _, Sender<Event>) =
                (file.clone(), inbox.clone(), event_sender.clone());
            let serve = move || {
                loop {
                    let request = match inbox.lock() {
                        Ok(inbox) => inbox.recv(),
                        Err(_) => return,
                    };
                    let Ok(ReadRequest(read)) = request else { return };
                    let result = fetch(&file, len, &read);
                    if outbox.send(Event::Done(Completion { id: read.id, result })).is_err() {
                        return;
                    }
                }
            };
            let thread = std::thread::Builder::new()
                .name("bathyal-read".into())
                .spawn(serve)
                .map_err(|source| TierError::System { operation: "start a reading thread", source })?;
            threads.push(thread);
        }
        let depth = depth.max(1) as usize;
        Ok(PositionedQueue { requests: Some(requests), events, event_sender, threads, in_flight: 0, depth })
    }
}

/// Reads until the buffer is full or the file ends.
fn fetch(file: &File, file_len: u64, read: &Read) -> Result<u32, ReadFault> {
    // SAFETY: by the contract of `Queue::submit` the buffer holds `len` writable bytes that are this read's
    // alone.
    let buffer = unsafe { std::slice::from_raw_parts_mut(read.buffer, read.len as usize) };
    let mut arrived = 0;
    while arrived < buffer.len() && read.offset + (arrived as u64) < file_len {
        match read_at(file, &mut buffer[arrived..], read.offset + arrived as u64) {
            Ok(0) => break,
            Ok(n) => arrived += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(ReadFault::of_error(&e)),
        }
    }
    Ok(arrived as u32)
}

impl Queue for PositionedQueue {
    unsafe fn submit(&mut self, reads: &[Read]) -> Result<usize, TierError> {
        let taken = reads.len().min(self.depth - self.in_flight);
        let Some(requests) = &self.requests else { return Ok(0) };
        for read in &reads[..taken] {
            requests
                .send(ReadRequest(*read))
                .map_err(|_| TierError::Contract("the reading threads have ended".into()))?;
            self.in_flight += 1;
        }
        Ok(taken)
    }

    fn reap(&mut self, done: &mut Vec<Completion>, wait: Option<Duration>) -> Result<(), TierError> {
        let before = done.len();
        let completion = |event| match event {
            Event::Done(completion) => Some(completion),
            Event::Woken => None,
        };
        done.extend(self.events.try_iter().filter_map(completion));
        if done.len() == before
            && self.in_flight > 0
            && let Some(wait) = wait
            && let Ok(first) = self.events.recv_timeout(wait)
        {
            done.extend(completion(first));
            done.extend(self.events.try_iter().filter_map(completion));
        }
        self.in_flight -= done.len() - before;
        Ok(())
    }

    fn map(&self, _span: Span) -> Option<&[u8]> {
        None
    }

    /// Returns `None`: a file is read into buffers.
    fn lend(&self) -> Option<&[u8]> {
        None
    }

    unsafe fn register(&mut self, _region: *mut u8, _len: usize) -> Result<(), TierError> {
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn waker(&mut self) -> Option<Waker> {
        Some(Waker::from(Arc::new(EventWaker(Mutex::new(self.event_sender.clone())))))
    }
}

impl Drop for PositionedQueue {
    fn drop(&mut self) {
        self.requests = None;
        for thread in self.threads.drain(..) {
            // A thread that panicked no longer uses a buffer.
            let _ = thread.join();
        }
    }
}
