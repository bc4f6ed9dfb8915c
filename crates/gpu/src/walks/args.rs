//! The kernel's argument, with its layout in memory: `WalkArgs` and `WalkWork` in `kernels/walk.cu`.

use crate::exact::EXACT_WORDS;
use crate::graph::Navigation;

/// `WalkArgs`.
#[derive(Debug)]
pub(super) struct Args {
    /// codes, planes, pivots.
    pub(super) graph: [u64; 3],
    /// The words of [`Navigation::words`].
    pub(super) graph_numbers: [u32; Navigation::NUMBERS],
    /// staged, work, vectors, links, ids, found.
    pub(super) addresses: [u64; 6],
    pub(super) exact: [u32; EXACT_WORDS],
    pub(super) degree: u32,
    /// Maximum number of results of a query of the launch.
    pub(super) best_room: u32,
}

impl Args {
    /// Returns the bytes of the kernel's parameter.
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
    /// Offset in bytes of the query among all.
    pub(super) query: u32,
    pub(super) list: u32,
    pub(super) width: u32,
    pub(super) starts: u32,
    pub(super) step: u32,
    pub(super) wanted: u32,
}

impl Work {
    pub(super) const BYTES: usize = 24;

    /// Appends its bytes.
    pub(super) fn append(&self, out: &mut Vec<u8>) {
        let Work { query, list, width, starts, step, wanted } = *self;
        for number in [query, list, width, starts, step, wanted] {
            out.extend(number.to_le_bytes());
        }
    }
}
