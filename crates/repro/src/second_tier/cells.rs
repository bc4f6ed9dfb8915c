//! Measures each index on each device with each number of queries in flight; measurements take turns.

use std::time::Instant;

use bathyal_console::Failure;
use bathyal_index::{Index, OpenOptions, SearchTotals};
use bathyal_tier::process_ns;
use bathyal_vectors::progress::Progress;

use crate::records::Records;
use crate::second_tier::devices::{DRAM, FILE, SwitchedIndex, emulated};
use crate::second_tier::effort::{EffortParameter, MeasuredEffort, Trial};
use crate::second_tier::records::{Record, TimedSample};
use crate::second_tier::subjects::{IndexShape, Subject};
use crate::workload::QuerySet;

/// An index and its measurements.
pub(crate) struct PlannedIndex<'a> {
    pub(crate) subject: &'a Subject,
    /// Numbers of queries in flight, each measured in DRAM and on every device.
    pub(crate) in_flight_counts: Vec<u32>,
    /// True if its file is searched, too.
    pub(crate) on_file: bool,
}

/// A device and a number of queries in flight.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Cell {
    /// 0 is DRAM.
    device: usize,
    in_flight: u32,
}

/// Returns the number of single measurements of a run.
pub(crate) fn steps(groups: &[Vec<PlannedIndex<'_>>], trial: &Trial<'_>) -> u64 {
    let devices = 1 + trial.arguments.devices.len();
    let count = |planned: &PlannedIndex<'_>| {
        let on_file = usize::from(planned.on_file && !trial.arguments.without_file);
        planned.in_flight_counts.len() * devices + on_file
    };
    let steps: usize = groups.iter().flatten().map(count).sum();
    steps as u64 * u64::from(trial.arguments.repeats)
}

/// Measures everything: the cells of a group take turns, and the files take turns after all groups.
pub(crate) fn measure_all(
    groups: &[Vec<PlannedIndex<'_>>],
    trial: &Trial<'_>,
    records: &mut Records,
    progress: &dyn Progress,
) -> Result<(), Failure> {
    progress.stage("measuring", steps(groups, trial));
    let mut steps_done = 0;
    let mut step = || {
        steps_done += 1;
        progress.advance(steps_done);
    };
    let mut on_files = Vec::new();
    for group in groups {
        let mut measured_indexes: Vec<MeasuredIndex<'_>> = Vec::new();
        for planned in group {
            let hint = measured_indexes.last().map(|measured| measured.effort.clone());
            measured_indexes.push(MeasuredIndex::open(planned, hint.as_ref(), trial)?);
        }
        for _ in 0..trial.arguments.repeats {
            for measured in &mut measured_indexes {
                measured.measure_cells(trial, &mut step)?;
            }
        }
        for measured in &measured_indexes {
            records.write_all(&measured.records(trial))?;
            if measured.planned.on_file && !trial.arguments.without_file {
                on_files.push((
                    measured.planned.subject,
                    measured.effort.clone(),
                    measured.dram_samples(trial).to_vec(),
                ));
            }
        }
    }
    records.write_all(&measure_files(&on_files, trial, &mut step)?)
}

/// Searches for at least the seconds of a measurement, in whole passes over the queries.
fn measure(
    index: &Index,
    query_set: &QuerySet,
    trial: &Trial<'_>,
    effort: &MeasuredEffort,
    in_flight: u32,
) -> Result<(TimedSample, SearchTotals), Failure> {
    let options = trial.options(index, effort.parameter, effort.setting, in_flight);
    let (began, before) = (Instant::now(), process_ns());
    let (mut seconds, mut queries, mut latency_ns, mut totals) =
        (0.0, 0_usize, 0_u64, SearchTotals::default());
    let mut threads = 1;
    while queries == 0 || began.elapsed().as_secs_f64() < trial.arguments.seconds {
        let found = index.search(&query_set.queries, &options, trial.control)?;
        seconds += found.seconds;
        queries += found.latencies_ns.len();
        latency_ns += found.latencies_ns.iter().sum::<u64>();
        (totals, threads) = (found.totals, found.threads);
    }
    let processor = process_ns().saturating_sub(before) as f64 / 1e9;
    let sample = TimedSample {
        qps: queries as f64 / seconds.max(1e-9),
        processor_qps: (queries * threads) as f64 / processor.max(1e-9),
        latency_us: latency_ns as f64 / 1e3 / queries.max(1) as f64,
    };
    Ok((sample, totals))
}

/// An open index with its cells and their samples.
struct MeasuredIndex<'a> {
    planned: &'a PlannedIndex<'a>,
    open: SwitchedIndex,
    effort: MeasuredEffort,
    navigate_share: Option<f64>,
    cells: Vec<(Cell, Vec<TimedSample>)>,
}

