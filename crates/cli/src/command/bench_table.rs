//! The table of `bench`.

use std::fmt::Write as _;

use super::bench_subject::Subject;
use super::measurement::Measurement;

/// The header of the columns that every table has.
const HEADER: &str = "search_list   recall    ratio  ratio p99        qps  mean us   p95 us   p99 us    \
                      reads     hops    kB";

/// Returns the table: a line for each measurement, with the index if there are several, and with the recall
/// that was asked for if there is one.
pub(super) fn table(subjects: &[Subject]) -> String {
    let several = subjects.len() > 1;
    let width = subjects.iter().map(|subject| subject.name.chars().count()).max().unwrap_or(0).max(5);
    let index = |name: &str| if several { format!("{name:<width$}  ") } else { String::new() };
    let points = || subjects.iter().flat_map(|subject| &subject.points);
    let asks = points().any(|point| point.recall_target.is_some());
    let asked = |shown: &str| if asks { format!("{shown:>6} ") } else { String::new() };
    let mut table = format!("{}{}{HEADER}\n", index("index"), asked("asked"));
    for subject in subjects {
        for point in &subject.points {
            let recall = point.recall_target.map_or("-".to_owned(), |recall| recall.to_string());
            // Writing to a string does not fail.
            let _ = writeln!(table, "{}{}{}", index(&subject.name), asked(&recall), line(point));
        }
    }
    table
}

fn line(point: &Measurement) -> String {
    let shown = |ratio: Option<f64>| ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.4}"));
    let latency = &point.latency_us;
    format!(
        "{:>11} {:>8.4} {:>8} {:>10} {:>10.0} {:>8.0} {:>8.0} {:>8.0} {:>8.1} {:>8.1} {:>5.0}",
        point.search_list,
        point.quality.recall.unwrap_or(f64::NAN),
        shown(point.quality.ratio),
        shown(point.quality.ratio_p99),
        point.qps,
        latency.mean,
        latency.p95,
        latency.p99,
        point.reads_per_query,
        point.hops_per_query,
        point.bytes_per_query / 1e3,
    )
}
