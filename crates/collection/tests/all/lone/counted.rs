//! Devices that count their operations.

use bathyal_collection::CollectionOptions;
use bathyal_tier::{LayerQueue, LayerTier, Queue, Read, Tier, TierError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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

impl LayerTier for Counted {
    fn below(&self) -> &dyn Tier {
        &*self.tier
    }

    fn queue_over(&self, queue: Box<dyn Queue>, _depth: u32) -> Box<dyn Queue> {
        self.counts.opened.fetch_add(1, Ordering::Relaxed);
        Box::new(CountedQueue { queue, counts: self.counts.clone() })
    }
}

struct CountedQueue {
    queue: Box<dyn Queue>,
    counts: Arc<Counts>,
}

impl LayerQueue for CountedQueue {
    fn below(&self) -> &dyn Queue {
        &*self.queue
    }

    fn below_mut(&mut self) -> &mut dyn Queue {
        &mut *self.queue
    }

    unsafe fn submit(&mut self, reads: &[Read]) -> Result<usize, TierError> {
        // SAFETY: the caller's guarantees are passed on unchanged.
        let taken = unsafe { self.queue.submit(reads) }?;
        self.counts.reads.fetch_add(taken as u64, Ordering::Relaxed);
        Ok(taken)
    }
}
