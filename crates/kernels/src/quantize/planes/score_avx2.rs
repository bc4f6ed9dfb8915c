//! Plane codes with AVX2: 32 bits of a plane are spread to 32 bytes by a shuffle and a compare.

use super::layout::WORD;
use super::quantizer::PlaneQuantizer;
use super::query::PlaneQuery;
use super::score::{LANES, Starts, Sums, drive};
use std::arch::x86_64::*;

/// # Safety
/// The CPU has AVX2; every id lies inside `codes`; `query` was made for `quantizer`.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn score(
    quantizer: &PlaneQuantizer,
    query: &PlaneQuery,
    codes: &[u8],
    ids: &[u32],
    out: &mut [f32],
) {
    // SAFETY: `drive` hands out starts of whole codes only.
    drive(quantizer, query, codes, ids, out, |starts| unsafe { sums(quantizer, query, starts) });
}

#[inline]
#[target_feature(enable = "avx2")]
unsafe fn sums(quantizer: &PlaneQuantizer, query: &PlaneQuery, starts: &Starts) -> Sums {
    let layout = &quantizer.layout;
    let mut out = ([0i32; LANES], [0i32; LANES]);
    for (lane, &start) in starts.iter().enumerate() {
        let (mut low, mut high) = (_mm256_setzero_si256(), _mm256_setzero_si256());
        for (w, &at) in layout.words.iter().enumerate() {
            for at_half in [0, 4] {
                let lanes = w * WORD + at_half * 8;
                // SAFETY: the layout's words lie inside a code; weights and query bytes are there for each of their
                // bits. (Bench: `code_table`.)
                let (bits, weights, bytes) = unsafe {
                    (
                        start.add(at + at_half).cast::<i32>().read_unaligned(),
                        _mm256_loadu_si256(layout.weights.as_ptr().add(lanes).cast()),
                        _mm256_loadu_si256(query.low.as_ptr().add(lanes).cast()),
                    )
                };
                let levels = _mm256_and_si256(spread(bits), weights);
                low = _mm256_add_epi32(low, products(levels, bytes));
                if !query.high.is_empty() {
                    // SAFETY: as above.
                    let bytes = unsafe { _mm256_loadu_si256(query.high.as_ptr().add(lanes).cast()) };
                    high = _mm256_add_epi32(high, products(levels, bytes));
                }
            }
        }
        (out.0[lane], out.1[lane]) = (reduce(low), reduce(high));
    }
    out
}

/// Bytes of all ones where a bit is set.
#[inline]
#[target_feature(enable = "avx2")]
fn spread(bits: i32) -> __m256i {
    let which = _mm256_setr_epi8(
        0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3,
    );
    let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201u64 as i64);
    let bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(bits), which);
    _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit)
}

/// Eight sums of four products each; 128 x -128 twice is the least that 16 bits hold, so nothing saturates.
#[inline]
#[target_feature(enable = "avx2")]
fn products(levels: __m256i, query: __m256i) -> __m256i {
    _mm256_madd_epi16(_mm256_maddubs_epi16(levels, query), _mm256_set1_epi16(1))
}

#[inline]
#[target_feature(enable = "avx2")]
fn reduce(v: __m256i) -> i32 {
    let half = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256::<1>(v));
    let pair = _mm_add_epi32(half, _mm_shuffle_epi32::<0b01_00_11_10>(half));
    _mm_cvtsi128_si32(_mm_add_epi32(pair, _mm_shuffle_epi32::<0b10_11_00_01>(pair)))
}
