//! What the kernel is told, as it lies in memory: `WalkArgs` and `WalkWork` in `kernels/walk.cu`.

use crate::exact::EXACT_WORDS;
use crate::graph::Navigation;

/// `WalkArgs`.
#[derive(Debug)]
pub(super) struct Args {
    /// codes, planes, pivots.
    pub(super) graph: [u64; 3],
    /// Those of [`Navigation::words`].
    pub(super) graph_numbers: [u32; Navigation::NUMBERS],
    /// staged, work, vectors, links, ids, found.
    pub(super) addresses: [u64; 6],
    pub(super) exact: [u32; EXACT_WORDS],
    pub(super) degree: u32,
    /// The most answers of a query of the launch.
    pub(super) best_room: u32,
}

impl Args {
    /// As the kernel's parameter lies in memory.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let graph = self.graph.iter().flat_map(|address| address.to_le_bytes());
        let graph_numbers = self.graph_numbers.iter().flat_map(|number| number.to_le_bytes());
        let addresses = self.addresses.iter().flat_map(|address| address.to_le_bytes());
        let last = self.exact.into_iter().chain([self.degree, self.best_room]).flat_map(u32::to_le_bytes);
        graph.chain(graph_numbers).chain(addresses).chain(last).collect()
    }
}

/// `WalkWork`.
pub(super) struct Work {
    /// Where the query lies among all, in bytes.
    pub(super) query: u32,
    pub(super) list: u32,
    pub(super) width: u32,
    pub(super) starts: u32,
    pub(super) step: u32,
    pub(super) wanted: u32,
}

impl Work {
    pub(super) const BYTES: usize = 24;

    /// Appends it as it lies in memory.
    pub(super) fn append(&self, out: &mut Vec<u8>) {
        let Work { query, list, width, starts, step, wanted } = *self;
        for number in [query, list, width, starts, step, wanted] {
            out.extend(number.to_le_bytes());
        }
    }
}
