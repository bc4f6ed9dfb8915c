//! What a device takes for a read, from its profile; and what is assumed of one that nobody has measured.

use bathyal_tier::TierProfile;

/// Nanoseconds of a processor for a read in place that the engine prefetches, suspends for and resumes after: searches of
/// 10^6 SIFT descriptors in memory that read 100 to 400 vectors alone.
const LOAD_ISSUE_NS: f64 = 40.0;
/// Nanoseconds of a processor to hand a read to a queue of the system and to take it back, where the profile does not say.
const QUEUE_ISSUE_NS: f64 = 500.0;
/// Nanoseconds that loads from memory nobody has measured take to arrive.
const MEMORY_LATENCY_NS: f64 = 100.0;
/// Bytes a nanosecond that loads of pieces from all over memory bring to one thread, where the profile does not say.
const MEMORY_BYTES_A_NS: f64 = 25.6;
/// A disk that nobody has measured: an NVMe drive of the middle, as clouds attach it. Nanoseconds to the first byte,
const DISK_LATENCY_NS: f64 = 80_000.0;
/// nanoseconds between two reads when it is busy: with these a page costs what the codes of 53 groups do, by which the
/// efforts of cluster indexes on disks were found,
const DISK_READ_NS: f64 = 12_000.0;
/// and bytes a nanosecond.
const DISK_BYTES_A_NS: f64 = 2.5;

/// The memory of another machine that nobody has measured: of a network of 25 Gbit/s, by RDMA or by TCP. Nanoseconds to the first
/// byte,
const REMOTE_LATENCY_NS: f64 = 10_000.0;
/// nanoseconds between two reads when it is busy,
const REMOTE_READ_NS: f64 = 1_000.0;
/// and bytes a nanosecond.
const REMOTE_BYTES_A_NS: f64 = 3.0;
/// A device that moves no more at a time is memory.
pub(crate) const LINE_BYTES: u32 = 64;

/// What reads from a device take, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Device {
    /// From a read to its first byte.
    pub latency_ns: f64,
    /// Of the processor, for a read.
    pub issue_ns: f64,
    /// Of the device, for a read, when it is busy.
    pub read_ns: f64,
    /// Of the device, for a byte, when it is busy.
    pub byte_ns: f64,
}

impl Device {
    /// What `profile` says; what it leaves open (0) is assumed: of memory where bytes are read in place, of another machine's where
    /// lines of it are moved, of a disk else.
    pub fn of(profile: &TierProfile) -> Device {
        let known = |value: f64, memory: f64, remote: f64, disk: f64| match value {
            value if value > 0.0 => value,
            _ if profile.addressable => memory,
            _ if profile.granularity <= LINE_BYTES => remote,
            _ => disk,
        };
        let each = |rate: f64| if rate > 0.0 { 1e9 / rate } else { 0.0 };
        Device {
            latency_ns: known(
                profile.latency_ns as f64,
                MEMORY_LATENCY_NS,
                REMOTE_LATENCY_NS,
                DISK_LATENCY_NS,
            ),
            issue_ns: known(profile.issue_ns as f64, LOAD_ISSUE_NS, QUEUE_ISSUE_NS, QUEUE_ISSUE_NS),
            // Memory takes as many loads as there are bytes to be had.
            read_ns: known(each(profile.iops), 0.0, REMOTE_READ_NS, DISK_READ_NS),
            byte_ns: known(
                each(profile.bandwidth_bytes_per_s),
                1.0 / MEMORY_BYTES_A_NS,
                1.0 / REMOTE_BYTES_A_NS,
                1.0 / DISK_BYTES_A_NS,
            ),
        }
    }

    /// Bytes whose transfer takes as long as a read more: as many may be read in vain for a read less.
    pub fn bytes_a_read(&self) -> f64 {
        (self.issue_ns + self.read_ns) / self.byte_ns
    }
}

#[cfg(test)]
mod tests {
    use super::super::demand::tests::device;
    use super::*;

    #[test]
    fn what_is_measured_is_taken_and_what_is_not_is_assumed() {
        let measured = TierProfile { issue_ns: 150, ..device(2_800, 25.0, 64, 1e8) };
        let told = Device::of(&measured);
        assert_eq!((told.latency_ns, told.issue_ns, told.read_ns, told.byte_ns), (2800.0, 150.0, 10.0, 0.04));
        assert_eq!(told.bytes_a_read(), 4000.0);
        let memory = Device::of(&device(0, 0.0, 64, 0.0));
        assert_eq!((memory.latency_ns, memory.bytes_a_read()), (MEMORY_LATENCY_NS, 1024.0));
        let disk = Device::of(&TierProfile { addressable: false, ..device(0, 0.0, 512, 0.0) });
        assert_eq!((disk.read_ns + disk.issue_ns, disk.bytes_a_read()), (12_500.0, 31_250.0));
        let remote = Device::of(&TierProfile { addressable: false, ..device(0, 0.0, 64, 0.0) });
        assert_eq!((remote.read_ns + remote.issue_ns, remote.bytes_a_read()), (1_500.0, 4_500.0));
    }
}
