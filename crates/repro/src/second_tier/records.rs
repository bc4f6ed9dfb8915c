//! The points of the figures: what was measured of one index in one way, and what the cost model says of it.

use bathyal_index::SearchTotals;
use bathyal_index::cost::demand::{Execution, Prediction};
use bathyal_index::families::graph::cost as graph;
use bathyal_index::families::spann::cost::{self as lists, ListCost};
use bathyal_index::format::postings::BLOCK_BYTES;
use bathyal_tier::TierProfile;
use serde::Serialize;

use crate::numbers::median;
use crate::second_tier::devices::FILE;
use crate::second_tier::effort::{Knob, Reached, Trial};
use crate::second_tier::subjects::{Shape, Subject};
use crate::workload::Questions;

/// One measurement of a cell.
#[derive(Clone, Copy, Serialize)]
pub(crate) struct Sample {
    /// Queries a second of elapsed time.
    pub(crate) qps: f64,
    /// Queries a second of processor time of each thread: what the machine would do if nobody else used it.
    pub(crate) processor_qps: f64,
    /// Mean latency of a query in microseconds.
    pub(crate) latency_us: f64,
}

/// A point of a figure: a line of `records.jsonl`.
#[derive(Clone, Serialize)]
pub(crate) struct Record {
    pub(crate) family: &'static str,
    pub(crate) layout: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_degree: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) replicas: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) centroid_share: Option<f32>,
    /// "dram", "file", or "emulated" and the device's name.
    pub(crate) device: String,
    pub(crate) emulated: bool,
    pub(crate) in_flight: u32,
    pub(crate) threads: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) beam_width: Option<u32>,
    pub(crate) queries: usize,
    pub(crate) search_list: u32,
    /// Posting lists at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) probes: Option<u32>,
    pub(crate) recall: f64,
    pub(crate) hops_per_query: f64,
    pub(crate) reads_per_query: f64,
    pub(crate) bytes_per_query: f64,
    pub(crate) lists_per_query: f64,
    pub(crate) small_reads_per_query: f64,
    /// Of codes; of posting lists, to centroids.
    pub(crate) code_distances_per_query: f64,
    pub(crate) full_distances_per_query: f64,
    /// The share of the compute time in which posting lists are found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) finding_share: Option<f64>,
    /// Arithmetic operations of all distances of a query, as [`operations`] counts them.
    pub(crate) operations_per_query: f64,
    /// Bytes of a vector.
    pub(crate) vector_bytes: u64,
    /// Bytes of all files of the index, of that which lies on the device, and of the vectors alone.
    pub(crate) index_bytes: u64,
    pub(crate) device_bytes: u64,
    pub(crate) data_bytes: u64,
    pub(crate) amplification: f64,
    /// Medians of the samples.
    pub(crate) qps: f64,
    pub(crate) processor_qps: f64,
    pub(crate) latency_us: f64,
    pub(crate) samples: Vec<Sample>,
    /// What the cost model says, from the device's profile, the counters and the compute time in DRAM.
    pub(crate) predicted: Option<Prediction>,
    /// `predicted / measured - 1`, of elapsed time.
    pub(crate) error: Option<f64>,
    /// The same of processor time, which is no use where threads sleep (devices slower than 0.3 ms).
    pub(crate) processor_error: Option<f64>,
    /// Its share of the throughput in DRAM with as many queries in flight: the median over the repeats, each
    /// measured right after the other.
    pub(crate) share_of_dram: Option<f64>,
    pub(crate) processor_share_of_dram: Option<f64>,
}

/// The median of one number of all samples.
fn middle(samples: &[Sample], of: fn(&Sample) -> f64) -> f64 {
    median(samples.iter().map(of).collect())
}

/// Arithmetic operations of the distances that were computed. Of full vectors and centroids, a subtraction, a
/// multiplication and an addition for each dimension; of codes, a lookup and an addition for each byte.
fn operations(subject: &Subject, totals: &SearchTotals) -> f64 {
    let of_vector = 3.0 * f64::from(subject.manifest.dim);
    let of_code = match subject.shape {
        Shape::Lists { .. } => of_vector,
        Shape::Graph { .. } | Shape::Codes => 2.0 * f64::from(subject.code_bytes()),
    };
    totals.full_distances as f64 * of_vector + totals.code_distances as f64 * of_code
}

