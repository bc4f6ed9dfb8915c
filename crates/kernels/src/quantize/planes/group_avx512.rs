//! Scans of groups with AVX-512. A register holds a word of 16 codes. One permutation looks up four tables of
//! 16 entries, and VNNI weights and sums the four entries of each code.

use super::group::{GroupQuery, ScoreTerms};
use super::layout::{GROUP_WORD, PlaneLayout};
use super::quantizer::PlaneQuantizer;
use crate::quantize::code::block::GroupScan;
use crate::quantize::code::block::SCAN_BLOCK;
use crate::quantize::code::prefetch::prefetch_group;
use crate::topk::Neighbor;
use std::arch::x86_64::*;

/// Codes in a register.
const LANES: usize = 16;

/// # Safety
/// The CPU has AVX-512 F, BW, DQ and VL.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn fill_tables(quantizer: &PlaneQuantizer, query: &mut GroupQuery) {
    quantizer.fill_tables_by(query, |values, first, step| sums_of(values, first, step));
}

/// Computes the same table as [`super::group::sums_of`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn sums_of(values: &[f32; 4], first: f32, step: f32) -> [u8; 16] {
    let mut sums = _mm512_set1_ps(first);
    for (value, sets) in values.iter().zip([0xaaaa, 0xcccc, 0xf0f0, 0xff00]) {
        sums = _mm512_mask_add_ps(sums, sets, sums, _mm512_set1_ps(*value));
    }
    let steps = _mm512_add_ps(_mm512_mul_ps(sums, _mm512_set1_ps(step)), _mm512_set1_ps(0.5));
    // NaN becomes 0.
    let whole = _mm512_cvttps_epi32(_mm512_max_ps(steps, _mm512_setzero_ps()));
    let mut bytes = [0; 16];
    // SAFETY: the array has 16 bytes.
    unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), _mm512_cvtusepi32_epi8(whole)) };
    bytes
}

/// # Safety
/// The CPU has AVX-512 F, BW, VL, VBMI and VNNI; the group's blocks are whole blocks of `layout` that hold
/// its codes; `query` has two quads of tables and of weights for each word.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni")]
pub(super) unsafe fn scan(
    layout: &PlaneLayout,
    query: &GroupQuery,
    terms: ScoreTerms,
    group: &GroupScan<'_>,
    hits: &mut Vec<Neighbor>,
) {
    let block_bytes = SCAN_BLOCK * layout.code_bytes;
    let tail = TailWord::new(layout.plane_bytes % GROUP_WORD);
    let full = layout.plane_bytes / GROUP_WORD;
    let threshold = _mm512_set1_ps(group.threshold);
    for b in 0..group.count.div_ceil(SCAN_BLOCK) {
        let block = &group.blocks[b * block_bytes..(b + 1) * block_bytes];
        let mut sums = [_mm512_setzero_si512(); 2];
        // One block at a time. Prefetches of all blocks at once would fill the queue of misses, and the scan
        // would wait.
        if group.next.len() >= (b + 1) * block_bytes {
            prefetch_group(group.next, b * block_bytes, block_bytes);
        }
        // SAFETY: words and tables are where the layout has them. (Bench: `group_table`.)
        unsafe {
            let words = block.as_ptr().add(SCAN_BLOCK * layout.factor_bytes);
            for w in 0..full {
                let at = words.add(w * SCAN_BLOCK * GROUP_WORD);
                let labels = [_mm512_loadu_si512(at.cast()), _mm512_loadu_si512(at.add(64).cast())];
                add_word(query, w, labels, &mut sums);
            }
            if tail.width > 0 {
                let at = words.add(full * SCAN_BLOCK * GROUP_WORD);
                add_word(query, full, [tail.load(at), tail.load(at.add(LANES * tail.width))], &mut sums);
            }
        }
        // SAFETY: the factors of 32 codes are at the start of the block.
        let scores = unsafe { scores(layout.factor_bytes == 4, block.as_ptr(), sums, terms) };
        let below = |half: usize| u32::from(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(scores[half], threshold));
        let kept = (below(0) | below(1) << LANES) & group.lanes(b);
        if kept != 0 {
            push(scores, kept, group.first.wrapping_add((b * SCAN_BLOCK) as u32), hits);
        }
    }
}

/// Masks for the last word of a code if it has fewer than four bytes.
struct TailWord {
    /// Bytes of the word.
    width: usize,
    /// Mask of the bytes to load.
    loaded: u64,
    /// Permutation that spreads the loaded bytes to words of four bytes.
    spread: __m512i,
    /// Mask of the bytes of these words that hold codes.
    kept: u64,
}

