//! What a search holds besides the open index, which alone is limited by `--memory`.

use bathyal_console::byte_size;
use bathyal_index::{Index, QueryStats, TierChoice};
use bathyal_vectors::{IdFile, VectorFile};
use serde::Serialize;

/// The program's code and data, stacks, and what the allocator keeps; measured at 12 to 20 MB.
const PROGRAM_BYTES: u64 = 28 << 20;
/// The stack of a search thread as far as it is touched, and the allocator's arena.
const THREAD_BYTES: u64 = 1 << 20;
/// What the system maps around a byte that is touched of a mapped file, at most.
const LARGE_PAGE: u64 = 2 << 20;

/// Bytes that a search takes at most besides what the memory budget limits.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct NotCounted {
    /// The program itself and its threads.
    pub program: u64,
    /// The mapped queries of a block.
    pub queries: u64,
    /// The answers to a block, as threads make them and as they are collected, and all latencies and ratios.
    pub answers: u64,
    /// The exact neighbours, which are read whole.
    pub groundtruth: u64,
    /// Pages in memory that is not this process's DRAM: a NUMA node, a mapped file, a device.
    pub mapped: u64,
    /// Connections to a store that is elsewhere, and what comes with the ranges that were asked for.
    pub connections: u64,
}

impl NotCounted {
    /// What a search of `index` for `k` neighbours of each of `queries`, `block` at a time on `threads` threads, holds
    /// besides.
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
        // A number and a latency go with what a query cost; the sorted latencies are a copy, as are the ratios.
        let an_answer = 2 * (neighbors + size_of::<QueryStats>() as u64 + 16);
        let slice = |exact: &IdFile| 8 * (block + 2 * all) * exact.k() as u64;
        let ratios = if exact.is_some() { 2 } else { 0 };
        let elsewhere = matches!(tier, TierChoice::Mapped(_)) && index.memory_split().pages == 0;
        NotCounted {
            program: PROGRAM_BYTES + threads as u64 * THREAD_BYTES,
            queries: block * queries.stride() as u64 + 2 * LARGE_PAGE,
            answers: block * an_answer + (3 + ratios) * 8 * all,
            groundtruth: exact.map_or(0, slice),
            mapped: if elsewhere { index.manifest().paged_file().bytes } else { 0 },
            connections: index.connection_bytes(threads),
        }
    }

    /// All of it.
    pub(super) fn total(&self) -> u64 {
        let NotCounted { program, queries, answers, groundtruth, mapped, connections } = *self;
        program + queries + answers + groundtruth + mapped + connections
    }

    /// A line of an answer's text.
    pub(super) fn text(&self) -> String {
        let parts = [
            ("program", self.program),
            ("queries", self.queries),
            ("answers", self.answers),
            ("ground truth", self.groundtruth),
            ("mapped pages", self.mapped),
            ("connections", self.connections),
        ];
        let parts = parts.iter().filter(|(_, bytes)| *bytes > 0);
        let words: Vec<String> =
            parts.map(|(name, bytes)| format!("{name} {}", byte_size::format(*bytes))).collect();
        format!("outside --memory up to {} ({})", byte_size::format(self.total()), words.join(", "))
    }
}
