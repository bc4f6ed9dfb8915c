//! The requirements of a query time on a storage device: the models of e2lsh-on-storage, section 4, as pure
//! functions.
//!
//! A query computes for some time and reads a number of blocks. Each read costs the processor `request_ns`
//! and the device `read_ns`. With synchronous reads, `read_ns` is the latency of a read; with asynchronous
//! ones, it is the reciprocal of the reads per second of the device at the given queue depth. Times are
//! nanoseconds per query, rates are per second.

/// Nanoseconds of a second.
const SECOND_NS: f64 = 1e9;

/// The work of a query, measured in memory, so that it does not depend on the device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct QueryWork {
    /// Processor time for hashes and distances (T_compute).
    pub compute_ns: f64,
    /// Reads (N_I/O).
    pub reads: f64,
}

/// The cost of a read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReadCost {
    /// Processor time for issuing the read (T_request).
    pub request_ns: f64,
    /// The device's time for the read (T_read).
    pub read_ns: f64,
}

/// The requirements of a query time on a device and its interface.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Requirement {
    /// The fewest random reads per second of the device (1 / T_read).
    pub reads_per_second: f64,
    /// The fewest reads per second that a processor core can issue (1 / T_request); infinite if computing
    /// alone takes as long as the query may take.
    pub requests_per_second: f64,
}

impl QueryWork {
    /// Returns the query time with synchronous reads, one after the other: equation 6.
    pub fn synchronous_ns(&self, cost: ReadCost) -> f64 {
        self.compute_ns + self.reads * (cost.request_ns + cost.read_ns)
    }

    /// Returns the mean query time with asynchronous reads of many interleaved queries, whose computing and
    /// reading overlap: equation 7.
    pub fn asynchronous_ns(&self, cost: ReadCost) -> f64 {
        let processor = self.compute_ns + self.reads * cost.request_ns;
        processor.max(self.reads * cost.read_ns)
    }

    /// Returns the longest time of a synchronous read, request and read together, for a query time: equation
    /// 8. Negative if computing alone takes longer.
    pub fn longest_synchronous_read_ns(&self, target_ns: f64) -> f64 {
        (target_ns - self.compute_ns) / self.reads
    }

    /// Returns the random reads per second, one at a time, for a query time with synchronous reads whose
    /// requests cost nothing: equation 9. Infinite if no device is fast enough.
    pub fn synchronous_reads_per_second(&self, target_ns: f64) -> f64 {
        rate(self.reads, target_ns - self.compute_ns)
    }

    /// Returns the requirements of a query time with asynchronous reads: equations 10 and 11; with the time
    /// of SRS in memory, 12 and 13; with that of E2LSH in memory, 14 and 15.
    pub fn requirement(&self, target_ns: f64) -> Requirement {
        Requirement {
            reads_per_second: rate(self.reads, target_ns),
            requests_per_second: rate(self.reads, target_ns - self.compute_ns),
        }
    }

    /// Returns the requests per second for the speed of the same search in memory. That search takes
    /// `in_memory_ns`, and spends the share `stalled` of it on waiting for memory: equation 16, in which the
    /// share is a tenth.
    pub fn requests_per_second_as_in_memory(&self, in_memory_ns: f64, stalled: f64) -> f64 {
        rate(self.reads, in_memory_ns * stalled)
    }
}

