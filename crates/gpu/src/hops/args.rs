//! The kernel's argument, with its layout in memory: `HopArgs` in `kernels/slots.h`, `Work` in
//! `kernels/hop.cu`.

use super::Shape;
use crate::graph::{Navigation, NavigationWords};

/// `HopArgs`.
#[derive(Debug)]
pub(crate) struct Args {
    /// codes, planes, pivots.
    pub(super) graph: [u64; 3],
    /// The words of [`Navigation::words`].
    pub(super) graph_numbers: [u32; Navigation::NUMBERS],
    /// staged, work, ids, queries, lists, next.
    pub(super) addresses: [u64; 6],
    /// Maximum number of vectors that a query of the launch expands next.
    pub(crate) width_room: u32,
    pub(super) list_stride: u32,
}

impl Args {
    /// Creates the argument from [`Navigation::words`] and the addresses of staged, work, ids, queries,
    /// lists, next.
    pub(crate) fn new(words: NavigationWords, addresses: [u64; 6], shape: &Shape) -> Args {
        let (graph, graph_numbers) = words;
        Args { graph, graph_numbers, addresses, width_room: shape.width, list_stride: shape.list }
    }

    /// Returns the length of the longest list of the launch.
    pub(crate) fn list_room(&mut self) -> &mut u32 {
        &mut self.graph_numbers[Navigation::LIST_ROOM]
    }

    /// Returns the bytes of the kernel's parameter.
    pub(crate) fn bytes(&self) -> Vec<u8> {
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
    /// Offset in bytes of the query among those that begin; [`NONE`](crate::graph::NONE) if it has begun
    /// before.
    pub(super) query: u32,
    pub(super) list: u32,
    pub(super) width: u32,
    pub(super) starts: u32,
    pub(super) step: u32,
}

impl Work {
    pub(super) const BYTES: usize = 32;

    /// Appends its bytes.
    pub(super) fn append(&self, out: &mut Vec<u8>) {
        let Work { slot, first, count, query, list, width, starts, step } = *self;
        for number in [slot, first, count, query, list, width, starts, step] {
            out.extend(number.to_le_bytes());
        }
    }
}
