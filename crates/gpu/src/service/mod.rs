//! The service of a card for queries. A query submits a request and suspends; the worker threads of the card
//! serve all requests that were submitted while they were busy with one launch. A query continues as soon as
//! its own data has arrived, and launches grow with the load. Mini-batches, in which queries wait for each
//! other (GustANN, section 4.1.3), are an option for comparisons.

mod batch;
mod slot;
mod worker;

pub(crate) use batch::{Batch, LaunchParameters};
pub(crate) use slot::{ServiceLimits, ServiceSlot, ServiceState};
pub(crate) use worker::BatchLaunch;

use crate::card::CardProfile;
use crate::error::GpuError;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use worker::Worker;

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
pub(crate) fn launches(slots: u32) -> (u32, u32) {
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

/// The worker threads of a card, and the state that they share with queries.
#[derive(Debug)]
pub(crate) struct Service<B: BatchLaunch> {
    shared: Arc<ServiceState<B::Request>>,
    threads: Vec<JoinHandle<()>>,
}

impl<B: BatchLaunch> Service<B> {
    /// Starts to serve queries within `limits`, with one worker thread for each of `launches`.
    ///
    /// # Errors
    /// [`GpuError::Unsuited`] for a mini-batch of 0 queries, or of more than a launch has room for;
    /// [`GpuError::Driver`] if a thread cannot be started.
    pub(crate) fn start(limits: ServiceLimits, launches: Vec<B>) -> Result<Service<B>, GpuError> {
        if let Some(batch) = limits.mini_batch.filter(|batch| !(1..=limits.launch_queries).contains(batch)) {
            return Err(GpuError::Unsuited(format!(
                "a mini-batch of {batch} queries is not possible: on a graphics card it must have 1 to {}",
                limits.launch_queries
            )));
        }
        let shared = Arc::new(ServiceState::new(limits));
        // If a thread cannot be started, dropping this stops the others.
        let mut service = Service { shared: shared.clone(), threads: Vec::new() };
        for launch in launches {
            let worker = Worker::new(shared.clone(), launch);
            let thread = std::thread::Builder::new().name("bathyal-card".into()).spawn(|| worker.run());
            let failed =
                |e: std::io::Error| GpuError::Driver { operation: "start its thread", reason: e.to_string() };
            service.threads.push(thread.map_err(failed)?);
        }
        Ok(service)
    }

    /// Returns the state shared with queries.
    pub(crate) fn shared(&self) -> &Arc<ServiceState<B::Request>> {
        &self.shared
    }

    /// Returns the counters.
    pub(crate) fn counters(&self) -> CardCounters {
        let counters = &self.shared.counters;
        CardCounters {
            launches: counters[0].load(Ordering::Relaxed),
            asked: counters[1].load(Ordering::Relaxed),
            bytes: counters[2].load(Ordering::Relaxed),
        }
    }
}

impl<B: BatchLaunch> Drop for Service<B> {
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
