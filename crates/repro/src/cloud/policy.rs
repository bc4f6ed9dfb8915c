//! Two policies of a cache, simulated exactly: what is in it is known by key and bytes alone.

use std::collections::{BTreeMap, HashMap, VecDeque};

/// The share of a segmented LRU that is for what was used again.
const PROTECTED: f64 = 0.8;
/// The share of an S3-FIFO that is for what is new (Yang et al., SOSP'23).
const SMALL: f64 = 0.1;
/// Uses that an S3-FIFO counts at most.
const MOST_USES: u8 = 3;

/// What decides what stays.
pub(super) trait Policy {
    /// Uses what is called `key`, of `bytes`: whether it was there. It is from now on, unless it is larger than the cache.
    fn touch(&mut self, key: u64, bytes: u64) -> bool;
}

/// A segmented LRU, as the paper's cache is described: what is used a second time is protected from what is used once.
pub(super) struct SegmentedLru {
    capacity: u64,
    protected_capacity: u64,
    entries: HashMap<u64, Used>,
    /// On trial and protected: keys by the time of their last use.
    segments: [BTreeMap<u64, u64>; 2],
    bytes: [u64; 2],
    clock: u64,
}

#[derive(Clone, Copy)]
struct Used {
    bytes: u64,
    at: u64,
    segment: usize,
}

const TRIAL: usize = 0;
const KEPT: usize = 1;

impl SegmentedLru {
    /// An empty one of so many bytes.
    pub(super) fn new(capacity: u64) -> SegmentedLru {
        SegmentedLru {
            capacity,
            protected_capacity: (capacity as f64 * PROTECTED) as u64,
            entries: HashMap::new(),
            segments: [BTreeMap::new(), BTreeMap::new()],
            bytes: [0; 2],
            clock: 0,
        }
    }

    fn put(&mut self, key: u64, bytes: u64, segment: usize) {
        self.clock += 1;
        self.entries.insert(key, Used { bytes, at: self.clock, segment });
        self.segments[segment].insert(self.clock, key);
        self.bytes[segment] += bytes;
    }

    /// Takes out what was not used for longest.
    fn take_oldest(&mut self, segment: usize) -> Option<(u64, u64)> {
        let (_, key) = self.segments[segment].pop_first()?;
        let bytes = self.entries.remove(&key).map_or(0, |used| used.bytes);
        self.bytes[segment] -= bytes;
        Some((key, bytes))
    }
}

impl Policy for SegmentedLru {
    fn touch(&mut self, key: u64, bytes: u64) -> bool {
        let there = self.entries.remove(&key);
        if let Some(used) = there {
            self.segments[used.segment].remove(&used.at);
            self.bytes[used.segment] -= used.bytes;
        }
        if bytes > self.capacity {
            return there.is_some();
        }
        self.put(key, bytes, if there.is_some() { KEPT } else { TRIAL });
        while self.bytes[KEPT] > self.protected_capacity
            && let Some((key, bytes)) = self.take_oldest(KEPT)
        {
            self.put(key, bytes, TRIAL);
        }
        while self.bytes[TRIAL] + self.bytes[KEPT] > self.capacity {
            if self.take_oldest(TRIAL).is_none() && self.take_oldest(KEPT).is_none() {
                break;
            }
        }
        there.is_some()
    }
}

/// S3-FIFO: a short queue for what is new, a long one for what was used again, and names of what was put out.
pub(super) struct S3Fifo {
    capacity: u64,
    small_capacity: u64,
    entries: HashMap<u64, Queued>,
    small: VecDeque<u64>,
    main: VecDeque<u64>,
    bytes: u64,
    small_bytes: u64,
    /// What was put out of the short queue lately, as much as the long one holds, with the number of its entry.
    ghosts: HashMap<u64, u64>,
    ghost_order: VecDeque<(u64, u64, u64)>,
    ghost_bytes: u64,
    clock: u64,
}

