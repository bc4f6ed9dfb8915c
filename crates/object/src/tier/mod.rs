//! Objects as tiers. Near reads of one submission share one request. Each request is counted, retried when it
//! fails, and hedged when it is late ([`crate::client`]).

mod cached;
mod join;
mod queue;

use crate::client::{Client, Version};
use bathyal_store::Traffic;
use bathyal_tier::{Queue, Read, Tier, TierError, TierProfile, WriteTier};
pub(crate) use cached::{CacheHandle, ReadPurpose};
use object_store::path::Path as Key;
use queue::ObjectQueue;
use std::sync::Arc;
use std::time::Duration;

/// The assumed time to the first byte of a store that has not responded yet: between that of a store in the
/// same zone and that of a distant one.
const ASSUMED_FIRST_BYTE: Duration = Duration::from_millis(15);
/// The requests a second that Amazon S3 guarantees for one prefix.
const ASSUMED_REQUESTS_PER_S: f64 = 5_500.0;
/// The assumed bytes a second of a machine's link to its store.
const ASSUMED_BYTES_PER_S: f64 = 625e6;
/// The processor time of a request and its response in nanoseconds, measured on small ranges.
pub const REQUEST_NS: u64 = 45_000;

/// An immutable object of a store, as it is read.
#[derive(Debug)]
pub(crate) struct ObjectSource {
    pub(crate) client: Arc<Client>,
    pub(crate) key: Key,
    pub(crate) len: u64,
    /// The version that is read, shared by all readers of one open generation.
    pub(crate) version: Arc<Version>,
    pub(crate) traffic: Arc<Traffic>,
    /// The cache that it is read through, if any.
    pub(crate) cached: Option<CacheHandle>,
}

impl ObjectSource {
    /// Returns the byte range of a read, ending at the end of the object at the latest.
    fn range_of(&self, read: &Read) -> std::ops::Range<u64> {
        read.offset..read.offset.saturating_add(u64::from(read.len)).min(self.len)
    }
}

/// An object of a store as a tier.
#[derive(Debug)]
pub struct ObjectTier {
    source: Arc<ObjectSource>,
    profile: TierProfile,
}

impl ObjectTier {
    pub(crate) fn new(source: Arc<ObjectSource>) -> ObjectTier {
        let profile = profile(&source.client);
        ObjectTier { source, profile }
    }
}

/// Returns the profile of the store behind `client`: measured or emulated values if there are any, and
/// assumed ones otherwise.
fn profile(client: &Client) -> TierProfile {
    let shaping = client.shaper().map(|shaper| shaper.shaping());
    let emulated = if shaping.is_some() { ", emulated delays" } else { "" };
    let positive_or =
        |value: Option<f64>, assumed: f64| value.filter(|value| *value > 0.0).unwrap_or(assumed);
    let first_byte = client.first_byte().unwrap_or(ASSUMED_FIRST_BYTE);
    TierProfile {
        kind: "object".into(),
        method: format!("{}, ranges{emulated}", client.provider()),
        granularity: 1,
        alignment: 1,
        addressable: false,
        latency_ns: u64::try_from(first_byte.as_nanos()).unwrap_or(u64::MAX),
        iops: positive_or(shaping.map(|s| s.requests_per_s), ASSUMED_REQUESTS_PER_S),
        bandwidth_bytes_per_s: positive_or(shaping.map(|s| s.bytes_per_s), ASSUMED_BYTES_PER_S),
        depth: u32::try_from(client.max_requests()).unwrap_or(u32::MAX),
        issue_ns: REQUEST_NS,
        rates: Vec::new(),
    }
}

impl Tier for ObjectTier {
    fn profile(&self) -> &TierProfile {
        &self.profile
    }

    fn len(&self) -> u64 {
        self.source.len
    }

    fn open(&self, depth: u32) -> Result<Box<dyn Queue>, TierError> {
        Ok(Box::new(ObjectQueue::new(self.source.clone(), depth)?))
    }

    fn writable(&self) -> Option<&dyn WriteTier> {
        None
    }

    fn is_shared(&self) -> bool {
        false
    }
}
