//! How a collection is opened.

use crate::segment::{FLAT_BELOW_ROWS, SegmentOptions, WriteOptions};
use bathyal_index::{OpenOptions, StoreOptions};
use bathyal_store::Durability;
use std::num::NonZeroU64;

/// Memory for rows that were written lately, where nobody says how much: 15,000 vectors of 768 floats come before they are written
/// as a segment, and a search compares as many in 3 ms (docs/decisions/collections.md).
pub const DEFAULT_WRITE_MEMORY_BYTES: u64 = 128 << 20;
/// The least that is taken: less would make segments of a few rows.
pub const LEAST_WRITE_MEMORY_BYTES: u64 = 1 << 20;
/// Memory of a budget that every segment gets: the buffers of some search threads, which an index has however small it is.
const LEAST_SEGMENT_BYTES: u64 = 16 << 20;

/// How to open a collection.
#[derive(Clone)]
pub struct CollectionOptions {
    /// How a store far away is reached, where the collection is in one.
    pub store: StoreOptions,
    /// How the indexes of its segments are opened. A memory budget is that of all together: each has a part of it by its size.
    pub index: OpenOptions,
    /// Memory for rows that are not in segments yet, in bytes: half of it for those that come, half for those that are being written
    /// as a segment.
    pub write_memory_bytes: u64,
    /// Batches of more bytes are written as a segment at once, without the log; `None`, and more than that, mean an eighth of
    /// `write_memory_bytes`.
    pub direct_bytes: Option<u64>,
    /// Memory that building the indexes of a segment may take, in bytes; `None` means no limit.
    pub build_memory_bytes: Option<u64>,
    /// The same where segments are merged; `None` means `build_memory_bytes`. Both may be taken at the same time.
    pub compact_memory_bytes: Option<u64>,
    /// Bytes of rows that merging reads a second at most, beside the writes or not; `None` means as many as it can. Building indexes
    /// is not slowed down by it.
    pub compact_bytes_per_second: Option<NonZeroU64>,
    /// Threads of builds; 0 means all cores.
    pub threads: usize,
    /// What a write that is acknowledged outlives.
    pub durability: Durability,
    /// Whether segments are written and merged by a thread of their own, beside the writes; without, by the write that fills the memory.
    pub background: bool,
    /// Whether segments are merged without being asked to.
    pub compact: bool,
    /// Segments with fewer rows are `flat`.
    pub flat_below_rows: usize,
    /// Versions that are kept beside the latest, to be opened by their number.
    pub keep_versions: usize,
}

impl Default for CollectionOptions {
    fn default() -> CollectionOptions {
        CollectionOptions {
            store: StoreOptions::default(),
            index: OpenOptions::default(),
            write_memory_bytes: DEFAULT_WRITE_MEMORY_BYTES,
            direct_bytes: None,
            build_memory_bytes: None,
            compact_memory_bytes: None,
            compact_bytes_per_second: None,
            threads: 0,
            durability: Durability::Disk,
            background: true,
            compact: true,
            flat_below_rows: FLAT_BELOW_ROWS,
            keep_versions: 0,
        }
    }
}

/// What part of a collection a segment is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SegmentPart {
    /// Bytes of its files.
    pub(crate) bytes: u64,
    /// Bytes of all segments.
    pub(crate) all_bytes: u64,
    /// How many these are.
    pub(crate) segments: u64,
}

impl SegmentPart {
    /// What it gets of a memory budget: as much as every segment, of what searches need however small it is, and of the rest by
    /// its size.
    fn share_of(self, budget_bytes: u64) -> u64 {
        let least = LEAST_SEGMENT_BYTES.min(budget_bytes / self.segments.max(1));
        let rest = budget_bytes.saturating_sub(least.saturating_mul(self.segments));
        least + (rest as f64 * self.bytes as f64 / self.all_bytes.max(1) as f64) as u64
    }
}

impl CollectionOptions {
    /// How a segment is opened that is such a part of a collection.
    pub(crate) fn of_segment(&self, part: SegmentPart) -> SegmentOptions {
        let memory_bytes = self.index.memory_bytes.map(|given| part.share_of(given));
        SegmentOptions { index: self.index.clone(), memory_bytes }
    }

    /// How a segment is written that others are merged into. What nobody waits for takes half of the threads.
    pub(crate) fn of_merging(&self, awaited: bool) -> WriteOptions {
        let memory_bytes = self.compact_memory_bytes.or(self.build_memory_bytes);
        let all = match self.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            given => given,
        };
        let threads = if awaited { self.threads } else { (all / 2).max(1) };
        WriteOptions { memory_bytes, threads, ..self.of_writing() }
    }

    /// How a segment is written.
    pub(crate) fn of_writing(&self) -> WriteOptions {
        WriteOptions {
            memory_bytes: self.build_memory_bytes,
            threads: self.threads,
            flat_below_rows: self.flat_below_rows,
            ..WriteOptions::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_a_budget_come_to_the_budget_and_leave_no_segment_without() {
        let (sizes, budget) = ([10_u64 << 30, 1 << 20, 5], 1_u64 << 30);
        let part = |bytes| SegmentPart { bytes, all_bytes: sizes.iter().sum(), segments: 3 };
        let shares = sizes.map(|bytes| part(bytes).share_of(budget));
        assert!(
            shares.iter().all(|share| *share >= LEAST_SEGMENT_BYTES) && shares.is_sorted_by(|a, b| a >= b)
        );
        assert!((budget - 3..=budget).contains(&shares.iter().sum()), "{shares:?}");
        // Too little for all of them is divided evenly; their indexes say what they lack.
        assert_eq!(sizes.map(|bytes| part(bytes).share_of(3000)), [1000; 3]);
    }
}
