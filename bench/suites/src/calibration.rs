//! Asks for recall and measures what comes out.
//!
//! Twice: from an index that was calibrated with vectors of its own data, and from one that was calibrated with
//! half of the queries and is measured with the other half.

use crate::sets::{Part, Set, SetArguments, every};
use bathyal_index::{Effort, Index, OpenOptions, SearchOptions};
use bathyal_tier::Control;
use bathyal_vectors::groundtruth::recall;
use serde::Serialize;
use std::error::Error;
use std::io::Write;
use std::path::PathBuf;

/// Recalls asked for.
const ASKED: [f32; 8] = [0.80, 0.85, 0.90, 0.925, 0.95, 0.97, 0.98, 0.99];
/// How far below the recall asked for the measured one may be.
const BELOW: f64 = 0.01;
/// How far above it may be.
const ABOVE: f64 = 0.02;
/// Neighbours a query.
const K: usize = 10;

#[derive(Debug, clap::Args)]
pub(crate) struct CalibrationArguments {
    #[command(flatten)]
    sets: SetArguments,
    /// What the index is calibrated with: held-out (vectors of the data), queries (half of them), or both
    #[arg(long, value_delimiter = ',', default_value = "held-out,queries")]
    sources: Vec<String>,
    /// Where to append a JSON line a row
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
    /// Less effort than k candidates there is not, so that more recall than was asked for may be the least.
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
    println!("| set | calibrated with | queries | asked | measured | gap | search_list | reads | |");
    println!("|---|---|---:|---:|---:|---:|---:|---:|---|");
    let mut fine = true;
    for set in arguments.sets.open()? {
        for source in &arguments.sources {
            let (index, part) = prepare(arguments, &set, source)?;
            for asked in ASKED {
                let row = ask(&index, &set, source, &part, asked, arguments.sets.threads)?;
                fine &= row.verdict.starts_with("ok");
                writeln!(output, "{}", serde_json::to_string(&row)?)?;
            }
        }
    }
    Ok(fine)
}

/// The index, and the queries that had no part in its calibration.
fn prepare(
    arguments: &CalibrationArguments,
    set: &Set,
    source: &str,
) -> Result<(Index, Part), Box<dyn Error>> {
    let (calibration, measured) = match source {
        "held-out" => (None, every(set, 1, 0)?),
        "queries" => (Some(every(set, 2, 0)?.queries), every(set, 2, 1)?),
        other => return Err(format!("no calibration is called {other}; there are held-out, queries").into()),
    };
    let folder = arguments.sets.index(set, source, calibration)?;
    Ok((Index::open(folder, &OpenOptions::default())?, measured))
}

fn ask(
    index: &Index,
    set: &Set,
    source: &str,
    part: &Part,
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
