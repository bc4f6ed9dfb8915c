//! Scans of many codes in interleaved blocks of 32, with tables of 16 entries in registers: the fast-scan of
//! faiss (André, Kermarrec & Le Scouarnec, VLDB'15).
//!
//! Each half byte of a code selects one of 16 table bytes. For 4-bit product codes the tables and the sums
//! are those of [`CodeQuery::score`]. For plane codes a half byte is four bits of a plane, and its table
//! holds the sums of the four query values, rounded to a byte.

use super::code::block::SCAN_BLOCK;
use super::code::{CodeKind, finite_or_zero};
use super::{Body, CodeQuery, Codec};
use crate::distance::Isa;

/// Most bytes of a code before the 16-bit sums, which take two table bytes for each, would overflow.
#[cfg(target_arch = "x86_64")]
const FLUSH_BYTES: usize = 128;

/// Codes that are interleaved for scanning: byte `b` of the 32 codes of a block is contiguous. The last block
/// is padded with zeros.
#[derive(Clone, Debug, PartialEq)]
pub struct ScanCodes {
    bytes: Vec<u8>,
    count: usize,
    code_bytes: usize,
}

impl ScanCodes {
    /// Returns the number of codes, without the padding.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns true if there are no codes.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl Codec {
    /// Interleaves `n x code_bytes` codes for [`CodeQuery::scan`]. `None` for 8-bit product codes, whose
    /// tables do not fit in registers.
    pub fn interleave(&self, codes: &[u8]) -> Option<ScanCodes> {
        if self.kind() == CodeKind::Pq {
            return None;
        }
        let code_bytes = self.code_bytes();
        let count = codes.len() / code_bytes;
        let mut bytes = vec![0; count.div_ceil(SCAN_BLOCK) * SCAN_BLOCK * code_bytes];
        for (i, code) in codes.chunks_exact(code_bytes).enumerate() {
            let block = i / SCAN_BLOCK * SCAN_BLOCK * code_bytes;
            for (b, &value) in code.iter().enumerate() {
                bytes[block + b * SCAN_BLOCK + i % SCAN_BLOCK] = value;
            }
        }
        Some(ScanCodes { bytes, count, code_bytes })
    }
}

/// Tables of one query for scanning.
#[derive(Clone, Debug, Default)]
pub(super) struct ScanTables {
    /// The table of the low half of each byte of a code, twice, so that one load fills a register.
    low: Vec<u8>,
    /// The same for the high half.
    high: Vec<u8>,
    /// Scale of a sum of entries: the value is `bias + scale * sum`.
    scale: f32,
    bias: f32,
    /// The tables before rounding to bytes.
    exact: Vec<f32>,
}

impl CodeQuery {
    /// Prepares a query, after [`Codec::prepare`], for [`CodeQuery::scan`].
    ///
    /// Does nothing for 8-bit product codes.
    pub fn prepare_scan(&mut self, codec: &Codec) {
        let code_bytes = codec.code_bytes();
        let scan = &mut self.scan;
        scan.low.clear();
        scan.high.clear();
        match &codec.body {
            Body::Product(quantizer) if quantizer.bits() == 4 => {
                (scan.scale, scan.bias) = (self.product.scale, self.product.bias);
                for byte in 0..code_bytes {
                    let table = |t: usize| self.product.tables.get(t * 16..t * 16 + 16).unwrap_or(&[0; 16]);
                    (0..2).for_each(|_| scan.low.extend_from_slice(table(2 * byte)));
                    (0..2).for_each(|_| scan.high.extend_from_slice(table(2 * byte + 1)));
                }
            }
            Body::Product(_) => {}
            Body::Planes(quantizer) => {
                scan.exact.clear();
                quantizer.nibble_tables(&self.planes, &mut scan.exact);
                scan.round(code_bytes);
            }
        }
    }

