//! Exact counts of the requests to a remote store and of its responses. Any thread may add to them.

use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The number of rounds of reads whose blocks are counted separately; those of all later rounds are counted
/// together.
pub const COUNTED_ROUNDS: usize = 12;

/// Returns the name of entry number `at` of [`Traffic::cache_rounds`]: the number of its round, or `later`.
pub fn round_name(at: usize) -> String {
    if at < COUNTED_ROUNDS { (at + 1).to_string() } else { "later".to_owned() }
}

/// The prices of a store, in dollars.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct Prices {
    /// The price of a million read requests.
    pub million_reads: f64,
    /// The price of 10^9 bytes that leave the store.
    pub gigabyte: f64,
}

/// The growing counts of one open generation, shared by all its readers.
#[derive(Debug, Default)]
pub struct Traffic {
    prices: Prices,
    reads: AtomicU64,
    wanted_bytes: AtomicU64,
    requests: AtomicU64,
    received_bytes: AtomicU64,
    retries: AtomicU64,
    hedges: AtomicU64,
    hedges_won: AtomicU64,
    throttled: AtomicU64,
    /// Counts of the cache in front of the store, by kind of object.
    cache: Mutex<BTreeMap<String, Arc<CacheCounts>>>,
    /// Counts of the cache for reads of searches, by the round that submitted the read.
    cache_rounds: [CacheCounts; COUNTED_ROUNDS + 1],
    cache_trouble: OnceLock<String>,
    /// The most bytes of memory of that cache; 0 without a cache.
    cache_memory_bytes: AtomicU64,
}

/// The counts of a [`Traffic`] at one moment, or of the time between two.
#[derive(Debug, Default, Clone, Copy, PartialEq, Serialize)]
pub struct Requests {
    /// Reads that callers requested.
    pub reads: u64,
    /// Bytes of these reads.
    pub wanted_bytes: u64,
    /// Requests sent: near reads share one request, and each retry and each hedge counts as one more.
    pub requests: u64,
    /// Bytes of response bodies received.
    pub received_bytes: u64,
    /// Requests that were sent again because they failed.
    pub retries: u64,
    /// Requests that were sent a second time because the first was late.
    pub hedges: u64,
    /// Hedges whose response came first.
    pub hedges_won: u64,
    /// Responses that asked for fewer requests.
    pub throttled: u64,
    /// The price of these requests and bytes, by the prices that the store was opened with.
    pub dollars: f64,
    /// Counts of the cache in front of the store.
    pub cache: CacheUse,
}

/// The source of a block of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheLevel {
    /// The cache's memory.
    Memory,
    /// The cache's disk.
    Disk,
    /// The store itself.
    Store,
}

/// The growing cache counts of one kind of object, or of one round.
#[derive(Debug, Default)]
pub struct CacheCounts {
    hits: AtomicU64,
    hit_bytes: AtomicU64,
    disk_hits: AtomicU64,
    disk_hit_bytes: AtomicU64,
    misses: AtomicU64,
    missed_bytes: AtomicU64,
}

/// Hits and misses of a cache in front of a store, in blocks and bytes. Each read looks up all blocks that it
/// overlaps, so a block that two reads need is looked up twice, wherever it is found.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CacheUse {
    /// Blocks found in memory.
    pub hits: u64,
    /// Bytes of these.
    pub hit_bytes: u64,
    /// Blocks found on disk.
    pub disk_hits: u64,
    /// Bytes of these.
    pub disk_hit_bytes: u64,
    /// Blocks that came from the store, whether this reader or a concurrent one requested them.
    pub misses: u64,
    /// Bytes that this reader requested from the store, each counted once, including those between two near
    /// reads.
    pub missed_bytes: u64,
}

impl CacheCounts {
    /// Adds `blocks` blocks of `bytes` bytes in all that were found at `level`.
    pub fn add(&self, level: CacheLevel, blocks: u64, bytes: u64) {
        let (count, sum) = match level {
            CacheLevel::Memory => (&self.hits, &self.hit_bytes),
            CacheLevel::Disk => (&self.disk_hits, &self.disk_hit_bytes),
            CacheLevel::Store => (&self.misses, &self.missed_bytes),
        };
        if blocks > 0 || bytes > 0 {
            count.fetch_add(blocks, Relaxed);
            sum.fetch_add(bytes, Relaxed);
        }
    }

