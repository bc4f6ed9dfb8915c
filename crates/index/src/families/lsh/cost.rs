//! The cost of reading runs of blocks from hash tables, scoring what they hold by codes, and reading the best.

use crate::cost::Machine;
use crate::cost::demand::{Demand, moved_bytes};

/// Lines of the processor's cache that a code takes in the mean beyond its bytes: it begins anywhere.
const LINE_BYTES: f64 = 64.0;

/// An LSH index as a query meets it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LshShape {
    pub(super) tables: f64,
    /// Blocks of a table.
    pub(super) blocks: f64,
    /// Ids that a block holds.
    pub(super) block_ids: f64,
    pub(super) block_bytes: u32,
    /// Blocks that one read brings at most.
    pub(super) read_blocks: f64,
    pub(super) code_bytes: u32,
    pub(super) vector_bytes: u32,
    pub(super) page_bytes: u32,
    /// Whether candidates are read alone, not their pages.
    pub(super) lone: bool,
    /// Products that hash a query.
    pub(super) hash_products: f64,
}

impl LshShape {
    /// What a query asks for that looks at so many blocks of each table and reads so many candidates.
    pub(super) fn demand(&self, probes: f64, candidates: f64, machine: &Machine<'_>) -> Demand {
        let (processor, granularity) = (machine.processor, machine.profile.granularity);
        let probes = probes.clamp(1.0, self.blocks.max(1.0));
        let reads = self.tables * (probes / self.read_blocks).max(1.0);
        let run = probes.min(self.read_blocks) * f64::from(self.block_bytes);
        let entries = self.tables * probes * self.block_ids;
        let code = self.code_ns(machine);
        let bytes = if self.lone { self.vector_bytes } else { self.page_bytes };
        let each = moved_bytes(f64::from(bytes), bytes, granularity);
        Demand {
            rounds: 2.0,
            reads: reads + candidates,
            moved_bytes: reads * moved_bytes(run, self.block_bytes, granularity) + candidates * each,
            compute_ns: entries * code
                + self.hash_products * 4.0 * processor.stream_byte_ns
                + candidates * f64::from(bytes) * processor.vector_byte_ns,
        }
    }

    /// What a query asks for that scores the codes of `matches` vectors and reads so many candidates.
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

    /// What a code takes, which lies anywhere in memory.
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
    fn reads_are_those_of_tables_and_candidates() {
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
        let of = |probes, candidates| shape.demand(probes, candidates, &machine);
        assert_eq!((of(1.0, 20.0).reads, of(8.0, 20.0).reads, of(64.0, 0.0).reads), (36.0, 36.0, 32.0));
        assert_eq!(of(8.0, 0.0).moved_bytes, 16.0 * 4096.0);
        assert_eq!(of(1e9, 0.0).reads, 16.0 * 8065.0 / 32.0, "no more than there is");
        // A candidate more costs a read, a block more costs codes.
        let price = |demand: Demand| demand.price_ns(&machine.device());
        assert!(price(of(8.0, 21.0)) - price(of(8.0, 20.0)) > 11_000.0);
        let block = price(of(9.0, 20.0)) - price(of(8.0, 20.0));
        assert!((50_000.0..120_000.0).contains(&block), "{block}");
    }
}
