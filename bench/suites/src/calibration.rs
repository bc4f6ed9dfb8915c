//! Compares requested with measured recall.
//!
//! It does so for an index that is calibrated with vectors of its own data, and for one that is calibrated
//! with half of the queries and measured with the other half.

use crate::sets::{QuerySubset, Set, SetArguments, every};
use bathyal_index::{Effort, Index, OpenOptions, SearchOptions};
use bathyal_tier::Control;
use bathyal_vectors::groundtruth::recall;
use serde::Serialize;
use std::error::Error;
use std::io::Write;
use std::path::PathBuf;

/// Requested recalls.
const REQUESTED: [f32; 8] = [0.80, 0.85, 0.90, 0.925, 0.95, 0.97, 0.98, 0.99];
/// Greatest difference by which the measured recall may be below the requested one.
const BELOW: f64 = 0.01;
/// Greatest difference by which it may be above.
const ABOVE: f64 = 0.02;
/// Neighbours per query.
const K: usize = 10;

#[derive(Debug, clap::Args)]
pub(crate) struct CalibrationArguments {
    #[command(flatten)]
    sets: SetArguments,
    /// Calibration of the index: held-out (with vectors of the data), queries (with half of them), or both
    #[arg(long, value_delimiter = ',', default_value = "held-out,queries")]
    sources: Vec<String>,
    /// File to which a JSON line per row is appended
    #[arg(long, default_value = "bench/.work/calibration.jsonl")]
    output: PathBuf,
}

#[derive(Serialize)]
struct Row {
    set: String,
    calibrated_with: String,
    queries: usize,
    k: usize,
    asked: f32,
    measured: f64,
    search_list: u32,
    reads_per_query: f64,
    verdict: &'static str,
}

impl Row {
    /// Returns the verdict on a measured recall. There is no effort below k candidates, so even the least
    /// effort may exceed the requested recall.
    fn verdict(asked: f32, measured: f64, search_list: u32) -> &'static str {
        let gap = measured - f64::from(asked);
        match gap {
            gap if gap < -BELOW => "TOO LOW",
            gap if gap > ABOVE && search_list as usize <= K => "ok (least effort)",
            gap if gap > ABOVE => "TOO HIGH",
            _ => "ok",
        }
    }
}

pub(crate) fn run(arguments: &CalibrationArguments) -> Result<bool, Box<dyn Error>> {
    if let Some(folder) = arguments.output.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut output = std::fs::OpenOptions::new().create(true).append(true).open(&arguments.output)?;
    println!("| set | calibrated with | queries | requested | measured | gap | search_list | reads | |");
    println!("|---|---|---:|---:|---:|---:|---:|---:|---|");
    let mut passed = true;
    for set in arguments.sets.open()? {
        for source in &arguments.sources {
            let (index, part) = prepare(arguments, &set, source)?;
            for asked in REQUESTED {
                let row = measure(&index, &set, source, &part, asked, arguments.sets.threads)?;
                passed &= row.verdict.starts_with("ok");
                writeln!(output, "{}", serde_json::to_string(&row)?)?;
            }
        }
    }
    Ok(passed)
}

/// Returns the index, and queries that were not used in its calibration.
fn prepare(
    arguments: &CalibrationArguments,
    set: &Set,
    source: &str,
) -> Result<(Index, QuerySubset), Box<dyn Error>> {
    let (calibration, measured) = match source {
        "held-out" => (None, every(set, 1, 0)?),
        "queries" => (Some(every(set, 2, 0)?.queries), every(set, 2, 1)?),
        other => {
            return Err(
                format!("--sources: '{other}' is not a calibration; expected held-out or queries").into()
            );
        }
    };
    let folder = arguments.sets.index(set, source, calibration)?;
    Ok((Index::open(folder, &OpenOptions::default())?, measured))
}

fn measure(
    index: &Index,
    set: &Set,
    source: &str,
    part: &QuerySubset,
    asked: f32,
    threads: usize,
) -> Result<Row, Box<dyn Error>> {
    let options = SearchOptions { k: K, effort: Effort::Recall(asked), threads, ..SearchOptions::default() };
    let found = index.search(&part.queries, &options, Control::default())?;
    let measured = recall(&part.exact, &found.ids, found.k, part.queries.count())?;
    let queries = part.queries.count();
    let row = Row {
        set: set.name.clone(),
        calibrated_with: source.into(),
        queries,
        k: K,
        asked,
        measured,
        search_list: found.search_list,
        reads_per_query: found.totals.reads as f64 / queries.max(1) as f64,
        verdict: Row::verdict(asked, measured, found.search_list),
    };
    println!(
        "| {} | {} | {} | {:.3} | {:.4} | {:+.4} | {} | {:.1} | {} |",
        row.set,
        row.calibrated_with,
        row.queries,
        row.asked,
        row.measured,
        row.measured - f64::from(row.asked),
        row.search_list,
        row.reads_per_query,
        row.verdict
    );
    for note in &found.notes {
        eprintln!("note: {note}");
    }
    Ok(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_keep_to_the_bounds() {
        assert_eq!(Row::verdict(0.90, 0.895, 40), "ok");
        assert_eq!(Row::verdict(0.90, 0.919, 40), "ok");
        assert_eq!(Row::verdict(0.90, 0.885, 40), "TOO LOW");
        assert_eq!(Row::verdict(0.90, 0.925, 40), "TOO HIGH");
        assert_eq!(Row::verdict(0.80, 0.90, 10), "ok (least effort)");
    }
}
