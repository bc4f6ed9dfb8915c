//! `bathyal inspect`.

use std::fmt::Write;

use bathyal_console::{Console, Failure, byte_size};
use bathyal_index::format::manifest::{Manifest, Structure};
use bathyal_index::open::HistogramBar;
use bathyal_index::{InspectReport, Shape};

use crate::arguments::InspectArguments;

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
    let codes = &manifest.codes;
    let size = byte_size::format;
    let (layout, built, begins) = match &manifest.structure {
        Structure::Graph(graph) => (
            format!("{} graph", graph.layout),
            format!(
                "max_degree {}, search_list {}, alpha {}",
                graph.max_degree, graph.search_list, graph.alpha
            ),
            format!("entry point   vector {}\n", graph.entry_point),
        ),
        Structure::Cluster(cluster) => (
            format!("index, {} codes", cluster.layout),
            format!("groups of {} pages", cluster.group_pages),
            String::new(),
        ),
        Structure::Spann(spann) => (
            format!("index, {} posting lists", spann.layout),
            format!(
                "centroid_share {}, replicas {}, list_limit {}",
                spann.centroid_share, spann.replicas, spann.list_limit
            ),
            format!("entry point   list {}\n", spann.entry_point),
        ),
    };
    let mut text = format!(
        "{} {layout}, format {}, written by {}\n\
         vectors       {} of {} {}, {}\n\
         on disk       {}, {:.2} times the data ({})\n\
         {}, {:.2} times the data, {:.1}% padding\n\
         codes         {}: {} of {} B each, in memory while searching{}\n\
         built with    {built}, seed {}, in {:.1} s\n\
         {begins}",
        manifest.family,
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
        100.0 * report.padding_share,
        size(codes.file.bytes),
        codes.kind,
        codes.code_bytes,
        if manifest.spann().is_ok() { " within too little memory for centroids" } else { "" },
        manifest.seed,
        manifest.build_seconds,
    );
    calibration(&mut text, manifest);
    shape(&mut text, &report.shape);
    text
}

/// What only indexes of a family have.
fn shape(text: &mut String, shape: &Shape) {
    let size = byte_size::format;
    match shape {
        Shape::Graph { mean_degree, degree_range: (lowest, highest), degree_histogram, packed } => {
            if let Some(packed) = packed {
                let _ = writeln!(
                    text,
                    "links         {:.1} bits each; a record is found by {:.1} bits in memory",
                    packed.link_bits, packed.offset_bits
                );
                let _ = writeln!(
                    text,
                    "lines         a record touches {:.2} of 64 B, {:.2} had none been moved, for {:.1}% of the file",
                    packed.lines,
                    packed.lines_unmoved,
                    100.0 * packed.moved_share
                );
            }
            let _ = writeln!(text, "neighbours    {lowest} to {highest}, mean {mean_degree:.1}");
            histogram(text, degree_histogram);
        }
        Shape::Cluster { groups, group_vectors, centroid_bytes, .. } => {
            let bytes = size(*centroid_bytes);
            let _ = writeln!(
                text,
                "groups        {groups} of {group_vectors} vectors, centroids {bytes} in memory"
            );
        }
        Shape::Lists {
            lists,
            mean_replicas,
            mean_list,
            list_range,
            address_bits,
            centroid_bytes,
            list_codes,
            list_histogram,
        } => {
            let (bytes, (shortest, longest)) = (size(*centroid_bytes), list_range);
            let _ = writeln!(
                text,
                "lists         {lists} of {shortest} to {longest} vectors, mean {mean_list:.1}; centroids {bytes} in memory"
            );
            let address = address_bits.map_or(String::new(), |bits| format!(", {bits:.1} bits an address"));
            let _ = writeln!(text, "replicas      a vector is in {mean_replicas:.2} lists{address}");
            if let Some((kind, bytes)) = list_codes {
                let _ = writeln!(text, "list codes    {kind} of {bytes} B each, vectors read to re-rank");
            }
            histogram(text, list_histogram);
        }
    }
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
    match &report.shape {
        Shape::Graph { packed: Some(_), .. } => {
            format!("records       {bytes} of {} B each", report.read_bytes)
        }
        Shape::Lists { .. } => format!("postings      {bytes}, {} B a list", report.read_bytes),
        _ => {
            let (records, read) = (report.records_per_page, report.read_bytes);
            format!("pages         {bytes} of {records} records each, reads of {read} B")
        }
    }
}

/// The ends of each calibration curve. Writing to a string does not fail.
fn calibration(text: &mut String, manifest: &Manifest) {
    let calibration = &manifest.calibration;
    for curve in &calibration.curves {
        let ends = curve.points.iter().min_by(|a, b| a.recall.total_cmp(&b.recall));
        let Some((first, last)) = ends.zip(curve.points.iter().max_by(|a, b| a.recall.total_cmp(&b.recall)))
        else {
            continue;
        };
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
}
