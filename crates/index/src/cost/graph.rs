//! The cost of graph searches on a device (second-tier-memory, section 3.1, equations 1 and 2), with the software
//! pipeline of section 5: queries that wait let others compute, so that the slower of processor and device decides.

use crate::index::SearchTotals;
use bathyal_tier::TierProfile;
use serde::{Deserialize, Serialize};

/// What one query of an index costs, whatever the device. Means over a set of queries.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct QueryCost {
    /// Dependent rounds of reads.
    pub hops: f64,
    /// Reads (# Hops in the paper, whose hops read one vertex each).
    pub reads: f64,
    /// Bytes asked for.
    pub bytes: f64,
    /// Processor time in nanoseconds of one thread, measured where reads take no time: the same search in DRAM.
    pub compute_ns: f64,
}

impl QueryCost {
    /// The means of `queries` queries that cost `totals` and `seconds` of processor time together; all zero
    /// without queries.
    pub fn mean(totals: &SearchTotals, queries: usize, seconds: f64) -> QueryCost {
        let share = 1.0 / queries.max(1) as f64;
        QueryCost {
            hops: totals.hops as f64 * share,
            reads: totals.reads as f64 * share,
            bytes: totals.bytes as f64 * share,
            compute_ns: seconds * 1e9 * share,
        }
    }

    /// Bytes that a device of this granularity moves for a query. Reads of whole granules are taken to be aligned;
    /// others begin anywhere, and touch `1 + (bytes - 1) / granularity` granules in the mean.
    pub fn moved_bytes(&self, granularity: u32) -> f64 {
        if self.reads <= 0.0 || self.bytes <= 0.0 {
            return 0.0;
        }
        let (granule, read) = (f64::from(granularity.max(1)), self.bytes / self.reads);
        let granules =
            if read % granule == 0.0 { read / granule } else { 1.0 + (read - 1.0).max(0.0) / granule };
        self.reads * granules * granule
    }
}

/// How queries are run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Execution {
    /// Threads that search.
    pub threads: u32,
    /// Queries interleaved on each; 1 is the synchronous search, which waits for every hop.
    pub in_flight: u32,
    /// Processor time of submitting one read, in nanoseconds; 0 where reads are loads.
    pub issue_ns: f64,
}

/// What keeps a search from being faster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// The processor: the device keeps up.
    Compute,
    /// The bytes a second of the device (equation 1).
    Bandwidth,
    /// The reads a second of the device (equation 2).
    Iops,
    /// The device's latency: too few queries in flight to hide it.
    Latency,
}

impl Bound {
    /// Its name: "compute", "bandwidth", "iops" or "latency".
    pub fn name(self) -> &'static str {
        match self {
            Bound::Compute => "compute",
            Bound::Bandwidth => "bandwidth",
            Bound::Iops => "iops",
            Bound::Latency => "latency",
        }
    }
}

/// What a search will do. Queries a second; infinite where nothing bounds it (a profile says 0 for "not measured").
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Prediction {
    /// The least of all bounds.
    pub qps: f64,
    /// Mean nanoseconds from the start of a query to its answer, by Little's law.
    pub latency_ns: f64,
    /// Which bound holds.
    pub bound: Bound,
    /// Were every read free of waiting.
    pub compute_qps: f64,
    /// Equation 1: bandwidth / (reads x bytes a read), whole granules counted.
    pub bandwidth_qps: f64,
    /// Equation 2: IOPS / reads.
    pub iops_qps: f64,
    /// Little's law: queries in flight / time that one takes alone.
    pub latency_qps: f64,
}

/// `amount / demand`, without bound where there is no demand or the amount is not known.
fn rate(amount: f64, demand: f64) -> f64 {
    if amount > 0.0 && demand > 0.0 { amount / demand } else { f64::INFINITY }
}

