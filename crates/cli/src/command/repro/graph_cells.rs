//! The cells of the figures: one index on one device with so many queries in flight, measured in turn with others.

use std::time::Instant;

use bathyal_index::cost::graph::{Execution, Prediction, QueryCost, predict};
use bathyal_index::{Index, SearchTotals};
use bathyal_tier::Control;
use serde::Serialize;

use super::graph_indexes::{GraphIndex, OnDevices, Reached, options};
use super::workload::Workload;
use crate::arguments::GraphReproArguments;
use crate::failure::Failure;
use crate::process_time::processor_seconds;

/// One measurement of a cell.
#[derive(Clone, Copy, Serialize)]
pub(super) struct Sample {
    /// Queries a second of elapsed time.
    pub(super) qps: f64,
    /// Queries a second of processor time of each thread: what the machine would do if nobody else used it.
    pub(super) processor_qps: f64,
    /// Mean latency of a query in microseconds.
    pub(super) latency_us: f64,
}

/// A point of a figure: a line of `records.jsonl`.
#[derive(Clone, Serialize)]
pub(super) struct Record {
    pub(super) layout: &'static str,
    pub(super) max_degree: u32,
    /// "dram", "file", or "emulated" and the device's name.
    pub(super) device: String,
    pub(super) emulated: bool,
    pub(super) in_flight: u32,
    pub(super) threads: usize,
    pub(super) beam_width: u32,
    pub(super) queries: usize,
    pub(super) search_list: u32,
    pub(super) recall: f64,
    pub(super) hops_per_query: f64,
    pub(super) reads_per_query: f64,
    pub(super) bytes_per_query: f64,
    pub(super) index_bytes: u64,
    pub(super) data_bytes: u64,
    pub(super) amplification: f64,
    /// Medians of the samples.
    pub(super) qps: f64,
    pub(super) processor_qps: f64,
    pub(super) latency_us: f64,
    pub(super) samples: Vec<Sample>,
    /// What the cost model says, from the device's profile, the counters and the compute time in DRAM.
    pub(super) predicted: Option<Prediction>,
    /// `predicted / measured - 1`, of elapsed time.
    pub(super) error: Option<f64>,
    /// The same of processor time, which is no use where threads sleep (devices slower than 0.3 ms).
    pub(super) processor_error: Option<f64>,
    /// Its share of the throughput in DRAM with as many queries in flight: the median over the repeats, each
    /// measured right after the other.
    pub(super) share_of_dram: Option<f64>,
    pub(super) processor_share_of_dram: Option<f64>,
}

/// A device and a number of queries in flight.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Cell {
    /// 0 is DRAM.
    pub(super) device: usize,
    pub(super) in_flight: u32,
}

/// The middle of `values`; 0 without any.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}

/// Searches for as long as a measurement takes at least, in whole passes over the queries.
pub(super) fn measure(
    index: &Index,
    work: &Workload,
    arguments: &GraphReproArguments,
    search_list: u32,
    in_flight: u32,
    control: Control<'_>,
) -> Result<(Sample, SearchTotals), Failure> {
    let how = options(arguments, search_list, in_flight);
    let (began, before) = (Instant::now(), processor_seconds());
    let (mut seconds, mut queries, mut latency_ns, mut totals) =
        (0.0, 0_usize, 0_u64, SearchTotals::default());
    let mut threads = 1;
    while queries == 0 || began.elapsed().as_secs_f64() < arguments.seconds {
        let found = index.search(&work.queries, &how, control)?;
        seconds += found.seconds;
        queries += found.latencies_ns.len();
        latency_ns += found.latencies_ns.iter().sum::<u64>();
        (totals, threads) = (found.totals, found.threads);
    }
    let processor = before.zip(processor_seconds()).map_or(seconds * threads as f64, |(from, to)| to - from);
    let sample = Sample {
        qps: queries as f64 / seconds.max(1e-9),
        processor_qps: (queries * threads) as f64 / processor.max(1e-9),
        latency_us: latency_ns as f64 / 1e3 / queries.max(1) as f64,
    };
    Ok((sample, totals))
}

/// An open graph with its cells and what was measured of them.
pub(super) struct Bench<'a> {
    pub(super) graph: &'a GraphIndex,
    pub(super) open: OnDevices,
    pub(super) reached: Reached,
    pub(super) cells: Vec<Cell>,
    pub(super) samples: Vec<Vec<Sample>>,
}

