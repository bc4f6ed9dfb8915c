//! `bathyal-repro second-tier compare`: finds which index suits which memory.

use bathyal_console::{Console, Failure};
use bathyal_tier::Control;
use serde::Serialize;

use crate::records::Records;
use crate::second_tier::arguments::CompareReproArguments;
use crate::second_tier::cells::{PlannedIndex, measure_all};
use crate::second_tier::details::Details;
use crate::second_tier::effort::Trial;
use crate::second_tier::subjects::{IndexShape, Subject};
use crate::second_tier::{cluster, graph};
use crate::workload::{Workload, make_folders};

pub(crate) fn run(arguments: &CompareReproArguments, console: &Console) -> Result<(), Failure> {
    make_folders(&arguments.trial.work, &arguments.output)?;
    let work = Workload::open(&(&arguments.trial).into(), console)?;
    let mut subjects = Vec::new();
    for shape in shapes(arguments) {
        subjects.push(Subject::find_or_build(shape, &arguments.trial, &work, console)?);
    }
    let control = Control { cancel: Some(console.interrupt().flag()), deadline: None };
    let trial = Trial { arguments: &arguments.trial, work: &work, beam_width: arguments.beam_width, control };
    let in_flight_counts = vec![arguments.trial.in_flight];
    let planned =
        |subject| PlannedIndex { subject, in_flight_counts: in_flight_counts.clone(), on_file: true };
    // One group, so that all compared indexes take turns.
    let plan = [subjects.iter().map(planned).collect()];
    let details =
        CompareDetails { beam_width: arguments.beam_width, centroid_share: arguments.centroid_share };
    let mut records =
        Records::create(&arguments.output, "second-tier compare", &Details::of(&trial, details))?;
    let progress = console.progress();
    measure_all(&plan, &trial, &mut records, &progress)?;
    drop(progress);
    records.print_location(console)
}

/// Details of this experiment in the line about the run.
#[derive(Serialize)]
struct CompareDetails {
    beam_width: u32,
    centroid_share: f32,
}

/// Returns graphs, posting lists, and groups whose codes are in memory.
fn shapes(arguments: &CompareReproArguments) -> Vec<IndexShape> {
    let mut shapes = graph::shapes(&arguments.degrees, &arguments.graph_layouts);
    shapes.extend(cluster::shapes(&arguments.replicas, &arguments.list_layouts, arguments.centroid_share));
    if !arguments.without_codes {
        shapes.push(IndexShape::Codes);
    }
    shapes
}
