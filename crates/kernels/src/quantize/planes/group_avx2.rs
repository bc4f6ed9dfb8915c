//! Scans of groups with AVX2. The four bytes of 32 codes are transposed so that a register holds one byte of
//! each code. Shuffles look up both halves of each byte, and the weighted sum of the two entries is a 16-bit
//! number.

use super::group::{GroupQuery, ScoreTerms, sums_of};
use super::layout::{GROUP_WORD, PlaneLayout};
use super::quantizer::PlaneQuantizer;
use crate::quantize::code::block::GroupScan;
use crate::quantize::code::block::SCAN_BLOCK;
use crate::quantize::code::prefetch::prefetch_group;
use crate::topk::Neighbor;
use std::arch::x86_64::*;

/// Codes in a register of 32-bit sums.
const LANES: usize = 8;
/// Registers of sums for a block.
const PARTS: usize = SCAN_BLOCK / LANES;
/// Bytes of a word of 32 codes.
const WORD_BYTES: usize = SCAN_BLOCK * GROUP_WORD;

/// # Safety
/// The CPU has AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn fill_tables(quantizer: &PlaneQuantizer, query: &mut GroupQuery) {
    quantizer.fill_tables_by(query, sums_of);
}

/// # Safety
/// The CPU has AVX2 and F16C; the group's blocks are whole blocks of `layout` that hold its codes; `query`
/// has two quads of tables and of weights for each word.
#[target_feature(enable = "avx2,f16c")]
pub(super) unsafe fn scan(
    layout: &PlaneLayout,
    query: &GroupQuery,
    terms: ScoreTerms,
    group: &GroupScan<'_>,
    hits: &mut Vec<Neighbor>,
) {
    let block_bytes = SCAN_BLOCK * layout.code_bytes;
    let width = layout.plane_bytes % GROUP_WORD;
    let full = layout.plane_bytes / GROUP_WORD;
    for b in 0..group.count.div_ceil(SCAN_BLOCK) {
        let block = &group.blocks[b * block_bytes..(b + 1) * block_bytes];
        if group.next.len() >= (b + 1) * block_bytes {
            prefetch_group(group.next, b * block_bytes, block_bytes);
        }
        let mut sums = [_mm256_setzero_si256(); PARTS];
        let words = &block[SCAN_BLOCK * layout.factor_bytes..];
        for w in 0..full {
            let word = &words[w * WORD_BYTES..(w + 1) * WORD_BYTES];
            // SAFETY: the word is complete, and the query has tables for each word. (Bench: `group_table`.)
            unsafe { add_word(query, w, word.as_ptr(), &mut sums) };
        }
        if width > 0 {
            let mut word = [0u8; WORD_BYTES];
            let codes = words[full * WORD_BYTES..].chunks_exact(width);
            word.chunks_exact_mut(GROUP_WORD)
                .zip(codes)
                .for_each(|(w, code)| w[..width].copy_from_slice(code));
            // SAFETY: as above.
            unsafe { add_word(query, full, word.as_ptr(), &mut sums) };
        }
        let mut scores = [0.0f32; SCAN_BLOCK];
        let mut kept = 0;
        for (part, sum) in sums.into_iter().enumerate() {
            // SAFETY: the factors of 32 codes are at the start of the block.
            let score = unsafe { score(layout.factor_bytes == 4, block.as_ptr(), part, sum, terms) };
            let below = _mm256_cmp_ps::<_CMP_LT_OQ>(score, _mm256_set1_ps(group.threshold));
            kept |= (_mm256_movemask_ps(below) as u32) << (part * LANES);
            // SAFETY: there are 32 scores.
            unsafe { _mm256_storeu_ps(scores.as_mut_ptr().add(part * LANES), score) };
        }
        kept &= group.lanes(b);
        while kept != 0 {
            let lane = kept.trailing_zeros();
            let id = group.first.wrapping_add((b * SCAN_BLOCK) as u32 + lane);
            hits.push(Neighbor { distance: scores[lane as usize], id });
            kept &= kept - 1;
        }
    }
}

