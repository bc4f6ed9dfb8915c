//! A worker's desk: where its orders are laid down, and what wakes it for them.

use super::job::Job;
use bathyal_tier::EngineWaker;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where a worker finds its orders, on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Desk {
    /// The worker's number among all, by which it gets a NUMA node.
    pub(super) number: usize,
    pub(super) alarm: Arc<EngineWaker>,
    inbox: Mutex<Inbox>,
    /// Queries that it has been given, a batch as many as it interleaves.
    load: AtomicUsize,
}

#[derive(Default)]
struct Inbox {
    orders: Vec<Order>,
    /// The worker has ended; nobody will read this.
    closed: bool,
}

/// What a worker is to do.
pub(super) enum Order {
    Answer(Arc<Job>),
    /// An index is being closed.
    Dismiss {
        tenant: u64,
        _ack: Sender<()>,
    },
}

impl Desk {
    /// That of worker number `number`.
    pub(super) fn new(number: usize) -> Desk {
        Desk { number, ..Desk::default() }
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what has been ordered.
    pub(super) fn orders(&self) -> Vec<Order> {
        std::mem::take(&mut self.inbox().orders)
    }

    /// The same for the last time: the worker has ended.
    pub(super) fn close(&self) -> Vec<Order> {
        let mut inbox = self.inbox();
        inbox.closed = true;
        std::mem::take(&mut inbox.orders)
    }

    /// Notes that the worker has done with a job.
    pub(super) fn relieve(&self, job: &Job) {
        self.load.fetch_sub(job.weight(), Ordering::Relaxed);
    }

    pub(super) fn load(&self) -> usize {
        self.load.load(Ordering::Relaxed)
    }

    pub(super) fn is_open(&self) -> bool {
        !self.inbox().closed
    }

    /// Gives the worker a job; `false` if there is no worker any more.
    pub(super) fn give(&self, job: Arc<Job>) -> bool {
        self.load.fetch_add(job.weight(), Ordering::Relaxed);
        self.order(Order::Answer(job))
    }

    /// Has the worker close its engine of an index, and drop `ack` when that is done.
    pub(super) fn dismiss(&self, tenant: u64, ack: Sender<()>) {
        self.order(Order::Dismiss { tenant, _ack: ack });
    }

    fn order(&self, order: Order) -> bool {
        let mut inbox = self.inbox();
        if inbox.closed {
            return false;
        }
        inbox.orders.push(order);
        drop(inbox);
        self.alarm.wake();
        true
    }
}
