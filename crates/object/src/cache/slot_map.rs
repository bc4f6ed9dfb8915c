//! Which slot holds which block, and which is free.

use super::files::Slot;
use super::memory::shards;
use crate::connect::CachePolicy;
use foyer_common::event::{Event, EventListener};
use foyer_memory::{Cache, CacheBuilder};
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A block that a slot holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) slot: u32,
    pub(super) len: u32,
    pub(super) checksum: u64,
}

/// Slots that hold nothing.
#[derive(Default)]
struct Free(Mutex<Vec<u32>>);

impl Free {
    fn push(&self, slot: u32) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(slot);
    }

    fn pop(&self) -> Option<u32> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }
}

/// Frees the slots of blocks that are given up.
struct GivenUp(Arc<Free>);

impl EventListener for GivenUp {
    type Key = u64;
    type Value = Held;

    fn on_leave(&self, reason: Event, _hash: &u64, held: &Held) {
        // One that is put in again keeps its slot.
        if matches!(reason, Event::Evict | Event::Remove) {
            self.0.push(held.slot);
        }
    }
}

/// See the module's description.
pub(super) struct Room {
    held: Cache<u64, Held>,
    free: Arc<Free>,
    policy: CachePolicy,
    /// What is being written. Locked by whoever changes what is held, so that no slot is two blocks'.
    writing: Mutex<HashSet<u64>>,
}

impl Room {
    /// `slots` slots, of which `found` hold something, written by so many `writers`.
    pub(super) fn new(slots: u32, writers: u32, policy: CachePolicy, found: Vec<(u32, Slot)>) -> Room {
        let free = Arc::new(Free::default());
        // A block is written before the one is given up that makes room for it.
        let capacity = (slots.saturating_sub(writers) as usize).max(1);
        let held = CacheBuilder::new(capacity)
            .with_shards(shards(u64::from(slots)))
            .with_eviction_config(policy.config())
            .with_event_listener(Arc::new(GivenUp(free.clone())))
            .build();
        let room = Room { held, free, policy, writing: Mutex::default() };
        let mut is_free = vec![true; slots as usize];
        let mut again = Vec::new();
        for (number, Slot { hash, len, checksum }) in found {
            is_free[number as usize] = false;
            match room.has(hash) {
                // Of two that say the same the older one is damaged; which one that is, nobody knows.
                true => again.push(number),
                false => room.fill(hash, Held { slot: number, len, checksum }),
            }
        }
        (0..slots)
            .rev()
            .filter(|slot| is_free[*slot as usize])
            .chain(again)
            .for_each(|slot| room.free.push(slot));
        room
    }

    pub(super) fn has(&self, hash: u64) -> bool {
        self.held.contains(&hash)
    }

    /// What is held of `hash`; it counts as read.
    pub(super) fn find(&self, hash: u64) -> Option<Held> {
        self.held.get(&hash).map(|entry| *entry.value())
    }

    /// Blocks held.
    pub(super) fn len(&self) -> u64 {
        self.held.entries() as u64
    }

    fn writing(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A slot to write a block to, which is said to be filled or given back; `None` if the block is there or on its way.
    pub(super) fn take_slot(&self, hash: u64) -> Option<u32> {
        let mut writing = self.writing();
        if self.has(hash) || writing.contains(&hash) {
            return None;
        }
        let slot = self.free.pop()?;
        writing.insert(hash);
        Some(slot)
    }

    /// A slot that was not written after all.
    pub(super) fn give_back(&self, hash: u64, slot: u32) {
        self.writing().remove(&hash);
        self.free.push(slot);
    }

    /// A slot holds a block now.
    pub(super) fn fill(&self, hash: u64, held: Held) {
        let mut writing = self.writing();
        self.held.insert_with_properties(hash, held, self.policy.entering());
        writing.remove(&hash);
    }

    /// Says of a block on probation that it was read.
    pub(super) fn promote(&self, hash: u64) {
        let _changing = self.writing();
        if let Some(held) = self.find(hash) {
            self.held.insert(hash, held);
        }
    }

    /// Gives up a block, if it is still the one that was found.
    pub(super) fn forget(&self, hash: u64, held: Held) -> bool {
        let _changing = self.writing();
        if self.find(hash) != Some(held) {
            return false;
        }
        self.held.remove(&hash).is_some()
    }
}
