//! The slots of queries, through which queries and the worker threads of a card exchange requests and
//! responses.

use super::kernel::QueryKernel;
use crate::error::GpuError;
use bathyal_tier::{Cx, TaskWaker};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// State of a slot's request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum RequestState {
    /// The query writes it.
    #[default]
    Idle,
    /// It is queued or part of a launch. `abandoned`: the query has been dropped.
    Submitted { abandoned: bool },
    /// The response has been written, or the request has failed.
    Done(Result<(), GpuError>),
}

/// Content of a slot. The memory of the request is reused.
#[derive(Default)]
pub(super) struct SlotEntry<R> {
    pub(super) state: RequestState,
    pub(super) waker: Option<TaskWaker>,
    /// The request, with the response.
    pub(super) request: R,
}

/// Limits of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ServiceLimits {
    /// Maximum number of queries with a slot.
    pub(super) slots: u32,
    /// Maximum number of queries of a launch.
    pub(super) launch_queries: u32,
    /// Queries that a launch waits for, or all with a slot if those are fewer; `None` does not wait.
    pub(super) mini_batch: Option<u32>,
}

impl ServiceLimits {
    /// Returns the maximum number of queries of a launch, which a mini-batch may reduce.
    pub(super) fn launch_size(&self) -> usize {
        self.mini_batch.unwrap_or(self.launch_queries).min(self.launch_queries) as usize
    }
}

/// Submitted requests, free slots, and queries that wait for a slot.
#[derive(Default)]
pub(super) struct RequestQueue {
    /// Slots whose requests no launch has taken yet.
    pub(super) submitted: Vec<u32>,
    pub(super) free_slots: Vec<u32>,
    /// Wakers of the queries that wait for a slot.
    pub(super) slot_waiters: Vec<TaskWaker>,
    /// Set when the service stops.
    pub(super) stopping: bool,
    /// The error after which every request fails.
    pub(super) failed: Option<GpuError>,
}

/// State shared by queries and worker threads.
pub(super) struct ServiceState<K: QueryKernel> {
    pub(super) kernel: K,
    pub(super) limits: ServiceLimits,
    queue: Mutex<RequestQueue>,
    /// Wakes workers when a launch may be possible.
    pub(super) work_available: Condvar,
    slots: Vec<Mutex<SlotEntry<K::Request>>>,
    /// Number of launches, of requests, and of bytes copied to the card.
    pub(super) counters: [AtomicU64; 3],
}

impl<K: QueryKernel> std::fmt::Debug for ServiceState<K> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ServiceState").field("slots", &self.slots.len()).finish_non_exhaustive()
    }
}

impl<K: QueryKernel> ServiceState<K> {
    pub(super) fn new(kernel: K, limits: ServiceLimits) -> ServiceState<K> {
        ServiceState {
            kernel,
            limits,
            queue: Mutex::new(RequestQueue {
                free_slots: (0..limits.slots).rev().collect(),
                ..RequestQueue::default()
            }),
            work_available: Condvar::new(),
            slots: (0..limits.slots).map(|_| Mutex::default()).collect(),
            counters: Default::default(),
        }
    }

