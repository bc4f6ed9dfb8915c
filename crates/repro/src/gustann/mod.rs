//! `bathyal-repro gustann`: graphs and groups searched with a graphics card and several disks. Reads, sent
//! bytes and memory are counted. A model of the paper's machine predicts throughput from the counts; records
//! mark predictions as such.

pub mod arguments;
mod copies;
mod evenness;
mod latency;
mod measure;
mod model;
mod pivots;
mod queries;
mod recompute;
mod rows;
mod subjects;
mod walk;

use bathyal_console::{Console, Failure};
use bathyal_tier::Control;

use crate::records::Records;
use crate::sets;
use crate::workload::make_folders;
use arguments::GustannArguments;
use measure::GustannExperiment;

pub(crate) fn run(arguments: &GustannArguments, console: &Console) -> Result<(), Failure> {
    if let Some(counted) = &arguments.recompute {
        return recompute::run(arguments, counted, console);
    }
    make_folders(&arguments.work, &arguments.output)?;
    let sets = sets::open(&arguments.set_arguments(), console)?;
    let control = Control { cancel: Some(console.interrupt().flag()), deadline: None };
    let experiment = GustannExperiment { arguments, console, control };
    let mut records = Records::create(&arguments.output, "gustann", &arguments.details(&sets))?;
    for set in &sets {
        experiment.measure(set, &mut records)?;
    }
    records.print_location(console)
}
