//! `bathyal-repro e2lsh`: E2LSH on storage as its paper has it, measured, and the family `lsh` beside.

mod accuracy;
pub mod arguments;
mod build;
mod details;
mod filter;
mod growth;
mod ideas;
mod lab;
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
use details::{Details, Tables};
use lab::{Extent, Lab};
use points::{Point, Record};

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
    let mut records = Records::create(&arguments.output, "e2lsh", &Details::of(&lab))?;
    let (points, chosen) = accuracy::measure(&lab)?;
    records.write(&Tables::of(&chosen.built))?;
    keep(&points, &mut records)?;
    keep(&accuracy::block_sizes(&lab, &chosen)?, &mut records)?;
    keep(&ideas::measure(&lab, &chosen)?, &mut records)?;
    keep(&speeds::measure(&lab, &chosen)?, &mut records)?;
    keep(&speeds::synchronous(&lab, &chosen)?, &mut records)?;
    let grown = growth::measure(&lab, &chosen)?;
    keep(&grown.paper, &mut records)?;
    grown.family.iter().try_for_each(|point| records.write(&Record::Family(point)))?;
    lab.remove(&chosen.name)?;
    records.answer(console)
}

fn keep(points: &[Point], records: &mut Records) -> Result<(), Failure> {
    points.iter().try_for_each(|point| records.write(&Record::Paper(point)))
}
