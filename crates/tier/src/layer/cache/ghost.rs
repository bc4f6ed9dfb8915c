//! Pages that were dropped without a second look: who comes back goes to the main queue.
//!
//! Fingerprints with the moment of their entry in buckets of four, as in Yang et al. (SOSP'23, section 4.2): an
//! entry dies by itself once as many others have come as the queue would hold, so there is no queue.

use crate::backend::sim::random::mix;

const BUCKET: usize = 4;

/// A fingerprint and the count of entries when it came; a fingerprint of 0 is no entry.
#[derive(Debug, Clone, Copy, Default)]
struct Trace {
    fingerprint: u32,
    entered: u32,
}

/// See the module's description.
#[derive(Debug)]
pub(super) struct Ghost {
    traces: Vec<[Trace; BUCKET]>,
    /// Entries that live at once.
    capacity: u32,
    /// Entries so far, modulo 2^32.
    now: u32,
}

/// Buckets for `capacity` entries, with a quarter of room to spare for buckets that fill unevenly.
fn buckets(capacity: usize) -> usize {
    (capacity + capacity / 4).div_ceil(BUCKET).max(1)
}

impl Ghost {
    /// Remembers the last `capacity` entries or nearly so.
    pub(super) fn new(capacity: usize) -> Ghost {
        let traces = vec![[Trace::default(); BUCKET]; buckets(capacity)];
        Ghost { traces, capacity: capacity as u32, now: 0 }
    }

    /// Bytes allocated for `capacity` entries.
    pub(super) fn footprint(capacity: usize) -> u64 {
        (buckets(capacity) * size_of::<[Trace; BUCKET]>()) as u64
    }

    fn place(&self, page: u64) -> (usize, u32) {
        let hash = mix(page ^ 0x6057);
        let bucket = ((hash & 0xFFFF_FFFF) * self.traces.len() as u64) >> 32;
        (bucket as usize, (hash >> 32) as u32 | 1)
    }

    /// Remembers a page, in the place of the oldest of its bucket.
    pub(super) fn insert(&mut self, page: u64) {
        let (bucket, fingerprint) = self.place(page);
        self.now = self.now.wrapping_add(1);
        let (now, bucket) = (self.now, &mut self.traces[bucket]);
        let age = |t: &Trace| if t.fingerprint == 0 { u32::MAX } else { now.wrapping_sub(t.entered) };
        if let Some(oldest) = bucket.iter_mut().max_by_key(|t| age(t)) {
            *oldest = Trace { fingerprint, entered: now };
        }
    }

    /// Whether a page is remembered; it no longer is.
    pub(super) fn remove(&mut self, page: u64) -> bool {
        let (bucket, fingerprint) = self.place(page);
        let (now, capacity) = (self.now, self.capacity);
        for trace in &mut self.traces[bucket] {
            if trace.fingerprint == fingerprint {
                *trace = Trace { fingerprint: 0, ..*trace };
                return now.wrapping_sub(trace.entered) < capacity;
            }
        }
        false
    }
}
