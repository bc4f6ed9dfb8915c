//! What was measured, a line of `records.jsonl` each: an index searched with an effort, and that at several concurrencies.

use bathyal_console::Failure;
use bathyal_index::SearchResult;
use serde::Serialize;

use super::caching::Cached;
use super::effort::Effort;
use crate::records::Records;

/// A line of the records.
#[derive(Serialize)]
#[serde(rename_all = "snake_case", tag = "of")]
enum Record<'a> {
    Point(&'a Point),
    Size(&'a Size),
    Cached(&'a Cached),
    /// What was left out, and why.
    Note {
        note: &'a str,
    },
}

/// Everything that was measured so far: written, and the points kept, since caches are in front of some of them.
pub(super) struct Measured {
    pub points: Vec<Point>,
    records: Records,
}

impl Measured {
    /// Nothing yet.
    pub(super) fn new(records: Records) -> Measured {
        Measured { points: Vec::new(), records }
    }

    pub(super) fn point(&mut self, point: Point) -> Result<(), Failure> {
        self.records.write(&Record::Point(&point))?;
        self.points.push(point);
        Ok(())
    }

    pub(super) fn size(&mut self, size: &Size) -> Result<(), Failure> {
        self.records.write(&Record::Size(size))
    }

    pub(super) fn cached(&mut self, cached: &Cached) -> Result<(), Failure> {
        self.records.write(&Record::Cached(cached))
    }

    /// Says what was left out, and why.
    pub(super) fn note(&mut self, note: &str) -> Result<(), Failure> {
        self.records.write(&Record::Note { note })
    }

    /// The file of records, when all was measured.
    pub(super) fn into_records(self) -> Records {
        self.records
    }
}

/// An effort of an index: exact counters of all queries, and speeds of some at each concurrency.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Point {
    pub set: String,
    pub vectors: usize,
    pub dim: usize,
    pub element: &'static str,
    pub index: String,
    #[serde(flatten)]
    pub effort: Effort,
    pub recall: f64,
    /// Means a query: dependent rounds, how often is waited for them (of some queries, one at a time), reads, requests that these are, bytes, processor time without requests.
    pub rounds: f64,
    pub waves: f64,
    pub reads: f64,
    pub requests: f64,
    pub bytes: f64,
    pub compute_us: f64,
    pub loads: Vec<Load>,
}

/// Speeds behind the emulated network.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Load {
    /// Always: there is no real store here.
    pub emulated: bool,
    pub concurrency: usize,
    pub threads: usize,
    pub in_flight: usize,
    pub queries: usize,
    pub qps: f64,
    /// Of a query, from its start to its answer.
    pub mean_ms: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    /// What a round waits for its reads, in the mean.
    pub round_ms: f64,
    /// Requests a query, second ones and those sent again with them; and these.
    pub requests: f64,
    pub retries: u64,
    pub hedges: u64,
    pub throttled: u64,
    /// Bytes a second that came through the link.
    pub bytes_per_s: f64,
    /// Shares of a query's time: waiting for reads, and the processor's for finding lists or the next nodes, for codes, and
    /// for full vectors. What is left is waiting for other queries.
    pub read_share: f64,
    pub navigate_share: f64,
    pub scan_share: f64,
    pub rerank_share: f64,
    /// Equations (1) and (2) as they stand, of a query alone; then with the slowest request of each round and with the
    /// limits of the store; and what bounds the throughput by them.
    pub plain_ms: f64,
    pub predicted_ms: f64,
    pub predicted_qps: f64,
    pub bound: &'static str,
    /// `predicted / measured - 1`; the first is of queries alone only.
    pub plain_error: Option<f64>,
    pub latency_error: f64,
    pub qps_error: f64,
}

/// The lists of an index, or its pages: table 4.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Size {
    pub set: String,
    pub index: String,
    pub index_bytes: u64,
    /// Bytes that searches read ranges of.
    pub paged_bytes: u64,
    /// Bytes that an open index keeps in memory.
    pub memory_bytes: u64,
    pub lists: Option<u32>,
    pub list_bytes: Option<f64>,
    /// Requests and bytes until it is open, and seconds behind the emulated network.
    pub opening_requests: u64,
    pub opening_bytes: u64,
    pub opening_s: f64,
}

/// Means a query of one search.
pub(super) fn per_query(result: &SearchResult, total: u64) -> f64 {
    total as f64 / result.latencies_ns.len().max(1) as f64
}

/// Nanoseconds of a phase, of all queries together.
pub(super) fn phase_ns(result: &SearchResult, name: &str) -> u64 {
    result.phases.iter().filter(|phase| phase.phase == name).map(|phase| phase.ns).sum()
}

/// The same of all phases in which the processor works.
pub(super) fn compute_ns(result: &SearchResult) -> u64 {
    result.phases.iter().filter(|phase| phase.phase != "read").map(|phase| phase.ns).sum()
}
