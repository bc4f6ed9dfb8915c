//! Where the bits of a code lie: the factors, then one bit plane after the other.
//!
//! Plane `p` holds bit `p` of every dimension that has more than `p` bits. Dimensions are sorted by falling bit
//! width, so a plane covers a prefix of them; prefixes are whole bytes. One layout serves any bit allocation, and
//! its scoring costs two instructions for 64 bits of code.

/// Dimensions of a block: the byte lanes of an AVX-512 register.
pub(super) const BLOCK: usize = 64;
/// Prefixes are multiples of this many dimensions, so that planes are whole bytes.
pub(super) const GROUP: usize = 8;
/// Kernels load planes as 64-bit words, so no code is shorter.
pub(super) const LEAST_BYTES: usize = 8;

/// Up to 64 bits of one plane: `(word at byte `at` >> shift) & keep`, never reading outside the code.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Chunk {
    pub(super) at: usize,
    pub(super) shift: u32,
    pub(super) keep: u64,
    pub(super) plane: usize,
}

/// The chunks of every block of 64 dimensions.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Layout {
    /// Bits of each group of 8 dimensions, not increasing, none 0.
    pub(super) group_bits: Vec<u8>,
    pub(super) factor_bytes: usize,
    pub(super) code_bytes: usize,
    pub(super) blocks: Vec<Vec<Chunk>>,
    /// First byte of each plane.
    plane_starts: Vec<usize>,
}

impl Layout {
    /// `group_bits` are 1 to 8, not increasing, at least one; `factor_bytes` is 4 (two f16) or 8 (two f32).
    pub(super) fn new(group_bits: Vec<u8>, factor_bytes: usize) -> Self {
        let planes = group_bits.first().map_or(0, |&b| usize::from(b));
        let width = |p: usize| group_bits.iter().filter(|&&b| usize::from(b) > p).count();
        let mut plane_starts = Vec::with_capacity(planes);
        let mut end = factor_bytes;
        for p in 0..planes {
            plane_starts.push(end);
            end += width(p);
        }
        let code_bytes = end.max(LEAST_BYTES);
        let blocks = (0..group_bits.len().div_ceil(BLOCK / GROUP))
            .map(|block| {
                let first = block * 8;
                (0..planes)
                    .take_while(|&p| width(p) > first)
                    .map(|p| {
                        let start = plane_starts[p] + first;
                        let len = (width(p) - first).min(8);
                        let at = start.min(code_bytes - 8);
                        let keep = if len == 8 { u64::MAX } else { (1 << (8 * len)) - 1 };
                        Chunk { at, shift: 8 * (start - at) as u32, keep, plane: p }
                    })
                    .collect()
            })
            .collect();
        Layout { group_bits, factor_bytes, code_bytes, blocks, plane_starts }
    }

    /// Dimensions that are kept: a multiple of 8.
    pub(super) fn dims(&self) -> usize {
        self.group_bits.len() * GROUP
    }

    pub(super) fn bits(&self, dimension: usize) -> u32 {
        u32::from(self.group_bits[dimension / GROUP])
    }

    /// The middle of the grid of a dimension: levels run from `-middle` to `middle`.
    pub(super) fn middle(&self, dimension: usize) -> f32 {
        ((1u32 << self.bits(dimension)) - 1) as f32 * 0.5
    }

    pub(super) fn pack(&self, levels: &[u8], code: &mut [u8]) {
        code[self.factor_bytes..].fill(0);
        for (d, &level) in levels.iter().enumerate() {
            for p in 0..self.bits(d) as usize {
                code[self.plane_starts[p] + d / 8] |= (level >> p & 1) << (d % 8);
            }
        }
    }

    pub(super) fn level(&self, code: &[u8], dimension: usize) -> u8 {
        (0..self.bits(dimension) as usize)
            .map(|p| (code[self.plane_starts[p] + dimension / 8] >> (dimension % 8) & 1) << p)
            .sum()
    }
}
