//! Blocks of codes for scans of groups.

/// Codes in a block: the byte lanes of an AVX2 register.
pub const SCAN_BLOCK: usize = 32;

/// Arguments of [`CodeQuery::scan_group_before`](crate::quantize::CodeQuery::scan_group_before): one group to
/// scan.
#[derive(Clone, Copy, Debug)]
pub struct GroupScan<'a> {
    /// The blocks of the group.
    pub blocks: &'a [u8],
    /// Number of codes in the blocks.
    pub count: usize,
    /// The exact `|q-c|^2` under L2, `-<q,c>` under the inner product, `1 - <q,c>` under cosine.
    pub centroid_distance: f32,
    /// Bound of the estimates: only smaller ones become hits. Infinity keeps all codes.
    pub threshold: f32,
    /// The id of the first code.
    pub first: u32,
    /// The blocks of the group that is scanned after this one; empty if there is none.
    pub next: &'a [u8],
}

#[cfg(target_arch = "x86_64")]
impl GroupScan<'_> {
    /// Returns a mask of the lanes of block `b` that hold a code.
    pub(in crate::quantize) fn lanes(&self, b: usize) -> u32 {
        let left = self.count - b * SCAN_BLOCK;
        if left >= SCAN_BLOCK { u32::MAX } else { (1 << left) - 1 }
    }
}
