//! What the kernel is told, as it lies in memory: `HopArgs` and `Work` in `kernels/hop.cu`.

/// No query begins; no vector.
pub(crate) const NONE: u32 = u32::MAX;

/// `HopArgs`.
#[derive(Debug)]
pub(crate) struct Args {
    /// codes, planes, staged, work, ids, pivots, queries, lists, next.
    pub(crate) addresses: [u64; 9],
    /// code_bytes, factor_bytes, plane_bytes, query_bytes, groups, fine, list_room, width_room, pivot_count, list_stride.
    pub(crate) numbers: [u32; 10],
}

/// Which of the numbers are of a launch.
pub(crate) const LIST_ROOM: usize = 6;
pub(crate) const WIDTH_ROOM: usize = 7;

impl Args {
    /// As the kernel's parameter lies in memory.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let addresses = self.addresses.iter().flat_map(|address| address.to_le_bytes());
        addresses.chain(self.numbers.iter().flat_map(|number| number.to_le_bytes())).collect()
    }
}

/// `Work`.
pub(super) struct Work {
    pub(super) slot: u32,
    pub(super) first: u32,
    pub(super) count: u32,
    /// Where the query lies among those that begin, in bytes; [`NONE`].
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
