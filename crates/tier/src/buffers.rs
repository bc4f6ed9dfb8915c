//! Read buffers: aligned, reused, and never more bytes than the budget.
//!
//! One region of equal frames is allocated at the start and can be registered with the device; larger
//! reads take buffers of power-of-two sizes that are allocated on demand and kept for reuse.

use crate::zeros::Zeros;
use std::alloc::{Layout, handle_alloc_error};
use std::collections::BTreeMap;
use std::ptr::NonNull;

/// Buffers are aligned to this many bytes: a page, which satisfies every device known.
pub const BUFFER_ALIGNMENT: usize = 4096;

/// Frames are multiples of this many bytes, the sector of most devices.
pub const LEAST_FRAME: usize = 512;

/// A buffer taken from a [`BufferPool`]; give it back with [`BufferPool::release`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Buffer {
    pub(crate) start: NonNull<u8>,
    /// log2 of the size for a buffer of its own; `FRAME` for one of the region.
    class: u8,
}

const FRAME: u8 = u8::MAX;
/// A part of a region of the caller's.
const CLAIM: u8 = u8::MAX - 1;

// SAFETY: addresses in memory that the pool alone has; they are the same on every thread.
unsafe impl Send for BufferPool {}

impl Buffer {
    /// Whether it is a part of a region of the caller's, and no budget is asked for it.
    pub(crate) fn is_claim(&self) -> bool {
        self.class == CLAIM
    }
}

/// See the module's description. Whoever drops one knows that no device can write into its memory any more.
#[derive(Debug)]
pub(crate) struct BufferPool {
    region: Zeros,
    frame_bytes: usize,
    free_frames: Vec<NonNull<u8>>,
    /// Free buffers by log2 of their size.
    free_large: Vec<Vec<NonNull<u8>>>,
    all_large: Vec<Zeros>,
    large_bytes: u64,
    budget_bytes: u64,
    frames_wanted: usize,
    /// Buffers given back so far: who waits for one need not look again until this has grown.
    releases: u64,
    /// Parts of callers' regions that reads go into or have gone into: first address to one past the last.
    claims: BTreeMap<usize, usize>,
}

impl BufferPool {
    /// A pool with `frames` frames of `frame_bytes` (rounded up to [`LEAST_FRAME`] and `alignment`, a power of two); never
    /// more than `budget_bytes` in all, except that one frame is always there.
    pub(crate) fn new(frames: usize, frame_bytes: usize, budget_bytes: u64, alignment: usize) -> BufferPool {
        let frame_bytes = frame_bytes.max(1).next_multiple_of(alignment.max(LEAST_FRAME));
        let frames_wanted = frames.max(1);
        let affordable = usize::try_from(budget_bytes / frame_bytes as u64).unwrap_or(usize::MAX);
        let frames = frames.min(affordable).max(1);
        let size = frames.saturating_mul(frame_bytes);
        let Some(region) = Zeros::new(size) else {
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

    /// Claims `len` bytes at `start`, which are nobody's buffer; `None` while a part of them is claimed already.
    pub(crate) fn claim(&mut self, start: NonNull<u8>, len: usize) -> Option<Buffer> {
        let first = start.as_ptr() as usize;
        let end = first + len;
        if self.claims.range(..end).next_back().is_some_and(|(_, other)| *other > first) {
            return None;
        }
        self.claims.insert(first, end);
        Some(Buffer { start, class: CLAIM })
    }

    /// The registered region: start and length in bytes.
    pub(crate) fn region(&self) -> (*mut u8, usize) {
        (self.region.start().as_ptr(), self.region.len())
    }

    /// The budget in bytes.
    pub(crate) fn budget_bytes(&self) -> u64 {
        self.budget_bytes
    }

    /// Bytes allocated now.
    pub(crate) fn allocated_bytes(&self) -> u64 {
        self.region.len() as u64 + self.large_bytes
    }

    /// Buffers given back since the start.
    pub(crate) fn releases(&self) -> u64 {
        self.releases
    }

    /// A budget in bytes under which buffers of `lens` bytes could be had together, beside those that are held now.
    /// More than the present budget wherever [`BufferPool::take`] has refused one of them.
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
        // Under a larger budget the region grows to its full number of frames before anything else is allocated.
        let beyond = small.saturating_sub(self.frames_wanted) * buffer_size(self.frame_bytes);
        (self.frames_wanted * self.frame_bytes + beyond) as u64 + large
    }

    /// Whether nobody holds a buffer.
    #[cfg(test)]
    pub(crate) fn all_free(&self) -> bool {
        let large: usize = self.free_large.iter().map(Vec::len).sum();
        self.free_frames.len() * self.frame_bytes == self.region.len()
            && large == self.all_large.len()
            && self.claims.is_empty()
    }

    /// A buffer of at least `len` bytes, or `None` while the budget is used up.
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
        let large = Zeros::new(size)?;
        let start = large.start();
        self.all_large.push(large);
        self.large_bytes += size as u64;
        Some(Buffer { start, class: class as u8 })
    }

    /// Gives a buffer back. No device may be able to write into it any more.
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

    /// Frees every large buffer that nobody holds, so that other sizes fit into the budget.
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

/// Bytes of a buffer of its own for a read of `len` bytes.
fn buffer_size(len: usize) -> usize {
    len.max(BUFFER_ALIGNMENT).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_holds_over_sizes() {
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
    fn frames_are_as_small_as_the_tier_moves() {
        let mut pool = BufferPool::new(64, 100, u64::MAX, 1);
        assert_eq!(pool.allocated_bytes(), 64 * 512);
        let places: Vec<_> = (0..64).map(|_| pool.take(512).unwrap().start.as_ptr() as usize).collect();
        assert!(places.iter().all(|place| place.is_multiple_of(512)));
        assert_eq!(BufferPool::new(64, 100, u64::MAX, 4096).allocated_bytes(), 64 * 4096);
    }

    #[test]
    fn the_budget_said_to_suffice_does() {
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
