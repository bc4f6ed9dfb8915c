//! Bytes in ordinary memory: the fastest tier, and the reference for all others.

use super::in_place::{InPlace, InPlaceQueue};
use crate::contract::{Queue, Tier, TierProfile};
use crate::error::TierError;
use crate::memory::CACHE_LINE;
use std::sync::Arc;

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
        Ok(Box::new(InPlaceQueue::new(self.bytes.clone(), depth)))
    }
}

impl InPlace for Arc<Vec<u8>> {
    fn bytes(&self) -> &[u8] {
        self
    }

    fn check(&self, _thorough: bool) -> Result<(), TierError> {
        Ok(())
    }
}
