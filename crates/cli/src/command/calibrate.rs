//! `bathyal calibrate`.

use std::fmt::Write;
use std::path::Path;

use bathyal_console::{Console, Failure};
use bathyal_index::{CalibrateOptions, CalibrateReport, Index};
use bathyal_vectors::IdFile;
use serde::Serialize;

use crate::arguments::CalibrateArguments;
use crate::measured::{queries_to_measure, write_before};

#[derive(Serialize)]
struct CalibrateOutput {
    index: String,
    #[serde(flatten)]
    report: CalibrateReport,
}

#[derive(Serialize)]
struct RemoveCalibrationOutput<'a> {
    index: String,
    removed: &'a str,
}

pub(super) fn run(arguments: &CalibrateArguments, console: &Console) -> Result<(), Failure> {
    if arguments.field.is_some() {
        return Err(Failure::usage("--field is an option of the calibration of a collection"));
    }
    let progress = console.progress();
    let index = Index::open_attended(&arguments.index, &arguments.pass.options()?, &progress)?;
    if let Some(name) = &arguments.remove {
        drop(progress);
        return remove(&index, &arguments.index, name, console);
    }
    let queries = queries_to_measure(arguments, console)?;
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
    console.answer(&RemoveCalibrationOutput { index, removed: name }, &text)
}

fn text(answer: &CalibrateOutput) -> String {
    let CalibrateOutput { index, report } = answer;
    let measured = &report.measured;
    let mut text = format!(
        "{index}: calibration {} with {} queries, in {:.1} s\n",
        measured.name, measured.calibration.queries, report.seconds
    );
    write_before(&mut text, &report.before);
    // Writing to a string does not fail.
    for (k, least, most) in measured.calibration.ends() {
        let (least, most) = (least.recall, most.recall);
        let _ = writeln!(text, "calibration   k {k}: recall {least:.3} to {most:.3} can be asked for");
    }
    for note in &report.notes {
        let _ = writeln!(text, "note          {note}");
    }
    text
}
