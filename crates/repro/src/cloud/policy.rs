//! Exact simulations of two cache policies, which see only the key and the bytes of an entry.

use std::collections::{BTreeMap, HashMap, VecDeque};

/// Share of a segmented LRU for entries that were used again.
const PROTECTED_SHARE: f64 = 0.8;
/// Share of an S3-FIFO for new entries (Yang et al., SOSP'23).
const SMALL_SHARE: f64 = 0.1;
/// Highest number of uses that an S3-FIFO counts.
const MOST_USES: u8 = 3;

/// A cache policy: decides which entries stay.
pub(super) trait EvictionPolicy {
    /// Uses the entry `key` of `bytes` bytes and returns true if it was in the cache. The entry then is in
    /// the cache, unless it is larger than the whole cache.
    fn touch(&mut self, key: u64, bytes: u64) -> bool;
}

/// A segmented LRU, as the paper describes its cache: entries used twice are protected from entries used
/// once.
pub(super) struct SegmentedLru {
    capacity: u64,
    protected_capacity: u64,
    entries: HashMap<u64, LruEntry>,
    /// Keys of the probationary and the protected segment, by the time of their last use.
    segments: [BTreeMap<u64, u64>; 2],
    bytes: [u64; 2],
    clock: u64,
}

#[derive(Clone, Copy)]
struct LruEntry {
    bytes: u64,
    at: u64,
    segment: usize,
}

const PROBATION: usize = 0;
const PROTECTED: usize = 1;

impl SegmentedLru {
    /// Returns an empty cache of `capacity` bytes.
    pub(super) fn new(capacity: u64) -> SegmentedLru {
        SegmentedLru {
            capacity,
            protected_capacity: (capacity as f64 * PROTECTED_SHARE) as u64,
            entries: HashMap::new(),
            segments: [BTreeMap::new(), BTreeMap::new()],
            bytes: [0; 2],
            clock: 0,
        }
    }

    fn put(&mut self, key: u64, bytes: u64, segment: usize) {
        self.clock += 1;
        self.entries.insert(key, LruEntry { bytes, at: self.clock, segment });
        self.segments[segment].insert(self.clock, key);
        self.bytes[segment] += bytes;
    }

    /// Removes the least recently used entry of a segment and returns its key and bytes.
    fn take_oldest(&mut self, segment: usize) -> Option<(u64, u64)> {
        let (_, key) = self.segments[segment].pop_first()?;
        let bytes = self.entries.remove(&key).map_or(0, |entry| entry.bytes);
        self.bytes[segment] -= bytes;
        Some((key, bytes))
    }
}

impl EvictionPolicy for SegmentedLru {
    fn touch(&mut self, key: u64, bytes: u64) -> bool {
        let previous = self.entries.remove(&key);
        if let Some(entry) = previous {
            self.segments[entry.segment].remove(&entry.at);
            self.bytes[entry.segment] -= entry.bytes;
        }
        if bytes > self.capacity {
            return previous.is_some();
        }
        self.put(key, bytes, if previous.is_some() { PROTECTED } else { PROBATION });
        while self.bytes[PROTECTED] > self.protected_capacity
            && let Some((key, bytes)) = self.take_oldest(PROTECTED)
        {
            self.put(key, bytes, PROBATION);
        }
        while self.bytes[PROBATION] + self.bytes[PROTECTED] > self.capacity {
            if self.take_oldest(PROBATION).is_none() && self.take_oldest(PROTECTED).is_none() {
                break;
            }
        }
        previous.is_some()
    }
}

/// S3-FIFO: a small queue for new entries, a main queue for entries that were used again, and a queue of
/// evicted keys.
pub(super) struct S3Fifo {
    capacity: u64,
    small_capacity: u64,
    entries: HashMap<u64, FifoEntry>,
    small: VecDeque<u64>,
    main: VecDeque<u64>,
    bytes: u64,
    small_bytes: u64,
    /// Keys that left the small queue, each with the number of its entry in `ghost_order`. Their bytes are
    /// limited to the capacity of the main queue.
    ghosts: HashMap<u64, u64>,
    ghost_order: VecDeque<(u64, u64, u64)>,
    ghost_bytes: u64,
    clock: u64,
}

#[derive(Clone, Copy)]
struct FifoEntry {
    bytes: u64,
    uses: u8,
}

