//! A worker's inbox: the messages to it, the waker that ends its sleep, and its load.

use super::job::Job;
use bathyal_tier::EngineWaker;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The inbox of one worker, on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Inbox {
    /// The worker's number in the pool, which determines its NUMA node.
    pub(super) number: usize,
    pub(super) waker: Arc<EngineWaker>,
    queue: Mutex<MessageQueue>,
    /// The sum of the weights of the worker's jobs ([`Job::weight`]).
    load: AtomicUsize,
}

#[derive(Default)]
struct MessageQueue {
    messages: Vec<Message>,
    /// Set when the worker has ended; later messages are refused.
    closed: bool,
}

/// A message to a worker.
pub(super) enum Message {
    /// Run queries of this job.
    Run(Arc<Job>),
    /// Close the engine of the client with this number, whose index is being closed, and drop `_ack`.
    CloseEngine { client: u64, _ack: Sender<()> },
}

impl Inbox {
    /// Creates the inbox of the worker with this number.
    pub(super) fn new(number: usize) -> Inbox {
        Inbox { number, ..Inbox::default() }
    }

    fn queue(&self) -> MutexGuard<'_, MessageQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes all messages.
    pub(super) fn receive_all(&self) -> Vec<Message> {
        std::mem::take(&mut self.queue().messages)
    }

    /// Takes the last messages, and refuses further ones. The worker has ended.
    pub(super) fn close(&self) -> Vec<Message> {
        let mut queue = self.queue();
        queue.closed = true;
        std::mem::take(&mut queue.messages)
    }

    /// Subtracts from the load a job with which the worker is done.
    pub(super) fn finish_job(&self, job: &Job) {
        self.load.fetch_sub(job.weight(), Ordering::Relaxed);
    }

    pub(super) fn load(&self) -> usize {
        self.load.load(Ordering::Relaxed)
    }

    pub(super) fn is_open(&self) -> bool {
        !self.queue().closed
    }

    /// Sends the worker a job; returns `false` if the worker has ended.
    pub(super) fn send_job(&self, job: Arc<Job>) -> bool {
        self.load.fetch_add(job.weight(), Ordering::Relaxed);
        self.send(Message::Run(job))
    }

    /// Tells the worker to close its engine of a client, and to drop `ack` when that is done.
    pub(super) fn send_close(&self, client: u64, ack: Sender<()>) {
        self.send(Message::CloseEngine { client, _ack: ack });
    }

    fn send(&self, message: Message) -> bool {
        let mut queue = self.queue();
        if queue.closed {
            return false;
        }
        queue.messages.push(message);
        drop(queue);
        self.waker.wake();
        true
    }
}
