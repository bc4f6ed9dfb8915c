//! The service of a card for queries. A query submits a request and suspends; the worker threads of the card
//! serve all requests that were submitted while they were busy with one launch. A query continues as soon as
//! its own data has arrived, and launches grow with the load. Mini-batches, in which queries wait for each
//! other (GustANN, section 4.1.3), are an option for comparisons.

mod batch;
mod kernel;
mod slot;
mod worker;

pub(crate) use batch::THREADS;
pub use batch::{BatchAddresses, Inputs, LaunchParameters, QueryBytes};
pub use kernel::QueryKernel;
pub(crate) use kernel::check_numbers;
pub use slot::ServiceSlot;

use crate::card::{Card, CardMemory, CardProfile};
use crate::error::GpuError;
use batch::LaunchBatch;
use bathyal_tier::Cx;
use slot::{ServiceLimits, ServiceState};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use worker::LaunchWorker;

/// Minimum number of slots.
const LEAST_SLOTS: u32 = 1 << 12;
/// Maximum number of slots: an H100 serves 4,000 queries in 2 ms, so more would only wait for each other.
const MOST_SLOTS: u32 = 1 << 14;
/// The slots take at most one part in this many of the card's memory.
const SLOT_SHARE: u64 = 32;
/// Maximum number of queries of a mini-batch: a launch has room for them on any card.
pub const MOST_MINI_BATCH: u32 = LEAST_SLOTS / LAUNCHES;
/// Maximum number of launches at a time: while the card runs one, the other is packed.
const LAUNCHES: u32 = 2;
/// Time to wait for the running launches when the service stops. A launch takes about a thousandth of it; one
/// that takes longer is abandoned.
const STOP_TIME: Duration = Duration::from_secs(2);
/// Interval between checks for the end of a thread.
const STOP_CHECK: Duration = Duration::from_micros(100);

/// Returns the maximum number of queries of a launch, and the number of launches, for `slots` slots. Together
/// the launches have room for all slots.
fn launches(slots: u32) -> (u32, u32) {
    let launches = LAUNCHES.min(slots).max(1);
    (slots.div_ceil(launches), launches)
}

/// Returns the number of queries that may have a slot on a card at a time, if each takes `bytes` of its
/// memory. Further queries wait.
pub fn slots(profile: &CardProfile, bytes: u64) -> u32 {
    let fit = profile.memory_bytes / SLOT_SHARE / bytes.max(1);
    u32::try_from(fit).unwrap_or(u32::MAX).clamp(LEAST_SLOTS, MOST_SLOTS)
}

/// Counters of a card's work for searches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CardCounters {
    /// Number of launches.
    pub launches: u64,
    /// Number of requests. One launch serves many of them.
    pub asked: u64,
    /// Bytes copied to the card.
    pub bytes: u64,
}

/// Service that executes the requests of queries on a card by the kernel `K`.
#[derive(Debug)]
pub struct Service<K: QueryKernel> {
    shared: Arc<ServiceState<K>>,
    threads: Vec<JoinHandle<()>>,
    resident_bytes: u64,
}

impl<K: QueryKernel> Service<K> {
    /// Allocates memory for the launches of `slots` queries, and starts the worker threads. `resident` is
    /// memory that only the kernel accesses. With `mini_batch`, a launch waits for this many queries, or for
    /// all with a slot.
    ///
    /// # Errors
    /// [`GpuError::Memory`] if the inputs and outputs do not fit; [`GpuError::Unsuited`] for a mini-batch of
    /// 0 queries, or of more than a launch has room for; [`GpuError::Driver`], also if a thread cannot be
    /// started.
    pub(crate) fn with_kernel(
        card: &dyn Card,
        kernel: K,
        resident: impl IntoIterator<Item = Box<dyn CardMemory>>,
        slots: u32,
        mini_batch: Option<u32>,
    ) -> Result<Service<K>, GpuError> {
        let (resident, query_bytes): (Arc<[_]>, _) = (resident.into_iter().collect(), kernel.query_bytes());
        let (launch_queries, launch_count) = launches(slots);
        let allocate = |_| LaunchBatch::allocate(card, launch_queries, &query_bytes, resident.clone());
        let batches: Vec<LaunchBatch> = (0..launch_count).map(allocate).collect::<Result<_, _>>()?;
        if let Some(batch) = mini_batch.filter(|batch| !(1..=launch_queries).contains(batch)) {
            return Err(GpuError::Unsuited(format!(
                "a mini-batch of {batch} queries is not possible: on a graphics card it must have 1 to \
                 {launch_queries}"
            )));
        }
        let shared = Arc::new(ServiceState::new(kernel, ServiceLimits { slots, launch_queries, mini_batch }));
        let memory_bytes = resident.iter().map(|memory| memory.bytes());
        let resident_bytes = memory_bytes.chain(batches.iter().map(LaunchBatch::bytes)).sum();
        // If a thread cannot be started, dropping this stops the others.
        let mut service = Service { shared: shared.clone(), threads: Vec::new(), resident_bytes };
        for batch in batches {
            let worker = LaunchWorker::new(shared.clone(), batch);
            let thread = std::thread::Builder::new().name("bathyal-card".into()).spawn(|| worker.run());
            let failed =
                |e: std::io::Error| GpuError::Driver { operation: "start its thread", reason: e.to_string() };
            service.threads.push(thread.map_err(failed)?);
        }
        Ok(service)
    }

    /// Takes a slot for the query of `cx`, as soon as one is free.
    pub async fn wait_for_slot(&self, cx: &Cx) -> ServiceSlot<K> {
        loop {
            match ServiceSlot::acquire(&self.shared, cx.task_waker()) {
                Some(slot) => return slot,
                None => cx.parked().await,
            }
        }
    }

    /// Returns the kernel.
    pub(crate) fn kernel(&self) -> &K {
        &self.shared.kernel
    }

    /// Returns the bytes of the card's memory that the service takes.
    pub fn resident_bytes(&self) -> u64 {
        self.resident_bytes
    }

    /// Returns the counters.
    pub fn counters(&self) -> CardCounters {
        let counters = &self.shared.counters;
        CardCounters {
            launches: counters[0].load(Ordering::Relaxed),
            asked: counters[1].load(Ordering::Relaxed),
            bytes: counters[2].load(Ordering::Relaxed),
        }
    }
}

impl<K: QueryKernel> Drop for Service<K> {
    fn drop(&mut self) {
        self.shared.stop();
        let until = Instant::now() + STOP_TIME;
        for thread in self.threads.drain(..) {
            while !thread.is_finished() && Instant::now() < until {
                std::thread::park_timeout(STOP_CHECK);
            }
            // A thread that still waits for the card owns all that it needs, and frees it when the card
            // responds.
            if thread.is_finished() {
                // The panic has been reported already.
                let _ = thread.join();
            }
        }
    }
}

#[cfg(test)]
mod tests;
