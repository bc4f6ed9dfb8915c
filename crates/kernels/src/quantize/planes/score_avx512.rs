//! Scoring of plane codes with AVX-512: 64 bits are a mask of 64 weights, which VNNI multiplies by the query
//! and sums.

use super::layout::WORD;
use super::quantizer::PlaneQuantizer;
use super::query::PlaneQuery;
use super::score::{LANES, Starts, Sums, drive};
use std::arch::x86_64::*;

/// Codes that are summed at the same time, to hide latency and to share the final reduction.
const SIDE: usize = 8;

/// # Safety
/// The CPU has AVX-512 F, BW, VL and VNNI; the code of every id is within `codes`; `query` is prepared for
/// `quantizer`.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) unsafe fn score(
    quantizer: &PlaneQuantizer,
    query: &PlaneQuery,
    codes: &[u8],
    ids: &[u32],
    out: &mut [f32],
) {
    if query.high.is_empty() {
        // SAFETY: `drive` passes only addresses of complete codes.
        drive(quantizer, query, codes, ids, out, |starts| unsafe { sums::<false>(quantizer, query, starts) });
    } else {
        // SAFETY: as above.
        drive(quantizer, query, codes, ids, out, |starts| unsafe { sums::<true>(quantizer, query, starts) });
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn sums<const FINE: bool>(quantizer: &PlaneQuantizer, query: &PlaneQuery, starts: &Starts) -> Sums {
    let layout = &quantizer.layout;
    let mut out = ([0i32; LANES], [0i32; LANES]);
    for first in (0..LANES).step_by(SIDE) {
        let mut low = [_mm512_setzero_si512(); SIDE];
        let mut high = [_mm512_setzero_si512(); SIDE];
        for (w, &at) in layout.words.iter().enumerate() {
            // SAFETY: there are weights and query bytes for every word. (Bench: `code_table`.)
            let (weights, query_low) = unsafe {
                (
                    _mm512_loadu_si512(layout.weights.as_ptr().add(w * WORD).cast()),
                    _mm512_loadu_si512(query.low.as_ptr().add(w * WORD).cast()),
                )
            };
            let mut levels = [_mm512_setzero_si512(); SIDE];
            for c in 0..SIDE {
                // SAFETY: the words of the layout are within a code.
                let mask = unsafe { starts[first + c].add(at).cast::<u64>().read_unaligned() };
                levels[c] = _mm512_maskz_mov_epi8(mask, weights);
                low[c] = _mm512_dpbusd_epi32(low[c], levels[c], query_low);
            }
            if FINE {
                // SAFETY: as above.
                let query_high = unsafe { _mm512_loadu_si512(query.high.as_ptr().add(w * WORD).cast()) };
                for c in 0..SIDE {
                    high[c] = _mm512_dpbusd_epi32(high[c], levels[c], query_high);
                }
            }
        }
        // SAFETY: `first + 8` is at most 16.
        unsafe {
            _mm256_storeu_si256(out.0.as_mut_ptr().add(first).cast(), reduce(low));
            if FINE {
                _mm256_storeu_si256(out.1.as_mut_ptr().add(first).cast(), reduce(high));
            }
        }
    }
    out
}

/// Returns the sums over the lanes of eight registers, in order.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn reduce(v: [__m512i; SIDE]) -> __m256i {
    let fold = |a, b| _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    let fold_pairs = |a, b| _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    let first = fold_pairs(fold(v[0], v[1]), fold(v[2], v[3]));
    let second = fold_pairs(fold(v[4], v[5]), fold(v[6], v[7]));
    let halves = |a| _mm256_add_epi32(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64::<1>(a));
    let (first, second) = (halves(first), halves(second));
    _mm256_add_epi32(
        _mm256_permute2x128_si256::<0x20>(first, second),
        _mm256_permute2x128_si256::<0x31>(first, second),
    )
}
