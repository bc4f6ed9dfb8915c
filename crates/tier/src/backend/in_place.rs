//! The queue of all tiers whose bytes are read in place: memory of any kind.
//!
//! `submit` prefetches every cache line of every span, the engine steps other queries meanwhile, and `reap`
//! completes the reads. This is the software pipeline of second-tier-memory (section 5); nothing is copied.

use crate::contract::{Completion, Queue, Read, Span};
use crate::error::{FaultKind, ReadFault, TierError};
use crate::memory::prefetch;
use std::task::Waker;
use std::time::Duration;

/// Bytes that do not move while any clone of this exists.
pub(super) trait InPlace: Send {
    /// Returns all bytes of the tier.
    fn bytes(&self) -> &[u8];

    /// Fails with [`TierError::Lost`] if bytes were missing in a read so far. `thorough` allows a system
    /// call.
    fn check(&self, thorough: bool) -> Result<(), TierError>;
}

/// Queue over bytes that are read in place.
pub(super) struct InPlaceQueue<B> {
    memory: B,
    depth: usize,
    done: Vec<Completion>,
}

impl<B: InPlace> InPlaceQueue<B> {
    pub(super) fn new(memory: B, depth: u32) -> InPlaceQueue<B> {
        let depth = depth.max(1) as usize;
        InPlaceQueue { memory, depth, done: Vec::with_capacity(depth) }
    }
}

impl<B: InPlace> Queue for InPlaceQueue<B> {
    unsafe fn submit(&mut self, reads: &[Read]) -> Result<usize, TierError> {
        self.memory.check(false)?;
        let bytes = self.memory.bytes();
        let taken = reads.len().min(self.depth - self.done.len());
        for read in &reads[..taken] {
            let len = available_len(bytes.len() as u64, read.offset, read.len);
            if len > 0 {
                let bytes = &bytes[read.offset as usize..][..len as usize];
                prefetch(bytes.as_ptr(), bytes.len());
            }
            if !read.buffer.is_null() && len > 0 {
                // SAFETY: the caller gave `read.len` writable bytes, `len` is no more than that, and the
                // source was just bounds-checked; a caller's buffer never overlaps the tier's own bytes.
                unsafe {
                    let from = bytes.as_ptr().add(read.offset as usize);
                    std::ptr::copy_nonoverlapping(from, read.buffer, len as usize);
                }
            }
            self.done.push(Completion { id: read.id, result: Ok(len) });
        }
        Ok(taken)
    }

    fn reap(&mut self, done: &mut Vec<Completion>, _wait: Option<Duration>) -> Result<(), TierError> {
        // With nothing in flight this is the end of a run: lent bytes have been used by now.
        let checked = self.memory.check(self.done.is_empty());
        if checked.is_err() {
            self.done.iter_mut().for_each(|read| read.result = Err(ReadFault::of(FaultKind::Gone)));
        }
        done.append(&mut self.done);
        checked
    }

    fn map(&self, span: Span) -> Option<&[u8]> {
        let start = usize::try_from(span.offset).ok()?;
        self.memory.bytes().get(start..start.checked_add(span.len as usize)?)
    }

    fn lend(&self) -> Option<&[u8]> {
        Some(self.memory.bytes())
    }

    unsafe fn register(&mut self, _region: *mut u8, _len: usize) -> Result<(), TierError> {
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.done.len()
    }

    /// Returns `None`: no call of this queue waits.
    fn waker(&mut self) -> Option<Waker> {
        None
    }
}

/// Returns how many bytes of a read of `len` bytes at `offset` exist on a tier of `tier_len` bytes.
pub(crate) fn available_len(tier_len: u64, offset: u64, len: u32) -> u32 {
    tier_len.saturating_sub(offset).min(u64::from(len)) as u32
}
