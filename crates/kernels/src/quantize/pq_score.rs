//! Scoring of product codes id by id: sums of table bytes, the same integer on every instruction set.

use super::pq::ProductQuantizer;
use super::{CodeQuery, PREFETCH_AHEAD};

/// Scores `ids`, each of which the caller has checked to lie inside `codes`.
pub(super) fn score(
    quantizer: &ProductQuantizer,
    query: &CodeQuery,
    codes: &[u8],
    ids: &[u32],
    out: &mut [f32],
) {
    let bytes = quantizer.code_bytes();
    assert_eq!(
        query.tables.len(),
        quantizer.subspaces() << quantizer.bits(),
        "a query prepared by another codec"
    );
    for (i, (&id, out)) in ids.iter().zip(out).enumerate() {
        if let Some(&later) = ids.get(i + PREFETCH_AHEAD) {
            prefetch(codes, later as usize * bytes);
        }
        let code = &codes[id as usize * bytes..(id as usize + 1) * bytes];
        let sum = if quantizer.bits() == 8 {
            sum_bytes(&query.tables, code)
        } else {
            sum_nibbles(&query.tables, code)
        };
        *out = query.bias + query.scale * sum as f32;
    }
}

fn sum_bytes(tables: &[u8], code: &[u8]) -> u32 {
    debug_assert_eq!(tables.len(), code.len() * 256);
    let mut sums = [0u32; 2];
    for (s, &label) in code.iter().enumerate() {
        // SAFETY: `tables` holds 256 bytes for each byte of a code, as `score` asserts. (Bench: `code_table`.)
        sums[s & 1] += u32::from(unsafe { *tables.get_unchecked(s * 256 + usize::from(label)) });
    }
    sums[0] + sums[1]
}

fn sum_nibbles(tables: &[u8], code: &[u8]) -> u32 {
    let mut sum = 0;
    for (byte, pair) in code.iter().zip(tables.chunks(32)) {
        sum += u32::from(pair[usize::from(byte & 15)]);
        // An odd last subspace leaves the high half of the last byte unused.
        sum += u32::from(pair.get(16 + usize::from(byte >> 4)).copied().unwrap_or(0));
    }
    sum
}

/// Asks for the cache line of `codes[at]`; addresses outside the slice are not touched.
#[inline(always)]
pub(super) fn prefetch(codes: &[u8], at: usize) {
    if at < codes.len() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the address lies inside `codes`; a prefetch reads nothing. (Bench: `code_table`.)
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(codes.as_ptr().add(at).cast());
        }
    }
}
