//! What was measured, a line of `records.jsonl` each.

use bathyal_index::SearchResult;
use serde::Serialize;

/// A line of the records.
#[derive(Serialize)]
#[serde(rename_all = "snake_case", tag = "of")]
pub(super) enum Record<'a> {
    Row(&'a Row),
    Asked(&'a Asked),
    Grown(&'a Grown),
    /// What was left out, and why.
    Note {
        note: &'a str,
    },
}

/// A set.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Of {
    pub set: String,
    pub vectors: usize,
    pub dim: usize,
    pub element: &'static str,
    pub index: String,
}

/// What a search cost, means a query.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Cost {
    pub recall: f64,
    pub queries: usize,
    /// Wall time of the batches over their queries; of it what the processor did not compute for the queries, finding
    /// sub-indexes in the meta index, and checking, keeping and searching them.
    pub wall_us: f64,
    pub network_us: f64,
    pub meta_us: f64,
    pub subindex_us: f64,
    /// What the emulated card takes for the round trips, reads and bytes below, computed, nothing overlapped.
    pub card_us: f64,
    pub qps: f64,
    /// Exact: doorbell batches, reads in them, bytes that these asked for, and reads that queries would have made alone.
    pub round_trips: f64,
    pub reads: f64,
    pub bytes: f64,
    pub wanted: f64,
}

/// A scheme of the paper, or ours, over its sub-indexes: figure 6 and tables 1 and 2, and what is varied beside.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    /// Always: there is no network card here.
    pub emulated: bool,
    #[serde(flatten)]
    pub of: Of,
    /// What was varied: `recall`, `batch`, `doorbell` or `cache`.
    pub varied: &'static str,
    pub scheme: &'static str,
    pub k: u32,
    pub search_list: u32,
    pub probes: u32,
    pub batch: usize,
    /// Queries under way at once: a batch, or as many of it as there is memory for.
    pub at_once: usize,
    /// Reads of a doorbell batch at most; `None` where whatever is ready is posted.
    pub doorbell: Option<u32>,
    /// Bytes of sub-indexes that are kept, and their share of all.
    pub cache_bytes: u64,
    pub cache_share: f64,
    #[serde(flatten)]
    pub cost: Cost,
}

/// An index asked for a recall, on the same network.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Asked {
    pub emulated: bool,
    #[serde(flatten)]
    pub of: Of,
    pub k: u32,
    /// The recall that was asked for.
    pub asked: f32,
    pub search_list: u32,
    pub probes: Option<u32>,
    /// Queries at once; `None` where the index chooses.
    pub in_flight: Option<usize>,
    /// Bytes in the searching process, searches and their buffers aside, and of the index.
    pub kept_bytes: u64,
    pub index_bytes: u64,
    /// Whether all of it is kept, so that nothing is read.
    pub whole_in_memory: bool,
    #[serde(flatten)]
    pub cost: Cost,
    /// One query at a time: its median time, round trips and bytes.
    pub alone_p50_us: f64,
    pub alone_round_trips: f64,
    pub alone_bytes: f64,
}

/// An index that vectors were inserted into, on the same network; the times of inserts are not emulated.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Grown {
    pub emulated: bool,
    pub set: String,
    /// Vectors that are there.
    pub vectors: usize,
    pub search_list: u32,
    pub probes: u32,
    #[serde(flatten)]
    pub cost: Cost,
    pub alone_p50_us: f64,
    /// Since the row before, in calls of a thousand; 0 of the first row.
    pub inserts_a_second: f64,
    /// Of one vector by a call of its own.
    pub insert_p50_us: f64,
    /// Of a query alone while others insert.
    pub alone_while_inserting_p50_us: f64,
}

/// Nanoseconds of a phase, of all queries together.
pub(super) fn phase_ns(result: &SearchResult, name: &str) -> u64 {
    result.phases.iter().filter(|phase| phase.phase == name).map(|phase| phase.ns).sum()
}

/// The median of latencies in microseconds.
pub(super) fn median_us(mut latencies_ns: Vec<u64>) -> f64 {
    latencies_ns.sort_unstable();
    latencies_ns.get(latencies_ns.len() / 2).map_or(0.0, |ns| *ns as f64 / 1e3)
}
