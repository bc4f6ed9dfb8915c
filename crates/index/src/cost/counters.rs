//! The demand of a search from its counters: of records of a graph (second-tier-memory, section 3.1,
//! equations 1 and 2), and of posting lists (section 3.2, equation 3), with the small reads of lists without
//! copies (section 6).

use super::demand::{Demand, moved_bytes};
use serde::{Deserialize, Serialize};

/// The counters of one query of a graph, independent of the device. Means over a set of queries.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct QueryCost {
    /// Rounds of reads, each of which depends on the previous one.
    pub hops: f64,
    /// Reads (# Hops in the paper, whose hops read one vertex each).
    pub reads: f64,
    /// Bytes that the reads request.
    pub bytes: f64,
    /// Processor time of one thread in nanoseconds, measured on the same search in DRAM, where reads take no
    /// time.
    pub compute_ns: f64,
}

impl QueryCost {
    /// Returns the bytes that a device with this granularity (in bytes) moves for a query. Reads of whole
    /// granules are assumed to be aligned. Others begin anywhere, and touch `1 + (bytes - 1) / granularity`
    /// granules on average.
    pub fn moved_bytes(&self, granularity: u32) -> f64 {
        if self.reads <= 0.0 || self.bytes <= 0.0 {
            return 0.0;
        }
        let read = self.bytes / self.reads;
        let step = if read % f64::from(granularity.max(1)) == 0.0 { granularity } else { 1 };
        self.reads * moved_bytes(read, step, granularity)
    }

    /// Returns the demand on a device with this granularity (in bytes).
    pub fn demand(&self, granularity: u32) -> Demand {
        Demand {
            rounds: self.hops,
            reads: self.reads,
            moved_bytes: self.moved_bytes(granularity),
            compute_ns: self.compute_ns,
        }
    }
}

/// The counters of one query of posting lists, independent of the device. Means over a set of queries.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ListCost {
    /// Dependent rounds of reads: one, or two if lists refer to vectors stored elsewhere.
    pub hops: f64,
    /// All reads, including the small ones: # Clusters in equation 3, if there are no small ones.
    pub reads: f64,
    /// Reads of single vectors, or of a few neighbours, that no searched list stores.
    pub small_reads: f64,
    /// Bytes of all reads.
    pub bytes: f64,
    /// Bytes of a vector. Small reads begin at multiples of it.
    pub vector_bytes: u32,
    /// All reads begin and end at multiples of this; 1 if they may begin anywhere.
    pub alignment: u32,
    /// Processor time of one thread in nanoseconds, measured in DRAM, where reads take no time.
    pub compute_ns: f64,
}

impl ListCost {
    /// Returns the bytes that a device of this granularity moves for a query. The bytes beyond those of a
    /// read depend only on where it begins: at a vector, or anywhere that the alignment permits.
    pub fn moved_bytes(&self, granularity: u32) -> f64 {
        let small = self.small_reads.clamp(0.0, self.reads.max(0.0));
        let extra = |step: u32| moved_bytes(f64::from(step), step, granularity) - f64::from(step);
        let at_vectors = if self.alignment > 1 { self.alignment } else { self.vector_bytes.max(1) };
        let extra_bytes =
            small * extra(at_vectors) + (self.reads - small).max(0.0) * extra(self.alignment.max(1));
        self.bytes.max(0.0) + extra_bytes
    }

