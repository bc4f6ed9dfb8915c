//! The cost of reading runs of blocks from hash tables, scoring their entries by codes, and reading the best
//! vectors.

use crate::cost::Machine;
use crate::cost::demand::{Demand, moved_bytes};
use crate::cost::work::{Estimate, Work};

/// Bytes of a cache line of the processor. A code may begin anywhere in a line, so on average it touches one
/// line more than its bytes fill.
const LINE_BYTES: f64 = 64.0;

/// The numbers of an LSH index that the cost of a query depends on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LshShape {
    pub(super) tables: f64,
    /// Blocks of a table.
    pub(super) blocks: f64,
    /// Ids in a block.
    pub(super) block_ids: f64,
    pub(super) block_bytes: u32,
    /// Most blocks that one read fetches.
    pub(super) read_blocks: f64,
    pub(super) code_bytes: u32,
    pub(super) vector_bytes: u32,
    pub(super) page_bytes: u32,
    /// True if candidates are read alone, without the rest of their pages.
    pub(super) lone: bool,
    /// Multiplications that hash a query.
    pub(super) hash_products: f64,
}

impl LshShape {
    /// Returns the estimate of a query that reads `probes` blocks of each table and `candidates` candidates.
    pub(super) fn estimate(&self, probes: f64, candidates: f64, machine: &Machine<'_>) -> Estimate {
        let (processor, granularity) = (machine.processor, machine.profile.granularity);
        let probes = probes.clamp(1.0, self.blocks.max(1.0));
        let reads = self.tables * (probes / self.read_blocks).max(1.0);
        let run = probes.min(self.read_blocks) * f64::from(self.block_bytes);
        let entries = self.tables * probes * self.block_ids;
        let code = self.code_ns(machine);
        let bytes = if self.lone { self.vector_bytes } else { self.page_bytes };
        let candidate_bytes = moved_bytes(f64::from(bytes), bytes, granularity);
        let demand = Demand {
            rounds: 2.0,
            reads: reads + candidates,
            moved_bytes: reads * moved_bytes(run, self.block_bytes, granularity)
                + candidates * candidate_bytes,
            compute_ns: 0.0,
        };
        let work = Work {
            navigate_ns: self.hash_products * 4.0 * processor.stream_byte_ns,
            scan_ns: entries * code,
            rerank_ns: candidates * f64::from(bytes) * processor.vector_byte_ns,
            code_distances: entries,
            full_distances: candidates * f64::from(bytes / self.vector_bytes.max(1)),
        };
        Estimate::of(demand, work)
    }

    /// Returns the demand of a query that scores the codes of `matches` vectors and reads `candidates`
    /// candidates.
    pub(super) fn among(&self, matches: f64, candidates: f64, machine: &Machine<'_>) -> Demand {
        let (processor, granularity) = (machine.processor, machine.profile.granularity);
        let bytes = if self.lone { self.vector_bytes } else { self.page_bytes };
        Demand {
            rounds: 2.0,
            reads: candidates,
            moved_bytes: candidates * moved_bytes(f64::from(bytes), bytes, granularity),
            compute_ns: matches * self.code_ns(machine)
                + candidates * f64::from(bytes) * processor.vector_byte_ns,
        }
    }

    /// Returns the nanoseconds to score a code at a random place in memory.
    fn code_ns(&self, machine: &Machine<'_>) -> f64 {
        let (processor, bytes) = (machine.processor, f64::from(self.code_bytes));
        processor.access_ns * (1.0 + bytes / LINE_BYTES) / 2.0 + bytes * processor.code_byte_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::demand::tests::device;
    use crate::cost::processor::Processor;

    #[test]
    fn a_query_reads_each_table_and_its_candidates() {
        let shape = LshShape {
            tables: 16.0,
            blocks: 8065.0,
            block_ids: 124.0,
            block_bytes: 512,
            read_blocks: 32.0,
            code_bytes: 32,
            vector_bytes: 128,
            page_bytes: 4096,
            lone: false,
            hash_products: 32_768.0,
        };
        let disk = device(80_000, 1.0, 512, 90_000.0);
        let machine = Machine { profile: &disk, processor: &Processor::REFERENCE };
        let demand = |probes, candidates| shape.estimate(probes, candidates, &machine).demand;
        assert_eq!(
            (demand(1.0, 20.0).reads, demand(8.0, 20.0).reads, demand(64.0, 0.0).reads),
            (36.0, 36.0, 32.0)
        );
        assert_eq!(demand(8.0, 0.0).moved_bytes, 16.0 * 4096.0);
        assert_eq!(demand(1e9, 0.0).reads, 16.0 * 8065.0 / 32.0, "at most all blocks");
        // One more candidate costs a read; one more block costs codes.
        let price = |demand: Demand| demand.price_ns(&machine.device());
        assert!(price(demand(8.0, 21.0)) - price(demand(8.0, 20.0)) > 11_000.0);
        let block = price(demand(9.0, 20.0)) - price(demand(8.0, 20.0));
        assert!((50_000.0..120_000.0).contains(&block), "{block}");
    }
}