/// Nanoseconds that a query alone waits for the device: each hop for a latency and for the transfer of its bytes.
fn waiting_ns(cost: &QueryCost, device: &TierProfile) -> f64 {
    let bandwidth = device.bandwidth_bytes_per_s;
    let transfer = if bandwidth > 0.0 { cost.moved_bytes(device.granularity) * 1e9 / bandwidth } else { 0.0 };
    cost.hops.max(0.0) * device.latency_ns as f64 + transfer
}

/// Predicts a search of queries that cost `cost` each, on `device`, run as `execution` says.
pub fn predict(cost: &QueryCost, device: &TierProfile, execution: &Execution) -> Prediction {
    let threads = f64::from(execution.threads.max(1));
    let width = f64::from(execution.in_flight.max(1));
    let processor_ns = cost.compute_ns.max(0.0) + cost.reads.max(0.0) * execution.issue_ns.max(0.0);
    let alone_ns = processor_ns + waiting_ns(cost, device);
    let compute_qps = rate(threads * 1e9, processor_ns);
    let bandwidth_qps = rate(device.bandwidth_bytes_per_s, cost.moved_bytes(device.granularity));
    let iops_qps = rate(device.iops, cost.reads);
    let latency_qps = rate(threads * width * 1e9, alone_ns);
    let bounds = [
        (Bound::Compute, compute_qps),
        (Bound::Bandwidth, bandwidth_qps),
        (Bound::Iops, iops_qps),
        (Bound::Latency, latency_qps),
    ];
    let least = |a: (Bound, f64), b: (Bound, f64)| if b.1 < a.1 { b } else { a };
    let (bound, qps) = bounds.into_iter().fold((Bound::Compute, compute_qps), least);
    let latency_ns = if qps.is_finite() { threads * width * 1e9 / qps } else { 0.0 };
    Prediction { qps, latency_ns, bound, compute_qps, bandwidth_qps, iops_qps, latency_qps }
}

