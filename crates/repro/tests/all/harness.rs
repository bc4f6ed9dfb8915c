//! Runs of the program, the records that they write, and a folder of small generated files.

use std::path::Path;
use std::process::Command;

use bathyal_kernels::Metric;
use bathyal_vectors::groundtruth::exact_neighbors;
use bathyal_vectors::progress::Silent;
use bathyal_vectors::{VectorFile, write_ids};
use serde_json::Value;
use tempfile::TempDir;

pub use crate::program::{Outcome, names, write_vectors};

/// Number of vectors in [`folder`], their dim, and the number of queries.
const VECTORS: usize = 400;
const DIM: usize = 12;
const QUERIES: usize = 25;
/// Exact neighbours per query in its ground truth.
const NEIGHBORS: usize = 20;

/// Runs the program with `arguments`, split at spaces, in `folder`.
pub fn repro(folder: &Path, arguments: &str) -> Outcome {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bathyal-repro"));
    let output = command.current_dir(folder).args(arguments.split_whitespace()).output();
    Outcome::of(output.expect("the program starts"))
}

/// The records that a run wrote.
pub struct RunRecords {
    /// The line about the run.
    pub run: Value,
    /// The lines of measurements.
    pub rows: Vec<Value>,
}

impl RunRecords {
    /// Returns the lines of one kind.
    pub fn of_kind(&self, kind: &str) -> Vec<Value> {
        self.rows.iter().filter(|row| row["of"] == kind).cloned().collect()
    }
}

/// Runs the program with `arguments` and `--json`, checks its output, and reads the records of `paper`.
#[track_caller]
pub fn records(folder: &Path, paper: &str, arguments: &str) -> RunRecords {
    let output = repro(folder, &format!("{arguments} --json")).json();
    let path = folder.join(output["records"].as_str().unwrap());
    let text = std::fs::read_to_string(&path).unwrap();
    let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let run = lines.next().unwrap();
    let rows: Vec<Value> = lines.collect();
    assert_eq!((&run["of"], &run["paper"]), (&"run".into(), &paper.into()));
    assert_eq!(output["count"].as_u64(), Some(rows.len() as u64));
    let command = output["report_command"].as_str().unwrap();
    assert!(command.starts_with("make repro-report RECORDS="), "{command}");
    // Records do not contain folders of this machine.
    let command = run["command"].as_str().unwrap();
    assert!(command.starts_with("bathyal-repro ") && command.contains(arguments), "{command}");
    assert!(!command.contains('/') && run["machine"].as_str().unwrap().contains(" cores"), "{run}");
    // The program writes records only, no report.
    assert_eq!(names(path.parent().unwrap()), ["records.jsonl"]);
    RunRecords { run, rows }
}

/// Returns a number of a record.
#[track_caller]
pub fn number(record: &Value, key: &str) -> f64 {
    record[key].as_f64().unwrap_or_else(|| panic!("{key} of {record}"))
}

/// Returns a folder with `base.fbin`, `queries.fbin` and `gt.ibin` (k = 20).
pub fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_vectors(folder.path(), "base.fbin", VECTORS, DIM, 1);
    write_vectors(folder.path(), "queries.fbin", QUERIES, DIM, 2);
    let open = |name: &str| VectorFile::open(folder.path().join(name)).unwrap();
    let (base, queries) = (open("base.fbin"), open("queries.fbin"));
    let exact = exact_neighbors(&base, &queries, Metric::L2, NEIGHBORS, None, &Silent).unwrap();
    write_ids(folder.path().join("gt.ibin"), &exact).unwrap();
    folder
}
