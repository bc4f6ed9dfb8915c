//! The layout of a code: the factors, then one bit plane after the other.
//!
//! Plane `p` holds bit `p` of every dimension with more than `p` bits. Dimensions are sorted by falling bit
//! width, so a plane covers a prefix of them, in whole bytes. For a kernel the planes are one sequence of
//! 64-bit words: each bit has a weight (`2^p`) and a query byte, so every allocation of bits takes the same
//! time.

use super::factors::half_of;
use crate::quantize::code::block::SCAN_BLOCK;
use half::f16;

/// Bits in a word: the byte lanes of an AVX-512 register.
pub(super) const WORD: usize = 64;
/// Dimensions in a group. All dimensions of a group have the same number of bits, so that planes are whole
/// bytes.
pub(super) const GROUP: usize = 8;
/// Bytes of a code that are contiguous in a block of a group: the width of a 32-bit sum.
pub(super) const GROUP_WORD: usize = 4;
/// Least bytes of a code, since kernels load 64-bit words.
pub(super) const LEAST_BYTES: usize = 8;
/// Value in `byte_groups` for a byte that is not counted in its word: another word counts it, or it is not in
/// a plane.
const NO_GROUP: u32 = u32::MAX;

/// Layout of the codes of one codec.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PlaneLayout {
    /// Bits of each group of 8 dimensions, not increasing, none 0.
    pub(super) group_bits: Vec<u8>,
    pub(super) factor_bytes: usize,
    pub(super) code_bytes: usize,
    /// Bytes of a code that hold planes, without factors and padding.
    pub(super) plane_bytes: usize,
    /// First byte of each 64-bit word. The last word may overlap the one before.
    pub(super) words: Vec<usize>,
    /// `words x 64` weights: the value that a set bit adds to the level of its dimension; 0 for a bit that is
    /// not counted.
    pub(super) weights: Vec<u8>,
    /// `words x 8` numbers of groups: the group of dimensions whose bits the byte holds, or [`NO_GROUP`].
    byte_groups: Vec<u32>,
    /// First byte of each plane.
    plane_starts: Vec<usize>,
}

impl PlaneLayout {
    /// Creates a layout. `group_bits` is not empty; its values are 1 to 8 and not increasing. `factor_bytes`
    /// is 4 (two f16) or 8 (two f32).
    pub(super) fn new(group_bits: Vec<u8>, factor_bytes: usize) -> Self {
        let planes = group_bits.first().map_or(0, |&b| usize::from(b));
        let mut plane_starts = Vec::with_capacity(planes);
        // The plane and group of each byte after the factors.
        let mut content: Vec<(usize, u32)> = Vec::new();
        for p in 0..planes {
            plane_starts.push(factor_bytes + content.len());
            let width = group_bits.iter().filter(|&&b| usize::from(b) > p).count();
            content.extend((0..width as u32).map(|g| (p, g)));
        }
        let end = factor_bytes + content.len();
        let code_bytes = end.max(LEAST_BYTES);
        let mut layout = PlaneLayout {
            group_bits,
            factor_bytes,
            code_bytes,
            plane_bytes: content.len(),
            words: Vec::new(),
            weights: Vec::new(),
            byte_groups: Vec::new(),
            plane_starts,
        };
        for from in (factor_bytes..end).step_by(8) {
            let at = from.min(code_bytes - 8);
            layout.words.push(at);
            for byte in at..at + 8 {
                let is_counted = byte >= from && byte < end;
                let (p, group) = if is_counted { content[byte - factor_bytes] } else { (0, NO_GROUP) };
                layout.weights.extend([if is_counted { 1u8 << p } else { 0 }; GROUP]);
                layout.byte_groups.push(group);
            }
        }
        layout
    }

    /// Returns the number of kept dimensions, a multiple of 8.
    pub(super) fn dims(&self) -> usize {
        self.group_bits.len() * GROUP
    }

    pub(super) fn bits(&self, dimension: usize) -> u32 {
        u32::from(self.group_bits[dimension / GROUP])
    }

    /// Returns the middle of the grid of a dimension. Levels run from `-middle` to `middle`.
    pub(super) fn middle(&self, dimension: usize) -> f32 {
        ((1u32 << self.bits(dimension)) - 1) as f32 * 0.5
    }

