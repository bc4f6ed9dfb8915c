//! Memory of the caller that reads go into: pinned for a GPU, or larger than any buffer of the engine.

use super::Engine;
use super::core::Core;
use super::ops::{ReadFailure, ReadStage};
use crate::contract::Span;
use crate::error::TierError;
use crate::zeros::ZeroedMemory;
use std::ptr::NonNull;

/// Contiguous memory that does not move while an engine may read into it.
pub struct Region {
    start: NonNull<u8>,
    len: usize,
    /// Owner of the memory.
    _memory: Box<dyn Send>,
}

// SAFETY: an address and the owner of its memory; the engine that adopts the region controls access to the
// memory.
unsafe impl Send for Region {}

impl Region {
    /// Allocates `len` zeroed bytes, aligned to [`BUFFER_ALIGNMENT`](crate::BUFFER_ALIGNMENT).
    ///
    /// # Errors
    /// [`TierError::Parameter`] if `len` is 0 or memory is short.
    pub fn zeros(len: usize) -> Result<Region, TierError> {
        let Some(memory) = ZeroedMemory::new(len) else {
            return Err(TierError::Parameter(format!(
                "cannot allocate a region of {len} bytes to read into"
            )));
        };
        Ok(Region { start: memory.start(), len, _memory: Box::new(memory) })
    }

    /// Makes a region of memory from elsewhere, such as memory that a driver has pinned.
    ///
    /// # Safety
    /// Until `memory` is dropped, `len` initialised bytes lie at `start`. While an engine has the region,
    /// nothing else touches them, except that a caller may use the bytes that a [`Batch`](super::Batch)
    /// returns.
    pub unsafe fn over(start: NonNull<u8>, len: usize, memory: Box<dyn Send>) -> Region {
        Region { start, len, _memory: memory }
    }
}

/// Number of a region that an engine has adopted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionId(pub(super) u32);

impl Engine {
    /// Takes a region over and registers it with the device, for [`Cx::read_into`](super::Cx::read_into). The
    /// engine drops it at its own end. If the device has no room for another registration, reads into the
    /// region work and are a little slower.
    ///
    /// # Errors
    /// [`TierError`] if the device refuses.
    pub fn adopt(&mut self, region: Region) -> Result<RegionId, TierError> {
        self.cx.0.borrow_mut().adopt(region)
    }
}

/// The regions of an engine.
#[derive(Default)]
pub(super) struct Regions {
    regions: Vec<Region>,
}

impl Regions {
    pub(super) fn add(&mut self, region: Region) -> RegionId {
        self.regions.push(region);
        RegionId((self.regions.len() - 1) as u32)
    }

    /// Returns the address of the `len` bytes at `offset` of a region, if they lie within it.
    pub(super) fn place(&self, id: RegionId, offset: usize, len: usize) -> Option<NonNull<u8>> {
        let region = self.regions.get(id.0 as usize)?;
        let inside = offset.checked_add(len)? <= region.len;
        // SAFETY: within the region.
        inside.then(|| unsafe { region.start.add(offset) })
    }
}

impl Core {
    /// Takes over a region of the caller.
    pub(super) fn adopt(&mut self, region: Region) -> Result<RegionId, TierError> {
        let (start, len) = (region.start.as_ptr(), region.len);
        let id = self.regions.add(region);
        // SAFETY: the regions outlive the queue (see `Drop`).
        unsafe { self.queue.register(start, len)? };
        Ok(id)
    }

    /// Stages one read for `group` into a region, at `offset` bytes from its start.
    pub(super) fn stage_into(&mut self, group: u32, want: Span, region: RegionId, offset: usize) {
        let at = self.groups[group as usize].ops.len();
        self.stage(group, want);
        let id = self.groups[group as usize].ops[at];
        let op = &mut self.ops[id as usize];
        if op.stage == ReadStage::Failed {
            return;
        }
        let len = op.len as usize;
        let aligned = (offset as u64).is_multiple_of(self.alignment);
        let place = self.regions.place(region, offset, len).filter(|_| aligned);
        op.buffer = place.and_then(|place| self.pool.claim(place, len));
        if op.buffer.is_none() {
            // It is the last one in the queue.
            self.staged.pop_back();
            self.fail(id, ReadFailure::NoPlace);
        }
    }
}
