//! The demand of a query on processor and device, for any index, and the speed that follows
//! (second-tier-memory, sections 3 and 5). While queries wait, others compute, so the slower of the two
//! limits the speed.

use super::device::Device;
use bathyal_tier::TierProfile;
use serde::{Deserialize, Serialize};

/// The demand of one query: means over a set of queries.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Demand {
    /// Dependent rounds of reads.
    pub rounds: f64,
    /// Reads.
    pub reads: f64,
    /// Bytes that the device moves: whole granules.
    pub moved_bytes: f64,
    /// Processor time in nanoseconds of one thread, measured with reads that take no time.
    pub compute_ns: f64,
}

/// The execution of queries on threads.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Execution {
    /// Threads that search.
    pub threads: u32,
    /// Queries interleaved on each thread; 1 is the synchronous search, which waits for every hop.
    pub in_flight: u32,
    /// Processor time of submitting one read, in nanoseconds; 0 where reads are loads.
    pub issue_ns: f64,
}

/// The limit of a search's speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// The processor: the device keeps up.
    Compute,
    /// The bytes a second of the device (equations 1 and 3).
    Bandwidth,
    /// The reads a second of the device (equation 2).
    Iops,
    /// The device's latency: too few queries in flight to hide it.
    Latency,
}

impl Bound {
    /// Returns its name: "compute", "bandwidth", "iops" or "latency".
    pub fn name(self) -> &'static str {
        match self {
            Bound::Compute => "compute",
            Bound::Bandwidth => "bandwidth",
            Bound::Iops => "iops",
            Bound::Latency => "latency",
        }
    }
}

/// The prediction for a search, in queries per second; infinite without a limit (0 in a profile means "not
/// measured").
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Prediction {
    /// The least of all bounds.
    pub qps: f64,
    /// Mean nanoseconds from the start of a query to its answer, by Little's law.
    pub latency_ns: f64,
    /// The limit that determines `qps`.
    pub bound: Bound,
    /// Queries per second of the processor alone, without any waiting.
    pub compute_qps: f64,
    /// Equations 1 and 3: bandwidth / bytes of a query, in whole granules.
    pub bandwidth_qps: f64,
    /// Equation 2: IOPS / reads.
    pub iops_qps: f64,
    /// Little's law: queries in flight / time of a lone query.
    pub latency_qps: f64,
}

/// Returns `amount / demand`, or infinity if there is no demand or the amount is not known.
pub(crate) fn rate(amount: f64, demand: f64) -> f64 {
    if amount > 0.0 && demand > 0.0 { amount / demand } else { f64::INFINITY }
}

/// Returns the nanoseconds of `amount` at the rate `per_second`, or 0 if the rate is not known.
pub(crate) fn nanoseconds(amount: f64, per_second: f64) -> f64 {
    if per_second > 0.0 { amount.max(0.0) * 1e9 / per_second } else { 0.0 }
}

/// Returns the mean number of bytes that a device moves for a read of `bytes` bytes that begins at a random
/// multiple of `step` bytes: `1 + (bytes - s) / granularity` granules, where `s` is the greatest common
/// divisor of step and granularity.
pub fn moved_bytes(bytes: f64, step: u32, granularity: u32) -> f64 {
    let granularity = granularity.max(1);
    let (mut start, mut rest) = (granularity, step.max(1));
    while rest > 0 {
        (start, rest) = (rest, start % rest);
    }
    f64::from(granularity) + (bytes - f64::from(start)).max(0.0)
}

