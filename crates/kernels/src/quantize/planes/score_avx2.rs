//! Plane codes with AVX2: 32 bits of a plane are spread to 32 bytes by a shuffle and a compare.

use super::score::{LANES, Starts, Sums, drive};
use super::{BLOCK, PlaneQuantizer, PlaneQuery};
use std::arch::x86_64::*;

/// The plane that VPMADDUBSW cannot take with the others: two products of 255 x 127 overflow its 16 bits.
const TOP_PLANE: usize = 7;

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
    let mut out = ([0i32; LANES], [0i32; LANES]);
    for (lane, &start) in starts.iter().enumerate() {
        let (mut low, mut high) = (_mm256_setzero_si256(), _mm256_setzero_si256());
        for (block, chunks) in quantizer.layout.blocks.iter().enumerate() {
            let mut levels = [_mm256_setzero_si256(); 2];
            let mut top = [_mm256_setzero_si256(); 2];
            for chunk in chunks {
                // SAFETY: the layout's chunks lie inside a code. (Bench: `code_table`.)
                let word = unsafe { start.add(chunk.at).cast::<u64>().read_unaligned() };
                let mask = (word >> chunk.shift) & chunk.keep;
                for (half, bits) in [mask as u32, (mask >> 32) as u32].into_iter().enumerate() {
                    if chunk.plane == TOP_PLANE {
                        top[half] = spread(bits, 1);
                    } else {
                        levels[half] = _mm256_or_si256(levels[half], spread(bits, 1 << chunk.plane));
                    }
                }
            }
            for half in 0..2 {
                let at = block * BLOCK + half * 32;
                // SAFETY: the query is padded to whole blocks.
                let bytes = unsafe { _mm256_loadu_si256(query.low.as_ptr().add(at).cast()) };
                low = _mm256_add_epi32(low, products(levels[half], top[half], bytes));
                if !query.high.is_empty() {
                    // SAFETY: as above.
                    let bytes = unsafe { _mm256_loadu_si256(query.high.as_ptr().add(at).cast()) };
                    high = _mm256_add_epi32(high, products(levels[half], top[half], bytes));
                }
            }
        }
        (out.0[lane], out.1[lane]) = (reduce(low), reduce(high));
    }
    out
}

/// Bytes of `weight` where a bit is set.
#[inline]
#[target_feature(enable = "avx2")]
fn spread(bits: u32, weight: i8) -> __m256i {
    let which = _mm256_setr_epi8(
        0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3,
    );
    let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201u64 as i64);
    let bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(bits as i32), which);
    let set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit);
    _mm256_and_si256(set, _mm256_set1_epi8(weight))
}

/// Eight sums of four products each.
#[inline]
#[target_feature(enable = "avx2")]
fn products(levels: __m256i, top: __m256i, query: __m256i) -> __m256i {
    let lower = _mm256_madd_epi16(_mm256_maddubs_epi16(levels, query), _mm256_set1_epi16(1));
    let upper = _mm256_madd_epi16(_mm256_maddubs_epi16(top, query), _mm256_set1_epi16(128));
    _mm256_add_epi32(lower, upper)
}

#[inline]
#[target_feature(enable = "avx2")]
fn reduce(v: __m256i) -> i32 {
    let half = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256::<1>(v));
    let pair = _mm_add_epi32(half, _mm_shuffle_epi32::<0b01_00_11_10>(half));
    _mm_cvtsi128_si32(_mm_add_epi32(pair, _mm_shuffle_epi32::<0b10_11_00_01>(pair)))
}
