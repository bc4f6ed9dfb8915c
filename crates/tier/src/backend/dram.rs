//! A tier in ordinary memory: the fastest one, and the reference for all others.

use super::in_place::{InPlace, InPlaceQueue};
use super::writable::{Words, WritableTier};
use crate::contract::{Queue, Tier, TierProfile, WriteTier};
use crate::error::TierError;
use crate::memory::CACHE_LINE;
use std::sync::Arc;

/// A tier whose bytes are in DRAM. Reads are served in place.
#[derive(Debug, Clone)]
pub struct DramTier {
    bytes: Arc<LineAligned>,
    profile: TierProfile,
}

/// Bytes that begin on a cache line, if their vector has spare capacity for that.
#[derive(Debug)]
struct LineAligned {
    vector: Vec<u8>,
    /// Unused bytes at the start of the vector.
    lead: usize,
}

impl LineAligned {
    fn new(mut vector: Vec<u8>) -> LineAligned {
        let (len, spare) = (vector.len(), vector.capacity() - vector.len());
        let lead = vector.as_ptr().align_offset(CACHE_LINE);
        let lead = if lead <= spare { lead } else { 0 };
        // Within the capacity, so the vector does not move.
        vector.resize(len + lead, 0);
        vector.copy_within(..len, lead);
        LineAligned { vector, lead }
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        &self.vector[self.lead..]
    }
}

impl DramTier {
    /// Makes a tier of `bytes`. They are moved to the start of a cache line if `bytes` has capacity for one
    /// more line, so that records that are aligned in the file are aligned in memory.
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
            issue_ns: 0,
            rates: Vec::new(),
        };
        DramTier { bytes: Arc::new(LineAligned::new(bytes)), profile }
    }

    /// Makes a writable tier with a copy of `bytes`. Its reads are copies.
    pub fn writable_copy(bytes: &[u8]) -> WritableTier {
        WritableTier::new(Words::copy_of(bytes), "dram", "loads and stores, copied".into())
    }

    /// Returns all bytes of the tier.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.bytes()
    }
}

impl Tier for DramTier {
    fn profile(&self) -> &TierProfile {
        &self.profile
    }

    fn len(&self) -> u64 {
        self.bytes.bytes().len() as u64
    }

    fn open(&self, depth: u32) -> Result<Box<dyn Queue>, TierError> {
        Ok(Box::new(InPlaceQueue::new(self.bytes.clone(), depth)))
    }

    fn writable(&self) -> Option<&dyn WriteTier> {
        None
    }

    fn is_shared(&self) -> bool {
        false
    }
}

impl InPlace for Arc<LineAligned> {
    fn bytes(&self) -> &[u8] {
        LineAligned::bytes(self)
    }

    fn check(&self, _thorough: bool) -> Result<(), TierError> {
        Ok(())
    }
}
