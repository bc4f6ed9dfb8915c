//! `bathyal collection inspect` and `verify`.

use std::fmt::Write;

use bathyal_collection::Description;
use bathyal_console::{Console, Failure, byte_size};
use serde::Serialize;

use super::create::lines;
use super::open::to_read;
use crate::arguments::LookArguments;
use crate::measured::utc_date;

/// Most segments in the text output; JSON has all.
const SHOWN_SEGMENTS: usize = 20;
/// Most faults in the text output.
const SHOWN_FAULTS: usize = 20;

#[derive(Serialize)]
struct InspectOutput {
    #[serde(flatten)]
    description: Description,
    /// The versions that are kept.
    versions: Vec<u64>,
}

pub(super) fn run(arguments: &LookArguments, console: &Console) -> Result<(), Failure> {
    let collection = to_read(&arguments.collection, &arguments.open, console)?;
    let answer = InspectOutput { description: collection.describe(), versions: collection.versions()? };
    console.answer(&answer, &text(&answer))
}

fn text(answer: &InspectOutput) -> String {
    let description = &answer.description;
    let size = byte_size::format;
    let amplification = match description.segments.len() {
        0 => String::new(),
        _ => format!(", {:.2} times the rows that are not deleted", description.space_amplification),
    };
    let mut text = format!(
        "{}: a collection of {} rows\n\
         {}\n\
         version       {}, {} batches so far\n\
         in segments   {} rows in {} segments, {}{amplification}\n\
         in memory     {} rows, {}, which are in the log",
        description.path,
        description.rows,
        lines(&description.schema),
        description.version,
        description.sequence,
        description.rows - description.rows_in_memory,
        description.segments.len(),
        size(description.bytes),
        description.rows_in_memory,
        size(description.memory_bytes),
    );
    for calibration in &description.calibrations {
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "\ncalibration   {} of {}: {} queries, {} segments measured, {}",
            calibration.name,
            calibration.field,
            calibration.queries,
            calibration.segments,
            utc_date(calibration.measured_at)
        );
    }
    for segment in description.segments.iter().take(SHOWN_SEGMENTS) {
        let deleted =
            if segment.deleted > 0 { format!(", {} deleted", segment.deleted) } else { String::new() };
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "\nsegment       {}: {} rows{deleted}, {}",
            segment.name,
            segment.rows,
            size(segment.bytes)
        );
    }
    let more = description.segments.len().saturating_sub(SHOWN_SEGMENTS);
    if more > 0 {
        let _ = write!(text, "\n              and {more} more segments, which --json lists");
    }
    text
}

#[derive(Serialize)]
struct VerifyOutput {
    collection: String,
    sound: bool,
    rows: u64,
    bytes: u64,
    faults: Vec<String>,
}

pub(super) fn verify(arguments: &LookArguments, console: &Console) -> Result<(), Failure> {
    let collection = to_read(&arguments.collection, &arguments.open, console)?;
    let progress = console.progress();
    let faults = collection.verify(&progress)?;
    drop(progress);
    let description = collection.describe();
    let path = arguments.collection.display().to_string();
    let answer = VerifyOutput {
        collection: path,
        sound: faults.is_empty(),
        rows: description.rows,
        bytes: description.bytes,
        faults,
    };
    let verdict = if answer.sound { "sound" } else { "DAMAGED" };
    let size = byte_size::format(description.bytes);
    let mut lines =
        vec![format!("{}: {verdict}: {} rows, {size} in segments", answer.collection, description.rows)];
    lines.extend(answer.faults.iter().take(SHOWN_FAULTS).map(|fault| format!("  {fault}")));
    let more = answer.faults.len().saturating_sub(SHOWN_FAULTS);
    if more > 0 {
        lines.push(format!("  and {more} more"));
    }
    if answer.sound {
        return console.answer(&answer, &lines.join("\n"));
    }
    let failure = Failure::damaged(format!(
        "{}: damaged: {} faults; restore the collection from a copy, or save its undamaged parts with \
         `bathyal collection repair`",
        answer.collection,
        answer.faults.len()
    ));
    console.answer_and_fail(&answer, &lines.join("\n"), failure)
}
