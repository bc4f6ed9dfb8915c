//! Scoring of plane codes by id: sums of integer products, which are the same with every instruction set,
//! then one expression of floats.

use super::factors::{from_float, from_half};
use super::layout::WORD;
use super::quantizer::PlaneQuantizer;
use super::query::PlaneQuery;
#[cfg(target_arch = "x86_64")]
use super::{score_avx2, score_avx512};
use crate::distance::Isa;
use crate::quantize::code::prefetch::prefetch;

/// Codes in one pass. The arithmetic on their factors is done together.
pub(super) const LANES: usize = 16;
/// Addresses of the codes of a pass. If the pass is not full, the last one repeats.
pub(super) type Starts = [*const u8; LANES];
/// Sums of level x query byte over all dimensions: of the low bytes, and of the high bytes (0 if there are
/// none).
pub(super) type Sums = ([i32; LANES], [i32; LANES]);

/// Scores `ids`. The caller has checked that the code of each is within `codes`.
pub(in crate::quantize) fn score(
    isa: Isa,
    quantizer: &PlaneQuantizer,
    query: &PlaneQuery,
    codes: &[u8],
    ids: &[u32],
    out: &mut [f32],
) {
    let padded = quantizer.layout.weights.len();
    assert!(query.low.len() == padded, "prepared by another codec");
    assert!(query.high.len() == if quantizer.is_fine() { padded } else { 0 }, "prepared by another codec");
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512Vnni => {
            // SAFETY: the CPU has the instructions, the code of each id is within `codes`, the query fits the
            // layout.
            unsafe { score_avx512::score(quantizer, query, codes, ids, out) }
        }
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 | Isa::Avx512 => {
            // SAFETY: as above.
            unsafe { score_avx2::score(quantizer, query, codes, ids, out) }
        }
        _ => drive(quantizer, query, codes, ids, out, |starts| sums_scalar(quantizer, query, starts)),
    }
}

/// The loop around a kernel `sums`, which sums one pass. It is inlined into a function with the kernel's
/// instructions.
#[inline(always)]
pub(super) fn drive(
    quantizer: &PlaneQuantizer,
    query: &PlaneQuery,
    codes: &[u8],
    ids: &[u32],
    out: &mut [f32],
    sums: impl Fn(&Starts) -> Sums,
) {
    let bytes = quantizer.code_bytes();
    ids.iter().take(LANES).for_each(|&id| prefetch(codes, id as usize * bytes, bytes));
    for (pass, (ids_now, out_now)) in ids.chunks(LANES).zip(out.chunks_mut(LANES)).enumerate() {
        let next = (pass + 1) * LANES;
        for &later in &ids[next.min(ids.len())..(next + LANES).min(ids.len())] {
            prefetch(codes, later as usize * bytes, bytes);
        }
        let last = ids_now.len() - 1;
        let starts: Starts = std::array::from_fn(|lane| {
            let id = ids_now[lane.min(last)] as usize;
            // SAFETY: the caller has checked that the code of every id is within `codes`.
            unsafe { codes.as_ptr().add(id * bytes) }
        });
        let (low, high) = sums(&starts);
        let narrow = quantizer.layout.factor_bytes == 4;
        // SAFETY: a code has at least 8 bytes.
        let word = |lane: usize, i: usize| unsafe {
            u32::from_le(starts[lane].cast::<u32>().add(i).read_unaligned())
        };
        let first: [u32; LANES] = std::array::from_fn(|lane| word(lane, 0));
        let mut scores = [0.0f32; LANES];
        if narrow {
            for l in 0..LANES {
                let dot = low[l] as f32 + 256.0 * high[l] as f32 + query.offset;
                let base = query.bias + query.norm_factor * from_half(first[l]);
                scores[l] = base + query.gain_factor * (from_half(first[l] >> 16) * dot);
            }
        } else {
            let second: [u32; LANES] = std::array::from_fn(|lane| word(lane, 1));
            for l in 0..LANES {
                let dot = low[l] as f32 + 256.0 * high[l] as f32 + query.offset;
                let base = query.bias + query.norm_factor * from_float(first[l]);
                scores[l] = base + query.gain_factor * (from_float(second[l]) * dot);
            }
        }
        out_now.copy_from_slice(&scores[..=last]);
    }
}

/// The reference kernel, and the kernel for CPUs without another.
fn sums_scalar(quantizer: &PlaneQuantizer, query: &PlaneQuery, starts: &Starts) -> Sums {
    let mut sums = ([0; LANES], [0; LANES]);
    for (lane, &start) in starts.iter().enumerate() {
        // SAFETY: every start is the address of a complete code.
        let code = unsafe { std::slice::from_raw_parts(start, quantizer.code_bytes()) };
        for (w, &at) in quantizer.layout.words.iter().enumerate() {
            for bit in (0..WORD).filter(|bit| code[at + bit / 8] >> (bit % 8) & 1 == 1) {
                let weight = i32::from(quantizer.layout.weights[w * WORD + bit]);
                sums.0[lane] += weight * i32::from(query.low[w * WORD + bit]);
                if let Some(&high) = query.high.get(w * WORD + bit) {
                    sums.1[lane] += weight * i32::from(high);
                }
            }
        }
    }
    sums
}