    /// Returns a snapshot of the counts.
    pub fn now(&self) -> CacheUse {
        let read = |count: &AtomicU64| count.load(Relaxed);
        CacheUse {
            hits: read(&self.hits),
            hit_bytes: read(&self.hit_bytes),
            disk_hits: read(&self.disk_hits),
            disk_hit_bytes: read(&self.disk_hit_bytes),
            misses: read(&self.misses),
            missed_bytes: read(&self.missed_bytes),
        }
    }
}

impl CacheUse {
    /// Returns the number of blocks that were looked up.
    pub fn blocks(&self) -> u64 {
        self.hits + self.disk_hits + self.misses
    }

    /// Returns the difference from `before`.
    #[must_use]
    pub fn since(&self, before: &CacheUse) -> CacheUse {
        CacheUse {
            hits: self.hits.saturating_sub(before.hits),
            hit_bytes: self.hit_bytes.saturating_sub(before.hit_bytes),
            disk_hits: self.disk_hits.saturating_sub(before.disk_hits),
            disk_hit_bytes: self.disk_hit_bytes.saturating_sub(before.disk_hit_bytes),
            misses: self.misses.saturating_sub(before.misses),
            missed_bytes: self.missed_bytes.saturating_sub(before.missed_bytes),
        }
    }
}

impl AddAssign for CacheUse {
    fn add_assign(&mut self, other: CacheUse) {
        self.hits += other.hits;
        self.hit_bytes += other.hit_bytes;
        self.disk_hits += other.disk_hits;
        self.disk_hit_bytes += other.disk_hit_bytes;
        self.misses += other.misses;
        self.missed_bytes += other.missed_bytes;
    }
}

impl Traffic {
    /// Makes counts of zero with these prices.
    pub fn with_prices(prices: Prices) -> Traffic {
        Traffic { prices, ..Traffic::default() }
    }

    /// Returns the prices of the store.
    pub fn prices(&self) -> Prices {
        self.prices
    }

    /// Counts `reads` reads of `bytes` bytes in all.
    pub fn count_reads(&self, reads: u64, bytes: u64) {
        self.reads.fetch_add(reads, Relaxed);
        self.wanted_bytes.fetch_add(bytes, Relaxed);
    }

    /// Counts a request that is sent.
    pub fn count_request(&self) {
        self.requests.fetch_add(1, Relaxed);
    }

    /// Counts bytes that arrived.
    pub fn count_received(&self, bytes: u64) {
        self.received_bytes.fetch_add(bytes, Relaxed);
    }

    /// Counts a retry: a request failed and is sent again.
    pub fn count_retry(&self) {
        self.retries.fetch_add(1, Relaxed);
    }

    /// Counts a hedge: a request is late and is sent a second time.
    pub fn count_hedge(&self) {
        self.hedges.fetch_add(1, Relaxed);
    }

    /// Counts a hedge whose response came before that of the first request.
    pub fn count_hedge_won(&self) {
        self.hedges_won.fetch_add(1, Relaxed);
    }

    /// Counts a response that asks for fewer requests.
    pub fn count_refusal(&self) {
        self.throttled.fetch_add(1, Relaxed);
    }

    /// Returns the cache counts for objects of a kind: `codes`, `centroids`, `vectors`, ...
    pub fn cache_counts(&self, kind: &str) -> Arc<CacheCounts> {
        let mut kinds = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        kinds.entry(kind.to_owned()).or_default().clone()
    }

    /// Returns a snapshot of the cache counts by kind of object; empty without a cache.
    pub fn cache_use(&self) -> BTreeMap<String, CacheUse> {
        let kinds = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        kinds.iter().map(|(kind, counts)| (kind.clone(), counts.now())).collect()
    }

