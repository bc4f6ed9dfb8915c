//! Measuring: each index on each device with so many queries in flight, all in turn.

use std::time::Instant;

use bathyal_console::Failure;
use bathyal_console::process_time::processor_seconds;
use bathyal_index::{Index, OpenOptions, SearchTotals};
use bathyal_vectors::progress::Progress;

use crate::records::Records;
use crate::second_tier::devices::{DRAM, FILE, OnDevices, emulated};
use crate::second_tier::effort::{Knob, Reached, Trial};
use crate::second_tier::records::{Record, Sample};
use crate::second_tier::subjects::{Shape, Subject};
use crate::workload::Questions;

/// An index and how it is measured.
pub(crate) struct Planned<'a> {
    pub(crate) subject: &'a Subject,
    /// Numbers of queries in flight, each in DRAM and on every device.
    pub(crate) widths: Vec<u32>,
    /// Whether its file is searched, too.
    pub(crate) on_file: bool,
}

/// A device and a number of queries in flight.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Cell {
    /// 0 is DRAM.
    device: usize,
    in_flight: u32,
}

/// Single measurements of a whole run.
pub(crate) fn steps(groups: &[Vec<Planned<'_>>], trial: &Trial<'_>) -> u64 {
    let devices = 1 + trial.arguments.devices.len();
    let of = |planned: &Planned<'_>| {
        planned.widths.len() * devices + usize::from(planned.on_file && !trial.arguments.without_file)
    };
    let steps: usize = groups.iter().flatten().map(of).sum();
    steps as u64 * u64::from(trial.arguments.repeats)
}

/// Measures everything: the cells of a group take turns, and after all groups the files do.
pub(crate) fn measure_all(
    groups: &[Vec<Planned<'_>>],
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
        let mut benches: Vec<Bench<'_>> = Vec::new();
        for planned in group {
            let hint = benches.last().map(|bench| bench.reached.clone());
            benches.push(Bench::open(planned, hint.as_ref(), trial)?);
        }
        for _ in 0..trial.arguments.repeats {
            for bench in &mut benches {
                bench.round(trial, &mut step)?;
            }
        }
        for bench in &benches {
            records.write_all(&bench.records(trial))?;
            if bench.planned.on_file && !trial.arguments.without_file {
                on_files.push((
                    bench.planned.subject,
                    bench.reached.clone(),
                    bench.computing(trial).to_vec(),
                ));
            }
        }
    }
    records.write_all(&files(&on_files, trial, &mut step)?)
}

