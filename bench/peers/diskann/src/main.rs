//! Builds a disk index with DiskANN's own crates and searches it, printing JSON.
//!
//! The settings are those of DiskANN's own `diskann-benchmark`, so that DiskANN has no handicap: one query
//! per thread at a time, reads by io_uring past the page cache, and no node cache, so that memory is
//! comparable.

mod build;
mod files;
mod search;

use anyhow::Result;
use clap::{Parser, Subcommand};
use diskann_vector::distance::Metric;

/// The only measured metric. Under cosine, DiskANN has a low recall on vectors that are not normalised.
const METRIC: Metric = Metric::L2;

/// Builds and searches DiskANN disk indexes.
#[derive(Debug, Parser)]
#[command(name = "peer-diskann", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Build a disk index, and print one JSON object
    Build(build::BuildArguments),
    /// Search an index once at each effort, and print one JSON object per effort
    Search(search::SearchArguments),
}

fn main() -> Result<()> {
    match Arguments::parse().command {
        Command::Build(arguments) => build::run(&arguments),
        Command::Search(arguments) => search::run(&arguments),
    }
}
