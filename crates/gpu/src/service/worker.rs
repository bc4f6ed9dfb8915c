//! The worker threads of a card. One launch serves all requests that were submitted while the workers were
//! busy. While one launch runs, another worker packs the next.

use super::slot::{RequestState, ServiceState};
use crate::error::GpuError;
use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

/// Serves a batch of requests with one launch.
pub(crate) trait BatchLaunch: Send + 'static {
    /// Request of a query, with room for the response.
    type Request: Default + Send;

    /// Removes the requests of the last launch.
    fn clear(&mut self);

    /// Adds the request of `slot`.
    fn add(&mut self, slot: u32, request: &mut Self::Request);

    /// Runs the kernel for all requests. Returns the number of bytes copied to the card.
    fn run(&mut self) -> Result<u64, GpuError>;

    /// Writes the response to the request that was added as number `at`.
    fn write_response(&mut self, at: usize, request: &mut Self::Request);
}

/// A worker thread, which makes one launch after another.
pub(super) struct Worker<B: BatchLaunch> {
    shared: Arc<ServiceState<B::Request>>,
    launch: B,
    /// Slots of its launch whose queries have not received the result yet, in the order in which they were
    /// added.
    slots: VecDeque<u32>,
}

impl<B: BatchLaunch> Worker<B> {
    pub(super) fn new(shared: Arc<ServiceState<B::Request>>, launch: B) -> Worker<B> {
        Worker { shared, launch, slots: VecDeque::new() }
    }

    /// Serves requests until the service stops. If it panics, it fails all requests, so that no query waits
    /// forever.
    pub(super) fn run(mut self) {
        if std::panic::catch_unwind(AssertUnwindSafe(|| self.serve())).is_err() {
            self.fail(GpuError::Lost("its thread has panicked; please report it".into()));
        }
    }

    fn serve(&mut self) {
        while self.wait() {
            self.launch.clear();
            for slot in &self.slots {
                self.launch.add(*slot, &mut self.shared.slot(*slot).request);
            }
            match self.launch.run() {
                Ok(bytes) => {
                    let increments = [1, self.slots.len() as u64, bytes];
                    for (counter, increment) in self.shared.counters.iter().zip(increments) {
                        counter.fetch_add(increment, Ordering::Relaxed);
                    }
                    self.deliver(&Ok(()));
                }
                Err(error) => self.fail(error),
            }
        }
    }

    /// Waits until a launch can be made, and takes its slots from the queue. Returns false if the service
    /// stops.
    fn wait(&mut self) -> bool {
        let mut queue = self.shared.queue();
        while !self.shared.is_ready(&queue) {
            if queue.stopping {
                return false;
            }
            queue = self.shared.work_available.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        let count = queue.submitted.len().min(self.shared.limits.launch_size());
        self.slots.extend(queue.submitted.drain(..count));
        if self.shared.is_ready(&queue) {
            self.shared.work_available.notify_one();
        }
        true
    }

    /// Fails the requests of this worker, the queued ones, and all later ones with `error`. Another worker's
    /// launch is not affected.
    fn fail(&mut self, error: GpuError) {
        let mut queue = self.shared.queue();
        queue.failed.get_or_insert_with(|| error.clone());
        self.slots.extend(queue.submitted.drain(..));
        drop(queue);
        self.deliver(&Err(error));
    }

    fn deliver(&mut self, result: &Result<(), GpuError>) {
        let count = self.slots.len();
        while let Some(slot) = self.slots.front().copied() {
            let mut entry = self.shared.slot(slot);
            if result.is_ok() {
                self.launch.write_response(count - self.slots.len(), &mut entry.request);
            }
            // From here on the slot may be reused.
            self.slots.pop_front();
            if entry.state == (RequestState::Submitted { abandoned: true }) {
                entry.state = RequestState::Idle;
                drop(entry);
                self.shared.free_slot(slot);
                continue;
            }
            entry.state = RequestState::Done(result.clone());
            if let Some(waker) = entry.waker.take() {
                waker.wake();
            }
        }
    }
}
