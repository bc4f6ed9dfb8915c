//! Memory of a search outside the limit of `--memory`, which applies to the open index and its searches.

use bathyal_console::byte_size;
use bathyal_index::{Index, QueryStats, TierChoice};
use bathyal_vectors::{IdFile, VectorFile};
use serde::Serialize;

/// The program's code and data, stacks, and free memory that the allocator keeps; measured at 12 to 20 MB in
/// a release build, and at up to 38 MB in a build for tests. How many pages of the code are resident depends
/// on where the file lies in the page cache.
const PROGRAM_BYTES: u64 = 40 << 20;
/// The touched part of a search thread's stack, and the allocator's arena.
const THREAD_BYTES: u64 = 1 << 20;
/// The most that the system maps around a touched byte of a mapped file.
const LARGE_PAGE: u64 = 2 << 20;

/// The most bytes that a search takes outside the memory budget.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct NotCounted {
    /// The program itself and its threads.
    pub program: u64,
    /// The mapped queries of a block.
    pub queries: u64,
    /// The answers to a block, in the threads and collected, and all latencies and ratios.
    pub answers: u64,
    /// The exact neighbours, which are in memory as a whole.
    pub groundtruth: u64,
    /// Pages of a mapped tier: a NUMA node, a mapped file or a device.
    pub mapped: u64,
    /// Connections to an object store or a memory node, with the bytes that arrive besides the requested
    /// ranges.
    pub connections: u64,
    /// The cache in front of a store (`cache_memory`), once it is full.
    pub store_cache: u64,
}

impl NotCounted {
    /// Computes the memory for a search of `index` for `k` neighbours of each of `queries`, `block` queries
    /// at a time on `threads` threads.
    pub(super) fn of(
        index: &Index,
        tier: &TierChoice,
        queries: &VectorFile,
        block: usize,
        (k, threads): (usize, usize),
        exact: Option<&IdFile>,
    ) -> NotCounted {
        let all = queries.count() as u64;
        let block = all.min(block as u64);
        let neighbors = 8 * k as u64;
        // Each answer also has a number and a latency beside its costs. The sorted latencies and ratios are
        // copies.
        let answer_bytes = 2 * (neighbors + size_of::<QueryStats>() as u64 + 16);
        let truth_bytes = |exact: &IdFile| 8 * (block + 2 * all) * exact.k() as u64;
        let ratios = if exact.is_some() { 2 } else { 0 };
        let is_mapped = matches!(tier, TierChoice::Mapped(_)) && index.memory_split().pages == 0;
        NotCounted {
            program: PROGRAM_BYTES + threads as u64 * THREAD_BYTES,
            queries: block * queries.stride() as u64 + 2 * LARGE_PAGE,
            answers: block * answer_bytes + (3 + ratios) * 8 * all,
            groundtruth: exact.map_or(0, truth_bytes),
            mapped: if is_mapped { index.manifest().paged_file().bytes } else { 0 },
            connections: index.connection_bytes(threads),
            store_cache: index.store_cache_bytes(),
        }
    }

    /// Returns the sum of all parts.
    pub(super) fn total(&self) -> u64 {
        let NotCounted { program, queries, answers, groundtruth, mapped, connections, store_cache } = *self;
        program + queries + answers + groundtruth + mapped + connections + store_cache
    }

    /// Returns the line for the text output.
    pub(super) fn text(&self) -> String {
        let parts = [
            ("program", self.program),
            ("queries", self.queries),
            ("answers", self.answers),
            ("ground truth", self.groundtruth),
            ("mapped pages", self.mapped),
            ("connections", self.connections),
            ("cache of the store", self.store_cache),
        ];
        let parts = parts.iter().filter(|(_, bytes)| *bytes > 0);
        let words: Vec<String> =
            parts.map(|(name, bytes)| format!("{name} {}", byte_size::format(*bytes))).collect();
        format!("outside --memory up to {} ({})", byte_size::format(self.total()), words.join(", "))
    }
}
