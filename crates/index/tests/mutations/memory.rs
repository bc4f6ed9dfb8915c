//! Counts the largest allocation of a thread, to see whether a reader believes a length before checking it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, with a note of the largest request.
pub struct PeakAllocator;

fn note(bytes: usize) {
    // Ending threads allocate after their locals are gone; those requests are nobody's.
    let _ = PEAK.try_with(|peak| peak.set(peak.get().max(bytes)));
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for PeakAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        note(bytes);
        // SAFETY: the caller keeps the contract.
        unsafe { System.realloc(pointer, layout, bytes) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// The largest single allocation that this thread asks for within `work`, in bytes.
pub fn peak_of(work: impl FnOnce()) -> usize {
    PEAK.with(|peak| peak.set(0));
    work();
    PEAK.with(Cell::get)
}
