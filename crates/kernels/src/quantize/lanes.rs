//! Blocks of fewer than 32 codes, and conversion between blocks and single codes.
//!
//! A block holds one field after the other, each for all of its codes (`docs/format/codes.md`): two factors,
//! words of four bytes of planes, the remaining bytes. A short block has the same layout with fewer lanes, so
//! a short group takes only the bytes of its codes. It is widened to 32 lanes before a scan.

use super::code::block::SCAN_BLOCK;
use super::{Body, Codec};
use std::ops::Range;

/// Bytes of planes that form a field.
const WORD_BYTES: usize = 4;

impl Codec {
    /// Iterates over the bytes of each field of a code, in the order of the fields in a block.
    fn fields(&self) -> impl Iterator<Item = Range<usize>> {
        let (factors, planes) = match &self.body {
            Body::Product(_) => (0, 0),
            Body::Planes(quantizer) => quantizer.field_bytes(),
        };
        let words = (1..=planes / WORD_BYTES).map(move |word| factors + word * WORD_BYTES);
        let ends =
            [factors / 2, factors].into_iter().chain(words).chain([factors + planes, self.code_bytes()]);
        let mut start = 0;
        ends.map(move |end| std::mem::replace(&mut start, end)..end).filter(|field| !field.is_empty())
    }

    /// Copies the first codes of a full block to `codes`, one after the other, until that is full.
    ///
    /// # Panics
    /// If `block` is not a full block or `codes` has space for more than 32 codes.
    pub fn codes_of_block(&self, block: &[u8], codes: &mut [u8]) {
        let bytes = self.code_bytes();
        assert!(block.len() == self.block_bytes() && codes.len() <= block.len(), "not a block of codes");
        for field in self.fields() {
            let lanes = block[field.start * SCAN_BLOCK..].chunks_exact(field.len());
            for (code, lane) in codes.chunks_exact_mut(bytes).zip(lanes) {
                code[field.clone()].copy_from_slice(lane);
            }
        }
    }

    /// Makes a block of up to 32 `codes`, which are one after the other. It has one lane for each code.
    ///
    /// # Panics
    /// If there are more than 32 codes, or `block` and `codes` differ in length.
    pub fn block_of_codes(&self, codes: &[u8], block: &mut [u8]) {
        let bytes = self.code_bytes();
        assert!(codes.len() <= self.block_bytes() && codes.len() == block.len(), "not a block of codes");
        let count = codes.len() / bytes;
        for field in self.fields() {
            let lanes = block[field.start * count..].chunks_exact_mut(field.len());
            for (code, lane) in codes.chunks_exact(bytes).zip(lanes) {
                lane.copy_from_slice(&code[field.clone()]);
            }
        }
    }

    /// Writes a block of up to 32 codes as a full block. Lanes without a code are not changed.
    ///
    /// # Panics
    /// If `short` is longer than a block, or `block` is not a full block.
    pub fn widen_block(&self, short: &[u8], block: &mut [u8]) {
        assert!(block.len() == self.block_bytes() && short.len() <= block.len(), "not a block of codes");
        let count = short.len() / self.code_bytes();
        for field in self.fields() {
            let lanes = &short[field.start * count..field.end * count];
            block[field.start * SCAN_BLOCK..][..lanes.len()].copy_from_slice(lanes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantize::{CodeKind, CodeQuery, EncodeScratch};
    use crate::topk::Neighbor;
    use crate::{Isa, Metric};

    #[test]
    fn codes_have_the_same_scores_in_any_block() {
        let dim = 20;
        let value = |i: usize| (i * 37 % 101) as f32 / 9.0 - 5.0;
        let sample: Vec<f32> = (0..300 * dim).map(value).collect();
        let rows: Vec<f32> = (0..SCAN_BLOCK * dim).map(|i| value(7 * i + 3)).collect();
        let query: Vec<f32> = (0..dim).map(|i| value(i + 900)).collect();
        for (kind, bytes) in [
            (CodeKind::Axes, 8),
            (CodeKind::Axes, 17),
            (CodeKind::Axes, 24),
            (CodeKind::RaBitQ { bits: 1 }, 8),
            (CodeKind::RaBitQ { bits: 6 }, 40),
        ] {
            let codec = Codec::train(kind, bytes, Metric::L2, &sample, dim, 1, 1).unwrap();
            let size = codec.code_bytes();
            let mut full = vec![0; codec.block_bytes()];
            codec.encode_group(&rows, &vec![0.0; dim], &mut full, &mut EncodeScratch::default());
            let mut codes = vec![0; SCAN_BLOCK * size];
            codec.codes_of_block(&full, &mut codes);
            let scan = |block: &[u8], count: usize| {
                let mut prepared = CodeQuery::with_isa(Isa::best()).unwrap();
                prepared.prepare_groups(&codec, &query);
                let mut hits: Vec<Neighbor> = Vec::new();
                prepared.scan_group(&codec, block, count, 1.0, f32::INFINITY, 0, &mut hits);
                hits.iter().map(|hit| hit.distance.to_bits()).collect::<Vec<_>>()
            };
            let expected = scan(&full, SCAN_BLOCK);
            assert_eq!(expected.len(), SCAN_BLOCK);
            for (first, count) in [(0, 32), (0, 1), (5, 27), (30, 2), (9, 0)] {
                let mut short = vec![0; count * size];
                codec.block_of_codes(&codes[first * size..(first + count) * size], &mut short);
                let mut wide = vec![0xa5; codec.block_bytes()];
                codec.widen_block(&short, &mut wide);
                assert_eq!(scan(&wide, count), expected[first..first + count], "{kind} {first} {count}");
                if count == SCAN_BLOCK {
                    assert_eq!(short, full, "{kind}: a block of 32 codes equals that of the encoder");
                }
            }
        }
    }
}