impl TailWord {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni")]
    fn new(width: usize) -> Self {
        let from: [u8; 64] = std::array::from_fn(|i| (i / GROUP_WORD * width + i % GROUP_WORD) as u8);
        TailWord {
            width,
            loaded: (1u64 << (LANES * width)) - 1,
            // SAFETY: the array is 64 bytes.
            spread: unsafe { _mm512_loadu_si512(from.as_ptr().cast()) },
            kept: 0x1111_1111_1111_1111 * ((1 << width) - 1),
        }
    }

    /// # Safety
    /// `16 x width` bytes are readable at `at`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni")]
    unsafe fn load(&self, at: *const u8) -> __m512i {
        // SAFETY: the mask reads no more than that.
        let bytes = unsafe { _mm512_maskz_loadu_epi8(self.loaded, at.cast()) };
        _mm512_maskz_permutexvar_epi8(self.kept, self.spread, bytes)
    }
}

/// Adds the table entries that word `w` of 32 codes selects.
///
/// # Safety
/// The query has tables and weights of word `w`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni")]
unsafe fn add_word(query: &GroupQuery, w: usize, labels: [__m512i; 2], sums: &mut [__m512i; 2]) {
    let nibble = _mm512_set1_epi8(15);
    // The position of a byte in its word is the number of its table.
    let table = _mm512_set1_epi32(0x3020_1000);
    // SAFETY: the caller guarantees it.
    let (low, high, low_weights, high_weights) = unsafe {
        (
            _mm512_load_si512(query.tables.as_ptr().add(2 * w).cast()),
            _mm512_load_si512(query.tables.as_ptr().add(2 * w + 1).cast()),
            _mm512_set1_epi32(query.weights.as_ptr().add(2 * w).cast::<i32>().read_unaligned()),
            _mm512_set1_epi32(query.weights.as_ptr().add(2 * w + 1).cast::<i32>().read_unaligned()),
        )
    };
    for (sum, label) in sums.iter_mut().zip(labels) {
        // (label and nibble) or table
        let lower = _mm512_ternarylogic_epi32::<0xEA>(label, nibble, table);
        let upper = _mm512_ternarylogic_epi32::<0xEA>(_mm512_srli_epi32::<4>(label), nibble, table);
        *sum = _mm512_dpbusd_epi32(*sum, _mm512_permutexvar_epi8(lower, low), low_weights);
        *sum = _mm512_dpbusd_epi32(*sum, _mm512_permutexvar_epi8(upper, high), high_weights);
    }
}

/// # Safety
/// `block` starts with the factors of 32 codes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni")]
unsafe fn scores(narrow: bool, block: *const u8, sums: [__m512i; 2], terms: ScoreTerms) -> [__m512; 2] {
    let factor = |i: usize| {
        // SAFETY: `i` is below 4: two registers of norms, then two of gains.
        unsafe {
            if narrow {
                _mm512_cvtph_ps(_mm256_loadu_si256(block.add(i * 32).cast()))
            } else {
                _mm512_loadu_ps(block.add(i * 64).cast())
            }
        }
    };
    let (base, unit) = (_mm512_set1_ps(terms.base), _mm512_set1_ps(terms.norm_unit));
    let (offset, scale) = (_mm512_set1_ps(terms.offset), _mm512_set1_ps(terms.scale));
    let score = |half: usize| {
        // Without fused operations the floats equal those of the scalar kernel.
        let dot = _mm512_add_ps(offset, _mm512_mul_ps(scale, _mm512_cvtepi32_ps(sums[half])));
        let norm = _mm512_add_ps(base, _mm512_mul_ps(unit, factor(half)));
        _mm512_add_ps(norm, _mm512_mul_ps(factor(2 + half), dot))
    };
    [score(0), score(1)]
}

/// Appends the lanes in the mask `kept`, in order.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni")]
fn push(scores: [__m512; 2], kept: u32, first: u32, hits: &mut Vec<Neighbor>) {
    hits.reserve(SCAN_BLOCK);
    let lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    let low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    let high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    let mut length = hits.len();
    for (half, score) in scores.into_iter().enumerate() {
        let ids =
            _mm512_add_epi32(lanes, _mm512_set1_epi32(first.wrapping_add((half * LANES) as u32) as i32));
        let distances = _mm512_castps_si512(score);
        for (quarter, order) in [low, high].into_iter().enumerate() {
            let mask = (kept >> (half * LANES + quarter * 8)) as u8;
            let pairs = _mm512_permutex2var_epi32(distances, order, ids);
            // SAFETY: a neighbour is a distance and an id, in this order. At most 24 of the 32 reserved
            // elements are filled before the last 8 are written, and `length` counts only those in the mask.
            unsafe {
                let packed = _mm512_maskz_compress_epi64(mask, pairs);
                _mm512_storeu_si512(hits.as_mut_ptr().add(length).cast(), packed);
            }
            length += mask.count_ones() as usize;
        }
    }
    // SAFETY: the loop has written these elements.
    unsafe { hits.set_len(length) };
}
