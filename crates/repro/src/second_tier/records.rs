//! The points of the figures: measurements of one index in one cell, and the cost model's prediction for
//! them.

use bathyal_index::SearchTotals;
use bathyal_index::cost::counters::{ListCost, QueryCost};
use bathyal_index::cost::demand::{Execution, Prediction};
use bathyal_index::format::postings::BLOCK_BYTES;
use bathyal_tier::TierProfile;
use serde::Serialize;

use crate::numbers::median;
use crate::second_tier::devices::FILE;
use crate::second_tier::effort::{EffortParameter, MeasuredEffort, Trial};
use crate::second_tier::subjects::{IndexShape, Subject};
use crate::workload::QuerySet;

/// One measurement of a cell.
#[derive(Clone, Copy, Serialize)]
pub(crate) struct TimedSample {
    /// Queries per second of elapsed time.
    pub(crate) qps: f64,
    /// Queries per second of each thread's processor time: the throughput of an otherwise idle machine.
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
    /// Most posting lists per query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) probes: Option<u32>,
    pub(crate) recall: f64,
    pub(crate) hops_per_query: f64,
    pub(crate) reads_per_query: f64,
    pub(crate) bytes_per_query: f64,
    pub(crate) lists_per_query: f64,
    pub(crate) small_reads_per_query: f64,
    /// Distances of codes; with posting lists, distances to centroids.
    pub(crate) code_distances_per_query: f64,
    pub(crate) full_distances_per_query: f64,
    /// Share of the compute time for finding posting lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) finding_share: Option<f64>,
    /// Arithmetic operations of all distances of a query, as counted by [`operations`].
    pub(crate) operations_per_query: f64,
    /// Bytes of a vector.
    pub(crate) vector_bytes: u64,
    /// Bytes of all files of the index, of the file on the device, and of the vectors alone.
    pub(crate) index_bytes: u64,
    pub(crate) device_bytes: u64,
    pub(crate) data_bytes: u64,
    pub(crate) amplification: f64,
    /// Medians of the samples.
    pub(crate) qps: f64,
    pub(crate) processor_qps: f64,
    pub(crate) latency_us: f64,
    pub(crate) samples: Vec<TimedSample>,
    /// Prediction of the cost model from the device's profile, the counters and the compute time in DRAM.
    pub(crate) predicted: Option<Prediction>,
    /// `predicted / measured - 1`, of elapsed time.
    pub(crate) error: Option<f64>,
    /// The same for processor time, which is not meaningful if threads sleep (devices slower than 0.3 ms).
    pub(crate) processor_error: Option<f64>,
    /// Share of the throughput in DRAM with as many queries in flight: the median over the repeats, in each
    /// of which both are measured in turn.
    pub(crate) share_of_dram: Option<f64>,
    pub(crate) processor_share_of_dram: Option<f64>,
}

/// Returns the median of one number of all samples.
fn median_of(samples: &[TimedSample], value: fn(&TimedSample) -> f64) -> f64 {
    median(samples.iter().map(value).collect())
}

/// Returns the arithmetic operations of the computed distances: for full vectors and centroids a subtraction,
/// a multiplication and an addition per dimension; for codes a lookup and an addition per byte.
fn operations(subject: &Subject, totals: &SearchTotals) -> f64 {
    let per_vector = 3.0 * f64::from(subject.manifest.dim);
    let per_code = match subject.shape {
        IndexShape::Lists { .. } => per_vector,
        IndexShape::Graph { .. } | IndexShape::Codes => 2.0 * f64::from(subject.code_bytes()),
    };
    totals.full_distances as f64 * per_vector + totals.code_distances as f64 * per_code
}

