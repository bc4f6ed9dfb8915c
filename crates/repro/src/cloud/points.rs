//! The measurements, one line of `records.jsonl` each.

use bathyal_console::Failure;
use bathyal_index::SearchResult;
use serde::Serialize;

use super::caching::CacheResult;
use super::effort::SweepEffort;
use crate::records::Records;

/// A line of the records.
#[derive(Serialize)]
#[serde(rename_all = "snake_case", tag = "of")]
enum CloudRecord<'a> {
    Point(&'a CloudPoint),
    Size(&'a Size),
    Cached(&'a CacheResult),
    /// A measurement that was left out, and the reason.
    Note {
        note: &'a str,
    },
}

/// Writes measurements to the records, and keeps the points: the simulation of caches chooses from them.
pub(super) struct Measurements {
    pub points: Vec<CloudPoint>,
    records: Records,
}

impl Measurements {
    /// Starts with no points.
    pub(super) fn new(records: Records) -> Measurements {
        Measurements { points: Vec::new(), records }
    }

    pub(super) fn point(&mut self, point: CloudPoint) -> Result<(), Failure> {
        self.records.write(&CloudRecord::Point(&point))?;
        self.points.push(point);
        Ok(())
    }

    pub(super) fn size(&mut self, size: &Size) -> Result<(), Failure> {
        self.records.write(&CloudRecord::Size(size))
    }

    pub(super) fn cached(&mut self, cached: &CacheResult) -> Result<(), Failure> {
        self.records.write(&CloudRecord::Cached(cached))
    }

    /// Writes a note about a measurement that was left out.
    pub(super) fn note(&mut self, note: &str) -> Result<(), Failure> {
        self.records.write(&CloudRecord::Note { note })
    }

    /// Returns the file of records after all measurements.
    pub(super) fn into_records(self) -> Records {
        self.records
    }
}

/// Results of an index with one effort: exact counters of all queries, and speeds of some of them at each
/// concurrency.
#[derive(Clone, Debug, Serialize)]
pub(super) struct CloudPoint {
    pub set: String,
    pub vectors: usize,
    pub dim: usize,
    pub element: &'static str,
    pub index: String,
    #[serde(flatten)]
    pub effort: SweepEffort,
    pub recall: f64,
    /// Means per query: dependent rounds, waits for reads (counted with some queries, one at a time), reads,
    /// the requests for them, bytes, and processor time without requests.
    pub rounds: f64,
    pub waves: f64,
    pub reads: f64,
    pub requests: f64,
    pub bytes: f64,
    pub compute_us: f64,
    pub loads: Vec<LoadPoint>,
}

/// Speeds through the emulated network.
#[derive(Clone, Debug, Serialize)]
pub(super) struct LoadPoint {
    /// Always true: no real store is measured.
    pub emulated: bool,
    pub concurrency: usize,
    pub threads: usize,
    pub in_flight: usize,
    pub queries: usize,
    pub qps: f64,
    /// Latency of a query from its start to its result.
    pub mean_ms: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    /// Mean wait of a round for its reads.
    pub round_ms: f64,
    /// Requests per query, including retries and hedged requests; then the number of retries and of hedged
    /// requests.
    pub requests: f64,
    pub retries: u64,
    pub hedges: u64,
    pub throttled: u64,
    /// Bytes per second received through the link.
    pub bytes_per_s: f64,
    /// Shares of a query's time: waiting for reads, and the processor's time for choosing lists or the next
    /// nodes, for codes, and for full vectors. The rest is waiting for other queries.
    pub read_share: f64,
    pub navigate_share: f64,
    pub scan_share: f64,
    pub rerank_share: f64,
    /// Equations (1) and (2) as the paper has them, for a single query; then with the slowest request of each
    /// round and the limits of the store; and the resource that limits the throughput in that prediction.
    pub plain_ms: f64,
    pub predicted_ms: f64,
    pub predicted_qps: f64,
    pub bound: &'static str,
    /// `predicted / measured - 1`; `plain_error` exists for single queries only.
    pub plain_error: Option<f64>,
    pub latency_error: f64,
    pub qps_error: f64,
}

/// Bytes of an index, its lists and its opening (table 4).
#[derive(Clone, Debug, Serialize)]
pub(super) struct Size {
    pub set: String,
    pub index: String,
    pub index_bytes: u64,
    /// Bytes of the file that searches read in ranges.
    pub paged_bytes: u64,
    /// Bytes that an open index keeps in memory.
    pub memory_bytes: u64,
    pub lists: Option<u32>,
    pub list_bytes: Option<f64>,
    /// Requests and bytes of opening the index, and seconds through the emulated network.
    pub opening_requests: u64,
    pub opening_bytes: u64,
    pub opening_s: f64,
}

/// Returns `total` per query of the search.
pub(super) fn per_query(result: &SearchResult, total: u64) -> f64 {
    total as f64 / result.latencies_ns.len().max(1) as f64
}

/// Returns the nanoseconds of a phase, summed over all queries.
pub(super) fn phase_ns(result: &SearchResult, name: &str) -> u64 {
    result.phases.iter().filter(|phase| phase.phase == name).map(|phase| phase.ns).sum()
}

/// Returns the nanoseconds of all phases in which the processor works, summed over all queries.
pub(super) fn compute_ns(result: &SearchResult) -> u64 {
    result.phases.iter().filter(|phase| phase.phase != "read").map(|phase| phase.ns).sum()
}
