//! The requests of an open index to a remote store.

use bathyal_store::{CacheUse, Requests, Traffic};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The requests of an open index to a remote store.
pub(super) struct StoreTraffic {
    counters: Arc<Traffic>,
    /// The requests that opened the index.
    opening: Requests,
}

/// The counters of requests, and of the cache in front of the store, at a moment.
pub(super) struct StoreSnapshot {
    pub(super) requests: Requests,
    pub(super) kinds: BTreeMap<String, CacheUse>,
    pub(super) rounds: Vec<CacheUse>,
}

impl StoreTraffic {
    /// Counts requests from now on: those so far have opened the index.
    pub(super) fn new(counters: Arc<Traffic>) -> StoreTraffic {
        StoreTraffic { opening: counters.now(), counters }
    }

    /// Returns the requests that opened the index.
    pub(super) fn opening(&self) -> Requests {
        self.opening
    }

    /// Returns the requests since the index was opened.
    pub(super) fn since_open(&self) -> Requests {
        self.counters.now().since(&self.opening)
    }

    /// Returns the counters of the cache in front of the store, by kind of object.
    pub(super) fn cache_use(&self) -> BTreeMap<String, CacheUse> {
        self.counters.cache_use()
    }

    /// Returns the counters of that cache by dependent round.
    pub(super) fn cache_rounds(&self) -> Vec<CacheUse> {
        self.counters.cache_rounds()
    }

    /// Returns why that cache does not use its disk, although one was configured.
    pub(super) fn cache_trouble(&self) -> Option<&str> {
        self.counters.cache_trouble()
    }

    /// Returns the most bytes of memory of that cache; 0 without a cache.
    pub(super) fn cache_memory_bytes(&self) -> u64 {
        self.counters.cache_memory_bytes()
    }

    /// Returns all counters as they are now.
    pub(super) fn snapshot(&self) -> StoreSnapshot {
        StoreSnapshot { requests: self.since_open(), kinds: self.cache_use(), rounds: self.cache_rounds() }
    }
}
