//! Hints about memory: lines to fetch ahead, pages to make large; and how long a load from it takes.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Bytes of one cache line.
pub const CACHE_LINE: usize = 64;
/// Bytes of a huge page on x86-64 and aarch64.
const HUGE_PAGE: usize = 2 << 20;

/// Reads between two looks at the clock: even an emulated memory does them in milliseconds. The median round counts, so
/// that what the system or a hypervisor takes away from a few does not.
pub(crate) const ROUND: u32 = 512;

/// Asks the processor to fetch every line of `len` bytes from `start` on into its second-level cache.
///
/// A batch of reads is more lines than a first-level cache has, or a core can wait for at once: what does not fit is not
/// fetched. On a Zen 4, rows of 128 bytes at random places of 146 MB, 16 batches of 16 reads of 8 lines in flight: a row takes
/// 79 ns when its lines were asked for into the first level, 13 ns into the second, 109 ns unasked.
#[inline]
pub fn prefetch(start: *const u8, len: usize) {
    let mut at = 0;
    while at < len {
        let line = start.wrapping_add(at);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch never faults, whatever the address.
        unsafe {
            std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(line.cast())
        };
        #[cfg(target_arch = "aarch64")]
        // SAFETY: a prefetch never faults, whatever the address.
        unsafe {
            std::arch::asm!("prfm pldl2keep, [{0}]", in(reg) line, options(nostack, readonly))
        };
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let _ = line;
        at += CACHE_LINE;
    }
}

/// Asks the system for huge pages under the untouched memory of `vector`: its capacity, not its length.
///
/// Random accesses to hundreds of megabytes otherwise miss the TLB nearly every time. Call it before the first
/// write. A hint: nothing happens where the memory is small or the system has none.
pub fn advise_huge_pages<T>(vector: &mut Vec<T>) {
    #[cfg(target_os = "linux")]
    {
        let start = vector.as_mut_ptr() as usize;
        let end = start + vector.capacity() * size_of::<T>();
        let first = start.next_multiple_of(HUGE_PAGE);
        let last = end / HUGE_PAGE * HUGE_PAGE;
        if last > first {
            // SAFETY: whole pages inside the vector's own allocation; the advice changes no content.
            unsafe { libc::madvise(first as *mut libc::c_void, last - first, libc::MADV_HUGEPAGE) };
        }
    }
    let _ = (vector, HUGE_PAGE);
}

/// Nanoseconds of one of a chain of dependent loads at random places among `bytes`, which hold a cache line at least.
pub(crate) fn chain(bytes: &[u8], time: Duration) -> f64 {
    let lines = (bytes.len() / CACHE_LINE) as u64;
    // The compiler cannot know, and the processor cannot guess, that what was loaded does not matter.
    let nothing = black_box(0_u64);
    let mut state = 1_u64;
    let mut rounds = Vec::new();
    let start = Instant::now();
    let mut last = start;
    while last - start < time || rounds.is_empty() {
        for _ in 0..ROUND {
            let line = place(state, lines);
            let loaded = u64::from(bytes[line as usize * CACHE_LINE]);
            state = step(state) ^ (loaded & nothing);
        }
        let now = Instant::now();
        rounds.push((now - last).as_nanos() as u64);
        last = now;
    }
    black_box(state);
    median(&mut rounds) as f64 / f64::from(ROUND)
}

/// The median of the times of some rounds; 0 without any.
pub(crate) fn median(rounds: &mut [u64]) -> u64 {
    rounds.sort_unstable();
    rounds.get(rounds.len() / 2).copied().unwrap_or(0)
}

/// The next number of a cheap random sequence; its upper half is random enough.
#[inline]
pub(crate) fn step(state: u64) -> u64 {
    state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
}

/// A place below `count` for a number of [`step`].
#[inline]
pub(crate) fn place(state: u64, count: u64) -> u64 {
    ((u128::from(state) * u128::from(count)) >> 64) as u64
}
