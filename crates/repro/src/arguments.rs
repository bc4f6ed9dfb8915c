//! Command-line arguments of `bathyal-repro`.

use bathyal_console::OutputOptions;
use clap::{Parser, Subcommand};

use crate::cloud::arguments::CloudArguments;
use crate::d_hnsw::arguments::DhnswArguments;
use crate::e2lsh::arguments::E2lshArguments;
use crate::gustann::arguments::GustannArguments;
use crate::second_tier::arguments::SecondTier;

const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    failed: a missing file, bad data, a full disk; stderr has the reason and what to do
  2    the command line is wrong
  3    an index is damaged, or the path holds no index
  130  stopped by Ctrl-C; the records written so far are kept";

/// Measure the figures of a paper on this machine. Each run writes records; `make repro-report
/// RECORDS=FOLDER` makes a report from them.
#[derive(Debug, Parser)]
#[command(name = "bathyal-repro", version, max_term_width = 100, after_help = EXIT_CODES)]
pub struct ReproArguments {
    /// The paper to reproduce.
    #[command(subcommand)]
    pub paper: Paper,
    /// Options of the output.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// The papers.
#[derive(Debug, Subcommand)]
pub enum Paper {
    /// Breaking the dilemma of performance and index size with second-tier memory
    SecondTier {
        /// The experiment
        #[command(subcommand)]
        experiment: SecondTier,
    },
    /// Implementing and evaluating E2LSH on storage: its tables and figures, compared with the family `lsh`
    E2lsh(Box<E2lshArguments>),
    /// Cloud-native vector search: its figures on an emulated object store, compared with the family
    /// `cluster` and lists of codes
    Cloud(Box<CloudArguments>),
    /// Vector search on disaggregated memory with d-HNSW: its figure and tables, compared with other families
    /// on the same network
    #[command(name = "d-hnsw")]
    DHnsw(Box<DhnswArguments>),
    /// Billion-scale vector search with a single GPU (GustANN): counts pages, bytes and memory, and predicts
    /// throughput
    Gustann(Box<GustannArguments>),
}
