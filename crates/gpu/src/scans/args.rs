//! The kernels' arguments, with their layout in memory: `ScanArgs`, `ScanWork` and `ScanGroup` in
//! `kernels/groups.h`, `RerankArgs` in `kernels/rerank.cu`.

use crate::exact::EXACT_WORDS;

/// Index of the number that each launch sets: the length of the longest list.
pub(super) const LIST_ROOM: usize = 6;

/// `ScanArgs`.
#[derive(Debug)]
pub(super) struct Args {
    /// codes, staged, work, groups, found.
    pub(super) addresses: [u64; 5],
    /// group_bytes, block_bytes, plane_bytes, factor_bytes, group_vectors, query_bytes, list_room, unused.
    pub(super) numbers: [u32; 8],
}

impl Args {
    /// Returns the bytes of the kernel's parameter.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let addresses = self.addresses.iter().flat_map(|address| address.to_le_bytes());
        addresses.chain(self.numbers.iter().flat_map(|number| number.to_le_bytes())).collect()
    }
}

/// The fields of `RerankArgs` after those of `ScanArgs`.
#[derive(Debug, Clone, Copy)]
pub(super) struct RerankArgs {
    /// vectors, ids.
    pub(super) addresses: [u64; 2],
    pub(super) exact: [u32; EXACT_WORDS],
    /// Maximum number of results of a query of the launch.
    pub(super) best_room: u32,
}

impl RerankArgs {
    /// Returns the bytes of the rest of the kernel's parameter.
    pub(super) fn bytes(&self) -> impl Iterator<Item = u8> {
        let addresses = self.addresses.into_iter().flat_map(u64::to_le_bytes);
        let numbers = self.exact.into_iter().chain([self.best_room, 0]);
        addresses.chain(numbers.flat_map(u32::to_le_bytes))
    }
}

/// `ScanWork`.
pub(super) struct Work {
    /// Offset in bytes of the query among all.
    pub(super) query: u32,
    pub(super) first: u32,
    pub(super) count: u32,
    pub(super) list: u32,
}

impl Work {
    pub(super) const BYTES: usize = 16;

    /// Appends its bytes.
    pub(super) fn append(&self, out: &mut Vec<u8>) {
        for number in [self.query, self.first, self.count, self.list] {
            out.extend(number.to_le_bytes());
        }
    }
}

/// A group to scan: `ScanGroup`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Group {
    /// Number of the group.
    pub number: u32,
    /// Number of codes that it holds.
    pub held: u32,
    /// Distance of the query to its centroid.
    pub distance: f32,
}

impl Group {
    pub(super) const BYTES: usize = 12;

    /// Appends its bytes.
    pub(super) fn append(&self, out: &mut Vec<u8>) {
        out.extend(self.number.to_le_bytes());
        out.extend(self.held.to_le_bytes());
        out.extend(self.distance.to_le_bytes());
    }
}
