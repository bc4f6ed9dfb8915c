//! Scoring of product codes with AVX-512, 64 codes at a time. Their bytes are transposed in registers, so
//! that a register holds one label of each code, and one table lookup serves 64 codes (VPERMI2B for 256
//! entries, VPSHUFB for 16).

use super::score::Lookup;
use crate::distance::Isa;
use crate::quantize::code::prefetch::prefetch;
use std::arch::x86_64::*;

/// Codes in one pass.
const LANES: usize = 64;
/// Bytes of a code that are transposed at a time.
const COLUMNS: usize = 16;
/// Number of table bytes whose sum is below 2^16.
const FLUSH_AFTER: usize = 256;

/// Returns true if this CPU can run the kernels of this file and `isa` allows them.
pub(super) fn is_available(isa: Isa) -> bool {
    matches!(isa, Isa::Avx512 | Isa::Avx512Vnni)
        && is_x86_feature_detected!("avx512vbmi")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
}

/// Scores `ids`. The last pass repeats its last id.
///
/// # Safety
/// The CPU has AVX-512 VBMI, BW and VL; the code of every id is within `codes`; `tables` holds a table for
/// each label.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
pub(super) unsafe fn score(lookup: Lookup<'_>, bytes: usize, codes: &[u8], ids: &[u32], out: &mut [f32]) {
    for (pass, (ids_now, out_now)) in ids.chunks(LANES).zip(out.chunks_mut(LANES)).enumerate() {
        for &later in ids.iter().skip((pass + 1) * LANES).take(LANES) {
            prefetch(codes, later as usize * bytes, bytes);
        }
        let last = ids_now[ids_now.len() - 1];
        let starts: [*const u8; LANES] = std::array::from_fn(|lane| {
            let id = ids_now.get(lane).copied().unwrap_or(last) as usize;
            // SAFETY: the caller has checked that the code of every id is within `codes`.
            unsafe { codes.as_ptr().add(id * bytes) }
        });
        // SAFETY: each start has `bytes` readable bytes; the tables are complete.
        let sums = unsafe { sum_pass(lookup, bytes, &starts) };
        for (out, sum) in out_now.iter_mut().zip(sums) {
            *out = lookup.bias + lookup.scale * sum as f32;
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
unsafe fn sum_pass(lookup: Lookup<'_>, bytes: usize, starts: &[*const u8; LANES]) -> [u32; LANES] {
    let mut sums = [0u32; LANES];
    let (mut all, mut high) = (_mm512_setzero_si512(), _mm512_setzero_si512());
    let mut added = 0;
    for from in (0..bytes).step_by(COLUMNS) {
        let width = COLUMNS.min(bytes - from);
        // SAFETY: bytes `from..from + width` of every code are readable.
        let columns = unsafe { transpose(starts, from, width) };
        for (column, &labels) in columns.iter().enumerate().take(width) {
            // SAFETY: `tables` has 256 bytes for each 8-bit label and 16 for each 4-bit one.
            unsafe {
                if lookup.bits == 8 {
                    let table = lookup.tables.as_ptr().add((from + column) * 256);
                    add(&mut all, &mut high, lookup_256(table, labels));
                    added += 1;
                } else {
                    let first = (from + column) * 32;
                    let nibble = _mm512_set1_epi8(15);
                    let low = _mm512_and_si512(labels, nibble);
                    add(&mut all, &mut high, lookup_16(lookup.tables.as_ptr().add(first), low));
                    // An odd last subspace leaves the high half of the last byte unused.
                    if first + 32 <= lookup.tables.len() {
                        let above = _mm512_and_si512(_mm512_srli_epi16::<4>(labels), nibble);
                        add(&mut all, &mut high, lookup_16(lookup.tables.as_ptr().add(first + 16), above));
                    }
                    added += 2;
                }
            }
            if added + 2 > FLUSH_AFTER {
                flush(&mut all, &mut high, &mut sums);
                added = 0;
            }
        }
    }
    flush(&mut all, &mut high, &mut sums);
    sums
}

/// Adds 64 bytes to 64 sums of 16 bits: `all` sums both bytes of a pair as a 16-bit number, `high` the upper
/// byte alone.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn add(all: &mut __m512i, high: &mut __m512i, values: __m512i) {
    *all = _mm512_add_epi16(*all, values);
    *high = _mm512_add_epi16(*high, _mm512_srli_epi16::<8>(values));
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn flush(all: &mut __m512i, high: &mut __m512i, sums: &mut [u32; LANES]) {
    let low = _mm512_sub_epi16(*all, _mm512_slli_epi16::<8>(*high));
    // Even codes are in `low`, odd codes in `high`.
    let evens = _mm512_and_si512(low, _mm512_set1_epi32(0xFFFF));
    let odds = _mm512_and_si512(*high, _mm512_set1_epi32(0xFFFF));
    let evens_above = _mm512_srli_epi32::<16>(low);
    let odds_above = _mm512_srli_epi32::<16>(*high);
    // Dword i holds codes 4i..4i + 3: (low half of low, low half of high, high half of low, high half of
    // high).
    let parts = [evens, odds, evens_above, odds_above];
    let mut stored = [[0u32; 16]; 4];
    for (part, store) in parts.into_iter().zip(&mut stored) {
        // SAFETY: `store` is 64 bytes; the store is unaligned.
        unsafe { _mm512_storeu_si512(store.as_mut_ptr().cast(), part) };
    }
    for (lane, sum) in sums.iter_mut().enumerate() {
        *sum += stored[lane % 4][lane / 4];
    }
    (*all, *high) = (_mm512_setzero_si512(), _mm512_setzero_si512());
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
unsafe fn lookup_256(table: *const u8, labels: __m512i) -> __m512i {
    // SAFETY: the caller guarantees 256 readable bytes.
    let part = |i: usize| unsafe { _mm512_loadu_si512(table.add(64 * i).cast()) };
    let lower = _mm512_permutex2var_epi8(part(0), labels, part(1));
    let upper = _mm512_permutex2var_epi8(part(2), labels, part(3));
    _mm512_mask_blend_epi8(_mm512_movepi8_mask(labels), lower, upper)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn lookup_16(table: *const u8, labels: __m512i) -> __m512i {
    // SAFETY: the caller guarantees 16 readable bytes.
    let table = unsafe { _mm_loadu_si128(table.cast()) };
    _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), labels)
}

/// Loads and transposes bytes of 64 codes. Register `s` of the result holds byte `from + s` of all codes,
/// code by code; bytes past `width` are 0.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
unsafe fn transpose(starts: &[*const u8; LANES], from: usize, width: usize) -> [__m512i; COLUMNS] {
    // In: byte 16c + s is byte s of code c. Out: byte 4s + c.
    let gather_columns: [u8; 64] = std::array::from_fn(|i| ((i % 4) * 16 + i / 4) as u8);
    // SAFETY: the array is 64 bytes.
    let order = unsafe { _mm512_loadu_si512(gather_columns.as_ptr().cast()) };
    let mask = ((1u32 << width) - 1) as __mmask16;
    let mut rows = [_mm512_setzero_si512(); COLUMNS];
    for (row, four) in rows.iter_mut().zip(starts.chunks_exact(4)) {
        // SAFETY: the mask keeps each load within its code.
        let load = |c: usize| unsafe {
            if width == COLUMNS {
                _mm_loadu_si128(four[c].add(from).cast())
            } else {
                _mm_maskz_loadu_epi8(mask, four[c].add(from).cast())
            }
        };
        let pair = _mm512_inserti32x4::<1>(_mm512_castsi128_si512(load(0)), load(1));
        let codes = _mm512_inserti32x4::<3>(_mm512_inserti32x4::<2>(pair, load(2)), load(3));
        *row = _mm512_permutexvar_epi8(order, codes);
    }
    transpose_dwords(rows)
}

/// Transposes 16 x 16 elements of 32 bits.
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose_dwords(rows: [__m512i; 16]) -> [__m512i; 16] {
    let zero = _mm512_setzero_si512();
    let (mut a, mut b) = ([zero; 16], [zero; 16]);
    for i in (0..16).step_by(2) {
        a[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
        a[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
    }
    for i in (0..16).step_by(4) {
        b[i] = _mm512_unpacklo_epi64(a[i], a[i + 2]);
        b[i + 1] = _mm512_unpackhi_epi64(a[i], a[i + 2]);
        b[i + 2] = _mm512_unpacklo_epi64(a[i + 1], a[i + 3]);
        b[i + 3] = _mm512_unpackhi_epi64(a[i + 1], a[i + 3]);
    }
    // b[4g + c] holds, in 128-bit lane l, column 4l + c of rows 4g..4g + 3.
    let mut columns = [zero; 16];
    for c in 0..4 {
        let low_01 = _mm512_shuffle_i32x4::<0b10_00_10_00>(b[c], b[4 + c]);
        let high_01 = _mm512_shuffle_i32x4::<0b11_01_11_01>(b[c], b[4 + c]);
        let low_23 = _mm512_shuffle_i32x4::<0b10_00_10_00>(b[8 + c], b[12 + c]);
        let high_23 = _mm512_shuffle_i32x4::<0b11_01_11_01>(b[8 + c], b[12 + c]);
        columns[c] = _mm512_shuffle_i32x4::<0b10_00_10_00>(low_01, low_23);
        columns[8 + c] = _mm512_shuffle_i32x4::<0b11_01_11_01>(low_01, low_23);
        columns[4 + c] = _mm512_shuffle_i32x4::<0b10_00_10_00>(high_01, high_23);
        columns[12 + c] = _mm512_shuffle_i32x4::<0b11_01_11_01>(high_01, high_23);
    }
    columns
}
