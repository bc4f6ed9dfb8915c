//! A report as it is written: Markdown with plots, and a line of JSON a record.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use bathyal_console::Failure;
use serde::Serialize;

use crate::draw::{Axes, Curve, curves};

/// A report as it is being written.
pub(crate) struct Document<'a> {
    folder: &'a Path,
    pub(crate) text: String,
    files: Vec<PathBuf>,
}

impl<'a> Document<'a> {
    /// An empty one in `folder`.
    pub(crate) fn new(folder: &'a Path) -> Document<'a> {
        Document { folder, text: String::new(), files: Vec::new() }
    }

    /// Draws a plot and shows it at the end of the text so far.
    // Writing to a string does not fail.
    pub(crate) fn plot(&mut self, name: &str, axes: &Axes<'_>, drawn: &[Curve]) -> Result<(), Failure> {
        let path = self.folder.join(name);
        curves(&path, axes, drawn)?;
        let _ = write!(self.text, "\n![{}]({name})\n", axes.title);
        self.files.push(path);
        Ok(())
    }

    /// Writes everything; the report's path and all files.
    pub(crate) fn write(self, records: &[impl Serialize]) -> Result<(PathBuf, Vec<PathBuf>), Failure> {
        let mut lines = String::new();
        for record in records {
            let line = serde_json::to_string(record);
            lines += &line.map_err(|e| Failure::new(format!("cannot write a record as JSON: {e}")))?;
            lines.push('\n');
        }
        let (path, kept) = (self.folder.join("report.md"), self.folder.join("records.jsonl"));
        write(&kept, &lines)?;
        write(&path, &self.text)?;
        let mut files = vec![path.clone(), kept];
        files.extend(self.files);
        Ok((path, files))
    }
}

pub(crate) fn write(path: &Path, content: &str) -> Result<(), Failure> {
    let failed = |e| Failure::new(format!("{}: cannot write the report: {e}", path.display()));
    std::fs::write(path, content).map_err(failed)
}

/// The command that runs, its paths without the folders that only this machine knows.
pub(crate) fn command() -> String {
    let bare = |argument: String| match argument.rsplit_once('/') {
        Some((_, name)) if !name.is_empty() => name.to_owned(),
        _ => argument,
    };
    std::env::args().map(bare).collect::<Vec<_>>().join(" ")
}

/// The processor, as far as the system tells.
pub(crate) fn machine() -> String {
    let told = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = told.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    format!("{}, {cores} cores", model.map_or("unknown processor", |(_, model)| model.trim()))
}
