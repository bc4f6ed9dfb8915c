//! The cost of a query of a cluster index: it scans groups of codes in memory, and reads the best candidates
//! in one round.

use crate::cost::Machine;
use crate::cost::demand::{Demand, moved_bytes};
use crate::cost::work::{Estimate, Work};
use crate::family::pages::OWN_PAGES;

/// Random accesses to memory for finding a group, approximately: to the code of its centroid, and to rank it.
const ACCESSES_PER_GROUP: f64 = 2.0;

/// The properties of a cluster index that determine the cost of a query.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ClusterShape {
    /// Bytes of a code in memory.
    pub(super) code_bytes: u32,
    /// Bytes of the codes of a group in memory.
    pub(super) group_codes: f64,
    /// Bytes of the codes of a group on the tier.
    pub(super) stored_codes: f64,
    pub(super) vector_bytes: u32,
    pub(super) page_bytes: u32,
    /// True if candidates are read alone, without the other vectors of their pages.
    pub(super) lone: bool,
    /// Share of the groups whose codes are not in memory.
    pub(super) absent_share: f64,
}

impl ClusterShape {
    /// Returns the estimate of a query that scans `probes` groups and reads `candidates` candidates.
    pub(super) fn estimate(&self, probes: f64, candidates: f64, machine: &Machine<'_>) -> Estimate {
        let (processor, granularity) = (machine.processor, machine.profile.granularity);
        let (reads, bytes) = if self.lone {
            (candidates, self.vector_bytes)
        } else {
            (OWN_PAGES * candidates, self.page_bytes)
        };
        let each = moved_bytes(f64::from(bytes), bytes, granularity);
        let absent = probes * self.absent_share.clamp(0.0, 1.0);
        let codes = if absent > 0.0 { moved_bytes(self.stored_codes, 1, granularity) } else { 0.0 };
        let finding = ACCESSES_PER_GROUP * processor.access_ns;
        let demand = Demand {
            rounds: if absent > 0.0 { 2.0 } else { 1.0 },
            reads: reads + absent,
            moved_bytes: reads * each + absent * codes,
            compute_ns: 0.0,
        };
        let work = Work {
            navigate_ns: probes * finding,
            scan_ns: probes * processor.resident_codes_ns(self.group_codes),
            rerank_ns: reads * f64::from(bytes) * processor.vector_byte_ns,
            code_distances: probes * self.group_codes / f64::from(self.code_bytes.max(1)),
            full_distances: reads * f64::from(bytes / self.vector_bytes.max(1)),
        };
        Estimate::of(demand, work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::demand::tests::device;
    use crate::cost::processor::Processor;
    use bathyal_tier::TierProfile;

    const SIFT: ClusterShape = ClusterShape {
        code_bytes: 32,
        group_codes: 3072.0,
        stored_codes: 3072.0,
        vector_bytes: 128,
        page_bytes: 4096,
        lone: true,
        absent_share: 0.0,
    };

    /// Returns the cost of one more group and of one more candidate, in nanoseconds.
    fn prices(shape: ClusterShape, profile: &TierProfile) -> (f64, f64) {
        let machine = Machine { profile, processor: &Processor::REFERENCE };
        let price =
            |probes, candidates| shape.estimate(probes, candidates, &machine).price_ns(&machine.device());
        (price(101.0, 50.0) - price(100.0, 50.0), price(100.0, 51.0) - price(100.0, 50.0))
    }

    #[test]
    fn the_cost_of_groups_and_candidates_matches_measurements() {
        let (memory, file) = (device(0, 0.0, 64, 0.0), device(0, 0.0, 4096, 0.0));
        let (group, vector) = prices(SIFT, &memory);
        assert!((group - 218.24).abs() < 1e-6 && (50.0..55.0).contains(&vector), "{group} {vector}");
        let pages = ClusterShape { lone: false, ..SIFT };
        let (_, page) = prices(pages, &memory);
        assert!((250.0..350.0).contains(&page), "{page}");
        let (_, page) = prices(pages, &TierProfile { addressable: false, ..file.clone() });
        assert!((11_000.0..12_000.0).contains(&page), "{page}");
        // A measured limit of reads per second counts.
        let (_, slow) = prices(pages, &TierProfile { addressable: false, iops: 3_000.0, ..file });
        assert!(slow > 250_000.0, "{slow}");
    }

    #[test]
    fn codes_that_are_not_in_memory_add_a_round_of_reads() {
        let profile = device(1_000, 1.0, 64, 1e6);
        let machine = Machine { profile: &profile, processor: &Processor::REFERENCE };
        let all = SIFT.estimate(10.0, 50.0, &machine).demand;
        let half = ClusterShape { absent_share: 0.5, ..SIFT }.estimate(10.0, 50.0, &machine).demand;
        assert_eq!((all.rounds, all.reads, half.rounds, half.reads), (1.0, 50.0, 2.0, 55.0));
        assert_eq!(half.moved_bytes - all.moved_bytes, 5.0 * (3072.0 + 63.0));
    }
}
