//! Plane codes with AVX-512: 64 bits of a plane are a mask that adds `2^p` to 64 levels; VNNI multiplies and sums.

use super::score::{LANES, Starts, Sums, drive};
use super::{BLOCK, PlaneQuantizer, PlaneQuery};
use std::arch::x86_64::*;

/// Codes that are summed side by side, to hide latency and to share the final reduction.
const SIDE: usize = 4;

/// # Safety
/// The CPU has AVX-512 F, BW, VL and VNNI; every id lies inside `codes`; `query` was made for `quantizer`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) unsafe fn score(
    quantizer: &PlaneQuantizer,
    query: &PlaneQuery,
    codes: &[u8],
    ids: &[u32],
    out: &mut [f32],
) {
    if query.high.is_empty() {
        // SAFETY: `drive` hands out starts of whole codes only.
        drive(quantizer, query, codes, ids, out, |starts| unsafe { sums::<false>(quantizer, query, starts) });
    } else {
        // SAFETY: as above.
        drive(quantizer, query, codes, ids, out, |starts| unsafe { sums::<true>(quantizer, query, starts) });
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn sums<const FINE: bool>(quantizer: &PlaneQuantizer, query: &PlaneQuery, starts: &Starts) -> Sums {
    let mut out = ([0i32; LANES], [0i32; LANES]);
    for first in (0..LANES).step_by(SIDE) {
        let mut low = [_mm512_setzero_si512(); SIDE];
        let mut high = [_mm512_setzero_si512(); SIDE];
        for (block, chunks) in quantizer.layout.blocks.iter().enumerate() {
            let mut levels = [_mm512_setzero_si512(); SIDE];
            for chunk in chunks {
                let weight = _mm512_set1_epi8((1u8 << chunk.plane) as i8);
                for c in 0..SIDE {
                    // SAFETY: the layout's chunks lie inside a code. (Bench: `code_table`.)
                    let word = unsafe { starts[first + c].add(chunk.at).cast::<u64>().read_unaligned() };
                    let mask = (word >> chunk.shift) & chunk.keep;
                    levels[c] = _mm512_mask_add_epi8(levels[c], mask, levels[c], weight);
                }
            }
            // SAFETY: the query is padded to whole blocks.
            let query_low = unsafe { _mm512_loadu_si512(query.low.as_ptr().add(block * BLOCK).cast()) };
            for c in 0..SIDE {
                low[c] = _mm512_dpbusd_epi32(low[c], levels[c], query_low);
            }
            if FINE {
                // SAFETY: as above.
                let query_high = unsafe { _mm512_loadu_si512(query.high.as_ptr().add(block * BLOCK).cast()) };
                for c in 0..SIDE {
                    high[c] = _mm512_dpbusd_epi32(high[c], levels[c], query_high);
                }
            }
        }
        // SAFETY: `first + 4` is at most 16.
        unsafe {
            _mm_storeu_si128(out.0.as_mut_ptr().add(first).cast(), reduce(low));
            if FINE {
                _mm_storeu_si128(out.1.as_mut_ptr().add(first).cast(), reduce(high));
            }
        }
    }
    out
}

/// The sums of four vectors, in order.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn reduce(v: [__m512i; SIDE]) -> __m128i {
    let fold = |a, b| _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    let (ab, cd) = (fold(v[0], v[1]), fold(v[2], v[3]));
    let all = _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
    let half = _mm256_add_epi32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64::<1>(all));
    _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256::<1>(half))
}
