//! A watchdog, so that no test waits forever.

use super::SimHandle;
use crate::contract::{Completion, Queue, Read, Span, Tier, TierProfile, WriteTier};
use crate::error::TierError;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Waker;
use std::time::Duration;

/// Consecutive waits without a completion after which the watchdog intervenes.
const PATIENCE: u32 = 4;

/// A tier that ends endless waits for simulated devices: after some consecutive waits without a completion,
/// it sets the cancel flag or releases the stuck reads, in turn. It counts waits, not time.
pub struct Watchdog {
    tier: Arc<dyn Tier>,
    handles: Vec<SimHandle>,
    cancel: Arc<AtomicBool>,
    interventions: Arc<AtomicU32>,
}

impl Watchdog {
    /// Watches the queues of `tier`, which is over the simulated devices of `handles`. `cancel` is the cancel
    /// flag of the searches.
    pub fn over(tier: Arc<dyn Tier>, handles: Vec<SimHandle>, cancel: Arc<AtomicBool>) -> Watchdog {
        Watchdog { tier, handles, cancel, interventions: Arc::default() }
    }
}

impl fmt::Debug for Watchdog {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Watchdog").field("interventions", &self.interventions).finish_non_exhaustive()
    }
}

impl Tier for Watchdog {
    fn profile(&self) -> &TierProfile {
        self.tier.profile()
    }

    fn len(&self) -> u64 {
        self.tier.len()
    }

    fn open(&self, depth: u32) -> Result<Box<dyn Queue>, TierError> {
        Ok(Box::new(WatchedQueue {
            queue: self.tier.open(depth)?,
            handles: self.handles.clone(),
            cancel: self.cancel.clone(),
            interventions: self.interventions.clone(),
            idle_waits: 0,
        }))
    }

    fn writable(&self) -> Option<&dyn WriteTier> {
        None
    }

    fn is_shared(&self) -> bool {
        self.tier.is_shared()
    }
}

struct WatchedQueue {
    queue: Box<dyn Queue>,
    handles: Vec<SimHandle>,
    cancel: Arc<AtomicBool>,
    interventions: Arc<AtomicU32>,
    /// Consecutive waits without a completion.
    idle_waits: u32,
}

impl Queue for WatchedQueue {
    unsafe fn submit(&mut self, reads: &[Read]) -> Result<usize, TierError> {
        // SAFETY: passed on under the same contract.
        unsafe { self.queue.submit(reads) }
    }

    fn reap(&mut self, done: &mut Vec<Completion>, wait: Option<Duration>) -> Result<(), TierError> {
        let before = done.len();
        self.queue.reap(done, wait)?;
        self.idle_waits = if done.len() == before && self.in_flight() > 0 { self.idle_waits + 1 } else { 0 };
        if self.idle_waits >= PATIENCE {
            self.idle_waits = 0;
            if self.interventions.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
                self.cancel.store(true, Ordering::Relaxed);
            } else {
                self.handles.iter().for_each(SimHandle::release_stuck);
            }
        }
        Ok(())
    }

    fn map(&self, span: Span) -> Option<&[u8]> {
        self.queue.map(span)
    }

    /// Returns `None`: reads in place would bypass the watchdog.
    fn lend(&self) -> Option<&[u8]> {
        None
    }

    unsafe fn register(&mut self, region: *mut u8, len: usize) -> Result<(), TierError> {
        // SAFETY: passed on under the same contract.
        unsafe { self.queue.register(region, len) }
    }

    fn give_up(&mut self) {
        self.queue.give_up();
    }

    fn waker(&mut self) -> Option<Waker> {
        self.queue.waker()
    }

    fn in_flight(&self) -> usize {
        self.queue.in_flight()
    }
}
