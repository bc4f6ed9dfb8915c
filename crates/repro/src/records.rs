//! The records of a run: one line of JSON about the run, then one per measurement.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use bathyal_console::{Console, Failure};
use serde::Serialize;

/// The name of the records file in the output folder.
pub(crate) const FILE_NAME: &str = "records.jsonl";

/// The first line: what reports need to know about the run as a whole.
#[derive(Serialize)]
struct RunLine<'a, T> {
    of: &'static str,
    paper: &'a str,
    command: String,
    machine: String,
    #[serde(flatten)]
    details: &'a T,
}

/// The open file of records.
pub(crate) struct Records {
    folder: PathBuf,
    path: PathBuf,
    file: File,
    written: usize,
}

/// The output of `--json`.
#[derive(Serialize)]
struct RunOutput {
    records: String,
    count: usize,
    report_command: String,
}

impl Records {
    /// Creates the file in `folder`, replaces an earlier one, and writes the line about the run: `paper`, as
    /// the bench names it, and the fields of the object `details`.
    ///
    /// # Errors
    /// Names the file, if it cannot be written.
    pub(crate) fn create(folder: &Path, paper: &str, details: &impl Serialize) -> Result<Records, Failure> {
        let path = folder.join(FILE_NAME);
        let file = File::create(&path).map_err(|e| failed(&path, &e))?;
        let mut records = Records { folder: folder.to_owned(), path, file, written: 0 };
        records.line(&RunLine { of: "run", paper, command: command(), machine: machine(), details })?;
        Ok(records)
    }

    /// Writes a measurement at once, so that a run that is killed later keeps it.
    ///
    /// # Errors
    /// Names the file, if it cannot be written.
    pub(crate) fn write(&mut self, record: &impl Serialize) -> Result<(), Failure> {
        self.written += 1;
        self.line(record)
    }

    /// Writes several measurements.
    ///
    /// # Errors
    /// As for [`write`](Records::write).
    pub(crate) fn write_all<'a, T: Serialize + 'a>(
        &mut self,
        records: impl IntoIterator<Item = &'a T>,
    ) -> Result<(), Failure> {
        records.into_iter().try_for_each(|record| self.write(record))
    }

    /// Prints where the records are, and the command that makes a report from them.
    ///
    /// # Errors
    /// If standard output cannot be written.
    pub(crate) fn print_location(self, console: &Console) -> Result<(), Failure> {
        let report_command = format!("make repro-report RECORDS={}", self.folder.display());
        let records = self.path.display().to_string();
        let text = format!("records: {records}\nreport:  {report_command}");
        console.answer(&RunOutput { records, count: self.written, report_command }, &text)
    }

    fn line(&mut self, record: &impl Serialize) -> Result<(), Failure> {
        let mut line = serde_json::to_vec(record)
            .map_err(|e| Failure::new(format!("cannot write a record as JSON: {e}")))?;
        line.push(b'\n');
        self.file.write_all(&line).map_err(|e| failed(&self.path, &e))
    }
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("{}: cannot write the records: {error}", path.display()))
}

/// Returns the running command, with paths shortened to file names: folders of this machine do not belong in
/// records.
fn command() -> String {
    let bare = |argument: String| match argument.rsplit_once('/') {
        Some((_, name)) if !name.is_empty() => name.to_owned(),
        _ => argument,
    };
    std::env::args().map(bare).collect::<Vec<_>>().join(" ")
}

/// Returns the model of the processor, as far as the system tells it, and the number of cores.
fn machine() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    format!("{}, {cores} cores", model.map_or("unknown processor", |(_, model)| model.trim()))
}
