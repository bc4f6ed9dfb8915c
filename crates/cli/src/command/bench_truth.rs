//! The exact neighbours with which `bench` judges answers: of a file, or found among the vectors of an index.

use std::path::Path;
use std::time::Instant;

use bathyal_console::{Console, Failure};
use bathyal_index::Index;
use bathyal_vectors::{IdFile, IdFormat, VectorFile, write_ids};
use serde::Serialize;

use super::exact;
use crate::arguments::BenchArguments;

/// Ground truth that was found for this run. The names of the fields are keys of `--json`: they are stable.
#[derive(Debug, Serialize)]
pub(super) struct FoundTruth {
    /// The index whose vectors were compared.
    index: String,
    vectors: usize,
    k: usize,
    seconds: f64,
    /// The file that it was written to; null without `--save-groundtruth`.
    file: Option<String>,
}

/// Refuses a file that the ground truth cannot be written to, before the work.
pub(super) fn check(arguments: &BenchArguments) -> Result<(), Failure> {
    if let Some(path) = &arguments.save_groundtruth {
        IdFormat::from_path(path)?;
    }
    Ok(())
}

/// Returns the `k` exact neighbours of each query, and how they were found if no file was given.
pub(super) fn load(
    arguments: &BenchArguments,
    index: &Index,
    queries: &VectorFile,
    k: usize,
    console: &Console,
) -> Result<(IdFile, Option<FoundTruth>), Failure> {
    match &arguments.groundtruth {
        Some(path) => Ok((exact::open(path, index, k, queries.count())?, None)),
        None => find(arguments, index, queries, k, console).map(|(exact, found)| (exact, Some(found))),
    }
}

fn find(
    arguments: &BenchArguments,
    index: &Index,
    queries: &VectorFile,
    k: usize,
    console: &Console,
) -> Result<(IdFile, FoundTruth), Failure> {
    let began = Instant::now();
    let progress = console.progress();
    let exact = index.exact_neighbors(queries, k, arguments.settings.threads, &progress)?;
    drop(progress);
    let seconds = began.elapsed().as_secs_f64();
    let file: Option<&Path> = arguments.save_groundtruth.as_deref();
    if let Some(path) = file {
        write_ids(path, &exact)?;
    }
    let found = FoundTruth {
        index: arguments.index.display().to_string(),
        vectors: index.len(),
        k: exact.k(),
        seconds,
        file: file.map(|path| path.display().to_string()),
    };
    Ok((exact, found))
}

impl FoundTruth {
    /// Returns the line for the text output.
    pub(super) fn line(&self) -> String {
        let FoundTruth { index, vectors, k, seconds, file } = self;
        let kept = file.as_ref().map_or(String::new(), |file| format!(", written to {file}"));
        format!("ground truth: the {k} nearest of the {vectors} vectors of {index}, {seconds:.2} s{kept}\n")
    }
}