/// Returns the rate of `count` in `time_ns`, per second; infinite if the time is 0 or negative.
fn rate(count: f64, time_ns: f64) -> f64 {
    if count <= 0.0 {
        return 0.0;
    }
    if time_ns > 0.0 { count * SECOND_NS / time_ns } else { f64::INFINITY }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SIFT: 347.5 reads a query (table 4).
    const SIFT: QueryWork = QueryWork { compute_ns: 100_000.0, reads: 347.5 };

    #[test]
    fn query_times_follow_equations_6_and_7() {
        // Table 3: io_uring takes about a microsecond per request. A flash drive takes some 100 us for one
        // read, and serves a million reads per second in parallel.
        let slow = ReadCost { request_ns: 1000.0, read_ns: 100_000.0 };
        let fast = ReadCost { request_ns: 1000.0, read_ns: 1000.0 };
        assert_eq!(SIFT.synchronous_ns(slow), 100_000.0 + 347.5 * 101_000.0);
        assert_eq!(SIFT.asynchronous_ns(slow), 34_750_000.0, "bound by the device");
        assert_eq!(SIFT.asynchronous_ns(fast), 447_500.0, "bound by the processor");
        // Without reads, the time is that of computing.
        let none = QueryWork { reads: 0.0, ..SIFT };
        assert_eq!((none.synchronous_ns(slow), none.asynchronous_ns(slow)), (1e5, 1e5));
    }

    #[test]
    fn a_device_that_meets_the_requirements_reaches_the_target() {
        let target = 2e6;
        let longest = SIFT.longest_synchronous_read_ns(target);
        let cost = ReadCost { request_ns: 0.0, read_ns: longest };
        assert!((SIFT.synchronous_ns(cost) - target).abs() < 1e-3);
        let needed = SIFT.requirement(target);
        let cost =
            ReadCost { request_ns: 1e9 / needed.requests_per_second, read_ns: 1e9 / needed.reads_per_second };
        assert!((SIFT.asynchronous_ns(cost) - target).abs() < 1e-3);
        // A device that is 1% slower misses it.
        for slower in [
            ReadCost { request_ns: cost.request_ns * 1.01, ..cost },
            ReadCost { read_ns: cost.read_ns * 1.01, ..cost },
        ] {
            assert!(SIFT.asynchronous_ns(slower) > target);
        }
        // The asynchronous requirement is the weaker one (section 4.1).
        assert!(needed.reads_per_second < SIFT.synchronous_reads_per_second(target));
        assert!((SIFT.synchronous_reads_per_second(target) - 1e9 / longest).abs() < 1e-3);
    }

    #[test]
    fn the_observations_of_the_paper_follow() {
        // Observation 3: a few hundred thousand reads per second for the speed of SRS, which is an order of
        // magnitude slower than E2LSH in memory (figure 2): a millisecond or two for 347.5 reads.
        let srs = SIFT.requirement(1.5e6);
        assert!((1e5..5e5).contains(&srs.reads_per_second), "{srs:?}");
        // "Its right-hand side is larger than equation 13, but only so by a small margin."
        assert!(srs.requests_per_second < 1.1 * srs.reads_per_second, "{srs:?}");
        // Observation 4: a few million reads per second for the speed in memory, and ten times as many
        // requests, if a tenth of the time is spent on cache misses (equation 16).
        let in_memory = SIFT.requirement(SIFT.compute_ns).reads_per_second;
        assert!((1e6..5e6).contains(&in_memory), "{in_memory}");
        let requests = SIFT.requests_per_second_as_in_memory(SIFT.compute_ns, 0.1);
        assert!((requests / in_memory - 10.0).abs() < 1e-9);
        // This equals equation 14 with T_compute = 0.9 T_E2LSH.
        let computing = QueryWork { compute_ns: 0.9 * SIFT.compute_ns, ..SIFT };
        assert!((computing.requirement(SIFT.compute_ns).requests_per_second / requests - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_requirements_of_an_impossible_target_are_infinite() {
        for target in [0.0, 50_000.0, 100_000.0] {
            assert_eq!(SIFT.requirement(target).requests_per_second, f64::INFINITY, "{target}");
            assert_eq!(SIFT.synchronous_reads_per_second(target), f64::INFINITY);
            assert!(SIFT.longest_synchronous_read_ns(target) <= 0.0);
        }
        assert_eq!(SIFT.requirement(0.0).reads_per_second, f64::INFINITY);
        let none = QueryWork { reads: 0.0, ..SIFT };
        let needed = none.requirement(1e6);
        assert_eq!((needed.reads_per_second, needed.requests_per_second), (0.0, 0.0));
    }
}