/// Adds the table entries that word `w` of 32 codes selects.
///
/// # Safety
/// `word` has 128 bytes; the query has tables and weights of word `w`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn add_word(query: &GroupQuery, w: usize, word: *const u8, sums: &mut [__m256i; PARTS]) {
    // SAFETY: the caller guarantees it.
    let part = |i: usize| unsafe { _mm256_loadu_si256(word.add(i * 32).cast()) };
    let order =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    let shuffled: [__m256i; PARTS] = std::array::from_fn(|i| _mm256_shuffle_epi8(part(i), order));
    let (low_a, low_b) =
        (_mm256_unpacklo_epi32(shuffled[0], shuffled[1]), _mm256_unpacklo_epi32(shuffled[2], shuffled[3]));
    let (high_a, high_b) =
        (_mm256_unpackhi_epi32(shuffled[0], shuffled[1]), _mm256_unpackhi_epi32(shuffled[2], shuffled[3]));
    // Byte j of codes 0-3, 8-11, 16-19, 24-27, then of the other halves.
    let bytes = [
        _mm256_unpacklo_epi64(low_a, low_b),
        _mm256_unpackhi_epi64(low_a, low_b),
        _mm256_unpacklo_epi64(high_a, high_b),
        _mm256_unpackhi_epi64(high_a, high_b),
    ];
    let (nibble, zero) = (_mm256_set1_epi8(15), _mm256_setzero_si256());
    let mut products = [zero; 2];
    for (j, labels) in bytes.into_iter().enumerate() {
        // SAFETY: as above.
        let table = |half: usize| unsafe {
            let quad = query.tables.as_ptr().add(2 * w + half).cast::<__m128i>();
            _mm256_broadcastsi128_si256(_mm_load_si128(quad.add(j)))
        };
        let low = _mm256_shuffle_epi8(table(0), _mm256_and_si256(labels, nibble));
        let high = _mm256_shuffle_epi8(table(1), _mm256_and_si256(_mm256_srli_epi16::<4>(labels), nibble));
        let pair = u16::from_le_bytes([query.weights[2 * w][j], query.weights[2 * w + 1][j]]);
        let weights = _mm256_set1_epi16(pair as i16);
        let first = _mm256_maddubs_epi16(_mm256_unpacklo_epi8(low, high), weights);
        let second = _mm256_maddubs_epi16(_mm256_unpackhi_epi8(low, high), weights);
        // Two products of at most 32640 fit an unsigned 16-bit number; four would not.
        if j % 2 == 0 {
            products = [first, second];
            continue;
        }
        products = [_mm256_add_epi16(products[0], first), _mm256_add_epi16(products[1], second)];
        sums[0] = _mm256_add_epi32(sums[0], _mm256_unpacklo_epi16(products[0], zero));
        sums[1] = _mm256_add_epi32(sums[1], _mm256_unpackhi_epi16(products[0], zero));
        sums[2] = _mm256_add_epi32(sums[2], _mm256_unpacklo_epi16(products[1], zero));
        sums[3] = _mm256_add_epi32(sums[3], _mm256_unpackhi_epi16(products[1], zero));
    }
}

/// # Safety
/// `block` starts with the factors of 32 codes, of which `part` picks eight.
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn score(narrow: bool, block: *const u8, part: usize, sum: __m256i, terms: ScoreTerms) -> __m256 {
    let factor = |i: usize| {
        // SAFETY: four registers of norms, then four of gains.
        unsafe {
            if narrow {
                _mm256_cvtph_ps(_mm_loadu_si128(block.add((i * PARTS + part) * 16).cast()))
            } else {
                _mm256_loadu_ps(block.add((i * PARTS + part) * 32).cast())
            }
        }
    };
    // Without fused operations the floats equal those of the scalar kernel.
    let scaled = _mm256_mul_ps(_mm256_set1_ps(terms.scale), _mm256_cvtepi32_ps(sum));
    let dot = _mm256_add_ps(_mm256_set1_ps(terms.offset), scaled);
    let norm = _mm256_mul_ps(_mm256_set1_ps(terms.norm_unit), factor(0));
    let base = _mm256_add_ps(_mm256_set1_ps(terms.base), norm);
    _mm256_add_ps(base, _mm256_mul_ps(factor(1), dot))
}
