//! `bathyal-repro cloud`: indexes in an object store, as in cloud-native-vector-search, measured through an
//! emulated network. It also measures two indexes that the paper lacks: groups with resident codes, and lists
//! of codes.

pub mod arguments;
mod caching;
mod effort;
mod measure;
mod plan;
mod points;
mod policy;
mod sets;
mod store;
mod subjects;

use bathyal_console::{Console, Failure};
use bathyal_tier::Control;

use crate::records::Records;
use crate::workload::make_folders;
use arguments::CloudArguments;
use measure::CloudExperiment;
use plan::Planner;
use points::Measurements;
use sets::CloudSet;
use store::Emulation;

pub(crate) fn run(arguments: &CloudArguments, console: &Console) -> Result<(), Failure> {
    make_folders(&arguments.work, &arguments.output)?;
    let sets = sets::open(arguments, console)?;
    let Some(first) = sets.first() else {
        return Err(Failure::usage("no vectors: give --base and --query"));
    };
    let experiment = CloudExperiment {
        arguments,
        emulation: Emulation::of(arguments),
        console,
        control: Control { cancel: Some(console.interrupt().flag()), deadline: None },
        cores: std::thread::available_parallelism().map_or(1, |cores| cores.get()),
    };
    let planner = Planner { k: arguments.k, quick: arguments.quick };
    let records = Records::create(&arguments.output, "cloud", &experiment.details(&sets))?;
    let mut measured = Measurements::new(records);
    // Each index gets its own progress bar, because builds and copies show theirs in between.
    for planned in planner.first_set() {
        experiment.measure(first, &planned, &console.progress(), &mut measured)?;
    }
    for set in &sets[1..] {
        for planned in planner.further_sets() {
            experiment.measure(set, &planned, &console.progress(), &mut measured)?;
        }
    }
    measure_growth(&experiment, first, planner, &mut measured)?;
    caching::measure(&experiment, first, &mut measured)?;
    measured.into_records().print_location(console)
}

/// Measures prefixes of a set, for figure 13.
fn measure_growth(
    experiment: &CloudExperiment<'_>,
    set: &CloudSet,
    planner: Planner,
    measured: &mut Measurements,
) -> Result<(), Failure> {
    let mut sizes: Vec<usize> = experiment.arguments.sizes.iter().map(|size| *size as usize).collect();
    sizes.retain(|size| *size < set.base.count());
    sizes.sort_unstable();
    sizes.dedup();
    for size in sizes {
        let smaller = set.prefix(size, experiment.arguments, experiment.console)?;
        for planned in planner.growth() {
            experiment.measure(&smaller, &planned, &experiment.console.progress(), measured)?;
        }
    }
    Ok(())
}
