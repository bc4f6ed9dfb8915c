//! What a store that is elsewhere was asked, and what it sent: exact counts, added to by any thread.

use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

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

    /// The counts at this moment.
    pub fn now(&self) -> Requests {
        let read = |count: &AtomicU64| count.load(Relaxed);
        let (requests, received_bytes) = (read(&self.requests), read(&self.received_bytes));
        let Prices { million_reads, gigabyte } = self.prices;
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
        }
    }
}
