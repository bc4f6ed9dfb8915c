//! The demand of a query of posting lists, from the mean properties of the lists.

use crate::cost::Machine;
use crate::cost::counters::ListCost;
use crate::cost::demand::moved_bytes;
use crate::cost::work::{Estimate, Work};

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
    /// Returns the estimate of a query that finds `probes` lists, scans `lists` of them and, for lists of
    /// codes, compares `candidates` vectors.
    pub(super) fn estimate(
        &self,
        probes: f64,
        lists: f64,
        candidates: f64,
        machine: &Machine<'_>,
    ) -> Estimate {
        let elsewhere = match self.code_bytes {
            Some(_) => candidates,
            None => lists * self.list_vectors * self.addressed,
        };
        let small_reads = elsewhere * OWN_READS;
        let row = f64::from(self.row_bytes);
        let list_bytes = lists * moved_bytes(self.list_bytes, 4, self.alignment);
        let vectors = if self.code_bytes.is_some() { candidates } else { lists * self.list_vectors };
        let cost = ListCost {
            hops: if small_reads > 0.0 { 2.0 } else { 1.0 },
            reads: lists + small_reads,
            small_reads,
            bytes: list_bytes + small_reads * moved_bytes(row, self.row_bytes, self.alignment),
            vector_bytes: self.row_bytes,
            alignment: self.alignment,
            compute_ns: 0.0,
        };
        let processor = machine.processor;
        let codes = self.code_bytes.map_or(0.0, |bytes| lists * self.list_vectors * bytes);
        let accesses = |count: f64| count * processor.access_ns;
        let work = Work {
            navigate_ns: accesses(ACCESSES_A_PROBE * probes),
            scan_ns: codes * processor.code_byte_ns,
            rerank_ns: accesses(ACCESSES_A_LIST * lists + ACCESSES_A_CANDIDATE * candidates)
                + vectors * row * processor.vector_byte_ns,
            code_distances: self.code_bytes.map_or(0.0, |_| lists * self.list_vectors),
            full_distances: vectors,
        };
        Estimate::of(cost.demand(machine.profile.granularity), work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::demand::tests::device;
    use crate::cost::processor::Processor;
    use bathyal_tier::TierProfile;

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
                shape.estimate(60.0, lists, candidates, &machine).price_ns(&machine.device())
            };
            (price(31.0, 50.0) - price(30.0, 50.0), price(30.0, 51.0) - price(30.0, 50.0))
        };
        let (list, candidate) = prices(&device(0, 0.0, 64, 0.0));
        assert!((450.0..700.0).contains(&list) && (120.0..200.0).contains(&candidate), "{list} {candidate}");
        let (list, candidate) = prices(&TierProfile { addressable: false, ..device(0, 0.0, 512, 0.0) });
        assert!((1.5..3.0).contains(&(list / candidate)), "{list} {candidate}");
    }
}
