//! `bathyal calibrate` of a collection.

use std::fmt::Write;

use bathyal_collection::{CalibrationReport, Collection, CollectionCalibration, CollectionOptions};
use bathyal_console::{Console, Failure};
use bathyal_index::OpenOptions;
use serde::Serialize;

use super::open::opened;
use crate::arguments::CalibrateArguments;
use crate::measured::{queries_to_measure, write_before};

#[derive(Serialize)]
struct CalibrateOutput {
    collection: String,
    #[serde(flatten)]
    report: CalibrationReport,
}

#[derive(Serialize)]
struct RemoveCalibrationOutput<'a> {
    collection: String,
    removed: &'a str,
}

pub(in crate::command) fn run(arguments: &CalibrateArguments, console: &Console) -> Result<(), Failure> {
    if arguments.groundtruth.is_some() || !arguments.pass.parts.stripe.is_empty() {
        return Err(Failure::usage(
            "a collection has no parts to name, and its exact neighbours change with its rows: leave \
             --stripe and --groundtruth out",
        ));
    }
    let store = arguments.pass.parts.store.options()?;
    let index =
        OpenOptions { memory_bytes: arguments.pass.memory, store: store.clone(), ..OpenOptions::default() };
    let options =
        CollectionOptions { index, store, threads: arguments.pass.threads, ..CollectionOptions::default() };
    let collection = opened(&arguments.index, &options, console)?;
    if let Some(name) = &arguments.remove {
        return remove(&collection, arguments, name, console);
    }
    let queries = queries_to_measure(arguments, console)?;
    let options = CollectionCalibration {
        field: arguments.field.clone(),
        name: arguments.name.clone(),
        queries: arguments.count as usize,
        threads: arguments.pass.threads,
    };
    let progress = console.progress();
    let report = collection.calibrate(&queries, &options, &progress)?;
    drop(progress);
    let answer = CalibrateOutput { collection: arguments.index.display().to_string(), report };
    console.answer(&answer, &text(&answer))
}

fn remove(
    collection: &Collection,
    arguments: &CalibrateArguments,
    name: &str,
    console: &Console,
) -> Result<(), Failure> {
    let path = arguments.index.display().to_string();
    if !collection.remove_calibration(name, arguments.field.as_deref())? {
        let known = collection.describe().calibrations;
        let names: Vec<&str> = known.iter().map(|calibration| calibration.name.as_str()).collect();
        let names = if names.is_empty() { "none".into() } else { names.join(", ") };
        return Err(Failure::usage(format!("{path}: there is no calibration {name:?}; there is {names}")));
    }
    let text = format!("{path}: removed the calibration {name}");
    console.answer(&RemoveCalibrationOutput { collection: path, removed: name }, &text)
}

fn text(answer: &CalibrateOutput) -> String {
    let CalibrateOutput { collection, report } = answer;
    let mut text = format!(
        "{collection}: calibration {} of {} with {} queries in {} segments, in {:.1} s\n",
        report.name, report.field, report.queries, report.segments, report.seconds
    );
    write_before(&mut text, &report.before);
    // Writing to a string does not fail.
    for one in &report.recalls {
        let (k, least, most) = (one.k, one.least, one.most);
        let _ = writeln!(text, "calibration   k {k}: recall {least:.3} to {most:.3} can be asked for");
    }
    if report.exact_segments > 0 {
        let exact = report.exact_segments;
        let _ = writeln!(text, "exact         {exact} segments, whose searches compare all rows");
    }
    for note in &report.notes {
        let _ = writeln!(text, "note          {note}");
    }
    text
}
