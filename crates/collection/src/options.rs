//! How a collection is opened.

use crate::segment::{
    FLAT_BELOW_ROWS, SegmentOptions, SegmentPart, VectorMemory, WriteOptions, search_bytes,
};
use bathyal_index::{OpenOptions, SearchMemory, StoreOptions, TierChoice};
use bathyal_store::Durability;
use std::num::NonZeroU64;

/// Memory for rows that were written lately, where nobody says how much: 15,000 vectors of 768 floats come before they are written
/// as a segment, and a search compares as many in 3 ms (docs/decisions/collections.md).
pub const DEFAULT_WRITE_MEMORY_BYTES: u64 = 128 << 20;
/// The least that is taken: less would make segments of a few rows.
pub const LEAST_WRITE_MEMORY_BYTES: u64 = 1_000_000;
/// Memory for vectors of flat segments that are searched, where there is no budget: no more than so many bytes ...
const MOST_VECTOR_BYTES: u64 = 64 << 20;
/// ... and than one part in so many of the memory for writes, by which users say how much a collection may take at all.
const VECTOR_SHARE: u64 = 2;

/// How to open a collection.
#[derive(Clone)]
pub struct CollectionOptions {
    /// How a store far away is reached, where the collection is in one.
    pub store: StoreOptions,
    /// How the indexes of its segments are opened. A memory budget is that of all together: searches share a part of it, and each
    /// segment has one by its size.
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

impl CollectionOptions {
    /// The same for a collection that is being opened: its segments share what searches take of a memory budget.
    pub(crate) fn sharing(mut self) -> CollectionOptions {
        self.index.search_memory = self.index.memory_bytes.map(search_bytes).map(SearchMemory::new);
        self
    }

    /// Memory for the vectors of flat segments that are searched. None where a budget is given, of which each segment takes its part,
    /// or where it is said where vectors are.
    pub(crate) fn vector_memory(&self) -> Option<VectorMemory> {
        let OpenOptions { memory_bytes, tier, card, .. } = &self.index;
        let free = memory_bytes.is_none() && *tier == TierChoice::File && card.is_none();
        free.then(|| VectorMemory::new((self.write_memory_bytes / VECTOR_SHARE).min(MOST_VECTOR_BYTES)))
    }

    /// How a segment is opened that is such a part of a collection, whose segments share the memory for `vectors`.
    pub(crate) fn of_segment(&self, part: SegmentPart, vectors: Option<VectorMemory>) -> SegmentOptions {
        let memory_bytes = self.index.memory_bytes.map(|given| part.share_of(given));
        SegmentOptions { index: self.index.clone(), memory_bytes, part, vectors }
    }

    /// How a segment is written that others are merged into.
    pub(crate) fn of_merging(&self, on_all_cores: bool) -> WriteOptions {
        let memory_bytes = self.compact_memory_bytes.or(self.build_memory_bytes);
        WriteOptions { memory_bytes, threads: self.threads_of_merging(on_all_cores), ..self.of_writing() }
    }

    /// Threads of what is built beside others: half of them, so that these find cores, and so do the devices that they wait for where
    /// the machine is a virtual one.
    pub(crate) fn threads_of_merging(&self, on_all_cores: bool) -> usize {
        let all = match self.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            given => given,
        };
        if on_all_cores { self.threads } else { (all / 2).max(1) }
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
