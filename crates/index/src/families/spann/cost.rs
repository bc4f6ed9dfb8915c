//! The cost of searching posting lists on a device. It combines equation 3 of second-tier-memory (section
//! 3.2), with the small reads of lists without copies (section 6), and equation 1 of
//! cloud-native-vector-search (section 2.3.1), with the lists in a local cache (section 4).

use crate::cost::Machine;
use crate::cost::demand::{Demand, Execution, Prediction, moved_bytes, nanoseconds, rate};
use bathyal_tier::TierProfile;
use serde::{Deserialize, Serialize};

/// The cost of one query of an index of posting lists, independent of the device. All fields are means over a
/// set of queries.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ListCost {
    /// Lists searched (# Clusters).
    pub lists: f64,
    /// Dependent rounds of reads: one, or two if lists refer to vectors stored elsewhere.
    pub hops: f64,
    /// All reads, including the small ones.
    pub reads: f64,
    /// Reads of single vectors, or of a few neighbours, that no searched list stores.
    pub small_reads: f64,
    /// Bytes of all reads.
    pub bytes: f64,
    /// Bytes of a vector. Small reads begin at multiples of it.
    pub vector_bytes: u32,
    /// All reads begin and end at multiples of this; 1 if they may begin anywhere.
    pub alignment: u32,
    /// Centroids compared.
    pub centroids: f64,
    /// Vectors compared (l in cloud-native-vector-search).
    pub vectors: f64,
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

    /// Returns the cost if a local cache holds this share of the reads. Lists are assumed to be cached
    /// independently of each other, and a round trip is saved only if all lists of a query are cached.
    pub fn cached(&self, share: f64) -> ListCost {
        let share = share.clamp(0.0, 1.0);
        let missing = 1.0 - share;
        ListCost {
            hops: self.hops * (1.0 - share.powf(self.lists.max(1.0))),
            reads: self.reads * missing,
            small_reads: self.small_reads * missing,
            bytes: self.bytes * missing,
            ..*self
        }
    }
}

/// Equation 3 of second-tier-memory without additions: the queries per second of a device that only reads
/// lists, `bandwidth / (# clusters x size of a cluster)`, for the payload only. Infinite if the bandwidth is
/// unknown.
pub fn equation_3(cost: &ListCost, device: &TierProfile) -> f64 {
    rate(device.bandwidth_bytes_per_s, cost.bytes)
}

/// Predicts a search of queries with this cost on `device`. It extends equation 3 by whole granules, the
/// limit of reads per second, and the pipeline of `execution`.
pub fn predict(cost: &ListCost, device: &TierProfile, execution: &Execution) -> Prediction {
    let demand = Demand {
        rounds: cost.hops,
        reads: cost.reads,
        moved_bytes: cost.moved_bytes(device.granularity),
        compute_ns: cost.compute_ns,
    };
    demand.on(device, execution)
}

/// Processor times for the parts of a search, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ListTimes {
    /// For each compared centroid on the way to the nearest lists, with all overheads.
    pub centroid_ns: f64,
    /// For each compared vector (c_dist), with all overheads.
    pub vector_ns: f64,
}

impl ListTimes {
    /// Derives the times from a measured query. `finding_share` is the share of its processor time for
    /// finding the lists. A time is 0 if the query did nothing of the kind.
    pub fn measured(cost: &ListCost, finding_share: f64) -> ListTimes {
        let share = finding_share.clamp(0.0, 1.0);
        let per_unit = |ns: f64, count: f64| if count > 0.0 { ns.max(0.0) / count } else { 0.0 };
        ListTimes {
            centroid_ns: per_unit(cost.compute_ns * share, cost.centroids),
            vector_ns: per_unit(cost.compute_ns * (1.0 - share), cost.vectors),
        }
    }

    /// Returns the processor time of a query with this cost.
    pub fn compute_ns(&self, cost: &ListCost) -> f64 {
        cost.centroids.max(0.0) * self.centroid_ns + cost.vectors.max(0.0) * self.vector_ns
    }
}

/// The terms of equation 1 of cloud-native-vector-search, in nanoseconds of a query that runs alone.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Terms {
    /// `c_centroid(n, nprobe)`: finding the lists.
    pub centroid_ns: f64,
    /// `c_fetch(l)`: the time to first byte of each dependent round, and the longer of the transfer of bytes
    /// and the acceptance of requests, since all lists are requested at once.
    pub fetch_ns: f64,
    /// `l x c_dist`: comparing the vectors.
    pub distance_ns: f64,
}

