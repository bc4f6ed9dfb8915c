//! `bathyal-repro cloud`: indexes in an object store as cloud-native-vector-search has them, measured through an emulated
//! network, and what the paper lacks beside: groups with resident codes, and lists of codes.

pub mod arguments;
mod caching;
mod effort;
mod measure;
mod model;
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
use measure::Lab;
use plan::Planning;
use points::Measured;
use sets::Set;
use store::Emulation;

pub(crate) fn run(arguments: &CloudArguments, console: &Console) -> Result<(), Failure> {
    make_folders(&arguments.work, &arguments.output)?;
    let sets = sets::open(arguments, console)?;
    let Some(first) = sets.first() else {
        return Err(Failure::usage("no vectors: give --base and --query"));
    };
    let lab = Lab {
        arguments,
        emulation: Emulation::of(arguments),
        console,
        control: Control { cancel: Some(console.interrupt().flag()), deadline: None },
        cores: std::thread::available_parallelism().map_or(1, |cores| cores.get()),
    };
    let planning = Planning { k: arguments.k, quick: arguments.quick };
    let records = Records::create(&arguments.output, "cloud", &lab.details(&sets))?;
    let mut measured = Measured::new(records);
    // A bar each: builds and copies have their own in between.
    for planned in planning.whole() {
        lab.measure(first, &planned, &console.progress(), &mut measured)?;
    }
    for set in &sets[1..] {
        for planned in planning.beside() {
            lab.measure(set, &planned, &console.progress(), &mut measured)?;
        }
    }
    grow(&lab, first, planning, &mut measured)?;
    caching::measure(&lab, first, &mut measured)?;
    measured.into_records().answer(console)
}

/// The first vectors of a set, for figure 13.
fn grow(lab: &Lab<'_>, set: &Set, planning: Planning, measured: &mut Measured) -> Result<(), Failure> {
    let mut sizes: Vec<usize> = lab.arguments.sizes.iter().map(|size| *size as usize).collect();
    sizes.retain(|size| *size < set.base.count());
    sizes.sort_unstable();
    sizes.dedup();
    for size in sizes {
        let smaller = set.prefix(size, lab.arguments, lab.console)?;
        for planned in planning.growth() {
            lab.measure(&smaller, &planned, &lab.console.progress(), measured)?;
        }
    }
    Ok(())
}
