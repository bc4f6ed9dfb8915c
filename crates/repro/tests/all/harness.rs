//! Small generated files, and runs of the program.

use std::path::Path;
use std::process::Command;

use bathyal_kernels::Metric;
use bathyal_vectors::groundtruth::exact_neighbors;
use bathyal_vectors::progress::Silent;
use bathyal_vectors::{VectorFile, write_ids};
use serde_json::Value;
use tempfile::TempDir;

/// Number of vectors in [`folder`], their dim, and the number of queries.
const VECTORS: usize = 400;
const DIM: usize = 12;
const QUERIES: usize = 25;
/// Exact neighbours per query in its ground truth.
const NEIGHBORS: usize = 20;

/// Exit code and output of a run of the program.
#[derive(Debug)]
pub struct ProgramOutput {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl ProgramOutput {
    /// Asserts exit code 0 and an empty stderr; returns stdout.
    #[track_caller]
    pub fn succeeds(self) -> String {
        assert_eq!((self.code, self.stderr.as_str()), (Some(0), ""), "{self:?}");
        self.stdout
    }

    /// Asserts exit code 0 and exactly one JSON object on stdout; returns the object.
    #[track_caller]
    pub fn json(self) -> Value {
        let stdout = self.succeeds();
        let value: Value = serde_json::from_str(&stdout).expect("stdout is one JSON value");
        assert!(value.is_object());
        value
    }

    /// Asserts exit code `code`, nothing on stdout except the JSON error object of `--json`, and a message
    /// that contains all of `parts` and is no panic.
    #[track_caller]
    pub fn fails(self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        if !self.stdout.is_empty() {
            let output: Value = serde_json::from_str(&self.stdout).unwrap_or_else(|_| panic!("{self:?}"));
            assert_eq!(output["error"]["exit_code"], code, "{self:?}");
        }
        for part in parts {
            assert!(self.stderr.contains(part), "'{part}' is missing in: {}", self.stderr);
        }
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        assert!(!self.stderr.contains("internal error"), "{}", self.stderr);
    }
}

/// Runs the program with `arguments`, split at spaces, in `folder`.
pub fn repro(folder: &Path, arguments: &str) -> ProgramOutput {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bathyal-repro"));
    let output = command.current_dir(folder).args(arguments.split_whitespace()).output();
    let output = output.expect("the program starts");
    let text = |bytes| String::from_utf8(bytes).expect("the program prints UTF-8");
    ProgramOutput { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
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

/// Returns pseudo-random numbers from -1 to 1, the same in every run.
fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// Writes a `count x dim` matrix of numbers to `folder/name`, an `.fbin`.
pub fn write_vectors(folder: &Path, name: &str, count: usize, dim: usize, seed: u64) {
    let header = [count as u32, dim as u32].into_iter().flat_map(u32::to_le_bytes);
    let values = numbers(count * dim, seed);
    let content: Vec<u8> = header.chain(values.iter().flat_map(|value| value.to_le_bytes())).collect();
    std::fs::write(folder.join(name), content).unwrap();
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

/// Returns the names in `folder`, sorted.
pub fn names(folder: &Path) -> Vec<String> {
    let entries = folder.read_dir().unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
