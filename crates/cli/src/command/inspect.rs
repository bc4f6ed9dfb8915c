//! `bathyal inspect`.

use std::fmt::Write;

use bathyal_advise::PlanFile;
use bathyal_console::{Console, Failure, Kind, byte_size};
use bathyal_index::format::manifest::Manifest;
use bathyal_index::{HistogramBar, InspectReport, QueryCalibration, find, inspect_in};
use serde_json::Value;

use crate::arguments::InspectArguments;
use crate::measured::utc_date;

/// Keys of the manifest that hold whole curves; the text shows only their ends.
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
    // Not `to_value`, which converts f32 to f64 and so prints digits that were not measured.
    let value = serde_json::to_string(&report).and_then(|text| serde_json::from_str(&text));
    let value = value.map_err(|error| Failure::of(Kind::Internal, format!("the report as JSON: {error}")))?;
    console.answer(&without_long_parts(value), &text)
}

/// Returns the report without its long parts, and with their names under the key `left_out`.
fn without_long_parts(mut report: Value) -> Value {
    let mut left_out = Vec::new();
    leave_out(&mut report["manifest"], "manifest", |key| key == "files", &mut left_out);
    let curves = |key: &str| CURVES.contains(&key);
    leave_out(&mut report["manifest"]["structure"], "manifest.structure", curves, &mut left_out);
    leave_out(&mut report, "", |key| key.ends_with("histogram"), &mut left_out);
    report["left_out"] = left_out.into();
    report
}

/// Removes the keys of an object for which `long` returns true, and adds their paths to `left_out`.
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
    let (manifest, description) = (&report.manifest, &report.description);
    let size = byte_size::format;
    let mut text = format!(
        "{} {}, format {}, written by {}\n\
         vectors       {} of {} {}, {}\n\
         on disk       {}, {:.2} times the data ({})\n\
         {}, {:.2} times the data, {:.1}% padding\n\
         built with    {}, seed {}, in {:.1} s\n",
        manifest.family,
        description.kind,
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
        100.0 * description.padding_share,
        description.built_with,
        manifest.seed,
        manifest.build_seconds,
    );
    // Writing to a string does not fail.
    if let Some(stored) = manifest.stored {
        let _ = writeln!(text, "stored as     {stored}");
    }
    if let Some(changed) = report.changed {
        let (inserted, deleted, log) = (changed.inserted, changed.deleted, size(changed.log_bytes));
        let _ = writeln!(
            text,
            "changed       {inserted} vectors inserted, {deleted} deleted since, a log of {log}"
        );
    }
    if report.unfinished_change_bytes > 0 {
        let bytes = report.unfinished_change_bytes;
        let _ = writeln!(
            text,
            "unfinished    {bytes} bytes of an unfinished change: its writer is still working, or was killed"
        );
    }
    for part in &report.parts {
        let _ = writeln!(text, "part {:<8} of {}, {}: {}", part.part, part.file, size(part.bytes), part.path);
    }
    if let Some(line) = plan_line(manifest) {
        let _ = writeln!(text, "plan          {line}");
    }
    for line in &description.calibration {
        let _ = writeln!(text, "calibration   {line}");
    }
    for calibration in &report.calibrations {
        let _ = writeln!(text, "calibrated    {}", calibrated(calibration));
    }
    for (label, line) in &description.lines {
        let _ = writeln!(text, "{label:<13} {line}");
    }
    if full {
        histogram(&mut text, &description.histogram);
        for file in &manifest.files {
            let _ = writeln!(text, "file          {:<16} {:>12} bytes", file.name, file.bytes);
        }
    } else if !description.histogram.is_empty() {
        text += "              --full shows their distribution, and the files\n";
    }
    text
}

/// Returns a line about the plan that the index keeps, if it keeps one.
fn plan_line(manifest: &Manifest) -> Option<String> {
    match PlanFile::kept_by(manifest) {
        Ok(plan) => plan.map(|plan| planned(&plan)),
        Err(error) => Some(format!("not readable: {error}")),
    }
}

/// Returns a line about a plan.
fn planned(plan: &PlanFile) -> String {
    let PlanFile { k, recall, concurrency, vectors, index, .. } = plan;
    let speed = index.load(*concurrency).map_or(String::new(), |load| {
        format!(", {:.0} queries a second with {concurrency} in flight", load.queries_per_second.value)
    });
    format!(
        "{} on {}, for {vectors} vectors: recall@{k} {recall} by {:.1} reads a query{speed}; \
         bathyal advise INDEX QUERIES --check compares",
        index.label, index.tier, index.reads.value
    )
}

/// Returns a line about a calibration with given queries.
fn calibrated(calibration: &QueryCalibration) -> String {
    let QueryCalibration { name, measured_at, calibration, .. } = calibration;
    let ends = calibration
        .ends()
        .into_iter()
        .map(|(k, least, most)| format!("k {k}: recall {:.3} to {:.3}", least.recall, most.recall));
    let far = calibration.reach.iter().find(|reach| reach.k == 10);
    let far = far.map_or(String::new(), |reach| format!("; neighbour 10 is at {} at most", reach.most));
    let ends: Vec<String> = ends.collect();
    format!("{name}: {} queries, {}; {}{far}", calibration.queries, utc_date(*measured_at), ends.join(", "))
}

/// Appends the bars of a histogram, a line each.
fn histogram(text: &mut String, bars: &[HistogramBar]) {
    let most = bars.iter().map(|bar| bar.count).max().unwrap_or(0).max(1);
    for bar in bars {
        let columns = (bar.count * BAR_COLUMNS).div_ceil(most) as usize;
        let (from, to, bar_text) = (bar.from, bar.to, "#".repeat(columns));
        let _ = writeln!(text, "  {from:>4}..={to:<4} {:>10} {bar_text}", bar.count);
    }
}

/// Returns a line about the file that searches read from a tier.
fn paged(report: &InspectReport) -> String {
    let bytes = byte_size::format(report.manifest.paged_file().bytes);
    let (records, read) = (report.description.records_per_page, report.description.read_bytes);
    match records {
        0 => format!("records       {bytes}, reads of {read} B"),
        records => format!("pages         {bytes} of {records} records each, reads of {read} B"),
    }
}
