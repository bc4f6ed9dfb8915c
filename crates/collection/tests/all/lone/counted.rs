//! Devices that count their operations.

use bathyal_collection::CollectionOptions;
use bathyal_tier::{Completion, Queue, Read, Span, Tier, TierError, TierProfile, WriteTier};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

/// Counters of all devices other than memory.
#[derive(Default)]
pub struct Counts {
    reads: AtomicU64,
    opened: AtomicU64,
}

impl Counts {
    /// Returns the number of reads since the last call.
    pub fn take(&self) -> u64 {
        self.reads.swap(0, Ordering::Relaxed)
    }

    /// Returns how often devices were opened for reading since the last call.
    pub fn take_opened(&self) -> u64 {
        self.opened.swap(0, Ordering::Relaxed)
    }

    /// Returns these options with counting devices.
    pub fn counting(self: &Arc<Counts>, options: CollectionOptions) -> CollectionOptions {
        let counts = self.clone();
        let wrap = move |tier: Arc<dyn Tier>| -> Result<Arc<dyn Tier>, TierError> {
            if tier.profile().addressable {
                return Ok(tier);
            }
            Ok(Arc::new(Counted { tier, counts: counts.clone() }))
        };
        let mut options = options;
        options.index.wrap = Some(Arc::new(wrap));
        options
    }
}

struct Counted {
    tier: Arc<dyn Tier>,
    counts: Arc<Counts>,
}

impl Tier for Counted {
    fn profile(&self) -> &TierProfile {
        self.tier.profile()
    }

    fn len(&self) -> u64 {
        self.tier.len()
    }

    fn open(&self, depth: u32) -> Result<Box<dyn Queue>, TierError> {
        self.counts.opened.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(CountedQueue { queue: self.tier.open(depth)?, counts: self.counts.clone() }))
    }

    fn writable(&self) -> Option<&dyn WriteTier> {
        None
    }

    fn is_shared(&self) -> bool {
        self.tier.is_shared()
    }
}

struct CountedQueue {
    queue: Box<dyn Queue>,
    counts: Arc<Counts>,
}

impl Queue for CountedQueue {
    unsafe fn submit(&mut self, reads: &[Read]) -> Result<usize, TierError> {
        // SAFETY: the caller's guarantees are passed on unchanged.
        let taken = unsafe { self.queue.submit(reads) }?;
        self.counts.reads.fetch_add(taken as u64, Ordering::Relaxed);
        Ok(taken)
    }

    fn reap(&mut self, done: &mut Vec<Completion>, wait: Option<Duration>) -> Result<(), TierError> {
        self.queue.reap(done, wait)
    }

    fn map(&self, span: Span) -> Option<&[u8]> {
        self.queue.map(span)
    }

    fn lend(&self) -> Option<&[u8]> {
        None
    }

    unsafe fn register(&mut self, region: *mut u8, len: usize) -> Result<(), TierError> {
        // SAFETY: the caller's guarantees are passed on unchanged.
        unsafe { self.queue.register(region, len) }
    }

    fn in_flight(&self) -> usize {
        self.queue.in_flight()
    }

    fn give_up(&mut self) {
        self.queue.give_up();
    }

    fn waker(&mut self) -> Option<Waker> {
        self.queue.waker()
    }
}
