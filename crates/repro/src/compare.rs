//! `bathyal repro second-tier compare`: which index for which memory.

use bathyal_console::{Console, Failure};
use bathyal_tier::Control;

use crate::arguments::CompareReproArguments;
use crate::cells::{Planned, measure_all};
use crate::compare_report::Report;
use crate::effort::Trial;
use crate::report::Answer;
use crate::subjects::{Shape, Subject};
use crate::workload::Workload;
use crate::{cluster, graph, make_folders};

pub(crate) fn run(arguments: &CompareReproArguments, console: &Console) -> Result<(), Failure> {
    make_folders(&arguments.trial, &arguments.output)?;
    let work = Workload::open(&arguments.trial, console)?;
    let mut subjects = Vec::new();
    for shape in shapes(arguments) {
        subjects.push(Subject::find_or_build(shape, &arguments.trial, &work, console)?);
    }
    let control = Control { cancel: Some(console.interrupt().flag()), deadline: None };
    let trial = Trial { arguments: &arguments.trial, work: &work, beam_width: arguments.beam_width, control };
    let widths = vec![arguments.trial.in_flight];
    let planned = |subject| Planned { subject, widths: widths.clone(), on_file: true };
    // All in one group: what is compared takes turns.
    let plan = [subjects.iter().map(planned).collect()];
    let progress = console.progress();
    let records = measure_all(&plan, &trial, &progress)?;
    drop(progress);

    let report = Report { arguments, trial: &trial, records: &records };
    let (path, files) = report.write()?;
    let findings = report.findings();
    let answer = Answer::new(&path, &files, &records, &arguments.trial).with(&findings);
    console.answer(&answer, &format!("{}\nwritten: {}", report.summary(), path.display()))
}

/// Graphs, posting lists, and groups with resident codes.
fn shapes(arguments: &CompareReproArguments) -> Vec<Shape> {
    let mut shapes = graph::shapes(&arguments.degrees, &arguments.graph_layouts);
    shapes.extend(cluster::shapes(&arguments.replicas, &arguments.list_layouts, arguments.centroid_share));
    if !arguments.without_codes {
        shapes.push(Shape::Codes);
    }
    shapes
}