impl Record {
    /// Summarizes the samples of `subject` on `device` with `in_flight` queries in flight.
    pub(crate) fn new(
        subject: &Subject,
        effort: &MeasuredEffort,
        (device, in_flight): (&str, u32),
        samples: &[TimedSample],
        (trial, query_set): (&Trial<'_>, &QuerySet),
    ) -> Record {
        let queries = query_set.queries.count();
        let mean = |total: u64| total as f64 / queries.max(1) as f64;
        let (index_bytes, data_bytes) = (subject.manifest.index_bytes(), subject.manifest.data_bytes);
        let (family, layout, max_degree, lists) = match subject.shape {
            IndexShape::Graph { layout, max_degree } => ("graph", layout.name(), Some(max_degree), None),
            IndexShape::Lists { layout, replicas, centroid_share } => {
                ("lists", layout.name(), None, Some((replicas, centroid_share)))
            }
            IndexShape::Codes => ("codes", "resident", None, None),
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
            search_list: effort.search_list,
            probes: (effort.parameter == EffortParameter::Probes).then_some(effort.setting),
            recall: effort.recall,
            hops_per_query: mean(effort.totals.hops),
            reads_per_query: mean(effort.totals.reads),
            bytes_per_query: mean(effort.totals.bytes),
            lists_per_query: mean(effort.totals.own.of("lists").unwrap_or(0)),
            small_reads_per_query: mean(effort.totals.own.of("small_reads").unwrap_or(0)),
            code_distances_per_query: mean(effort.totals.code_distances),
            full_distances_per_query: mean(effort.totals.full_distances),
            finding_share: None,
            operations_per_query: operations(subject, &effort.totals) / queries.max(1) as f64,
            vector_bytes: data_bytes / subject.manifest.vectors.max(1),
            index_bytes,
            device_bytes: subject.manifest.paged_file().bytes,
            data_bytes,
            amplification: index_bytes as f64 / data_bytes.max(1) as f64,
            qps: median_of(samples, |sample| sample.qps),
            processor_qps: median_of(samples, |sample| sample.processor_qps),
            latency_us: median_of(samples, |sample| sample.latency_us),
            samples: samples.to_vec(),
            predicted: None,
            error: None,
            processor_error: None,
            share_of_dram: None,
            processor_share_of_dram: None,
        }
    }

    /// Sets the shares of the throughput in DRAM; `dram` are samples of the same rounds.
    pub(crate) fn set_share_of_dram(&mut self, dram: &[TimedSample]) {
        let share = |value: fn(&TimedSample) -> f64| {
            let shares =
                self.samples.iter().zip(dram).map(|(slow, fast)| value(slow) / value(fast).max(1e-9));
            (!dram.is_empty()).then(|| median(shares.collect()))
        };
        (self.share_of_dram, self.processor_share_of_dram) =
            (share(|sample| sample.qps), share(|sample| sample.processor_qps));
    }

    /// Sets the cost model's prediction for `device`, where submitting a read costs `issue_ns`, and its
    /// errors. `computing` are samples without waits for reads.
    pub(crate) fn predict(&mut self, computing: &[TimedSample], device: &TierProfile, issue_ns: u64) {
        if computing.is_empty() {
            return;
        }
        let threads = self.threads.max(1);
        let execution =
            Execution { threads: threads as u32, in_flight: self.in_flight, issue_ns: issue_ns as f64 };
        let predicted = |value: fn(&TimedSample) -> f64| {
            let compute_ns = threads as f64 * 1e9 / median_of(computing, value).max(1e-9);
            self.prediction(compute_ns, device, &execution)
        };
        let (elapsed, processor) = (predicted(|sample| sample.qps), predicted(|sample| sample.processor_qps));
        self.error = Some(elapsed.qps / self.qps.max(1e-9) - 1.0);
        self.processor_error = Some(processor.qps / self.processor_qps.max(1e-9) - 1.0);
        self.predicted = Some(elapsed);
    }

    /// Returns the cost of a query of posting lists that computes for `compute_ns`.
    fn list_cost(&self, compute_ns: f64) -> ListCost {
        ListCost {
            hops: self.hops_per_query,
            reads: self.reads_per_query,
            small_reads: self.small_reads_per_query,
            bytes: self.bytes_per_query,
            vector_bytes: self.vector_bytes as u32,
            alignment: if self.device == FILE { BLOCK_BYTES as u32 } else { 1 },
            compute_ns,
        }
    }

    /// Returns the prediction of the family's cost model.
    fn prediction(&self, compute_ns: f64, device: &TierProfile, execution: &Execution) -> Prediction {
        if self.family == "lists" {
            return self.list_cost(compute_ns).demand(device.granularity).on(device, execution);
        }
        let cost = QueryCost {
            hops: self.hops_per_query,
            reads: self.reads_per_query,
            bytes: self.bytes_per_query,
            compute_ns,
        };
        cost.demand(device.granularity).on(device, execution)
    }
}