impl S3Fifo {
    /// Returns an empty cache of `capacity` bytes.
    pub(super) fn new(capacity: u64) -> S3Fifo {
        S3Fifo {
            capacity,
            small_capacity: (capacity as f64 * SMALL_SHARE) as u64,
            entries: HashMap::new(),
            small: VecDeque::new(),
            main: VecDeque::new(),
            bytes: 0,
            small_bytes: 0,
            ghosts: HashMap::new(),
            ghost_order: VecDeque::new(),
            ghost_bytes: 0,
            clock: 0,
        }
    }

    /// Evicts or moves one entry; false if no entry is left.
    fn evict(&mut self) -> bool {
        if self.small_bytes > self.small_capacity || self.main.is_empty() {
            let Some(key) = self.small.pop_front() else { return false };
            let Some(entry) = self.entries.get_mut(&key) else { return true };
            let bytes = entry.bytes;
            self.small_bytes -= bytes;
            if entry.uses > 1 {
                entry.uses = 0;
                self.main.push_back(key);
            } else {
                self.entries.remove(&key);
                self.bytes -= bytes;
                self.remember(key, bytes);
            }
            return true;
        }
        let Some(key) = self.main.pop_front() else { return false };
        let Some(entry) = self.entries.get_mut(&key) else { return true };
        if entry.uses > 0 {
            entry.uses -= 1;
            self.main.push_back(key);
        } else {
            self.bytes -= entry.bytes;
            self.entries.remove(&key);
        }
        true
    }

    fn remember(&mut self, key: u64, bytes: u64) {
        self.clock += 1;
        self.ghosts.insert(key, self.clock);
        self.ghost_order.push_back((key, self.clock, bytes));
        self.ghost_bytes += bytes;
        while self.ghost_bytes > self.capacity - self.small_capacity
            && let Some((key, at, bytes)) = self.ghost_order.pop_front()
        {
            self.ghost_bytes -= bytes;
            if self.ghosts.get(&key) == Some(&at) {
                self.ghosts.remove(&key);
            }
        }
    }
}

impl EvictionPolicy for S3Fifo {
    fn touch(&mut self, key: u64, bytes: u64) -> bool {
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.uses = (entry.uses + 1).min(MOST_USES);
            return true;
        }
        if bytes > self.capacity {
            return false;
        }
        while self.bytes + bytes > self.capacity && self.evict() {}
        self.entries.insert(key, FifoEntry { bytes, uses: 0 });
        self.bytes += bytes;
        if self.ghosts.remove(&key).is_some() {
            self.main.push_back(key);
        } else {
            self.small.push_back(key);
            self.small_bytes += bytes;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segmented_lru_keeps_entries_used_twice_through_a_scan() {
        let mut cache = SegmentedLru::new(10);
        assert!(!cache.touch(1, 2) && cache.touch(1, 2));
        (100..200).for_each(|key| assert!(!cache.touch(key, 2)));
        assert!(cache.touch(1, 2));
        // Of the entries used once, the last ones stay.
        assert!(cache.touch(199, 2) && !cache.touch(150, 2));
        // Entries larger than the cache never enter it.
        assert!(!cache.touch(500, 11) && !cache.touch(500, 11));
        assert!(cache.bytes.iter().sum::<u64>() <= 10);
    }

    #[test]
    fn entries_that_lose_protection_return_to_probation() {
        let mut cache = SegmentedLru::new(10);
        for key in 0..5 {
            cache.touch(key, 2);
            cache.touch(key, 2);
        }
        // Four of the five entries that were used twice fit into the protected segment.
        assert_eq!(cache.bytes, [2, 8]);
        cache.touch(9, 2);
        assert!(!cache.touch(0, 2));
    }

    #[test]
    fn s3_fifo_lets_a_scan_pass_and_remembers_evicted_keys() {
        let mut cache = S3Fifo::new(100);
        (0..3).for_each(|_| _ = cache.touch(1, 10));
        (100..150).for_each(|key| assert!(!cache.touch(key, 10)));
        assert!(cache.touch(1, 10));
        // 149 is in the cache; an entry that was evicted just before returns into the main queue.
        assert!(cache.touch(149, 10));
        let gone = (100..150).rev().find(|key| !cache.entries.contains_key(key)).unwrap();
        assert!(!cache.touch(gone, 10));
        assert!(cache.main.contains(&gone));
        assert!(cache.bytes <= 100);
        assert!(!cache.touch(500, 101) && !cache.touch(500, 101));
    }

    #[test]
    fn nothing_is_evicted_while_everything_fits() {
        for policy in [&mut SegmentedLru::new(1000) as &mut dyn EvictionPolicy, &mut S3Fifo::new(1000)] {
            let hits = (0..300_u64).filter(|at| policy.touch(at % 100, 10)).count();
            assert_eq!(hits, 200);
        }
    }
}
