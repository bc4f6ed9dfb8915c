//! One shard of the cache: pages, a table of their slots, and the queues of S3-FIFO.

use super::ghost::Ghost;
use crate::backend::sim::random::mix;
use crate::memory::advise_huge_pages;
use std::sync::atomic::{AtomicU8, Ordering};

/// A page is promoted from the small queue if it has more hits than this: a single hit after the read that
/// loaded it may come from the same query (Yang et al., algorithm 1).
const PROMOTED_ABOVE: u8 = 1;

/// Maximum count of hits; a page of the main queue survives as many passes (Yang et al., section 4.1).
const MOST_HITS: u8 = 3;

/// Value in `hits` of a pinned page that is in no queue.
const PINNED: u8 = u8::MAX;

/// Value in `hits` of a pinned page that is still in a queue.
const PINNED_IN_QUEUE: u8 = u8::MAX - 1;

/// The small queue's share of the slots is one in this many (Yang et al., section 4.1).
const SMALL_SHARE: usize = 10;

/// At least one slot in this many is never pinned, so that the cache keeps working.
const UNPINNED_SHARE: u32 = 8;

/// Marks an empty entry of the table and the end of a queue.
const NONE: u32 = u32::MAX;

/// Page number of an unused slot, and of a forgotten page whose slot is still in a queue.
const GONE: u64 = u64::MAX;

/// Way in which a page enters the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    /// Through the small queue, as every page that a query reads.
    Read,
    /// Into the main queue, for pages that are expected to be read.
    Warm,
    /// Pinned.
    Pin,
}

/// Slots in order of entry, linked through [`Shard::next`].
#[derive(Debug)]
struct Fifo {
    first: u32,
    last: u32,
    len: usize,
}

impl Fifo {
    const EMPTY: Fifo = Fifo { first: NONE, last: NONE, len: 0 };

    fn push(&mut self, slot: u32, next: &mut [u32]) {
        next[slot as usize] = NONE;
        if self.len == 0 {
            self.first = slot;
        } else {
            next[self.last as usize] = slot;
        }
        self.last = slot;
        self.len += 1;
    }

    fn pop(&mut self, next: &[u32]) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        let slot = self.first;
        self.first = next[slot as usize];
        self.len -= 1;
        Some(slot)
    }
}

/// A shard with `n` slots. A page is looked up under a shared lock and inserted under an exclusive lock.
#[derive(Debug)]
pub(super) struct Shard {
    page_bytes: usize,
    /// Bytes of all slots, `n x page_bytes`.
    pages: Vec<u8>,
    /// Number of the page in each slot.
    numbers: Vec<u64>,
    /// Hits of each slot, or `PINNED` or `PINNED_IN_QUEUE`.
    hits: Vec<AtomicU8>,
    next: Vec<u32>,
    /// Slots by the hash of their page: open addressing, linear probing, at most two thirds full.
    table: Vec<u32>,
    /// Slots below this number have been used at least once.
    used: u32,
    free: Fifo,
    small: Fifo,
    main: Fifo,
    ghost: Ghost,
    pinned: u32,
    resident: usize,
}

impl Shard {
    /// Makes a shard of `slots` pages of `page_bytes` each.
    pub(super) fn new(slots: usize, page_bytes: usize) -> Shard {
        // The system zeroes these pages at the first touch, so a cache takes memory as it fills.
        let mut pages = vec![0; slots * page_bytes];
        advise_huge_pages(&mut pages);
        Shard {
            page_bytes,
            pages,
            numbers: vec![GONE; slots],
            hits: (0..slots).map(|_| AtomicU8::new(0)).collect(),
            next: vec![NONE; slots],
            table: vec![NONE; table_len(slots)],
            used: 0,
            free: Fifo::EMPTY,
            small: Fifo::EMPTY,
            main: Fifo::EMPTY,
            ghost: Ghost::new(slots),
            pinned: 0,
            resident: 0,
        }
    }

    /// Returns the bytes that a shard of `slots` pages allocates.
    pub(super) fn footprint(slots: usize, page_bytes: usize) -> u64 {
        let slot_bytes = page_bytes + size_of::<u64>() + size_of::<AtomicU8>() + size_of::<u32>();
        (slots * slot_bytes + table_len(slots) * size_of::<u32>()) as u64 + Ghost::footprint(slots)
    }

    /// Returns the number of pages held now.
    pub(super) fn resident(&self) -> usize {
        self.resident
    }

    /// Returns the bytes of a page, if the shard holds it, and counts a hit.
    #[inline]
    pub(super) fn get(&self, page: u64) -> Option<&[u8]> {
        let slot = self.table[self.find(page)?] as usize;
        // Two concurrent hits may count as one, which is exact enough. The count of a hot page is no longer
        // written to.
        let hits = self.hits[slot].load(Ordering::Relaxed);
        if hits < MOST_HITS {
            self.hits[slot].store(hits + 1, Ordering::Relaxed);
        }
        self.pages.get(slot * self.page_bytes..(slot + 1) * self.page_bytes)
    }

