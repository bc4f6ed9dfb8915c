//! Cache lines of codes that are asked for ahead of their use.

/// Codes this many ids ahead are prefetched: about one memory latency of scoring work.
pub(in crate::quantize) const PREFETCH_AHEAD: usize = 12;

/// Asks for the cache lines of `codes[at..at + len]`; `len` is at least 1.
#[inline(always)]
pub(in crate::quantize) fn prefetch(codes: &[u8], at: usize, len: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let first = codes.as_ptr().wrapping_add(at);
        // SAFETY: a prefetch reads nothing and faults nowhere. (Bench: `code_table`, random.)
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

/// Asks for the cache lines of `codes[at..at + len]` in the second-level cache: for whole groups, whose lines would
/// fill the few places that the first level has for misses. A scan of groups from DRAM is a quarter faster by it.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(in crate::quantize) fn prefetch_group(codes: &[u8], at: usize, len: usize) {
    use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
    let first = codes.as_ptr().wrapping_add(at);
    for line in (0..len).step_by(64) {
        // SAFETY: a prefetch reads nothing and faults nowhere. (Bench: `group_table`.)
        unsafe { _mm_prefetch::<_MM_HINT_T1>(first.wrapping_add(line).cast()) };
    }
}
