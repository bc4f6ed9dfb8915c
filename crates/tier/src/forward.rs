//! Layers over one tier: they change a few calls, and forward all others to the tier below.
//!
//! A layer implements [`LayerTier`], and its queue [`LayerQueue`]. Both are then a [`Tier`] and a [`Queue`].
//! A forwarded call costs what it costs on the tier below.

use crate::contract::{Completion, Queue, Read, Span, Tier, TierProfile, WriteTier};
use crate::error::TierError;
use std::task::Waker;
use std::time::Duration;

/// A tier over the bytes of another one. It is read-only, as long as the tier below, and shared if that one
/// is.
pub trait LayerTier: Send + Sync {
    /// Returns the tier below.
    fn below(&self) -> &dyn Tier;

    /// Returns the properties of this tier. By default those of the tier below.
    fn profile(&self) -> &TierProfile {
        self.below().profile()
    }

    /// Makes a queue of this tier over `queue`, which the tier below opened for up to `depth` reads in
    /// flight.
    fn queue_over(&self, queue: Box<dyn Queue>, depth: u32) -> Box<dyn Queue>;
}

impl<L: LayerTier> Tier for L {
    fn profile(&self) -> &TierProfile {
        LayerTier::profile(self)
    }

    fn len(&self) -> u64 {
        self.below().len()
    }

    fn open(&self, depth: u32) -> Result<Box<dyn Queue>, TierError> {
        Ok(self.queue_over(self.below().open(depth)?, depth))
    }

    /// Returns `None`: writes would bypass the layer.
    fn writable(&self) -> Option<&dyn WriteTier> {
        None
    }

    fn is_shared(&self) -> bool {
        self.below().is_shared()
    }
}

/// A queue over another one. Each method has the contract of the method of the same name of [`Queue`], and
/// calls it on the queue below by default.
///
/// The queue lends no bytes ([`Queue::lend`]): each read must be submitted, so that the layer sees it.
pub trait LayerQueue: Send {
    /// Returns the queue below.
    fn below(&self) -> &dyn Queue;

    /// As [`LayerQueue::below`], to use it.
    fn below_mut(&mut self) -> &mut dyn Queue;

    /// Submits reads.
    ///
    /// # Safety
    /// As [`Queue::submit`].
    unsafe fn submit(&mut self, reads: &[Read]) -> Result<usize, TierError> {
        // SAFETY: passed on under the same contract.
        unsafe { self.below_mut().submit(reads) }
    }

    /// Appends the present completions to `done`.
    ///
    /// # Errors
    /// As [`Queue::reap`].
    fn reap(&mut self, done: &mut Vec<Completion>, wait: Option<Duration>) -> Result<(), TierError> {
        self.below_mut().reap(done, wait)
    }

    /// Returns the bytes of a span in place.
    fn map(&self, span: Span) -> Option<&[u8]> {
        self.below().map(span)
    }

    /// Returns the number of reads taken and not yet reaped.
    fn in_flight(&self) -> usize {
        self.below().in_flight()
    }

    /// Returns a waker that ends a wait of [`Queue::reap`] early.
    fn waker(&mut self) -> Option<Waker> {
        self.below_mut().waker()
    }
}

impl<L: LayerQueue> Queue for L {
    unsafe fn submit(&mut self, reads: &[Read]) -> Result<usize, TierError> {
        // SAFETY: passed on under the same contract.
        unsafe { LayerQueue::submit(self, reads) }
    }

    fn reap(&mut self, done: &mut Vec<Completion>, wait: Option<Duration>) -> Result<(), TierError> {
        LayerQueue::reap(self, done, wait)
    }

    fn map(&self, span: Span) -> Option<&[u8]> {
        LayerQueue::map(self, span)
    }

    fn lend(&self) -> Option<&[u8]> {
        None
    }

    unsafe fn register(&mut self, region: *mut u8, len: usize) -> Result<(), TierError> {
        // SAFETY: passed on under the same contract.
        unsafe { self.below_mut().register(region, len) }
    }

    fn in_flight(&self) -> usize {
        LayerQueue::in_flight(self)
    }

    fn give_up(&mut self) {
        self.below_mut().give_up();
    }

    fn waker(&mut self) -> Option<Waker> {
        LayerQueue::waker(self)
    }
}
