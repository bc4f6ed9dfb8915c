//! The cost of a query: finding partitions in the meta index, reading them, and walking each. The sub-index
//! cache is not counted on, because its effect depends on the other queries.

use super::meta::navigation_list;
use super::subindex::table::ALIGNMENT;
use crate::cost::Machine;
use crate::cost::demand::{Demand, moved_bytes};
use crate::cost::work::{Estimate, Work};

/// Distances of a walk in addition to those of its candidates: in the upper layers, and on the way to the
/// neighbourhood.
const LEAST_DISTANCES: f64 = 100.0;
/// The approximate share of a candidate's links that lead to vectors which no other candidate has reached.
const NEW_LINKS: f64 = 0.3;
/// Memory accesses of a candidate: its list, and the first cache lines of its vectors, which are prefetched.
const ACCESSES_A_CANDIDATE: f64 = 2.0;

/// The properties of an index of partitions that determine the cost of a query.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PartitionShape {
    pub(super) partitions: f64,
    /// Mean bytes of a sub-index.
    pub(super) subindex_bytes: f64,
    /// Mean vectors of a sub-index.
    pub(super) vectors: f64,
    pub(super) vector_bytes: f64,
    /// Links of a vector in the upper layers, half of those in the bottom layer.
    pub(super) links: f64,
}

impl PartitionShape {
    /// Returns the estimate of a query that searches `probes` partitions with a candidate list of `list`.
    pub(super) fn estimate(&self, probes: f64, list: f64, machine: &Machine<'_>) -> Estimate {
        let processor = machine.processor;
        let read_bytes = moved_bytes(self.subindex_bytes, ALIGNMENT as u32, machine.profile.granularity);
        let distances = |list: f64, vectors: f64| {
            (LEAST_DISTANCES + list.min(vectors) * 2.0 * self.links * NEW_LINKS).min(vectors)
        };
        let walk = |list: f64, vectors: f64| {
            let candidates = list.min(vectors);
            let distances = distances(list, vectors);
            distances * self.vector_bytes * processor.vector_byte_ns
                + candidates * ACCESSES_A_CANDIDATE * processor.access_ns
        };
        let navigation = navigation_list(probes as usize) as f64;
        // Read bytes are traversed once for the checksum, and once for the copy.
        let copying = probes * self.subindex_bytes * processor.stream_byte_ns * 2.0;
        let demand = Demand { rounds: 1.0, reads: probes, moved_bytes: probes * read_bytes, compute_ns: 0.0 };
        let work = Work {
            navigate_ns: walk(navigation, self.partitions),
            rerank_ns: probes * walk(list, self.vectors) + copying,
            full_distances: distances(navigation, self.partitions) + probes * distances(list, self.vectors),
            ..Work::default()
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
    fn more_probes_and_longer_lists_cost_more() {
        let shape = PartitionShape {
            partitions: 500.0,
            subindex_bytes: 6e5,
            vectors: 3000.0,
            vector_bytes: 128.0,
            links: 16.0,
        };
        let nic = device(2_800, 12.5, 64, 1e7);
        let machine = Machine { profile: &nic, processor: &Processor::REFERENCE };
        let price = |probes, list| shape.estimate(probes, list, &machine).price_ns(&machine.device());
        assert!(price(4.0, 50.0) < price(5.0, 50.0) && price(4.0, 50.0) < price(4.0, 60.0));
        let demand = shape.estimate(4.0, 50.0, &machine).demand;
        assert_eq!((demand.rounds, demand.reads, demand.moved_bytes), (1.0, 4.0, 2.4e6));
        assert!((1e4..1e6).contains(&demand.compute_ns), "{demand:?}");
    }
}