    /// Returns the cache counts of round number `round`, from 1 on. Number 0 means no round and has no
    /// counts.
    pub fn cache_round(&self, round: u32) -> Option<&CacheCounts> {
        let at = (round as usize).min(self.cache_rounds.len()).checked_sub(1)?;
        self.cache_rounds.get(at)
    }

    /// Returns the cache counts of searches by dependent round of their reads: the first [`COUNTED_ROUNDS`]
    /// rounds separately, then all later ones together. The list ends with the last round that looked up a
    /// block, and is empty without a cache. Reads outside of searches, such as codes loaded in the
    /// background, have no round.
    pub fn cache_rounds(&self) -> Vec<CacheUse> {
        let mut rounds: Vec<CacheUse> = self.cache_rounds.iter().map(CacheCounts::now).collect();
        let used = rounds.iter().rposition(|round| round.blocks() > 0).map_or(0, |last| last + 1);
        rounds.truncate(used);
        rounds
    }

    /// Records why the cache in front of the store has stopped using its disk. Only the first reason is kept.
    pub fn note_cache_trouble(&self, why: &str) {
        self.cache_trouble.get_or_init(|| why.to_owned());
    }

    /// Returns the reason why the cache in front of the store has stopped using its disk.
    pub fn cache_trouble(&self) -> Option<&str> {
        self.cache_trouble.get().map(String::as_str)
    }

    /// Records the most bytes of memory of the cache in front of the store.
    pub fn note_cache_memory(&self, bytes: u64) {
        self.cache_memory_bytes.store(bytes, Relaxed);
    }

    /// Returns the most bytes of memory of the cache in front of the store; 0 without a cache.
    pub fn cache_memory_bytes(&self) -> u64 {
        self.cache_memory_bytes.load(Relaxed)
    }

    /// Returns a snapshot of the counts.
    pub fn now(&self) -> Requests {
        let read = |count: &AtomicU64| count.load(Relaxed);
        let (requests, received_bytes) = (read(&self.requests), read(&self.received_bytes));
        let Prices { million_reads, gigabyte } = self.prices;
        let mut cache = CacheUse::default();
        self.cache_use().into_values().for_each(|kind_counts| cache += kind_counts);
        Requests {
            reads: read(&self.reads),
            wanted_bytes: read(&self.wanted_bytes),
            requests,
            received_bytes,
            dollars: requests as f64 / 1e6 * million_reads + received_bytes as f64 / 1e9 * gigabyte,
            retries: read(&self.retries),
            hedges: read(&self.hedges),
            hedges_won: read(&self.hedges_won),
            throttled: read(&self.throttled),
            cache,
        }
    }
}

impl Requests {
    /// Returns the sum of both.
    #[must_use]
    pub fn and(&self, other: &Requests) -> Requests {
        Requests {
            reads: self.reads + other.reads,
            wanted_bytes: self.wanted_bytes + other.wanted_bytes,
            requests: self.requests + other.requests,
            received_bytes: self.received_bytes + other.received_bytes,
            retries: self.retries + other.retries,
            hedges: self.hedges + other.hedges,
            hedges_won: self.hedges_won + other.hedges_won,
            throttled: self.throttled + other.throttled,
            dollars: self.dollars + other.dollars,
            cache: {
                let mut sum = self.cache;
                sum += other.cache;
                sum
            },
        }
    }

    /// Returns the difference from `before`.
    #[must_use]
    pub fn since(&self, before: &Requests) -> Requests {
        Requests {
            reads: self.reads.saturating_sub(before.reads),
            wanted_bytes: self.wanted_bytes.saturating_sub(before.wanted_bytes),
            requests: self.requests.saturating_sub(before.requests),
            received_bytes: self.received_bytes.saturating_sub(before.received_bytes),
            retries: self.retries.saturating_sub(before.retries),
            hedges: self.hedges.saturating_sub(before.hedges),
            hedges_won: self.hedges_won.saturating_sub(before.hedges_won),
            throttled: self.throttled.saturating_sub(before.throttled),
            dollars: self.dollars - before.dollars,
            cache: self.cache.since(&before.cache),
        }
    }
}
