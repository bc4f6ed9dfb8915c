//! Measures the largest allocation of a thread. It shows if a reader uses a length before it has checked it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

/// The allocator of the system, which notes the largest request of each thread.
pub struct PeakAllocator;

fn note(bytes: usize) {
    // An ending thread may allocate after its locals were dropped. Such requests are not counted.
    let _ = PEAK.try_with(|peak| peak.set(peak.get().max(bytes)));
}

// SAFETY: every call is passed to the system's allocator unchanged.
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

/// Returns the largest single allocation of this thread during `work`, in bytes.
pub fn peak_of(work: impl FnOnce()) -> usize {
    PEAK.with(|peak| peak.set(0));
    work();
    PEAK.with(Cell::get)
}
