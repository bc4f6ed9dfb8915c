//! The times of a device for a read, from its profile, and the assumed times of a device that was not
//! measured.

use super::processor::Processor;
use bathyal_tier::TierProfile;

/// Assumed nanoseconds of a processor for a read of another machine's memory, if the profile has no value.
const REMOTE_ISSUE_NS: f64 = 500.0;
/// Assumed nanoseconds of loads from memory.
const MEMORY_LATENCY_NS: f64 = 100.0;
/// Assumed bytes per nanosecond of one thread for loads from random places in memory.
const MEMORY_BYTES_A_NS: f64 = 25.6;
/// Assumed nanoseconds to the first byte of a disk: an average NVMe drive, as clouds attach it.
const DISK_LATENCY_NS: f64 = 80_000.0;
/// Assumed nanoseconds between two reads of such a disk when it is busy. With them, a page costs as much as
/// the codes of 53 groups, a ratio that was used to find the efforts of cluster indexes on disks.
const DISK_READ_NS: f64 = 12_000.0;
/// Assumed bytes per nanosecond of such a disk.
const DISK_BYTES_A_NS: f64 = 2.5;

/// Assumed nanoseconds to the first byte of another machine's memory: with a network of 25 Gbit/s, by RDMA or
/// by TCP.
const REMOTE_LATENCY_NS: f64 = 10_000.0;
/// Assumed nanoseconds between two reads of such memory when it is busy.
const REMOTE_READ_NS: f64 = 1_000.0;
/// Assumed bytes per nanosecond of such memory.
const REMOTE_BYTES_A_NS: f64 = 3.0;
/// A device with at most this granularity is memory.
pub(crate) const LINE_BYTES: u32 = 64;

/// The times of reads from a device, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Device {
    /// From a read to its first byte.
    pub latency_ns: f64,
    /// Processor time of a read.
    pub issue_ns: f64,
    /// Time of a read on a busy device.
    pub read_ns: f64,
    /// Time of a byte on a busy device.
    pub byte_ns: f64,
}

impl Device {
    /// Returns the times of `profile` with the processor of reference, for choices that should be the same on
    /// all machines.
    pub fn of(profile: &TierProfile) -> Device {
        Device::on(profile, &Processor::REFERENCE)
    }

    /// Returns the times of `profile` on this processor. For values that it lacks (0), those of memory are
    /// assumed if the tier is addressable, those of another machine's memory if the granularity is at most a
    /// cache line, and otherwise those of a disk.
    pub fn on(profile: &TierProfile, processor: &Processor) -> Device {
        let or_assumed = |value: f64, memory: f64, remote: f64, disk: f64| match value {
            value if value > 0.0 => value,
            _ if profile.addressable => memory,
            _ if profile.granularity <= LINE_BYTES => remote,
            _ => disk,
        };
        let ns_per_unit = |rate: f64| if rate > 0.0 { 1e9 / rate } else { 0.0 };
        Device {
            latency_ns: or_assumed(
                profile.latency_ns as f64,
                MEMORY_LATENCY_NS,
                REMOTE_LATENCY_NS,
                DISK_LATENCY_NS,
            ),
            issue_ns: or_assumed(
                profile.issue_ns as f64,
                processor.suspend_ns,
                REMOTE_ISSUE_NS,
                processor.submit_ns,
            ),
            // The number of loads from memory is limited only by its bandwidth.
            read_ns: or_assumed(ns_per_unit(profile.iops), 0.0, REMOTE_READ_NS, DISK_READ_NS),
            byte_ns: or_assumed(
                ns_per_unit(profile.bandwidth_bytes_per_s),
                1.0 / MEMORY_BYTES_A_NS,
                1.0 / REMOTE_BYTES_A_NS,
                1.0 / DISK_BYTES_A_NS,
            ),
        }
    }

    /// Returns the bytes whose transfer takes as long as one more read. To save a read, up to so many
    /// unneeded bytes may be read.
    pub fn bytes_a_read(&self) -> f64 {
        (self.issue_ns + self.read_ns) / self.byte_ns
    }
}

#[cfg(test)]
mod tests {
    use super::super::demand::tests::device;
    use super::*;

    #[test]
    fn measured_values_are_used_and_missing_ones_are_assumed() {
        let measured = TierProfile { issue_ns: 150, ..device(2_800, 25.0, 64, 1e8) };
        let times = Device::of(&measured);
        let expected = Device { latency_ns: 2800.0, issue_ns: 150.0, read_ns: 10.0, byte_ns: 0.04 };
        assert_eq!((times, times.bytes_a_read()), (expected, 4000.0));
        let memory = Device::of(&device(0, 0.0, 64, 0.0));
        assert_eq!((memory.latency_ns, memory.bytes_a_read()), (MEMORY_LATENCY_NS, 1024.0));
        let disk = Device::of(&TierProfile { addressable: false, ..device(0, 0.0, 512, 0.0) });
        assert_eq!((disk.read_ns + disk.issue_ns, disk.bytes_a_read()), (12_500.0, 31_250.0));
        let slow = Processor { submit_ns: 3_400.0, suspend_ns: 80.0, ..Processor::REFERENCE };
        let unmeasured = TierProfile { addressable: false, ..device(0, 0.0, 512, 0.0) };
        assert_eq!(Device::on(&unmeasured, &slow).issue_ns, 3_400.0);
        assert_eq!(Device::on(&device(0, 0.0, 64, 0.0), &slow).issue_ns, 80.0);
        assert_eq!(Device::on(&measured, &slow), times, "measured values do not depend on the processor");
        let remote = Device::of(&TierProfile { addressable: false, ..device(0, 0.0, 64, 0.0) });
        assert_eq!((remote.read_ns + remote.issue_ns, remote.bytes_a_read()), (1_500.0, 4_500.0));
    }
}