    pub(super) fn queue(&self) -> MutexGuard<'_, RequestQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn slot(&self, slot: u32) -> MutexGuard<'_, SlotEntry<K::Request>> {
        self.slots[slot as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if a launch can be made. A mini-batch also waits for queries of another launch and for
    /// those that read pages: they will submit again or free their slots.
    pub(super) fn is_ready(&self, queue: &RequestQueue) -> bool {
        let (submitted, held) = (queue.submitted.len(), self.slots.len() - queue.free_slots.len());
        let enough =
            self.limits.mini_batch.is_none() || submitted >= self.limits.launch_size() || submitted >= held;
        submitted > 0 && (enough || queue.stopping)
    }

    /// Tells the workers to stop.
    pub(super) fn stop(&self) {
        self.queue().stopping = true;
        self.work_available.notify_all();
    }

    /// Frees a slot.
    pub(super) fn free_slot(&self, slot: u32) {
        let mut queue = self.queue();
        queue.free_slots.push(slot);
        // Wake every waiter: a single wake could reach a query that no longer needs a slot, and the one that
        // does would sleep forever. A query that finds no free slot waits again.
        let waiting = std::mem::take(&mut queue.slot_waiters);
        // All other queries may have submitted, so a mini-batch may be complete now.
        let ready = self.is_ready(&queue);
        drop(queue);
        if ready {
            self.work_available.notify_one();
        }
        waiting.iter().for_each(TaskWaker::wake);
    }
}

/// A slot for a query on the card, freed when this is dropped.
#[derive(Debug)]
pub struct ServiceSlot<K: QueryKernel> {
    shared: Arc<ServiceState<K>>,
    number: u32,
}

impl<K: QueryKernel> ServiceSlot<K> {
    /// Takes a free slot. Returns `None` if there is none; then `waker` is woken when a slot is freed.
    pub(super) fn acquire(shared: &Arc<ServiceState<K>>, waker: TaskWaker) -> Option<ServiceSlot<K>> {
        let mut queue = shared.queue();
        let Some(number) = queue.free_slots.pop() else {
            queue.slot_waiters.push(waker);
            return None;
        };
        Some(ServiceSlot { shared: shared.clone(), number })
    }

    /// Returns the kernel.
    pub(crate) fn kernel(&self) -> &K {
        &self.shared.kernel
    }

    /// Writes the next request.
    pub(crate) fn write_request(&mut self, write: impl FnOnce(&mut K::Request)) {
        write(&mut self.shared.slot(self.number).request);
    }

    /// Submits the request. `waker` is woken when there is a response.
    pub(crate) fn submit_request(&mut self, waker: TaskWaker) {
        let mut entry = self.shared.slot(self.number);
        entry.waker = Some(waker);
        entry.state = RequestState::Submitted { abandoned: false };
        drop(entry);
        let mut queue = self.shared.queue();
        if let Some(error) = &queue.failed {
            let lost = GpuError::Lost(error.to_string());
            drop(queue);
            let mut entry = self.shared.slot(self.number);
            entry.state = RequestState::Done(Err(lost));
            if let Some(waker) = entry.waker.take() {
                waker.wake();
            }
            return;
        }
        queue.submitted.push(self.number);
        drop(queue);
        self.shared.work_available.notify_one();
    }

    /// Waits until the request has completed, and calls `read` with it.
    ///
    /// # Errors
    /// [`GpuError`] if the request has failed.
    pub(crate) async fn wait_for_request(
        &mut self,
        cx: &Cx,
        mut read: impl FnMut(&K::Request),
    ) -> Result<(), GpuError> {
        loop {
            match self.take_result(&mut read) {
                Some(result) => return result,
                None => cx.parked().await,
            }
        }
    }

    /// Calls `read` with the request if it has succeeded. Returns `None` if it has not completed yet.
    fn take_result(&mut self, read: impl FnOnce(&K::Request)) -> Option<Result<(), GpuError>> {
        let mut entry = self.shared.slot(self.number);
        if !matches!(entry.state, RequestState::Done(_)) {
            return None;
        }
        let RequestState::Done(result) = std::mem::take(&mut entry.state) else { return None };
        if result.is_ok() {
            read(&entry.request);
        }
        Some(result)
    }
}

impl<K: QueryKernel> Drop for ServiceSlot<K> {
    fn drop(&mut self) {
        let mut entry = self.shared.slot(self.number);
        if let RequestState::Submitted { abandoned } = &mut entry.state {
            // A launch may use the slot: the worker will free it.
            *abandoned = true;
            entry.waker = None;
            return;
        }
        entry.state = RequestState::Idle;
        drop(entry);
        self.shared.free_slot(self.number);
    }
}
