//! One shard of the cache: pages, where they lie, and which of them goes next (S3-FIFO).

use super::ghost::Ghost;
use crate::backend::sim::random::mix;
use crate::memory::advise_huge_pages;
use std::sync::atomic::{AtomicU8, Ordering};

/// A page is promoted from the small queue when it has been hit more often than this: once more after the read that
/// brought it in may still be the same query (Yang et al., algorithm 1).
const PROMOTED_ABOVE: u8 = 1;

/// Hits that are counted at most; a page of the main queue survives as many passes (Yang et al., section 4.1).
const MOST_HITS: u8 = 3;

/// In place of the hits of a page that must stay and that no queue names.
const PINNED: u8 = u8::MAX;

/// The same while a queue still names it.
const PINNED_IN_QUEUE: u8 = u8::MAX - 1;

/// The small queue's share of the slots is one in this many (Yang et al., section 4.1).
const SMALL_SHARE: usize = 10;

/// One slot in this many, at least, is never pinned, so that the cache goes on working.
const UNPINNED_SHARE: u32 = 8;

/// No slot, in the table and in the queues.
const NONE: u32 = u32::MAX;

/// The number of a page that has been forgotten while its slot waits in a queue.
const GONE: u64 = u64::MAX;

/// How a page enters the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    /// Through the small queue, as everything that a query reads.
    Read,
    /// Into the main queue: somebody knows that it will be wanted.
    Warm,
    /// To stay.
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

/// See the module's description. `n` slots; a page is looked up under a shared lock and inserted under an exclusive one.
#[derive(Debug)]
pub(super) struct Shard {
    page_bytes: usize,
    /// `n` pages.
    pages: Vec<u8>,
    /// The page in each slot.
    numbers: Vec<u64>,
    hits: Vec<AtomicU8>,
    next: Vec<u32>,
    /// Slots by the hash of their page: open addressing, linear probing, at most two thirds full.
    table: Vec<u32>,
    /// Slots that have been used at least once are those below.
    used: u32,
    free: Fifo,
    small: Fifo,
    main: Fifo,
    ghost: Ghost,
    pinned: u32,
    resident: usize,
}

impl Shard {
    /// A shard of `slots` pages of `page_bytes` each.
    pub(super) fn new(slots: usize, page_bytes: usize) -> Shard {
        // Zeroed by the system when it is touched: a cache takes memory as it fills.
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

    /// Bytes that a shard of `slots` pages allocates.
    pub(super) fn footprint(slots: usize, page_bytes: usize) -> u64 {
        let a_slot = page_bytes + size_of::<u64>() + size_of::<AtomicU8>() + size_of::<u32>();
        (slots * a_slot + table_len(slots) * size_of::<u32>()) as u64 + Ghost::footprint(slots)
    }

    /// Pages held now.
    pub(super) fn resident(&self) -> usize {
        self.resident
    }

    /// The bytes of a page, if it is here; counts a hit.
    #[inline]
    pub(super) fn get(&self, page: u64) -> Option<&[u8]> {
        let slot = self.table[self.find(page)?] as usize;
        // Two threads may count one hit; that is near enough, and a page that is hit often is no longer written to.
        let hits = self.hits[slot].load(Ordering::Relaxed);
        if hits < MOST_HITS {
            self.hits[slot].store(hits + 1, Ordering::Relaxed);
        }
        self.pages.get(slot * self.page_bytes..(slot + 1) * self.page_bytes)
    }

    /// Whether a page is here; counts nothing.
    pub(super) fn holds(&self, page: u64) -> bool {
        self.find(page).is_some()
    }

    /// Where in the table a page's slot stands.
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

    /// Where the search for a page begins.
    fn home(&self, page: u64) -> usize {
        (((mix(page) & 0xFFFF_FFFF) * self.table.len() as u64) >> 32) as usize
    }

    fn after(&self, at: usize) -> usize {
        if at + 1 == self.table.len() { 0 } else { at + 1 }
    }

    /// Keeps a page's bytes, unless it is here already. Returns how many pages went for it.
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
        self.enter(page, slot);
        let returns = self.ghost.remove(page);
        match entry {
            Entry::Pin if self.may_pin() => {
                *self.hits[at].get_mut() = PINNED;
                self.pinned += 1;
            }
            Entry::Read if !returns => self.small.push(slot, &mut self.next),
            _ => self.main.push(slot, &mut self.next),
        }
        evicted
    }

    fn may_pin(&self) -> bool {
        let slots = self.numbers.len() as u32;
        self.pinned + (slots / UNPINNED_SHARE).max(1) < slots
    }

    /// Makes a page that is here stay. Its queue lets go of it when its turn comes.
    pub(super) fn pin(&mut self, page: u64) {
        let Some(at) = self.find(page) else { return };
        let slot = self.table[at] as usize;
        if *self.hits[slot].get_mut() < PINNED_IN_QUEUE && self.may_pin() {
            *self.hits[slot].get_mut() = PINNED_IN_QUEUE;
            self.pinned += 1;
        }
    }

    /// Drops a page, pinned or not. Its slot serves again once the queue that names it has turned.
    pub(super) fn forget(&mut self, page: u64) {
        let Some(at) = self.find(page) else { return };
        let slot = self.table[at] as usize;
        self.leave(at);
        let hits = std::mem::take(self.hits[slot].get_mut());
        self.numbers[slot] = GONE;
        self.pinned -= u32::from(hits >= PINNED_IN_QUEUE);
        // A slot that a queue names is used again when its turn comes.
        if hits == PINNED {
            self.free.push(slot as u32, &mut self.next);
        }
    }

