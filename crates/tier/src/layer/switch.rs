//! A switch between several tiers over the same bytes. Measurements that compare devices then differ in the
//! device only, and not in the addresses of the index's memory.

use crate::backend::wake_flag::WakeFlag;
use crate::contract::{Completion, Queue, Read, Span, Tier, TierProfile, WriteTier};
use crate::error::TierError;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;
use std::time::Duration;

/// A tier that reads from one of several tiers. Clones share the choice.
#[derive(Clone)]
pub struct SwitchTier {
    tiers: Arc<Vec<Arc<dyn Tier>>>,
    chosen: Arc<AtomicUsize>,
    profile: TierProfile,
}

impl SwitchTier {
    /// Makes a tier that reads from the first of `tiers` until another is chosen. Its profile is that of the
    /// first.
    ///
    /// # Errors
    /// [`TierError::Parameter`] if there is no tier, or if lengths, alignments or addressability differ.
    pub fn new(tiers: Vec<Arc<dyn Tier>>) -> Result<SwitchTier, TierError> {
        let Some(first) = tiers.first() else {
            return Err(TierError::Parameter("a switch needs at least one tier".into()));
        };
        let profile = first.profile().clone();
        let matches_first = |tier: &Arc<dyn Tier>| {
            let other = tier.profile();
            tier.len() == first.len()
                && (other.alignment, other.addressable) == (profile.alignment, profile.addressable)
        };
        if !tiers.iter().all(matches_first) {
            return Err(TierError::Parameter(
                "the tiers of a switch must have the same length, alignment and addressability".into(),
            ));
        }
        Ok(SwitchTier { tiers: Arc::new(tiers), chosen: Arc::default(), profile })
    }

    /// Chooses tier number `tier` for further reads. A queue with reads in flight changes when these have
    /// ended. Returns false if there is no such tier.
    pub fn choose(&self, tier: usize) -> bool {
        let exists = tier < self.tiers.len();
        if exists {
            self.chosen.store(tier, Ordering::Relaxed);
        }
        exists
    }
}

impl Tier for SwitchTier {
    fn profile(&self) -> &TierProfile {
        &self.profile
    }

    fn len(&self) -> u64 {
        self.tiers[0].len()
    }

    fn open(&self, depth: u32) -> Result<Box<dyn Queue>, TierError> {
        let queues = self.tiers.iter().map(|tier| tier.open(depth)).collect::<Result<Vec<_>, _>>()?;
        Ok(Box::new(SwitchQueue { queues, chosen: self.chosen.clone(), active: 0 }))
    }

    fn writable(&self) -> Option<&dyn WriteTier> {
        None
    }

    fn is_shared(&self) -> bool {
        self.tiers.iter().any(|tier| tier.is_shared())
    }
}

struct SwitchQueue {
    /// At least one, as many as the tier has tiers.
    queues: Vec<Box<dyn Queue>>,
    chosen: Arc<AtomicUsize>,
    /// Always the number of a queue.
    active: usize,
}

impl Queue for SwitchQueue {
    unsafe fn submit(&mut self, reads: &[Read]) -> Result<usize, TierError> {
        let chosen = self.chosen.load(Ordering::Relaxed);
        if chosen != self.active && self.queues[self.active].in_flight() == 0 {
            self.active = chosen;
        }
        // SAFETY: passed on under the same contract.
        unsafe { self.queues[self.active].submit(reads) }
    }

    fn reap(&mut self, done: &mut Vec<Completion>, wait: Option<Duration>) -> Result<(), TierError> {
        self.queues[self.active].reap(done, wait)
    }

    fn map(&self, span: Span) -> Option<&[u8]> {
        self.queues[self.active].map(span)
    }

    /// Returns `None`: the chosen tier may change.
    fn lend(&self) -> Option<&[u8]> {
        None
    }

    unsafe fn register(&mut self, region: *mut u8, len: usize) -> Result<(), TierError> {
        for queue in &mut self.queues {
            // SAFETY: passed on under the same contract.
            unsafe { queue.register(region, len)? };
        }
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.queues[self.active].in_flight()
    }

    fn give_up(&mut self) {
        self.queues.iter_mut().for_each(|queue| queue.give_up());
    }

    fn waker(&mut self) -> Option<Waker> {
        let wakers = self.queues.iter_mut().map(|queue| queue.waker()).collect::<Option<Vec<_>>>()?;
        Some(WakeFlag::over(wakers).into())
    }
}
