//! `bathyal inspect`.

use std::fmt::Write;

use bathyal_console::{Console, Failure, Kind, byte_size};
use bathyal_index::{HistogramBar, InspectReport, find, inspect_in};
use serde_json::Value;

use crate::arguments::InspectArguments;

/// What the manifest says of measurements: whole curves, of which the text has the ends.
const CURVES: [&str; 4] = ["calibration", "lone_curves", "shorter", "prunes"];
/// Columns of the longest bar of the histogram.
const BAR_COLUMNS: u64 = 40;

pub(super) fn run(arguments: &InspectArguments, console: &Console) -> Result<(), Failure> {
    let progress = console.progress();
    let report = inspect_in(
        find(&arguments.index, &arguments.parts.stripe, &arguments.parts.store.options()?)?.as_ref(),
        &progress,
    )?;
    drop(progress);
    let text = text(&report, arguments.full);
    if arguments.full {
        return console.answer(&report, &text);
    }
    // Not `to_value`, which makes doubles of floats, with digits that nobody measured.
    let told = serde_json::to_string(&report).and_then(|text| serde_json::from_str(&text));
    let told = told.map_err(|error| Failure::of(Kind::Internal, format!("the report as JSON: {error}")))?;
    console.answer(&short(told), &text)
}

/// A report without its long parts, which it names instead.
fn short(mut report: Value) -> Value {
    let mut left_out = Vec::new();
    leave_out(&mut report["manifest"], "manifest", |key| key == "files", &mut left_out);
    let curves = |key: &str| CURVES.contains(&key);
    leave_out(&mut report["manifest"]["structure"], "manifest.structure", curves, &mut left_out);
    leave_out(&mut report, "", |key| key.ends_with("histogram"), &mut left_out);
    report["left_out"] = left_out.into();
    report
}

/// Removes the keys of an object that `long` says, and adds them to `left_out`.
fn leave_out(object: &mut Value, path: &str, long: impl Fn(&str) -> bool, left_out: &mut Vec<String>) {
    let Value::Object(keys) = object else { return };
    keys.retain(|key, _| {
        if long(key) {
            left_out.push(if path.is_empty() { key.clone() } else { format!("{path}.{key}") });
        }
        !long(key)
    });
}

fn text(report: &InspectReport, full: bool) -> String {
    let (manifest, told) = (&report.manifest, &report.description);
    let size = byte_size::format;
    let mut text = format!(
        "{} {}, format {}, written by {}\n\
         vectors       {} of {} {}, {}\n\
         on disk       {}, {:.2} times the data ({})\n\
         {}, {:.2} times the data, {:.1}% padding\n\
         built with    {}, seed {}, in {:.1} s\n",
        manifest.family,
        told.kind,
        manifest.format_version,
        manifest.written_by,
        manifest.vectors,
        manifest.dim,
        manifest.element,
        manifest.metric,
        size(report.index_bytes),
        report.amplification,
        size(report.data_bytes),
        paged(report),
        report.paged_amplification,
        100.0 * told.padding_share,
        told.built_with,
        manifest.seed,
        manifest.build_seconds,
    );
    // Writing to a string does not fail.
    if let Some(stored) = manifest.stored {
        let _ = writeln!(text, "stored as     {stored}");
    }
    if let Some(changed) = report.changed {
        let log = size(changed.log_bytes);
        let (inserted, deleted) = (changed.inserted, changed.deleted);
        let _ = writeln!(
            text,
            "changed       {inserted} vectors inserted, {deleted} deleted since, a log of {log}"
        );
    }
    if report.unfinished_change_bytes > 0 {
        let bytes = report.unfinished_change_bytes;
        let _ = writeln!(
            text,
            "unfinished    {bytes} bytes of a change of which nobody was told: its writer is at work, or was killed"
        );
    }
    for part in &report.parts {
        let label = format!("part {}", part.part);
        let _ = writeln!(text, "{label:<13} of {}, {}: {}", part.file, size(part.bytes), part.path);
    }
    for line in &told.calibration {
        let _ = writeln!(text, "calibration   {line}");
    }
    for (label, line) in &told.lines {
        let _ = writeln!(text, "{label:<13} {line}");
    }
    if full {
        histogram(&mut text, &told.histogram);
        for file in &manifest.files {
            let _ = writeln!(text, "file          {:<16} {:>12} bytes", file.name, file.bytes);
        }
    } else if !told.histogram.is_empty() {
        text += "              --full shows how they are distributed, and the files\n";
    }
    text
}

/// Bars, a line each.
fn histogram(text: &mut String, bars: &[HistogramBar]) {
    let most = bars.iter().map(|bar| bar.count).max().unwrap_or(0).max(1);
    for bar in bars {
        let columns = (bar.count * BAR_COLUMNS).div_ceil(most) as usize;
        let (from, to, bar_text) = (bar.from, bar.to, "#".repeat(columns));
        let _ = writeln!(text, "  {from:>4}..={to:<4} {:>10} {bar_text}", bar.count);
    }
}

/// The file that searches read from a tier.
fn paged(report: &InspectReport) -> String {
    let bytes = byte_size::format(report.manifest.paged_file().bytes);
    let (records, read) = (report.description.records_per_page, report.description.read_bytes);
    match records {
        0 => format!("records       {bytes}, reads of {read} B"),
        records => format!("pages         {bytes} of {records} records each, reads of {read} B"),
    }
}
