//! Bytes in ordinary memory: the fastest tier, and the reference for all others.

use crate::contract::{Completion, Queue, Read, Span, Tier, TierProfile};
use crate::error::TierError;
use crate::memory::{CACHE_LINE, prefetch};
use std::sync::Arc;
use std::time::Duration;

/// A tier whose bytes lie in DRAM. Reads are served in place.
#[derive(Debug, Clone)]
pub struct DramTier {
    bytes: Arc<Vec<u8>>,
    profile: TierProfile,
}

impl DramTier {
    /// A tier over `bytes`.
    pub fn new(bytes: Vec<u8>) -> DramTier {
        let profile = TierProfile {
            kind: "dram".into(),
            method: "loads, prefetched".into(),
            granularity: CACHE_LINE as u32,
            alignment: 1,
            addressable: true,
            latency_ns: 0,
            iops: 0.0,
            bandwidth_bytes_per_s: 0.0,
            depth: 64,
        };
        DramTier { bytes: Arc::new(bytes), profile }
    }
}

impl Tier for DramTier {
    fn profile(&self) -> &TierProfile {
        &self.profile
    }

    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn open(&self, depth: u32) -> Result<Box<dyn Queue>, TierError> {
        let depth = depth.max(1) as usize;
        Ok(Box::new(DramQueue { bytes: self.bytes.clone(), depth, done: Vec::with_capacity(depth) }))
    }
}

struct DramQueue {
    bytes: Arc<Vec<u8>>,
    depth: usize,
    done: Vec<Completion>,
}

impl Queue for DramQueue {
    unsafe fn submit(&mut self, reads: &[Read]) -> Result<usize, TierError> {
        let taken = reads.len().min(self.depth - self.done.len());
        for read in &reads[..taken] {
            let len = arrived(self.bytes.len() as u64, read.offset, read.len);
            if len > 0 {
                let bytes = &self.bytes[read.offset as usize..][..len as usize];
                prefetch(bytes.as_ptr(), bytes.len());
            }
            if !read.buffer.is_null() && len > 0 {
                // SAFETY: the caller gave `read.len` writable bytes, `len` is no more than that, and the source
                // was just bounds-checked; a caller's buffer never overlaps the tier's own bytes.
                unsafe {
                    let from = self.bytes.as_ptr().add(read.offset as usize);
                    std::ptr::copy_nonoverlapping(from, read.buffer, len as usize);
                }
            }
            self.done.push(Completion { id: read.id, result: Ok(len) });
        }
        Ok(taken)
    }

    fn reap(&mut self, done: &mut Vec<Completion>, _wait: Option<Duration>) -> Result<(), TierError> {
        done.append(&mut self.done);
        Ok(())
    }

    fn map(&self, span: Span) -> Option<&[u8]> {
        let start = usize::try_from(span.offset).ok()?;
        self.bytes.get(start..start.checked_add(span.len as usize)?)
    }

    unsafe fn register(&mut self, _region: *mut u8, _len: usize) -> Result<(), TierError> {
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.done.len()
    }
}

/// How many bytes of a read of `len` at `offset` exist on a tier of `tier_len` bytes.
pub(crate) fn arrived(tier_len: u64, offset: u64, len: u32) -> u32 {
    tier_len.saturating_sub(offset).min(u64::from(len)) as u32
}
