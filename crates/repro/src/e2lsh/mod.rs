//! `bathyal repro e2lsh`: E2LSH on storage as its paper has it, measured, and the family `lsh` beside.

mod accuracy;
pub mod arguments;
mod build;
mod filter;
mod fit;
mod growth;
mod ideas;
mod lab;
mod layout;
mod mapped;
mod points;
mod report;
mod run;
mod search;
mod speeds;
mod speeds_report;

use bathyal_console::{Console, Failure};
use bathyal_tier::Control;

use crate::workload::{Sources, Workload, make_folders};
use arguments::E2lshArguments;
use bathyal_kernels::Metric;
use lab::{Extent, Lab};
use report::Report;

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
            "the ground truth has {} neighbours a query, {} distances; {} are needed, with distances: leave out \
             --groundtruth and they are computed",
            work.all.exact.k(),
            if work.all.exact.has_distances() { "with" } else { "without" },
            sources.k
        )));
    }
    let control = Control { cancel: Some(console.interrupt().flag()), deadline: None };
    let extent = Extent::of(&work.base, console)?;
    let lab = Lab { arguments, work: &work, console, control, extent };
    // Vectors that no index takes are refused before anything else takes its time.
    growth::built(&lab, &work.base)?;
    let (mut points, chosen) = accuracy::measure(&lab)?;
    points.extend(accuracy::block_sizes(&lab, &chosen)?);
    points.extend(ideas::measure(&lab, &chosen)?);
    points.extend(speeds::measure(&lab, &chosen)?);
    points.extend(speeds::synchronous(&lab, &chosen)?);
    let grown = growth::measure(&lab, &chosen)?;
    points.extend(grown.paper);
    lab.remove(&chosen.name)?;
    let report = Report { lab: &lab, chosen: &chosen, points: &points, family: &grown.family };
    report.write()
}