    /// Returns true if the shard holds a page. Counts no hit.
    pub(super) fn holds(&self, page: u64) -> bool {
        self.find(page).is_some()
    }

    /// Returns the table index of a page, if the shard holds it.
    #[inline]
    fn find(&self, page: u64) -> Option<usize> {
        let mut at = self.home(page);
        loop {
            let slot = self.table[at];
            if slot == NONE {
                return None;
            }
            if self.numbers[slot as usize] == page {
                return Some(at);
            }
            at = self.after(at);
        }
    }

    /// Returns the table index at which the search for a page begins.
    fn home(&self, page: u64) -> usize {
        (((mix(page) & 0xFFFF_FFFF) * self.table.len() as u64) >> 32) as usize
    }

    fn after(&self, at: usize) -> usize {
        if at + 1 == self.table.len() { 0 } else { at + 1 }
    }

    /// Inserts a page, unless the shard holds it already. Returns the number of pages evicted for it.
    pub(super) fn insert(&mut self, page: u64, bytes: &[u8], entry: Entry) -> u64 {
        if self.find(page).is_some() {
            if entry == Entry::Pin {
                self.pin(page);
            }
            return 0;
        }
        let before = self.resident;
        let Some(slot) = self.free_slot() else { return 0 };
        let evicted = (before - self.resident) as u64;
        let at = slot as usize;
        self.pages[at * self.page_bytes..][..bytes.len()].copy_from_slice(bytes);
        self.numbers[at] = page;
        *self.hits[at].get_mut() = 0;
        self.table_insert(page, slot);
        let was_evicted = self.ghost.remove(page);
        match entry {
            Entry::Pin if self.may_pin() => {
                *self.hits[at].get_mut() = PINNED;
                self.pinned += 1;
            }
            Entry::Read if !was_evicted => self.small.push(slot, &mut self.next),
            _ => self.main.push(slot, &mut self.next),
        }
        evicted
    }

    fn may_pin(&self) -> bool {
        let slots = self.numbers.len() as u32;
        self.pinned + (slots / UNPINNED_SHARE).max(1) < slots
    }

    /// Pins a page, if the shard holds it. It leaves its queue when its turn comes.
    pub(super) fn pin(&mut self, page: u64) {
        let Some(at) = self.find(page) else { return };
        let slot = self.table[at] as usize;
        if *self.hits[slot].get_mut() < PINNED_IN_QUEUE && self.may_pin() {
            *self.hits[slot].get_mut() = PINNED_IN_QUEUE;
            self.pinned += 1;
        }
    }

    /// Drops a page, pinned or not. A slot that is in a queue is reused when its turn comes.
    pub(super) fn forget(&mut self, page: u64) {
        let Some(at) = self.find(page) else { return };
        let slot = self.table[at] as usize;
        self.table_remove(at);
        let hits = std::mem::take(self.hits[slot].get_mut());
        self.numbers[slot] = GONE;
        self.pinned -= u32::from(hits >= PINNED_IN_QUEUE);
        // Only a slot that is in no queue becomes free now.
        if hits == PINNED {
            self.free.push(slot as u32, &mut self.next);
        }
    }

    /// Inserts a slot into the table.
    fn table_insert(&mut self, page: u64, slot: u32) {
        let mut at = self.home(page);
        while self.table[at] != NONE {
            at = self.after(at);
        }
        self.table[at] = slot;
        self.resident += 1;
    }

    /// Removes the entry at `gap` from the table, and moves later entries that were displaced past it into
    /// the gap.
    fn table_remove(&mut self, gap: usize) {
        let len = self.table.len();
        let distance = |start: usize, end: usize| (end + len - start) % len;
        let (mut gap, mut at) = (gap, self.after(gap));
        while self.table[at] != NONE {
            let home = self.home(self.numbers[self.table[at] as usize]);
            if distance(home, at) >= distance(gap, at) {
                self.table[gap] = self.table[at];
                gap = at;
            }
            at = self.after(at);
        }
        self.table[gap] = NONE;
        self.resident -= 1;
    }

    /// Returns a free slot, evicting a page if necessary; `None` if all pages are pinned.
    fn free_slot(&mut self) -> Option<u32> {
        if (self.used as usize) < self.numbers.len() {
            self.used += 1;
            return Some(self.used - 1);
        }
        self.free.pop(&self.next).or_else(|| self.evict())
    }

    /// Evicts the page that the policy chooses (Yang et al., algorithm 1). Returns its slot; `None` if all
    /// pages are pinned.
    fn evict(&mut self) -> Option<u32> {
        let small_slots = (self.numbers.len() / SMALL_SHARE).max(1);
        loop {
            let from_small = self.small.len >= small_slots || self.main.len == 0;
            let queue = if from_small { &mut self.small } else { &mut self.main };
            let slot = queue.pop(&self.next)?;
            let hits = *self.hits[slot as usize].get_mut();
            let page = self.numbers[slot as usize];
            if page == GONE {
                return Some(slot);
            }
            if hits == PINNED_IN_QUEUE {
                *self.hits[slot as usize].get_mut() = PINNED;
                continue;
            }
            let (stays, hits_left) =
                if from_small { (hits > PROMOTED_ABOVE, 0) } else { (hits > 0, hits.saturating_sub(1)) };
            if stays {
                *self.hits[slot as usize].get_mut() = hits_left;
                self.main.push(slot, &mut self.next);
                continue;
            }
            if from_small {
                self.ghost.insert(page);
            }
            if let Some(at) = self.find(page) {
                self.table_remove(at);
            }
            return Some(slot);
        }
    }
}