impl Demand {
    /// Predicts a search by queries with this demand on `device`.
    pub fn on(&self, device: &TierProfile, execution: &Execution) -> Prediction {
        let threads = f64::from(execution.threads.max(1));
        let width = f64::from(execution.in_flight.max(1));
        let processor_ns = self.compute_ns.max(0.0) + self.reads.max(0.0) * execution.issue_ns.max(0.0);
        let alone_ns = processor_ns + self.waiting_ns(device);
        let compute_qps = rate(threads * 1e9, processor_ns);
        let (bandwidth_qps, iops_qps) = self.device_qps(device);
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

    /// Returns the price by which efforts are compared: the nanoseconds of processor and device for a query,
    /// one after the other.
    ///
    /// It is a sum, not the slower of the two as in [`Demand::on`]: there, work outside the bottleneck is
    /// free, so that on a slow disk any number of scans would be spent to save a read. It does not depend on
    /// threads or queries in flight, so that the answers to a recall do not, either. It never falls as the
    /// device gets worse.
    pub fn price_ns(&self, device: &Device) -> f64 {
        self.compute_ns.max(0.0)
            + self.reads.max(0.0) * (device.issue_ns + device.read_ns)
            + self.moved_bytes.max(0.0) * device.byte_ns
            + self.rounds.max(0.0) * device.latency_ns
    }

    /// Returns the nanoseconds from start to answer of a query without others on processor and device: its
    /// computation, a latency for each round, and the longer of the transfer of its bytes and the service of
    /// its requests (equation 1 of cloud-native-vector-search).
    pub fn alone_ns(&self, device: &Device) -> f64 {
        let serving = (self.reads.max(0.0) * device.read_ns).max(self.moved_bytes.max(0.0) * device.byte_ns);
        let computing = self.compute_ns.max(0.0) + self.reads.max(0.0) * device.issue_ns;
        computing + self.rounds.max(0.0) * device.latency_ns + serving
    }

    /// Returns the queries to interleave on a thread so that their work hides the latency (Little's law):
    /// while one query waits, each of the others keeps the processor busy for a round, or the device,
    /// whichever takes longer.
    pub fn in_flight_to_hide(&self, device: &Device) -> usize {
        let rounds = self.rounds.max(1.0);
        let computing = (self.compute_ns.max(0.0) + self.reads.max(0.0) * device.issue_ns) / rounds;
        let serving =
            (self.reads.max(0.0) * device.read_ns).max(self.moved_bytes.max(0.0) * device.byte_ns) / rounds;
        // The limit is beyond any useful number, and is converted without loss.
        ((device.latency_ns / computing.max(serving).max(1.0)).ceil().min(1e6) + 1.0) as usize
    }

    /// Returns the queries a second by the bandwidth of a device, and by its reads a second. If its rate for
    /// reads of this size was measured and is lower than both, the nearer one becomes that rate.
    fn device_qps(&self, device: &TierProfile) -> (f64, f64) {
        let (bandwidth, iops) =
            (rate(device.bandwidth_bytes_per_s, self.moved_bytes), rate(device.iops, self.reads));
        let measured = self.measured_rate(device).map_or(f64::INFINITY, |reads| rate(reads, self.reads));
        match bandwidth < iops {
            true => (bandwidth.min(measured), iops),
            false => (bandwidth, iops.min(measured)),
        }
    }

    /// Returns the measured reads a second of a device for reads of this size.
    fn measured_rate(&self, device: &TierProfile) -> Option<f64> {
        let some = self.reads > 0.0 && self.moved_bytes > 0.0;
        device.reads_per_second(self.moved_bytes / self.reads).filter(|_| some)
    }

    /// Returns the nanoseconds that a lone query waits for the device: a latency for each round, and the
    /// transfer of its bytes.
    fn waiting_ns(&self, device: &TierProfile) -> f64 {
        let bytes_ns = nanoseconds(self.moved_bytes, device.bandwidth_bytes_per_s);
        let reads_ns = self.measured_rate(device).map_or(0.0, |reads| nanoseconds(self.reads, reads));
        self.rounds.max(0.0) * device.latency_ns as f64 + bytes_ns.max(reads_ns)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use bathyal_tier::ReadRate;
    use proptest::prelude::*;

    /// Returns the profile of an addressable device with these numbers.
    pub(crate) fn device(latency_ns: u64, gigabytes: f64, granularity: u32, iops: f64) -> TierProfile {
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
            issue_ns: 0,
            rates: Vec::new(),
        }
    }

    #[test]
    fn queries_in_flight_hide_the_latency() {
        let graph = Demand { rounds: 20.0, reads: 80.0, moved_bytes: 80.0 * 256.0, compute_ns: 56_800.0 };
        // A round computes for 2.84 us and 4 reads of 40 ns: 3 us.
        for (latency_ns, expected) in [(1, 2), (300, 2), (6_001, 4), (75_000, 26), (u64::MAX, 1_000_001)] {
            let device = Device::of(&device(latency_ns, 0.0, 64, 0.0));
            assert_eq!(graph.in_flight_to_hide(&device), expected, "{latency_ns}");
        }
        // A device that serves 4 reads in 40 us needs no more than 3 queries to stay busy.
        let busy = Device::of(&device(75_000, 0.0, 64, 100_000.0));
        assert_eq!(graph.in_flight_to_hide(&busy), 3);
        let nothing = Demand { rounds: 0.0, reads: 0.0, moved_bytes: 0.0, compute_ns: 0.0 };
        assert_eq!(nothing.in_flight_to_hide(&Device::of(&device(10, 0.0, 64, 0.0))), 11);
    }

    #[test]
    fn reads_of_a_medium_size_are_as_slow_as_they_were_measured() {
        let plain = TierProfile { addressable: false, ..device(50_000, 4.0, 512, 100_000.0) };
        let rates = [(512, 100_000.0), (16_384, 40_000.0), (65_536, 20_000.0), (1 << 20, 3_800.0)];
        let rates = rates.map(|(bytes, reads_per_s)| ReadRate { bytes, reads_per_s });
        let measured = TierProfile { rates: rates.to_vec(), ..plain.clone() };
        let run = Execution { threads: 1, in_flight: 64, issue_ns: 0.0 };
        let demand =
            |bytes: f64| Demand { rounds: 1.0, reads: 80.0, moved_bytes: 80.0 * bytes, compute_ns: 1_000.0 };
        let on = |bytes: f64, device: &TierProfile| demand(bytes).on(device, &run);
        // 80 reads of 64 KB: 1,250 queries by IOPS, 763 by bandwidth, 250 as measured.
        let lists = on(65_536.0, &measured);
        assert_eq!((lists.qps.round(), lists.bound), (250.0, Bound::Bandwidth));
        assert!(on(65_536.0, &plain).qps > 700.0);
        // Between two sizes, the rate is between theirs.
        let between = on(32_768.0, &measured);
        assert_eq!(
            (between.qps.round(), between.bound),
            ((800_000_000.0_f64.sqrt() / 80.0).round(), Bound::Iops)
        );
        // The smallest reads and the largest are as fast as ever.
        assert_eq!(on(512.0, &measured).qps, on(512.0, &plain).qps);
        assert_eq!(on(4_194_304.0, &measured).qps.round(), (3_800.0_f64 / 4.0 / 80.0).round());
        // A lone query waits longer, too.
        let lone = Execution { in_flight: 1, ..run };
        let waits = |device: &TierProfile| demand(65_536.0).on(device, &lone).latency_ns;
        assert!(waits(&measured) > waits(&plain) + 2e6, "{} {}", waits(&measured), waits(&plain));
    }

    #[test]
    fn moved_bytes_are_the_mean_over_all_offsets() {
        for (bytes, step, granularity) in
            [(128, 128, 64), (128, 128, 256), (100, 100, 64), (5000, 4, 4096), (96, 96, 256)]
        {
            let common = (1..=step).rev().find(|n| step % n == 0 && granularity % n == 0).unwrap();
            let offsets: Vec<u32> = (0..granularity).step_by(common as usize).collect();
            let granules: u32 = offsets.iter().map(|offset| (offset + bytes).div_ceil(granularity)).sum();
            let mean = f64::from(granules) / offsets.len() as f64 * f64::from(granularity);
            let moved = moved_bytes(f64::from(bytes), step, granularity);
            // The formula is exact for whole steps, as all of these are.
            assert!((moved - mean).abs() < 1e-9, "{bytes} {step} {granularity}: {moved} {mean}");
        }
        assert_eq!(moved_bytes(1.0, 0, 0), 1.0);
        assert_eq!(moved_bytes(10.0, 64, 64), 64.0);
    }

    proptest! {
        // Latencies begin at 1: 0 means that the latency is not known, and that of memory is assumed.
        #[test]
        fn a_worse_device_is_never_faster_and_more_in_flight_never_slower(
            rounds in 1.0..500.0_f64, each in 1.0..16.0_f64,
            bytes in 64.0..5000.0_f64, compute_ns in 1e3..1e6_f64,
            latency in 1..100_000_u64, gigabytes in 0.1..100.0_f64, iops in 1e4..1e8_f64,
            width in 1..256_u32, threads in 1..64_u32, issue_ns in 0.0..1000.0_f64,
        ) {
            let reads = rounds * each;
            let demand = Demand { rounds, reads, moved_bytes: reads * bytes, compute_ns };
            let execution = Execution { threads, in_flight: width, issue_ns };
            let base = device(latency, gigabytes, 64, iops);
            let predicted = demand.on(&base, &execution);
            let least = predicted.compute_qps.min(predicted.bandwidth_qps);
            let least = least.min(predicted.iops_qps).min(predicted.latency_qps);
            prop_assert_eq!(predicted.qps, least);
            let worse = [
                device(latency * 2 + 1, gigabytes, 64, iops),
                device(latency, gigabytes / 2.0, 64, iops),
                device(latency, gigabytes, 64, iops / 2.0),
            ];
            for worse in worse {
                let (worse_device, base_device) = (Device::of(&worse), Device::of(&base));
                prop_assert!(demand.price_ns(&worse_device) >= demand.price_ns(&base_device));
                prop_assert!(demand.alone_ns(&worse_device) >= demand.alone_ns(&base_device));
                prop_assert!(demand.alone_ns(&base_device) <= demand.price_ns(&base_device));
                prop_assert!(demand.on(&worse, &execution).qps <= predicted.qps * (1.0 + 1e-9));
            }
            let more = Execution { in_flight: width + 1, ..execution };
            prop_assert!(demand.on(&base, &more).qps >= predicted.qps);
            let more = Execution { threads: threads + 1, ..execution };
            prop_assert!(demand.on(&base, &more).qps >= predicted.qps);
            let dearer = Execution { issue_ns: issue_ns + 1.0, ..execution };
            prop_assert!(demand.on(&base, &dearer).qps <= predicted.qps);
        }

        #[test]
        fn larger_granules_and_smaller_steps_never_move_less(
            bytes in 1.0..1e6_f64, step in 1..10_000_u32, power in 0..13_u32,
        ) {
            let granularity = 1 << power;
            let moved = moved_bytes(bytes, step, granularity);
            prop_assert!(moved >= bytes);
            prop_assert!(moved_bytes(bytes, step, 2 * granularity) >= moved);
            prop_assert!(moved_bytes(bytes, 1, granularity) >= moved);
            prop_assert!(moved <= bytes + 2.0 * f64::from(granularity));
        }
    }
}