/// Queries to interleave on a thread so that a device's latency is hidden behind the others' computing: while one
/// waits for `latency_ns`, each of the others computes a hop of `hop_ns`. At least 2 where there is anything to hide.
pub fn width_to_hide(latency_ns: u64, hop_ns: u64) -> usize {
    let others = latency_ns.div_ceil(hop_ns.max(1));
    usize::try_from(others.saturating_add(1)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn device(latency_ns: u64, gigabytes: f64, granularity: u32, iops: f64) -> TierProfile {
        TierProfile {
            kind: "device".into(),
            method: String::new(),
            granularity,
            alignment: 1,
            addressable: true,
            latency_ns,
            iops,
            bandwidth_bytes_per_s: gigabytes * 1e9,
            depth: 64,
        }
    }

    /// 20 hops of 4 reads of 256 bytes, and 100 microseconds of computing.
    const COST: QueryCost = QueryCost { hops: 20.0, reads: 80.0, bytes: 80.0 * 256.0, compute_ns: 100_000.0 };

    fn run(in_flight: u32) -> Execution {
        Execution { threads: 1, in_flight, issue_ns: 0.0 }
    }

    #[test]
    fn a_synchronous_search_adds_what_it_waits_to_what_it_computes() {
        // 100 us + 20 x 5 us = 200 us, the transfer of 20480 B at 20.48 GB/s is 1 us more.
        let told = predict(&COST, &device(5_000, 20.48, 64, 0.0), &run(1));
        assert_eq!(told.bound, Bound::Latency);
        assert!((told.qps - 1e9 / 201_000.0).abs() < 1e-6, "{}", told.qps);
        assert!((told.latency_ns - 201_000.0).abs() < 1e-6);
    }

    #[test]
    fn a_pipelined_search_is_as_fast_as_the_slower_of_processor_and_device() {
        let fast = predict(&COST, &device(5_000, 20.48, 64, 0.0), &run(16));
        assert_eq!((fast.bound, fast.qps), (Bound::Compute, 10_000.0));
        assert_eq!(fast.latency_ns, 1_600_000.0);
        // Equation 1: 20480 B a query at 0.1 GB/s.
        let slow = predict(&COST, &device(5_000, 0.1, 64, 0.0), &run(1000));
        assert_eq!((slow.bound, slow.qps), (Bound::Bandwidth, 0.1e9 / 20_480.0));
        // Equation 2: 80 reads a query at 400,000 a second.
        let disk = predict(&COST, &device(75_000, 5.3, 64, 400_000.0), &run(1000));
        assert_eq!((disk.bound, disk.qps), (Bound::Iops, 5_000.0));
        // Little's law: 4 in flight, each 100 us + 20 x 75 us alone, and 20480 B at 20.48 GB/s.
        let few = predict(&COST, &device(75_000, 20.48, 64, 0.0), &run(4));
        assert_eq!((few.bound, few.qps), (Bound::Latency, 4e9 / 1_601_000.0));
    }

    #[test]
    fn issuing_reads_takes_processor_time_and_threads_share_the_device_only() {
        let issue = Execution { issue_ns: 150.0, ..run(16) };
        // 100 us + 80 x 0.15 us.
        let told = predict(&COST, &device(2_800, 25.0, 64, 0.0), &issue);
        assert_eq!((told.bound, told.qps), (Bound::Compute, 1e9 / 112_000.0));
        let two = predict(&COST, &device(2_800, 25.0, 64, 0.0), &Execution { threads: 2, ..issue });
        assert_eq!(two.qps, 2.0 * told.qps);
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
    fn what_is_not_known_bounds_nothing() {
        let nothing = QueryCost { hops: 0.0, reads: 0.0, bytes: 0.0, compute_ns: 0.0 };
        let told = predict(&nothing, &device(0, 0.0, 0, 0.0), &Execution { threads: 0, ..run(0) });
        assert_eq!((told.qps, told.latency_ns), (f64::INFINITY, 0.0));
        assert_eq!(predict(&COST, &device(0, 0.0, 64, 0.0), &run(1)).bound, Bound::Compute);
    }

    #[test]
    fn the_width_that_hides_a_latency() {
        assert_eq!(width_to_hide(0, 3_000), 1);
        assert_eq!(width_to_hide(300, 3_000), 2);
        assert_eq!(width_to_hide(6_001, 3_000), 4);
        assert_eq!(width_to_hide(10, 0), 11);
        assert!(width_to_hide(u64::MAX, 1) > 1 << 30);
    }

    #[test]
    fn means_are_taken_over_the_queries() {
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
        fn a_worse_device_is_never_faster_and_more_in_flight_never_slower(
            cost in costs(), latency in 0..100_000_u64, gigabytes in 0.1..100.0_f64, iops in 1e4..1e8_f64,
            width in 1..256_u32, threads in 1..64_u32, issue_ns in 0.0..1000.0_f64,
        ) {
            let execution = Execution { threads, in_flight: width, issue_ns };
            let base = device(latency, gigabytes, 64, iops);
            let told = predict(&cost, &base, &execution);
            let least = told.compute_qps.min(told.bandwidth_qps).min(told.iops_qps).min(told.latency_qps);
            prop_assert_eq!(told.qps, least);
            let worse = [
                device(latency * 2 + 1, gigabytes, 64, iops),
                device(latency, gigabytes / 2.0, 64, iops),
                device(latency, gigabytes, 256, iops),
                device(latency, gigabytes, 64, iops / 2.0),
            ];
            for worse in worse {
                // Whole granules may be aligned where larger ones are not, never the other way round.
                prop_assert!(predict(&cost, &worse, &execution).qps <= told.qps * (1.0 + 1e-9));
            }
            let more = Execution { in_flight: width + 1, ..execution };
            prop_assert!(predict(&cost, &base, &more).qps >= told.qps);
            let more = Execution { threads: threads + 1, ..execution };
            prop_assert!(predict(&cost, &base, &more).qps >= told.qps);
            let dearer = Execution { issue_ns: issue_ns + 1.0, ..execution };
            prop_assert!(predict(&cost, &base, &dearer).qps <= told.qps);
        }
    }
}
