//! `bathyal-repro e2lsh`: measures E2LSH on storage as in its paper, and the family `lsh` for comparison.

mod accuracy;
pub mod arguments;
mod build;
mod details;
mod experiment;
mod filter;
mod growth;
mod ideas;
mod layout;
mod mapped;
mod points;
mod run;
mod search;
mod speeds;

use bathyal_console::{Console, Failure};
use bathyal_tier::Control;

use crate::records::Records;
use crate::workload::{Sources, Workload, make_folders};
use arguments::E2lshArguments;
use bathyal_kernels::Metric;
use details::{E2lshDetails, TablesRecord};
use experiment::{E2lshExperiment, Extent};
use points::{E2lshRecord, PaperPoint};

pub(crate) fn run(arguments: &E2lshArguments, console: &Console) -> Result<(), Failure> {
    make_folders(&arguments.work, &arguments.output)?;
    let sources = Sources {
        data: &arguments.data,
        queries: &arguments.queries,
        groundtruth: arguments.groundtruth.as_deref(),
        work: &arguments.work,
        vectors: arguments.vectors,
        first_queries: Some(arguments.first_queries),
        file_queries: arguments.first_queries,
        metric: Metric::L2,
        k: arguments.k.iter().copied().max().unwrap_or(1),
    };
    let work = Workload::open(&sources, console)?;
    if work.all.exact.k() < sources.k as usize || !work.all.exact.has_distances() {
        return Err(Failure::usage(format!(
            "the ground truth has {} neighbours per query, {} distances; {} are needed, with distances: omit \
             --groundtruth to compute them",
            work.all.exact.k(),
            if work.all.exact.has_distances() { "with" } else { "without" },
            sources.k
        )));
    }
    let control = Control { cancel: Some(console.interrupt().flag()), deadline: None };
    let extent = Extent::of(&work.base, console)?;
    let experiment = E2lshExperiment { arguments, work: &work, console, control, extent };
    // Build the family's index first, because it refuses vectors that no index takes before anything slow
    // runs.
    growth::find_or_build(&experiment, &work.base)?;
    let mut records = Records::create(&arguments.output, "e2lsh", &E2lshDetails::of(&experiment))?;
    let (points, chosen) = accuracy::measure(&experiment)?;
    records.write(&TablesRecord::of(&chosen.built))?;
    write_points(&points, &mut records)?;
    write_points(&accuracy::block_sizes(&experiment, &chosen)?, &mut records)?;
    write_points(&ideas::measure(&experiment, &chosen)?, &mut records)?;
    write_points(&speeds::measure(&experiment, &chosen)?, &mut records)?;
    write_points(&speeds::synchronous(&experiment, &chosen)?, &mut records)?;
    let grown = growth::measure(&experiment, &chosen)?;
    write_points(&grown.paper, &mut records)?;
    grown.family.iter().try_for_each(|point| records.write(&E2lshRecord::Family(point)))?;
    experiment.remove(&chosen.name)?;
    records.print_location(console)
}

fn write_points(points: &[PaperPoint], records: &mut Records) -> Result<(), Failure> {
    points.iter().try_for_each(|point| records.write(&E2lshRecord::Paper(point)))
}
