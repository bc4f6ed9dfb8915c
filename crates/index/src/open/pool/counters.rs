//! Counters that each thread keeps in a lane of its own. They are summed when they are read.

use crate::query::{MOST_OWN_COUNTERS, QueryStats};
use bathyal_tier::lanes::Lanes;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Upper bounds of the latency histogram in microseconds: from a search in memory to an overloaded disk.
pub(in crate::open) const LATENCY_BOUNDS_US: [u64; 17] = [
    20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000,
    2_000_000, 5_000_000,
];

/// The counters of an open index: of one lane, or the sums of all lanes.
#[derive(Debug, Default)]
pub(in crate::open) struct Sums<T> {
    pub(in crate::open) queries: T,
    pub(in crate::open) errors: T,
    pub(in crate::open) hops: T,
    pub(in crate::open) reads: T,
    pub(in crate::open) bytes: T,
    pub(in crate::open) code_distances: T,
    pub(in crate::open) full_distances: T,
    /// The counters that only the family has, in its order.
    pub(in crate::open) own: [T; MOST_OWN_COUNTERS],
    pub(in crate::open) latency_ns: T,
    /// Queries by latency: up to each bound, and above the last.
    pub(in crate::open) latency_buckets: [T; LATENCY_BOUNDS_US.len() + 1],
}

impl<T> Sums<T> {
    /// Returns all counters in the order of their declaration.
    fn all(&self) -> impl Iterator<Item = &T> {
        let Sums { queries, errors, hops, reads, bytes, code_distances, full_distances, .. } = self;
        let common = [queries, errors, hops, reads, bytes, code_distances, full_distances];
        common.into_iter().chain(&self.own).chain([&self.latency_ns]).chain(&self.latency_buckets)
    }

    /// Returns all counters in the order of their declaration, mutably.
    fn all_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let Sums { queries, errors, hops, reads, bytes, code_distances, full_distances, .. } = self;
        let common = [queries, errors, hops, reads, bytes, code_distances, full_distances];
        common.into_iter().chain(&mut self.own).chain([&mut self.latency_ns]).chain(&mut self.latency_buckets)
    }
}

/// The counters of an open index, shared by its threads.
#[derive(Debug, Default)]
pub(in crate::open) struct IndexCounters(Lanes<Sums<AtomicU64>>);

impl IndexCounters {
    /// Counts an answered query.
    pub(in crate::open) fn count_query(&self, latency_ns: u64, cost: &QueryStats) {
        let sums = self.0.here();
        sums.queries.fetch_add(1, Relaxed);
        sums.hops.fetch_add(u64::from(cost.hops), Relaxed);
        sums.reads.fetch_add(u64::from(cost.reads), Relaxed);
        sums.bytes.fetch_add(cost.bytes, Relaxed);
        sums.code_distances.fetch_add(u64::from(cost.code_distances), Relaxed);
        sums.full_distances.fetch_add(u64::from(cost.full_distances), Relaxed);
        for (sum, count) in sums.own.iter().zip(cost.own).filter(|(_, count)| *count > 0) {
            sum.fetch_add(u64::from(count), Relaxed);
        }
        sums.latency_ns.fetch_add(latency_ns, Relaxed);
        let bucket = LATENCY_BOUNDS_US.partition_point(|bound| bound * 1000 < latency_ns);
        sums.latency_buckets[bucket].fetch_add(1, Relaxed);
    }

    /// Counts a failed search: damage, a device error, a cancellation, a deadline.
    pub(in crate::open) fn count_failure(&self) {
        self.0.here().errors.fetch_add(1, Relaxed);
    }

    /// Returns the sums over all threads so far.
    pub(in crate::open) fn sums(&self) -> Sums<u64> {
        let mut totals = Sums::<u64>::default();
        for lane in self.0.iter() {
            totals.all_mut().zip(lane.all()).for_each(|(sum, count)| *sum += count.load(Relaxed));
        }
        totals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_of_all_threads_are_summed() {
        let counters = IndexCounters::default();
        let mut cost = QueryStats { hops: 1, reads: 2, bytes: 3, ..QueryStats::default() };
        (cost.code_distances, cost.full_distances, cost.own[0]) = (4, 5, 6);
        std::thread::scope(|scope| {
            for latency_us in [10, 30, 30, u64::from(u32::MAX)] {
                let counters = &counters;
                scope.spawn(move || {
                    counters.count_query(latency_us * 1000, &cost);
                    counters.count_failure();
                });
            }
        });
        let sums = counters.sums();
        assert_eq!((sums.queries, sums.errors, sums.hops, sums.reads, sums.bytes), (4, 4, 4, 8, 12));
        assert_eq!((sums.code_distances, sums.full_distances, sums.own[0]), (16, 20, 24));
        assert_eq!(sums.latency_ns, (70 + u64::from(u32::MAX)) * 1000);
        assert_eq!(
            (sums.latency_buckets[0], sums.latency_buckets[1], sums.latency_buckets[LATENCY_BOUNDS_US.len()]),
            (1, 2, 1)
        );
        assert_eq!(sums.latency_buckets.iter().sum::<u64>(), 4);
    }
}
