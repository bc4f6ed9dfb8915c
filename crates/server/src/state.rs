//! Everything that all requests share.

use crate::batches::Batches;
use crate::body_memory::BodyMemory;
use crate::collection_search::CollectionSearch;
use crate::counters::Counters;
use crate::entries::Entries;
use crate::failure::Refusal;
use crate::gate::Gate;
use crate::lease::Lease;
use crate::names::EntryName;
use crate::options::RequestLimits;
use crate::peers::Peers;
use crate::places::Places;
use crate::replay::Replays;
use crate::snapshots::Snapshots;
use crate::work::Work;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Everything that all requests share.
pub(crate) struct Shared {
    pub(crate) gate: Gate,
    pub(crate) entries: Arc<Entries>,
    /// Says which server writes.
    pub(crate) lease: Arc<Lease>,
    pub(crate) peers: Peers,
    pub(crate) limits: RequestLimits,
    pub(crate) body_memory: BodyMemory,
    pub(crate) work: Work,
    pub(crate) collection_searches: Batches<CollectionSearch>,
    /// Searches of indexes that run at the same time.
    pub(crate) index_searches: Places,
    pub(crate) replays: Replays,
    pub(crate) snapshots: Snapshots,
    pub(crate) counters: Counters,
    /// Searches that take longer are logged.
    pub(crate) slow: Option<Duration>,
    /// True once the server is being stopped.
    pub(crate) stopping: AtomicBool,
}

impl Shared {
    /// Returns a failure without the path of the served folder.
    pub(crate) fn refusal(&self, error: impl Into<Refusal>) -> Refusal {
        error.into().within(self.entries.data())
    }

    /// Logs a search that took long, with how it was answered.
    pub(crate) fn log_slow(&self, started: Instant, name: &EntryName, explain: impl FnOnce() -> String) {
        let elapsed = started.elapsed();
        if self.slow.is_some_and(|slow| elapsed >= slow) {
            let milliseconds = elapsed.as_secs_f64() * 1e3;
            tracing::warn!(name = name.as_str(), milliseconds, parts = explain(), "slow search");
        }
    }
}