impl<'a> MeasuredIndex<'a> {
    fn open(
        planned: &'a PlannedIndex<'a>,
        hint: Option<&MeasuredEffort>,
        trial: &Trial<'_>,
    ) -> Result<MeasuredIndex<'a>, Failure> {
        let open = SwitchedIndex::open(planned.subject, &trial.arguments.devices)?;
        let effort = trial.least_effort(&open.index, planned.subject.shape, &trial.work.all, hint)?;
        let navigate_share = match planned.subject.shape {
            IndexShape::Lists { .. } => Some(trial.navigate_share(&open.index, &effort)?),
            _ => None,
        };
        let devices = 0..=trial.arguments.devices.len();
        let cells = planned.in_flight_counts.iter().flat_map(|in_flight| {
            devices.clone().map(|device| (Cell { device, in_flight: *in_flight }, Vec::new()))
        });
        Ok(MeasuredIndex { planned, open, effort, navigate_share, cells: cells.collect() })
    }

    /// Measures every cell once, one after the other.
    fn measure_cells(&mut self, trial: &Trial<'_>, done: &mut dyn FnMut()) -> Result<(), Failure> {
        for (cell, samples) in &mut self.cells {
            self.open.choose(cell.device);
            let (sample, totals) =
                measure(&self.open.index, &trial.work.all, trial, &self.effort, cell.in_flight)?;
            if totals != self.effort.totals {
                return Err(Failure::new(format!(
                    "{}: the counters of a search differ between devices: {totals:?} and {:?}",
                    self.planned.subject.path.display(),
                    self.effort.totals
                )));
            }
            samples.push(sample);
            done();
        }
        Ok(())
    }

    /// Returns the samples of a cell; none if it is not measured.
    fn samples(&self, cell: Cell) -> &[TimedSample] {
        self.cells.iter().find(|other| other.0 == cell).map_or(&[], |found| &found.1)
    }

    /// Returns the samples in DRAM with the queries in flight of the figures.
    fn dram_samples(&self, trial: &Trial<'_>) -> &[TimedSample] {
        self.samples(Cell { device: 0, in_flight: trial.arguments.in_flight })
    }

    /// Returns the records of all cells, with the model's predictions for devices.
    fn records(&self, trial: &Trial<'_>) -> Vec<Record> {
        let record = |(cell, samples): &(Cell, Vec<TimedSample>)| {
            let device = cell.device.checked_sub(1).and_then(|device| trial.arguments.devices.get(device));
            let name = device.map_or(DRAM.to_owned(), emulated);
            let how = (name.as_str(), cell.in_flight);
            let subject = self.planned.subject;
            let mut record = Record::new(subject, &self.effort, how, samples, (trial, &trial.work.all));
            record.finding_share = self.navigate_share;
            if let Some(device) = device {
                record.set_share_of_dram(self.samples(Cell { device: 0, ..*cell }));
                // A single query stalls on loads of DRAM. On a device, the latency covers those stalls, so
                // its compute time is that of interleaved queries, which cover the stalls, too.
                let in_flight = if cell.in_flight == 1 { trial.arguments.in_flight } else { cell.in_flight };
                let computing = self.samples(Cell { device: 0, in_flight });
                record.predict(computing, &self.open.profiles[cell.device], device.issue_ns);
            }
            record
        };
        self.cells.iter().map(record).collect()
    }
}

/// Searches the files themselves, in turns. Each index comes with its effort and its samples in DRAM.
fn measure_files(
    subjects: &[(&Subject, MeasuredEffort, Vec<TimedSample>)],
    trial: &Trial<'_>,
    done: &mut dyn FnMut(),
) -> Result<Vec<Record>, Failure> {
    let (query_set, in_flight) = (&trial.work.few, trial.arguments.in_flight);
    let mut open = Vec::new();
    for (subject, effort, _) in subjects {
        let index = Index::open(&subject.path, &OpenOptions::default())?;
        // A calibration chooses other numbers if reads are expensive, so find the recall to request again.
        let effort = match effort.parameter {
            EffortParameter::Calibration => {
                trial.least_effort(&index, subject.shape, query_set, Some(effort))?
            }
            parameter => trial.measure_effort(&index, query_set, parameter, effort.setting)?,
        };
        open.push((index, effort, Vec::new()));
    }
    for _ in 0..trial.arguments.repeats {
        for (index, effort, samples) in &mut open {
            samples.push(measure(index, query_set, trial, effort, in_flight)?.0);
            done();
        }
    }
    let records = subjects.iter().zip(&open).map(|((subject, _, computing), (_, effort, samples))| {
        let mut record = Record::new(subject, effort, (FILE, in_flight), samples, (trial, query_set));
        if let Some(profile) = &trial.arguments.file_profile {
            record.predict(computing, profile, 0);
        }
        record
    });
    Ok(records.collect())
}