impl Terms {
    /// Returns the sum, which is the latency of the query.
    pub fn total_ns(&self) -> f64 {
        self.centroid_ns + self.fetch_ns + self.distance_ns
    }

    /// Returns the share of fetching in the sum; 0 if the sum is 0.
    pub fn fetch_share(&self) -> f64 {
        let total = self.total_ns();
        if total > 0.0 { self.fetch_ns / total } else { 0.0 }
    }
}

/// Equation 1 of cloud-native-vector-search: the cost of a query on a device. The latency of the device is
/// its time to first byte, its IOPS are the requests per second that it accepts, and its bandwidth is that of
/// the network. For the effect of a cache, see [`ListCost::cached`].
pub fn equation_1(cost: &ListCost, device: &TierProfile, processor: &ListTimes) -> Terms {
    let transfer = nanoseconds(cost.moved_bytes(device.granularity), device.bandwidth_bytes_per_s);
    let requests = nanoseconds(cost.reads, device.iops);
    Terms {
        centroid_ns: cost.centroids.max(0.0) * processor.centroid_ns,
        fetch_ns: cost.hops.max(0.0) * device.latency_ns as f64 + transfer.max(requests),
        distance_ns: cost.vectors.max(0.0) * processor.vector_ns,
    }
}

/// Memory accesses for finding one more list with a walk through the graph of centroids.
const ACCESSES_A_PROBE: f64 = 7.5;
/// Memory accesses for a list that was read: its pieces, and the check for vectors seen before.
const ACCESSES_A_LIST: f64 = 9.0;
/// Memory accesses for a candidate of lists of codes: among the best, in the order of the file, and among the
/// results.
const ACCESSES_A_CANDIDATE: f64 = 2.0;
/// The approximate share of vectors stored elsewhere that are a separate read. The others share reads with
/// neighbours.
const OWN_READS: f64 = 0.6;

/// The mean properties of posting lists that determine the cost of a query.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ListShape {
    /// Bytes stored in a list itself.
    pub(super) list_bytes: f64,
    /// Vectors of a list, wherever they are stored.
    pub(super) list_vectors: f64,
    /// The share of these of which the list has only the address.
    pub(super) addressed: f64,
    /// Bytes of a vector, with the data next to it.
    pub(super) row_bytes: u32,
    /// Bytes of a code, for lists of codes.
    pub(super) code_bytes: Option<f64>,
    /// All reads begin and end at multiples of this.
    pub(super) alignment: u32,
}

