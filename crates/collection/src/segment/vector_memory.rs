//! Memory for vectors of flat segments. They are loaded at the first search, so that later searches of few
//! queries read nothing.
//!
//! This memory is used only without a memory budget. With a budget, an index whose share is enough keeps its
//! vectors in memory by itself.

use bathyal_index::Index;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Limit of the vectors in memory of all collections of this process, in bytes. It matters with thousands of
/// small collections that are searched now and then.
const PROCESS_LIMIT: u64 = 256 << 20;

/// Bytes that are reserved by all collections of this process.
static PROCESS_RESERVED: AtomicU64 = AtomicU64::new(0);

/// Memory for vectors of the segments of one collection.
#[derive(Debug, Clone)]
pub(crate) struct VectorMemory(Arc<Limit>);

#[derive(Debug)]
struct Limit {
    limit: u64,
    reserved: AtomicU64,
}

/// The limit that a reservation exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MemoryFull {
    /// The limit of the collection.
    Collection,
    /// The limit of the process.
    Process,
}

/// Bytes that are reserved until this value is dropped.
#[derive(Debug)]
pub(super) struct MemoryReservation {
    memory: VectorMemory,
    bytes: u64,
}

/// Adds `bytes` to `reserved`, if the sum is at most `limit`.
fn try_add(reserved: &AtomicU64, limit: u64, bytes: u64) -> bool {
    let more = |reserved: u64| reserved.checked_add(bytes).filter(|sum| *sum <= limit);
    reserved.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
}

impl VectorMemory {
    /// Creates memory of `limit` bytes.
    pub(crate) fn new(limit: u64) -> VectorMemory {
        VectorMemory(Arc::new(Limit { limit, reserved: AtomicU64::new(0) }))
    }

    /// Returns true if `bytes` fit when nothing is reserved.
    pub(super) fn fits(&self, bytes: u64) -> bool {
        bytes <= self.0.limit.min(PROCESS_LIMIT)
    }

    /// Reserves `bytes`.
    pub(super) fn reserve(&self, bytes: u64) -> Result<MemoryReservation, MemoryFull> {
        if !try_add(&self.0.reserved, self.0.limit, bytes) {
            return Err(MemoryFull::Collection);
        }
        if !try_add(&PROCESS_RESERVED, PROCESS_LIMIT, bytes) {
            self.0.reserved.fetch_sub(bytes, Ordering::Relaxed);
            return Err(MemoryFull::Process);
        }
        Ok(MemoryReservation { memory: self.clone(), bytes })
    }
}

impl MemoryReservation {
    /// Returns the size of the reservation.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        self.memory.0.reserved.fetch_sub(self.bytes, Ordering::Relaxed);
        PROCESS_RESERVED.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The open index of a field. Its vectors are in memory if there was room for them.
pub(crate) struct FieldIndex {
    // Dropped before its reservation is released.
    index: Index,
    reservation: Option<MemoryReservation>,
    /// True if the vectors stay where they are, even if memory becomes free.
    placement_final: AtomicBool,
}

impl FieldIndex {
    /// Creates a value. `reservation` is that of vectors in memory.
    pub(super) fn new(
        index: Index,
        reservation: Option<MemoryReservation>,
        placement_final: bool,
    ) -> FieldIndex {
        FieldIndex { index, reservation, placement_final: AtomicBool::new(placement_final) }
    }

    /// Makes the vectors stay where they are.
    pub(super) fn finalize_placement(&self) {
        self.placement_final.store(true, Ordering::Relaxed);
    }

    /// Returns true if the vectors stay where they are; otherwise they are loaded into memory as soon as
    /// there is room.
    pub(super) fn placement_is_final(&self) -> bool {
        self.placement_final.load(Ordering::Relaxed)
    }

    /// Returns the bytes reserved for the vectors; 0 if they are not in memory.
    pub(super) fn reserved_bytes(&self) -> u64 {
        self.reservation.as_ref().map_or(0, MemoryReservation::bytes)
    }

    /// Returns true if a search of the index reads nothing from a device.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.index.tier().profile().addressable
    }
}

impl Deref for FieldIndex {
    type Target = Index;

    fn deref(&self) -> &Index {
        &self.index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_stay_below_the_limit_and_are_released_when_dropped() {
        let memory = VectorMemory::new(100);
        assert!(memory.fits(100) && !memory.fits(101));
        let reservations = [60, 40].map(|bytes| memory.reserve(bytes).unwrap());
        assert_eq!(memory.reserve(1).map(drop), Err(MemoryFull::Collection));
        assert!(memory.reserve(0).is_ok());
        let [first, second] = reservations;
        drop(first);
        assert_eq!(memory.reserve(61).map(drop), Err(MemoryFull::Collection));
        assert_eq!(memory.reserve(60).map(|reservation| reservation.bytes()), Ok(60));
        drop(second);
        assert_eq!(memory.0.reserved.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn all_collections_share_the_limit_of_the_process() {
        let memory = VectorMemory::new(u64::MAX);
        assert!(!memory.fits(PROCESS_LIMIT + 1));
        for bytes in [PROCESS_LIMIT + 1, u64::MAX] {
            assert_eq!(memory.reserve(bytes).map(drop), Err(MemoryFull::Process));
        }
        assert_eq!(memory.0.reserved.load(Ordering::Relaxed), 0);
    }
}