#[derive(Clone, Copy)]
struct Queued {
    bytes: u64,
    uses: u8,
}

impl S3Fifo {
    /// An empty one of so many bytes.
    pub(super) fn new(capacity: u64) -> S3Fifo {
        S3Fifo {
            capacity,
            small_capacity: (capacity as f64 * SMALL) as u64,
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

    /// Puts out what is least worth it; false where nothing is left.
    fn evict(&mut self) -> bool {
        if self.small_bytes > self.small_capacity || self.main.is_empty() {
            let Some(key) = self.small.pop_front() else { return false };
            let Some(queued) = self.entries.get_mut(&key) else { return true };
            let bytes = queued.bytes;
            self.small_bytes -= bytes;
            if queued.uses > 1 {
                queued.uses = 0;
                self.main.push_back(key);
            } else {
                self.entries.remove(&key);
                self.bytes -= bytes;
                self.remember(key, bytes);
            }
            return true;
        }
        let Some(key) = self.main.pop_front() else { return false };
        let Some(queued) = self.entries.get_mut(&key) else { return true };
        if queued.uses > 0 {
            queued.uses -= 1;
            self.main.push_back(key);
        } else {
            self.bytes -= queued.bytes;
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

impl Policy for S3Fifo {
    fn touch(&mut self, key: u64, bytes: u64) -> bool {
        if let Some(queued) = self.entries.get_mut(&key) {
            queued.uses = (queued.uses + 1).min(MOST_USES);
            return true;
        }
        if bytes > self.capacity {
            return false;
        }
        while self.bytes + bytes > self.capacity && self.evict() {}
        self.entries.insert(key, Queued { bytes, uses: 0 });
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
    fn a_segmented_lru_keeps_what_was_used_twice_through_a_scan() {
        let mut cache = SegmentedLru::new(10);
        assert!(!cache.touch(1, 2) && cache.touch(1, 2));
        (100..200).for_each(|key| assert!(!cache.touch(key, 2)));
        assert!(cache.touch(1, 2));
        // Of the others the last ones stay.
        assert!(cache.touch(199, 2) && !cache.touch(150, 2));
        // What is larger than the cache never enters it.
        assert!(!cache.touch(500, 11) && !cache.touch(500, 11));
        assert!(cache.bytes.iter().sum::<u64>() <= 10);
    }

    #[test]
    fn what_is_no_longer_protected_is_on_trial_again() {
        let mut cache = SegmentedLru::new(10);
        for key in 0..5 {
            cache.touch(key, 2);
            cache.touch(key, 2);
        }
        // Of five that were used twice four are protected.
        assert_eq!(cache.bytes, [2, 8]);
        cache.touch(9, 2);
        assert!(!cache.touch(0, 2));
    }

    #[test]
    fn s3_fifo_lets_a_scan_through_and_remembers_what_comes_back() {
        let mut cache = S3Fifo::new(100);
        (0..3).for_each(|_| _ = cache.touch(1, 10));
        (100..150).for_each(|key| assert!(!cache.touch(key, 10)));
        assert!(cache.touch(1, 10));
        // 149 is in the cache; what was put out just before comes back into the long queue.
        assert!(cache.touch(149, 10));
        let gone = (100..150).rev().find(|key| !cache.entries.contains_key(key)).unwrap();
        assert!(!cache.touch(gone, 10));
        assert!(cache.main.contains(&gone));
        assert!(cache.bytes <= 100);
        assert!(!cache.touch(500, 101) && !cache.touch(500, 101));
    }

    #[test]
    fn nothing_is_lost_where_everything_fits() {
        for policy in [&mut SegmentedLru::new(1000) as &mut dyn Policy, &mut S3Fifo::new(1000)] {
            let hits = (0..300_u64).filter(|at| policy.touch(at % 100, 10)).count();
            assert_eq!(hits, 200);
        }
    }
}
