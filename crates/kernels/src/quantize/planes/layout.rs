//! Where the bits of a code lie: the factors, then one bit plane after the other.
//!
//! Plane `p` holds bit `p` of every dimension that has more than `p` bits. Dimensions are sorted by falling bit
//! width, so a plane covers a prefix of them; prefixes are whole bytes. To a kernel the planes are one run of
//! 64-bit words: each bit has a weight (`2^p`) and a query byte, so any allocation of bits costs the same.

use super::factors::half_of;
use crate::quantize::code::block::SCAN_BLOCK;
use half::f16;

/// Bits of a word: the byte lanes of an AVX-512 register.
pub(super) const WORD: usize = 64;
/// Prefixes are multiples of this many dimensions, so that planes are whole bytes.
pub(super) const GROUP: usize = 8;
/// Bytes of a code that lie together in a block of a group: the width of a 32-bit sum.
pub(super) const GROUP_WORD: usize = 4;
/// Kernels load 64-bit words, so no code is shorter.
pub(super) const LEAST_BYTES: usize = 8;
/// In `byte_groups`: a byte of a word that counts elsewhere or nowhere.
const NO_GROUP: u32 = u32::MAX;

/// The layout of one codec's codes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Layout {
    /// Bits of each group of 8 dimensions, not increasing, none 0.
    pub(super) group_bits: Vec<u8>,
    pub(super) factor_bytes: usize,
    pub(super) code_bytes: usize,
    /// Bytes of a code that hold planes: neither factors nor what fills up.
    pub(super) plane_bytes: usize,
    /// First byte of each 64-bit word; the last one may overlap the one before.
    pub(super) words: Vec<usize>,
    /// `words x 64` weights: what a set bit adds to the level of its dimension; 0 where a bit must not count.
    pub(super) weights: Vec<u8>,
    /// `words x 8` groups of dimensions whose bits a byte holds.
    byte_groups: Vec<u32>,
    /// First byte of each plane.
    plane_starts: Vec<usize>,
}

impl Layout {
    /// `group_bits` are 1 to 8, not increasing, at least one; `factor_bytes` is 4 (two f16) or 8 (two f32).
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
        let mut layout = Layout {
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
                let counted = byte >= from && byte < end;
                let (p, group) = if counted { content[byte - factor_bytes] } else { (0, NO_GROUP) };
                layout.weights.extend([if counted { 1u8 << p } else { 0 }; GROUP]);
                layout.byte_groups.push(group);
            }
        }
        layout
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

    /// Hands each byte of the planes, by number, to `store`.
    pub(super) fn pack(&self, levels: &[u8], mut store: impl FnMut(usize, u8)) {
        for (g, (group, &bits)) in levels.as_chunks::<GROUP>().0.iter().zip(&self.group_bits).enumerate() {
            let group = u64::from_le_bytes(*group);
            for (p, &start) in self.plane_starts[..usize::from(bits)].iter().enumerate() {
                // Bit p of each of the eight levels; the product moves them side by side into the top byte.
                let bits = group >> p & 0x0101_0101_0101_0101;
                let byte = (bits.wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8;
                store(start - self.factor_bytes + g, byte);
            }
        }
    }

    /// The plane and the group of dimensions of each byte after the factors.
    pub(super) fn plane_content(&self) -> impl Iterator<Item = (u8, usize)> {
        let planes = self.group_bits.first().copied().unwrap_or(0);
        (0..planes).flat_map(|p| {
            let width = self.group_bits.iter().take_while(|&&b| b > p).count();
            (0..width).map(move |g| (p, g))
        })
    }

    /// Words of a code in a block, the last of which may be of fewer than four bytes.
    pub(super) fn group_words(&self) -> usize {
        self.plane_bytes.div_ceil(GROUP_WORD)
    }

    /// Where in a block byte `byte` of the planes of code `lane` lies.
    pub(super) fn lane_byte(&self, byte: usize, lane: usize) -> usize {
        let word = byte / GROUP_WORD * GROUP_WORD;
        let width = (self.plane_bytes - word).min(GROUP_WORD);
        SCAN_BLOCK * (self.factor_bytes + word) + lane * width + byte % GROUP_WORD
    }

    /// `value` as a factor is stored.
    pub(super) fn stored_factor(&self, value: f32) -> f32 {
        if self.factor_bytes == 4 { half_of(value).to_f32() } else { value.clamp(f32::MIN, f32::MAX) }
    }

    /// Writes the code of `levels` and its factors as lane `lane` of a block that was zero there.
    pub(super) fn store_lane(&self, levels: &[u8], norm: f32, gain: f32, lane: usize, block: &mut [u8]) {
        let (words, last) = (self.plane_bytes / GROUP_WORD, self.plane_bytes % GROUP_WORD);
        let full = SCAN_BLOCK * self.factor_bytes + lane * GROUP_WORD;
        let rest = SCAN_BLOCK * (self.factor_bytes + words * GROUP_WORD) + lane * last;
        self.pack(levels, |byte, value| {
            let (word, place) = (byte / GROUP_WORD, byte % GROUP_WORD);
            let start = if word < words { full + word * SCAN_BLOCK * GROUP_WORD } else { rest };
            block[start + place] = value;
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
            // Bit i of the byte alone in byte i, wherever it is there; then as a 1.
            let bits = u64::from(block[self.lane_byte(byte, lane)]) * 0x0101_0101_0101_0101;
            let ones = ((bits & 0x8040_2010_0804_0201) + 0x7f7f_7f7f_7f7f_7f7f) >> 7 & 0x0101_0101_0101_0101;
            let level = u64::from_le_bytes(groups[g]) | ones << plane;
            groups[g] = level.to_le_bytes();
        }
    }

    /// The factors of lane `lane` of a block.
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

    /// Lays `values` (one a dimension) out as the bits of the words are: 64 a word, 0 where a bit does not count.
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
