//! Page-aligned zeroed memory. The system provides its pages at the first touch.

use crate::BUFFER_ALIGNMENT;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// Length in bytes from which on memory is allocated without an alignment (see [`ZeroedMemory::new`]).
/// Shorter blocks come from the allocator's used memory, which it overwrites with zeros in any case.
const UNALIGNED_FROM: usize = 64 << 10;

/// Zeroed memory that begins at a multiple of [`BUFFER_ALIGNMENT`].
#[derive(Debug)]
pub(crate) struct ZeroedMemory {
    start: NonNull<u8>,
    len: usize,
    allocated: NonNull<u8>,
    layout: Layout,
}

// SAFETY: this value alone has allocated and frees the memory; its owner controls access to the bytes.
unsafe impl Send for ZeroedMemory {}

impl ZeroedMemory {
    /// Allocates `len` bytes. Returns `None` if `len` is 0 or memory is short.
    pub(crate) fn new(len: usize) -> Option<ZeroedMemory> {
        // For a layout with a large alignment, the standard library writes the zeros itself: 33 MB of buffers
        // took 17 ms before the first read. A long block is therefore allocated without an alignment, one
        // page longer, and begins at the first page boundary.
        let layout = if len < UNALIGNED_FROM {
            Layout::from_size_align(len, BUFFER_ALIGNMENT)
        } else {
            Layout::from_size_align(len.checked_add(BUFFER_ALIGNMENT)?, 1)
        };
        let layout = layout.ok().filter(|layout| layout.size() > 0)?;
        // SAFETY: the layout's size is above zero.
        let allocated = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        // SAFETY: the offset is below one page. It is 0 if the layout is aligned; otherwise the block has one
        // page more than `len`.
        let start = unsafe { allocated.add(allocated.align_offset(BUFFER_ALIGNMENT)) };
        Some(ZeroedMemory { start, len, allocated, layout })
    }

    /// Returns the address of the first byte.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for ZeroedMemory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout by `new`.
        unsafe { dealloc(self.allocated.as_ptr(), self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_sizes_are_zero_and_aligned() {
        for len in [1, 512, UNALIGNED_FROM - 1, UNALIGNED_FROM, UNALIGNED_FROM + 1, 3 << 20] {
            let memory = ZeroedMemory::new(len).unwrap();
            assert_eq!((memory.len(), memory.start().as_ptr() as usize % BUFFER_ALIGNMENT), (len, 0));
            // SAFETY: `len` initialised bytes.
            let bytes = unsafe { std::slice::from_raw_parts_mut(memory.start().as_ptr(), len) };
            assert!(bytes.iter().all(|byte| *byte == 0), "{len}");
            bytes.fill(1);
        }
        assert!(ZeroedMemory::new(0).is_none());
        assert!(ZeroedMemory::new(usize::MAX).is_none());
        assert!(ZeroedMemory::new(isize::MAX as usize).is_none());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn pages_are_allocated_at_the_first_touch() {
        let memory = ZeroedMemory::new(64 << 20).unwrap();
        let resident_pages = || {
            let mut pages = vec![0_u8; memory.len() / BUFFER_ALIGNMENT];
            // SAFETY: the range is the memory's own, and the result has one byte for each of its pages.
            let failed = unsafe {
                libc::mincore(memory.start().as_ptr().cast(), memory.len(), pages.as_mut_ptr().cast())
            };
            assert_eq!(failed, 0);
            pages.iter().filter(|page| **page & 1 == 1).count()
        };
        let untouched = resident_pages();
        // If the system uses huge pages by itself, the first touch brings 511 further pages.
        assert!(untouched <= 512, "{untouched}");
        // SAFETY: the last byte of the memory.
        unsafe { memory.start().add(memory.len() - 1).write(1) };
        assert!((1..=1024).contains(&resident_pages()));
    }
}
