//! `bathyal-repro gustann`: graphs and groups that a graphics card and several disks search. What is read, sent and kept is counted;
//! throughput is predicted from that by a model of the paper's machine, and labelled so.

pub mod arguments;
mod copies;
mod evenness;
mod latency;
mod measure;
mod model;
mod pivots;
mod queries;
mod rows;
mod subjects;
mod walk;

use bathyal_console::{Console, Failure};
use bathyal_tier::Control;

use crate::records::Records;
use crate::sets;
use crate::workload::make_folders;
use arguments::GustannArguments;
use measure::Lab;

pub(crate) fn run(arguments: &GustannArguments, console: &Console) -> Result<(), Failure> {
    make_folders(&arguments.work, &arguments.output)?;
    let sets = sets::open(&arguments.given(), console)?;
    let control = Control { cancel: Some(console.interrupt().flag()), deadline: None };
    let lab = Lab { arguments, console, control };
    let mut records = Records::create(&arguments.output, "gustann", &arguments.details(&sets))?;
    for set in &sets {
        lab.measure(set, &mut records)?;
    }
    records.answer(console)
}
