//! Ranges of an object as a tier. Near reads of one submission are one request; each request is counted, sent again when it
//! fails and a second time when it is late ([`crate::client`]).

mod cached;
mod join;
mod queue;

use crate::client::{Client, Version};
use bathyal_store::Traffic;
use bathyal_tier::{Queue, Read, Tier, TierError, TierProfile, WriteTier};
pub(crate) use cached::{Cached, Reader};
use object_store::path::Path as Key;
use queue::ObjectQueue;
use std::sync::Arc;
use std::time::Duration;

/// Time to the first byte of a store that has not answered yet: between one in the same zone and one far away.
const USUAL_FIRST_BYTE: Duration = Duration::from_millis(15);
/// Requests a second that Amazon S3 answers for one prefix at least.
const USUAL_REQUESTS_PER_S: f64 = 5_500.0;
/// Bytes a second of a machine's link to its store.
const USUAL_BYTES_PER_S: f64 = 625e6;
/// Processor time of a request and its answer, measured on small ranges.
const ISSUE_NS: u64 = 45_000;

/// An object that does not change.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) client: Arc<Client>,
    pub(crate) key: Key,
    pub(crate) len: u64,
    /// That of all who read it through one open generation.
    pub(crate) version: Arc<Version>,
    pub(crate) traffic: Arc<Traffic>,
    /// What it is read through; `None` for nothing.
    pub(crate) cached: Option<Cached>,
}

impl Source {
    /// The bytes of the object that a read wants.
    fn within(&self, read: &Read) -> std::ops::Range<u64> {
        read.offset..read.offset.saturating_add(u64::from(read.len)).min(self.len)
    }
}

/// See the module's description.
#[derive(Debug)]
pub struct ObjectTier {
    source: Arc<Source>,
    profile: TierProfile,
}

impl ObjectTier {
    pub(crate) fn new(source: Arc<Source>) -> ObjectTier {
        let profile = profile(&source.client);
        ObjectTier { source, profile }
    }
}

/// What the store behind `client` can do, as far as it has shown that, and what is usual else.
fn profile(client: &Client) -> TierProfile {
    let shaping = client.shaper().map(|shaper| shaper.shaping());
    let emulated = if shaping.is_some() { ", emulated delays" } else { "" };
    let known = |value: Option<f64>, usual: f64| value.filter(|value| *value > 0.0).unwrap_or(usual);
    let first_byte = client.first_byte().unwrap_or(USUAL_FIRST_BYTE);
    TierProfile {
        kind: "object".into(),
        method: format!("{}, ranges{emulated}", client.provider()),
        granularity: 1,
        alignment: 1,
        addressable: false,
        latency_ns: u64::try_from(first_byte.as_nanos()).unwrap_or(u64::MAX),
        iops: known(shaping.map(|s| s.requests_per_s), USUAL_REQUESTS_PER_S),
        bandwidth_bytes_per_s: known(shaping.map(|s| s.bytes_per_s), USUAL_BYTES_PER_S),
        depth: u32::try_from(client.most_requests()).unwrap_or(u32::MAX),
        issue_ns: ISSUE_NS,
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
