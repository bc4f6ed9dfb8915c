//! What was measured, a line of `records.jsonl` each.

use bathyal_kernels::lsh::{Ladder, collision_probability};
use serde::Serialize;

use super::build::Built;
use super::run::Outcome;
use super::search::Ask;
use crate::numbers::median;

/// The paper's hash tables, searched in one way.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Point {
    /// Which question it answers.
    pub experiment: &'static str,
    /// What is different from the others that answer it.
    pub variant: String,
    pub emulated: bool,
    pub vectors: usize,
    pub k: usize,
    /// Tables a radius (L), values of a compound hash (m), these in units of `log n / log(1/p2)`, radii (r).
    pub tables: usize,
    pub hashes: usize,
    pub gamma: f64,
    pub radii: usize,
    pub block_bytes: u32,
    /// Vectors that are compared at one radius, at most (S).
    pub candidates: usize,
    pub threads: usize,
    pub in_flight: usize,
    pub ratio: f64,
    /// The share of queries of which something within c^2 of the nearest was found.
    pub within: f64,
    /// Means over the queries: radii, dependent rounds, reads (N_I/O), those of tables, those of blocks, buckets that were known to
    /// be empty, blocks read in vain, entries, those of other buckets, vectors compared.
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
    /// Bytes of the index, and of what of it lies in memory.
    pub index_bytes: u64,
    pub memory_bytes: u64,
    /// What the model says of a query's time (equation 6 or 7), and by how much that is more than was measured.
    pub predicted_ns: Option<f64>,
    pub error: Option<f64>,
    /// Page faults that waited for a read, of a query; of mapped files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faults: Option<f64>,
}

impl Point {
    /// What some repeats of the same search came to; there is one at least.
    pub(super) fn new(
        (experiment, variant): (&'static str, String),
        built: &Built,
        vectors: usize,
        (ask, threads, in_flight): (Ask, usize, usize),
        outcomes: &[Outcome],
    ) -> Point {
        let (ladder, counters) = (built.hashes.ladder(), outcomes[0].counters);
        let middle = |of: fn(&Outcome) -> f64| median(outcomes.iter().map(of).collect());
        Point {
            experiment,
            variant,
            emulated: false,
            vectors,
            k: ask.k,
            tables: ladder.tables,
            hashes: ladder.hashes,
            gamma: ladder.hashes as f64 / hashes_of_theory(ladder, vectors),
            radii: ladder.radii,
            block_bytes: built.plan.layout.block_bytes,
            candidates: ask.candidates,
            threads,
            in_flight,
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
            qps: middle(|outcome| outcome.qps),
            processor_ns: middle(|outcome| outcome.processor_ns),
            latency_ns: middle(|outcome| outcome.latency_ns),
            samples: outcomes.iter().map(|outcome| outcome.qps).collect(),
            index_bytes: built.index_bytes,
            memory_bytes: built.hashes.bytes(),
            predicted_ns: None,
            error: None,
            faults: None,
        }
    }

    /// Nanoseconds of elapsed time a query, of all threads together.
    pub(super) fn query_ns(&self) -> f64 {
        1e9 / self.qps.max(1e-9)
    }

    /// The same with what the model says of a query.
    pub(super) fn predicted(self, ns: f64) -> Point {
        let error = ns / self.query_ns() - 1.0;
        Point { predicted_ns: Some(ns), error: Some(error), ..self }
    }
}

/// `log n / log(1/p2)`: the values of a compound hash that equation 5 asks for.
pub(super) fn hashes_of_theory(ladder: &Ladder, vectors: usize) -> f64 {
    let far = collision_probability(ladder.width / ladder.ratio);
    (vectors.max(2) as f64).ln() / (1.0 / far).ln()
}

/// The family's index, searched in one way.
#[derive(Clone, Debug, Serialize)]
pub(super) struct FamilyPoint {
    pub experiment: &'static str,
    pub device: &'static str,
    pub vectors: usize,
    pub k: usize,
    /// The overall ratio that was asked for, and what was reached: mean and 99th percentile.
    pub asked: f32,
    pub ratio: f64,
    pub ratio_p99: f64,
    pub recall: f64,
    pub probes: u32,
    pub search_list: u32,
    /// Reads of a query, and those of tables among them.
    pub reads: f64,
    pub table_reads: f64,
    pub qps: f64,
    pub latency_ns: f64,
    pub samples: Vec<f64>,
    pub index_bytes: u64,
    pub memory_bytes: u64,
    /// Milliseconds that one thread takes to compare one query with all vectors, all in memory.
    pub scan_ms: f64,
}

/// A line of the records.
#[derive(Serialize)]
#[serde(tag = "index", rename_all = "lowercase")]
pub(super) enum Record<'a> {
    Paper(&'a Point),
    Family(&'a FamilyPoint),
}
