//! The measurements, one line of `records.jsonl` each.

use bathyal_index::SearchResult;
use serde::Serialize;

/// A line of the records.
#[derive(Serialize)]
#[serde(rename_all = "snake_case", tag = "of")]
pub(super) enum DhnswRecord<'a> {
    Row(&'a SchemeRow),
    Asked(&'a RecallRow),
    Grown(&'a InsertRow),
    /// A measurement that was left out, and the reason.
    Note {
        note: &'a str,
    },
}

/// A set, and the index over it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct IndexedSet {
    pub set: String,
    pub vectors: usize,
    pub dim: usize,
    pub element: &'static str,
    pub index: String,
}

/// Cost of a search, as means per query.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Cost {
    pub recall: f64,
    pub queries: usize,
    /// Wall time of the batches divided by their queries. `meta_us` is the time for finding sub-indexes in
    /// the meta index, `subindex_us` that for checking, caching and searching sub-indexes, and `network_us`
    /// the rest.
    pub wall_us: f64,
    pub network_us: f64,
    pub meta_us: f64,
    pub subindex_us: f64,
    /// Computed time of the emulated card for the round trips, reads and bytes below, without overlap.
    pub card_us: f64,
    pub qps: f64,
    /// Exact counts: doorbell batches, their reads, the bytes of those, and the reads that queries would make
    /// without sharing.
    pub round_trips: f64,
    pub reads: f64,
    pub bytes: f64,
    pub wanted: f64,
}

/// A scheme of the paper, or ours, over the paper's sub-indexes: figure 6, tables 1 and 2, and the
/// variations.
#[derive(Clone, Debug, Serialize)]
pub(super) struct SchemeRow {
    /// Always true: no network card is measured.
    pub emulated: bool,
    #[serde(flatten)]
    pub indexed_set: IndexedSet,
    /// The varied parameter: `recall`, `batch`, `doorbell` or `cache`.
    pub varied: &'static str,
    pub scheme: &'static str,
    pub k: u32,
    pub search_list: u32,
    pub probes: u32,
    pub batch: usize,
    /// Queries in flight: the whole batch, or as much of it as memory allows.
    pub at_once: usize,
    /// Most reads per doorbell batch; `None` if all ready reads share one doorbell.
    pub doorbell: Option<u32>,
    /// Bytes of cached sub-indexes, and their share of all.
    pub cache_bytes: u64,
    pub cache_share: f64,
    #[serde(flatten)]
    pub cost: Cost,
}

/// An index searched at a requested recall, on the same network.
#[derive(Clone, Debug, Serialize)]
pub(super) struct RecallRow {
    pub emulated: bool,
    #[serde(flatten)]
    pub indexed_set: IndexedSet,
    pub k: u32,
    /// The requested recall.
    pub asked: f32,
    pub search_list: u32,
    pub probes: Option<u32>,
    /// Queries in flight; `None` if the index chooses.
    pub in_flight: Option<usize>,
    /// Bytes in the searching process, without searches and their buffers; then the bytes of the index.
    pub kept_bytes: u64,
    pub index_bytes: u64,
    /// True if the whole index is in memory, so that searches read nothing.
    pub whole_in_memory: bool,
    #[serde(flatten)]
    pub cost: Cost,
    /// Single queries: median latency, round trips and bytes.
    pub alone_p50_us: f64,
    pub alone_round_trips: f64,
    pub alone_bytes: f64,
}

/// An index that vectors were inserted into, on the same network. The times of inserts are not emulated.
#[derive(Clone, Debug, Serialize)]
pub(super) struct InsertRow {
    pub emulated: bool,
    pub set: String,
    /// Vectors in the index.
    pub vectors: usize,
    pub search_list: u32,
    pub probes: u32,
    #[serde(flatten)]
    pub cost: Cost,
    pub alone_p50_us: f64,
    /// Inserts per second since the row before, in calls of a thousand vectors; 0 in the first row.
    pub inserts_a_second: f64,
    /// Median of a call that inserts one vector.
    pub insert_p50_us: f64,
    /// Median of a single query while another thread inserts.
    pub alone_while_inserting_p50_us: f64,
}

/// Returns the nanoseconds of a phase, summed over all queries.
pub(super) fn phase_ns(result: &SearchResult, name: &str) -> u64 {
    result.phases.iter().filter(|phase| phase.phase == name).map(|phase| phase.ns).sum()
}

/// Returns the median of latencies, in microseconds.
pub(super) fn median_us(mut latencies_ns: Vec<u64>) -> f64 {
    latencies_ns.sort_unstable();
    latencies_ns.get(latencies_ns.len() / 2).map_or(0.0, |ns| *ns as f64 / 1e3)
}
