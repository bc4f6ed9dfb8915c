//! Zeroed memory at a boundary of pages, which the system gives page by page as it is touched.

use crate::BUFFER_ALIGNMENT;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// Bytes from which on memory comes from the system as it is: an allocator has less at hand, used, and writes zeros over it.
const FROM_SYSTEM: usize = 64 << 10;

/// A run of bytes, zero at first, that begins at a multiple of [`BUFFER_ALIGNMENT`].
#[derive(Debug)]
pub(crate) struct Zeros {
    start: NonNull<u8>,
    len: usize,
    allocated: NonNull<u8>,
    layout: Layout,
}

// SAFETY: memory that this alone has allocated and frees; who may touch what lies there is settled by its owner.
unsafe impl Send for Zeros {}

impl Zeros {
    /// `len` of them; `None` for a length of 0, or where memory is short.
    pub(crate) fn new(len: usize) -> Option<Zeros> {
        // Of an allocator that is asked for a boundary, the standard library fills what it gets with zeros: 33 MB of buffers
        // took 17 ms, before the first of them was read into. So much is allocated anywhere, and begun at a boundary.
        let layout = if len < FROM_SYSTEM {
            Layout::from_size_align(len, BUFFER_ALIGNMENT)
        } else {
            Layout::from_size_align(len.checked_add(BUFFER_ALIGNMENT)?, 1)
        };
        let layout = layout.ok().filter(|layout| layout.size() > 0)?;
        // SAFETY: the layout's size is above zero.
        let allocated = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        // SAFETY: less than a page from the start, of which there is one more than `len` wants unless this is 0.
        let start = unsafe { allocated.add(allocated.align_offset(BUFFER_ALIGNMENT)) };
        Some(Zeros { start, len, allocated, layout })
    }

    /// Where they begin.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// How many they are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Zeros {
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
        for len in [1, 512, FROM_SYSTEM - 1, FROM_SYSTEM, FROM_SYSTEM + 1, 3 << 20] {
            let zeros = Zeros::new(len).unwrap();
            assert_eq!((zeros.len(), zeros.start().as_ptr() as usize % BUFFER_ALIGNMENT), (len, 0));
            // SAFETY: `len` initialised bytes.
            let bytes = unsafe { std::slice::from_raw_parts_mut(zeros.start().as_ptr(), len) };
            assert!(bytes.iter().all(|byte| *byte == 0), "{len}");
            bytes.fill(1);
        }
        assert!(Zeros::new(0).is_none());
        assert!(Zeros::new(usize::MAX).is_none());
        assert!(Zeros::new(isize::MAX as usize).is_none());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn pages_come_as_they_are_touched() {
        let zeros = Zeros::new(64 << 20).unwrap();
        let here = || {
            let mut pages = vec![0_u8; zeros.len() / BUFFER_ALIGNMENT];
            // SAFETY: asks about the run's own pages, one byte each.
            let asked = unsafe {
                libc::mincore(zeros.start().as_ptr().cast(), zeros.len(), pages.as_mut_ptr().cast())
            };
            assert_eq!(asked, 0);
            pages.iter().filter(|page| **page & 1 == 1).count()
        };
        let untouched = here();
        // Where the system gives huge pages unasked, the first page brings 511 more.
        assert!(untouched <= 512, "{untouched}");
        // SAFETY: the last byte of the run.
        unsafe { zeros.start().add(zeros.len() - 1).write(1) };
        assert!((1..=1024).contains(&here()));
    }
}
