//! What keeps a test from waiting for ever.

use super::SimHandle;
use crate::contract::{Completion, Queue, Read, Span, Tier, TierProfile, WriteTier};
use crate::error::TierError;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Waker;
use std::time::Duration;

/// Waits in a row that bring nothing after which the watchdog steps in.
const PATIENCE: u32 = 4;

/// A tier that helps out when everything is stuck: after some waits in a row that bring nothing it raises the cancel flag or
/// releases the stuck reads, in turn. With it a caller that waits for a simulated device for ever ends, and time plays no part.
pub struct Watchdog {
    tier: Arc<dyn Tier>,
    handles: Vec<SimHandle>,
    cancel: Arc<AtomicBool>,
    barks: Arc<AtomicU32>,
}

impl Watchdog {
    /// Watches queues of `tier`, which lies over the simulated devices of `handles`; searches look at `cancel`.
    pub fn over(tier: Arc<dyn Tier>, handles: Vec<SimHandle>, cancel: Arc<AtomicBool>) -> Watchdog {
        Watchdog { tier, handles, cancel, barks: Arc::default() }
    }
}

impl fmt::Debug for Watchdog {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Watchdog").field("barks", &self.barks).finish_non_exhaustive()
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
            barks: self.barks.clone(),
            idle: 0,
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
    barks: Arc<AtomicU32>,
    idle: u32,
}

impl Queue for WatchedQueue {
    unsafe fn submit(&mut self, reads: &[Read]) -> Result<usize, TierError> {
        // SAFETY: passed on under the same contract.
        unsafe { self.queue.submit(reads) }
    }

    fn reap(&mut self, done: &mut Vec<Completion>, wait: Option<Duration>) -> Result<(), TierError> {
        let before = done.len();
        self.queue.reap(done, wait)?;
        self.idle = if done.len() == before && self.in_flight() > 0 { self.idle + 1 } else { 0 };
        if self.idle >= PATIENCE {
            self.idle = 0;
            if self.barks.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
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

    /// None: what is not watched is not found.
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
