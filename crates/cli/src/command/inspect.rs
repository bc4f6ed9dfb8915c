//! `bathyal inspect`.

use std::fmt::Write;

use bathyal_index::InspectReport;

use crate::arguments::InspectArguments;
use crate::byte_size;
use crate::console::Console;
use crate::failure::Failure;

/// Columns of the longest bar of the histogram.
const BAR_COLUMNS: u64 = 40;

pub(super) fn run(arguments: &InspectArguments, console: &Console) -> Result<(), Failure> {
    let progress = console.progress();
    let report = bathyal_index::inspect(&arguments.index, &progress)?;
    drop(progress);
    console.answer(&report, &text(&report))
}

fn text(report: &InspectReport) -> String {
    let manifest = &report.manifest;
    let (graph, codes) = (&manifest.graph, &manifest.codes);
    let size = byte_size::format;
    let mut text = format!(
        "{} {} graph, format {}, written by {}\n\
         vectors       {} of {} {}, {}\n\
         on disk       {}, {:.2} times the data ({})\n\
         graph         {}: pages of {} B, {} records each, reads of {} B, {:.1}% padding\n\
         codes         {}: {} of {} B a vector, in memory while searching\n\
         built with    max_degree {}, search_list {}, alpha {}, seed {}, in {:.1} s\n\
         entry point   vector {}\n",
        manifest.family,
        graph.layout,
        manifest.format_version,
        manifest.written_by,
        manifest.vectors,
        manifest.dim,
        manifest.element,
        manifest.metric,
        size(report.index_bytes),
        report.amplification,
        size(report.data_bytes),
        size(graph.file.bytes),
        graph.page_bytes,
        report.records_per_page,
        report.read_bytes,
        100.0 * report.padding_share,
        size(codes.file.bytes),
        codes.kind,
        codes.code_bytes,
        graph.max_degree,
        graph.search_list,
        graph.alpha,
        manifest.seed,
        manifest.build_seconds,
        graph.entry_point,
    );
    let calibration = &manifest.calibration;
    // Writing to a string does not fail.
    for curve in &calibration.curves {
        let ends = curve.points.first().zip(curve.points.last());
        let Some((first, last)) = ends else { continue };
        let _ = writeln!(
            text,
            "calibration   k {}: recall {:.3} at search_list {} to {:.3} at {} ({} {})",
            curve.k,
            first.recall,
            first.search_list,
            last.recall,
            last.search_list,
            calibration.queries,
            calibration.source,
        );
    }
    let (lowest, highest) = report.degree_range;
    let _ = writeln!(text, "neighbours    {lowest} to {highest}, mean {:.1}", report.mean_degree);
    let most = report.degree_histogram.iter().map(|bar| bar.count).max().unwrap_or(0).max(1);
    for bar in &report.degree_histogram {
        let columns = (bar.count * BAR_COLUMNS).div_ceil(most) as usize;
        let _ = writeln!(text, "  {:>4}..={:<4} {:>10} {}", bar.from, bar.to, bar.count, "#".repeat(columns));
    }
    text
}