impl Bench<'_> {
    /// Measures every cell once, one after the other.
    pub(super) fn round(
        &mut self,
        work: &Workload,
        arguments: &GraphReproArguments,
        control: Control<'_>,
        done: &mut dyn FnMut(),
    ) -> Result<(), Failure> {
        self.samples.resize(self.cells.len(), Vec::new());
        for (cell, samples) in self.cells.iter().zip(&mut self.samples) {
            self.open.choose(cell.device);
            let (sample, totals) = measure(
                &self.open.index,
                work,
                arguments,
                self.reached.search_list,
                cell.in_flight,
                control,
            )?;
            if totals != self.reached.totals {
                return Err(Failure::new(format!(
                    "{}: the counters of a search differ between devices: {totals:?} and {:?}",
                    self.graph.path.display(),
                    self.reached.totals
                )));
            }
            samples.push(sample);
            done();
        }
        Ok(())
    }

    /// The samples of a cell; none where it is not measured.
    fn of(&self, cell: Cell) -> &[Sample] {
        let at = self.cells.iter().position(|other| *other == cell);
        at.and_then(|at| self.samples.get(at)).map_or(&[], Vec::as_slice)
    }

    /// The records of all cells, with what the model says of those on devices.
    pub(super) fn records(
        &self,
        work: &Workload,
        arguments: &GraphReproArguments,
        issue_ns: &[u64],
    ) -> Vec<Record> {
        let cells = self.cells.iter().zip(&self.samples);
        cells.map(|(cell, samples)| self.record(*cell, samples, work, arguments, issue_ns)).collect()
    }

    fn record(
        &self,
        cell: Cell,
        samples: &[Sample],
        work: &Workload,
        arguments: &GraphReproArguments,
        issue_ns: &[u64],
    ) -> Record {
        let profile = &self.open.profiles[cell.device];
        let how = How { in_flight: cell.in_flight, device: profile.kind.clone(), emulated: cell.device > 0 };
        let mut record = record(self.graph, &self.reached, how, samples, work, arguments);
        if cell.device == 0 {
            return record;
        }
        let dram = self.of(Cell { device: 0, ..cell });
        let share = |of: fn(&Sample) -> f64| {
            let shares = samples.iter().zip(dram).map(|(slow, fast)| of(slow) / of(fast).max(1e-9));
            (!dram.is_empty()).then(|| median(shares.collect()))
        };
        record.share_of_dram = share(|sample| sample.qps);
        record.processor_share_of_dram = share(|sample| sample.processor_qps);
        // A lone query stalls on loads of DRAM, which the device's latency covers: what it computes is what it takes
        // where other queries cover the stalls.
        let width = if cell.in_flight == 1 { arguments.in_flight } else { cell.in_flight };
        let computing = self.of(Cell { device: 0, in_flight: width });
        if !computing.is_empty() {
            let threads = record.threads.max(1);
            let issue_ns = issue_ns[cell.device] as f64;
            let execution = Execution { threads: threads as u32, in_flight: cell.in_flight, issue_ns };
            let told = |of: fn(&Sample) -> f64| {
                let qps = median(computing.iter().map(of).collect()).max(1e-9);
                let seconds = record.queries as f64 * threads as f64 / qps;
                let cost = QueryCost::mean(&self.reached.totals, record.queries, seconds);
                predict(&cost, profile, &execution)
            };
            let predicted = told(|sample| sample.qps);
            record.error = Some(predicted.qps / record.qps.max(1e-9) - 1.0);
            let processor = told(|sample| sample.processor_qps);
            record.processor_error = Some(processor.qps / record.processor_qps.max(1e-9) - 1.0);
            record.predicted = Some(predicted);
        }
        record
    }
}

/// How a record was measured.
pub(super) struct How {
    pub(super) in_flight: u32,
    pub(super) device: String,
    pub(super) emulated: bool,
}

/// What was measured of one index in one way.
pub(super) fn record(
    graph: &GraphIndex,
    reached: &Reached,
    how: How,
    samples: &[Sample],
    work: &Workload,
    arguments: &GraphReproArguments,
) -> Record {
    let queries = work.queries.count();
    let mean = |total: u64| total as f64 / queries.max(1) as f64;
    let middle = |of: fn(&Sample) -> f64| median(samples.iter().map(of).collect());
    let (index_bytes, data_bytes) = (graph.manifest.index_bytes(), graph.manifest.data_bytes);
    Record {
        layout: graph.layout.name(),
        max_degree: graph.max_degree,
        device: how.device,
        emulated: how.emulated,
        in_flight: how.in_flight,
        threads: threads(arguments),
        beam_width: arguments.beam_width,
        queries,
        search_list: reached.search_list,
        recall: reached.recall,
        hops_per_query: mean(reached.totals.hops),
        reads_per_query: mean(reached.totals.reads),
        bytes_per_query: mean(reached.totals.bytes),
        index_bytes,
        data_bytes,
        amplification: index_bytes as f64 / data_bytes.max(1) as f64,
        qps: middle(|sample| sample.qps),
        processor_qps: middle(|sample| sample.processor_qps),
        latency_us: middle(|sample| sample.latency_us),
        samples: samples.to_vec(),
        predicted: None,
        error: None,
        processor_error: None,
        share_of_dram: None,
        processor_share_of_dram: None,
    }
}

/// Threads that search.
fn threads(arguments: &GraphReproArguments) -> usize {
    match arguments.threads {
        0 => std::thread::available_parallelism().map_or(1, |n| n.get()),
        n => n,
    }
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn medians() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0]), 2.5);
        assert_eq!(median(Vec::new()), 0.0);
    }
}
