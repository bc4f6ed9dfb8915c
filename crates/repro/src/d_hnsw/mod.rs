//! `bathyal-repro d-hnsw`: sub-indexes in the memory of another machine, read whole through an emulated
//! network card: the paper's schemes and ours, and other families on the same network.

pub mod arguments;
mod inserts;
mod measure;
mod node;
mod rows;
mod scheme;
mod subjects;

use bathyal_console::{Console, Failure};
use bathyal_tier::Control;

use crate::records::Records;
use crate::sets;
use crate::workload::make_folders;
use arguments::DhnswArguments;
use measure::DhnswExperiment;

pub(crate) fn run(arguments: &DhnswArguments, console: &Console) -> Result<(), Failure> {
    make_folders(&arguments.work, &arguments.output)?;
    let sets = sets::open(&arguments.set_arguments(), console)?;
    let control = Control { cancel: Some(console.interrupt().flag()), deadline: None };
    let experiment = DhnswExperiment { arguments, console, control };
    let mut records = Records::create(&arguments.output, "d-hnsw", &arguments.details(&sets))?;
    for set in &sets {
        experiment.measure(set, &mut records)?;
    }
    records.print_location(console)
}
