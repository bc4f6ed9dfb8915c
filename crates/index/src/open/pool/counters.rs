//! Counters that workers keep, by relaxed atomics once a query.

use crate::query::{MOST_OWN_COUNTERS, QueryStats};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Upper bounds of the latency histogram in microseconds: from a search in memory to a disk in distress.
pub(in crate::open) const LATENCY_BOUNDS_US: [u64; 17] = [
    20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000,
    2_000_000, 5_000_000,
];

/// The counters of an open index, shared by its threads.
#[derive(Debug, Default)]
pub(in crate::open) struct Counters {
    pub(in crate::open) queries: AtomicU64,
    pub(in crate::open) errors: AtomicU64,
    pub(in crate::open) hops: AtomicU64,
    pub(in crate::open) reads: AtomicU64,
    pub(in crate::open) bytes: AtomicU64,
    pub(in crate::open) code_distances: AtomicU64,
    pub(in crate::open) full_distances: AtomicU64,
    /// What only the family counts, in its order.
    pub(in crate::open) own: [AtomicU64; MOST_OWN_COUNTERS],
    pub(in crate::open) latency_ns: AtomicU64,
    /// Queries by latency: up to each bound, and beyond the last.
    pub(in crate::open) slower: [AtomicU64; LATENCY_BOUNDS_US.len() + 1],
}

impl Counters {
    /// Counts a query that was answered.
    pub(in crate::open) fn answered(&self, latency_ns: u64, cost: &QueryStats) {
        self.queries.fetch_add(1, Relaxed);
        self.hops.fetch_add(u64::from(cost.hops), Relaxed);
        self.reads.fetch_add(u64::from(cost.reads), Relaxed);
        self.bytes.fetch_add(cost.bytes, Relaxed);
        self.code_distances.fetch_add(u64::from(cost.code_distances), Relaxed);
        self.full_distances.fetch_add(u64::from(cost.full_distances), Relaxed);
        for (sum, count) in self.own.iter().zip(cost.own).filter(|(_, count)| *count > 0) {
            sum.fetch_add(u64::from(count), Relaxed);
        }
        self.latency_ns.fetch_add(latency_ns, Relaxed);
        let bucket = LATENCY_BOUNDS_US.partition_point(|bound| bound * 1000 < latency_ns);
        self.slower[bucket].fetch_add(1, Relaxed);
    }

    /// Counts a batch that failed: damage, a device error, a cancellation, a deadline.
    pub(in crate::open) fn failed(&self) {
        self.errors.fetch_add(1, Relaxed);
    }
}
