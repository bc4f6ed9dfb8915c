//! Bytes in ordinary memory: the fastest tier, and the reference for all others.

use super::in_place::{InPlace, InPlaceQueue};
use super::writable::{Words, WritableTier};
use crate::contract::{Queue, Tier, TierProfile, WriteTier};
use crate::error::TierError;
use crate::memory::CACHE_LINE;
use std::sync::Arc;

/// A tier whose bytes lie in DRAM. Reads are served in place.
#[derive(Debug, Clone)]
pub struct DramTier {
    bytes: Arc<Lined>,
    profile: TierProfile,
}

/// Bytes of which the first begins on a cache line, where their vector has room for that.
#[derive(Debug)]
struct Lined {
    vector: Vec<u8>,
    lead: usize,
}

impl Lined {
    fn new(mut vector: Vec<u8>) -> Lined {
        let (len, room) = (vector.len(), vector.capacity() - vector.len());
        let lead = vector.as_ptr().align_offset(CACHE_LINE);
        let lead = if lead <= room { lead } else { 0 };
        // Within its capacity, so it stays where it is.
        vector.resize(len + lead, 0);
        vector.copy_within(..len, lead);
        Lined { vector, lead }
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        &self.vector[self.lead..]
    }
}

impl DramTier {
    /// A tier over `bytes`. They are moved to the start of a cache line if `bytes` has capacity for one more line, so
    /// that what is aligned in the file is aligned in memory.
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
        };
        DramTier { bytes: Arc::new(Lined::new(bytes)), profile }
    }

    /// Memory that begins with a copy of `bytes` and may be changed; its reads are copies.
    pub fn writable_copy(bytes: &[u8]) -> WritableTier {
        WritableTier::new(Words::of(bytes), "dram", "loads and stores, copied".into())
    }

    /// All its bytes.
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

impl InPlace for Arc<Lined> {
    fn bytes(&self) -> &[u8] {
        Lined::bytes(self)
    }

    fn check(&self, _thorough: bool) -> Result<(), TierError> {
        Ok(())
    }
}