impl ListShape {
    /// Returns the demand of a query that finds `probes` lists, scans `lists` of them and, for lists of
    /// codes, compares `candidates` vectors.
    pub(super) fn demand(&self, probes: f64, lists: f64, candidates: f64, machine: &Machine<'_>) -> Demand {
        let elsewhere = match self.code_bytes {
            Some(_) => candidates,
            None => lists * self.list_vectors * self.addressed,
        };
        let small_reads = elsewhere * OWN_READS;
        let row = f64::from(self.row_bytes);
        let list_bytes = lists * moved_bytes(self.list_bytes, 4, self.alignment);
        let cost = ListCost {
            lists,
            hops: if small_reads > 0.0 { 2.0 } else { 1.0 },
            reads: lists + small_reads,
            small_reads,
            bytes: list_bytes + small_reads * moved_bytes(row, self.row_bytes, self.alignment),
            vector_bytes: self.row_bytes,
            alignment: self.alignment,
            centroids: probes,
            vectors: if self.code_bytes.is_some() { candidates } else { lists * self.list_vectors },
            compute_ns: 0.0,
        };
        let processor = machine.processor;
        let codes = self.code_bytes.map_or(0.0, |bytes| lists * self.list_vectors * bytes);
        let accesses =
            ACCESSES_A_PROBE * probes + ACCESSES_A_LIST * lists + ACCESSES_A_CANDIDATE * candidates;
        Demand {
            rounds: cost.hops,
            reads: cost.reads,
            moved_bytes: cost.moved_bytes(machine.profile.granularity),
            compute_ns: accesses * processor.access_ns
                + codes * processor.code_byte_ns
                + cost.vectors * row * processor.vector_byte_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::demand::Bound;
    use crate::cost::demand::tests::device;
    use crate::cost::processor::Processor;
    use proptest::prelude::*;

    /// 20 lists of 4096 bytes, 300 vectors of 128 bytes stored elsewhere, and 100 microseconds of processor
    /// time.
    const GROUPED: ListCost = ListCost {
        lists: 20.0,
        hops: 2.0,
        reads: 320.0,
        small_reads: 300.0,
        bytes: 20.0 * 4096.0 + 300.0 * 128.0,
        vector_bytes: 128,
        alignment: 1,
        centroids: 1000.0,
        vectors: 940.0,
        compute_ns: 100_000.0,
    };

    /// The same with copies: 20 lists of 47 vectors and their ids.
    const COUPLED: ListCost =
        ListCost { hops: 1.0, reads: 20.0, small_reads: 0.0, bytes: 20.0 * 47.0 * 132.0, ..GROUPED };

    fn run(in_flight: u32) -> Execution {
        Execution { threads: 1, in_flight, issue_ns: 0.0 }
    }

    #[test]
    fn equation_3_divides_bandwidth_by_the_bytes_of_lists() {
        let narrow = device(1000, 1.0, 1, 0.0);
        assert_eq!(equation_3(&COUPLED, &narrow), 1e9 / (20.0 * 47.0 * 132.0));
        let predicted = predict(&COUPLED, &narrow, &run(1000));
        assert_eq!((predicted.bound, predicted.qps), (Bound::Bandwidth, equation_3(&COUPLED, &narrow)));
        assert_eq!(equation_3(&COUPLED, &device(0, 0.0, 1, 0.0)), f64::INFINITY);
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
        let predicted =
            predict(&GROUPED, &device(2800, 25.0, 64, 1e7), &Execution { threads: 8, ..run(1000) });
        assert_eq!((predicted.bound, predicted.qps), (Bound::Iops, 1e7 / 320.0));
        let predicted =
            predict(&COUPLED, &device(2800, 25.0, 64, 1e7), &Execution { threads: 80, ..run(1000) });
        assert_eq!(predicted.bound, Bound::Bandwidth);
        // Submitting 320 reads costs more processor time than submitting 20.
        let issue = Execution { issue_ns: 150.0, ..run(16) };
        let fast = device(2800, 25.0, 64, 0.0);
        assert_eq!(predict(&GROUPED, &fast, &issue).qps, 1e9 / 148_000.0);
        assert_eq!(predict(&COUPLED, &fast, &issue).qps, 1e9 / 103_000.0);
    }

    #[test]
    fn one_round_waits_once_and_two_twice() {
        let slow = device(1_000_000, 0.0, 64, 0.0);
        assert_eq!(predict(&COUPLED, &slow, &run(1)).qps, 1e9 / 1_100_000.0);
        assert_eq!(predict(&GROUPED, &slow, &run(1)).qps, 1e9 / 2_100_000.0);
        assert_eq!(predict(&GROUPED, &slow, &run(4)).bound, Bound::Latency);
        assert_eq!(predict(&GROUPED, &slow, &run(100)).bound, Bound::Compute);
    }

    #[test]
    fn a_query_of_an_object_store_is_the_sum_of_three_terms() {
        let processor = ListTimes { centroid_ns: 40.0, vector_ns: 60.0 };
        // 50 ms to the first byte, 1 GB/s, 1000 requests a second.
        let store = device(50_000_000, 1.0, 1, 1000.0);
        let terms = equation_1(&COUPLED, &store, &processor);
        assert_eq!((terms.centroid_ns, terms.distance_ns), (40_000.0, 56_400.0));
        assert_eq!(terms.fetch_ns, 50e6 + 20e6);
        assert!((terms.total_ns() - 70_096_400.0).abs() < 1e-6 && terms.fetch_share() > 0.99);
        // Without a limit of requests the transfer determines the time.
        let terms = equation_1(&COUPLED, &device(50_000_000, 1.0, 1, 0.0), &processor);
        assert_eq!(terms.fetch_ns, 50e6 + COUPLED.bytes);
        assert_eq!(Terms { centroid_ns: 0.0, fetch_ns: 0.0, distance_ns: 0.0 }.fetch_share(), 0.0);
    }

    #[test]
    fn a_cache_saves_bytes_in_proportion_and_round_trips_last() {
        let half = COUPLED.cached(0.5);
        assert_eq!((half.bytes, half.reads), (COUPLED.bytes / 2.0, 10.0));
        assert!(half.hops > 0.999_998 && half.hops < 1.0);
        assert!((COUPLED.cached(0.9).hops - (1.0 - 0.9_f64.powi(20))).abs() < 1e-12);
        let all = COUPLED.cached(1.0);
        assert_eq!((all.bytes, all.reads, all.hops), (0.0, 0.0, 0.0));
        assert_eq!(COUPLED.cached(0.0), COUPLED);
        assert_eq!(COUPLED.cached(f64::INFINITY), all);
    }

    #[test]
    fn processor_times_follow_from_a_measured_query() {
        let found = ListTimes::measured(&COUPLED, 0.25);
        assert_eq!((found.centroid_ns, found.vector_ns), (25.0, 75_000.0 / 940.0));
        assert!((found.compute_ns(&COUPLED) - COUPLED.compute_ns).abs() < 1e-6);
        assert_eq!(found.compute_ns(&ListCost { centroids: 2.0, vectors: 0.0, ..COUPLED }), 50.0);
        let none = ListTimes::measured(&ListCost { centroids: 0.0, vectors: 0.0, ..COUPLED }, 2.0);
        assert_eq!((none.centroid_ns, none.vector_ns), (0.0, 0.0));
    }

    #[test]
    fn an_empty_query_costs_nothing() {
        let nothing = ListCost {
            lists: 0.0,
            hops: 0.0,
            reads: 0.0,
            small_reads: 0.0,
            bytes: 0.0,
            vector_bytes: 0,
            alignment: 0,
            centroids: 0.0,
            vectors: 0.0,
            compute_ns: 0.0,
        };
        assert_eq!(nothing.moved_bytes(4096), 0.0);
        assert_eq!(predict(&nothing, &device(0, 1.0, 64, 1.0), &run(0)).qps, f64::INFINITY);
        assert_eq!(nothing.cached(0.5), nothing);
    }

    #[test]
    fn lists_of_codes_and_candidates_cost_about_the_measured_times() {
        let shape = ListShape {
            list_bytes: 2600.0,
            list_vectors: 50.0,
            addressed: 0.0,
            row_bytes: 516,
            code_bytes: Some(48.0),
            alignment: 1,
        };
        let prices = |profile: &TierProfile| {
            let machine = Machine { profile, processor: &Processor::REFERENCE };
            let price = |lists, candidates| {
                shape.demand(60.0, lists, candidates, &machine).price_ns(&machine.device())
            };
            (price(31.0, 50.0) - price(30.0, 50.0), price(30.0, 51.0) - price(30.0, 50.0))
        };
        let (list, candidate) = prices(&device(0, 0.0, 64, 0.0));
        assert!((450.0..700.0).contains(&list) && (120.0..200.0).contains(&candidate), "{list} {candidate}");
        let (list, candidate) = prices(&TierProfile { addressable: false, ..device(0, 0.0, 512, 0.0) });
        assert!((1.5..3.0).contains(&(list / candidate)), "{list} {candidate}");
    }

    proptest! {
        #[test]
        fn fewer_small_reads_of_the_same_bytes_are_never_slower(
            lists in 1.0..200.0_f64, list_bytes in 1000.0..100_000.0_f64,
            small in 0.0..2000.0_f64, saved in 0.0..1.0_f64,
            power in 4..13_u32, latency in 0..100_000_u64, issue_ns in 0.0..500.0_f64, cached in 0.0..1.0_f64,
        ) {
            let cost = ListCost {
                lists,
                reads: lists + small,
                small_reads: small,
                bytes: lists * list_bytes + small * 128.0,
                ..GROUPED
            };
            // Grouping moves these vectors into the lists.
            let (reads, small_reads) = (cost.reads - saved * small, small - saved * small);
            let grouped = ListCost { reads, small_reads, ..cost };
            let device = device(latency, 5.0, 1 << power, 1e7);
            let execution = Execution { issue_ns, ..run(16) };
            let predicted = predict(&cost, &device, &execution);
            prop_assert!(predict(&grouped, &device, &execution).qps >= predicted.qps * (1.0 - 1e-9));
            prop_assert!(cost.moved_bytes(1 << power) >= cost.bytes * (1.0 - 1e-12));
            let cached = predict(&cost.cached(cached), &device, &execution);
            prop_assert!(cached.qps >= predicted.qps * (1.0 - 1e-9));
        }
    }
}