    /// Writes the estimated distances of all codes to `out` (`codes.len()` values). Call
    /// [`CodeQuery::prepare_scan`] first.
    ///
    /// For plane codes the tables have 8 bits. Up to 5 bits a dimension, the scores differ from those of
    /// [`CodeQuery::score`] by a fraction of the error of the code itself.
    ///
    /// # Panics
    /// If the codes or the query belong to another codec, or `out` is too short.
    pub fn scan(&self, codec: &Codec, codes: &ScanCodes, out: &mut [f32]) {
        assert_eq!(codes.code_bytes, codec.code_bytes(), "codes of another codec");
        assert_eq!(self.scan.low.len(), codes.code_bytes * 32, "prepare_scan was not called");
        let blocks = codes.bytes.chunks_exact(SCAN_BLOCK * codes.code_bytes);
        for (block, out) in blocks.zip(out[..codes.count].chunks_mut(SCAN_BLOCK)) {
            let sums = block_sums(self.isa, block, &self.scan);
            for (lane, (out, sum)) in out.iter_mut().zip(sums).enumerate() {
                let value = self.scan.bias + self.scan.scale * sum as f32;
                *out = match &codec.body {
                    Body::Product(_) => value,
                    Body::Planes(quantizer) => {
                        let head: [u8; 8] = std::array::from_fn(|b| block[b * SCAN_BLOCK + lane]);
                        quantizer.finish(&self.planes, &head, value)
                    }
                };
            }
        }
    }
}

impl ScanTables {
    /// Rounds the tables of floats (32 values for each byte of code: low half, high half) to bytes with one
    /// scale.
    fn round(&mut self, code_bytes: usize) {
        let (mut widest, mut bias) = (0.0f32, 0.0f32);
        for table in self.exact.chunks_exact_mut(16) {
            let least = table.iter().copied().fold(f32::INFINITY, f32::min);
            table.iter_mut().for_each(|v| *v -= least);
            widest = table.iter().copied().fold(widest, f32::max);
            bias += least;
        }
        let inverse;
        (self.scale, inverse) = finite_or_zero(widest / 255.0, 255.0 / widest);
        self.bias = bias;
        for byte in 0..code_bytes {
            for (half, out) in [&mut self.low, &mut self.high].into_iter().enumerate() {
                let table = &self.exact[byte * 32 + half * 16..byte * 32 + half * 16 + 16];
                (0..2).for_each(|_| out.extend(table.iter().map(|v| (v * inverse + 0.5) as u8)));
            }
        }
    }
}

fn block_sums(isa: Isa, block: &[u8], tables: &ScanTables) -> [u32; SCAN_BLOCK] {
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the CPU has the instructions; `scan` has checked that there are tables for every byte of a
        // code.
        Isa::Avx512 | Isa::Avx512Vnni => unsafe { sums_avx512(block, tables) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Isa::Avx2 => unsafe { sums_avx2(block, tables) },
        _ => sums_scalar(block, tables),
    }
}

fn sums_scalar(block: &[u8], tables: &ScanTables) -> [u32; SCAN_BLOCK] {
    let mut sums = [0; SCAN_BLOCK];
    for (b, bytes) in block.chunks_exact(SCAN_BLOCK).enumerate() {
        for (sum, &byte) in sums.iter_mut().zip(bytes) {
            *sum += u32::from(tables.low[b * 32 + usize::from(byte & 15)]);
            *sum += u32::from(tables.high[b * 32 + usize::from(byte >> 4)]);
        }
    }
    sums
}

