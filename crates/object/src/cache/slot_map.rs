//! The map from blocks to slots of the disk, and the list of free slots.

use super::files::SlotRecord;
use super::memory::shards;
use crate::connect::CachePolicy;
use foyer_common::event::{Event, EventListener};
use foyer_memory::{Cache, CacheBuilder};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The slot, length and checksum of a block on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StoredBlock {
    pub(super) slot: u32,
    pub(super) len: u32,
    pub(super) checksum: u64,
}

/// The list of free slots.
#[derive(Default)]
struct FreeSlots(Mutex<Vec<u32>>);

impl FreeSlots {
    fn push(&self, slot: u32) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(slot);
    }

    fn pop(&self) -> Option<u32> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}

/// Returns the slots of evicted and removed blocks to the free list.
struct EvictionListener(Arc<FreeSlots>);

impl EventListener for EvictionListener {
    type Key = u64;
    type Value = StoredBlock;

    fn on_leave(&self, reason: Event, _hash: &u64, block: &StoredBlock) {
        // A block that is inserted again keeps its slot.
        if matches!(reason, Event::Evict | Event::Remove) {
            self.0.push(block.slot);
        }
    }
}

/// The map from blocks to slots, with the free slots.
pub(super) struct SlotMap {
    blocks: Cache<u64, StoredBlock>,
    free: Arc<FreeSlots>,
    policy: CachePolicy,
    /// The hashes of blocks that are being written. Every change of the map holds this lock, so a slot never
    /// belongs to two blocks.
    writing: Mutex<HashSet<u64>>,
}

impl SlotMap {
    /// Makes a map of `slots` slots, filled by `writers` threads. `found` lists the slots that already hold
    /// blocks.
    pub(super) fn new(
        slots: u32,
        writers: u32,
        policy: CachePolicy,
        found: Vec<(u32, SlotRecord)>,
    ) -> SlotMap {
        let free = Arc::new(FreeSlots::default());
        // A block is written before another is evicted for it, so each writer needs a spare slot.
        let capacity = (slots.saturating_sub(writers) as usize).max(1);
        let blocks = CacheBuilder::new(capacity)
            .with_shards(shards(u64::from(slots)))
            .with_eviction_config(policy.config())
            .with_event_listener(Arc::new(EvictionListener(free.clone())))
            .build();
        let map = SlotMap { blocks, free, policy, writing: Mutex::default() };
        let mut is_free = vec![true; slots as usize];
        let mut duplicates = Vec::new();
        for (number, SlotRecord { hash, len, checksum }) in found {
            is_free[number as usize] = false;
            match map.has(hash) {
                // Two slots with the same hash: one of them is outdated, and it is unknown which. Only the
                // first is kept.
                true => duplicates.push(number),
                false => map.insert(hash, StoredBlock { slot: number, len, checksum }),
            }
        }
        (0..slots)
            .rev()
            .filter(|slot| is_free[*slot as usize])
            .chain(duplicates)
            .for_each(|slot| map.free.push(slot));
        map
    }

    pub(super) fn has(&self, hash: u64) -> bool {
        self.blocks.contains(&hash)
    }

    /// Returns the entry of the block with this hash, and counts it as a hit.
    pub(super) fn find(&self, hash: u64) -> Option<StoredBlock> {
        self.blocks.get(&hash).map(|entry| *entry.value())
    }

    /// Returns the number of blocks on disk.
    pub(super) fn len(&self) -> u64 {
        self.blocks.entries() as u64
    }

    fn writing(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a free slot to write a block to. The caller passes it to [`SlotMap::insert`] or
    /// [`SlotMap::release_slot`]. Returns `None` if the block is already on disk or being written, or if no
    /// slot is free.
    pub(super) fn take_slot(&self, hash: u64) -> Option<u32> {
        let mut writing = self.writing();
        if self.has(hash) || writing.contains(&hash) {
            return None;
        }
        let slot = self.free.pop()?;
        writing.insert(hash);
        Some(slot)
    }

    /// Returns a slot that was not written to the free list.
    pub(super) fn release_slot(&self, hash: u64, slot: u32) {
        self.writing().remove(&hash);
        self.free.push(slot);
    }

    /// Records that a slot holds the block now.
    pub(super) fn insert(&self, hash: u64, block: StoredBlock) {
        let mut writing = self.writing();
        self.blocks.insert_with_properties(hash, block, self.policy.insertion_properties());
        writing.remove(&hash);
    }

    /// Moves a block from the probationary to the protected segment, after a hit.
    pub(super) fn promote(&self, hash: u64) {
        let _lock = self.writing();
        if let Some(block) = self.find(hash) {
            self.blocks.insert(hash, block);
        }
    }

    /// Removes a block if its entry is still `block`. Returns true if it was removed.
    pub(super) fn remove(&self, hash: u64, block: StoredBlock) -> bool {
        let _lock = self.writing();
        if self.find(hash) != Some(block) {
            return false;
        }
        self.blocks.remove(&hash).is_some()
    }
}
