//! What a store that is elsewhere was asked, and what it sent: exact counts, added to by any thread.

use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Rounds of reads whose blocks are counted one by one; those of all later rounds are counted together.
pub const TOLD_ROUNDS: usize = 12;

/// What entry number `at` of [`Traffic::cache_rounds`] is called: the number of its round, or `later`.
pub fn round_name(at: usize) -> String {
    if at < TOLD_ROUNDS { (at + 1).to_string() } else { "later".to_owned() }
}

/// What a store charges, in dollars.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct Prices {
    /// For a million requests that read.
    pub million_reads: f64,
    /// For 10^9 bytes that leave it.
    pub gigabyte: f64,
}

/// Counts that grow. Shared by all who read through one open generation.
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
    /// What came from a cache in front of the store, by what it is.
    cache: Mutex<BTreeMap<String, Arc<CacheCounts>>>,
    /// The same of what searches read, by the round that asked for it.
    cache_rounds: [CacheCounts; TOLD_ROUNDS + 1],
    cache_trouble: OnceLock<String>,
}

/// The counts of a [`Traffic`] at one moment, or of the time between two.
#[derive(Debug, Default, Clone, Copy, PartialEq, Serialize)]
pub struct Requests {
    /// Reads asked for by callers.
    pub reads: u64,
    /// Bytes that these wanted.
    pub wanted_bytes: u64,
    /// Requests sent: near reads are one, and each retry and each hedge is one more.
    pub requests: u64,
    /// Bytes of bodies that arrived.
    pub received_bytes: u64,
    /// Requests that were sent again because they failed.
    pub retries: u64,
    /// Requests that were sent a second time because the first was late.
    pub hedges: u64,
    /// Of these, those that answered first.
    pub hedges_won: u64,
    /// Answers that asked for fewer requests.
    pub throttled: u64,
    /// What the store charges for requests and bytes, by the prices that it was opened with.
    pub dollars: f64,
    /// What came from a cache in front of the store.
    pub cache: CacheUse,
}

/// Where a block of an object came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheLevel {
    /// The cache's memory.
    Memory,
    /// The cache's disk.
    Disk,
    /// Neither.
    Store,
}

/// Counts that grow, of blocks of one kind of objects.
#[derive(Debug, Default)]
pub struct CacheCounts {
    hits: AtomicU64,
    hit_bytes: AtomicU64,
    disk_hits: AtomicU64,
    disk_hit_bytes: AtomicU64,
    misses: AtomicU64,
    missed_bytes: AtomicU64,
}

/// What a cache in front of a store did: blocks and their bytes. Each read looks for all blocks that it lies in, so that one that
/// two reads want is looked for twice, wherever it is found.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CacheUse {
    /// Blocks that were in memory.
    pub hits: u64,
    /// Bytes of these.
    pub hit_bytes: u64,
    /// Blocks that were on disk.
    pub disk_hits: u64,
    /// Bytes of these.
    pub disk_hit_bytes: u64,
    /// Blocks that came from the store, asked for by this reader or by another one at the same time.
    pub misses: u64,
    /// Bytes that this reader asked the store for, those between two near reads included, and each once.
    pub missed_bytes: u64,
}

impl CacheCounts {
    /// So many blocks of so many bytes were found there.
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

    /// The counts at this moment.
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
    /// Blocks that were looked for.
    pub fn blocks(&self) -> u64 {
        self.hits + self.disk_hits + self.misses
    }

    /// What was added since `before`.
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
    /// None so far, at these prices.
    pub fn priced(prices: Prices) -> Traffic {
        Traffic { prices, ..Traffic::default() }
    }

    /// `reads` of together `bytes` are wanted.
    pub fn wanted(&self, reads: u64, bytes: u64) {
        self.reads.fetch_add(reads, Relaxed);
        self.wanted_bytes.fetch_add(bytes, Relaxed);
    }

    /// A request is sent.
    pub fn sent(&self) {
        self.requests.fetch_add(1, Relaxed);
    }

    /// So many bytes arrived.
    pub fn received(&self, bytes: u64) {
        self.received_bytes.fetch_add(bytes, Relaxed);
    }

    /// A request failed and is sent again.
    pub fn retried(&self) {
        self.retries.fetch_add(1, Relaxed);
    }

    /// A request is late and is sent a second time.
    pub fn hedged(&self) {
        self.hedges.fetch_add(1, Relaxed);
    }

    /// The second request answered first.
    pub fn hedge_won(&self) {
        self.hedges_won.fetch_add(1, Relaxed);
    }

    /// The store asks for fewer requests.
    pub fn throttled(&self) {
        self.throttled.fetch_add(1, Relaxed);
    }

    /// Where to count blocks of objects of a kind: `codes`, `centroids`, `vectors`, ...
    pub fn cache(&self, kind: &str) -> Arc<CacheCounts> {
        let mut kinds = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        kinds.entry(kind.to_owned()).or_default().clone()
    }

    /// What a cache in front of the store did, by kind of object; none without a cache.
    pub fn cache_use(&self) -> BTreeMap<String, CacheUse> {
        let kinds = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        kinds.iter().map(|(kind, counts)| (kind.clone(), counts.now())).collect()
    }

    /// Where to count blocks that the round of this number asks for, from 1 on; `None` of number 0, which is no round.
    pub fn cache_round(&self, round: u32) -> Option<&CacheCounts> {
        let at = (round as usize).min(self.cache_rounds.len()).checked_sub(1)?;
        self.cache_rounds.get(at)
    }

    /// What a cache in front of the store did for searches, by dependent round of their reads: the first [`TOLD_ROUNDS`] rounds
    /// one by one, then all later ones together. It ends with the last that asked for anything, and holds nothing without a
    /// cache. What is no search's, such as codes that are loaded on the side, has no round.
    pub fn cache_rounds(&self) -> Vec<CacheUse> {
        let mut rounds: Vec<CacheUse> = self.cache_rounds.iter().map(CacheCounts::now).collect();
        let asked = rounds.iter().rposition(|round| round.blocks() > 0).map_or(0, |last| last + 1);
        rounds.truncate(asked);
        rounds
    }

    /// The cache in front of the store does without its disk, for this reason.
    pub fn note_cache_trouble(&self, why: &str) {
        self.cache_trouble.get_or_init(|| why.to_owned());
    }

    /// Why the cache in front of the store does without its disk.
    pub fn cache_trouble(&self) -> Option<&str> {
        self.cache_trouble.get().map(String::as_str)
    }

    /// The counts at this moment.
    pub fn now(&self) -> Requests {
        let read = |count: &AtomicU64| count.load(Relaxed);
        let (requests, received_bytes) = (read(&self.requests), read(&self.received_bytes));
        let Prices { million_reads, gigabyte } = self.prices;
        let mut cache = CacheUse::default();
        self.cache_use().into_values().for_each(|of_kind| cache += of_kind);
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
    /// Both together.
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

    /// What was added since `before`.
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
