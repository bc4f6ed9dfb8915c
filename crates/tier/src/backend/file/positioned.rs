//! Positioned reads on a few threads: the way that works everywhere.

use super::at::read_at;
use crate::contract::{Completion, Queue, Read, Span};
use crate::error::{ReadFault, TierError};
use std::fs::File;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::thread::JoinHandle;
use std::time::Duration;

/// Threads that read at once at most. Devices want more, but each thread costs a stack and switches.
const MOST_THREADS: u32 = 32;

/// What the queue waits for.
enum Event {
    Done(Completion),
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

/// A read on its way to a thread of the pool.
struct Order(Read);

// SAFETY: by the contract of `Queue::submit` nobody but the queue touches the buffer until the completion, so
// exactly one thread of the pool does.
unsafe impl Send for Order {}

pub(super) struct PositionedQueue {
    orders: Option<Sender<Order>>,
    done: Receiver<Event>,
    /// Kept for whoever wants to end a wait.
    events: Sender<Event>,
    threads: Vec<JoinHandle<()>>,
    in_flight: usize,
    depth: usize,
}

impl PositionedQueue {
    pub(super) fn new(file: Arc<File>, len: u64, depth: u32) -> Result<PositionedQueue, TierError> {
        let (orders, inbox) = channel::<Order>();
        let (events, done) = channel();
        let inbox = Arc::new(Mutex::new(inbox));
        let mut threads = Vec::new();
        for _ in 0..depth.clamp(1, MOST_THREADS) {
            let (file, inbox, outbox): (_, _, Sender<Event>) = (file.clone(), inbox.clone(), events.clone());
            let serve = move || {
                loop {
                    let order = match inbox.lock() {
                        Ok(inbox) => inbox.recv(),
                        Err(_) => return,
                    };
                    let Ok(Order(read)) = order else { return };
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
        Ok(PositionedQueue { orders: Some(orders), done, events, threads, in_flight: 0, depth })
    }
}

/// Reads until the buffer is full or the file ends.
fn fetch(file: &File, file_len: u64, read: &Read) -> Result<u32, ReadFault> {
    // SAFETY: by the contract of `Queue::submit` the buffer holds `len` writable bytes that are this read's alone.
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
        let Some(orders) = &self.orders else { return Ok(0) };
        for read in &reads[..taken] {
            orders
                .send(Order(*read))
                .map_err(|_| TierError::Contract("the reading threads have ended".into()))?;
            self.in_flight += 1;
        }
        Ok(taken)
    }

    fn reap(&mut self, done: &mut Vec<Completion>, wait: Option<Duration>) -> Result<(), TierError> {
        let before = done.len();
        let arrived = |event| match event {
            Event::Done(completion) => Some(completion),
            Event::Woken => None,
        };
        done.extend(self.done.try_iter().filter_map(arrived));
        if done.len() == before
            && self.in_flight > 0
            && let Some(wait) = wait
            && let Ok(first) = self.done.recv_timeout(wait)
        {
            done.extend(arrived(first));
            done.extend(self.done.try_iter().filter_map(arrived));
        }
        self.in_flight -= done.len() - before;
        Ok(())
    }

    fn map(&self, _span: Span) -> Option<&[u8]> {
        None
    }

    /// None: a file is read into buffers.
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
        Some(Waker::from(Arc::new(Call(Mutex::new(self.events.clone())))))
    }
}

impl Drop for PositionedQueue {
    fn drop(&mut self) {
        self.orders = None;
        for thread in self.threads.drain(..) {
            // A thread that panicked holds no buffer any more.
            let _ = thread.join();
        }
    }
}
