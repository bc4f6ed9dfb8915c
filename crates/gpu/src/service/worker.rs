//! The worker threads of a card. One launch serves all requests that were submitted while the workers were
//! busy. While one launch runs, another worker packs the next.

use super::batch::LaunchBatch;
use super::kernel::QueryKernel;
use super::slot::{RequestState, ServiceState};
use crate::error::GpuError;
use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

/// A worker thread, which makes one launch after another.
pub(super) struct LaunchWorker<K: QueryKernel> {
    shared: Arc<ServiceState<K>>,
    batch: LaunchBatch,
    /// Largest sizes among the requests of its launch.
    sizes: K::Sizes,
    /// Slots of its launch whose queries have not received the result yet, in the order in which they were
    /// added.
    slots: VecDeque<u32>,
}

impl<K: QueryKernel> LaunchWorker<K> {
    pub(super) fn new(shared: Arc<ServiceState<K>>, batch: LaunchBatch) -> LaunchWorker<K> {
        LaunchWorker { shared, batch, sizes: K::Sizes::default(), slots: VecDeque::new() }
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
            match self.launch() {
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

    /// Runs the kernel for the requests of its slots. Returns the number of bytes copied to the card.
    fn launch(&mut self) -> Result<u64, GpuError> {
        let LaunchWorker { shared, batch, sizes, slots } = self;
        let kernel = &shared.kernel;
        batch.clear();
        *sizes = K::Sizes::default();
        for slot in &*slots {
            kernel.add(*slot, &mut shared.slot(*slot).request, &mut batch.inputs, sizes);
        }
        let parameters = kernel.parameters(sizes, &batch.addresses());
        let copied = batch.run(kernel.kernel(), slots.len(), &parameters)?;
        (0..slots.len()).try_for_each(|at| kernel.check(sizes, batch.output(at)))?;
        Ok(copied)
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
                let output = self.batch.output(count - self.slots.len());
                self.shared.kernel.write_response(&self.sizes, output, &mut entry.request);
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
