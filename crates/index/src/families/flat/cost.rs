//! The cost of comparing all vectors in one pass, or of scanning all codes and reading the vectors that they
//! cannot rule out.

use crate::cost::Machine;
use crate::cost::demand::{Demand, moved_bytes};
use crate::cost::work::{Estimate, Work};

/// The numbers of a flat index that the cost of a query depends on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct FlatShape {
    /// Bytes of all pages.
    pub(super) all_bytes: f64,
    /// Number of reads that fetch all pages.
    pub(super) reads: f64,
    pub(super) vectors: f64,
    /// Bytes of all codes; 0 without codes.
    pub(super) codes: f64,
    pub(super) vector_bytes: u32,
    pub(super) page_bytes: u32,
    /// True if candidates are read alone, without the rest of their pages.
    pub(super) lone: bool,
}

impl FlatShape {
    /// Returns the estimate of a query that compares all vectors.
    pub(super) fn scan(&self, machine: &Machine<'_>) -> Estimate {
        let demand = Demand { rounds: 1.0, reads: self.reads, moved_bytes: self.all_bytes, compute_ns: 0.0 };
        let work = Work {
            rerank_ns: self.all_bytes * machine.processor.vector_byte_ns,
            full_distances: self.vectors,
            ..Work::default()
        };
        Estimate::of(demand, work)
    }

    /// Returns the estimate of a query that scans the codes and reads `candidates` candidates. Each is on a
    /// page of its own, since the data may have any order.
    pub(super) fn candidates(&self, candidates: f64, machine: &Machine<'_>) -> Estimate {
        let (processor, granularity) = (machine.processor, machine.profile.granularity);
        let bytes = if self.lone { self.vector_bytes } else { self.page_bytes };
        let demand = Demand {
            rounds: 1.0,
            reads: candidates,
            moved_bytes: candidates * moved_bytes(f64::from(bytes), bytes, granularity),
            compute_ns: 0.0,
        };
        let work = Work {
            navigate_ns: 0.0,
            scan_ns: processor.resident_codes_ns(self.codes),
            rerank_ns: candidates * f64::from(bytes) * processor.vector_byte_ns,
            code_distances: self.vectors,
            full_distances: candidates * f64::from(bytes / self.vector_bytes.max(1)),
        };
        Estimate::of(demand, work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::demand::tests::device;
    use crate::cost::processor::Processor;

    #[test]
    fn few_candidates_cost_less_than_a_scan_and_many_cost_more() {
        let shape = FlatShape {
            all_bytes: 1.6e9,
            reads: 25_000.0,
            vectors: 1e6,
            codes: 5e7,
            vector_bytes: 1536,
            page_bytes: 4096,
            lone: false,
        };
        let disk = device(80_000, 1.0, 4096, 90_000.0);
        let machine = Machine { profile: &disk, processor: &Processor::REFERENCE };
        let price = |estimate: Estimate| estimate.price_ns(&machine.device());
        let scan = price(shape.scan(&machine));
        assert!((1e9..1e10).contains(&scan), "a gigabyte a second: {scan}");
        let [few, more, all] = [100.0, 200.0, 1e6].map(|n| price(shape.candidates(n, &machine)));
        assert!(few < more && more < scan && scan < all, "{few} {more} {scan} {all}");
    }
}