/// Searches for as long as a measurement takes at least, in whole passes over the queries.
fn measure(
    index: &Index,
    asked: &Questions,
    trial: &Trial<'_>,
    reached: &Reached,
    in_flight: u32,
) -> Result<(Sample, SearchTotals), Failure> {
    let how = trial.options(index, reached.knob, reached.setting, in_flight);
    let (began, before) = (Instant::now(), processor_seconds());
    let (mut seconds, mut queries, mut latency_ns, mut totals) =
        (0.0, 0_usize, 0_u64, SearchTotals::default());
    let mut threads = 1;
    while queries == 0 || began.elapsed().as_secs_f64() < trial.arguments.seconds {
        let found = index.search(&asked.queries, &how, trial.control)?;
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

/// An open index with its cells and what was measured of them.
struct Bench<'a> {
    planned: &'a Planned<'a>,
    open: OnDevices,
    reached: Reached,
    finding_share: Option<f64>,
    cells: Vec<(Cell, Vec<Sample>)>,
}

impl<'a> Bench<'a> {
    fn open(
        planned: &'a Planned<'a>,
        hint: Option<&Reached>,
        trial: &Trial<'_>,
    ) -> Result<Bench<'a>, Failure> {
        let open = OnDevices::open(planned.subject, &trial.arguments.devices)?;
        let reached = trial.least_effort(&open.index, planned.subject.shape, &trial.work.all, hint)?;
        let finding_share = match planned.subject.shape {
            Shape::Lists { .. } => Some(trial.finding_share(&open.index, &reached)?),
            _ => None,
        };
        let devices = 0..=trial.arguments.devices.len();
        let cells = planned.widths.iter().flat_map(|in_flight| {
            devices.clone().map(|device| (Cell { device, in_flight: *in_flight }, Vec::new()))
        });
        Ok(Bench { planned, open, reached, finding_share, cells: cells.collect() })
    }

    /// Measures every cell once, one after the other.
    fn round(&mut self, trial: &Trial<'_>, done: &mut dyn FnMut()) -> Result<(), Failure> {
        for (cell, samples) in &mut self.cells {
            self.open.choose(cell.device);
            let (sample, totals) =
                measure(&self.open.index, &trial.work.all, trial, &self.reached, cell.in_flight)?;
            if totals != self.reached.totals {
                return Err(Failure::new(format!(
                    "{}: the counters of a search differ between devices: {totals:?} and {:?}",
                    self.planned.subject.path.display(),
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
        self.cells.iter().find(|other| other.0 == cell).map_or(&[], |found| &found.1)
    }

    /// The samples in DRAM with as many queries in flight as the figures have.
    fn computing(&self, trial: &Trial<'_>) -> &[Sample] {
        self.of(Cell { device: 0, in_flight: trial.arguments.in_flight })
    }

    /// The records of all cells, with what the model says of those on devices.
    fn records(&self, trial: &Trial<'_>) -> Vec<Record> {
        let record = |(cell, samples): &(Cell, Vec<Sample>)| {
            let device = cell.device.checked_sub(1).and_then(|device| trial.arguments.devices.get(device));
            let name = device.map_or(DRAM.to_owned(), emulated);
            let how = (name.as_str(), cell.in_flight);
            let subject = self.planned.subject;
            let mut record = Record::new(subject, &self.reached, how, samples, (trial, &trial.work.all));
            record.finding_share = self.finding_share;
            if let Some(device) = device {
                record.share(self.of(Cell { device: 0, ..*cell }));
                // A lone query stalls on loads of DRAM, which the device's latency covers: what it computes is what
                // it takes where other queries cover the stalls.
                let width = if cell.in_flight == 1 { trial.arguments.in_flight } else { cell.in_flight };
                let computing = self.of(Cell { device: 0, in_flight: width });
                record.predict(computing, &self.open.profiles[cell.device], device.issue_ns);
            }
            record
        };
        self.cells.iter().map(record).collect()
    }
}

/// Searches the files themselves, all in turn; each comes with its effort and what it takes in DRAM.
fn files(
    subjects: &[(&Subject, Reached, Vec<Sample>)],
    trial: &Trial<'_>,
    done: &mut dyn FnMut(),
) -> Result<Vec<Record>, Failure> {
    let (asked, in_flight) = (&trial.work.few, trial.arguments.in_flight);
    let mut open = Vec::new();
    for (subject, reached, _) in subjects {
        let index = Index::open(&subject.path, &OpenOptions::default())?;
        // A calibration chooses otherwise where reads are dear, and what it is asked for has to be found again.
        let reached = match reached.knob {
            Knob::Calibration => trial.least_effort(&index, subject.shape, asked, Some(reached))?,
            knob => trial.reached(&index, asked, knob, reached.setting)?,
        };
        open.push((index, reached, Vec::new()));
    }
    for _ in 0..trial.arguments.repeats {
        for (index, reached, samples) in &mut open {
            samples.push(measure(index, asked, trial, reached, in_flight)?.0);
            done();
        }
    }
    let records = subjects.iter().zip(&open).map(|((subject, _, computing), (_, reached, samples))| {
        let mut record = Record::new(subject, reached, (FILE, in_flight), samples, (trial, asked));
        if let Some(profile) = &trial.arguments.file_profile {
            record.predict(computing, profile, 0);
        }
        record
    });
    Ok(records.collect())
}
