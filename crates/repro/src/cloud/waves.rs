//! How often a query waits: submissions of reads, which are as many as its rounds, or more where the buffers of a thread do not
//! hold a whole round.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

use bathyal_index::open::WrapTier;
use bathyal_tier::{Completion, Queue, Read, Span, Tier, TierError, TierProfile, WriteTier};

/// Submissions so far. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Waves(Arc<AtomicU64>);

impl Waves {
    /// How many there were.
    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// What counts those of an index that is opened.
    pub(super) fn wrap(&self) -> WrapTier {
        let waves = self.clone();
        Arc::new(move |tier| Ok(Arc::new(WaveTier { tier, waves: waves.clone() })))
    }
}

/// A tier whose submissions are counted.
struct WaveTier {
    tier: Arc<dyn Tier>,
    waves: Waves,
}

impl Tier for WaveTier {
    fn profile(&self) -> &TierProfile {
        self.tier.profile()
    }

    fn len(&self) -> u64 {
        self.tier.len()
    }

    fn open(&self, depth: u32) -> Result<Box<dyn Queue>, TierError> {
        Ok(Box::new(WaveQueue { queue: self.tier.open(depth)?, waves: self.waves.clone() }))
    }

    fn writable(&self) -> Option<&dyn WriteTier> {
        None
    }
}

struct WaveQueue {
    queue: Box<dyn Queue>,
    waves: Waves,
}

impl Queue for WaveQueue {
    unsafe fn submit(&mut self, reads: &[Read]) -> Result<usize, TierError> {
        self.waves.0.fetch_add(u64::from(!reads.is_empty()), Ordering::Relaxed);
        // SAFETY: the same reads under the same contract.
        unsafe { self.queue.submit(reads) }
    }

    fn reap(&mut self, done: &mut Vec<Completion>, wait: Option<Duration>) -> Result<(), TierError> {
        self.queue.reap(done, wait)
    }

    fn map(&self, span: Span) -> Option<&[u8]> {
        self.queue.map(span)
    }

    /// None: each read is submitted.
    fn lend(&self) -> Option<&[u8]> {
        None
    }

    unsafe fn register(&mut self, region: *mut u8, len: usize) -> Result<(), TierError> {
        // SAFETY: passed on under the same contract.
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
