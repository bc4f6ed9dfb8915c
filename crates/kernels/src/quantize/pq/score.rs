//! Scoring of product codes by id: sums of table bytes, which are the same integers with every instruction
//! set.

#[cfg(target_arch = "x86_64")]
use super::score_avx512;
use super::{ProductQuantizer, ProductQuery};
use crate::distance::Isa;
use crate::quantize::code::prefetch::{PREFETCH_AHEAD, prefetch};

/// Number of ids from which transposing 64 codes and looking up 64 labels at once is faster than a load for
/// each label. A pass costs the same for 1 id and for 64. (Bench: `code_table`.)
#[cfg(target_arch = "x86_64")]
const TRANSPOSED_FROM: usize = 24;

/// Scores `ids`. The caller has checked that the code of each is within `codes`.
pub(in crate::quantize) fn score(
    isa: Isa,
    quantizer: &ProductQuantizer,
    query: &ProductQuery,
    codes: &[u8],
    ids: &[u32],
    out: &mut [f32],
) {
    let lookup = query.lookup(quantizer.bits());
    assert_eq!(lookup.tables.len(), quantizer.subspaces() << quantizer.bits(), "prepared by another codec");
    #[cfg(target_arch = "x86_64")]
    if score_avx512::is_available(isa) {
        let whole = ids.len() / 64 * 64;
        let split = if ids.len() - whole >= TRANSPOSED_FROM { ids.len() } else { whole };
        let (ids, last_ids) = ids.split_at(split);
        let (out, last_out) = out.split_at_mut(split);
        // SAFETY: the CPU has the instructions, the code of every id is within `codes`, and the tables are
        // complete.
        unsafe { score_avx512::score(lookup, quantizer.code_bytes(), codes, ids, out) };
        return one_by_one(lookup, quantizer.code_bytes(), codes, last_ids, last_out);
    }
    let _ = isa;
    one_by_one(lookup, quantizer.code_bytes(), codes, ids, out);
}

/// Byte tables of a query, and the terms that turn a sum of their entries into a distance: `bias + scale *
/// sum`.
#[derive(Clone, Copy)]
pub(super) struct Lookup<'a> {
    /// Bits of a label: 8 or 4.
    pub(super) bits: usize,
    pub(super) tables: &'a [u8],
    pub(super) scale: f32,
    pub(super) bias: f32,
}

fn one_by_one(lookup: Lookup<'_>, bytes: usize, codes: &[u8], ids: &[u32], out: &mut [f32]) {
    for (i, (&id, out)) in ids.iter().zip(out).enumerate() {
        if let Some(&later) = ids.get(i + PREFETCH_AHEAD) {
            prefetch(codes, later as usize * bytes, bytes);
        }
        let code = &codes[id as usize * bytes..(id as usize + 1) * bytes];
        let sum =
            if lookup.bits == 8 { sum_bytes(lookup.tables, code) } else { sum_nibbles(lookup.tables, code) };
        *out = lookup.bias + lookup.scale * sum as f32;
    }
}

fn sum_bytes(tables: &[u8], code: &[u8]) -> u32 {
    debug_assert_eq!(tables.len(), code.len() * 256);
    let mut sums = [0u32; 2];
    for (s, &label) in code.iter().enumerate() {
        // SAFETY: `tables` holds 256 bytes for each byte of a code, as `score` asserts. (Bench:
        // `code_table`.)
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
