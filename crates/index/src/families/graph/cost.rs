//! The demand of a query of a graph, from the properties of the graph.

use crate::cost::Machine;
use crate::cost::counters::QueryCost;
use crate::cost::work::{Estimate, Work};

/// Reads for each entry of the candidate list, approximately. It is above 1 because better candidates push
/// some out of the list after they have been read.
const READS_PER_CANDIDATE: f64 = 1.05;
/// Share of the links of a vector that lead to vectors that the query has not visited, approximately.
const NEW_LINKS: f64 = 0.6;

/// The properties of a graph that determine the cost of a query.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct GraphShape {
    /// Vectors in a read that are all compared: the vectors of a page in the page-local layout, otherwise 1.
    pub(super) vectors_per_read: f64,
    /// Bytes of a read, on average.
    pub(super) read_bytes: f64,
    /// Most links of a vector.
    pub(super) max_degree: f64,
    pub(super) vector_bytes: f64,
    pub(super) code_bytes: f64,
    pub(super) dim: usize,
}

impl GraphShape {
    /// Returns the same as [`GraphShape::estimate`], with the time to prepare the query.
    pub(super) fn of_query(&self, candidates: f64, beam_width: f64, machine: &Machine<'_>) -> Estimate {
        let estimate = self.estimate(candidates, beam_width, machine);
        estimate.with_preparation(machine.processor.preparation_ns(self.dim))
    }

    /// Returns the estimate of a query with a list of `candidates` candidates, which reads `beam_width`
    /// records at once. A read of a page that several vectors share serves two candidates, approximately.
    pub(super) fn estimate(&self, candidates: f64, beam_width: f64, machine: &Machine<'_>) -> Estimate {
        let shared = self.vectors_per_read.clamp(1.0, 2.0);
        let reads = (READS_PER_CANDIDATE * candidates / shared).max(1.0);
        let cost = QueryCost {
            hops: (reads / beam_width.max(1.0)).max(1.0),
            reads,
            bytes: reads * self.read_bytes,
            compute_ns: 0.0,
        };
        let processor = machine.processor;
        let codes = candidates * self.max_degree * NEW_LINKS;
        // Each code is at a random place in memory.
        let scoring = codes * (processor.access_ns / 2.0 + self.code_bytes * processor.code_byte_ns);
        let comparing = reads * self.vectors_per_read * self.vector_bytes * processor.vector_byte_ns;
        let work = Work {
            navigate_ns: 0.0,
            scan_ns: scoring,
            rerank_ns: comparing,
            code_distances: codes,
            full_distances: reads * self.vectors_per_read,
        };
        Estimate::of(cost.demand(machine.profile.granularity), work)
    }
}

impl GraphShape {
    /// Returns the estimate of a query that scores the codes of `matches` vectors, which are the share
    /// `share` of all, and reads `candidates` of them.
    pub(super) fn among(&self, matches: f64, share: f64, candidates: f64, machine: &Machine<'_>) -> Estimate {
        let processor = machine.processor;
        // The larger the share, the more the scored codes are read as one stream.
        let streamed = self.code_bytes * processor.stream_byte_ns / share.max(f64::MIN_POSITIVE);
        let code = streamed.min(processor.access_ns / 2.0) + self.code_bytes * processor.code_byte_ns;
        let cost =
            QueryCost { hops: 2.0, reads: candidates, bytes: candidates * self.read_bytes, compute_ns: 0.0 };
        let comparing = candidates * self.vectors_per_read * self.vector_bytes * processor.vector_byte_ns;
        let work = Work {
            navigate_ns: 0.0,
            scan_ns: matches * code,
            rerank_ns: comparing,
            code_distances: matches,
            full_distances: candidates * self.vectors_per_read,
        };
        Estimate::of(cost.demand(machine.profile.granularity), work)
    }
}