impl Record {
    /// What was measured of `subject` on the device called `device` with so many queries in flight.
    pub(crate) fn new(
        subject: &Subject,
        reached: &Reached,
        (device, in_flight): (&str, u32),
        samples: &[Sample],
        (trial, asked): (&Trial<'_>, &Questions),
    ) -> Record {
        let queries = asked.queries.count();
        let mean = |total: u64| total as f64 / queries.max(1) as f64;
        let (index_bytes, data_bytes) = (subject.manifest.index_bytes(), subject.manifest.data_bytes);
        let (family, layout, max_degree, lists) = match subject.shape {
            Shape::Graph { layout, max_degree } => ("graph", layout.name(), Some(max_degree), None),
            Shape::Lists { layout, replicas, centroid_share } => {
                ("lists", layout.name(), None, Some((replicas, centroid_share)))
            }
            Shape::Codes => ("codes", "resident", None, None),
        };
        Record {
            family,
            layout,
            max_degree,
            replicas: lists.map(|(replicas, _)| replicas),
            centroid_share: lists.map(|(_, share)| share),
            device: device.to_owned(),
            emulated: device.starts_with("emulated "),
            in_flight,
            threads: trial.threads(),
            beam_width: max_degree.map(|_| trial.beam_width),
            queries,
            search_list: reached.search_list,
            probes: (reached.knob == Knob::Probes).then_some(reached.setting),
            recall: reached.recall,
            hops_per_query: mean(reached.totals.hops),
            reads_per_query: mean(reached.totals.reads),
            bytes_per_query: mean(reached.totals.bytes),
            lists_per_query: mean(reached.totals.own.of("lists").unwrap_or(0)),
            small_reads_per_query: mean(reached.totals.own.of("small_reads").unwrap_or(0)),
            code_distances_per_query: mean(reached.totals.code_distances),
            full_distances_per_query: mean(reached.totals.full_distances),
            finding_share: None,
            operations_per_query: operations(subject, &reached.totals) / queries.max(1) as f64,
            vector_bytes: data_bytes / subject.manifest.vectors.max(1),
            index_bytes,
            device_bytes: subject.manifest.paged_file().bytes,
            data_bytes,
            amplification: index_bytes as f64 / data_bytes.max(1) as f64,
            qps: middle(samples, |sample| sample.qps),
            processor_qps: middle(samples, |sample| sample.processor_qps),
            latency_us: middle(samples, |sample| sample.latency_us),
            samples: samples.to_vec(),
            predicted: None,
            error: None,
            processor_error: None,
            share_of_dram: None,
            processor_share_of_dram: None,
        }
    }

    /// Says which share of the throughput in DRAM this is; `dram` was measured in the same rounds.
    pub(crate) fn share(&mut self, dram: &[Sample]) {
        let share = |of: fn(&Sample) -> f64| {
            let shares = self.samples.iter().zip(dram).map(|(slow, fast)| of(slow) / of(fast).max(1e-9));
            (!dram.is_empty()).then(|| median(shares.collect()))
        };
        (self.share_of_dram, self.processor_share_of_dram) =
            (share(|sample| sample.qps), share(|sample| sample.processor_qps));
    }

    /// Asks the cost model what this should be on `device`, where posting a read costs `issue_ns`, and compares;
    /// `computing` are measurements where reads take no time.
    pub(crate) fn predict(&mut self, computing: &[Sample], device: &TierProfile, issue_ns: u64) {
        if computing.is_empty() {
            return;
        }
        let threads = self.threads.max(1);
        let execution =
            Execution { threads: threads as u32, in_flight: self.in_flight, issue_ns: issue_ns as f64 };
        let told = |of: fn(&Sample) -> f64| {
            let compute_ns = threads as f64 * 1e9 / middle(computing, of).max(1e-9);
            self.told(compute_ns, device, &execution)
        };
        let (elapsed, processor) = (told(|sample| sample.qps), told(|sample| sample.processor_qps));
        self.error = Some(elapsed.qps / self.qps.max(1e-9) - 1.0);
        self.processor_error = Some(processor.qps / self.processor_qps.max(1e-9) - 1.0);
        self.predicted = Some(elapsed);
    }

    /// What a query of posting lists costs where it computes for `compute_ns`.
    fn list_cost(&self, compute_ns: f64) -> ListCost {
        ListCost {
            lists: self.lists_per_query,
            hops: self.hops_per_query,
            reads: self.reads_per_query,
            small_reads: self.small_reads_per_query,
            bytes: self.bytes_per_query,
            vector_bytes: self.vector_bytes as u32,
            alignment: if self.device == FILE { BLOCK_BYTES as u32 } else { 1 },
            centroids: self.code_distances_per_query,
            vectors: self.full_distances_per_query,
            compute_ns,
        }
    }

    /// What the cost model of the family says.
    fn told(&self, compute_ns: f64, device: &TierProfile, execution: &Execution) -> Prediction {
        if self.family == "lists" {
            return lists::predict(&self.list_cost(compute_ns), device, execution);
        }
        let cost = graph::QueryCost {
            hops: self.hops_per_query,
            reads: self.reads_per_query,
            bytes: self.bytes_per_query,
            compute_ns,
        };
        graph::predict(&cost, device, execution)
    }
}
