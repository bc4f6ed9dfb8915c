//! What the kernel is told, as it lies in memory: `HopArgs` and `Work` in `kernels/hop.cu`.

use crate::graph::Navigation;

/// `HopArgs`.
#[derive(Debug)]
pub(super) struct Args {
    /// codes, planes, pivots.
    pub(super) graph: [u64; 3],
    /// Those of [`Navigation::words`].
    pub(super) graph_numbers: [u32; Navigation::NUMBERS],
    /// staged, work, ids, queries, lists, next.
    pub(super) addresses: [u64; 6],
    /// The most that a query of the launch expands next.
    pub(super) width_room: u32,
    pub(super) list_stride: u32,
}

impl Args {
    /// As the kernel's parameter lies in memory.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let graph = self.graph.iter().flat_map(|address| address.to_le_bytes());
        let numbers = self.graph_numbers.iter().flat_map(|number| number.to_le_bytes());
        let addresses = self.addresses.iter().flat_map(|address| address.to_le_bytes());
        let last = [self.width_room, self.list_stride].into_iter().flat_map(u32::to_le_bytes);
        graph.chain(numbers).chain(addresses).chain(last).collect()
    }
}

/// `Work`.
pub(super) struct Work {
    pub(super) slot: u32,
    pub(super) first: u32,
    pub(super) count: u32,
    /// Where the query lies among those that begin, in bytes; [`NONE`](crate::graph::NONE).
    pub(super) query: u32,
    pub(super) list: u32,
    pub(super) width: u32,
    pub(super) starts: u32,
    pub(super) step: u32,
}

impl Work {
    pub(super) const BYTES: usize = 32;

    /// Appends it as it lies in memory.
    pub(super) fn append(&self, out: &mut Vec<u8>) {
        let Work { slot, first, count, query, list, width, starts, step } = *self;
        for number in [slot, first, count, query, list, width, starts, step] {
            out.extend(number.to_le_bytes());
        }
    }
}