fn table_len(slots: usize) -> usize {
    slots + slots / 2 + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::sim::random::SplitMix64;
    use std::collections::HashMap;

    const PAGE: usize = 16;

    fn bytes(page: u64) -> [u8; PAGE] {
        (u128::from(mix(page)) << 64 | u128::from(page)).to_le_bytes()
    }

    /// Reads each page. Returns the number of hits.
    fn read_all(shard: &mut Shard, pages: impl Iterator<Item = u64>) -> usize {
        pages.filter(|page| read(shard, *page)).count()
    }

    /// Reads a page as a query does. Returns true for a hit.
    fn read(shard: &mut Shard, page: u64) -> bool {
        if let Some(found) = shard.get(page) {
            assert_eq!(found, bytes(page));
            return true;
        }
        shard.insert(page, &bytes(page), Entry::Read);
        false
    }

    #[test]
    fn random_operations_keep_the_bytes_of_pages_and_lose_no_slot() {
        for seed in 0..20 {
            let mut random = SplitMix64::new(seed, 0);
            let slots = 4 + random.below(60) as usize;
            let mut shard = Shard::new(slots, PAGE);
            let mut pinned: HashMap<u64, ()> = HashMap::new();
            for _ in 0..20_000 {
                let page = random.below(slots as u64 * 3);
                match random.below(200) {
                    0 => {
                        shard.forget(page);
                        assert!(!shard.holds(page));
                        pinned.remove(&page);
                    }
                    1 if pinned.len() < slots / 2 => {
                        shard.insert(page, &bytes(page), Entry::Pin);
                        pinned.insert(page, ());
                    }
                    2 => {
                        shard.insert(page, &bytes(page), Entry::Warm);
                    }
                    _ => {
                        read(&mut shard, page);
                    }
                }
                assert!(shard.resident() <= slots);
            }
            assert!(pinned.keys().all(|page| shard.holds(*page)), "a pinned page was evicted");
            // Every slot can still be filled: pages that are read three times each go through both queues.
            for page in 0..slots as u64 * 40 {
                read_all(&mut shard, [1_000_000 + page; 3].into_iter());
            }
            assert_eq!(shard.resident(), slots);
            let held = (0..slots as u64 * 3 + 1_000_000 + slots as u64 * 40).filter(|p| shard.holds(*p));
            assert_eq!(held.count(), slots);
        }
    }

    #[test]
    fn a_scan_does_not_evict_hot_pages() {
        let mut shard = Shard::new(100, PAGE);
        for _ in 0..3 {
            read_all(&mut shard, 0..60);
        }
        // Ten times the cache, each page once.
        read_all(&mut shard, 1000..2000);
        assert_eq!(read_all(&mut shard, 0..60), 60);
    }

    #[test]
    fn a_page_that_returns_soon_enters_the_main_queue() {
        let mut shard = Shard::new(100, PAGE);
        read_all(&mut shard, 0..200);
        let evicted = (100..200).find(|page| !shard.holds(*page)).unwrap_or(99);
        read(&mut shard, evicted);
        read_all(&mut shard, 1000..1080);
        assert!(shard.holds(evicted));
    }

    #[test]
    fn pinning_leaves_an_eighth_of_the_slots() {
        let mut shard = Shard::new(16, PAGE);
        for page in 0..40 {
            shard.insert(page, &bytes(page), Entry::Pin);
        }
        assert_eq!((0..14).filter(|page| shard.holds(*page)).count(), 14);
        read_all(&mut shard, 100..140);
        assert_eq!(((0..14).filter(|page| shard.holds(*page)).count(), shard.resident()), (14, 16));
    }

    #[test]
    fn on_skewed_reads_the_cache_has_more_hits_than_lru() {
        let (mut shard, mut random) = (Shard::new(500, PAGE), SplitMix64::new(5, 5));
        let (mut lru, mut hits, mut lru_hits) = (Vec::new(), 0, 0);
        for i in 0..60_000_u64 {
            // Every other read belongs to a scan; the others prefer small numbers.
            let page = if i % 2 == 0 { 1_000_000 + i } else { (random.unit().powi(3) * 3000.0) as u64 };
            hits += u32::from(read(&mut shard, page));
            let found = lru.iter().position(|p| *p == page);
            lru_hits += u32::from(found.is_some());
            found.map(|at| lru.remove(at));
            lru.push(page);
            if lru.len() > 500 {
                lru.remove(0);
            }
        }
        assert!(f64::from(hits) > 1.2 * f64::from(lru_hits), "{hits} and {lru_hits}");
    }
}
