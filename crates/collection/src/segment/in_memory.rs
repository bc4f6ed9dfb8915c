//! Vectors of flat segments that stay in memory from the first search on, so that later ones of few queries read nothing.
//!
//! Only where no memory budget is given. With one, an index whose part of it is enough keeps its vectors in memory by itself.

use bathyal_index::Index;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes of vectors that are in memory, of all collections of this process together, at most: thousands of small ones that are
/// searched now and then come to no more.
const MOST_OF_PROCESS: u64 = 256 << 20;

/// Bytes that are taken, of all collections of this process.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// Memory for vectors of the segments of one collection, in bytes.
#[derive(Debug, Clone)]
pub(crate) struct VectorMemory(Arc<Account>);

#[derive(Debug)]
struct Account {
    most: u64,
    taken: AtomicU64,
}

/// Why there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Full {
    /// The segments of the collection have all that it may take.
    Collection,
    /// All collections of the process have all that they may take together.
    Process,
}

/// Memory that was taken, until it is dropped.
#[derive(Debug)]
pub(super) struct Room {
    of: VectorMemory,
    bytes: u64,
}

/// Adds `bytes` to what is taken, if that comes to no more than `most`.
fn take(taken: &AtomicU64, most: u64, bytes: u64) -> bool {
    let more = |taken: u64| taken.checked_add(bytes).filter(|sum| *sum <= most);
    taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
}

impl VectorMemory {
    /// So many bytes, of which nothing is taken yet.
    pub(crate) fn new(most: u64) -> VectorMemory {
        VectorMemory(Arc::new(Account { most, taken: AtomicU64::new(0) }))
    }

    /// Whether it comes to `bytes` where nothing is taken.
    pub(super) fn suits(&self, bytes: u64) -> bool {
        bytes <= self.0.most.min(MOST_OF_PROCESS)
    }

    /// Takes `bytes`, which others have then no more.
    pub(super) fn take(&self, bytes: u64) -> Result<Room, Full> {
        if !take(&self.0.taken, self.0.most, bytes) {
            return Err(Full::Collection);
        }
        if !take(&TAKEN, MOST_OF_PROCESS, bytes) {
            self.0.taken.fetch_sub(bytes, Ordering::Relaxed);
            return Err(Full::Process);
        }
        Ok(Room { of: self.clone(), bytes })
    }
}

impl Room {
    /// How much it is.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.of.0.taken.fetch_sub(self.bytes, Ordering::Relaxed);
        TAKEN.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The open index of a field. Its vectors are in memory where there is room for them.
pub(crate) struct FieldIndex {
    // Dropped before the room is given back.
    index: Index,
    room: Option<Room>,
    /// Whether its vectors stay where they are, whatever room there is.
    settled: AtomicBool,
}

impl FieldIndex {
    /// One whose vectors are in memory, where `room` was taken for them; `settled` where they stay where they are.
    pub(super) fn new(index: Index, room: Option<Room>, settled: bool) -> FieldIndex {
        FieldIndex { index, room, settled: AtomicBool::new(settled) }
    }

    /// Says that its vectors stay where they are.
    pub(super) fn settle(&self) {
        self.settled.store(true, Ordering::Relaxed);
    }

    /// Whether they do; others are in memory as soon as there is room.
    pub(super) fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Relaxed)
    }

    /// Bytes that were taken for its vectors; 0 where they are not in memory.
    pub(super) fn room_bytes(&self) -> u64 {
        self.room.as_ref().map_or(0, Room::bytes)
    }

    /// Whether a search of it reads nothing from a device.
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
    fn no_more_is_taken_than_there_is_and_what_is_dropped_is_there_again() {
        let memory = VectorMemory::new(100);
        assert!(memory.suits(100) && !memory.suits(101));
        let rooms = [60, 40].map(|bytes| memory.take(bytes).unwrap());
        assert_eq!(memory.take(1).map(drop), Err(Full::Collection));
        assert!(memory.take(0).is_ok());
        let [first, second] = rooms;
        drop(first);
        assert_eq!(memory.take(61).map(drop), Err(Full::Collection));
        assert_eq!(memory.take(60).map(|room| room.bytes()), Ok(60));
        drop(second);
        assert_eq!(memory.0.taken.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn all_collections_together_take_no_more_than_a_process_may() {
        let memory = VectorMemory::new(u64::MAX);
        assert!(!memory.suits(MOST_OF_PROCESS + 1));
        for bytes in [MOST_OF_PROCESS + 1, u64::MAX] {
            assert_eq!(memory.take(bytes).map(drop), Err(Full::Process));
        }
        assert_eq!(memory.0.taken.load(Ordering::Relaxed), 0);
    }
}