    /// Returns the demand on a device with this granularity (in bytes).
    pub fn demand(&self, granularity: u32) -> Demand {
        Demand {
            rounds: self.hops,
            reads: self.reads,
            moved_bytes: self.moved_bytes(granularity),
            compute_ns: self.compute_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::demand::tests::device;
    use super::super::demand::{Bound, Execution, Prediction};
    use super::*;
    use bathyal_tier::TierProfile;
    use proptest::prelude::*;

    /// 20 hops of 4 reads of 256 bytes, and 100 microseconds of computing.
    const COST: QueryCost = QueryCost { hops: 20.0, reads: 80.0, bytes: 80.0 * 256.0, compute_ns: 100_000.0 };

    /// 20 lists of 4096 bytes, 300 vectors of 128 bytes stored elsewhere, and 100 microseconds of processor
    /// time.
    const GROUPED: ListCost = ListCost {
        hops: 2.0,
        reads: 320.0,
        small_reads: 300.0,
        bytes: 20.0 * 4096.0 + 300.0 * 128.0,
        vector_bytes: 128,
        alignment: 1,
        compute_ns: 100_000.0,
    };

    /// The same with copies: 20 lists of 47 vectors and their ids.
    const COUPLED: ListCost =
        ListCost { hops: 1.0, reads: 20.0, small_reads: 0.0, bytes: 20.0 * 47.0 * 132.0, ..GROUPED };

    fn run(in_flight: u32) -> Execution {
        Execution { threads: 1, in_flight, issue_ns: 0.0 }
    }

    fn walk(cost: &QueryCost, device: &TierProfile, execution: &Execution) -> Prediction {
        cost.demand(device.granularity).on(device, execution)
    }

    fn lists(cost: &ListCost, device: &TierProfile, execution: &Execution) -> Prediction {
        cost.demand(device.granularity).on(device, execution)
    }

    #[test]
    fn the_time_of_a_synchronous_search_is_its_computing_plus_its_waiting() {
        // 100 us + 20 x 5 us = 200 us; the transfer of 20480 B at 20.48 GB/s takes 1 us more.
        let prediction = walk(&COST, &device(5_000, 20.48, 64, 0.0), &run(1));
        assert_eq!(prediction.bound, Bound::Latency);
        assert!((prediction.qps - 1e9 / 201_000.0).abs() < 1e-6, "{}", prediction.qps);
        assert!((prediction.latency_ns - 201_000.0).abs() < 1e-6);
    }

    #[test]
    fn the_slower_of_processor_and_device_limits_a_pipelined_search() {
        let fast = walk(&COST, &device(5_000, 20.48, 64, 0.0), &run(16));
        assert_eq!((fast.bound, fast.qps), (Bound::Compute, 10_000.0));
        assert_eq!(fast.latency_ns, 1_600_000.0);
        // Equation 1: 20480 B a query at 0.1 GB/s.
        let slow = walk(&COST, &device(5_000, 0.1, 64, 0.0), &run(1000));
        assert_eq!((slow.bound, slow.qps), (Bound::Bandwidth, 0.1e9 / 20_480.0));
        // Equation 2: 80 reads a query at 400,000 a second.
        let disk = walk(&COST, &device(75_000, 5.3, 64, 400_000.0), &run(1000));
        assert_eq!((disk.bound, disk.qps), (Bound::Iops, 5_000.0));
        // Little's law: 4 in flight, each takes 100 us + 20 x 75 us alone, and 20480 B at 20.48 GB/s.
        let few = walk(&COST, &device(75_000, 20.48, 64, 0.0), &run(4));
        assert_eq!((few.bound, few.qps), (Bound::Latency, 4e9 / 1_601_000.0));
    }

    #[test]
    fn issuing_reads_takes_processor_time_and_threads_share_only_the_device() {
        let issue = Execution { issue_ns: 150.0, ..run(16) };
        // 100 us + 80 x 0.15 us.
        let prediction = walk(&COST, &device(2_800, 25.0, 64, 0.0), &issue);
        assert_eq!((prediction.bound, prediction.qps), (Bound::Compute, 1e9 / 112_000.0));
        let two = walk(&COST, &device(2_800, 25.0, 64, 0.0), &Execution { threads: 2, ..issue });
        assert_eq!(two.qps, 2.0 * prediction.qps);
        let narrow = device(2_800, 0.1, 64, 0.0);
        let two = walk(&COST, &narrow, &Execution { threads: 2, ..issue });
        assert_eq!(two.qps, walk(&COST, &narrow, &issue).qps);
    }

    #[test]
    fn reads_move_whole_granules() {
        assert_eq!(COST.moved_bytes(64), 80.0 * 256.0);
        assert_eq!(COST.moved_bytes(4096), 80.0 * (4096.0 + 255.0));
        let odd = QueryCost { bytes: 80.0 * 129.0, ..COST };
        assert_eq!(odd.moved_bytes(64), 80.0 * (64.0 + 128.0));
        assert_eq!(QueryCost { reads: 0.0, ..COST }.moved_bytes(64), 0.0);
    }

    #[test]
    fn unknown_properties_of_a_device_set_no_bound() {
        let nothing = QueryCost { hops: 0.0, reads: 0.0, bytes: 0.0, compute_ns: 0.0 };
        let prediction = walk(&nothing, &device(0, 0.0, 0, 0.0), &Execution { threads: 0, ..run(0) });
        assert_eq!((prediction.qps, prediction.latency_ns), (f64::INFINITY, 0.0));
        assert_eq!(walk(&COST, &device(0, 0.0, 64, 0.0), &run(1)).bound, Bound::Compute);
    }

    fn costs() -> impl Strategy<Value = QueryCost> {
        (1.0..500.0_f64, 1.0..16.0_f64, 64.0..5000.0_f64, 1e3..1e6_f64).prop_map(
            |(hops, beam, bytes, compute_ns)| QueryCost {
                hops,
                reads: hops * beam,
                bytes: hops * beam * bytes,
                compute_ns,
            },
        )
    }

    proptest! {
        #[test]
        fn larger_granules_are_never_faster(
            cost in costs(), latency in 0..100_000_u64, gigabytes in 0.1..100.0_f64, width in 1..256_u32,
        ) {
            let qps = |granularity| {
               walk(&cost, &device(latency, gigabytes, granularity, 0.0), &run(width)).qps
            };
            // Reads of whole small granules are aligned, and may be unaligned for larger granules, but not
            // the reverse.
            prop_assert!(qps(256) <= qps(64) * (1.0 + 1e-9));
        }
    }

    #[test]
    fn equation_3_divides_bandwidth_by_the_bytes_of_lists() {
        let narrow = device(1000, 1.0, 1, 0.0);
        let predicted = lists(&COUPLED, &narrow, &run(1000));
        assert_eq!((predicted.bound, predicted.qps), (Bound::Bandwidth, 1e9 / (20.0 * 47.0 * 132.0)));
        assert_eq!(lists(&COUPLED, &device(0, 0.0, 1, 0.0), &run(1)).bandwidth_qps, f64::INFINITY);
    }

    #[test]
    fn small_reads_move_whole_granules_and_are_limited_by_iops() {
        // A vector of 128 bytes fits granules of 64 and of 256, and takes a whole granule of 4096. A list
        // touches one granule more.
        assert_eq!(GROUPED.moved_bytes(64), GROUPED.bytes + 20.0 * 63.0);
        assert_eq!(GROUPED.moved_bytes(256), 20.0 * (4096.0 + 255.0) + 300.0 * 256.0);
        assert_eq!(GROUPED.moved_bytes(4096), 20.0 * (4096.0 + 4095.0) + 300.0 * 4096.0);
        // Vectors of 100 bytes begin at any multiple of 4.
        let odd = ListCost { vector_bytes: 100, bytes: 300.0 * 100.0, reads: 300.0, ..GROUPED };
        assert_eq!(odd.moved_bytes(64), 300.0 * (100.0 + 60.0));
        // Reads of whole blocks move no further bytes.
        let blocks = ListCost { alignment: 4096, bytes: 340.0 * 4096.0, ..GROUPED };
        assert_eq!(blocks.moved_bytes(4096), blocks.bytes);
        assert_eq!(blocks.moved_bytes(512), blocks.bytes);
        // 25 GB/s would take 200,000 queries a second; 10 million reads a second take 31,250.
        let predicted = lists(&GROUPED, &device(2800, 25.0, 64, 1e7), &Execution { threads: 8, ..run(1000) });
        assert_eq!((predicted.bound, predicted.qps), (Bound::Iops, 1e7 / 320.0));
        let predicted =
            lists(&COUPLED, &device(2800, 25.0, 64, 1e7), &Execution { threads: 80, ..run(1000) });
        assert_eq!(predicted.bound, Bound::Bandwidth);
        // Submitting 320 reads costs more processor time than submitting 20.
        let issue = Execution { issue_ns: 150.0, ..run(16) };
        let fast = device(2800, 25.0, 64, 0.0);
        assert_eq!(lists(&GROUPED, &fast, &issue).qps, 1e9 / 148_000.0);
        assert_eq!(lists(&COUPLED, &fast, &issue).qps, 1e9 / 103_000.0);
    }

    #[test]
    fn one_round_waits_once_and_two_twice() {
        let slow = device(1_000_000, 0.0, 64, 0.0);
        assert_eq!(lists(&COUPLED, &slow, &run(1)).qps, 1e9 / 1_100_000.0);
        assert_eq!(lists(&GROUPED, &slow, &run(1)).qps, 1e9 / 2_100_000.0);
        assert_eq!(lists(&GROUPED, &slow, &run(4)).bound, Bound::Latency);
        assert_eq!(lists(&GROUPED, &slow, &run(100)).bound, Bound::Compute);
    }

    #[test]
    fn an_empty_query_costs_nothing() {
        let nothing = ListCost {
            hops: 0.0,
            reads: 0.0,
            small_reads: 0.0,
            bytes: 0.0,
            vector_bytes: 0,
            alignment: 0,
            compute_ns: 0.0,
        };
        assert_eq!(nothing.moved_bytes(4096), 0.0);
        assert_eq!(lists(&nothing, &device(0, 1.0, 64, 1.0), &run(0)).qps, f64::INFINITY);
    }

    proptest! {
        #[test]
        fn fewer_small_reads_of_the_same_bytes_are_never_slower(
            searched in 1.0..200.0_f64, list_bytes in 1000.0..100_000.0_f64,
            small in 0.0..2000.0_f64, saved in 0.0..1.0_f64,
            power in 4..13_u32, latency in 0..100_000_u64, issue_ns in 0.0..500.0_f64,
        ) {
            let cost = ListCost {
                reads: searched + small,
                small_reads: small,
                bytes: searched * list_bytes + small * 128.0,
                ..GROUPED
            };
            // Grouping moves these vectors into the lists.
            let (reads, small_reads) = (cost.reads - saved * small, small - saved * small);
            let grouped = ListCost { reads, small_reads, ..cost };
            let device = device(latency, 5.0, 1 << power, 1e7);
            let execution = Execution { issue_ns, ..run(16) };
            let predicted = lists(&cost, &device, &execution);
            prop_assert!(lists(&grouped, &device, &execution).qps >= predicted.qps * (1.0 - 1e-9));
            prop_assert!(cost.moved_bytes(1 << power) >= cost.bytes * (1.0 - 1e-12));
        }
    }
}
