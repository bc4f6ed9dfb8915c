//! Prefetching of codes.

/// Number of ids between the scored code and the prefetched one: about one memory latency of scoring work.
pub(in crate::quantize) const PREFETCH_AHEAD: usize = 12;

/// Prefetches the cache lines of `codes[at..at + len]`; `len` is at least 1.
#[inline(always)]
pub(in crate::quantize) fn prefetch(codes: &[u8], at: usize, len: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let first = codes.as_ptr().wrapping_add(at);
        // SAFETY: a prefetch is a hint; it does not fault on any address. (Bench: `code_table`, random.)
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(first.cast());
            for line in (64..len).step_by(64) {
                _mm_prefetch::<_MM_HINT_T0>(first.wrapping_add(line).cast());
            }
            _mm_prefetch::<_MM_HINT_T0>(first.wrapping_add(len - 1).cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (codes, at, len);
}

/// Prefetches the cache lines of `codes[at..at + len]`, a whole group, into the second-level cache. The first
/// level can track only a few misses at a time, which the lines of a group would exhaust. A scan of groups
/// from DRAM is a quarter faster with this.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(in crate::quantize) fn prefetch_group(codes: &[u8], at: usize, len: usize) {
    use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
    let first = codes.as_ptr().wrapping_add(at);
    for line in (0..len).step_by(64) {
        // SAFETY: a prefetch is a hint; it does not fault on any address. (Bench: `group_table`.)
        unsafe { _mm_prefetch::<_MM_HINT_T1>(first.wrapping_add(line).cast()) };
    }
}
