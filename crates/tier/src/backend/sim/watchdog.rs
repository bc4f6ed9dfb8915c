//! A watchdog, so that no test waits forever.

use super::SimHandle;
use crate::contract::{Completion, Queue, Tier};
use crate::error::TierError;
use crate::forward::{LayerQueue, LayerTier};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
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

impl LayerTier for Watchdog {
    fn below(&self) -> &dyn Tier {
        &*self.tier
    }

    fn queue_over(&self, queue: Box<dyn Queue>, _depth: u32) -> Box<dyn Queue> {
        Box::new(WatchedQueue {
            queue,
            handles: self.handles.clone(),
            cancel: self.cancel.clone(),
            interventions: self.interventions.clone(),
            idle_waits: 0,
        })
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

impl LayerQueue for WatchedQueue {
    fn below(&self) -> &dyn Queue {
        &*self.queue
    }

    fn below_mut(&mut self) -> &mut dyn Queue {
        &mut *self.queue
    }

    fn reap(&mut self, done: &mut Vec<Completion>, wait: Option<Duration>) -> Result<(), TierError> {
        let before = done.len();
        self.queue.reap(done, wait)?;
        self.idle_waits =
            if done.len() == before && self.queue.in_flight() > 0 { self.idle_waits + 1 } else { 0 };
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
}
