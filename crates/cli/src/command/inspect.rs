//! `bathyal inspect`.

use std::fmt::Write;

use bathyal_console::{Console, Failure, byte_size};
use bathyal_index::{HistogramBar, InspectReport, find, inspect_in};

use crate::arguments::InspectArguments;

/// Columns of the longest bar of the histogram.
const BAR_COLUMNS: u64 = 40;

pub(super) fn run(arguments: &InspectArguments, console: &Console) -> Result<(), Failure> {
    let progress = console.progress();
    let report = inspect_in(
        find(&arguments.index, &arguments.parts.stripe, &arguments.parts.store.options()?)?.as_ref(),
        &progress,
    )?;
    drop(progress);
    console.answer(&report, &text(&report))
}

fn text(report: &InspectReport) -> String {
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
    histogram(&mut text, &told.histogram);
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
