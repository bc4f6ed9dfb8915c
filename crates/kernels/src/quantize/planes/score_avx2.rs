//! Scoring of plane codes with AVX2: a shuffle and a compare spread 32 bits of a plane to 32 bytes.

use super::layout::WORD;
use super::quantizer::PlaneQuantizer;
use super::query::PlaneQuery;
use super::score::{LANES, Starts, Sums, drive};
use std::arch::x86_64::*;

/// # Safety
/// The CPU has AVX2; the code of every id is within `codes`; `query` is prepared for `quantizer`.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn score(
    quantizer: &PlaneQuantizer,
    query: &PlaneQuery,
    codes: &[u8],
    ids: &[u32],
    out: &mut [f32],
) {
    // SAFETY: `drive` passes only addresses of complete codes.
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
                // SAFETY: the words of the layout are within a code; there are weights and query bytes for
                // each of their bits. (Bench: `code_table`.)
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

/// Returns a byte of all ones for each set bit, and a zero byte for the others.
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

/// Returns eight sums of four products each. Two products of 128 x -128 are the least 16-bit number, so
/// nothing saturates.
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
