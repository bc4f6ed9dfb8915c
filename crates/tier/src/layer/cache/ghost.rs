//! The ghost queue: numbers of pages that were evicted from the small queue. A page that returns while it is
//! in the ghost queue enters the main queue.
//!
//! A table of fingerprints with the time of their entry, in buckets of four, as in Yang et al. (SOSP'23,
//! section 4.2). An entry expires when `capacity` further entries have been made, so no queue is needed.

use crate::backend::sim::random::mix;

const BUCKET: usize = 4;

/// A fingerprint, and the count of insertions when it entered; a fingerprint of 0 is an empty entry.
#[derive(Debug, Clone, Copy, Default)]
struct GhostEntry {
    fingerprint: u32,
    entered: u32,
}

/// Table of the pages that were evicted last.
#[derive(Debug)]
pub(super) struct Ghost {
    entries: Vec<[GhostEntry; BUCKET]>,
    /// Number of insertions after which an entry expires.
    capacity: u32,
    /// Insertions so far, modulo 2^32.
    now: u32,
}

/// Returns the number of buckets for `capacity` entries, with a quarter more since buckets fill unevenly.
fn buckets(capacity: usize) -> usize {
    (capacity + capacity / 4).div_ceil(BUCKET).max(1)
}

impl Ghost {
    /// Makes a table for about the last `capacity` insertions.
    pub(super) fn new(capacity: usize) -> Ghost {
        let entries = vec![[GhostEntry::default(); BUCKET]; buckets(capacity)];
        Ghost { entries, capacity: capacity as u32, now: 0 }
    }

    /// Returns the bytes allocated for `capacity` entries.
    pub(super) fn footprint(capacity: usize) -> u64 {
        (buckets(capacity) * size_of::<[GhostEntry; BUCKET]>()) as u64
    }

    /// Returns the bucket and the fingerprint of a page.
    fn hash(&self, page: u64) -> (usize, u32) {
        let hash = mix(page ^ 0x6057);
        let bucket = ((hash & 0xFFFF_FFFF) * self.entries.len() as u64) >> 32;
        (bucket as usize, (hash >> 32) as u32 | 1)
    }

    /// Inserts a page, replacing the oldest entry of its bucket.
    pub(super) fn insert(&mut self, page: u64) {
        let (bucket, fingerprint) = self.hash(page);
        self.now = self.now.wrapping_add(1);
        let (now, bucket) = (self.now, &mut self.entries[bucket]);
        let age = |e: &GhostEntry| if e.fingerprint == 0 { u32::MAX } else { now.wrapping_sub(e.entered) };
        if let Some(oldest) = bucket.iter_mut().max_by_key(|e| age(e)) {
            *oldest = GhostEntry { fingerprint, entered: now };
        }
    }

    /// Removes a page. Returns true if it was in the table and had not expired.
    pub(super) fn remove(&mut self, page: u64) -> bool {
        let (bucket, fingerprint) = self.hash(page);
        let (now, capacity) = (self.now, self.capacity);
        for entry in &mut self.entries[bucket] {
            if entry.fingerprint == fingerprint {
                *entry = GhostEntry { fingerprint: 0, ..*entry };
                return now.wrapping_sub(entry.entered) < capacity;
            }
        }
        false
    }
}