/// # Safety
/// The CPU has AVX2; `tables` holds 32 bytes for each 32 bytes of `block`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn sums_avx2(block: &[u8], tables: &ScanTables) -> [u32; SCAN_BLOCK] {
    use std::arch::x86_64::*;
    let mut sums = [0; SCAN_BLOCK];
    let nibble = _mm256_set1_epi8(15);
    for (part, bytes) in block.chunks(FLUSH_BYTES * SCAN_BLOCK).enumerate() {
        let (mut all, mut odd) = (_mm256_setzero_si256(), _mm256_setzero_si256());
        for b in 0..bytes.len() / SCAN_BLOCK {
            let at = (part * FLUSH_BYTES + b) * 32;
            // SAFETY: the block and both tables have 32 bytes for each byte of a code. (Bench: `code_table`.)
            let (labels, low, high) = unsafe {
                (
                    _mm256_loadu_si256(bytes.as_ptr().add(b * 32).cast()),
                    _mm256_loadu_si256(tables.low.as_ptr().add(at).cast()),
                    _mm256_loadu_si256(tables.high.as_ptr().add(at).cast()),
                )
            };
            let upper = _mm256_and_si256(_mm256_srli_epi16::<4>(labels), nibble);
            for entries in
                [_mm256_shuffle_epi8(low, _mm256_and_si256(labels, nibble)), _mm256_shuffle_epi8(high, upper)]
            {
                all = _mm256_add_epi16(all, entries);
                odd = _mm256_add_epi16(odd, _mm256_srli_epi16::<8>(entries));
            }
        }
        flush(all, odd, &mut sums);
    }
    sums
}

/// Sums two bytes of the codes at a time, one in each half of the register.
///
/// # Safety
/// The CPU has AVX-512 F and BW; `tables` holds 32 bytes for each 32 bytes of `block`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn sums_avx512(block: &[u8], tables: &ScanTables) -> [u32; SCAN_BLOCK] {
    use std::arch::x86_64::*;
    let mut sums = [0; SCAN_BLOCK];
    let nibble = _mm512_set1_epi8(15);
    for (part, bytes) in block.chunks(FLUSH_BYTES * SCAN_BLOCK).enumerate() {
        let (mut all, mut odd) = (_mm512_setzero_si512(), _mm512_setzero_si512());
        for from in (0..bytes.len()).step_by(64) {
            // An odd last byte of the codes fills half a register. The mask sets the rest to zeros.
            let mask = if bytes.len() - from >= 64 { u64::MAX } else { u64::from(u32::MAX) };
            let at = part * FLUSH_BYTES * 32 + from;
            // SAFETY: the mask keeps the loads within the block and the tables. (Bench: `code_table`.)
            let (labels, low, high) = unsafe {
                (
                    _mm512_maskz_loadu_epi8(mask, bytes.as_ptr().add(from).cast()),
                    _mm512_maskz_loadu_epi8(mask, tables.low.as_ptr().add(at).cast()),
                    _mm512_maskz_loadu_epi8(mask, tables.high.as_ptr().add(at).cast()),
                )
            };
            let upper = _mm512_and_si512(_mm512_srli_epi16::<4>(labels), nibble);
            for entries in
                [_mm512_shuffle_epi8(low, _mm512_and_si512(labels, nibble)), _mm512_shuffle_epi8(high, upper)]
            {
                all = _mm512_add_epi16(all, entries);
                odd = _mm512_add_epi16(odd, _mm512_srli_epi16::<8>(entries));
            }
        }
        let halves = |v| _mm256_add_epi16(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64::<1>(v));
        flush(halves(all), halves(odd), &mut sums);
    }
    sums
}

/// Adds 16-bit sums to the 32 sums. `all` sums both bytes of each pair as a 16-bit number, `odd` the upper
/// byte alone.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn flush(all: std::arch::x86_64::__m256i, odd: std::arch::x86_64::__m256i, sums: &mut [u32; SCAN_BLOCK]) {
    use std::arch::x86_64::*;
    let even = _mm256_sub_epi16(all, _mm256_slli_epi16::<8>(odd));
    let (mut evens, mut odds) = ([0u16; 16], [0u16; 16]);
    // SAFETY: both arrays are 32 bytes, and the stores are unaligned.
    unsafe {
        _mm256_storeu_si256(evens.as_mut_ptr().cast(), even);
        _mm256_storeu_si256(odds.as_mut_ptr().cast(), odd);
    }
    for (pair, (even, odd)) in sums.chunks_exact_mut(2).zip(evens.into_iter().zip(odds)) {
        pair[0] += u32::from(even);
        pair[1] += u32::from(odd);
    }
}
