//! `bathyal repro`: the papers' figures, measured on this machine.
//!
//! A figure's module says which indexes it compares, in which cells, and what its report holds; building, measuring
//! and what reports share is the same for all.

pub mod arguments;
mod cells;
mod cluster;
mod cluster_report;
mod compare;
mod compare_report;
mod devices;
mod draw;
mod effort;
mod findings;
mod graph;
mod graph_report;
mod records;
mod report;
mod subjects;
mod workload;

use std::path::Path;

pub use arguments::ReproArguments;

use bathyal_console::{Console, Failure};

use arguments::{Paper, SecondTier, TrialArguments};

/// Runs the reproduction that was asked for.
///
/// # Errors
/// What went wrong, with the exit code that says so.
pub fn run(arguments: &ReproArguments, console: &Console) -> Result<(), Failure> {
    match &arguments.paper {
        Paper::SecondTier { experiment } => match experiment {
            SecondTier::Graph(arguments) => graph::run(arguments, console),
            SecondTier::Cluster(arguments) => cluster::run(arguments, console),
            SecondTier::Compare(arguments) => compare::run(arguments, console),
        },
    }
}

/// Makes the work folder and that of the report where they are not there.
fn make_folders(arguments: &TrialArguments, output: &Path) -> Result<(), Failure> {
    for folder in [arguments.work.as_path(), output] {
        std::fs::create_dir_all(folder)
            .map_err(|e| Failure::new(format!("{}: cannot make the folder: {e}", folder.display())))?;
    }
    Ok(())
}
