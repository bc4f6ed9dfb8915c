//! The measurements, one line of `records.jsonl` each.

use bathyal_kernels::lsh::{Ladder, collision_probability};
use serde::Serialize;

use super::build::BuiltTables;
use super::run::{Outcome, Parallelism};
use super::search::SearchParameters;
use crate::numbers::median;

/// The paper's hash tables searched with one set of parameters.
#[derive(Clone, Debug, Serialize)]
pub(super) struct PaperPoint {
    /// Name of the experiment that the point belongs to.
    pub experiment: &'static str,
    /// Difference from the other points of the experiment.
    pub variant: String,
    pub emulated: bool,
    pub vectors: usize,
    pub k: usize,
    /// Tables per radius (L), values of a compound hash (m), those in units of `log n / log(1/p2)`, radii
    /// (r).
    pub tables: usize,
    pub hashes: usize,
    pub gamma: f64,
    pub radii: usize,
    pub block_bytes: u32,
    /// Most vectors compared at one radius (S).
    pub candidates: usize,
    pub threads: usize,
    pub in_flight: usize,
    pub ratio: f64,
    /// Share of queries that found a vector within c^2 times the nearest distance.
    pub within: f64,
    /// Means per query: radii, dependent rounds, reads (N_I/O), reads of tables, reads of blocks, buckets
    /// recognized as empty, blocks read unnecessarily, entries, entries of other buckets, vectors compared.
    pub searched_radii: f64,
    pub rounds: f64,
    pub reads: f64,
    pub table_reads: f64,
    pub block_reads: f64,
    pub empty: f64,
    pub wasted: f64,
    pub entries: f64,
    pub rejected: f64,
    pub compared: f64,
    /// Medians over the repeats.
    pub qps: f64,
    pub processor_ns: f64,
    pub latency_ns: f64,
    pub samples: Vec<f64>,
    /// Bytes of the index, and bytes of its hash functions in memory.
    pub index_bytes: u64,
    pub memory_bytes: u64,
    /// Predicted time per query (equation 6 or 7), and the relative error against the measured time.
    pub predicted_ns: Option<f64>,
    pub error: Option<f64>,
    /// Page faults per query that waited for a read; of mapped files only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faults: Option<f64>,
}

impl PaperPoint {
    /// Summarizes repeats of the same search; `outcomes` must not be empty.
    pub(super) fn new(
        (experiment, variant): (&'static str, String),
        built: &BuiltTables,
        vectors: usize,
        parameters: SearchParameters,
        parallelism: Parallelism,
        outcomes: &[Outcome],
    ) -> PaperPoint {
        let (ladder, counters) = (built.hashes.ladder(), outcomes[0].counters);
        let median_of = |value: fn(&Outcome) -> f64| median(outcomes.iter().map(value).collect());
        PaperPoint {
            experiment,
            variant,
            emulated: false,
            vectors,
            k: parameters.k,
            tables: ladder.tables,
            hashes: ladder.hashes,
            gamma: ladder.hashes as f64 / hashes_of_theory(ladder, vectors),
            radii: ladder.radii,
            block_bytes: built.plan.layout.block_bytes,
            candidates: parameters.candidates,
            threads: parallelism.threads,
            in_flight: parallelism.in_flight,
            ratio: outcomes[0].ratio,
            within: outcomes[0].within,
            searched_radii: counters.mean(|counters| counters.radii),
            rounds: counters.mean(|counters| counters.rounds),
            reads: counters.reads(),
            table_reads: counters.mean(|counters| counters.table_reads),
            block_reads: counters.mean(|counters| counters.block_reads),
            empty: counters.mean(|counters| counters.empty),
            wasted: counters.mean(|counters| counters.wasted),
            entries: counters.mean(|counters| counters.entries),
            rejected: counters.mean(|counters| counters.rejected),
            compared: counters.mean(|counters| counters.compared),
            qps: median_of(|outcome| outcome.qps),
            processor_ns: median_of(|outcome| outcome.processor_ns),
            latency_ns: median_of(|outcome| outcome.latency_ns),
            samples: outcomes.iter().map(|outcome| outcome.qps).collect(),
            index_bytes: built.index_bytes,
            memory_bytes: built.hashes.bytes(),
            predicted_ns: None,
            error: None,
            faults: None,
        }
    }

    /// Returns the nanoseconds of elapsed time per query, with all threads at work.
    pub(super) fn query_ns(&self) -> f64 {
        1e9 / self.qps.max(1e-9)
    }

    /// Adds the model's time per query, in nanoseconds, and its error.
    pub(super) fn with_prediction(self, ns: f64) -> PaperPoint {
        let error = ns / self.query_ns() - 1.0;
        PaperPoint { predicted_ns: Some(ns), error: Some(error), ..self }
    }
}

/// Returns `log n / log(1/p2)`, the number of values of a compound hash in equation 5.
pub(super) fn hashes_of_theory(ladder: &Ladder, vectors: usize) -> f64 {
    let far = collision_probability(ladder.width / ladder.ratio);
    (vectors.max(2) as f64).ln() / (1.0 / far).ln()
}

/// The family's index searched at one ratio.
#[derive(Clone, Debug, Serialize)]
pub(super) struct FamilyPoint {
    pub experiment: &'static str,
    pub device: &'static str,
    pub vectors: usize,
    pub k: usize,
    /// Requested overall ratio.
    pub asked: f32,
    /// Mean and 99th percentile of the reached overall ratio.
    pub ratio: f64,
    pub ratio_p99: f64,
    pub recall: f64,
    pub probes: u32,
    pub search_list: u32,
    /// Reads per query, and how many of them are reads of tables.
    pub reads: f64,
    pub table_reads: f64,
    pub qps: f64,
    pub latency_ns: f64,
    pub samples: Vec<f64>,
    pub index_bytes: u64,
    pub memory_bytes: u64,
    /// Milliseconds in which one thread compares one query with all vectors in memory.
    pub scan_ms: f64,
}

/// A line of the records.
#[derive(Serialize)]
#[serde(tag = "index", rename_all = "lowercase")]
pub(super) enum E2lshRecord<'a> {
    Paper(&'a PaperPoint),
    Family(&'a FamilyPoint),
}
