//! Selection with AVX-512: two passes over all that count and move what is below a bracket, and the standard library for the
//! few within it.

use super::Neighbor;
use std::arch::x86_64::*;

/// Neighbours of a register.
const LANES: usize = 8;
/// Most neighbours within a bracket.
const MOST_WITHIN: usize = 1024;

/// What [`super::select::keep_nearest`] does, for more than `wanted` neighbours; `None`, and nothing done, if the last of the
/// wanted ones has a key that is not above `low` and up to `high`, or very many have.
///
/// # Safety
/// The CPU has AVX-512 F, BW, DQ and VL.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) unsafe fn keep_nearest(
    found: &mut Vec<Neighbor>,
    wanted: usize,
    low: u64,
    high: u64,
) -> Option<f32> {
    let (below, up_to) = count(found, low, high);
    let within = up_to - below;
    if below >= wanted || up_to < wanted || within > MOST_WITHIN {
        return None;
    }
    let mut between = [Neighbor { distance: 0.0, id: 0 }; MOST_WITHIN + LANES];
    // SAFETY: the CPU has the instructions, and as many are between as there is room for.
    unsafe { divide(found, low, high, &mut between) };
    let (nearest, worst, _) = between[..within].select_nth_unstable(wanted - below - 1);
    found.truncate(below);
    found.extend_from_slice(nearest);
    found.push(*worst);
    Some(worst.distance)
}

/// How many neighbours have keys up to `low`, and up to `high`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn count(found: &[Neighbor], low: u64, high: u64) -> (usize, usize) {
    let (low, high) = (_mm512_set1_epi64(low.cast_signed()), _mm512_set1_epi64(high.cast_signed()));
    let (mut below, mut up_to) = (0, 0);
    for chunk in found.chunks(LANES) {
        let lanes = lanes_of(chunk.len());
        // SAFETY: only lanes within the chunk are loaded.
        let keys = keys(unsafe { _mm512_maskz_loadu_epi64(lanes, chunk.as_ptr().cast()) });
        below += _mm512_mask_cmple_epu64_mask(lanes, keys, low).count_ones();
        up_to += _mm512_mask_cmple_epu64_mask(lanes, keys, high).count_ones();
    }
    (below as usize, up_to as usize)
}

/// Moves the neighbours whose keys are up to `low` to the front, and copies those above it and up to `high` to `between`.
///
/// # Safety
/// The CPU has the instructions; `between` has room for a register more than it is given.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn divide(found: &mut [Neighbor], low: u64, high: u64, between: &mut [Neighbor]) {
    let (low, high) = (_mm512_set1_epi64(low.cast_signed()), _mm512_set1_epi64(high.cast_signed()));
    let (len, front, others) = (found.len(), found.as_mut_ptr(), between.as_mut_ptr());
    let (mut kept, mut copied) = (0, 0);
    for first in (0..len).step_by(LANES) {
        let lanes = lanes_of(len - first);
        // SAFETY: only lanes within `found` are loaded.
        let neighbours = unsafe { _mm512_maskz_loadu_epi64(lanes, front.add(first).cast()) };
        let keys = keys(neighbours);
        let below = _mm512_mask_cmple_epu64_mask(lanes, keys, low);
        let within = _mm512_mask_cmple_epu64_mask(lanes & !below, keys, high);
        let moved = _mm512_maskz_compress_epi64(below, neighbours);
        // SAFETY: `kept` is not beyond `first`, so these lanes lie within `found`, and those that are overwritten and were
        // not kept have been loaded.
        unsafe { _mm512_mask_storeu_epi64(front.add(kept).cast(), lanes, moved) };
        let moved = _mm512_maskz_compress_epi64(within, neighbours);
        // SAFETY: there is room for a register behind what was counted.
        unsafe { _mm512_storeu_epi64(others.add(copied).cast(), moved) };
        kept += below.count_ones() as usize;
        copied += within.count_ones() as usize;
    }
}

/// The first `count` lanes, or all.
#[inline(always)]
fn lanes_of(count: usize) -> __mmask8 {
    if count >= LANES { !0 } else { (1 << count) - 1 }
}

/// [`Neighbor::key`] of each.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn keys(neighbours: __m512i) -> __m512i {
    // The distance is the lower half.
    let values = _mm512_castsi512_ps(neighbours);
    let zeroed = _mm512_castps_si512(_mm512_mask_add_ps(values, 0x5555, values, _mm512_setzero_ps()));
    let turned = _mm512_rol_epi64::<32>(zeroed);
    let negative = _mm512_srai_epi64::<63>(turned);
    let flip = _mm512_and_si512(negative, _mm512_set1_epi64(0x7fff_ffff_0000_0000));
    let flip = _mm512_or_si512(flip, _mm512_set1_epi64(i64::MIN));
    _mm512_xor_si512(turned, flip)
}
