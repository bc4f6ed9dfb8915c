//! The cost of graph searches on a device (second-tier-memory, section 3.1, equations 1 and 2), with the
//! software pipeline of section 5: while some queries wait, others compute, so the slower of processor and
//! device limits the throughput.

use crate::cost::Machine;
use crate::cost::demand::{Demand, Execution, Prediction, moved_bytes};
use crate::query::SearchTotals;
use bathyal_tier::TierProfile;
use serde::{Deserialize, Serialize};

/// The cost of one query of an index, independent of the device. Means over a set of queries.
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
    /// Returns the means of `queries` queries, which together have the counters `totals` and took `seconds`
    /// of processor time. All means are zero if there are no queries.
    pub fn mean(totals: &SearchTotals, queries: usize, seconds: f64) -> QueryCost {
        let share = 1.0 / queries.max(1) as f64;
        QueryCost {
            hops: totals.hops as f64 * share,
            reads: totals.reads as f64 * share,
            bytes: totals.bytes as f64 * share,
            compute_ns: seconds * 1e9 * share,
        }
    }

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
}

/// Predicts the search of queries with the mean cost `cost` on `device`, with the threads and queries in
/// flight of `execution`.
pub fn predict(cost: &QueryCost, device: &TierProfile, execution: &Execution) -> Prediction {
    let demand = Demand {
        rounds: cost.hops,
        reads: cost.reads,
        moved_bytes: cost.moved_bytes(device.granularity),
        compute_ns: cost.compute_ns,
    };
    demand.on(device, execution)
}

/// Reads for each entry of the candidate list, approximately. It is above 1 because better candidates push
/// some out of the list after they have been read.
const READS_PER_CANDIDATE: f64 = 1.05;
/// Share of the links of a vector that lead to vectors that the query has not visited, approximately.
const NEW_LINKS: f64 = 0.6;

/// The properties of a graph that determine the cost of a query.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct GraphShape {
    /// Vectors in a read that are all compared: the vectors of a page in the page-local layout, otherwise 1.
    pub(super) vectors_per_read: f64,
    /// Bytes of a read, on average.
    pub(super) read_bytes: f64,
    /// Most links of a vector.
    pub(super) max_degree: f64,
    pub(super) vector_bytes: f64,
    pub(super) code_bytes: f64,
}

impl GraphShape {
    /// Returns the demand of a query with a list of `candidates` candidates, which reads `beam_width` records
    /// at once. A read of a page that several vectors share serves two candidates, approximately.
    pub(super) fn demand(&self, candidates: f64, beam_width: f64, machine: &Machine<'_>) -> Demand {
        let shared = self.vectors_per_read.clamp(1.0, 2.0);
        let reads = (READS_PER_CANDIDATE * candidates / shared).max(1.0);
        let cost = QueryCost {
            hops: (reads / beam_width.max(1.0)).max(1.0),
            reads,
            bytes: reads * self.read_bytes,
            compute_ns: 0.0,
        };
        let processor = machine.processor;
        let codes = candidates * self.max_degree * NEW_LINKS;
        // Each code is at a random place in memory.
        let navigating = codes * (processor.access_ns / 2.0 + self.code_bytes * processor.code_byte_ns);
        let comparing = reads * self.vectors_per_read * self.vector_bytes * processor.vector_byte_ns;
        Demand {
            rounds: cost.hops,
            reads,
            moved_bytes: cost.moved_bytes(machine.profile.granularity),
            compute_ns: navigating + comparing,
        }
    }
}

