//! Blocks of codes that are scanned together.

/// Codes of a block: the byte lanes of an AVX2 register.
pub const SCAN_BLOCK: usize = 32;

/// One group as [`CodeQuery::scan_group_before`](crate::quantize::CodeQuery::scan_group_before) scans it.
#[derive(Clone, Copy, Debug)]
pub struct GroupScan<'a> {
    /// The blocks of the group.
    pub blocks: &'a [u8],
    /// Codes in them.
    pub count: usize,
    /// The exact `|q-c|^2` under L2, `-<q,c>` under the inner product, `1 - <q,c>` under cosine.
    pub centroid_distance: f32,
    /// Estimates from here on are left out; infinity keeps every code.
    pub threshold: f32,
    /// The id of the first code.
    pub first: u32,
    /// The blocks of the group that is scanned after this one; empty for none.
    pub next: &'a [u8],
}

#[cfg(target_arch = "x86_64")]
impl GroupScan<'_> {
    /// A bit for each lane of block `b` that holds a code.
    pub(in crate::quantize) fn lanes(&self, b: usize) -> u32 {
        let left = self.count - b * SCAN_BLOCK;
        if left >= SCAN_BLOCK { u32::MAX } else { (1 << left) - 1 }
    }
}
