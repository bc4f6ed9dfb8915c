//! Read buffers: aligned, reused, and within a budget of bytes.
//!
//! One region of equal frames is allocated at the start and can be registered with the device. Larger reads
//! take buffers of power-of-two sizes, which are allocated on demand and kept for reuse.

use crate::zeros::ZeroedMemory;
use std::alloc::{Layout, handle_alloc_error};
use std::collections::BTreeMap;
use std::ptr::NonNull;

/// Alignment of buffers in bytes: a page, which satisfies every known device.
pub const BUFFER_ALIGNMENT: usize = 4096;

/// Frame sizes are multiples of this many bytes, the sector of most devices.
pub const LEAST_FRAME: usize = 512;

/// A buffer taken from a [`BufferPool`]; [`BufferPool::release`] gives it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Buffer {
    pub(crate) start: NonNull<u8>,
    /// `FRAME`, `CLAIM`, or log2 of the size of a buffer with its own allocation.
    class: u8,
}

/// Class of a frame of the pool's region.
const FRAME: u8 = u8::MAX;
/// Class of a part of a caller's region.
const CLAIM: u8 = u8::MAX - 1;

// SAFETY: the pool owns the memory of its addresses, and addresses are the same on every thread.
unsafe impl Send for BufferPool {}

impl Buffer {
    /// Returns true if it is a part of a caller's region, which does not count towards the budget.
    pub(crate) fn is_claim(&self) -> bool {
        self.class == CLAIM
    }
}

/// Pool of read buffers. It must not be dropped while a device can write into its memory.
#[derive(Debug)]
pub(crate) struct BufferPool {
    region: ZeroedMemory,
    frame_bytes: usize,
    free_frames: Vec<NonNull<u8>>,
    /// Free buffers by log2 of their size.
    free_large: Vec<Vec<NonNull<u8>>>,
    all_large: Vec<ZeroedMemory>,
    large_bytes: u64,
    budget_bytes: u64,
    frames_wanted: usize,
    /// Number of releases so far. A refused request need not be repeated until this has grown.
    releases: u64,
    /// Parts of callers' regions that are in use by reads: first address to one past the last.
    claims: BTreeMap<usize, usize>,
}

impl BufferPool {
    /// Makes a pool with `frames` frames of `frame_bytes`, rounded up to a multiple of [`LEAST_FRAME`] and of
    /// `alignment`, a power of two. The pool never has more than `budget_bytes` in all, except that it always
    /// has one frame.
    pub(crate) fn new(frames: usize, frame_bytes: usize, budget_bytes: u64, alignment: usize) -> BufferPool {
        let frame_bytes = frame_bytes.max(1).next_multiple_of(alignment.max(LEAST_FRAME));
        let frames_wanted = frames.max(1);
        let affordable = usize::try_from(budget_bytes / frame_bytes as u64).unwrap_or(usize::MAX);
        let frames = frames.min(affordable).max(1);
        let size = frames.saturating_mul(frame_bytes);
        let Some(region) = ZeroedMemory::new(size) else {
            let layout = Layout::from_size_align(size, BUFFER_ALIGNMENT);
            handle_alloc_error(layout.unwrap_or(Layout::new::<u8>()))
        };
        let free_frames = (0..frames)
            .rev()
            // SAFETY: every frame begins inside the region just allocated.
            .map(|i| unsafe { region.start().add(i * frame_bytes) })
            .collect();
        BufferPool {
            region,
            frame_bytes,
            free_frames,
            free_large: (0..usize::BITS).map(|_| Vec::new()).collect(),
            all_large: Vec::new(),
            large_bytes: 0,
            budget_bytes: budget_bytes.max(frame_bytes as u64),
            frames_wanted,
            releases: 0,
            claims: BTreeMap::new(),
        }
    }

    /// Claims `len` bytes of a caller's region at `start`. Returns `None` while a part of them is claimed
    /// already.
    pub(crate) fn claim(&mut self, start: NonNull<u8>, len: usize) -> Option<Buffer> {
        let first = start.as_ptr() as usize;
        let end = first + len;
        if self.claims.range(..end).next_back().is_some_and(|(_, other)| *other > first) {
            return None;
        }
        self.claims.insert(first, end);
        Some(Buffer { start, class: CLAIM })
    }

    /// Returns the region of frames: start and length in bytes.
    pub(crate) fn region(&self) -> (*mut u8, usize) {
        (self.region.start().as_ptr(), self.region.len())
    }

    /// Returns the budget in bytes.
    pub(crate) fn budget_bytes(&self) -> u64 {
        self.budget_bytes
    }

    /// Returns the bytes that are allocated now.
    pub(crate) fn allocated_bytes(&self) -> u64 {
        self.region.len() as u64 + self.large_bytes
    }

    /// Returns the number of releases since the start.
    pub(crate) fn releases(&self) -> u64 {
        self.releases
    }

    /// Returns a budget in bytes that suffices for buffers of `lens` bytes together, in addition to those
    /// held now. It is above the present budget if [`BufferPool::take`] has refused one of them.
    pub(crate) fn budget_for(&self, lens: impl Iterator<Item = usize>) -> u64 {
        let frames_held = self.region.len() / self.frame_bytes - self.free_frames.len();
        let free_large: u64 = self.free_large.iter().zip(0_u32..).map(|(f, c)| (f.len() as u64) << c).sum();
        let mut large = self.large_bytes - free_large;
        let mut small = frames_held;
        for len in lens {
            if len <= self.frame_bytes {
                small += 1;
            } else {
                large += buffer_size(len) as u64;
            }
        }
        if large == 0 && small <= self.frames_wanted {
            return (small * self.frame_bytes) as u64;
        }
        // Under a larger budget the region grows to its full number of frames before anything else is
        // allocated.
        let beyond_frames = small.saturating_sub(self.frames_wanted) * buffer_size(self.frame_bytes);
        (self.frames_wanted * self.frame_bytes + beyond_frames) as u64 + large
    }

