//! Positioned reads on a few threads: the way that works everywhere.

use crate::contract::{Completion, Queue, Read, Span};
use crate::error::{ReadFault, TierError};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Threads that read at once at most. Devices want more, but each thread costs a stack and switches.
const MOST_THREADS: u32 = 32;

/// A read on its way to a thread of the pool.
struct Order(Read);

// SAFETY: by the contract of `Queue::submit` nobody but the queue touches the buffer until the completion, so
// exactly one thread of the pool does.
unsafe impl Send for Order {}

pub(super) struct PositionedQueue {
    orders: Option<Sender<Order>>,
    done: Receiver<Completion>,
    threads: Vec<JoinHandle<()>>,
    in_flight: usize,
    depth: usize,
}

impl PositionedQueue {
    pub(super) fn new(file: Arc<File>, len: u64, depth: u32) -> Result<PositionedQueue, TierError> {
        let (orders, inbox) = channel::<Order>();
        let (outbox, done) = channel();
        let inbox = Arc::new(Mutex::new(inbox));
        let mut threads = Vec::new();
        for _ in 0..depth.clamp(1, MOST_THREADS) {
            let (file, inbox, outbox) = (file.clone(), inbox.clone(), outbox.clone());
            let serve = move || {
                loop {
                    let order = match inbox.lock() {
                        Ok(inbox) => inbox.recv(),
                        Err(_) => return,
                    };
                    let Ok(Order(read)) = order else { return };
                    let result = fetch(&file, len, &read);
                    if outbox.send(Completion { id: read.id, result }).is_err() {
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
        Ok(PositionedQueue { orders: Some(orders), done, threads, in_flight: 0, depth })
    }
}

/// Reads until the buffer is full or the file ends.
fn fetch(file: &File, file_len: u64, read: &Read) -> Result<u32, ReadFault> {
    // SAFETY: by the contract of `Queue::submit` the buffer holds `len` writable bytes that are this read's alone.
    let buffer = unsafe { std::slice::from_raw_parts_mut(read.buffer, read.len as usize) };
    let mut arrived = 0;
    while arrived < buffer.len() && read.offset + (arrived as u64) < file_len {
        match file.read_at(&mut buffer[arrived..], read.offset + arrived as u64) {
            Ok(0) => break,
            Ok(n) => arrived += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(ReadFault { errno: e.raw_os_error().unwrap_or(libc::EIO) }),
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
        done.extend(self.done.try_iter());
        if done.len() == before
            && self.in_flight > 0
            && let Some(wait) = wait
            && let Ok(first) = self.done.recv_timeout(wait)
        {
            done.push(first);
            done.extend(self.done.try_iter());
        }
        self.in_flight -= done.len() - before;
        Ok(())
    }

    fn map(&self, _span: Span) -> Option<&[u8]> {
        None
    }

    unsafe fn register(&mut self, _region: *mut u8, _len: usize) -> Result<(), TierError> {
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.in_flight
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
