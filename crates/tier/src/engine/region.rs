//! Memory of the caller's that reads go into: pinned for a GPU, or larger than any buffer of the engine's.

use super::Engine;
use super::core::Core;
use super::ops::{Failure, Stage};
use crate::contract::Span;
use crate::error::TierError;
use crate::zeros::Zeros;
use std::ptr::NonNull;

/// A run of memory that stays where it is as long as any engine may read into it.
pub struct Region {
    start: NonNull<u8>,
    len: usize,
    /// Kept until the region is dropped.
    _memory: Box<dyn Send>,
}

// SAFETY: an address and what keeps it alive; who may touch what lies there is settled by the engine that adopts it.
unsafe impl Send for Region {}

impl Region {
    /// Zeros of this process's own, aligned as every device wants.
    ///
    /// # Errors
    /// [`TierError::Parameter`] for a length of 0, or where memory is short.
    pub fn zeros(len: usize) -> Result<Region, TierError> {
        let Some(zeros) = Zeros::new(len) else {
            return Err(TierError::Parameter(format!("no region of {len} bytes can be had to read into")));
        };
        Ok(Region { start: zeros.start(), len, _memory: Box::new(zeros) })
    }

    /// Memory from elsewhere, such as what a driver has pinned.
    ///
    /// # Safety
    /// Until `memory` is dropped, `len` initialised bytes lie at `start` and are touched by nobody else while an engine
    /// has the region, but for what a caller does with bytes that a [`Batch`](super::Batch) shows it.
    pub unsafe fn over(start: NonNull<u8>, len: usize, memory: Box<dyn Send>) -> Region {
        Region { start, len, _memory: memory }
    }
}

/// A region that an engine has adopted, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionId(pub(super) u32);

impl Engine {
    /// Takes a region over and registers it with the device, so that [`Cx::read_into`](super::Cx::read_into) can name it.
    /// It is given back with the engine's end. Where a device has no room for another registration, reads into the
    /// region work and are a little slower.
    ///
    /// # Errors
    /// [`TierError`] if the device refuses.
    pub fn adopt(&mut self, region: Region) -> Result<RegionId, TierError> {
        self.cx.0.borrow_mut().adopt(region)
    }
}

/// The regions of an engine, and what of them reads have claimed.
#[derive(Default)]
pub(super) struct Regions {
    regions: Vec<Region>,
}

impl Regions {
    pub(super) fn add(&mut self, region: Region) -> (RegionId, *mut u8, usize) {
        let (start, len) = (region.start.as_ptr(), region.len);
        self.regions.push(region);
        (RegionId((self.regions.len() - 1) as u32), start, len)
    }

    /// Where `len` bytes at `offset` of a region lie, if they lie within it.
    pub(super) fn place(&self, id: RegionId, offset: usize, len: usize) -> Option<NonNull<u8>> {
        let region = self.regions.get(id.0 as usize)?;
        let inside = offset.checked_add(len)? <= region.len;
        // SAFETY: within the region.
        inside.then(|| unsafe { region.start.add(offset) })
    }
}

impl Core {
    /// Takes over a region of the caller's.
    pub(super) fn adopt(&mut self, region: Region) -> Result<RegionId, TierError> {
        let (id, start, len) = self.regions.add(region);
        // SAFETY: the regions outlive the queue (see `Drop`).
        unsafe { self.queue.register(start, len)? };
        Ok(id)
    }

    /// Stages one read for `group` into a region, `offset` bytes from its start.
    pub(super) fn stage_into(&mut self, group: u32, want: Span, region: RegionId, offset: usize) {
        let at = self.groups[group as usize].ops.len();
        self.stage(group, want);
        let id = self.groups[group as usize].ops[at];
        let op = &mut self.ops[id as usize];
        if op.stage == Stage::Failed {
            return;
        }
        let len = op.len as usize;
        let aligned = (offset as u64).is_multiple_of(self.alignment);
        let place = self.regions.place(region, offset, len).filter(|_| aligned);
        op.buffer = place.and_then(|place| self.pool.claim(place, len));
        if op.buffer.is_none() {
            // It was staged last.
            self.staged.pop_back();
            self.fail(id, Failure::NoPlace);
        }
    }
}