    /// Returns true if no buffer is held.
    #[cfg(test)]
    pub(crate) fn all_free(&self) -> bool {
        let large: usize = self.free_large.iter().map(Vec::len).sum();
        self.free_frames.len() * self.frame_bytes == self.region.len()
            && large == self.all_large.len()
            && self.claims.is_empty()
    }

    /// Takes a buffer of at least `len` bytes. Returns `None` while the budget is used up.
    pub(crate) fn take(&mut self, len: usize) -> Option<Buffer> {
        if len <= self.frame_bytes
            && let Some(start) = self.free_frames.pop()
        {
            return Some(Buffer { start, class: FRAME });
        }
        let size = buffer_size(len);
        let class = size.trailing_zeros() as usize;
        if let Some(start) = self.free_large.get_mut(class)?.pop() {
            return Some(Buffer { start, class: class as u8 });
        }
        if self.allocated_bytes() + size as u64 > self.budget_bytes {
            self.free_unused();
            if self.allocated_bytes() + size as u64 > self.budget_bytes {
                return None;
            }
        }
        let large = ZeroedMemory::new(size)?;
        let start = large.start();
        self.all_large.push(large);
        self.large_bytes += size as u64;
        Some(Buffer { start, class: class as u8 })
    }

    /// Releases a buffer. No device may still be able to write into it.
    pub(crate) fn release(&mut self, buffer: Buffer) {
        self.releases += 1;
        if buffer.class == CLAIM {
            self.claims.remove(&(buffer.start.as_ptr() as usize));
        } else if buffer.class == FRAME {
            self.free_frames.push(buffer.start);
        } else if let Some(free) = self.free_large.get_mut(usize::from(buffer.class)) {
            free.push(buffer.start);
        }
    }

    /// Frees every large buffer that is not held, so that other sizes fit into the budget.
    fn free_unused(&mut self) {
        for class in &mut self.free_large {
            for start in class.drain(..) {
                if let Some(at) = self.all_large.iter().position(|held| held.start() == start) {
                    self.large_bytes -= self.all_large.swap_remove(at).len() as u64;
                }
            }
        }
    }
}

/// Returns the bytes of a separately allocated buffer for a read of `len` bytes.
fn buffer_size(len: usize) -> usize {
    len.max(BUFFER_ALIGNMENT).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_all_sizes_stay_within_the_budget() {
        let mut pool = BufferPool::new(4, 4096, 64 << 10, 4096);
        let frames: Vec<_> = (0..4).map(|_| pool.take(4000).unwrap()).collect();
        let large = pool.take(32 << 10).unwrap();
        assert!(pool.take(32 << 10).is_none(), "16 KiB of frames and two of 32 KiB exceed 64 KiB");
        pool.release(large);
        let other = pool.take(16 << 10).unwrap();
        assert!(pool.allocated_bytes() <= 64 << 10);
        assert_eq!(other.start.as_ptr() as usize % BUFFER_ALIGNMENT, 0);
        frames.into_iter().for_each(|f| pool.release(f));
        assert_eq!(pool.free_frames.len(), 4);
    }

    #[test]
    fn frame_sizes_follow_the_sector_and_the_alignment() {
        let mut pool = BufferPool::new(64, 100, u64::MAX, 1);
        assert_eq!(pool.allocated_bytes(), 64 * 512);
        let starts: Vec<_> = (0..64).map(|_| pool.take(512).unwrap().start.as_ptr() as usize).collect();
        assert!(starts.iter().all(|start| start.is_multiple_of(512)));
        assert_eq!(BufferPool::new(64, 100, u64::MAX, 4096).allocated_bytes(), 64 * 4096);
    }

    #[test]
    fn the_proposed_budget_suffices() {
        let sizes: [&[usize]; 4] = [&[100; 20], &[5000; 3], &[4096, 1 << 19, 7, 9000], &[4096; 200]];
        for wanted in sizes {
            for budget in [0, 16 << 10, 64 << 10, 1 << 19] {
                let mut pool = BufferPool::new(32, 4096, budget, 4096);
                let held: Vec<_> = (0..3).map_while(|_| pool.take(3000)).collect();
                if wanted.iter().all(|len| pool.take(*len).is_some()) {
                    continue;
                }
                let mut pool = BufferPool::new(32, 4096, budget, 4096);
                let _same: Vec<_> = held.iter().map(|_| pool.take(3000)).collect();
                let needed = pool.budget_for(wanted.iter().copied());
                assert!(needed > budget, "{needed} of {budget}");
                let mut pool = BufferPool::new(32, 4096, needed, 4096);
                let _same: Vec<_> = held.iter().map(|_| pool.take(3000).unwrap()).collect();
                assert!(wanted.iter().all(|len| pool.take(*len).is_some()), "{needed} for {wanted:?}");
            }
        }
    }

    #[test]
    fn a_tiny_budget_still_gives_one_frame() {
        let mut pool = BufferPool::new(8, 4096, 0, 4096);
        assert!(pool.take(1).is_some());
        assert!(pool.take(1).is_none());
    }
}