    /// Puts a slot into the table.
    fn enter(&mut self, page: u64, slot: u32) {
        let mut at = self.home(page);
        while self.table[at] != NONE {
            at = self.after(at);
        }
        self.table[at] = slot;
        self.resident += 1;
    }

    /// Takes the entry at `gap` out of the table and moves those up that were pushed past it.
    fn leave(&mut self, gap: usize) {
        let len = self.table.len();
        let from = |start: usize, end: usize| (end + len - start) % len;
        let (mut gap, mut at) = (gap, self.after(gap));
        while self.table[at] != NONE {
            let home = self.home(self.numbers[self.table[at] as usize]);
            if from(home, at) >= from(gap, at) {
                self.table[gap] = self.table[at];
                gap = at;
            }
            at = self.after(at);
        }
        self.table[gap] = NONE;
        self.resident -= 1;
    }

    /// A slot that nobody needs; `None` if all are pinned.
    fn free_slot(&mut self) -> Option<u32> {
        if (self.used as usize) < self.numbers.len() {
            self.used += 1;
            return Some(self.used - 1);
        }
        self.free.pop(&self.next).or_else(|| self.evict())
    }

    /// Lets the page go whose turn it is (Yang et al., algorithm 1).
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
            let (stays, left) =
                if from_small { (hits > PROMOTED_ABOVE, 0) } else { (hits > 0, hits.saturating_sub(1)) };
            if stays {
                *self.hits[slot as usize].get_mut() = left;
                self.main.push(slot, &mut self.next);
                continue;
            }
            if from_small {
                self.ghost.insert(page);
            }
            if let Some(at) = self.find(page) {
                self.leave(at);
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
    use crate::backend::sim::random::Dice;
    use std::collections::HashMap;

    const PAGE: usize = 16;

    fn bytes(page: u64) -> [u8; PAGE] {
        (u128::from(mix(page)) << 64 | u128::from(page)).to_le_bytes()
    }

    /// Asks for each page; how many were there.
    fn ask_all(shard: &mut Shard, pages: impl Iterator<Item = u64>) -> usize {
        pages.filter(|page| ask(shard, *page)).count()
    }

    /// A page as a query would ask for it; whether it was there.
    fn ask(shard: &mut Shard, page: u64) -> bool {
        if let Some(found) = shard.get(page) {
            assert_eq!(found, bytes(page));
            return true;
        }
        shard.insert(page, &bytes(page), Entry::Read);
        false
    }

    #[test]
    fn whatever_is_done_pages_keep_their_bytes_and_slots_are_never_lost() {
        for seed in 0..20 {
            let mut dice = Dice::new(seed, 0);
            let slots = 4 + dice.below(60) as usize;
            let mut shard = Shard::new(slots, PAGE);
            let mut pinned: HashMap<u64, ()> = HashMap::new();
            for _ in 0..20_000 {
                let page = dice.below(slots as u64 * 3);
                match dice.below(200) {
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
                        ask(&mut shard, page);
                    }
                }
                assert!(shard.resident() <= slots);
            }
            assert!(pinned.keys().all(|page| shard.holds(*page)), "a pinned page has gone");
            // Every slot can still be filled: pages wanted three times each go through both queues.
            for page in 0..slots as u64 * 40 {
                ask_all(&mut shard, [1_000_000 + page; 3].into_iter());
            }
            assert_eq!(shard.resident(), slots);
            let held = (0..slots as u64 * 3 + 1_000_000 + slots as u64 * 40).filter(|p| shard.holds(*p));
            assert_eq!(held.count(), slots);
        }
    }

    #[test]
    fn a_scan_does_not_drive_out_what_is_wanted_often() {
        let mut shard = Shard::new(100, PAGE);
        for _ in 0..3 {
            ask_all(&mut shard, 0..60);
        }
        // Ten times the cache, each page once.
        ask_all(&mut shard, 1000..2000);
        assert_eq!(ask_all(&mut shard, 0..60), 60);
    }

    #[test]
    fn a_page_that_comes_back_soon_reaches_the_main_queue() {
        let mut shard = Shard::new(100, PAGE);
        ask_all(&mut shard, 0..200);
        let dropped = (100..200).find(|page| !shard.holds(*page)).unwrap_or(99);
        ask(&mut shard, dropped);
        ask_all(&mut shard, 1000..1080);
        assert!(shard.holds(dropped));
    }

    #[test]
    fn no_more_is_pinned_than_leaves_room() {
        let mut shard = Shard::new(16, PAGE);
        for page in 0..40 {
            shard.insert(page, &bytes(page), Entry::Pin);
        }
        assert_eq!((0..14).filter(|page| shard.holds(*page)).count(), 14);
        ask_all(&mut shard, 100..140);
        assert_eq!(((0..14).filter(|page| shard.holds(*page)).count(), shard.resident()), (14, 16));
    }

    #[test]
    fn on_skewed_reads_more_is_hit_than_by_keeping_the_latest() {
        let (mut shard, mut dice) = (Shard::new(500, PAGE), Dice::new(5, 5));
        let (mut latest, mut hits, mut hits_of_latest) = (Vec::new(), 0, 0);
        for i in 0..60_000_u64 {
            // Every other read is of a scan; the others prefer small numbers.
            let page = if i % 2 == 0 { 1_000_000 + i } else { (dice.unit().powi(3) * 3000.0) as u64 };
            hits += u32::from(ask(&mut shard, page));
            let seen = latest.iter().position(|p| *p == page);
            hits_of_latest += u32::from(seen.is_some());
            seen.map(|at| latest.remove(at));
            latest.push(page);
            if latest.len() > 500 {
                latest.remove(0);
            }
        }
        assert!(f64::from(hits) > 1.2 * f64::from(hits_of_latest), "{hits} and {hits_of_latest}");
    }
}