    /// Calls `store` with the number and the value of each byte of the planes.
    pub(super) fn pack(&self, levels: &[u8], mut store: impl FnMut(usize, u8)) {
        for (g, (group, &bits)) in levels.as_chunks::<GROUP>().0.iter().zip(&self.group_bits).enumerate() {
            let group = u64::from_le_bytes(*group);
            for (p, &start) in self.plane_starts[..usize::from(bits)].iter().enumerate() {
                // Bit p of each of the eight levels. The product collects them in the top byte.
                let bits = group >> p & 0x0101_0101_0101_0101;
                let byte = (bits.wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8;
                store(start - self.factor_bytes + g, byte);
            }
        }
    }

    /// Iterates over the plane and the group of dimensions of each byte after the factors.
    pub(super) fn plane_content(&self) -> impl Iterator<Item = (u8, usize)> {
        let planes = self.group_bits.first().copied().unwrap_or(0);
        (0..planes).flat_map(|p| {
            let width = self.group_bits.iter().take_while(|&&b| b > p).count();
            (0..width).map(move |g| (p, g))
        })
    }

    /// Returns the number of words of a code in a block. The last word may have fewer than four bytes.
    pub(super) fn group_words(&self) -> usize {
        self.plane_bytes.div_ceil(GROUP_WORD)
    }

    /// Returns the offset in a block of byte `byte` of the planes of code `lane`.
    pub(super) fn lane_byte(&self, byte: usize, lane: usize) -> usize {
        let word = byte / GROUP_WORD * GROUP_WORD;
        let width = (self.plane_bytes - word).min(GROUP_WORD);
        SCAN_BLOCK * (self.factor_bytes + word) + lane * width + byte % GROUP_WORD
    }

    /// Rounds `value` as a stored factor is rounded.
    pub(super) fn stored_factor(&self, value: f32) -> f32 {
        if self.factor_bytes == 4 { half_of(value).to_f32() } else { value.clamp(f32::MIN, f32::MAX) }
    }

    /// Writes the code of `levels` and its factors to lane `lane` of a block, which must be zero there.
    pub(super) fn store_lane(&self, levels: &[u8], norm: f32, gain: f32, lane: usize, block: &mut [u8]) {
        let (words, last) = (self.plane_bytes / GROUP_WORD, self.plane_bytes % GROUP_WORD);
        let full = SCAN_BLOCK * self.factor_bytes + lane * GROUP_WORD;
        let rest = SCAN_BLOCK * (self.factor_bytes + words * GROUP_WORD) + lane * last;
        self.pack(levels, |byte, value| {
            let (word, offset) = (byte / GROUP_WORD, byte % GROUP_WORD);
            let start = if word < words { full + word * SCAN_BLOCK * GROUP_WORD } else { rest };
            block[start + offset] = value;
        });
        for (i, value) in [norm, gain].into_iter().enumerate() {
            if self.factor_bytes == 4 {
                let at = 2 * (i * SCAN_BLOCK + lane);
                block[at..at + 2].copy_from_slice(&half_of(value).to_le_bytes());
            } else {
                let at = 4 * (i * SCAN_BLOCK + lane);
                block[at..at + 4].copy_from_slice(&self.stored_factor(value).to_le_bytes());
            }
        }
    }

    /// Reads the levels of lane `lane` of a block.
    pub(super) fn load_lane(&self, lane: usize, block: &[u8], levels: &mut [u8]) {
        let groups = levels.as_chunks_mut::<GROUP>().0;
        groups.fill([0; GROUP]);
        for (byte, (plane, g)) in self.plane_content().enumerate() {
            // The mask leaves bit i of the byte in byte i of the word. Then each byte that is not zero
            // becomes 1.
            let bits = u64::from(block[self.lane_byte(byte, lane)]) * 0x0101_0101_0101_0101;
            let ones = ((bits & 0x8040_2010_0804_0201) + 0x7f7f_7f7f_7f7f_7f7f) >> 7 & 0x0101_0101_0101_0101;
            let level = u64::from_le_bytes(groups[g]) | ones << plane;
            groups[g] = level.to_le_bytes();
        }
    }

    /// Returns the factors of lane `lane` of a block.
    pub(super) fn lane_factors(&self, lane: usize, block: &[u8]) -> (f32, f32) {
        let factor = |i: usize| {
            if self.factor_bytes == 4 {
                let at = 2 * (i * SCAN_BLOCK + lane);
                return f16::from_le_bytes([block[at], block[at + 1]]).to_f32();
            }
            let at = 4 * (i * SCAN_BLOCK + lane);
            f32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
        };
        (factor(0), factor(1))
    }

    pub(super) fn level(&self, code: &[u8], dimension: usize) -> u8 {
        (0..self.bits(dimension) as usize)
            .map(|p| (code[self.plane_starts[p] + dimension / 8] >> (dimension % 8) & 1) << p)
            .sum()
    }

    /// Arranges `values` (one for each dimension) in the order of the bits of the words: 64 for each word, 0
    /// for a bit that is not counted.
    pub(super) fn spread(&self, values: &[i8], out: &mut Vec<i8>) {
        out.clear();
        for &group in &self.byte_groups {
            match values.get(group as usize * GROUP..) {
                Some(rest) if rest.len() >= GROUP => out.extend_from_slice(&rest[..GROUP]),
                _ => out.extend_from_slice(&[0; GROUP]),
            }
        }
    }
}