impl GraphShape {
    /// Returns the demand of a query that scores the codes of `matches` vectors, which are the share `share`
    /// of all, and reads `candidates` of them.
    pub(super) fn among(&self, matches: f64, share: f64, candidates: f64, machine: &Machine<'_>) -> Demand {
        let processor = machine.processor;
        // The larger the share, the more the scored codes are read as one stream.
        let streamed = self.code_bytes * processor.stream_byte_ns / share.max(f64::MIN_POSITIVE);
        let code = streamed.min(processor.access_ns / 2.0) + self.code_bytes * processor.code_byte_ns;
        let cost =
            QueryCost { hops: 2.0, reads: candidates, bytes: candidates * self.read_bytes, compute_ns: 0.0 };
        let comparing = candidates * self.vectors_per_read * self.vector_bytes * processor.vector_byte_ns;
        Demand {
            rounds: cost.hops,
            reads: candidates,
            moved_bytes: cost.moved_bytes(machine.profile.granularity),
            compute_ns: matches * code + comparing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::demand::Bound;
    use crate::cost::demand::tests::device;
    use proptest::prelude::*;

    /// 20 hops of 4 reads of 256 bytes, and 100 microseconds of computing.
    const COST: QueryCost = QueryCost { hops: 20.0, reads: 80.0, bytes: 80.0 * 256.0, compute_ns: 100_000.0 };

    fn run(in_flight: u32) -> Execution {
        Execution { threads: 1, in_flight, issue_ns: 0.0 }
    }

    #[test]
    fn the_time_of_a_synchronous_search_is_its_computing_plus_its_waiting() {
        // 100 us + 20 x 5 us = 200 us; the transfer of 20480 B at 20.48 GB/s takes 1 us more.
        let prediction = predict(&COST, &device(5_000, 20.48, 64, 0.0), &run(1));
        assert_eq!(prediction.bound, Bound::Latency);
        assert!((prediction.qps - 1e9 / 201_000.0).abs() < 1e-6, "{}", prediction.qps);
        assert!((prediction.latency_ns - 201_000.0).abs() < 1e-6);
    }

    #[test]
    fn the_slower_of_processor_and_device_limits_a_pipelined_search() {
        let fast = predict(&COST, &device(5_000, 20.48, 64, 0.0), &run(16));
        assert_eq!((fast.bound, fast.qps), (Bound::Compute, 10_000.0));
        assert_eq!(fast.latency_ns, 1_600_000.0);
        // Equation 1: 20480 B a query at 0.1 GB/s.
        let slow = predict(&COST, &device(5_000, 0.1, 64, 0.0), &run(1000));
        assert_eq!((slow.bound, slow.qps), (Bound::Bandwidth, 0.1e9 / 20_480.0));
        // Equation 2: 80 reads a query at 400,000 a second.
        let disk = predict(&COST, &device(75_000, 5.3, 64, 400_000.0), &run(1000));
        assert_eq!((disk.bound, disk.qps), (Bound::Iops, 5_000.0));
        // Little's law: 4 in flight, each takes 100 us + 20 x 75 us alone, and 20480 B at 20.48 GB/s.
        let few = predict(&COST, &device(75_000, 20.48, 64, 0.0), &run(4));
        assert_eq!((few.bound, few.qps), (Bound::Latency, 4e9 / 1_601_000.0));
    }

    #[test]
    fn issuing_reads_takes_processor_time_and_threads_share_only_the_device() {
        let issue = Execution { issue_ns: 150.0, ..run(16) };
        // 100 us + 80 x 0.15 us.
        let prediction = predict(&COST, &device(2_800, 25.0, 64, 0.0), &issue);
        assert_eq!((prediction.bound, prediction.qps), (Bound::Compute, 1e9 / 112_000.0));
        let two = predict(&COST, &device(2_800, 25.0, 64, 0.0), &Execution { threads: 2, ..issue });
        assert_eq!(two.qps, 2.0 * prediction.qps);
        let narrow = device(2_800, 0.1, 64, 0.0);
        let two = predict(&COST, &narrow, &Execution { threads: 2, ..issue });
        assert_eq!(two.qps, predict(&COST, &narrow, &issue).qps);
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
        let prediction = predict(&nothing, &device(0, 0.0, 0, 0.0), &Execution { threads: 0, ..run(0) });
        assert_eq!((prediction.qps, prediction.latency_ns), (f64::INFINITY, 0.0));
        assert_eq!(predict(&COST, &device(0, 0.0, 64, 0.0), &run(1)).bound, Bound::Compute);
    }

    #[test]
    fn a_mean_cost_divides_totals_by_the_number_of_queries() {
        let totals = SearchTotals { hops: 40, reads: 160, bytes: 640, ..SearchTotals::default() };
        let mean = QueryCost::mean(&totals, 4, 4e-3);
        assert_eq!((mean.hops, mean.reads, mean.bytes, mean.compute_ns), (10.0, 40.0, 160.0, 1e6));
        assert_eq!(QueryCost::mean(&SearchTotals::default(), 0, 0.0).compute_ns, 0.0);
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
               predict(&cost, &device(latency, gigabytes, granularity, 0.0), &run(width)).qps
            };
            // Reads of whole small granules are aligned, and may be unaligned for larger granules, but not
            // the reverse.
            prop_assert!(qps(256) <= qps(64) * (1.0 + 1e-9));
        }
    }
}
