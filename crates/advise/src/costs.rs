//! The costs of an index: dollars a month, and for a million queries.

use crate::place::{AdviceTier, PlaceKind};
use crate::request::AdvicePrices;

/// Seconds of a month.
const MONTH_SECONDS: f64 = 730.0 * 3600.0;

/// The expected numbers of an index, or of a collection, that cost money.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CostedNumbers {
    /// Bytes of the files.
    pub(crate) disk_bytes: f64,
    /// Bytes of memory while searched.
    pub(crate) dram_bytes: f64,
    /// Reads of a query.
    pub(crate) reads: f64,
    /// Bytes of these reads.
    pub(crate) read_bytes: f64,
    /// Queries per second of a busy machine; 0 if unknown.
    pub(crate) queries_per_second: f64,
    /// Threads of searches.
    pub(crate) threads: usize,
}

impl CostedNumbers {
    /// Returns the dollars a month of memory, storage and processors.
    pub(crate) fn a_month(&self, tier: &AdviceTier, prices: &AdvicePrices) -> f64 {
        let hours = MONTH_SECONDS / 3600.0;
        self.dram_bytes / 1e9 * prices.dram_gb_month
            + self.disk_bytes / 1e9 * tier.stored_gb_month(prices)
            + self.threads as f64 * hours * prices.thread_hour
    }

    /// Returns the dollars of a million queries: their requests, and the time of a machine that is always
    /// busy with such queries.
    pub(crate) fn a_million_queries(&self, tier: &AdviceTier, prices: &AdvicePrices) -> f64 {
        let requests = tier.dollars_a_query(self.reads, self.read_bytes);
        let share_of_month = match self.queries_per_second > 0.0 {
            true => 1.0 / (self.queries_per_second * MONTH_SECONDS),
            false => 0.0,
        };
        1e6 * (requests + share_of_month * self.a_month(tier, prices))
    }
}

impl AdviceTier {
    /// Returns the dollars a month of 10^9 bytes of an index here.
    fn stored_gb_month(&self, prices: &AdvicePrices) -> f64 {
        match self.kind {
            PlaceKind::Memory | PlaceKind::Files => prices.disk_gb_month,
            // An index that is mapped into the machine's own memory has its files on a disk.
            PlaceKind::Mapped if self.pages_in_dram => prices.disk_gb_month,
            PlaceKind::Mapped | PlaceKind::Node => prices.dram_gb_month,
            PlaceKind::Bucket(_) => prices.bucket_gb_month,
        }
    }

    /// Returns the dollars of the requests of a query.
    fn dollars_a_query(&self, reads: f64, bytes: f64) -> f64 {
        match self.kind {
            PlaceKind::Bucket(costs) => reads / 1e6 * costs.million_reads + bytes / 1e9 * costs.gigabyte,
            _ => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bathyal_tier::TierProfile;

    fn tier(kind: &str) -> AdviceTier {
        let profile = TierProfile {
            kind: kind.into(),
            granularity: 1,
            addressable: kind == "mapped",
            latency_ns: 1_000,
            iops: 1e6,
            bandwidth_bytes_per_s: 1e9,
            ..AdviceTier::dram().profile
        };
        AdviceTier::of_profile("place", profile)
    }

    #[test]
    fn each_place_has_its_own_price_of_storage() {
        let prices =
            AdvicePrices { dram_gb_month: 3.0, disk_gb_month: 0.1, bucket_gb_month: 0.02, thread_hour: 0.0 };
        let numbers = CostedNumbers {
            disk_bytes: 10e9,
            dram_bytes: 1e9,
            reads: 10.0,
            read_bytes: 1e5,
            queries_per_second: 100.0,
            threads: 4,
        };
        let a_month = |kind: &str| numbers.a_month(&tier(kind), &prices);
        let months = ["file", "object", "remote", "mapped"].map(a_month);
        for (found, expected) in months.into_iter().zip([4.0, 3.2, 33.0, 33.0]) {
            assert!((found - expected).abs() < 1e-9, "{months:?}");
        }
        assert!((numbers.a_month(&AdviceTier::dram(), &prices) - 4.0).abs() < 1e-9);
        // Ten requests of a query cost 0.4 dollars a million, beside the machine's share.
        let requests = 4.0;
        let share = 1e6 / (100.0 * MONTH_SECONDS) * 3.2;
        let found = numbers.a_million_queries(&tier("object"), &prices);
        assert!((found - requests - share).abs() < 1e-9, "{found}");
        let idle = CostedNumbers { queries_per_second: 0.0, ..numbers };
        assert!((idle.a_million_queries(&tier("object"), &prices) - requests).abs() < 1e-9);
    }
}
