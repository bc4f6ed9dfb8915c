//! Options of an open collection.

use crate::segment::{SegmentOptions, SegmentShare, VectorMemory, WriteOptions, search_bytes};
use bathyal_index::cost::merging::{DEFAULT_WRITE_MEMORY_BYTES, FLAT_BELOW_ROWS};
use bathyal_index::{AuditOptions, OpenOptions, SearchMemory, StoreOptions, TierChoice};
use bathyal_store::Durability;
use std::num::NonZeroU64;

/// The smallest memory for writes; less would make segments of a few rows.
pub const LEAST_WRITE_MEMORY_BYTES: u64 = 1_000_000;
/// Upper limit of the memory for vectors of flat segments, if no budget is given.
const MOST_VECTOR_BYTES: u64 = 64 << 20;
/// Without a budget, the memory for vectors of flat segments is at most the memory for writes divided by
/// this. Users set the memory for writes to say how much a collection may take at all.
const VECTOR_SHARE: u64 = 2;
/// A batch may take the memory for writes divided by this: it exists as the caller's data, as a record, and
/// as rows. Larger batches are written as a segment at once.
const BATCH_SHARE: u64 = 8;

/// How to open a collection.
#[derive(Clone)]
pub struct CollectionOptions {
    /// Options of the object store, if the collection is in one.
    pub store: StoreOptions,
    /// How to open the indexes of the segments. A memory budget covers all of them: searches share a part of
    /// it, and each segment gets a part in proportion to its size.
    pub index: OpenOptions,
    /// Bytes of memory for rows that are not in segments yet. One half is for new rows, the other half for
    /// rows that are being written as a segment.
    pub write_memory_bytes: u64,
    /// A batch of more bytes is written as a segment at once, without the log. The default, which is also the
    /// upper limit, is an eighth of `write_memory_bytes`.
    pub direct_bytes: Option<u64>,
    /// Bytes of memory that building the indexes of a segment may take; `None` means no limit.
    pub build_memory_bytes: Option<u64>,
    /// The same for merging segments; `None` means `build_memory_bytes`. A build and a merge can run at the
    /// same time, each with its own limit.
    pub compact_memory_bytes: Option<u64>,
    /// Limit of the bytes of rows that merging reads per second, in the background or not; `None` means no
    /// limit. It does not slow the building of indexes down.
    pub compact_bytes_per_second: Option<NonZeroU64>,
    /// Threads of builds; 0 means all cores.
    pub threads: usize,
    /// The failures that an acknowledged write survives.
    pub durability: Durability,
    /// True if a background thread writes and merges segments. If false, the write that fills the memory does
    /// so.
    pub background: bool,
    /// True if segments are merged automatically.
    pub compact: bool,
    /// Segments with fewer rows are `flat`.
    pub flat_below_rows: usize,
    /// Number of versions to keep besides the latest; they can be opened by their number.
    pub keep_versions: usize,
    /// The audit of live searches; `None` audits none. It compares the answers of all parts with all rows
    /// that the search saw and that match its filter. Those of snapshots are not audited.
    pub audit: Option<AuditOptions>,
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
            audit: None,
        }
    }
}

impl CollectionOptions {
    /// Returns the options for opening a collection: its segments share the searches' part of the memory
    /// budget.
    pub(crate) fn with_shared_search_memory(mut self) -> CollectionOptions {
        self.index.search_memory = self.index.memory_bytes.map(search_bytes).map(SearchMemory::new);
        self
    }

    /// Returns the memory for vectors of flat segments. `None` if there is a budget, of which each segment
    /// takes its part, or if the options choose a tier or a card.
    pub(crate) fn vector_memory(&self) -> Option<VectorMemory> {
        let OpenOptions { memory_bytes, tier, card, .. } = &self.index;
        let unrestricted = memory_bytes.is_none() && *tier == TierChoice::File && card.is_none();
        unrestricted
            .then(|| VectorMemory::new((self.write_memory_bytes / VECTOR_SHARE).min(MOST_VECTOR_BYTES)))
    }

    /// Returns the size of the largest batch that goes through the log and memory.
    pub(crate) fn largest_batch_bytes(&self) -> u64 {
        let limit = self.write_memory_bytes / BATCH_SHARE;
        self.direct_bytes.map_or(limit, |limit_bytes| limit_bytes.min(limit))
    }

    /// Returns how to open a segment of a collection; the segments share the memory for `vectors`.
    pub(crate) fn for_segment(&self, share: SegmentShare, vectors: Option<VectorMemory>) -> SegmentOptions {
        let memory_bytes = self.index.memory_bytes.map(|given| share.share_of(given));
        SegmentOptions { index: self.index.clone(), memory_bytes, share, vectors }
    }

    /// Returns how to write a segment that others are merged into.
    pub(crate) fn for_merging(&self, on_all_cores: bool) -> WriteOptions {
        let memory_bytes = self.compact_memory_bytes.or(self.build_memory_bytes);
        WriteOptions { memory_bytes, threads: self.merge_threads(on_all_cores), ..self.for_writing() }
    }

    /// Returns the threads of a background build: half of all. The other half leaves cores for other work
    /// and, on a virtual machine, for the devices that this work waits for.
    pub(crate) fn merge_threads(&self, on_all_cores: bool) -> usize {
        let all = match self.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            given => given,
        };
        if on_all_cores { self.threads } else { (all / 2).max(1) }
    }

    /// Returns how to write a segment.
    pub(crate) fn for_writing(&self) -> WriteOptions {
        WriteOptions {
            memory_bytes: self.build_memory_bytes,
            threads: self.threads,
            flat_below_rows: self.flat_below_rows,
            ..WriteOptions::default()
        }
    }
}
