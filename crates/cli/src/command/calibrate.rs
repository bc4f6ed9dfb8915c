//! `bathyal calibrate`.

use std::fmt::Write;
use std::path::Path;

use bathyal_console::{Console, Failure};
use bathyal_index::{CalibrateOptions, CalibrateReport, Index};
use bathyal_vectors::IdFile;
use serde::Serialize;

use crate::arguments::CalibrateArguments;

#[derive(Serialize)]
struct CalibrateOutput {
    index: String,
    #[serde(flatten)]
    report: CalibrateReport,
}

#[derive(Serialize)]
struct RemoveOutput<'a> {
    index: String,
    removed: &'a str,
}

pub(super) fn run(arguments: &CalibrateArguments, console: &Console) -> Result<(), Failure> {
    let progress = console.progress();
    let index = Index::open_attended(&arguments.index, &arguments.pass.options()?, &progress)?;
    if let Some(name) = &arguments.remove {
        drop(progress);
        return remove(&index, &arguments.index, name, console);
    }
    let Some(queries) = &arguments.queries else {
        return Err(Failure::usage("a calibration requires a file of queries"));
    };
    let queries = console.open_vectors(queries)?;
    let truth = arguments.groundtruth.as_ref().map(IdFile::open).transpose()?;
    let options = CalibrateOptions {
        name: arguments.name.clone(),
        queries: arguments.count as usize,
        truth,
        threads: arguments.pass.threads,
    };
    let report = index.calibrate(&queries, &options, &progress)?;
    drop(progress);
    let answer = CalibrateOutput { index: arguments.index.display().to_string(), report };
    console.answer(&answer, &text(&answer))
}

fn remove(index: &Index, path: &Path, name: &str, console: &Console) -> Result<(), Failure> {
    if !index.remove_calibration(name)? {
        // The error names the calibrations that there are.
        index.calibration(name)?;
        return Err(Failure::usage("the calibration of the build cannot be removed"));
    }
    let index = path.display().to_string();
    let text = format!("{index}: removed the calibration {name}");
    console.answer(&RemoveOutput { index, removed: name }, &text)
}

fn text(answer: &CalibrateOutput) -> String {
    let CalibrateOutput { index, report } = answer;
    let measured = &report.measured;
    let mut text = format!(
        "{index}: calibration {} with {} queries, in {:.1} s\n",
        measured.name, measured.calibration.queries, report.seconds
    );
    // Writing to a string does not fail.
    for before in &report.before {
        let (k, asked, found) = (before.k, before.asked, before.found);
        let _ = writeln!(text, "before        k {k}: asked for {asked}, these queries found {found:.3}");
    }
    for (k, least, most) in measured.calibration.ends() {
        let (least, most) = (least.recall, most.recall);
        let _ = writeln!(text, "calibration   k {k}: recall {least:.3} to {most:.3} can be asked for");
    }
    for note in &report.notes {
        let _ = writeln!(text, "note          {note}");
    }
    text
}
