//! Builds a disk index with DiskANN's own crates and searches it, printing JSON.
//!
//! The settings are those of DiskANN's own `diskann-benchmark`, so that nobody is measured with a handicap: one
//! query a thread at a time, reads by io_uring past the page cache, and no node cache, so that memory is equal.

mod build;
mod files;
mod search;

use anyhow::Result;
use clap::{Parser, Subcommand};
use diskann_vector::distance::Metric;

/// The only metric measured: under cosine, DiskANN finds little where vectors are not normalised.
const METRIC: Metric = Metric::L2;

/// DiskANN, measured from outside.
#[derive(Debug, Parser)]
#[command(name = "peer-diskann", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Build a disk index: prints one JSON object
    Build(build::BuildArguments),
    /// Search it once at each effort: prints one JSON object an effort
    Search(search::SearchArguments),
}

fn main() -> Result<()> {
    match Arguments::parse().command {
        Command::Build(arguments) => build::run(&arguments),
        Command::Search(arguments) => search::run(&arguments),
    }
}
